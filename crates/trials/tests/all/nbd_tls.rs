//! The NBD export with TLS as others use it: certificates of `hearth pki`, and libnbd's tools, qemu-img and qemu-io as clients.

use std::net::TcpListener;
use trials::command::Ended;
use trials::needs::{Need, met};
use trials::place::{LONG, Place, SHORT};

const VOLUME_MIB: u64 = 64;

/// A daemon with a volume that is served with TLS, its certificates made by `hearth pki`.
struct Offered {
    place: Place,
    volume: String,
    address: String,
}

fn offered(trial: &str, more: &[&str]) -> Offered {
    let mut place = Place::new(trial);
    place.must(&["pki", "init"]);
    place.start();
    place.pool(64, 8);
    // Free a moment ago; all trials together take few.
    let port = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("there are ports").port();
    let address = format!("127.0.0.1:{port}");
    let export = format!("nbd:{address}");
    let (volume, _) = place.volume(VOLUME_MIB, "write-back", &[&["--export", &export, "--tls"], more].concat());
    Offered { place, volume, address }
}

impl Offered {
    /// A certificate; gives its directory.
    fn client(&self, name: &str) -> String {
        self.place.must(&["pki", "issue", name]);
        self.place.path(&format!("state/pki/{name}"))
    }

    fn uri(&self, certificates: &str) -> String {
        format!("nbds://{}/{}?tls-certificates={certificates}", self.address, self.volume)
    }

    /// The options of a disk for QEMU's programs.
    fn qemu(&self, certificates: &str) -> [String; 4] {
        let (host, port) = self.address.split_once(':').expect("host and port");
        let server = format!("server.type=inet,server.host={host},server.port={port}");
        [
            "--object".into(),
            format!("tls-creds-x509,id=tls0,dir={certificates},endpoint=client"),
            "--image-opts".into(),
            format!("driver=nbd,{server},export={},tls-creds=tls0", self.volume),
        ]
    }
}

fn said(ended: &Ended) -> String {
    format!("{}{}", ended.stdout, ended.stderr)
}

#[test]
fn libnbd_copies_there_and_back_and_strangers_stay_out() {
    let needs = [Need::Program("nbdinfo"), Need::Program("nbdcopy"), Need::Program("cmp")];
    if !met("libnbd_copies_there_and_back_and_strangers_stay_out", &needs) {
        return;
    }
    let mut offered = offered("tls-libnbd", &[]);
    let guest = offered.client("guest7");
    let uri = offered.uri(&guest);
    let info = offered.place.must_tool(&["nbdinfo", "--json", &uri], SHORT);
    let info: serde_json::Value = serde_json::from_str(&info).expect("it is JSON");
    assert_eq!((&info["TLS"], &info["exports"][0]["export-size"]), (&true.into(), &(VOLUME_MIB << 20).into()), "{info:#}");
    let (source, back) = (offered.place.path("source.img"), offered.place.path("back.img"));
    let random: Vec<u8> = (0..VOLUME_MIB << 17).flat_map(|n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()).collect();
    std::fs::write(&source, random).expect("there is room");
    offered.place.must_tool(&["nbdcopy", "--flush", &source, &uri], LONG);
    offered.place.must_tool(&["nbdcopy", "--connections=4", "--requests=16", &uri, &back], LONG);
    offered.place.must_tool(&["cmp", &source, &back], LONG);
    // Without TLS nothing is told, and without a certificate nobody is let in.
    let plain = format!("nbd://{}/{}", offered.address, offered.volume);
    let refused = offered.place.tool(&["nbdinfo", &plain], SHORT);
    assert!(!refused.good() && said(&refused).contains("TLS"), "{refused:#?}");
    let list = offered.place.tool(&["nbdinfo", "--list", &format!("nbd://{}", offered.address)], SHORT);
    assert!(!list.good() && !said(&list).contains(&offered.volume), "{list:#?}");
    // Another authority's certificate.
    let other = offered.place.path("other");
    offered.place.must(&["pki", "init", "--directory", &other]);
    offered.place.must(&["pki", "issue", "mallory", "--directory", &other]);
    let stranger = format!("{other}/mallory");
    std::fs::copy(format!("{guest}/ca-cert.pem"), format!("{stranger}/ca-cert.pem")).expect("there is room");
    let refused = offered.place.tool(&["nbdinfo", &offered.uri(&stranger)], SHORT);
    assert!(!refused.good(), "{refused:#?}");
    // Who is not in the list.
    let told = offered.place.must(&["volume", "set", &offered.volume, "--tls-names", "guest8,guest9"]);
    assert!(told.contains("TLS names guest8, guest9 (was all)"), "{told}");
    let refused = offered.place.tool(&["nbdinfo", &uri], SHORT);
    assert!(!refused.good() && !said(&refused).contains("export-size"), "{refused:#?}");
    let let_in = offered.client("guest9");
    offered.place.must_tool(&["nbdinfo", &offered.uri(&let_in)], SHORT);
    let log = offered.place.log();
    for line in [
        "its certificate \"mallory\" is not accepted: another authority has issued it",
        "its certificate \"guest7\" is not among the names",
    ] {
        assert_eq!(log.matches(line).count(), 1, "{line}: {log}");
    }
    // All of it is kept over a restart.
    offered.place.stop();
    offered.place.start();
    let shown = offered.place.must(&["volume", "show", &offered.volume]);
    assert!(shown.contains("nbds://127.0.0.1:") && shown.contains("guest8, guest9"), "{shown}");
    offered.place.must_tool(&["nbdcopy", &offered.uri(&let_in), &back], LONG);
    offered.place.must_tool(&["cmp", &source, &back], LONG);
    offered.place.stop();
}

