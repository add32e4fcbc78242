//! The export with TLS: who is let in and who is not, and that everyday tools (libnbd's programs) use it.

use crate::common;
use crate::common::random::Random;
use crate::common::secured::{Secured, now_s};
use crate::common::{VOLUME_BYTES, run};
use nbd::Tls;
use pki::authority::{Role, VALID_S, init, issue};
use pki::files;
use std::io::Read;
use std::net::TcpStream;
use std::path::Path;

#[test]
fn libnbd_reads_facts_and_copies_there_and_back() {
    let secured = Secured::new();
    let uri = secured.uri(&secured.client("guest7"));
    let Some(text) = run("nbdinfo", &["--json", &uri]) else { return };
    assert!(text.contains("\"TLS\": true") && text.contains("\"export-size\": 67108864"), "{text}");
    let mut random = Random(5);
    let source = secured.fixture.path("source.img");
    std::fs::write(&source, random.bytes(VOLUME_BYTES as usize)).unwrap();
    let back = secured.fixture.path("back.img");
    run("nbdcopy", &[&source, &uri]);
    run("nbdcopy", &["--connections=4", "--requests=16", &uri, &back]);
    assert!(std::fs::read(&source).unwrap() == std::fs::read(&back).unwrap(), "what came back is something else");
}

#[test]
fn requests_of_all_sizes_in_records_of_all_sizes() {
    let secured = Secured::new();
    let guest = secured.client("guest7");
    let mut random = Random(3);
    let (old, new) = (&[&rustls::version::TLS12][..], rustls::ALL_VERSIONS);
    for (fragment, versions) in [(32, new), (100, new), (4096, new), (16384, new), (100, old), (16384, old)] {
        let mut config = common::secured::config_of(&guest, Some(&guest), versions);
        config.max_fragment_size = Some(fragment + 5);
        let mut client = common::secured::Client::connect(secured.address(), config).unwrap();
        client.go("disk").unwrap();
        for round in 0..60 {
            let sectors = 1 + random.below(if round % 10 == 0 { 4096 } else { 64 });
            let offset = 512 * random.below(VOLUME_BYTES / 512 - sectors);
            let data = random.bytes(512 * sectors as usize);
            client.write(offset, &data).unwrap();
            // New keys now and then, on both sides, where there can be any.
            if round % 7 == 3 && versions.len() > 1 {
                client.stream.conn.refresh_traffic_keys().unwrap();
            }
            assert!(client.read(offset, data.len() as u32).unwrap() == data, "wrong data at {offset}");
        }
    }
}

#[test]
fn who_has_no_good_certificate_is_refused() {
    let secured = Secured::new();
    let place = secured.fixture.dir.path();
    let refused = |client: std::io::Result<common::secured::Client>| {
        let told = client.and_then(|mut client| client.go("disk")).expect_err("it is refused").to_string();
        // The alert says why; it is not lost in a reset.
        told
    };
    assert!(refused(secured.connect(None)).contains("CertificateRequired"));
    // It expired yesterday.
    let old = place.join("old");
    issue(&secured.authority, "old", &Role::Client, &old, now_s() - VALID_S - 1).unwrap();
    let told = refused(secured.connect(Some(&old)));
    assert!(told.contains("CertificateExpired"), "{told}");
    // Another authority's.
    let (other, stranger) = (place.join("other"), place.join("stranger"));
    init(&other, "hearth test", "localhost", &[], now_s()).unwrap();
    issue(&other, "stranger", &Role::Client, &stranger, now_s()).unwrap();
    std::fs::copy(secured.authority.join(files::CA_CERTIFICATE), stranger.join(files::CA_CERTIFICATE)).unwrap();
    let told = refused(secured.connect(Some(&stranger)));
    assert!(told.contains("received fatal alert"), "{told}");
    // A client that does not trust the server.
    let distrustful = common::secured::config(&other, Some(&stranger));
    refused(common::secured::Client::connect(secured.address(), distrustful));
    let counters = secured.server().counters();
    common::wait_until("all are gone", || secured.server().counters().connections == 0);
    assert!(counters.handshakes_failed >= 3, "{counters:?}");
    secured.connect(Some(&secured.client("guest7"))).unwrap().go("disk").unwrap();
}

#[test]
fn a_list_of_names_lets_in_those_names_and_puts_out_the_others() {
    let secured = Secured::new();
    let (seven, eight) = (secured.client("guest7"), secured.client("guest8"));
    let mut before = secured.connect(Some(&eight)).unwrap();
    before.go("disk").unwrap();
    before.read(0, 512).unwrap();
    secured.server().allow_names("disk", &["guest7".into(), "guest9".into()]).unwrap();
    before.read(0, 512).expect_err("it was put out");
    let told = secured.connect(Some(&eight)).unwrap().go("disk").expect_err("it is not on the list").to_string();
    assert!(told.contains("\"guest8\" may not use the export disk"), "{told}");
    let mut client = secured.connect(Some(&seven)).unwrap();
    client.go("disk").unwrap();
    client.read(0, 512).unwrap();
    secured.server().allow_names("disk", &[]).unwrap();
    client.read(0, 512).unwrap();
    secured.connect(Some(&eight)).unwrap().go("disk").unwrap();
}

