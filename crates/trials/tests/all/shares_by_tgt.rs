//! A volume shared by `tgtd`, where the kernel has no iSCSI target, and used by QEMU's own initiator: the daemon is killed under verifying load, and
//! `tgtd` hangs, loses a disk and forgets everything, without an error. `TRIAL_LONG=1` goes on with a daemon that does not come back.

use rustix::process::{Pid, Signal, kill_process};
use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use trials::command;
use trials::needs::{Need, met};
use trials::place::{LONG, Place, SHORT};

/// Rounds of the load; some seconds.
const ROUNDS: u32 = 40;
const INITIATOR: &str = "iqn.2026-01.test:host";

/// A `tgtd` of this trial alone; it ends with this.
struct Tgtd(Child);

impl Tgtd {
    fn start(place: &Place, port: u16) -> Tgtd {
        let mut command = Command::new("tgtd");
        command.args(["-f", "--iscsi", &format!("portal=127.0.0.1:{port}")]).env("TGT_IPC_SOCKET", place.socket("tgt"));
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it is installed");
        until(|| std::os::unix::net::UnixStream::connect(place.socket("tgt.0")).is_ok());
        Tgtd(child)
    }
}

impl Drop for Tgtd {
    fn drop(&mut self) {
        command::end(&mut self.0);
    }
}

#[test]
fn an_initiator_of_tgt_outlives_the_daemon() {
    let trial = "an_initiator_of_tgt_outlives_the_daemon";
    let programs = ["tgtd", "qemu-io", "iscsi-ls"].map(Need::Program);
    if !met(trial, &[&[Need::Root, Need::LoopExport], &programs[..]].concat()) {
        return;
    }
    if Path::new("/sys/kernel/config/target").exists() {
        eprintln!("{trial}: SKIPPED, the kernel has an iSCSI target, and hearth takes that");
        return;
    }
    let mut place = Place::new("tgt");
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("one is free").port();
    place.set("TGT_IPC_SOCKET", &place.socket("tgt"));
    place.start();
    place.pool(128, 16);
    let (volume, _) = place.volume(64, "write-back", &["--export", "loop"]);
    let address = format!("127.0.0.1:{port}");
    let add = ["share", "add", &volume, "--iscsi", "--address", &address, "--initiator", INITIATOR];
    let refused = command::run(&mut place.hearth(&add), SHORT);
    assert!(!refused.good() && refused.stderr.contains("install and start tgt"), "{refused:#?}");

    let mut tgtd = Tgtd::start(&place, port);
    assert!(place.must(&add).contains("tgt serves it"));
    let shown = place.must(&["share", "show", &volume]);
    assert!(shown.contains("served by") && shown.contains("tgt") && shown.contains("ATS"), "{shown}");
    let refused = command::run(&mut place.hearth(&["volume", "stop", &volume]), SHORT);
    assert!(!refused.good() && refused.stderr.contains("hearth share remove"), "{refused:#?}");
    let target = place.must(&["share", "show", &volume, "--json"]);
    let target: serde_json::Value = serde_json::from_str(&target).expect("--json gives JSON");
    let url = format!("iscsi://{address}/{}/1", target["target"].as_str().expect("it has a name"));

    // Written and compared, while the daemon is killed three times.
    let load = load(&place.path("load"), ROUNDS);
    let mut user = qemu_io(&url, &load);
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(700));
        place.kill();
        place.start();
    }
    let status = command::wait(&mut user, LONG);
    assert!(status.is_some_and(|status| status.success()), "{status:?}: {}", std::fs::read_to_string(&load).unwrap_or_default());

    // It hangs: nobody else waits for it, and it is said. All else goes on.
    let state = |place: &Place| {
        let listed: serde_json::Value = serde_json::from_str(&place.must(&["share", "list", "--json"])).expect("--json gives JSON");
        listed[0]["problem"].as_str().map(str::to_owned)
    };
    let signal = |signal| kill_process(Pid::from_child(&tgtd.0), signal).expect("it runs");
    signal(Signal::STOP);
    until(|| state(&place).is_some());
    assert!(state(&place).is_some_and(|problem| problem.contains("tgt does not answer")));
    let refused = command::run(&mut place.hearth(&["share", "remove", &volume]), SHORT);
    assert!(!refused.good() && refused.stderr.contains("systemctl status tgt"), "{refused:#?}");
    let (another, _) = place.volume(64, "write-back", &["--export", "loop"]);
    place.must(&["volume", "remove", &another]);
    signal(Signal::CONT);
    until(|| state(&place).is_none());

    // Another program takes its disk away: it is there again.
    let by_hand = |words: &str| {
        let mut command = Command::new("tgtadm");
        command.args(["--lld", "iscsi", "--mode"]).args(words.split(' ')).env("TGT_IPC_SOCKET", place.socket("tgt"));
        command::must(&mut command, SHORT)
    };
    let last = load_of_last(&place.path("last"), ROUNDS);
    let readable = || command::wait(&mut qemu_io(&url, &last), LONG).is_some_and(|status| status.success());
    let shown = by_hand("target --op show");
    let number = shown.trim_start_matches("Target ").split(':').next().expect("it is there");
    by_hand(&format!("logicalunit --op delete --tid {number} --lun 1"));
    until(readable);
    until(|| place.log().contains("LUN 1 is not there"));

    // It forgets everything: set up again by itself, the same disk with the same content.
    drop(tgtd);
    tgtd = Tgtd::start(&place, port);
    until(readable);
    assert!(place.log().contains("again"), "it is told");

    if std::env::var_os("TRIAL_LONG").is_some() {
        place.kill();
        let mut user = qemu_io(&url, &last);
        let status = command::wait(&mut user, LONG).expect("nothing hangs for ever");
        assert!(!status.success(), "it gets errors");
        place.start();
        until(readable);
    }
    // The service was stopped just after a crash: what the daemon left is taken along, and back at its next start.
    place.kill();
    std::fs::write(place.path("systemctl"), "#!/bin/sh\n").expect("there is room");
    std::fs::set_permissions(place.path("systemctl"), std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    let path = format!("{}:{}", place.path(""), std::env::var("PATH").unwrap_or_default());
    let told = command::must(place.hearth(&["rescue", "--after-stop"]).env("SERVICE_RESULT", "success").env("PATH", path), SHORT);
    assert!(told.contains(&format!("the iSCSI share of {volume} is removed")), "{told}");
    place.start();
    until(readable);

    place.must(&["share", "remove", &volume, "--force"]);
    assert!(!command::wait(&mut qemu_io(&url, &load), LONG).is_some_and(|status| status.success()), "it is gone");
    drop(tgtd);
    place.stop();
}

