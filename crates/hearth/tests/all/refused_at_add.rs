//! What `volume add` and `pool create` refuse with a sentence instead of doing it wrong, with the real binary: what cannot be written, a file whose
//! disk has larger sectors than the image in it, more memory than the daemon's cgroup has, what lies on a volume of its own, one disk twice.
//!
//! Needs root, loop devices and cgroups of memory; says so where there are none.

use crate::support::nbd::Client;
use crate::support::{Daemon, Place, wait_until};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

const MIB: u64 = 1 << 20;

fn skip(what: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: {what}");
}

/// A loop device, detached when dropped.
struct Loop(String);

impl Loop {
    fn attach(options: &[&str], file: &str) -> Option<Loop> {
        let output = Command::new("losetup").args(["--find", "--show"]).args(options).arg(file).output().ok()?;
        let device = String::from_utf8_lossy(&output.stdout).trim().to_string();
        if !output.status.success() {
            skip("loop devices cannot be made here");
            return None;
        }
        Some(Loop(device))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        drop(Command::new("losetup").args(["--detach", &self.0]).output());
    }
}

/// A mounted ext4, unmounted when dropped.
struct Mounted(String);

impl Mounted {
    fn ext4(device: &str, point: String) -> Option<Mounted> {
        std::fs::create_dir(&point).expect("there is room");
        let run = |program: &str, arguments: &[&str]| Command::new(program).args(arguments).output().is_ok_and(|o| o.status.success());
        if !run("mkfs.ext4", &["-q", device]) || !run("mount", &[device, &point]) {
            skip("ext4 cannot be made or mounted here");
            return None;
        }
        Some(Mounted(point))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        drop(Command::new("umount").arg(&self.0).output());
    }
}

fn with_pool(place: &Place) -> Daemon {
    let daemon = place.daemon();
    place.must(&["pool", "create", "p", "--ssd", "ssd.img", "--size", "128MiB", "--ram", "0"]);
    daemon
}

fn add<'a>(backing: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["volume", "add", "v", "--backing", backing, "--pool", "p", "--export", "nbd"], more].concat()
}

#[test]
fn a_read_only_device_is_refused_at_add_and_at_a_start() {
    let place = Place::new();
    let _daemon = with_pool(&place);
    let file = place.file("disk.img", 64 * MIB);
    let Some(device) = Loop::attach(&["--read-only"], &file) else { return };
    place.must_fail(&add(&device.0, &["--mode", "write-back"]), 1, "it is read-only, so dirty data could never be written to it");
    place.must_fail(&add(&device.0, &[]), 1, "it is read-only; make it writable, or add the volume with --read-only");
    place.must_fail(&["pool", "create", "q", "--ssd", &device.0], 1, "it is read-only");
    assert_eq!(place.json(&["volume", "list"]), serde_json::json!([]), "nothing is left of what was refused");
    let uri = place.must(&add(&device.0, &["--read-only"]));
    assert_eq!(Client::connect(uri.trim()).read(0, 4096), [0; 4096]);
    place.must_fail(&["volume", "set", "v", "--read-write"], 1, "was opened read-only");
    place.must(&["volume", "remove", "v"]);
    // The switch of a disk that was writable.
    drop(device);
    let Some(device) = Loop::attach(&[], &file) else { return };
    place.must(&add(&device.0, &["--mode", "write-back"]));
    place.must(&["volume", "stop", "v"]);
    let protect = |how: &str| assert!(Command::new("blockdev").args([how, &device.0]).status().is_ok_and(|status| status.success()));
    protect("--setro");
    place.must_fail(&["volume", "start", "v"], 1, "is read-only; make it writable: the volume then starts by itself");
    protect("--setrw");
    place.must(&["volume", "start", "v"]);
    place.must(&["volume", "remove", "v"]);
}