#[test]
fn qemu_img_and_qemu_io_use_it() {
    if !met("qemu_img_and_qemu_io_use_it", &[Need::Program("qemu-img"), Need::Program("qemu-io")]) {
        return;
    }
    let mut offered = offered("tls-qemu", &["--tls-names", "guest7"]);
    let guest = offered.client("guest7");
    let disk = offered.qemu(&guest);
    let info = [&["qemu-img".to_owned(), "info".into(), "--output=json".into()], &disk[..]].concat();
    let info: serde_json::Value = serde_json::from_str(&offered.place.must_tool(&info, SHORT)).expect("it is JSON");
    assert_eq!(info["virtual-size"], VOLUME_MIB << 20, "{info:#}");
    let commands = [
        "write -P 0x11 0 1M",
        "write -f -P 0x33 6656 8704",
        "aio_write -P 0x55 2M 64k",
        "aio_write -P 0x77 4M 2M",
        "aio_flush",
        "write -z 65536 262144",
        "read -P 0x11 0 6656",
        "read -P 0x33 6656 8704",
        "read -P 0x55 2M 64k",
        "read -P 0x77 4M 2M",
        "read -P 0 65536 262144",
        "discard 524288 65536",
        "flush",
    ];
    let mut words = vec!["qemu-io".to_owned(), "-t".into(), "none".into()];
    words.extend(commands.iter().flat_map(|command| ["-c".to_owned(), (*command).to_owned()]));
    words.extend(disk.clone());
    let ended = offered.place.tool(&words, LONG);
    assert!(ended.good() && !said(&ended).contains("ailed") && !said(&ended).contains("rror"), "{ended:#?}");
    let other = offered.client("guest8");
    let info = [&["qemu-img".to_owned(), "info".into()], &offered.qemu(&other)[..]].concat();
    let refused = offered.place.tool(&info, SHORT);
    assert!(!refused.good(), "{refused:#?}");
    offered.place.stop();
}

#[test]
fn what_is_missing_is_told_with_what_to_do() {
    let mut place = Place::new("tls-told");
    place.start();
    place.pool(64, 8);
    let backing = place.file("backing.img", 8 << 20);
    let add = |more: &[&str]| {
        let words = [&["volume", "add", "v", "--backing", &backing, "--pool", "fast"], more].concat();
        let ended = trials::command::run(&mut place.hearth(&words), SHORT);
        assert!(!ended.good(), "{ended:#?}");
        said(&ended)
    };
    let told = add(&["--export", "nbd:0.0.0.0:10809"]);
    assert!(told.contains("add --tls"), "{told}");
    let told = add(&["--export", "nbd:0.0.0.0:10809", "--tls"]);
    assert!(told.contains("hearth pki init"), "{told}");
    let told = add(&["--export", "nbd", "--tls"]);
    assert!(told.contains("--export nbd:IP:PORT"), "{told}");
    let told = add(&["--export", "nbd", "--tls-names", "guest7"]);
    assert!(told.contains("--tls-names is for exports with TLS"), "{told}");
    let issue = trials::command::run(&mut place.hearth(&["pki", "issue", "guest7"]), SHORT);
    assert!(!issue.good() && said(&issue).contains("hearth pki init"), "{issue:#?}");
    place.must(&["pki", "init"]);
    let again = trials::command::run(&mut place.hearth(&["pki", "init"]), SHORT);
    assert!(!again.good() && said(&again).contains("never overwritten"), "{again:#?}");
    place.stop();
}
