//! Discards over a whole device: few large requests to the backing device, whatever its size, nothing of the old data comes back, not after a
//! crash either, and what lies beside stays.

use crate::support::nbd::Client;
use crate::support::{Daemon, Place};

const DISK_BYTES: u64 = 1 << 40;
/// Of one request: NBD's lengths have 32 bits.
const PIECE_BYTES: u64 = 2 << 30;
const PIECES: u64 = DISK_BYTES / PIECE_BYTES;
const BLOCK_BYTES: u64 = 4096;

fn daemon_with(place: &Place, mode: &str) -> (Daemon, String) {
    let daemon = place.daemon();
    place.must(&["pool", "create", "p", "--ssd", "ssd.img", "--size", "256MiB", "--ram", "8MiB"]);
    place.file("disk.img", DISK_BYTES);
    let options = ["--mode", mode, "--admission", "always", "--export", "nbd", "--write-cache-depth", "24h"];
    let uri = place.must(&[&["volume", "add", "v", "--backing", "disk.img", "--pool", "p"][..], &options].concat()).trim().to_string();
    (daemon, uri)
}

/// Blocks all over the device, some of them neighbours, some at the ends of pieces.
fn offsets() -> impl Iterator<Item = u64> {
    let scattered = (0..60).map(|n| n * 7919 * (1 << 20) * 2 % DISK_BYTES);
    let neighbours = (0..60).map(|n| 5 * (1 << 30) + n * BLOCK_BYTES);
    let ends = (1..20).flat_map(|n| [n * PIECE_BYTES - BLOCK_BYTES, n * PIECE_BYTES]);
    scattered.chain(neighbours).chain(ends)
}

fn data(seed: u8) -> Vec<u8> {
    (0..BLOCK_BYTES).map(|at| (at % 241) as u8 ^ seed).collect()
}

#[test]
fn a_discard_of_a_large_device_takes_what_is_cached_with_it() {
    for mode in ["write-back", "write-through"] {
        let place = Place::new();
        let (daemon, uri) = daemon_with(&place, mode);
        let mut client = Client::connect(&uri);
        // The last piece is not discarded.
        let (kept, gone): (Vec<u64>, Vec<u64>) = offsets().partition(|offset| *offset >= DISK_BYTES - PIECE_BYTES);
        let spared = DISK_BYTES - BLOCK_BYTES;
        for offset in kept.iter().chain(&gone).chain([&spared]) {
            client.write(*offset, &data(7)).expect("a write");
        }
        client.flush();
        gone.iter().for_each(|offset| assert!(client.read(*offset, 4096) == data(7), "{mode}: it is cached now"));
        let count = |place: &Place, what: &str| place.json(&["stats", "v"])[what].as_u64().expect("a count");
        let writes = |place: &Place| count(place, "backing_writes") + count(place, "backing_discards");
        let before = writes(&place);
        (0..PIECES - 1).for_each(|piece| client.discard(piece * PIECE_BYTES, PIECE_BYTES as u32));
        let requests = writes(&place) - before;
        assert!(requests <= 2 * PIECES, "{mode}: {requests} requests to the backing device for {PIECES} of the client");
        let check = |client: &mut Client, when: &str| {
            gone.iter().for_each(|offset| assert!(client.read(*offset, 4096) == [0; 4096], "{mode}, {when}: {offset} is there again"));
            kept.iter().chain([&spared]).for_each(|offset| assert!(client.read(*offset, 4096) == data(7), "{mode}, {when}: {offset}"));
        };
        check(&mut client, "after the discard");
        client.flush();
        if mode == "write-back" {
            let dirty = place.json(&["stats", "v"])["dirty_bytes"].as_u64().expect("a size");
            assert!(dirty <= (kept.len() as u64 + 1) * BLOCK_BYTES, "{dirty} bytes are dirty of what was discarded");
        }
        daemon.kill();
        let daemon = place.daemon();
        check(&mut Client::connect(&uri), "after a crash");
        daemon.stop();
    }
}
