//! A backing device that refuses writes, with the real binary: an image on a file system that is full, as a thin LUN without space. The volume is
//! shown as failing, with the kernel's reason, until its writes and destage are done again. And what is shown of dirty data where it cannot be known.
//!
//! Needs root and loop devices; says so where it has neither.

use crate::support::nbd::Client;
use crate::support::{Daemon, Place};
use std::io::Write;
use std::process::Command;

const MIB: u64 = 1 << 20;
const ENOSPC: u32 = 28;

/// A small ext4 in a file, unmounted and detached when dropped.
struct SmallDisk {
    device: String,
    point: String,
}

impl SmallDisk {
    fn new(place: &Place, size_mib: u64) -> Option<SmallDisk> {
        let image = place.file("small.img", size_mib * MIB);
        let run = |program: &str, arguments: &[&str]| {
            let output = Command::new(program).args(arguments).output().ok().filter(|output| output.status.success())?;
            Some(String::from_utf8_lossy(&output.stdout).trim().to_string())
        };
        let skipped = || drop(writeln!(std::io::stderr(), "skipped: loop devices with ext4 cannot be made here"));
        let Some(device) = run("losetup", &["--find", "--show", &image]) else {
            skipped();
            return None;
        };
        let disk = SmallDisk { device, point: place.path("small") };
        std::fs::create_dir(&disk.point).expect("there is room");
        let mounted = run("mkfs.ext4", &["-q", "-m", "0", &disk.device]).and_then(|_| run("mount", &[&disk.device, &disk.point]));
        if mounted.is_none() {
            skipped();
            return None;
        }
        Some(disk)
    }

    fn file(&self, name: &str) -> String {
        format!("{}/{name}", self.point)
    }

    /// Takes all room that is left.
    fn fill(&self) {
        let mut balloon = std::fs::File::create(self.file("balloon")).expect("a name");
        while balloon.write_all(&[1; 1 << 16]).and_then(|()| balloon.sync_data()).is_ok() {}
        while balloon.write_all(&[1; 1 << 12]).and_then(|()| balloon.sync_data()).is_ok() {}
    }

    fn make_room(&self) {
        std::fs::remove_file(self.file("balloon")).expect("it is there");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(Command::new("umount").arg(&self.point).output());
        drop(Command::new("losetup").args(["--detach", &self.device]).output());
    }
}

fn with_pool(place: &Place) -> Daemon {
    let daemon = place.daemon();
    place.must(&["pool", "create", "p", "--ssd", "ssd.img", "--size", "128MiB", "--ram", "0"]);
    daemon
}

