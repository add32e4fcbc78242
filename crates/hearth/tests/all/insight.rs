//! `hearth advise` and `hearth analysis` on a daemon under a real client.

use crate::support::nbd::Client;
use crate::support::{Place, wait_until};
use std::time::{Duration, Instant};

const BLOCK_BYTES: usize = 4096;

/// Random numbers that are the same each time.
fn mixed(n: u64) -> u64 {
    let x = (n ^ 0x5eed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (x ^ (x >> 31)).wrapping_mul(0xc4ce_b9fe_1a85_ec53) >> 20
}

#[test]
fn a_load_is_told_what_it_needs_when_that_is_known() {
    let place = Place::new();
    let daemon = place.daemon();
    let nothing = place.must(&["advise"]);
    assert!(nothing.starts_with("nothing is watched"), "{nothing}");
    place.must(&["pool", "create", "p", "--ssd", "ssd.img", "--size", "64MiB", "--ram", "0", "--content", "off"]);
    place.file("disk.img", 1 << 30);
    let uri = place.must(&["volume", "add", "v", "--backing", "disk.img", "--pool", "p", "--export", "nbd"]).trim().to_string();
    let mut client = Client::connect(&uri);
    // It begins within a second of the volume's start.
    wait_until("the volume's watch", || {
        client.read(0, BLOCK_BYTES);
        let list = place.json(&["analysis", "list"]);
        list.as_array().is_some_and(|list| list.first().is_some_and(|view| view["read_bytes"].as_u64() > Some(0)))
    });
    let early = place.json(&["advise", "v"]);
    let target = &early[0]["targets"][1];
    assert!(target["ssd_bytes"].is_null() && target["not_yet"].as_str().is_some_and(|why| why.contains("of 20000 reads")), "{early:#}");
    let told = place.must(&["advise", "v"]);
    assert!(told.contains("50 %, 90 %, 99 %: not yet: "), "{told}");

    // 16 MiB of blocks in a random order, for longer than a slice of the window.
    let (begun, mut reads) = (Instant::now(), 0_u64);
    while begun.elapsed() < Duration::from_secs(25) || reads < 60_000 {
        client.read(mixed(reads) % 4096 * BLOCK_BYTES as u64, BLOCK_BYTES);
        reads += 1;
    }
    let mut advice = serde_json::Value::Null;
    wait_until("advice", || {
        advice = place.json(&["advise", "v"])[0].clone();
        advice["targets"][1]["ssd_bytes"].as_u64().is_some()
    });
    let bytes = |key: &str| advice["targets"][1][key].as_u64().expect("a size");
    let (low, size, high) = (bytes("ssd_bytes_low"), bytes("ssd_bytes"), bytes("ssd_bytes_high"));
    assert!(low < size && size < high && (12 << 20..40 << 20).contains(&size), "{advice:#}");
    assert!(advice["now"]["hits_percent"].as_f64() > Some(90.0), "64 MiB hold all of it: {advice:#}");
    let table = place.must(&["advise", "p", "--target", "90"]);
    assert!(table.contains("SSD NEEDED") && table.contains("You have 64 MiB: "), "{table}");
    let list = place.must(&["analysis", "list"]);
    assert!(list.contains("the volume") && list.contains("watching"), "{list}");

    // Applied, what is read again is in the cache before it is asked for.
    place.must(&["volume", "drop-cache", "v"]);
    let id = advice["id"].to_string();
    let plan = place.must(&["advise", "apply", &id, "--dry-run"]);
    assert!(plan.contains("16 MiB in 1 piece of v enter the cache") && plan.contains("nothing was changed"), "{plan}");
    assert!(place.must(&["advise", "apply", &id, "--no-preload"]).starts_with("nothing is to be changed"));
    assert_eq!(place.json(&["stats", "v"])["cached_bytes"], 0);
    let done = place.must(&["advise", "apply", &id]);
    assert!(done.contains("16 MiB in 1 piece") && done.contains("preload of v done: 16 MiB"), "{done}");
    let misses = || place.json(&["stats", "v"])["read_misses"].as_u64().expect("a number");
    let before = misses();
    (0..2000).for_each(|n| drop(client.read(mixed(n) % 4096 * BLOCK_BYTES as u64, BLOCK_BYTES)));
    assert_eq!(misses(), before, "it was read into the cache before");
    daemon.stop();
}

/// What is read before and after the restart is one window.
#[test]
fn what_was_learned_outlives_the_daemon() {
    let place = Place::new();
    let daemon = place.daemon();
    place.must(&["pool", "create", "p", "--ssd", "ssd.img", "--size", "64MiB", "--ram", "0", "--content", "off"]);
    place.file("disk.img", 1 << 30);
    let add = ["volume", "add", "v", "--backing", "disk.img", "--pool", "p", "--export", "nbd"];
    let uri = place.must(&add).trim().to_string();
    wait_until("the volume's watch", || place.json(&["analysis", "list"])[0]["name"] == "v");
    place.must(&["analysis", "start", "week", "--volume", "v", "--for", "7d"]);
    let told = |name: &str| place.json(&["analysis", "show", name])["read_bytes"].as_u64().expect("a number") / BLOCK_BYTES as u64;
    let mut number = 0;
    let mut read = |client: &mut Client| {
        number += 1;
        client.read(mixed(number) % 4096 * BLOCK_BYTES as u64, BLOCK_BYTES);
    };
    let mut client = Client::connect(&uri);
    wait_until("the first step of the analysis", || {
        read(&mut client);
        told("week") > 0
    });
    drop(client);
    let mut read_on = || {
        let before = ["v", "week"].map(told);
        let (mut client, begun, mut reads) = (Client::connect(&uri), Instant::now(), 0);
        while begun.elapsed() < Duration::from_secs(13) || reads < 25_000 {
            read(&mut client);
            reads += 1;
        }
        // What was read last is told a second later.
        wait_until("the last reads", || ["v", "week"].map(told).iter().zip(before).all(|(told, before)| *told >= before + reads * 9 / 10));
    };
    read_on();
    let before = ["v", "week"].map(|name| place.json(&["analysis", "show", name]));
    assert!(before.iter().all(|view| view["away_ms"] == 0 && view["since_unix_s"].is_u64()), "{before:#?}");
    daemon.stop();
    std::thread::sleep(Duration::from_secs(3));

    let daemon = place.daemon();
    wait_until("the volume's watch", || place.json(&["analysis", "list"]).as_array().is_some_and(|list| list.len() == 2));
    read_on();
    for (name, before) in ["v", "week"].into_iter().zip(&before) {
        let after = place.json(&["analysis", "show", name]);
        assert_eq!((&after["state"], &after["since_unix_s"]), (&before["state"], &before["since_unix_s"]), "{after:#}");
        let grown = |key: &str| after[key].as_u64().expect("a number") - before[key].as_u64().expect("a number");
        assert!(grown("window_ms") >= 12_000 && after["away_ms"].as_u64() >= Some(2000), "{before:#} {after:#}");
        assert!(grown("read_bytes") >= 20_000 * BLOCK_BYTES as u64, "{before:#} {after:#}");
        let told = place.must(&["analysis", "show", name]);
        assert!(told.contains(" s in which hearth did not watch it"), "{told}");
        // On a busy machine more must be read until the size is known.
        let mut client = Client::connect(&uri);
        wait_until("advice", || {
            (0..500).for_each(|_| read(&mut client));
            place.json(&["advise", name])[0]["targets"][1]["ssd_bytes"].as_u64().is_some()
        });
    }

    // Killed, it has what was saved last.
    daemon.kill();
    let daemon = place.daemon();
    let kept = place.json(&["analysis", "show", "week"]);
    assert!(kept["state"] == "watching" && kept["read_bytes"].as_u64() >= before[1]["read_bytes"].as_u64(), "{kept:#}");
    let files = || {
        let entries = std::fs::read_dir(place.path("state/insight")).expect("it is there");
        entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("text")).collect::<Vec<_>>()
    };
    assert_eq!(files().len(), 2, "{:?}", files());
    place.must(&["analysis", "forget", "week"]);
    place.must(&["volume", "remove", "v"]);
    wait_until("the end of the files", || files().is_empty());
    // Another volume of that name begins anew.
    place.must(&add);
    wait_until("the volume's watch", || place.json(&["analysis", "list"])[0]["name"] == "v");
    assert_eq!(place.json(&["analysis", "show", "v"])["read_bytes"], 0);
    place.must(&["analysis", "start", "week", "--volume", "v"]);
    daemon.stop();
    std::fs::write(place.path("state/insight/analysis-week.watch"), "not a watch").expect("room");
    let daemon = place.daemon();
    place.must_fail(&["analysis", "show", "week"], 1, "there is no analysis");
    assert!(daemon.log().contains("cannot be read (it does not begin as such a file does): start it again"), "{}", daemon.log());
    daemon.stop();
}

