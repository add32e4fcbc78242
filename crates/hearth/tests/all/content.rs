//! What blocks contain: chosen at a pool's creation, changed while it runs, told by its counters, and stored so that every restart finds it.

use crate::support::nbd::Client;
use crate::support::{Daemon, Place};

const DISK_BYTES: u64 = 32 << 20;
const BLOCK_BYTES: usize = 4096;
const BLOCKS: u64 = 1000;

/// A pool `p` and a write-back volume `v` over `disk.img`; gives the daemon and the volume's URI.
fn with_volume(place: &Place, create: &[&str]) -> (Daemon, String) {
    let daemon = place.daemon();
    place.must(&[&["pool", "create", "p", "--ssd", "ssd.img", "--size", "128MiB", "--ram", "8MiB"], create].concat());
    place.file("disk.img", DISK_BYTES);
    let options = ["--mode", "write-back", "--admission", "always", "--export", "nbd", "--write-cache-depth", "24h"];
    let uri = place.must(&[&["volume", "add", "v", "--backing", "disk.img", "--pool", "p"][..], &options].concat()).trim().to_string();
    (daemon, uri)
}

/// Numbers without order.
fn noise(seed: u64) -> impl Iterator<Item = u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    })
}

/// A block as programs write them: of every eight, one of zeroes, three equal to others, two near to others, one half text, one that
/// cannot be compressed.
fn block(number: u64, version: u64) -> Vec<u8> {
    let kind = number % 8;
    let mut bytes: Vec<u8> = match kind {
        0 => vec![0; BLOCK_BYTES],
        1..=3 => noise(number % 40 + 1).take(BLOCK_BYTES).collect(),
        4 | 5 => noise(number % 20 + 1000).take(BLOCK_BYTES).collect(),
        6 => noise(number + 2000).take(BLOCK_BYTES / 2).chain((0..BLOCK_BYTES / 2).map(|at| b"content "[at % 8])).collect(),
        _ => noise(number + 4000).take(BLOCK_BYTES).collect(),
    };
    if kind >= 4 {
        // What makes it another one than those it is near to.
        let at = (number * 97 % 4000) as usize;
        bytes[at..at + 16].copy_from_slice(&[number.to_le_bytes(), version.to_le_bytes()].concat());
    }
    bytes
}

fn write_all(uri: &str, version: u64) {
    let mut client = Client::connect(uri);
    (0..BLOCKS).for_each(|n| client.write(n * BLOCK_BYTES as u64, &block(n, version)).expect("a write"));
    client.flush();
}

fn check_all(uri: &str, version: u64, case: &str) {
    let mut client = Client::connect(uri);
    (0..BLOCKS).for_each(|n| assert!(client.read(n * BLOCK_BYTES as u64, BLOCK_BYTES) == block(n, version), "{case}: block {n}"));
}

fn stats(place: &Place) -> serde_json::Value {
    place.json(&["stats", "p"])["content"].clone()
}

fn count(of: &serde_json::Value, key: &str) -> u64 {
    of[key].as_u64().unwrap_or_else(|| panic!("no {key} in {of}"))
}