#[test]
fn a_file_has_sectors_of_512_bytes_unless_said() {
    let place = Place::new();
    let _daemon = with_pool(&place);
    let sectors = |place: &Place| place.json(&["volume", "show", "v"])["sector_bytes"].clone();
    let plain = place.file("plain.img", 64 * MIB);
    let uri = place.must(&add(&plain, &[]));
    assert_eq!(sectors(&place), 512);
    Client::connect(uri.trim()).write(512, &[7; 512]).expect("a sector");
    place.must(&["volume", "remove", "v"]);
    place.must_fail(&add(&plain, &["--sector-size", "1024"]), 2, "--sector-size must be 512 or 4096, not 1024");
    let uri = place.must(&add(&plain, &["--sector-size", "4096"]));
    assert_eq!(sectors(&place), 4096);
    Client::connect(uri.trim()).write(512, &[7; 512]).expect_err("part of a sector");
    place.must(&["volume", "remove", "v"]);

    let image = place.file("disk.img", 192 * MIB);
    let Some(device) = Loop::attach(&["--sector-size", "4096", "--direct-io=on"], &image) else { return };
    let Some(mounted) = Mounted::ext4(&device.0, place.path("mount")) else { return };
    let file = format!("{}/image", mounted.0);
    std::fs::File::create(&file).and_then(|file| file.set_len(64 * MIB)).expect("there is room");
    place.must_fail(&add(&file, &[]), 1, "direct I/O to this file moves whole 4096 bytes, and an image has sectors of 512 bytes");
    place.must_fail(&add(&format!("model:7k2:{file}"), &[]), 1, "add --sector-size 4096");
    let uri = place.must(&add(&file, &["--sector-size", "4096"]));
    let mut client = Client::connect(uri.trim());
    client.write(4096, &[9; 4096]).expect("a sector");
    client.write(512, &[9; 512]).expect_err("part of a sector");
    drop(client);
    place.must(&["volume", "remove", "v"]);
}

/// A memory cgroup of this test's own with that limit, removed when dropped. Its processes must have ended.
struct Group(PathBuf);

impl Group {
    fn new(limit_bytes: u64) -> Option<Group> {
        let name = format!("hearth-test-{}", std::process::id());
        for (root, file) in [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")] {
            let group = Group(Path::new(root).join(&name));
            // Where cgroups are not writable, or memory is not among the controllers, there is no such file.
            if Path::new(root).is_dir() && std::fs::create_dir(&group.0).is_ok() && group.0.join(file).exists() {
                std::fs::write(group.0.join(file), limit_bytes.to_string()).ok()?;
                return Some(group);
            }
        }
        None
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..100 {
            match std::fs::remove_dir(&self.0) {
                Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => std::thread::sleep(std::time::Duration::from_millis(50)),
                _ => return,
            }
        }
    }
}

#[test]
fn the_limit_of_the_memory_cgroup_counts() {
    let Some(group) = Group::new(256 * MIB) else { return skip("no memory cgroup can be made here") };
    let place = Place::new();
    let daemon = place.daemon();
    std::fs::write(group.0.join("cgroup.procs"), daemon.child.id().to_string()).expect("the daemon can be moved");
    let create = |ram: &'static str| ["pool", "create", "p", "--ssd", "ssd.img", "--size", "128MiB", "--ram", ram];
    let told = place.run(&create("1GiB"));
    assert_eq!(told.status, Some(2), "{told:?}");
    let (asks, gives) = ("--ram asks for 1 GiB, the memory cgroup /", "has 256 MiB; give at most --ram 128 MiB");
    assert!(told.stderr.contains(asks) && told.stderr.contains(gives), "{told:?}");
    place.must(&create("64MiB"));
    drop(daemon);
}

