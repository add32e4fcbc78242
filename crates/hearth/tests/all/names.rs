//! Stable names of block devices: whoever gives a device up takes its name away, and one that is missing is told.

use crate::support;
use crate::support::{Place, exists, wait_until};
use rustix::process::{Signal, kill_process};

fn machine_can() -> bool {
    let can = rustix::process::geteuid().is_root() && exists("/dev/loop-control") && exists("/dev/fuse");
    if !can {
        eprintln!("skipped: it needs root, /dev/fuse and /dev/loop-control");
    }
    can
}

/// A name that no other test has.
fn name(what: &str) -> String {
    format!("names-{what}-{}", std::process::id())
}

fn stable(name: &str) -> String {
    format!("/dev/hearth/{name}")
}

fn is_name(path: &str) -> bool {
    std::fs::symlink_metadata(path).is_ok()
}

/// Adds a volume as a loop device; gives what the command said.
fn add(place: &Place, name: &str) -> support::Ended {
    place.must(&["pool", "create", "p", "--ssd", &place.path("ssd.img"), "--size", "64MiB", "--ram", "0"]);
    let disk = place.file("disk.img", 16 << 20);
    let added = place.run(&["volume", "add", name, "--backing", &disk, "--pool", "p", "--export", "loop"]);
    assert_eq!(added.status, Some(0), "{added:?}");
    added
}

fn device(place: &Place, name: &str) -> String {
    place.json(&["volume", "show", name])["exports"]["loop"].as_str().expect("it is offered").to_string()
}

fn has_file(device: &str) -> bool {
    exists(format!("/sys/block/{}/loop/backing_file", device.trim_start_matches("/dev/")))
}

/// Whether the device is still the volume's: its number may be that of others at once.
fn shows(device: &str, name: &str) -> bool {
    let file = std::fs::read_to_string(format!("/sys/block/{}/loop/backing_file", device.trim_start_matches("/dev/")));
    file.is_ok_and(|file| file.trim_end().ends_with(name) || file.trim_end() == "/")
}

fn is_mounted(place: &Place, name: &str) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("it is there");
    mounts.contains(&place.path(&format!("run/mounts/{name}")))
}

#[test]
fn a_keeper_that_gives_up_takes_device_mount_and_name_away() {
    if !machine_can() {
        return;
    }
    let (place, name) = (Place::new(), name("keeper"));
    let daemon = place.daemon();
    add(&place, &name);
    let (device, stable) = (device(&place, &name), stable(&name));
    assert!(is_name(&stable) && is_mounted(&place, &name) && has_file(&device));
    daemon.kill();
    assert!(is_name(&stable) && has_file(&device), "as long as a daemon may come");
    // No daemon can come any more: so it does not wait for long.
    std::fs::remove_file(place.path("state/keeper.sock")).expect("it is there");
    wait_until("the keeper has ended", || place.keeper().is_none());
    assert!(!is_name(&stable) && !is_mounted(&place, &name) && !shows(&device, &name));
}

#[test]
fn a_rescue_clears_what_a_killed_keeper_left() {
    if !machine_can() {
        return;
    }
    let (place, name) = (Place::new(), name("rescue"));
    let daemon = place.daemon();
    add(&place, &name);
    let (device, stable) = (device(&place, &name), stable(&name));
    // First: the daemon would start another one.
    daemon.signal(Signal::STOP);
    kill_process(place.keeper().expect("it runs"), Signal::KILL).expect("it runs");
    daemon.kill();
    wait_until("the keeper has ended", || place.keeper().is_none());
    assert!(is_name(&stable), "nobody was left to take it away");
    let told = place.must(&["rescue"]);
    assert!(told.contains(&stable) && told.contains(&device), "{told}");
    assert!(!is_name(&stable) && !is_mounted(&place, &name) && !shows(&device, &name));
    assert!(place.must(&["rescue"]).contains("nothing is held"));
}

#[test]
fn a_name_that_is_anothers_is_told_waited_for_and_comes_when_it_is_free() {
    if !machine_can() {
        return;
    }
    let (one, other, name) = (Place::new(), Place::new(), name("twice"));
    let (first, second) = (one.daemon(), other.daemon());
    add(&one, &name);
    one.must(&["volume", "wait", &name]);
    let added = add(&other, &name);
    let stable = stable(&name);
    assert!(added.stderr.contains("has no stable name") && !added.stdout.contains(&stable), "{added:?}");
    let view = other.json(&["volume", "show", &name]);
    assert!(view["stable_path"].is_null() && view["health"] == "running", "{view}");
    assert!(view["problem"].as_str().is_some_and(|problem| problem.contains("belongs to another daemon")), "{view}");
    assert!(other.must(&["volume", "list"]).contains("has no stable name"));
    other.must_fail(&["volume", "wait", &name, "--limit", "0"], 1, "has no stable name");
    assert_eq!(std::fs::read_link(&stable).expect("a link"), std::path::Path::new(&device(&one, &name)));
    one.must(&["volume", "remove", &name]);
    other.must(&["volume", "wait", &name, "--limit", "120"]);
    assert_eq!(std::fs::read_link(&stable).expect("a link"), std::path::Path::new(&device(&other, &name)));
    // Whoever removes it, or puts something in its place, does not go unseen.
    std::fs::remove_file(&stable).and_then(|()| std::fs::create_dir(&stable)).expect("it is ours");
    wait_until("it is told", || other.json(&["volume", "show", &name])["stable_path"].is_null());
    std::fs::remove_dir(&stable).expect("it is there still");
    other.must(&["volume", "wait", &name, "--limit", "120"]);
    first.stop();
    second.stop();
    assert!(!is_name(&stable));
}