#[test]
fn blocks_take_less_than_they_hold_and_survive_every_restart() {
    for (level, crash) in [("auto", false), ("fast", true), ("dense", false)] {
        let place = Place::new();
        let (daemon, uri) = with_volume(&place, &["--content", level]);
        assert_eq!(place.json(&["pool", "show", "p"])["content"], level);
        write_all(&uri, 1);
        check_all(&uri, 1, level);
        let told = stats(&place);
        let effective = told["effective_capacity"].as_f64().expect("blocks are cached");
        assert!(told["level"] == level && effective > 1.5, "{level}: {told}");
        let kinds = ["reference_blocks", "associated_blocks", "independent_blocks", "zero_blocks"].map(|key| count(&told, key));
        assert!(kinds.iter().all(|blocks| *blocks > 10) && kinds.iter().sum::<u64>() >= BLOCKS, "{level}: {told}");
        assert_eq!(kinds.iter().sum::<u64>() * 4096, count(&told, "cached_bytes"), "{level}: every cached block is of one kind: {told}");
        for key in ["saved_bytes", "encoded_blocks", "bases_in_memory_blocks", "index_bytes", "hint_bytes", "cached_bytes", "stored_bytes"]
        {
            assert!(count(&told, key) > 0, "{level}: {key}: {told}");
        }
        assert!(told["encoding_cpu_us_per_block"].as_f64().is_some_and(|us| us > 0.0) && told["memory_bytes_per_block"].is_f64(), "{told}");
        let text = place.must(&["pool", "show", "p"]);
        let reason = if level == "auto" { "v: lz4 open: saves ".to_string() } else { format!("open: set by --content {level}") };
        assert!(text.contains(" x of raw (") && text.contains(&reason), "{text}");
        assert!(place.must(&["stats"]).contains(&format!("pool p, content {level}: ")), "{level}");

        if crash {
            daemon.kill()
        } else {
            daemon.stop()
        }
        let daemon = place.daemon();
        let pool = place.json(&["pool", "show", "p"]);
        let recovery = pool["recovery"].to_string();
        assert!(crash || recovery.contains("which was complete"), "{level}: {recovery}");
        check_all(&uri, 1, &format!("{level}, after a restart"));
        let again = stats(&place);
        let effective = again["effective_capacity"].as_f64().expect("blocks are cached");
        assert!(pool["content"] == level && effective > 1.5, "{level}: {again}");

        // On top of what was found, and home from there.
        write_all(&uri, 2);
        daemon.kill();
        let daemon = place.daemon();
        check_all(&uri, 2, &format!("{level}, after a kill"));
        place.must(&["volume", "remove", "v"]);
        let home = std::fs::read(place.path("disk.img")).expect("it is there");
        (0..BLOCKS).zip(home.chunks(BLOCK_BYTES)).for_each(|(n, found)| assert!(found == block(n, 2), "{level}: block {n} is not at home"));
        daemon.stop();
        place.must(&["pool", "check", "./ssd.img"]);
    }
}

#[test]
fn the_level_changes_while_clients_write_and_is_kept() {
    let place = Place::new();
    let (daemon, uri) = with_volume(&place, &["--content", "off"]);
    write_all(&uri, 1);
    assert!(stats(&place).is_null(), "{}", stats(&place));
    let text = place.must(&["pool", "show", "p"]);
    assert!(text.contains("content:") && !text.contains("of raw"), "{text}");
    let writer = std::thread::spawn({
        let uri = uri.clone();
        move || (2..5).for_each(|version| write_all(&uri, version))
    });
    let mut was = "off";
    for level in ["auto", "dense", "off", "fast", "auto"] {
        let set = || place.must(&["pool", "set", "p", "--content", level]);
        assert_eq!(set(), format!("pool p: content {level} (was {was})\n"));
        assert_eq!(set(), format!("pool p unchanged: content is already {level}\n"));
        was = level;
        assert_eq!(place.json(&["pool", "show", "p"])["content"], level);
    }
    writer.join().expect("the writer saw no error");
    write_all(&uri, 5);
    check_all(&uri, 5, "after the changes");
    assert!(stats(&place)["effective_capacity"].as_f64().is_some_and(|factor| factor > 1.5), "{}", stats(&place));
    daemon.stop();
    let daemon = place.daemon();
    assert_eq!(stats(&place)["level"], "auto");
    place.must(&["pool", "set", "p", "--content", "off"]);
    check_all(&uri, 5, "off, and still stored in other forms");
    let left = stats(&place);
    assert!(left["level"] == "off" && left["effective_capacity"].as_f64().is_some_and(|factor| factor > 1.5), "{left}");
    daemon.stop();
}
