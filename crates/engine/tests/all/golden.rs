//! Promise: a pool of an older format version is recovered to the same blocks by every release.
//!
//! The image is the format crate's (its `tests/all/golden.rs` says how it is stored and what is in it): a sealed segment of a past session, a
//! sealed and an open segment of the session that crashed, and a last group whose payload never arrived.

use crate::support::disk::Disk;
use engine::inspect::inspect;
use engine::recovery::{RecoveredItem, recover};
use engine::store::slots;
use engine::superblock;
use format::Encoding;
use format::checkpoint::LogEnd;
use format::slots::Set;
use types::{ShardIndex, VolumeId};

const GOLDEN: [&[u8]; 3] = [
    include_bytes!("../../../format/tests/golden/v1.pages"),
    include_bytes!("../../../format/tests/golden/v2.pages"),
    include_bytes!("../../../format/tests/golden/v3.pages"),
];

pub fn golden_disk(golden: &[u8]) -> Disk {
    let mut disk = Disk::new(8 << 20);
    let mut rest = golden;
    while let Some((number, after)) = rest.split_first_chunk::<8>() {
        let (length, after) = after.split_first_chunk::<2>().expect("a length");
        let (bytes, after) = after.split_at(usize::from(u16::from_le_bytes(*length)));
        disk.rot(u64::from_le_bytes(*number) * 4096, |page| page[..bytes.len()].copy_from_slice(bytes));
        rest = after;
    }
    disk
}

#[test]
fn all_versions_are_recovered() {
    GOLDEN.into_iter().for_each(recovered);
}

fn recovered(golden: &[u8]) {
    let mut disk = golden_disk(golden);
    let mut pool = superblock::load(&mut disk).expect("loads");
    assert_eq!((pool.superblock.generation, pool.superblock.session), (5, 2));
    let mut blocks = Vec::new();
    let mut give = |item: RecoveredItem| {
        let RecoveredItem::Block(record) = item else { panic!("there is no base") };
        assert_eq!(record.stored, None);
        blocks.push((record.volume, record.block, record.segment_seq, record.ordinal, record.dirty, record.mask));
    };
    let recovered = recover(&mut disk, &mut pool, ShardIndex(0), false, &mut give).expect("recovers");
    // Volume 3 was removed; block 5 of volume 2 was invalidated; block 7 came home; the note on block 9 was about an older version.
    let expected = [
        (VolumeId(1), 7, 1, 1, false, 0xff),
        (VolumeId(2), (1 << 34) - 1, 1, 2, false, 0xff),
        (VolumeId(1), 8, 1, 4, true, 0x0f),
        (VolumeId(1), 9, 2, 3, true, 0xff),
        (VolumeId(1), 10, 3, 1, true, 0x80),
    ];
    assert_eq!(blocks, expected);
    assert_eq!(recovered.end, LogEnd { next_seq: 4, next_group: 6, tail_seq: 1 });
    let report = recovered.report;
    assert_eq!((report.damaged_places, report.discarded_groups, report.footers_written), (0, 1, 1));
    assert_eq!((report.sealed_segments, report.segments, report.dirty_blocks, report.clean_blocks), (2, 3, 3, 2));
}

#[test]
fn all_versions_are_inspected() {
    GOLDEN.into_iter().for_each(inspected);
}

fn inspected(golden: &[u8]) {
    let inspection = inspect(&mut golden_disk(golden), &mut |_, _| {});
    // Its only flaw: a volume that was marked as damaged.
    assert_eq!(inspection.problems.len(), 1, "{:?}", inspection.problems);
    assert_eq!((inspection.shards[0].headers, inspection.shards[0].footers, inspection.shards[0].payloads), (5, 2, 5));
}

/// The pool in slots of `golden/v4.pages` (see the format crate's `golden_slots.rs`).
#[test]
fn slots_of_version_4_are_recovered() {
    let mut disk = golden_disk(include_bytes!("../../../format/tests/golden/v4.pages"));
    let pool = superblock::load(&mut disk).expect("loads");
    assert_eq!((pool.superblock.generation, pool.superblock.epoch), (9, 3));
    let inspection = inspect(&mut disk, &mut |_, _| {});
    assert_eq!(inspection.problems, Vec::<String>::new());
    let first_slot = pool.superblock.layout.ring_pages;
    let recovered = |disk: &mut Disk, shard| {
        let mut found = Vec::new();
        let mut sink = |set: &Set| {
            let place = set.stored.map(|stored| (stored.encoding, stored.unit));
            found.push((set.slot - first_slot, place, set.volume.0, set.block, set.dirty, set.mask));
        };
        let session = pool.next_session();
        let recovered = slots::recovery::recover(disk, &pool.superblock, ShardIndex(shard), session, false, &mut sink).expect("recovers");
        found.sort_unstable_by_key(|(slot, place, ..)| (*slot, place.map(|(_, unit)| unit)));
        (found, recovered)
    };
    // Block 9 of volume 2 went with its shelf, 10 and 23 one by one; 8 and 11 came home; the last version of 7 never arrived.
    let expected = vec![
        (0, None, 2, 5, false, 0xff),
        (2, None, 1, 8, false, 0x0f),
        (4, Some((Encoding::Zstd, 0)), 0, 0, false, 0xff),
        (4, Some((Encoding::Diff, 44)), 1, 21, true, 0xff),
        (4, Some((Encoding::Duplicate, 52)), 1, 22, true, 0xff),
        (4, Some((Encoding::Lz4, 60)), 2, 24, false, 0xff),
        (6, Some((Encoding::Raw, 0)), 2, 25, false, 0xff),
        (8, None, 1, 7, true, 0xff),
        (11, None, 1, 11, false, 0xff),
    ];
    let (found, (end, report)) = recovered(&mut disk, 0);
    assert_eq!(found, expected);
    assert_eq!((report.damaged_places, report.discarded_groups, report.dirty_blocks, report.clean_blocks), (0, 1, 3, 5));
    assert_eq!((end.next_seq, end.tail_seq), (35, 35), "all is stated again behind the last page");
    let (found, (_, report)) = recovered(&mut disk, 1);
    assert_eq!(found, [(3, None, 1, 1 << 33, true, 0xff), (4, None, 2, 300, false, 0xff)]);
    assert_eq!(report.discarded_groups, 0);
}
