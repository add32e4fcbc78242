//! A volume is a disk with partitions, as an administrator meets it: what holds it is named, the end of the daemon loses no file, a loop
//! device that somebody takes away comes again, and what a killed process left goes, and nothing else.

use crate::support;
use crate::support::{Daemon, Place, wait_until};
use std::os::unix::fs::FileExt;
use std::process::Command;

fn machine_can(test: &str) -> bool {
    let can = rustix::process::geteuid().is_root() && support::exists("/dev/loop-control") && support::exists("/dev/fuse");
    if !can {
        eprintln!("{test}: SKIPPED, it needs root, /dev/fuse and /dev/loop-control");
    }
    can
}

fn tool(words: &[&str]) -> String {
    let output = Command::new("timeout").arg("120").args(words).output().expect("timeout(1) runs");
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{words:?}: {said}");
    said
}

/// A file system; unmounted when dropped, also where its device is dead.
struct Mounted(String);

impl Mounted {
    fn new(device: &str, at: String) -> Mounted {
        std::fs::create_dir_all(&at).expect("there is room");
        tool(&["mount", device, &at]);
        Mounted(at)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        drop(Command::new("umount").args(["-l", &self.0]).status());
    }
}

/// A daemon with a volume in write-back. Stable names are the machine's: so its name is no other test's.
fn with_volume(place: &Place, name: &str) -> Daemon {
    let daemon = place.daemon();
    place.must(&["pool", "create", "p", "--ssd", &place.path("ssd.img"), "--size", "128MiB"]);
    let disk = place.file("disk.img", 64 << 20);
    place.must(&["volume", "add", name, "--backing", &disk, "--pool", "p", "--mode", "write-back", "--export", "loop"]);
    daemon
}

/// As the package's service does.
#[test]
fn a_daemon_with_a_group_of_its_own_offers_block_devices() {
    if !machine_can("a_daemon_with_a_group_of_its_own_offers_block_devices") {
        return;
    }
    let place = Place::new();
    let mut command = place.command(&["serve"]);
    std::os::unix::process::CommandExt::gid(&mut command, 54_321);
    let daemon = place.start(command);
    place.must(&["pool", "create", "p", "--ssd", &place.path("ssd.img"), "--size", "128MiB"]);
    let disk = place.file("disk.img", 64 << 20);
    place.must(&["volume", "add", "group-test", "--backing", &disk, "--pool", "p", "--export", "loop"]);
    let waited = place.must(&["volume", "wait", "group-test"]);
    assert_eq!(waited, "volume group-test is running\n");
    let file = std::fs::File::open(device(&place, "group-test")).expect("it is there");
    file.read_exact_at(&mut [1; 4096], 0).expect("it can be read");
    let ended = place.run(&["volume", "wait", "other", "--limit", "0"]);
    support::check_failure(&ended, "no such volume", 1, "other");
    drop(file);
    daemon.stop();
}

fn device(place: &Place, name: &str) -> String {
    place.json(&["volume", "show", name])["exports"]["loop"].as_str().unwrap_or_default().to_string()
}

/// The first partition; a kernel that reads no tables is told of it.
fn first_partition(device: &str) -> String {
    tool(&["blockdev", "--rereadpt", device]);
    drop(Command::new("partx").args(["--update", device]).output());
    format!("{device}p1")
}

/// A table of the PC kind with one partition of 48 MiB behind the first MiB.
fn make_table(device: &str) {
    let mut table = vec![0; 512];
    table[450] = 0x83;
    table[454..458].copy_from_slice(&2048u32.to_le_bytes());
    table[458..462].copy_from_slice(&(48 * 2048u32).to_le_bytes());
    table[510..].copy_from_slice(&[0x55, 0xaa]);
    let file = std::fs::OpenOptions::new().write(true).open(device).expect("it opens");
    file.write_all_at(&table, 0).and_then(|()| file.sync_all()).expect("it is written");
}

/// A model's process; ended when dropped, so that a test that fails leaves none.
struct Model(std::process::Child);

impl Drop for Model {
    fn drop(&mut self) {
        drop(self.0.kill().and_then(|()| self.0.wait()));
    }
}

