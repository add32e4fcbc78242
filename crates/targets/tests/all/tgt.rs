//! A real `tgtd` on a socket of its own, where it is installed; and who is chosen.

use std::io::{BufRead, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use targets::{Access, Chap, Protocol, Server, Share, Targets, Tgtd, names};

const UUID: [u8; 16] = [0xcc, 0xb4, 0x76, 0x60, 0x5a, 0x80, 0x4c, 0xa3, 0x90, 0xd8, 0x18, 0x7b, 0xb9, 0x9b, 0x71, 0x42];
const CHAP: &str = "user = db\npassword = hunter2-hunter2\nmutual_user = hearth\nmutual_password = hunter3-hunter3";
const INITIATOR: &str = "iqn.2026-01.test:host";

fn stands(targets: &Targets, share: &Share) -> bool {
    targets.look(share, share.chap.is_some()).expect("it tells").lacks.is_empty()
}

/// It ends with this.
struct Daemon {
    child: Child,
    directory: tempfile::TempDir,
    port: u16,
}

impl Daemon {
    /// `None`, told, where it cannot be tried.
    fn start(test: &str) -> Option<Daemon> {
        let has = |program: &str| ["/usr/sbin", "/usr/bin", "/sbin"].iter().any(|at| Path::new(at).join(program).exists());
        if !has("tgtd") || !has("iscsi-inq") || !rustix::process::geteuid().is_root() {
            eprintln!("{test}: SKIPPED, it needs root, tgtd and iscsi-inq (packages tgt and libiscsi-bin)");
            return None;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("one is free").port();
        let mut command = Command::new("tgtd");
        command.args(["-f", "--iscsi", &format!("portal=127.0.0.1:{port}")]).env("TGT_IPC_SOCKET", directory.path().join("s"));
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it is there");
        let daemon = Daemon { child, directory, port };
        let begun = Instant::now();
        while !daemon.tgtd().answers().expect("it is ours") {
            assert!(begun.elapsed() < Duration::from_secs(120), "it does not come up");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(daemon)
    }

    fn tgtd(&self) -> Tgtd {
        Tgtd::at(self.directory.path().join("s.0"))
    }

    /// On a machine whose kernel has no target.
    fn targets(&self) -> Targets {
        Targets::at(&self.directory.path().join("config"), self.tgtd(), &self.directory.path().join("modules"))
    }

    fn share(&self) -> Share {
        let device = self.directory.path().join("device");
        if !device.exists() {
            std::fs::File::create(&device).and_then(|file| file.set_len(8 << 20)).expect("there is room");
        }
        Share {
            protocol: Protocol::Iscsi,
            uuid: UUID,
            volume: "db".into(),
            device: device.to_str().expect("plain").into(),
            read_only: false,
            is_alone: true,
            addresses: vec![([127, 0, 0, 1], self.port).into()],
            access: Access::Only(vec![INITIATOR.into()]),
            chap: None,
        }
    }

    /// What an administrator does by hand.
    fn by_hand(&self, words: &str) -> String {
        let mut command = Command::new("tgtadm");
        command.args(["--lld", "iscsi"]).args(words.split(' ')).env("TGT_IPC_SOCKET", self.directory.path().join("s"));
        let ended = command.output().expect("it comes with tgtd");
        assert!(ended.status.success(), "{words}: {ended:?}");
        String::from_utf8_lossy(&ended.stdout).into_owned()
    }

    /// The number of the share's target.
    fn number(&self) -> String {
        let shown = self.by_hand("--mode target --op show");
        let name = names::target(Protocol::Iscsi, UUID);
        let line = shown.lines().find(|line| line.ends_with(&name)).expect("it is there");
        line.trim_start_matches("Target ").split(':').next().expect("a number").to_owned()
    }

    /// What an initiator sees of the disk; `None`: it may not log in.
    fn inquiry(&self, initiator: &str, secret: &str, page: Option<&str>) -> Option<String> {
        let url = format!("iscsi://{secret}127.0.0.1:{}/{}/1", self.port, names::target(Protocol::Iscsi, UUID));
        let mut command = Command::new("iscsi-inq");
        command.args(["-i", initiator]).args(page.iter().flat_map(|page| ["-e", "1", "-c", page])).arg(url);
        let ended = command.output().expect("it is there");
        Some(String::from_utf8_lossy(&ended.stdout).into_owned()).filter(|text| ended.status.success() && !text.is_empty())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_disk_by_tgt_has_the_names_that_lio_gives_and_who_is_named_alone_sees_it() {
    let Some(daemon) = Daemon::start("tgt") else { return };
    let (targets, share) = (daemon.targets(), daemon.share());
    assert!(!targets.is_offered(Protocol::Iscsi, "db", UUID));
    assert_eq!(targets.offer(&share).expect("it is there").server, Server::Tgt);
    assert!(stands(&targets, &share) && targets.is_offered(Protocol::Iscsi, "db", UUID));
    assert!(daemon.inquiry(INITIATOR, "", None).is_some());
    assert!(daemon.inquiry("iqn.2026-01.test:other", "", None).is_none(), "not named");
    assert!(daemon.inquiry(INITIATOR, "", Some("128")).is_some_and(|text| text.contains(&names::scsi_serial(UUID))));
    assert!(daemon.inquiry(INITIATOR, "", Some("131")).is_some_and(|text| text.contains(&names::naa(UUID))));
    assert!(daemon.inquiry(INITIATOR, "", Some("178")).is_some_and(|text| text.contains("lbpu:1")), "UNMAP");
    // A second time changes nothing; another device makes it anew.
    targets.offer(&share).expect("it is there");
    let other = Share { device: daemon.directory.path().join("other").to_str().expect("plain").into(), ..share.clone() };
    std::fs::File::create(&other.device).and_then(|file| file.set_len(16 << 20)).expect("there is room");
    assert!(!stands(&targets, &other));
    targets.offer(&other).expect("it is there");
    assert!(stands(&targets, &other) && !stands(&targets, &share));
    // It grows while nobody is connected.
    std::fs::File::options().write(true).open(&other.device).and_then(|file| file.set_len(24 << 20)).expect("there is room");
    assert!(targets.refresh(Protocol::Iscsi, UUID).expect("it is there").contains("log in"));
    let capacity = Command::new("iscsi-readcapacity16")
        .args(["-i", INITIATOR, &format!("iscsi://127.0.0.1:{}/{}/1", daemon.port, names::target(Protocol::Iscsi, UUID))])
        .output()
        .expect("it is there");
    assert!(String::from_utf8_lossy(&capacity.stdout).contains(&(24_u32 << 20).to_string()), "{capacity:?}");
    targets.remove(Protocol::Iscsi, "db", UUID).expect("it is there");
    targets.remove(Protocol::Iscsi, "db", UUID).expect("it is no failure");
    assert!(daemon.inquiry(INITIATOR, "", None).is_none() && !targets.is_offered(Protocol::Iscsi, "db", UUID));
}

/// Where others write to the device as well, nothing lies between them and the target; else the target may use memory that direct I/O
/// does not take.
#[test]
fn a_disk_goes_past_the_page_cache_only_if_others_write_to_it() {
    let Some(daemon) = Daemon::start("tgt") else { return };
    let (targets, share) = (daemon.targets(), daemon.share());
    let flags = || {
        let shown = daemon.by_hand("--mode target --op show");
        let line = shown.lines().rfind(|line| line.contains("Backing store flags:")).expect("its disk is last");
        line.split(':').nth(1).expect("a value").trim().to_owned()
    };
    let beside_others = Share { is_alone: false, ..share.clone() };
    targets.offer(&share).expect("it is there");
    assert!(!stands(&targets, &beside_others), "it is seen");
    for (share, expected) in [(&share, ""), (&beside_others, "direct"), (&share, "")] {
        targets.offer(share).expect("it is there");
        assert_eq!(flags(), expected);
        assert!(stands(&targets, share) && daemon.inquiry(INITIATOR, "", None).is_some());
    }
    let capacity = Command::new("iscsi-readcapacity16")
        .args(["-i", INITIATOR, &format!("iscsi://127.0.0.1:{}/{}/1", daemon.port, names::target(Protocol::Iscsi, UUID))])
        .output()
        .expect("it is there");
    let told = String::from_utf8_lossy(&capacity.stdout).into_owned();
    assert!(told.contains("PHYSICAL BLOCK EXPONENT:0"), "a file promises nothing beyond its sectors: {told}");
}

#[test]
fn a_target_that_takes_nobody_in_is_opened_again() {
    let Some(daemon) = Daemon::start("tgt") else { return };
    let (targets, share) = (daemon.targets(), daemon.share());
    daemon.by_hand("--mode target --op new --tid 1 --targetname iqn.2026-01.test:other");
    targets.offer(&share).expect("it is there");
    let number = daemon.number();
    assert!(number.parse::<i32>().is_ok_and(|number| number > 1 << 30), "far from those of other programs: {number}");
    for closed in [
        format!("--mode target --op update --tid {number} --name state --value offline"),
        format!("--mode logicalunit --op update --tid {number} --lun 1 --name online --value 0"),
    ] {
        let closed = closed.replace("--name online --value 0", "--params online=0");
        daemon.by_hand(&closed);
        assert!(!stands(&targets, &share), "{closed}");
        targets.offer(&share).expect("it is there");
        assert!(stands(&targets, &share) && daemon.inquiry(INITIATOR, "", None).is_some(), "{closed}");
    }
    targets.remove(Protocol::Iscsi, "db", UUID).expect("it is there");
    assert!(daemon.by_hand("--mode target --op show").starts_with("Target 1: iqn.2026-01.test:other"));
}

#[test]
fn one_that_is_just_being_started_or_stopped_is_left_alone() {
    let Some(daemon) = Daemon::start("tgt") else { return };
    let (targets, share) = (daemon.targets(), daemon.share());
    targets.offer(&share).expect("it is there");
    daemon.by_hand("--mode sys --op update --name State -v offline");
    daemon.by_hand(&format!("--mode target --op delete --force --tid {}", daemon.number()));
    for error in [targets.look(&share, false).map(drop), targets.offer(&share).map(drop)] {
        let error = error.expect_err("it is closed");
        assert!(error.to_string().contains("started or stopped") && error.remedy().contains("State -v ready"), "{error}");
    }
    assert_eq!(daemon.by_hand("--mode target --op show"), "");
    daemon.by_hand("--mode sys --op update --name State -v ready");
    assert_eq!(lacks(&targets, &share), ["it is not there"]);
    targets.offer(&share).expect("it is open");
}

/// An initiator that stays logged in; it ends with this.
struct LoggedIn {
    child: Child,
    said: std::io::BufReader<std::process::ChildStdout>,
}

impl LoggedIn {
    fn new(daemon: &Daemon, secret: Option<(&str, &str)>) -> LoggedIn {
        let target = names::target(Protocol::Iscsi, UUID);
        let user = secret.map(|(user, password)| {
            std::fs::write(daemon.directory.path().join("password"), password).expect("there is room");
            format!(",user={user},password-secret=p")
        });
        let secret = user.as_ref().map(|_| format!("secret,id=p,file={}", daemon.directory.path().join("password").display()));
        let options = format!(
            "driver=iscsi,transport=tcp,portal=127.0.0.1:{},target={target},lun=1,initiator-name={INITIATOR}{}",
            daemon.port,
            user.unwrap_or_default()
        );
        let mut command = Command::new("qemu-io");
        command.args(secret.iter().flat_map(|secret| ["--object", secret])).args(["--image-opts", &options]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it is installed");
        let said = std::io::BufReader::new(child.stdout.take().expect("piped"));
        let mut user = LoggedIn { child, said };
        assert!(user.reads(), "it can log in");
        user
    }

    fn reads(&mut self) -> bool {
        let asked = writeln!(self.child.stdin.as_mut().expect("piped"), "read 0 4k");
        let mut line = String::new();
        while asked.is_ok() && self.said.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
            match line.contains("read 4096/4096 bytes") {
                true => return true,
                false if line.contains("read failed") => return false,
                false => line.clear(),
            }
        }
        false
    }
}

impl Drop for LoggedIn {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lacks(targets: &Targets, share: &Share) -> Vec<String> {
    targets.look(share, share.chap.is_some()).expect("it tells").lacks
}

#[test]
fn what_others_change_is_put_right_while_an_initiator_stays_logged_in() {
    let Some(daemon) = Daemon::start("tgt") else { return };
    if Command::new("qemu-io").arg("--version").output().is_err() {
        eprintln!("tgt: SKIPPED, it needs qemu-io (package qemu-utils)");
        return;
    }
    let (targets, port) = (daemon.targets(), daemon.port);
    let second = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("one is free");
    let share = Share {
        chap: Some(Chap::parse("user = db\npassword = hunter2-hunter2").expect("well-formed")),
        addresses: vec![([127, 0, 0, 1], port).into(), second],
        ..daemon.share()
    };
    targets.offer(&share).expect("it is there");
    let mut user = LoggedIn::new(&daemon, Some(("db", "hunter2-hunter2")));
    let number = daemon.number();
    let session = || {
        let shown = daemon.by_hand("--mode target --op show");
        shown.lines().find(|line| line.contains("I_T nexus: ")).expect("somebody is logged in").trim().to_owned()
    };
    let before = session();
    let other = daemon.directory.path().join("other");
    std::fs::File::create(&other).and_then(|file| file.set_len(8 << 20)).expect("there is room");
    let unit = format!("--tid {number} --lun 1");
    let gone = format!("--mode logicalunit --op delete {unit}");
    let on_other = format!("--mode logicalunit --op new {unit} --backing-store {}", other.display());
    let cases: [(&[&str], &[&str]); 9] = [
        (&[&gone], &["LUN 1 is not there"]),
        (&[&gone, &on_other], &["LUN 1 is on another device"]),
        (&[&format!("--mode logicalunit --op update {unit} --params online=0")], &["LUN 1 is closed"]),
        (&[&format!("--mode logicalunit --op update {unit} --params scsi_sn=1,readonly=1")], &["LUN 1 has another name"]),
        (
            &[
                &format!("--mode target --op unbind --tid {number} --initiator-name {INITIATOR}"),
                &format!("--mode target --op bind --tid {number} --initiator-address ALL"),
                &format!("--mode target --op bind --tid {number} --initiator-name iqn.2026-01.test:thief"),
            ],
            &["iqn.2026-01.test:host may not log in", "ALL may log in", "iqn.2026-01.test:thief may log in"],
        ),
        (&[&format!("--mode account --op unbind --tid {number} --user db")], &["it asks for no secret"]),
        (&["--mode account --op delete --user db"], &["it asks for no secret"]),
        (&[&format!("--mode target --op update --tid {number} --name state --value offline")], &["it accepts no logins"]),
        (&[&format!("--mode portal --op delete --param portal={second}")], &[&format!("it does not listen on {second}")]),
    ];
    for (by_hand, expected) in cases {
        by_hand.iter().for_each(|words| drop(daemon.by_hand(words)));
        assert_eq!(lacks(&targets, &share), expected);
        targets.offer(&share).expect("it can be put right");
        assert_eq!(lacks(&targets, &share), [""; 0], "{expected:?}");
        assert_eq!(session(), before, "{expected:?}");
        assert!(user.reads(), "{expected:?}");
        assert!(daemon.inquiry("iqn.2026-01.test:thief", "db%hunter2-hunter2@", None).is_none());
        assert!(daemon.inquiry(INITIATOR, "", None).is_none() && daemon.inquiry(INITIATOR, "db%hunter2-hunter2@", None).is_some());
        assert!(daemon.inquiry(INITIATOR, "db%hunter2-hunter2@", Some("128")).is_some_and(|text| text.contains(&names::scsi_serial(UUID))));
    }
    // Others' disks in it are no business of ours.
    daemon.by_hand(&on_other.replace("--lun 1", "--lun 2"));
    assert_eq!(lacks(&targets, &share), [""; 0]);
    // One that cannot be given its secret takes in nobody new.
    daemon.by_hand(&format!("--mode account --op unbind --tid {number} --user db"));
    daemon.by_hand("--mode account --op bind --user db");
    targets.offer(&share).expect_err("the server itself has that user");
    assert!(daemon.inquiry(INITIATOR, "", None).is_none() && user.reads());
    daemon.by_hand("--mode account --op unbind --user db");
    targets.offer(&share).expect("it is free");
    // Other users: when nobody is logged in, and not before.
    let renamed = Share { chap: Some(Chap::parse("user = new\npassword = hunter4-hunter4").expect("well-formed")), ..share.clone() };
    let offered = targets.offer(&renamed).expect("it can");
    assert!(offered.note.is_some_and(|note| note.contains("when no initiator is logged in")) && session() == before);
    drop(user);
    while targets.connected(Protocol::Iscsi, UUID).expect("it tells") != Some(Vec::new()) {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(targets.offer(&renamed).expect("it can").note, None);
    assert!(daemon.inquiry(INITIATOR, "db%hunter2-hunter2@", None).is_none());
    assert!(daemon.inquiry(INITIATOR, "new%hunter4-hunter4@", None).is_some());
    // A user that is the server's, too, stays with it.
    daemon.by_hand("--mode account --op bind --user new");
    targets.remove(Protocol::Iscsi, "db", UUID).expect("it is there");
    assert!(daemon.by_hand("--mode account --op show").contains("new"));
}

#[test]
fn users_that_nobody_has_are_no_obstacle_and_others_stay() {
    let Some(daemon) = Daemon::start("tgt") else { return };
    let targets = daemon.targets();
    let share = Share { chap: Some(Chap::parse(CHAP).expect("well-formed")), ..daemon.share() };
    // As after a kill between two steps, with an older password.
    daemon.by_hand("--mode account --op new --user db --password forgotten-long");
    targets.offer(&share).expect("nobody has it");
    assert!(daemon.inquiry(INITIATOR, "db%hunter2-hunter2@", None).is_some());
    targets.remove(Protocol::Iscsi, "db", UUID).expect("it is there");
    // For discovery, which is no target's.
    daemon.by_hand("--mode account --op new --user db --password of-discovery-1");
    daemon.by_hand("--mode account --op bind --user db");
    let error = targets.offer(&share).expect_err("the server itself has it");
    assert!(error.to_string().contains("\"db\" is in it already"), "{error}");
    let told = daemon.by_hand("--mode account --op show");
    assert!(told.contains("db") && !told.contains("hearth"), "{told}");
    assert!(!targets.is_offered(Protocol::Iscsi, "db", UUID));
}

#[test]
fn secrets_are_asked_for_and_gone_with_the_share() {
    let Some(daemon) = Daemon::start("tgt") else { return };
    let targets = daemon.targets();
    let share = Share { chap: Some(Chap::parse(CHAP).expect("well-formed")), ..daemon.share() };
    targets.offer(&share).expect("it is there");
    assert!(daemon.inquiry(INITIATOR, "", None).is_none());
    assert!(daemon.inquiry(INITIATOR, "db%wrong-secret1@", None).is_none());
    assert!(daemon.inquiry(INITIATOR, "db%hunter2-hunter2@", None).is_some());
    // Another share with the same user: told, and nothing is left of it.
    let other = Share { uuid: [7; 16], volume: "other".into(), ..share.clone() };
    let error = targets.offer(&other).expect_err("one list for all");
    assert!(error.to_string().contains("\"db\" is in it already"), "{error}");
    assert!(!targets.is_offered(Protocol::Iscsi, "other", [7; 16]));
    targets.remove(Protocol::Iscsi, "db", UUID).expect("it is there");
    targets.offer(&other).expect("the users went with the share");
    targets.remove(Protocol::Iscsi, "other", [7; 16]).expect("it is there");
}

#[test]
fn only_this_machine_sees_what_is_open_on_loopback_alone() {
    let Some(daemon) = Daemon::start("tgt") else { return };
    let targets = daemon.targets();
    targets.offer(&Share { access: Access::Anyone, ..daemon.share() }).expect("it is there");
    assert!(daemon.inquiry("iqn.2026-01.test:any", "", None).is_some());
    let all = Share { access: Access::Anyone, addresses: vec![([127, 0, 0, 2], daemon.port).into()], ..daemon.share() };
    targets.offer(&all).expect("it listens there, too");
    assert!(stands(&targets, &all));
    let nowhere = Share { addresses: vec![([192, 0, 2, 77], daemon.port).into()], ..daemon.share() };
    let error = targets.offer(&nowhere).expect_err("no address of this machine");
    assert!(error.to_string().contains("192.0.2.77"), "{error}");
    targets.remove(Protocol::Iscsi, "db", UUID).expect("it is there");
}

#[test]
fn without_any_target_the_answer_says_what_to_do() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o700)).expect("ours");
    let path = |name: &str| directory.path().join(name);
    let targets = Targets::at(&path("config"), Tgtd::at(path("s.0")), &path("modules"));
    let share = Share {
        protocol: Protocol::Iscsi,
        uuid: UUID,
        volume: "db".into(),
        device: "/dev/loop7".into(),
        read_only: false,
        is_alone: true,
        addresses: vec![([127, 0, 0, 1], 3260).into()],
        access: Access::Anyone,
        chap: None,
    };
    let error = targets.offer(&share).expect_err("there is none");
    assert!(error.remedy().contains("modprobe") && error.remedy().contains("install and start tgt"), "{}", error.remedy());
    assert_eq!(targets.connected(Protocol::Iscsi, UUID).expect("it tells"), Some(Vec::new()));
    targets.remove(Protocol::Iscsi, "db", UUID).expect("nothing is there");
}

#[test]
fn one_that_does_not_obey_is_told_of_and_in_nobodys_way() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    let listener = std::os::unix::net::UnixListener::bind(path("s.0")).expect("free");
    // As it does with those of other groups; it ends with the test.
    std::thread::spawn(move || while listener.accept().is_ok() {});
    let targets = Targets::at(&path("config"), Tgtd::at(path("s.0")), &path("modules"));
    let share = Share {
        protocol: Protocol::Iscsi,
        uuid: UUID,
        volume: "db".into(),
        device: "/dev/loop7".into(),
        read_only: false,
        is_alone: true,
        addresses: vec![([127, 0, 0, 1], 3260).into()],
        access: Access::Anyone,
        chap: None,
    };
    let error = targets.offer(&share).expect_err("it obeys others only");
    assert!(error.remedy().contains("Group=root"), "{error}");
    // It may serve the volume all the same.
    let error = targets.remove(Protocol::Iscsi, "db", UUID).expect_err("that cannot be told");
    assert!(error.remedy().contains("Group=root"), "{error}");
    // A target of the kernel's is asked first.
    std::fs::create_dir_all(path("config").join("target/iscsi").join(share.target())).expect("there is room");
    assert_eq!(targets.connected(Protocol::Iscsi, UUID).expect("it tells"), Some(Vec::new()));
    targets.remove(Protocol::Iscsi, "db", UUID).expect("where the kernel serves, it has none of ours");
}
