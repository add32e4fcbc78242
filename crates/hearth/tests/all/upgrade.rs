//! A pool with a log becomes one with slots, with the real binary: warm, with dirty data, and whenever the daemon is killed.

use crate::slots::{MIB, check, data, write_much};
use crate::support::nbd::Client;
use crate::support::{Place, wait_for, wait_until};
use std::process::Stdio;

/// A pool with a log that is full, with dirty data; gives the volume's address and what was written.
fn full(place: &Place, content: &str) -> (String, std::collections::BTreeMap<u64, u64>) {
    let (ssd, disk) = (place.path("ssd.img"), place.file("disk.img", 128 * MIB));
    place.must(&["pool", "create", "p", "--ssd", &ssd, "--size", "64MiB", "--ram", "0", "--layout", "log", "--content", content]);
    let options = ["--mode", "write-back", "--admission", "always", "--export", "nbd"];
    let uri = place.must(&[&["volume", "add", "v", "--backing", &disk, "--pool", "p"][..], &options].concat());
    let mut written = write_much(&mut Client::connect(uri.trim()), 0..6);
    place.must(&["volume", "destage", "v"]);
    let mut client = Client::connect(uri.trim());
    for step in 0..200 {
        let offset = step * 7919 % 4096 * (16 << 10);
        client.write(offset, &data(offset, 9)).expect("a write");
        written.insert(offset, 9);
    }
    client.flush();
    (uri.trim().to_string(), written)
}

fn layout(place: &Place) -> String {
    place.json(&["pool", "show", "p"])["layout"].as_str().expect("it has one").to_string()
}

/// Upgrades, once no client is there any more.
fn upgrade(place: &Place) -> String {
    wait_for("the clients to be gone", || {
        let ended = place.run(&["pool", "upgrade", "p"]);
        assert!(ended.status == Some(0) || ended.stderr.contains("in use"), "{ended:?}");
        (ended.status == Some(0)).then_some(ended.stdout)
    })
}

#[test]
fn a_full_log_becomes_slots_and_stays_warm() {
    for content in ["off", "auto"] {
        let place = Place::new();
        let daemon = place.daemon();
        let (uri, written) = full(&place, content);
        let cached = |place: &Place| place.json(&["stats", "v"])["cached_bytes"].as_u64().expect("it is counted");
        let before = cached(&place);
        assert!(before > 20 * MIB, "{before} bytes are cached");
        let told = place.must(&["pool", "upgrade", "p", "--check"]);
        assert!(told.contains("can become slots"), "{told}");
        let told = upgrade(&place);
        assert!(told.contains("in slots now") && layout(&place) == "slots", "{told}");
        let after = cached(&place);
        println!("{content}: {before} bytes were cached, {after} are");
        assert!(after * 10 >= before * if content == "off" { 9 } else { 4 }, "{content}: {after} of {before} bytes are cached");
        place.must_fail(&["pool", "upgrade", "p"], 1, "lie in slots already");
        check(&uri, &written);
        daemon.kill();
        let daemon = place.daemon();
        assert_eq!(layout(&place), "slots");
        check(&uri, &written);
        place.must(&["volume", "remove", "v"]);
        daemon.stop();
        let checked = place.must(&["pool", "check", &place.path("ssd.img")]);
        assert!(checked.contains("no problems"), "{checked}");
    }
}

#[test]
fn a_daemon_that_is_killed_while_it_upgrades_leaves_the_one_or_the_other() {
    let place = Place::new();
    let mut daemon = place.daemon();
    let (uri, written) = full(&place, "auto");
    for round in 0..8_u64 {
        let mut upgrade = place.command(&["pool", "upgrade", "p"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs");
        wait_until("the upgrade to begin or to be refused", || {
            upgrade.try_wait().expect("it can be asked").is_some() || place.run(&["job", "list"]).stdout.contains("upgrade")
        });
        // After more questions each time, until one comes to its end.
        (0..round * 4).for_each(|_| drop(place.run(&["pool", "list"])));
        daemon.kill();
        upgrade.wait().expect("it ends with the daemon");
        daemon = place.daemon();
        let now = layout(&place);
        println!("round {round}: {now}");
        check(&uri, &written);
        if now == "slots" {
            break;
        }
    }
    if layout(&place) == "log" {
        upgrade(&place);
    }
    check(&uri, &written);
    place.must(&["volume", "remove", "v"]);
    daemon.stop();
}