/// The reactor would wait in the kernel for the journal that it has to serve itself.
#[test]
fn what_lies_on_a_volume_of_the_same_daemon_is_refused() {
    let place = Place::new();
    let daemon = with_pool(&place);
    place.file("disk.img", 64 * MIB);
    let added = place.run(&["volume", "add", "v", "--backing", "disk.img", "--pool", "p", "--export", "loop", "--mode", "write-back"]);
    if added.status != Some(0) {
        return skip("loop exports cannot be made here");
    }
    let device = added.stdout.lines().next().expect("where it is").to_string();
    let Some(mounted) = Mounted::ext4(&device, place.path("mount")) else { return };
    let image = format!("{}/image", mounted.0);
    std::fs::File::create(&image).and_then(|file| file.set_len(16 * MIB)).expect("there is room");
    let refused = |backing: &str| {
        let words = ["volume", "add", "w", "--backing", backing, "--pool", "p", "--export", "nbd"];
        place.must_fail(&words, 1, "lies on the volume \"v\" of this very daemon");
    };
    refused(&image);
    let link = place.path("link");
    std::os::unix::fs::symlink(&image, &link).expect("a link");
    refused(&link);
    // A loop device over it asks the file system, and so this daemon, which answers.
    if let Some(over) = Loop::attach(&[], &image) {
        let words = ["volume", "add", "w", "--backing", &over.0, "--pool", "p", "--export", "nbd"];
        place.must_fail(&words, 1, "it is the volume \"v\" itself, exported by hearth");
    }
    let ssd = format!("{}/ssd", mounted.0);
    place.must_fail(&["pool", "create", "q", "--ssd", &ssd, "--size", "64MiB", "--ram", "0"], 1, "of this very daemon");
    assert!(!Path::new(&ssd).exists(), "refused before it is made");
    // Its state directory, while nobody serves it: whoever looks into that waits for the daemon to come.
    daemon.kill();
    let state = format!("{}/state", mounted.0);
    let mut serve = place.command(&["serve"]);
    let output = serve.env("HEARTH_STATE", &state).output().expect("the program is there");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && told.contains("the state directory lies on a volume of hearth itself"), "{told}");
    let _daemon = place.daemon();
    drop(mounted);
}

#[test]
fn one_disk_by_two_names_is_one() {
    let place = Place::new();
    let _daemon = with_pool(&place);
    let file = place.file("disk.img", 64 * MIB);
    let (Some(one), Some(two)) = (Loop::attach(&[], &file), Loop::attach(&[], &file)) else { return };
    place.must(&add(&one.0, &["--mode", "write-back"]));
    let words = ["volume", "add", "w", "--backing", &two.0, "--pool", "p", "--export", "nbd"];
    place.must_fail(&words, 1, "both show the same file");
    place.must_fail(&["pool", "create", "q", "--ssd", &two.0], 1, "both show the same file");
    place.must(&["volume", "remove", "v"]);
}

/// A file that was deleted is served on, and saved by what the remedy says.
#[test]
fn a_deleted_backing_file_is_told_and_can_be_saved() {
    let place = Place::new();
    let _daemon = with_pool(&place);
    let file = place.file("disk.img", 16 * MIB);
    let uri = place.must(&add(&file, &["--mode", "write-back"]));
    let mut client = Client::connect(uri.trim());
    client.write(4096, &[7; 4096]).expect("it is served");
    std::fs::remove_file(&file).expect("it is there");
    let shown = || place.json(&["volume", "show", "v"]);
    wait_until("it is told", || shown()["problem"].as_str().is_some_and(|problem| problem.contains("was deleted")));
    client.write(8192, &[8; 4096]).expect("it is served on");
    drop(client);
    place.must_fail(&["volume", "stop", "v"], 1, "was deleted");
    place.must_fail(&["volume", "remove", "v"], 1, "was deleted");
    place.must(&["volume", "destage", "v"]);
    let remedy = shown()["remedy"].as_str().expect("what to do").to_string();
    let open_as = remedy.split_whitespace().find(|word| word.starts_with("/proc/")).expect("a name to copy it by").to_string();
    std::fs::copy(&open_as, place.path("copy")).expect("it can be read");
    place.must(&["volume", "stop", "v", "--force"]);
    std::fs::rename(place.path("copy"), &file).expect("it is free");
    place.must_fail(&["volume", "start", "v"], 1, "is another one");
    place.must(&["volume", "set", "v", "--accept-backing"]);
    let mut client = Client::connect(uri.trim());
    assert_eq!((client.read(4096, 4096), client.read(8192, 4096)), (vec![7; 4096], vec![8; 4096]));
    drop(client);
    place.must(&["volume", "remove", "v"]);
}