#[test]
fn a_mounted_partition_is_named_and_its_files_survive_the_end_of_the_daemon() {
    if !machine_can("a_mounted_partition_is_named_and_its_files_survive_the_end_of_the_daemon") {
        return;
    }
    let place = Place::new();
    let name = &format!("parted-{}", std::process::id());
    let mut daemon = with_volume(&place, name);
    let disk = device(&place, name);
    make_table(&disk);
    let partition = first_partition(&disk);
    tool(&["mkfs.ext4", "-q", "-F", &partition]);
    let content: Vec<u8> = (0..1_000_000u32).flat_map(u32::to_le_bytes).collect();
    {
        let mounted = Mounted::new(&partition, place.path("mnt"));
        let held = format!("partition {} mounted at {}", partition.trim_start_matches("/dev/"), mounted.0);
        for asked in ["stop", "remove"] {
            place.must_fail(&["volume", asked, name], 1, &held);
        }
        assert_eq!(place.json(&["volume", "show", name])["health"], "running");
        std::fs::write(format!("{}/file", mounted.0), &content).expect("there is room");
        daemon.signal(rustix::process::Signal::TERM);
        assert!(daemon.child.wait().expect("it is our child").success(), "{}", daemon.log());
        let log = daemon.log();
        assert!(log.contains("goes away although it is in use") && log.contains(&held), "{log}");
    }
    let daemon = place.daemon();
    let partition = first_partition(&device(&place, name));
    {
        let mounted = Mounted::new(&partition, place.path("mnt"));
        assert!(std::fs::read(format!("{}/file", mounted.0)).expect("it is there") == content);
        wait_until("it is unmounted", || Command::new("umount").arg(&mounted.0).output().is_ok_and(|output| output.status.success()));
    }
    // Mount namespaces that other tests began meanwhile have the mount too, until they end.
    daemon.wait_until("the volume is removed", || place.run(&["volume", "remove", name]).status == Some(0));
    assert!(!support::exists(&partition), "its partitions have gone with it");
    daemon.stop();
}

/// What a killed model left goes with the next one; what lives stays.
#[test]
fn a_killed_model_leaves_no_device_for_long() {
    if !machine_can("a_killed_model_leaves_no_device_for_long") {
        return;
    }
    let place = Place::new();
    std::fs::create_dir_all(place.path("run")).expect("there is room");
    let models = ["one.img", "two.img", "three.img"].map(|file| {
        let path = place.file(file, 16 << 20);
        let mut command = place.command(&["model", "sata-ssd-2012", &path, "--export", "loop"]);
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null());
        command
    });
    let begin = |mut command: Command| {
        let mut child = command.spawn().expect("the binary runs");
        let mut line = String::new();
        let output = child.stdout.take().expect("it is piped");
        std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line).expect("it is text");
        (Model(child), line.trim().to_string())
    };
    let is_below = |device: &str| {
        let name = device.trim_start_matches("/dev/");
        std::fs::read_to_string(format!("/sys/block/{name}/loop/backing_file")).is_ok_and(|file| file.starts_with(&place.path("run")))
    };
    let directories = || std::fs::read_dir(place.path("run")).expect("there").count();
    let [one, two, three] = models;
    let (mut killed, dead) = begin(one);
    let (mut lives, live) = begin(two);
    killed.0.kill().and_then(|()| killed.0.wait()).expect("it runs");
    assert!(is_below(&dead) && is_below(&live) && directories() == 2);
    let (mut next, new) = begin(three);
    // At once, unless somebody who looks at all devices has it open for a moment.
    wait_until("the dead device goes", || new == dead || !is_below(&dead));
    assert!(is_below(&live) && directories() == 2);
    let mut page = [0; 4096];
    std::fs::File::open(&live).and_then(|file| file.read_exact_at(&mut page, 0)).expect("the one that lives still works");
    for Model(child) in [&mut lives, &mut next] {
        rustix::process::kill_process(rustix::process::Pid::from_child(child), rustix::process::Signal::TERM).expect("it runs");
        assert!(child.wait().expect("it is our child").success());
    }
    assert_eq!(directories(), 0);
}

/// `losetup -d` by mistake: the number is given out again, and nothing of ours leads to it.
#[test]
fn a_loop_device_that_somebody_takes_away_comes_again_elsewhere() {
    if !machine_can("a_loop_device_that_somebody_takes_away_comes_again_elsewhere") {
        return;
    }
    let place = Place::new();
    let name = &format!("taken-{}", std::process::id());
    let daemon = with_volume(&place, name);
    let first = device(&place, name);
    let backing = |device: &str| {
        let name = device.trim_start_matches("/dev/");
        std::fs::read_to_string(format!("/sys/block/{name}/loop/backing_file")).unwrap_or_default().trim_end().to_string()
    };
    let ours = backing(&first);
    tool(&["losetup", "-d", &first]);
    let others = place.file("others.img", 1 << 20);
    // Whoever is faster gets the number: this, the daemon, or another test.
    drop(Command::new("losetup").args([&first, &others]).output());
    daemon.wait_until("it has a device again", || backing(&device(&place, name)) == ours);
    let now = device(&place, name);
    assert!(daemon.log().contains(&format!("its loop device {first} was detached by another program")), "{}", daemon.log());
    assert_eq!(std::fs::read_link(format!("/dev/hearth/{name}")).expect("a link"), std::path::Path::new(&now));
    if backing(&first) == others {
        place.must(&["volume", "stop", name]);
        daemon.stop();
        assert_eq!(backing(&first), others, "the other's device is left alone");
        tool(&["losetup", "-d", &first]);
    } else {
        daemon.stop();
    }
}