#[test]
fn what_cannot_be_watched_is_said() {
    let place = Place::new();
    let daemon = place.daemon();
    place.file("disk.img", 1 << 20);
    let refused = |arguments: &[&str], parts: &[&str]| {
        let ended = place.run(arguments);
        assert_ne!(ended.status, Some(0), "{arguments:?}");
        for part in parts {
            assert!(ended.stderr.contains(part), "{part:?} is not in {}", ended.stderr);
        }
    };
    refused(&["advise", "none"], &["there is no", "\"none\""]);
    refused(&["advise", "--target", "100"], &["--target is 100", "below 100"]);
    refused(&["analysis", "start", "a", "--volume", "none"], &["there is no volume \"none\""]);
    refused(&["analysis", "start", "a", "--device", "disk.img"], &["it is not a block device", "hearth devices"]);
    refused(&["analysis", "start", "a", "--device", "nowhere"], &["cannot be looked at", "check the path"]);
    refused(&["analysis", "start", "a", "--trace", "nowhere.csv"], &["cannot be looked at"]);
    refused(&["analysis", "start", "a"], &["--volume"]);
    refused(&["analysis", "show", "a"], &["there is no analysis \"a\"", "hearth analysis list"]);
    refused(&["analysis", "stop", "a"], &["there is no analysis \"a\""]);
    refused(&["analysis", "start", "a", "--trace", "disk.img"], &["unknown format", "give it the ending"]);
    std::fs::write(place.path("bad.csv"), "1,R,0\n").expect("room");
    refused(&["analysis", "start", "a", "--trace", "bad.csv"], &["line 1 is not valid", "correct that"]);
    // What is wrong far inside fails as an analysis, and says so.
    std::fs::write(place.path("late.csv"), "1,R,0,4096\n".repeat(10_000) + "hello\n").expect("room");
    place.must(&["analysis", "start", "a", "--trace", "late.csv"]);
    wait_until("the end of the reading", || place.json(&["analysis", "show", "a"])["state"] != "reading");
    let view = place.json(&["analysis", "show", "a"]);
    assert!(view["state"] == "failed" && view["problem"].as_str().is_some_and(|problem| !problem.is_empty()), "{view:#}");
    refused(&["analysis", "start", "a", "--trace", "late.csv"], &["\"a\" is the name of an analysis"]);
    refused(&["advise", "a"], &["line 10001 is not valid", "`hearth analysis forget a`"]);
    place.must(&["analysis", "forget", "a"]);
    daemon.stop();
}

