//! The right disk, with the real binary over loop devices: names change hands while the daemon is down, a disk is rolled back, comes late, or is
//! given up for a while. Each volume finds its own disk or none.
//!
//! Needs root and loop devices; says so where it has neither. A file of its own, since it counts on numbers of loop devices, which other tests take.

#[path = "all/support/mod.rs"]
mod support;

use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use support::nbd::Client;
use support::{Daemon, Place};

const DISK_BYTES: u64 = 64 << 20;

/// Loop devices of a test; those that are left go with it.
#[derive(Default)]
struct Loops(Vec<String>);

impl Loops {
    fn attach(&mut self, file: &str) -> String {
        let device = run("losetup", &["--find", "--show", file]);
        self.0.push(device.clone());
        device
    }

    fn detach(&mut self, device: &str) {
        // Nobody may find what goes on under its name a moment longer than this takes.
        run("losetup", &["--detach", device]);
        while std::fs::read_to_string(format!("/sys/block/{}/loop/backing_file", device.trim_start_matches("/dev/"))).is_ok() {
            std::thread::yield_now();
        }
        self.0.retain(|other| other != device);
    }

    /// The file under a name that was free a moment ago. Another program may have got it meanwhile: then this waits until it is free again.
    fn attach_at(&mut self, device: &str, file: &str) {
        let is_taken = || Path::new(&format!("/sys/block/{}/loop", device.trim_start_matches("/dev/"))).exists();
        for _ in 0..1200 {
            if !is_taken() && Command::new("losetup").args([device, file]).output().is_ok_and(|output| output.status.success()) {
                self.0.push(device.into());
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        panic!("{device} is somebody else's for two minutes");
    }
}

impl Drop for Loops {
    fn drop(&mut self) {
        for device in &self.0 {
            drop(Command::new("losetup").args(["--detach", device]).output());
        }
    }
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap_or_else(|e| panic!("{program}: {e}"));
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_string()
}

fn machine_can() -> bool {
    let can = rustix::process::geteuid().is_root() && Path::new("/dev/loop-control").exists();
    if !can {
        let _ = writeln!(std::io::stderr(), "skipped: needs root and loop devices");
    }
    can
}

fn pattern(seed: u8) -> Vec<u8> {
    (0..4096u32).map(|at| (at % 251) as u8 ^ seed).collect()
}

/// A pool, and the volumes `a` and `b` over loop devices of `a.img` and `b.img`, whose first blocks are 1 and 2.
fn two(place: &Place, loops: &mut Loops, mode: &str) -> (Daemon, [String; 2], [String; 2]) {
    let daemon = place.daemon();
    place.must(&["pool", "create", "p", "--ssd", "ssd.img", "--size", "128MiB", "--ram", "8MiB"]);
    let files = ["a", "b"].map(|name| place.file(&format!("{name}.img"), DISK_BYTES));
    let devices = [0, 1].map(|n: usize| loops.attach(&files[n]));
    for (n, name) in ["a", "b"].into_iter().enumerate() {
        let uri = place.must(&[
            "volume",
            "add",
            name,
            "--backing",
            &devices[n],
            "--pool",
            "p",
            "--export",
            "nbd",
            "--mode",
            mode,
            "--admission",
            "always",
        ]);
        Client::connect(uri.trim()).write(0, &pattern(n as u8 + 1)).expect("a write");
    }
    (daemon, files, devices)
}

fn uri(place: &Place, name: &str) -> String {
    place.json(&["volume", "show", name])["exports"]["nbd"].as_str().expect("it is offered").to_string()
}

fn first_block(place: &Place, name: &str) -> Vec<u8> {
    Client::connect(&uri(place, name)).read(0, 4096)
}

fn text(view: &serde_json::Value, key: &str) -> String {
    view[key].as_str().unwrap_or_default().to_string()
}

/// Waits until a volume is in that state; the last view.
fn wait_for(place: &Place, name: &str, health: &str) -> serde_json::Value {
    let begun = std::time::Instant::now();
    loop {
        let view = place.json(&["volume", "show", name]);
        if view["health"] == health {
            return view;
        }
        assert!(begun.elapsed().as_secs() < 120, "it never is {health}: {view}");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

#[test]
fn each_volume_has_its_own_disk_when_loop_names_are_swapped() {
    if !machine_can() {
        return;
    }
    for (mode, clean) in [("write-through", true), ("write-back", false), ("write-around", false), ("pass-through", true)] {
        let (place, mut loops) = (Place::new(), Loops::default());
        let (daemon, files, devices) = two(&place, &mut loops, mode);
        if clean {
            daemon.stop()
        } else {
            daemon.kill()
        }
        devices.iter().for_each(|device| loops.detach(device));
        loops.attach_at(&devices[0], &files[1]);
        loops.attach_at(&devices[1], &files[0]);
        let daemon = place.daemon();
        for (n, name) in ["a", "b"].into_iter().enumerate() {
            let view = place.json(&["volume", "show", name]);
            assert_eq!((text(&view, "health").as_str(), text(&view, "backing")), ("running", devices[1 - n].clone()), "{mode}: {view}");
            assert_eq!(first_block(&place, name), pattern(n as u8 + 1), "{mode}: volume {name} shows the other's disk");
        }
        assert!(daemon.log().contains("recognised by its loop file"), "{}", daemon.log());
        daemon.stop();
    }
}

/// The right disk is nowhere, and another one has its name.
#[test]
fn another_disk_under_the_name_is_never_offered() {
    if !machine_can() {
        return;
    }
    for mode in ["write-through", "pass-through"] {
        let (place, mut loops) = (Place::new(), Loops::default());
        let (daemon, files, devices) = two(&place, &mut loops, mode);
        daemon.stop();
        loops.detach(&devices[0]);
        let other = place.file("other.img", DISK_BYTES);
        loops.attach_at(&devices[0], &other);
        let daemon = place.daemon();
        let view = place.json(&["volume", "show", "a"]);
        assert_eq!(text(&view, "health"), "failed", "{mode}: {view}");
        assert!(text(&view, "problem").contains("is another one"), "{view}");
        assert!(view["exports"]["nbd"].is_null(), "{view}");
        assert_eq!(first_block(&place, "b"), pattern(2));
        // The right one comes, elsewhere: the volume starts by itself, and the other one was not touched.
        loops.attach(&files[0]);
        wait_for(&place, "a", "running");
        assert_eq!(first_block(&place, "a"), pattern(1), "{mode}");
        assert!(std::fs::read(&other).expect("it is there").iter().all(|byte| *byte == 0), "{mode}: it was written");
        daemon.stop();
    }
}

/// A disk comes late. Its volume starts by itself; the other one's clients notice nothing.
#[test]
fn a_late_disk_starts_its_volume() {
    if !machine_can() {
        return;
    }
    assert!((0..20).any(|_| late_disk()), "others took the name of the disk each time");
}

/// False: another program took the name meanwhile, so that there was a disk of that name.
fn late_disk() -> bool {
    let (place, mut loops) = (Place::new(), Loops::default());
    let (daemon, files, devices) = two(&place, &mut loops, "write-back");
    daemon.kill();
    loops.detach(&devices[0]);
    let daemon = place.daemon();
    let view = place.json(&["volume", "show", "a"]);
    if text(&view, "problem").contains("is another one") {
        daemon.stop();
        return false;
    }
    assert!(text(&view, "problem").contains("no file or device behind it") && text(&view, "remedy").contains("connect the disk"), "{view}");
    let mut other = Client::connect(&uri(&place, "b"));
    assert_eq!(other.read(0, 4096), pattern(2));
    loops.attach(&files[0]);
    wait_for(&place, "a", "running");
    assert_eq!(first_block(&place, "a"), pattern(1), "what was dirty is there");
    assert_eq!(other.read(0, 4096), pattern(2), "the same connection");
    other.write(0, &pattern(3)).expect("it goes on");
    daemon.stop();
    true
}

/// A disk goes while its volume is in use, and comes back under another name: the volume goes on over it, its clients' connections live on, and what
/// was dirty goes home.
#[test]
fn a_disk_that_was_away_is_taken_up_again() {
    if !machine_can() {
        return;
    }
    let (place, mut loops) = (Place::new(), Loops::default());
    let (daemon, files, devices) = two(&place, &mut loops, "write-back");
    let [mut client, mut other] = ["a", "b"].map(|name| Client::connect(&uri(&place, name)));
    place.must(&["volume", "destage", "a"]);
    place.must(&["volume", "set", "a", "--write-cache-depth", "24h"]);
    // The device is there no more: a disk without a size.
    let content = std::fs::read(&files[0]).expect("it is there");
    let file = std::fs::OpenOptions::new().write(true).open(&files[0]).expect("it is there");
    file.set_len(0).expect("it can be cut");
    run("losetup", &["--set-capacity", &devices[0]]);
    let view = wait_for(&place, "a", "failed");
    assert!(text(&view, "problem").contains("went away") && text(&view, "remedy").contains("resumes by itself"), "{view}");
    assert_eq!(other.read(0, 4096), pattern(2));
    // The same file, and so the same disk, at another place.
    file.write_all_at(&content, 0).expect("there is room");
    file.sync_all().expect("a flush");
    let back = loops.attach(&files[0]);
    let view = wait_for(&place, "a", "running");
    assert_eq!(text(&view, "backing"), back);
    assert_eq!(client.read(0, 4096), pattern(1), "the same connection");
    client.write(4096, &pattern(7)).expect("it goes on");
    other.write(4096, &pattern(8)).expect("the other one never stopped");
    drop((client, other));
    place.must(&["volume", "destage", "a"]);
    daemon.stop();
    let home = std::fs::read(&files[0]).expect("it is there");
    assert_eq!((&home[..4096], &home[4096..8192]), (&pattern(1)[..], &pattern(7)[..]));
}

/// One volume is stopped and started; its device is free meanwhile, and the other volume's connection lives on.
#[test]
fn a_volume_is_stopped_and_started_by_itself() {
    for mode in ["write-through", "write-back"] {
        let place = Place::new();
        let daemon = place.daemon();
        place.must(&["pool", "create", "p", "--ssd", "ssd.img", "--size", "128MiB", "--ram", "8MiB"]);
        for name in ["a", "b"] {
            let file = place.file(&format!("{name}.img"), DISK_BYTES);
            let add =
                ["volume", "add", name, "--backing", &file, "--pool", "p", "--export", "nbd", "--mode", mode, "--admission", "always"];
            let uri = place.must(&add);
            let mut client = Client::connect(uri.trim());
            (0..64).for_each(|block| client.write(block * 4096, &pattern(block as u8)).expect("a write"));
            client.flush();
        }
        let mut other = Client::connect(&uri(&place, "b"));
        let said = place.must(&["volume", "stop", "a"]);
        assert!(said.starts_with("volume a: ") && said.contains("a.img is"), "{said}");
        assert_eq!(text(&place.json(&["volume", "show", "a"]), "health"), "stopped");
        place.must_fail(&["volume", "destage", "a"], 1, "hearth volume start a");
        other.write(4096, &pattern(99)).expect("the other one runs");
        // It stays so over a restart.
        daemon.stop();
        let daemon = place.daemon();
        assert_eq!(text(&place.json(&["volume", "show", "a"]), "health"), "stopped");
        place.must(&["volume", "start", "a"]);
        let mut client = Client::connect(&uri(&place, "a"));
        (0..64).for_each(|block| assert_eq!(client.read(block * 4096, 4096), pattern(block as u8), "{mode}, block {block}"));
        drop(client);
        // Again and again, with dirty data: nothing is lost, and the pool's own checks find nothing.
        for round in 0..5_u8 {
            let mut client = Client::connect(&uri(&place, "a"));
            (0..64).for_each(|block| client.write(block * 4096, &pattern(block as u8 ^ round)).expect("a write"));
            drop(client);
            place.must(&["volume", "stop", "a"]);
            place.must(&["volume", "start", "a"]);
            let mut client = Client::connect(&uri(&place, "a"));
            (0..64).for_each(|block| assert_eq!(client.read(block * 4096, 4096), pattern(block as u8 ^ round), "{mode}, block {block}"));
        }
        place.must(&["pool", "check", "p"]);
        place.must(&["volume", "remove", "a"]);
        let home = std::fs::read(place.path("a.img")).expect("it is there");
        (0..64)
            .for_each(|block: usize| assert_eq!(home[block * 4096..][..4096], pattern(block as u8 ^ 4), "{mode}, block {block} at home"));
        daemon.stop();
    }
}

/// What was written on the device of a stopped volume is noticed when it starts: clean cache goes, and dirty data is not mixed with it.
#[test]
fn a_device_that_changed_while_its_volume_was_stopped_is_noticed() {
    let place = Place::new();
    let daemon = place.daemon();
    place.must(&["pool", "create", "p", "--ssd", "ssd.img", "--size", "128MiB", "--ram", "8MiB"]);
    let file = place.file("a.img", DISK_BYTES);
    let add = ["volume", "add", "a", "--backing", &file, "--pool", "p", "--export", "nbd", "--admission", "always"];
    let uri = place.must(&add).trim().to_string();
    let mut client = Client::connect(&uri);
    (0..64).for_each(|block| client.write(block * 4096, &pattern(block as u8)).expect("a write"));
    client.flush();
    drop(client);
    place.must(&["volume", "stop", "a"]);
    let disk = std::fs::OpenOptions::new().write(true).open(&file).expect("it is there");
    disk.write_all_at(&pattern(200), 0).expect("there is room");
    disk.sync_all().expect("a flush");
    place.must(&["volume", "start", "a"]);
    assert_eq!(first_block(&place, "a"), pattern(200), "an old block was served");
    assert!(daemon.log().contains("is dropped"), "{}", daemon.log());
    daemon.stop();
}

/// A disk with a file system is rolled back to a snapshot after the daemon was killed. What was cached of it since must not be mixed with it.
#[test]
fn a_rollback_after_a_kill_is_noticed() {
    if Command::new("mkfs.ext4").arg("-V").output().is_err() {
        let _ = writeln!(std::io::stderr(), "skipped: needs mkfs.ext4");
        return;
    }
    for mode in ["write-through", "write-back"] {
        let place = Place::new();
        let file = place.file("a.img", DISK_BYTES);
        run("mkfs.ext4", &["-q", "-F", &file]);
        std::fs::copy(&file, place.path("snapshot.img")).expect("there is room");
        let daemon = place.daemon();
        place.must(&["pool", "create", "p", "--ssd", "ssd.img", "--size", "128MiB", "--ram", "8MiB"]);
        let add = ["volume", "add", "a", "--backing", &file, "--pool", "p", "--export", "nbd", "--mode", mode, "--admission", "always"];
        let uri = place.must(&add).trim().to_string();
        let mut client = Client::connect(&uri);
        // As the file system does it: data, then the superblock with a later time and more written.
        let mut superblock = client.read(0, 4096);
        (0..256).for_each(|block| client.write((1 << 20) + block * 4096, &pattern(block as u8)).expect("a write"));
        superblock[0x430] = superblock[0x430].wrapping_add(1);
        superblock[0x578] = superblock[0x578].wrapping_add(200);
        client.write(0, &superblock).expect("a write");
        client.flush();
        drop(client);
        if mode == "write-back" {
            place.must(&["volume", "destage", "a"]);
            // And something that is dirty when the daemon dies.
            place.must(&["volume", "set", "a", "--write-cache-depth", "24h"]);
        }
        wait_for_note(&place);
        if mode == "write-back" {
            let mut client = Client::connect(&uri);
            (0..64).for_each(|block| client.write((8 << 20) + block * 4096, &pattern(block as u8)).expect("a write"));
        }
        daemon.kill();
        // As a storage array does it: the device stays, its content is the older one.
        let snapshot = std::fs::read(place.path("snapshot.img")).expect("it is there");
        let disk = std::fs::OpenOptions::new().write(true).open(&file).expect("it is there");
        disk.write_all_at(&snapshot, 0).expect("there is room");
        disk.sync_all().expect("a flush");
        let daemon = place.daemon();
        let view = place.json(&["volume", "show", "a"]);
        let problem = text(&view, "problem");
        if mode == "write-back" {
            assert!(problem.contains("rolled back") && text(&view, "remedy").contains("--accept-backing"), "{view}");
            daemon.stop();
            continue;
        }
        assert_eq!(text(&view, "health"), "running", "{view}");
        assert!(daemon.log().contains("rolled back") && daemon.log().contains("is dropped"), "{}", daemon.log());
        let mut client = Client::connect(&uri);
        (0..256).for_each(|block| {
            let at = (1 << 20) + block * 4096;
            assert_eq!(client.read(at, 4096), snapshot[at as usize..][..4096], "block {block} is from after the snapshot");
        });
        daemon.stop();
    }
}

/// Until the stamps of the device, as they are now, are noted.
fn wait_for_note(place: &Place) {
    let noted = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok().map(|state| state["volumes"][0]["noted"].to_string());
    let read = || std::fs::read_to_string(place.path("state/state.json")).ok().and_then(|text| noted(&text)).unwrap_or_default();
    let device = std::fs::read(place.path("a.img")).expect("it is there");
    let written_kib = u64::from_le_bytes(device[0x578..0x580].try_into().expect("eight bytes"));
    let begun = std::time::Instant::now();
    while !read().contains(&format!("\"{written_kib}\"")) {
        assert!(begun.elapsed().as_secs() < 120, "it is never noted: {}", read());
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

/// Even where no stamp shows it, a sample of what was cached last does.
#[test]
fn a_rollback_without_a_file_system_is_noticed_by_what_was_written_last() {
    let place = Place::new();
    let file = place.file("a.img", DISK_BYTES);
    let daemon = place.daemon();
    place.must(&["pool", "create", "p", "--ssd", "ssd.img", "--size", "128MiB", "--ram", "0"]);
    let add = ["volume", "add", "a", "--backing", &file, "--pool", "p", "--export", "nbd", "--admission", "always"];
    let uri = place.must(&[&add[..], &["--sequential-cutoff", "off"]].concat()).trim().to_string();
    let mut client = Client::connect(&uri);
    // Much that is old, and little that is new.
    (0..8192).for_each(|block| client.write(block * 4096, &pattern(block as u8)).expect("a write"));
    client.flush();
    (0..8192).for_each(|block| drop(client.read(block * 4096, 4096)));
    let old = std::fs::read(&file).expect("it is there");
    (0..8).for_each(|block| client.write((4000 + block) * 4096, &pattern(200)).expect("a write"));
    client.flush();
    (0..8).for_each(|block| drop(client.read((4000 + block) * 4096, 4096)));
    drop(client);
    // What is clean goes to the SSD when there is time: the latest, too.
    std::thread::sleep(std::time::Duration::from_millis(500));
    let cached = || place.json(&["volume", "show", "a"])["cached_bytes"].as_u64();
    daemon.wait_until("there is something to dilute it", || cached().is_some_and(|bytes| bytes >= 16 << 20));
    daemon.kill();
    let disk = std::fs::OpenOptions::new().write(true).open(&file).expect("it is there");
    disk.write_all_at(&old, 0).expect("there is room");
    disk.sync_all().expect("a flush");
    let daemon = place.daemon();
    let mut client = Client::connect(&uri);
    (0..8)
        .for_each(|block| assert_eq!(client.read((4000 + block) * 4096, 4096), pattern((4000 + block) as u8), "block {block} is of later"));
    assert!(daemon.log().contains("written by others or rolled back"), "{}", daemon.log());
    daemon.stop();
}

#[test]
fn the_clean_cache_is_dropped_on_demand_and_that_is_told() {
    let place = Place::new();
    let daemon = place.daemon();
    place.must(&["pool", "create", "p", "--ssd", "ssd.img", "--size", "128MiB", "--ram", "8MiB"]);
    let file = place.file("a.img", DISK_BYTES);
    let uri = place.must(&["volume", "add", "a", "--backing", &file, "--pool", "p", "--export", "nbd", "--admission", "always"]);
    place.must(&["volume", "warm", "a", "--range", "0-4MiB"]);
    let said = place.must(&["volume", "drop-cache", "a"]);
    assert!(said.starts_with("volume a: ") && said.contains("of clean cache on the SSD") && said.contains("dropped"), "{said}");
    assert_eq!(place.json(&["volume", "show", "a"])["cached_bytes"], 0);
    place.must(&["volume", "warm", "a", "--range", "0-4MiB"]);
    let said = place.must(&["volume", "set", "a", "--accept-backing"]);
    assert!(said.contains("the volume already runs with") && said.contains("dropped"), "{said}");
    assert_eq!(place.json(&["volume", "show", "a"])["cached_bytes"], 0);
    assert_eq!(Client::connect(uri.trim()).read(0, 4096), vec![0; 4096]);
    daemon.stop();
}

/// A file of another disk under the path of a volume is another disk, and a file that was renamed is the same.
#[test]
fn files_are_recognised_too() {
    let place = Place::new();
    let daemon = place.daemon();
    place.must(&["pool", "create", "p", "--ssd", "ssd.img", "--size", "128MiB", "--ram", "8MiB"]);
    for (n, name) in ["a", "b"].into_iter().enumerate() {
        let file = place.file(&format!("{name}.img"), DISK_BYTES);
        let uri = place.must(&["volume", "add", name, "--backing", &file, "--pool", "p", "--export", "nbd"]);
        Client::connect(uri.trim()).write(0, &pattern(n as u8 + 1)).expect("a write");
    }
    daemon.stop();
    let [a, b, c] = ["a.img", "b.img", "c.img"].map(|name| place.path(name));
    std::fs::rename(&a, &c).and_then(|()| std::fs::rename(&b, &a)).and_then(|()| std::fs::rename(&c, &b)).expect("they are there");
    let daemon = place.daemon();
    for (n, name) in ["a", "b"].into_iter().enumerate() {
        assert_eq!(first_block(&place, name), pattern(n as u8 + 1), "volume {name}");
    }
    assert!(text(&place.json(&["volume", "show", "a"]), "backing").ends_with("b.img"));
    daemon.stop();
}