/// Of 64 KiB each, in 32 places.
fn pattern(round: u32, at: u32) -> u32 {
    1 + (round * 7 + at) % 250
}

/// Commands of `qemu-io`: each round writes and reads back.
fn load(path: &str, rounds: u32) -> String {
    let mut text = String::new();
    for round in 0..=rounds {
        for at in 0..32 {
            writeln!(text, "write -q -P {} {}k 64k", pattern(round, at), at * 1024 + 512).expect("memory");
        }
        text.push_str("flush\n");
        for at in 0..32 {
            writeln!(text, "read -q -P {} {}k 64k", pattern(round, at), at * 1024 + 512).expect("memory");
        }
    }
    std::fs::write(path, text).expect("there is room");
    path.into()
}

/// Reads what the last round left.
fn load_of_last(path: &str, rounds: u32) -> String {
    let text: String = (0..32).map(|at| format!("read -q -P {} {}k 64k\n", pattern(rounds, at), at * 1024 + 512)).collect();
    std::fs::write(path, text).expect("there is room");
    path.into()
}

fn qemu_io(url: &str, script: &str) -> Child {
    let options = format!("driver=iscsi,transport=tcp,initiator-name={INITIATOR},{}", options_of(url));
    let script = std::fs::File::open(script).expect("it was written");
    let mut command = Command::new("qemu-io");
    command.args(["--cache=none", "--image-opts", &options]).stdin(script).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("it is installed")
}

/// The parts of `iscsi://PORTAL/TARGET/LUN`.
fn options_of(url: &str) -> String {
    let parts: Vec<&str> = url.trim_start_matches("iscsi://").split('/').collect();
    format!("portal={},target={},lun={}", parts[0], parts[1], parts[2])
}

fn until(mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < LONG, "it does not come about");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// What of libiscsi's suite must pass, of 230 cases of its version 1.19; 53 skip what tgt does not have.
const PASSED_MIN: usize = 165;