/// Half of its requests are writes: the RAM tier that a pool would get is counted, as without one what is written through leaves the cache.
#[test]
fn a_recorded_load_is_told_before_there_is_a_pool() {
    let trace = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces/mariadb-sysbench-30-90.csv.zst");
    if !trace.is_file() {
        println!("skipped: {} is not there", trace.display());
        return;
    }
    let place = Place::new();
    let daemon = place.daemon();
    place.must(&["analysis", "start", "a", "--trace", &trace.to_string_lossy()]);
    wait_until("the end of the reading", || place.json(&["analysis", "show", "a"])["state"] != "reading");
    let advice = place.json(&["advise", "a"])[0].clone();
    let bytes = |nth: usize| advice["targets"][nth]["ssd_bytes"].as_u64().unwrap_or_else(|| panic!("{advice:#}"));
    // 417 MiB of different blocks in all, 256 MiB of RAM beside the SSD.
    assert!(bytes(0) == 0 && (32 << 20..200 << 20).contains(&bytes(1)) && (bytes(1)..512 << 20).contains(&bytes(2)), "{advice:#}");
    assert!(place.must(&["advise", "a"]).contains("beside 256 MiB of RAM"));
    daemon.stop();
}

#[test]
fn off_means_off() {
    let place = Place::new();
    std::fs::write(place.path("hearth.toml"), "[insight]\nenabled = false\n").expect("room for a file");
    let daemon = place.start(place.command(&["serve", "--config", &place.path("hearth.toml")]));
    place.must_fail(&["analysis", "start", "a", "--trace", "x.csv"], 1, "insight.enabled is false");
    place.must(&["pool", "create", "p", "--ssd", "ssd.img", "--size", "64MiB", "--ram", "0", "--content", "off"]);
    place.file("disk.img", 64 << 20);
    place.must(&["volume", "add", "v", "--backing", "disk.img", "--pool", "p", "--export", "nbd"]);
    // Whoever asks is told why there is no answer, and how to get one.
    let ask = [
        "advise",
        "advise v",
        "analysis list",
        "analysis show v",
        "stream list",
        "stream list v",
        "app list",
        "app discover v",
        "object list",
    ];
    for words in ask {
        let words: Vec<&str> = words.split(' ').collect();
        place.must_fail(&words, 1, "insight.enabled is false in the configuration; set it to true and restart the daemon");
    }
    let rule = place.must(&["stream", "rule", "add", "--process", "restic", "--class", "backup"]);
    assert!(rule.contains("it holds once loads are watched: set insight.enabled to true"), "{rule}");
    daemon.stop();
}