#[test]
fn changed_files_are_used_for_the_next_connection_and_bad_ones_are_not() {
    let secured = Secured::new();
    let guest = secured.client("guest7");
    let mut before = secured.connect(Some(&guest)).unwrap();
    before.go("disk").unwrap();
    // Another authority and server certificate, in place.
    let fresh = secured.fixture.dir.path().join("fresh");
    init(&fresh, "hearth test", "localhost", &[], now_s()).unwrap();
    let key = secured.authority.join(files::SERVER_KEY);
    let good = std::fs::read(&key).unwrap();
    std::fs::write(&key, "no key").unwrap();
    secured.connect(Some(&guest)).unwrap().go("disk").expect("what was there stays in force");
    std::fs::write(&key, good).unwrap();
    for name in [files::CA_CERTIFICATE, files::SERVER_KEY, files::SERVER_CERTIFICATE] {
        std::fs::rename(fresh.join(name), secured.authority.join(name)).unwrap();
    }
    secured.connect(Some(&guest)).and_then(|mut client| client.go("disk")).expect_err("its authority is not known any more");
    before.read(0, 512).expect("who is in stays in");
}

/// As an administrator makes it: a list of these certificates, in PEM and in DER.
fn revocation_list(authority: &Path, of: &[&Path], place: &Path) -> Option<[Vec<u8>; 2]> {
    std::fs::create_dir_all(place).expect("room");
    let path = |name: &str| place.join(name).display().to_string();
    let settings = "[ca]\ndefault_ca=d\n[d]\ndatabase=index.txt\ncrlnumber=number\ndefault_md=sha256\ndefault_crl_days=30\ncrl_extensions=e\n\
                    [e]\nauthorityKeyIdentifier=keyid:always\n";
    let settings = settings.replace("=index.txt", &format!("={}", path("index.txt"))).replace("=number", &format!("={}", path("number")));
    std::fs::write(path("settings"), settings).expect("room");
    std::fs::write(path("number"), "01\n").expect("room");
    let line = |client: &&Path| -> Option<String> {
        let certificate = client.join(files::CLIENT_CERTIFICATE).display().to_string();
        let serial = run("openssl", &["x509", "-serial", "-noout", "-in", &certificate])?;
        let serial = serial.trim().strip_prefix("serial=").expect("its form").to_owned();
        Some(format!("R\t350101000000Z\t260101000000Z\t{serial}\tunknown\t/CN=guest\n"))
    };
    std::fs::write(path("index.txt"), of.iter().map(line).collect::<Option<String>>()?).expect("room");
    let own = |name: &str| authority.join(name).display().to_string();
    let (key, certificate, pem, der) = (own(files::CA_KEY), own(files::CA_CERTIFICATE), path("pem"), path("der"));
    run("openssl", &["ca", "-gencrl", "-config", &path("settings"), "-keyfile", &key, "-cert", &certificate, "-out", &pem])?;
    run("openssl", &["crl", "-in", &pem, "-outform", "DER", "-out", &der])?;
    Some([pem, der].map(|path| std::fs::read(path).expect("it was made")))
}

/// A list that says nothing of this authority's clients lets nobody in who was out, and keeps nobody out who was in.
#[test]
fn only_a_list_of_this_authority_revokes_and_one_that_cannot_be_used_changes_nothing() {
    let secured = Secured::new();
    let (good, bad) = (secured.client("good"), secured.client("bad"));
    let enters = |client: &Path| secured.connect(Some(client)).and_then(|mut client| client.go("disk"));
    let list = secured.authority.join(files::CA_REVOKED);
    let other = secured.fixture.dir.path().join("other");
    init(&other, "another", "localhost", &[], now_s()).unwrap();
    let in_own_place = |name: &str| secured.fixture.dir.path().join(name);
    let Some([own, der]) = revocation_list(&secured.authority, &[&bad], &in_own_place("own")) else { return };
    let Some([foreign, _]) = revocation_list(&other, &[], &in_own_place("foreign")) else { return };
    let certificate = std::fs::read(secured.authority.join(files::CA_CERTIFICATE)).unwrap();
    let unusable = [b"".to_vec(), der, certificate, foreign, own[..own.len() / 2].to_vec()];

    for (number, bytes) in unusable.iter().enumerate() {
        std::fs::write(&list, bytes).unwrap();
        enters(&bad).unwrap_or_else(|error| panic!("{number}: nobody was revoked before: {error}"));
        let refused = Tls::open(&secured.authority).err().unwrap_or_else(|| panic!("{number}: it cannot be used at a start"));
        assert!(refused.to_string().contains("ca-crl.pem"), "{refused}");
    }
    std::fs::write(&list, &own).unwrap();
    enters(&bad).expect_err("it is revoked");
    enters(&good).expect("it is not");
    for (number, bytes) in unusable.iter().enumerate() {
        std::fs::write(&list, bytes).unwrap();
        assert!(enters(&bad).is_err(), "{number}: it stays revoked");
        enters(&good).unwrap_or_else(|error| panic!("{number}: the others stay in: {error}"));
    }
}

#[test]
fn nothing_is_said_before_tls_and_the_end_is_said_by_tls() {
    let secured = Secured::new();
    let mut plain = common::client::Client::over(std::os::unix::net::UnixStream::from(std::os::fd::OwnedFd::from(
        TcpStream::connect(secured.address()).unwrap(),
    )));
    plain.flags();
    let (kind, _) = plain.go("disk").expect_err("TLS must come first");
    assert_eq!(kind, (1 << 31) + 5);
    let guest = secured.client("guest7");
    let mut client = secured.connect(Some(&guest)).unwrap();
    client.go("disk").unwrap();
    // A goodbye of NBD's: what follows is the goodbye of TLS, not a cut.
    std::io::Write::write_all(&mut client.stream, &common::client::header(common::client::DISCONNECT, 0, 1, 0, 0)).unwrap();
    assert_eq!(client.stream.read(&mut [0; 16]).expect("a clean end"), 0);
}
