//! Each write to the SSD says what it is, truly: SSDs with write streams keep apart what differs.

use crate::support::alone::{Rig, SECOND_NS, noise, text};
use engine::api::{Op, WriteKind};
use page::PageVec;
use std::collections::BTreeMap;
use types::Content;

/// How many pages of each kind were written. Those of the ring, and those that hold these blocks of a client, say so, and no others.
fn pages_by_kind(rig: &Rig, of_clients: fn(u64) -> [u8; 4096], blocks: std::ops::Range<u64>) -> BTreeMap<&'static str, usize> {
    let place = &rig.shard.config().place;
    let (ring_first, ring_end) = (u64::from(place.ring_first), u64::from(place.ring_first + place.layout.ring_pages));
    let ring = ring_first..ring_end;
    let in_ring = |offset_bytes: u64| ring.contains(&((offset_bytes - place.layout.segments_at_bytes()) / 4096));
    let written: Vec<[u8; 4096]> = blocks.map(of_clients).collect();
    let mut count = BTreeMap::new();
    for (kind, offset_bytes, page) in &rig.ssd_writes {
        let is_block = written.contains(page);
        let name = match kind {
            WriteKind::Ring => "ring",
            WriteKind::Packed => "packed",
            WriteKind::Clients => "clients",
            WriteKind::Fills => "fills",
            WriteKind::Other => panic!("a write at {offset_bytes} that is nothing"),
        };
        assert_eq!(in_ring(*offset_bytes), *kind == WriteKind::Ring, "{kind:?} at {offset_bytes}");
        assert_eq!(is_block, *kind == WriteKind::Clients, "{kind:?} at {offset_bytes}");
        *count.entry(name).or_default() += 1;
    }
    count
}

#[test]
fn blocks_of_clients_fills_and_statements_are_told_apart() {
    let mut rig = Rig::new(Content::Off);
    rig.shard.keep_writes_apart();
    // What is on the backing device of blocks that are read.
    for block in 100..164_u64 {
        rig.backing[block as usize * 4096..][..4096].copy_from_slice(&noise(1000 + block));
    }
    for round in 0..64 {
        rig.write(round, &[noise(round)]);
        rig.request(Op::Read, 100 + round, PageVec::new());
    }
    rig.pass(10 * SECOND_NS);
    let count = pages_by_kind(&rig, noise, 0..64);
    assert_eq!(count["clients"], 64);
    assert!(count["fills"] > 32 && count["ring"] > 0 && !count.contains_key("packed"), "{count:?}");
}

#[test]
fn packed_blocks_are_told_apart_whoever_wrote_them() {
    let mut rig = Rig::new(Content::Fast);
    rig.shard.keep_writes_apart();
    for first in (0..64).step_by(8) {
        let contents: Vec<[u8; 4096]> = (first..first + 8).map(text).collect();
        rig.write(first, &contents);
    }
    // What is not smaller by enough is stored as it is.
    let count = pages_by_kind(&rig, text, 0..64);
    assert!(count["packed"] > 0 && count["ring"] > 0 && !count.contains_key("fills"), "{count:?}");
}