/// libiscsi's own suite against a volume that tgt serves, and beside it against tgt on a plain file: hearth takes no command away that tgt has.
#[test]
fn a_volume_by_tgt_conforms_as_a_file_by_tgt_does() {
    let trial = "a_volume_by_tgt_conforms_as_a_file_by_tgt_does";
    let programs = ["tgtd", "tgtadm", "iscsi-test-cu"].map(Need::Program);
    if !met(trial, &[&[Need::Root, Need::LoopExport], &programs[..]].concat()) {
        return;
    }
    if Path::new("/sys/kernel/config/target").exists() {
        eprintln!("{trial}: SKIPPED, the kernel has an iSCSI target, and hearth takes that");
        return;
    }
    let mut place = Place::new("conforms");
    let [port, bare_port] =
        [0, 0].map(|_| std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("one is free").port());
    place.set("TGT_IPC_SOCKET", &place.socket("tgt"));
    let tgtd = Tgtd::start(&place, port);
    place.start();
    place.pool(128, 16);
    let (volume, _) = place.volume(64, "write-back", &["--export", "loop"]);
    let address = format!("127.0.0.1:{port}");
    place.must(&["share", "add", &volume, "--iscsi", "--address", &address]);
    let target: serde_json::Value = serde_json::from_str(&place.must(&["share", "show", &volume, "--json"])).expect("--json gives JSON");
    let url = format!("iscsi://{address}/{}/1", target["target"].as_str().expect("it has a name"));

    let bare = Bare::start(&place, bare_port);
    let both = std::thread::scope(|scope| {
        let suites = [url.as_str(), bare.url.as_str()].map(|url| scope.spawn(|| conformance(url)));
        suites.map(|suite| suite.join().expect("it does not panic"))
    });
    let [of_volume, of_file] = both;
    let worse: Vec<_> = of_volume.failed.iter().filter(|case| !of_file.failed.contains(case)).collect();
    assert!(worse.is_empty(), "these pass on a file: {worse:#?}\n{}", of_volume.text);
    assert!(of_volume.passed >= PASSED_MIN, "{} passed, on a file {}\n{}", of_volume.passed, of_file.passed, of_volume.text);
    println!("{} cases passed, on a file {}; failed on both: {:?}", of_volume.passed, of_file.passed, of_volume.failed);

    place.must(&["share", "remove", &volume, "--force"]);
    drop((tgtd, bare));
    place.stop();
}

/// A `tgtd` on a plain file.
struct Bare {
    url: String,
    _tgtd: Tgtd,
}

impl Bare {
    fn start(place: &Place, port: u16) -> Bare {
        let socket = place.socket("bare");
        let mut command = Command::new("tgtd");
        command.args(["-f", "--iscsi", &format!("portal=127.0.0.1:{port}")]).env("TGT_IPC_SOCKET", &socket);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it is installed");
        let tgtd = Tgtd(child);
        until(|| std::os::unix::net::UnixStream::connect(format!("{socket}.0")).is_ok());
        let file = place.path("bare.img");
        std::fs::File::create(&file).and_then(|file| file.set_len(64 << 20)).expect("there is room");
        let name = "iqn.2026-01.test:bare";
        for words in [
            format!("target --op new --tid 1 -T {name}"),
            format!("logicalunit --op new --tid 1 --lun 1 --bstype rdwr -b {file}"),
            "logicalunit --op update --tid 1 --lun 1 --params thin_provisioning=1,lbppbe=0".to_owned(),
            "target --op bind --tid 1 -I ALL".to_owned(),
        ] {
            let mut command = Command::new("tgtadm");
            command.args(["--lld", "iscsi", "--mode"]).args(words.split(' ')).env("TGT_IPC_SOCKET", &socket);
            command::must(&mut command, SHORT);
        }
        Bare { url: format!("iscsi://127.0.0.1:{port}/{name}/1"), _tgtd: tgtd }
    }
}

/// What came of the suite.
struct Conformance {
    /// Cases that ran to their end without a failure; those that skip what the target lacks are none.
    passed: usize,
    /// Names of cases.
    failed: Vec<String>,
    text: String,
}

fn conformance(url: &str) -> Conformance {
    let mut suite = Command::new("iscsi-test-cu");
    suite.args(["--dataloss", "--verbose", "--test", "ALL", "-i", INITIATOR, "-I", "iqn.2026-01.test:second", url]);
    let ended = command::run(&mut suite, LONG);
    let text = format!("{}{}", ended.stdout, ended.stderr);
    let (mut passed, mut failed) = (0, Vec::new());
    for suite in text.split("\nSuite: ").skip(1) {
        let mut cases = suite.split("\n  Test: ");
        let suite = cases.next().unwrap_or_default().trim();
        for case in cases {
            let name = case.split(" ...").next().unwrap_or_default();
            match (case.contains("FAILED"), case.contains("[SKIPPED]"), case.contains("passed")) {
                (false, false, true) => passed += 1,
                (false, true, true) => {}
                // One that has not come to its end has failed.
                _ => failed.push(format!("{suite}.{name}")),
            }
        }
    }
    Conformance { passed, failed, text }
}