/// Waits until the volume is shown so; gives what is wrong with it then.
fn wait_for(place: &Place, health: &str) -> String {
    let begun = std::time::Instant::now();
    loop {
        let view = place.json(&["volume", "show", "v"]);
        if view["health"] == health {
            return view["problem"].as_str().unwrap_or_default().to_string();
        }
        assert!(begun.elapsed().as_secs() < 120, "it never is {health}: {view}");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

fn check(mode: &str) {
    let place = Place::new();
    let Some(disk) = SmallDisk::new(&place, 48) else { return };
    let file = disk.file("lun.img");
    std::fs::File::create(&file).and_then(|file| file.set_len(32 * MIB)).expect("a sparse file");
    let daemon = with_pool(&place);
    let add = ["volume", "add", "v", "--backing", &file, "--pool", "p", "--export", "nbd", "--mode", mode, "--write-cache-depth", "100ms"];
    let uri = place.must(&add);
    let mut client = Client::connect(uri.trim());
    disk.fill();
    let mut written = (0..64u64).map(|at| client.write(at * 64 * 1024, &[5; 4096]));
    match mode {
        "write-back" => assert!(written.all(|write| write.is_ok()), "the SSD takes them"),
        _ => assert!(written.any(|write| write == Err(ENOSPC)), "the client is told"),
    }
    let problem = wait_for(&place, "failing");
    assert_eq!(problem, "writes to its backing device fail: No space left on device (os error 28)", "{}", daemon.log());
    let list = place.must(&["volume", "list"]);
    assert!(list.contains("failing") && list.contains("No space left on device (os error 28)"), "{list}");
    disk.make_room();
    // In write-back the dirty blocks are tried again by themselves; otherwise the client must.
    if mode != "write-back" {
        (0..64u64).for_each(|at| client.write(at * 64 * 1024, &[5; 4096]).expect("there is room again"));
    }
    assert_eq!(wait_for(&place, "running"), "");
    place.must(&["volume", "destage", "v"]);
    assert_eq!(place.json(&["volume", "show", "v"])["dirty_bytes"], 0);
    drop(client);
    place.must(&["volume", "remove", "v"]);
}

/// A pool on a sparse file, as older versions made it: where the room for all of it is gone, what it holds is served all the same.
#[test]
fn a_sparse_ssd_without_room_to_grow_serves_what_it_holds() {
    let place = Place::new();
    let Some(disk) = SmallDisk::new(&place, 256) else { return };
    let ssd = disk.file("ssd.img");
    let daemon = place.daemon();
    place.must(&["pool", "create", "p", "--ssd", &ssd, "--size", "128MiB", "--ram", "0"]);
    let file = place.file("disk.img", 64 * MIB);
    let add =
        ["volume", "add", "v", "--backing", &file, "--pool", "p", "--export", "nbd", "--mode", "write-back", "--write-cache-depth", "1h"];
    let uri = place.must(&add);
    let mut client = Client::connect(uri.trim());
    client.write(0, &[7; 4096]).expect("the SSD takes it");
    client.flush();
    drop(client);
    daemon.kill();
    let sparse = disk.file("sparse.img");
    let copied = Command::new("cp").args(["--sparse=always", &ssd, &sparse]).status();
    assert!(copied.expect("it is there").success());
    std::fs::rename(&sparse, &ssd).expect("it is there");
    disk.fill();
    // Something is left, and far too little for the whole pool.
    let balloon = std::fs::File::options().write(true).open(disk.file("balloon")).expect("it is there");
    let filled_bytes = balloon.metadata().expect("its facts").len();
    balloon.set_len(filled_bytes - 16 * MIB).and_then(|()| balloon.sync_all()).expect("it can be cut");
    let daemon = place.daemon();
    let view = place.json(&["volume", "show", "v"]);
    assert_eq!(view["health"], "running", "{}", daemon.log());
    assert!(daemon.log().contains("has holes and needs"), "{}", daemon.log());
    let mut client = Client::connect(uri.trim());
    assert!(client.read(0, 4096) == [7; 4096]);
    drop(client);
    place.must(&["volume", "destage", "v"]);
    daemon.stop();
}

#[test]
fn destage_to_a_full_disk_is_shown_until_it_goes_on() {
    check("write-back");
}

#[test]
fn writes_to_a_full_disk_are_shown_until_they_are_taken() {
    check("write-through");
}

#[test]
fn dirty_data_is_shown_while_the_disk_is_away_and_unknown_while_the_ssd_is() {
    let place = Place::new();
    let daemon = with_pool(&place);
    let file = place.file("disk.img", 64 * MIB);
    let add =
        ["volume", "add", "v", "--backing", &file, "--pool", "p", "--export", "nbd", "--mode", "write-back", "--write-cache-depth", "1h"];
    let uri = place.must(&add);
    let mut client = Client::connect(uri.trim());
    // Random places: a stream in a row may go around the cache.
    (0..256u64).for_each(|at| client.write(at * 7 % 256 * 65536, &[3; 4096]).expect("the SSD takes it"));
    client.flush();
    drop(client);
    daemon.kill();
    let hidden = place.path("elsewhere/disk.img");
    std::fs::create_dir(place.path("elsewhere")).expect("there is room");
    std::fs::rename(&file, &hidden).expect("it is there");
    let daemon = place.daemon();
    let view = place.json(&["volume", "show", "v"]);
    assert_eq!((&view["health"], &view["cached_bytes"]), (&"failed".into(), &serde_json::Value::Null), "{view}");
    let dirty = view["dirty_bytes"].as_u64().expect("the pool runs, and knows");
    assert!(dirty > 0 && dirty <= MIB, "{view}");
    assert_eq!(place.json(&["pool", "show", "p"])["dirty_bytes"], dirty, "pool and volume say the same");
    assert_eq!(place.json(&["stats", "v"])["dirty_bytes"], dirty);
    daemon.kill();
    std::fs::rename(&hidden, &file).expect("it is there");
    std::fs::rename(place.path("ssd.img"), place.path("gone.img")).expect("it is there");
    let daemon = place.daemon();
    let asked: [&[&str]; 4] = [&["volume", "show", "v"], &["pool", "show", "p"], &["stats", "v"], &["stats", "p"]];
    for asked in asked {
        assert_eq!(place.json(asked)["dirty_bytes"], serde_json::Value::Null, "{asked:?}");
        assert!(place.must(asked).contains("unknown"), "{asked:?}");
    }
    let list = place.must(&["volume", "list"]);
    assert!(list.contains("unknown") && !list.contains(" 0 B"), "{list}");
    assert!(place.must(&["pool", "list"]).contains("unknown"));
    daemon.kill();
}
