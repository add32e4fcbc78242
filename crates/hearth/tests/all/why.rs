//! `hearth why` on a daemon under a real client: what was read once, twice, in large pieces, not at all, or written.

use crate::support::nbd::Client;
use crate::support::{Daemon, Place};

const MIB: u64 = 1 << 20;
const BLOCK_BYTES: usize = 4096;
/// Reads of 16 MiB after which a scan must have been recognised as one, and what is in RAM must have left it.
const SCANS_MAX: u64 = 80;

/// A pool `p` of 64 MiB without RAM and a volume `v` over a file of that size; gives the daemon and the volume's URI.
fn with_volume(place: &Place, size_bytes: u64, options: &[&str]) -> (Daemon, String) {
    let daemon = place.daemon();
    place.must(&["pool", "create", "p", "--ssd", "ssd.img", "--size", "64MiB", "--ram", "0", "--content", "off"]);
    place.file("disk.img", size_bytes);
    let add = ["volume", "add", "v", "--backing", "disk.img", "--pool", "p", "--export", "nbd", "--sequential-cutoff", "off"];
    let uri = place.must(&[&add[..], options].concat()).trim().to_string();
    (daemon, uri)
}

fn why(place: &Place, at: &str) -> serde_json::Value {
    place.json(&["why", "v", at])
}

fn verdict(view: &serde_json::Value) -> String {
    view["verdict"].as_array().expect("a list").iter().filter_map(|sentence| sentence.as_str()).collect::<Vec<_>>().join(" ")
}

#[track_caller]
fn check(place: &Place, at: &str, parts: &[&str]) {
    let view = why(place, at);
    for part in parts {
        assert!(verdict(&view).contains(part), "{part:?} is not in {view:#}");
    }
}

#[test]
fn a_block_read_once_twice_and_by_a_large_request() {
    let place = Place::new();
    let daemon = place.daemon();
    // RAM that is larger than the small part of the cache: what is read but once does not come to the SSD when there is no more room.
    place.must(&["pool", "create", "p", "--ssd", "ssd.img", "--size", "64MiB", "--ram", "16MiB", "--content", "off"]);
    place.file("disk.img", 4096 * MIB);
    let add = ["volume", "add", "v", "--backing", "disk.img", "--pool", "p", "--export", "nbd", "--sequential-cutoff", "off"];
    let uri = place.must(&add).trim().to_string();
    let mut client = Client::connect(&uri);
    check(&place, "0", &["This block is not cached.", "No request has come there that hearth remembers"]);

    // What is read again and again takes the SSD. Then there is room for what proves itself only.
    (0..4).for_each(|_| (0..960).for_each(|piece| drop(client.read(64 * MIB + piece * 65_536, 65_536))));
    let mut scanned_mib = 128;
    let mut scan = |client: &mut Client| {
        (0..256).for_each(|piece| drop(client.read(scanned_mib * MIB + piece * 65_536, 65_536)));
        scanned_mib += 16;
    };
    let turned_away = || place.json(&["stats", "v"])["bypassed"]["first_touch"].as_u64().expect("a counter");
    let scans = (0..SCANS_MAX).take_while(|_| turned_away() == 0).map(|_| scan(&mut client));
    assert!(scans.count() < SCANS_MAX as usize, "nothing is turned away");
    let at = "40KiB";
    client.read(40 << 10, BLOCK_BYTES);
    check(&place, at, &["This block is cached in RAM, not on the SSD."]);
    let mut until = |client: &mut Client, what: &str, is: fn(&serde_json::Value) -> bool| {
        let scans = (0..SCANS_MAX).take_while(|_| !is(&why(&place, at))).map(|_| scan(client));
        assert!(scans.count() < SCANS_MAX as usize, "it is never {what}: {:#}", why(&place, at));
    };
    until(&mut client, "given up", |seen| seen["on_ssd_blocks"] == 0 && verdict(seen).contains("is not cached"));
    check(&place, at, &["This block is not cached.", "with admission second-touch", "--admission always"]);
    let once = why(&place, at);
    let newest = &once["recent"][0];
    assert!(newest["outcome"] == "miss" && newest["reason"] == "first_touch", "{once:#}");
    // Its key is remembered.
    (0..2).for_each(|_| drop(client.read(40 << 10, BLOCK_BYTES)));
    until(&mut client, "kept", |seen| seen["on_ssd_blocks"] == 1 && verdict(seen).contains("is cached on the SSD."));
    check(&place, at, &["This block is cached on the SSD.", "The latest read there", "a hit "]);
    let twice = why(&place, at);
    assert_eq!((twice["on_ssd_blocks"].as_u64(), twice["encodings"]["plain"].as_u64()), (Some(1), Some(1)), "{twice:#}");
    assert!(twice["heat"].as_f64() > Some(0.0), "{twice:#}");
    let text = place.must(&["why", "v", "0-1MiB"]);
    assert!(
        text.contains("1 of 256 blocks (4 KiB of 1 MiB) is cached on the SSD.") && text.contains(&format!("{at}    4KiB  ssd")),
        "{text}"
    );

    client.read(2 * MIB, 131_072);
    check(&place, "2MiB-2176KiB", &["Nothing of this range is cached.", "was larger than --max-io-size (64 KiB)", "--max-io-size SIZE`"]);
    let large = why(&place, "2MiB");
    assert_eq!(large["recent"][0]["reason"], "size", "{large:#}");

    place.must(&["volume", "set", "v", "--mode", "pass-through"]);
    check(&place, "2MiB", &["pass-through mode: nothing enters the cache"]);
    daemon.stop();
}