#[test]
fn what_is_asked_wrongly_is_told_with_what_to_write() {
    let place = Place::new();
    let daemon = place.daemon();
    place.must(&["pool", "create", "p", "--ssd", "ssd.img", "--size", "64MiB", "--ram", "0", "--content", "off"]);
    place.file("disk.img", 64 << 20);
    place.must(&["volume", "add", "v", "--backing", "disk.img", "--pool", "p", "--export", "nbd"]);
    // It is watched at once, and not any more when it is gone.
    place.must(&["advise", "v"]);
    for words in ["advise x", "stream list x"] {
        let words: Vec<&str> = words.split(' ').collect();
        place.must_fail(&words, 1, "there is no volume, pool or analysis \"x\"; list them with `hearth analysis list`");
    }
    place.must_fail(&["analysis", "start", "w"], 2, "<--volume <VOLUME>|--device <PATH>|--trace <FILE>>");
    place.must_fail(&["analysis", "start", "w", "--volume", "v", "--for", "10"], 2, "--for 10 has no unit");
    place.must_fail(&["analysis", "start", "w", "--volume", "v", "--for", "99999h"], 2, "write for instance 30min, 24h or 7d");
    place.must(&["analysis", "start", "w", "--volume", "v", "--for", "7d"]);
    place.must_fail(&["advise", "v", "--target", "-5"], 2, "--target is -5; write a share of hits");
    place.must_fail(&["advise", "v", "--budget", "-5"], 2, "--budget: ");
    place.must_fail(&["object", "list", "--limit", "-5"], 2, "is not a whole number");
    place.must(&["analysis", "forget", "w"]);
    // A trace without times has nothing more to wait for.
    let trace = place.path("flat.csv");
    let lines: String = (0..5000).map(|n| format!("0,R,{},4096\n", n % 50 * 4096)).collect();
    std::fs::write(&trace, format!("time_us,rw,offset_bytes,length_bytes\n{lines}")).expect("room for a file");
    place.must(&["analysis", "start", "flat", "--trace", &trace]);
    wait_until("the end of the reading", || place.json(&["analysis", "show", "flat"])["state"] == "ended");
    let told = place.must(&["advise", "flat"]);
    assert!(told.contains("this trace has no times") && !told.contains(" more\n"), "{told}");

    place.must(&["volume", "remove", "v"]);
    place.must_fail(&["advise", "v"], 1, "there is no volume, pool or analysis \"v\"");
    let list = place.must(&["app", "list"]);
    assert!(list.starts_with("no volume is watched"), "{list}");
    daemon.stop();
}
