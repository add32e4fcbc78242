//! Off means off: a tap that has ended leaves no descriptor, no mapping, no mount and no thread;
//! and while it is on, the device is not touched. (What it leaves below tracefs, the tests of
//! `text/instance.rs` look at.) One test alone in its file, since it counts what the process has.

mod common;

use blocktap::Way;
use common::{LoopDevice, Player, read_all, tap};
use std::path::Path;

/// What the process has.
fn possessions() -> Vec<String> {
    let count = |directory: &str| std::fs::read_dir(directory).map_or(0, Iterator::count);
    let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
    let shared = maps.lines().filter(|line| line.contains("bpf") || line.contains("anon_inode")).count();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    let mounted = mounts.lines().filter(|line| line.contains("tracefs")).count();
    let (descriptors, threads) = (count("/proc/self/fd"), count("/proc/self/task"));
    vec![
        format!("{descriptors} descriptors"),
        format!("{threads} threads"),
        format!("{shared} shared mappings"),
        format!("{mounted} tracefs"),
    ]
}

/// Requests that the device has had, and how often it is open here.
fn uses(device: &Path) -> (String, usize) {
    let name = device.file_name().expect("a name").to_string_lossy().into_owned();
    let requests = std::fs::read_to_string(format!("/sys/block/{name}/stat")).expect("figures");
    let open = std::fs::read_dir("/proc/self/fd").expect("descriptors").flatten();
    (requests, open.filter(|entry| std::fs::read_link(entry.path()).is_ok_and(|target| target == device)).count())
}

#[test]
fn the_device_is_not_touched_and_nothing_is_left() {
    let Some(device) = LoopDevice::make(1 << 20) else { return };
    let mut player = Player::new(&device.path, 0);
    for way in [Way::Bpf, Way::Tracefs] {
        let before = possessions();
        let unused = uses(&device.path);
        let Some(mut tap) = tap(device.watched(), way, 1 << 20) else { continue };
        let mut events = Vec::new();
        assert_eq!(read_all(&mut tap, &mut events), 0);
        assert_eq!(uses(&device.path), unused, "by {way}");
        player.read(0, 4096);
        assert_eq!(read_all(&mut tap, &mut events), 0);
        assert!(!events.is_empty());
        assert_ne!(possessions(), before, "while it is open");
        drop(tap);
        assert_eq!(possessions(), before, "after {way}");
    }
}
