//! `hearth stream rule`: whose requests are of which class, told by the client of an export and by the
//! process that uses a block device.

use crate::support;
use crate::support::nbd::Client;
use crate::support::{Place, wait_for, wait_until};
use std::process::Command;
use std::time::Duration;

const BLOCK_BYTES: u64 = 4096;

/// Makes a volume of 64 MiB, offered in that way, and says where.
fn volume(place: &Place, export: &str) -> String {
    place.must(&["pool", "create", "p", "--ssd", "ssd.img", "--size", "64MiB", "--ram", "0", "--content", "off"]);
    place.file("disk.img", 64 << 20);
    place.must(&["volume", "add", "v", "--backing", "disk.img", "--pool", "p", "--export", export]);
    until_watched(place);
    place.json(&["volume", "show", "v"])["exports"][export].as_str().expect("a place").to_string()
}

/// The observer takes notice of a volume within a second.
fn until_watched(place: &Place) {
    wait_until("it is watched", || place.run(&["stream", "list", "v"]).status == Some(0));
}

/// Uses the volume until a stream of that class and of that origin is listed; its bytes read.
fn until_listed(place: &Place, class: &str, who: &str, mut read: impl FnMut(u64)) -> u64 {
    let mut round = 0;
    wait_for(&format!("{class} of {who}"), || {
        read(round);
        round += 1;
        let streams = place.json(&["stream", "list", "v"]);
        let is_it = |line: &&serde_json::Value| line["class"] == class && line["who"] == who;
        streams.as_array().expect("a list").iter().find(is_it).map(|line| line["read_bytes"].as_u64().expect("a number"))
    })
}

#[test]
fn a_client_of_an_export_is_what_the_rule_says() {
    let place = Place::new();
    let daemon = place.daemon();
    let uri = volume(&place, "nbd");
    let uid = format!("uid:{}", rustix::process::geteuid().as_raw());
    let mut client = Client::connect(&uri);
    // Blocks far apart, each once: nothing that tells a backup by itself.
    let mut read = |round: u64| drop(client.read((round * 7919 + 11) % 16_000 * BLOCK_BYTES, BLOCK_BYTES as usize));
    until_listed(&place, "application", &uid, &mut read);
    let made = place.must(&["stream", "rule", "add", "--client", "uid:*", "--class", "backup"]);
    assert_eq!(made, "rule 1: requests of client uid:* are of class backup\n");
    until_listed(&place, "backup", "client uid:*", &mut read);
    let table = place.must(&["stream", "list", "v"]);
    assert!(table.contains("WHO") && table.contains("client uid:*") && table.contains("rule or session"), "{table}");
    // It holds for the next daemon as well, until it is taken away.
    daemon.stop();
    let daemon = place.daemon();
    until_watched(&place);
    let rules = place.must(&["stream", "rule", "list"]);
    assert!(rules.contains("uid:*") && rules.contains("mysqldump") && rules.contains("built in"), "{rules}");
    let mut client = Client::connect(&uri);
    let mut read = |round: u64| drop(client.read((round * 7919 + 13) % 16_000 * BLOCK_BYTES, BLOCK_BYTES as usize));
    until_listed(&place, "backup", "client uid:*", &mut read);
    place.must(&["stream", "rule", "remove", "1"]);
    until_listed(&place, "application", &uid, &mut read);
    daemon.stop();
}

#[test]
fn a_process_that_uses_the_block_device_is_what_the_rule_says() {
    let can = rustix::process::geteuid().is_root() && support::exists("/dev/loop-control") && support::exists("/dev/fuse");
    if !can {
        println!("skipped: it needs root, /dev/fuse and /dev/loop-control");
        return;
    }
    let place = Place::new();
    let daemon = place.daemon();
    let device = volume(&place, "loop");
    place.must(&["stream", "rule", "add", "--process", "dd", "--class", "backup"]);
    // The observer takes notice within a second.
    std::thread::sleep(Duration::from_secs(2));
    let unseen = place.json(&["stream", "rule", "list"])["unseen"].clone();
    if unseen.as_array().is_some_and(|unseen| !unseen.is_empty()) {
        println!("skipped: {unseen}");
        daemon.stop();
        return;
    }
    let read = |round: u64| {
        for part in 0..8 {
            let skip = format!("skip={}", ((round * 8 + part) * 7919 + 11) % 16_000);
            let source = format!("if={device}");
            let done = Command::new("dd").args([&source, "of=/dev/null", "bs=4096", "count=1", &skip, "iflag=direct"]).output();
            assert!(done.expect("it is everywhere").status.success());
        }
    };
    let read_bytes = until_listed(&place, "backup", "process dd", read);
    assert!(read_bytes >= BLOCK_BYTES, "{read_bytes}");
    let streams = place.json(&["stream", "list", "v"]);
    let of_class = |class: &str| {
        let of = streams.as_array().expect("a list").iter().filter(|line| line["class"] == class);
        of.map(|line| line["read_bytes"].as_u64().expect("a number")).sum::<u64>()
    };
    println!("{} bytes by the rule, {} as the application's", of_class("backup"), of_class("application"));
    daemon.stop();
}

#[test]
fn what_is_no_rule_is_refused() {
    let place = Place::new();
    let daemon = place.daemon();
    place.must_fail(&["stream", "rule", "add", "--process", "x", "--class", "log"], 2, "write application, scan, backup");
    place.must_fail(&["stream", "rule", "add", "--process", "*", "--class", "scan"], 2, "--process matches nothing, or everything");
    for (option, name) in [("--client", "300.1.1.1"), ("--client", "uid:x"), ("--cgroup", "relative")] {
        place.must_fail(&["stream", "rule", "add", option, name, "--class", "scan"], 2, &format!("{option} is \"{name}\", which no c"));
    }
    let list = place.must(&["stream", "rule", "list"]);
    assert!(list.contains("On volumes those for processes are not asked yet"), "{list}");
    place.must_fail(&["stream", "rule", "add", "--class", "scan"], 2, "--process");
    place.must_fail(&["stream", "rule", "add", "--process", "x", "--cgroup", "/y", "--class", "scan"], 2, "cannot be given together with");
    place.must_fail(
        &["stream", "rule", "remove", "7"],
        1,
        "cannot change the rules for streams: there is no stream rule \"7\"; list the stream rules with `hearth stream rule list`",
    );
    place.must(&["stream", "rule", "add", "--cgroup", "/system.slice/backup.service", "--class", "backup"]);
    place.must_fail(&["stream", "rule", "add", "--cgroup", "/system.slice/backup.service", "--class", "scan"], 1, "remove 1");
    daemon.stop();
}