#[test]
fn what_was_written_is_dirty_until_it_went_home() {
    let place = Place::new();
    let (daemon, uri) = with_volume(&place, 256 * MIB, &["--mode", "write-back", "--write-cache-depth", "24h"]);
    let mut client = Client::connect(&uri);
    (0..16).for_each(|block| client.write(MIB + block * 4096, &[7; BLOCK_BYTES]).expect("a write"));
    let view = why(&place, "1MiB-1088KiB");
    let dirty = view["dirty_blocks"].as_u64().expect("a number");
    // An idle disk is destaged to at once: some may be home already.
    assert!(dirty <= 16 && view["on_ssd_blocks"] == 16, "{view:#}");
    assert_eq!(dirty > 0, view["dirty_since_s"].is_f64(), "{view:#}");
    assert_eq!(dirty > 0, verdict(&view).contains(" dirty, "), "{view:#}");
    place.must(&["volume", "destage", "v"]);
    let home = why(&place, "1MiB-1088KiB");
    assert_eq!((home["dirty_blocks"].as_u64(), home["on_ssd_blocks"].as_u64()), (Some(0), Some(16)), "{home:#}");
    assert!(verdict(&home).contains("All 16 blocks (64 KiB) are cached on the SSD."), "{home:#}");
    daemon.stop();
}

/// The address space in cells, and a whole gibibyte at once, while nothing else happens.
#[test]
fn the_map_counts_what_is_cached() {
    let place = Place::new();
    let (daemon, uri) = with_volume(&place, 256 * MIB, &["--admission", "always"]);
    let mut client = Client::connect(&uri);
    (0..64).for_each(|piece| drop(client.read(8 * MIB + piece * 65_536, 65_536)));
    // Clean blocks gather for a moment before they are written; in the index they are at once.
    let api = api::client::Client::new(std::path::Path::new(&place.path("run/h.sock")));
    let map = |query: &str| api.get::<api::MapView>(&format!("/volumes/v/map?{query}")).expect("a map");
    let whole = map("cells=256");
    assert_eq!((whole.cell_bytes, whole.cached_bytes.len(), whole.counted_part), (MIB, 256, 1.0), "{whole:?}");
    for cell in 0..256 {
        let expected = if (8..12).contains(&cell) { MIB } else { 0 };
        assert_eq!((whole.cached_bytes[cell], whole.dirty_bytes[cell]), (expected, 0), "cell {cell}");
        assert_eq!(whole.heat[cell] > 0.0, expected > 0, "cell {cell}: {}", whole.heat[cell]);
    }
    // A part that is small beside the pool is counted another way, and comes to the same.
    let part = map(&format!("start_bytes={}&end_bytes={}&cells=2", 11 * MIB, 13 * MIB));
    assert_eq!((part.start_bytes, part.cell_bytes, part.cached_bytes), (11 * MIB, MIB, vec![MIB, 0]));
    let all = why(&place, "0-");
    assert_eq!((all["blocks"].as_u64(), all["on_ssd_blocks"].as_u64()), (Some(256 * 256), Some(4 * 256)), "{}", verdict(&all));
    for query in ["cells=0", "cells=x", "cells=1&start_bytes=-1", "cells=1&start_bytes=268435456"] {
        let refused = api.get::<api::MapView>(&format!("/volumes/v/map?{query}"));
        assert!(matches!(refused, Err(api::client::ClientError::Refused(_))), "{query}: {refused:?}");
    }
    daemon.stop();
}

#[test]
fn places_that_are_none_are_refused_with_a_sentence() {
    let place = Place::new();
    let (daemon, _) = with_volume(&place, 256 * MIB, &[]);
    for (at, part) in [("256MiB", "lies beyond the volume"), ("x", "OFFSET"), ("8k-4k", "is empty"), ("0-0", "RANGE")] {
        place.must_fail(&["why", "v", at], 2, part);
    }
    place.must_fail(&["why", "w", "0"], 1, "there is no volume");
    daemon.stop();
}
