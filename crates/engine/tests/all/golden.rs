//! Promise: a pool of an older format version is recovered to the same blocks by every release.
//!
//! The image is the format crate's (its `tests/all/golden.rs` says how it is stored and what is in it): a sealed segment of a past session, a
//! sealed and an open segment of the session that crashed, and a last group whose payload never arrived.

use crate::support::disk::Disk;
use engine::inspect::inspect;
use engine::recovery::{RecoveredItem, recover};
use engine::superblock;
use format::checkpoint::LogEnd;
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
