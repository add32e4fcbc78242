//! Promise: packed records are recovered with what they rest on. An object is where its last record says, whatever became of its block; no
//! dirty block is accepted from an unflushed group if its base is torn; no clean block is given without its base.

use crate::support::disk::Disk;
use crate::support::given::Given;
use crate::support::lives::{SHARD, run_recovery};
use crate::support::packing::{group_bytes, packed, vital};
use crate::support::pool::new_pool;
use engine::inspect::inspect;
use engine::recovery::{RecoveredItem, RecoveryReport, SEGMENTS_FREE_WANTED};
use engine::superblock::PoolState;
use format::checkpoint::LogEnd;
use format::packed::PACKED_ORDINAL;
use format::{Encoding, GroupHead, Layout, Record, RecordKind};
use types::VolumeId;

use Encoding::{Diff, Duplicate, Lz4, Raw, Zero, Zstd};
use RecordKind::{Base, DataClean, DataDirty};

/// A record and its payload.
type New = (Record, Vec<u8>);

/// A log written by hand, each group flushed by itself.
struct Log {
    disk: Disk,
    layout: Layout,
    pool: PoolState,
    seq: u64,
    page: u32,
    group: u64,
    tail_seq: u64,
    /// What the next group calls flushed.
    claims: u64,
    /// Where the groups stand, by number from 1: segment and page.
    places: Vec<(u64, u32)>,
}

/// What recovery found: what it gave, how it ended, what it reported.
struct Found {
    given: Given,
    end: LogEnd,
    next_object: u64,
    report: RecoveryReport,
}

impl Found {
    fn block(&self, volume: u32, block: u64) -> Option<(u64, u32, bool)> {
        self.given.blocks.get(&(volume, block)).map(|record| (record.segment_seq, record.ordinal, record.dirty))
    }

    fn base(&self, object: u64) -> Option<(u64, u32)> {
        self.given.bases.get(&object).map(|base| (base.segment_seq, base.ordinal))
    }
}

impl Log {
    fn new() -> Log {
        let (mut disk, mut pool) = new_pool(77, 1);
        let end = LogEnd { next_seq: 1, next_group: 1, tail_seq: 1 };
        pool.begin_session(&mut disk, &[end], &[]).expect("begins");
        let layout = pool.superblock.layout;
        Log { disk, layout, pool, seq: 1, page: 0, group: 1, tail_seq: 1, claims: 0, places: Vec::new() }
    }

    /// Writes a group; gives its number.
    fn group(&mut self, new: Vec<New>) -> u64 {
        let (mut records, payloads): (Vec<Record>, Vec<Vec<u8>>) = new.into_iter().unzip();
        GroupHead::lay_out(self.page, &mut records);
        let head = GroupHead {
            uuid: self.pool.superblock.uuid,
            session: self.pool.superblock.session,
            shard: SHARD,
            segment_seq: self.seq,
            group: self.group,
            tail_seq: self.tail_seq,
            durable_group: self.claims,
            page: self.page,
        };
        let offset_bytes = self.layout.page_offset(SHARD, self.layout.physical(self.seq), self.page);
        let id = self.disk.submit(offset_bytes, group_bytes(&head, &records, &payloads));
        self.disk.complete(id);
        self.disk.flush_complete();
        self.places.push((self.seq, self.page));
        self.page += GroupHead::pages(&records);
        self.group += 1;
        self.group - 1
    }

    /// Opens the next segment.
    fn segment(&mut self) {
        self.seq += 1;
        self.page = 0;
    }

    /// The first page behind a group's header never arrived.
    fn tear(&mut self, group: u64) {
        self.rot(group, 1);
    }

    fn rot(&mut self, group: u64, page_behind: u32) {
        let (seq, page) = self.places[group as usize - 1];
        let offset_bytes = self.layout.page_offset(SHARD, self.layout.physical(seq), page + page_behind);
        self.disk.rot(offset_bytes, |bytes| bytes.fill(0x55));
    }

    /// What a recovery finds; twice the same.
    fn recover(&self) -> Found {
        let mut disk = self.disk.clone();
        let (_, recovered, items) = run_recovery(&mut disk);
        let (_, again, items_again) = run_recovery(&mut disk);
        let ends = |recovered: &engine::recovery::Recovered| (recovered.end, recovered.next_object);
        assert_eq!((ends(&again), &items_again), (ends(&recovered), &items), "from its own footers it is another log");
        let mut given = Given::default();
        items.into_iter().for_each(|item| given.add(item));
        Found { given, end: recovered.end, next_object: recovered.next_object, report: recovered.report }
    }
}

/// Bytes of a payload that has no room in the header page, so that it can be torn by itself.
const LARGE: usize = 3900;

fn dirty(volume: u32, block: u64, encoding: Encoding, object: u64) -> New {
    packed(DataDirty, (volume, block), encoding, object, &[block as u8; LARGE][..if encoding == Zero { 0 } else { LARGE }])
}

fn clean(volume: u32, block: u64, encoding: Encoding, object: u64) -> New {
    packed(DataClean, (volume, block), encoding, object, &[block as u8; LARGE][..if encoding == Zero { 0 } else { LARGE }])
}

/// An object that was `from`'s, without its address.
fn base(from: &New) -> New {
    (Record { kind: Base, volume: VolumeId(0), block: 0, ..from.0 }, from.1.clone())
}

fn note(volume: u32, block: u64, of_seq: u64, of_ordinal: u32) -> New {
    let kind = RecordKind::CleanNote { of_seq, of_ordinal };
    (Record { kind, volume: VolumeId(volume), block, mask: 0, checksum: 0, slot_page: 0, packed: None }, Vec::new())
}

fn invalidate(volume: u32, block: u64) -> New {
    let (record, payload) = note(volume, block, 0, 0);
    (Record { kind: RecordKind::Invalidate, ..record }, payload)
}

const fn nth(count: u32) -> u32 {
    PACKED_ORDINAL | count
}

#[test]
fn every_encoding_comes_back_as_it_was() {
    let mut log = Log::new();
    let encodings = Encoding::ALL.into_iter().filter(|encoding| *encoding != Encoding::Lost).zip(0..);
    let object = |encoding: Encoding, nth: u64| match encoding {
        Zero => 0,
        encoding if encoding.is_full() => nth + 100,
        _ => 100,
    };
    log.group(encodings.clone().map(|(encoding, nth)| dirty(1, nth, encoding, object(encoding, nth))).collect());
    log.group(encodings.clone().map(|(encoding, nth)| clean(2, nth, encoding, object(encoding, nth + 50))).collect());
    log.group(vec![packed(RecordKind::DataLost, (1, 9), Encoding::Lost, 0, &[])]);
    let found = log.recover();
    assert_eq!(found.given.blocks.len(), 17);
    let lost = found.given.blocks[&(1, 9)];
    assert!(lost.dirty && lost.stored.is_some_and(|stored| stored.encoding == Encoding::Lost));
    for (encoding, number) in encodings {
        for volume in [1, 2] {
            let record = found.given.blocks[&(volume, number)];
            let stored = record.stored.expect("it is packed");
            assert_eq!((record.segment_seq, record.ordinal), (1, nth(number as u32 + (volume - 1) * 8)));
            assert_eq!((stored.encoding, stored.object), (encoding, object(encoding, number + u64::from(volume - 1) * 50)));
            assert_eq!((record.dirty, record.mask), (volume == 1, 0xff));
        }
    }
    assert_eq!((found.next_object, found.report.bases), (158, 0));
}

#[test]
fn the_number_of_the_next_object_is_above_all_that_are_named() {
    let mut log = Log::new();
    log.group(vec![dirty(1, 1, Lz4, 7), dirty(1, 1, Zero, 0), dirty(1, 2, Duplicate, 30)]);
    assert_eq!(log.recover().next_object, 31);
}

#[test]
fn notes_name_packed_records_by_their_ordinals() {
    let mut log = Log::new();
    log.group(vec![dirty(1, 0, Zero, 0), invalidate(1, 9), dirty(1, 1, Lz4, 1)]);
    log.group(vec![dirty(1, 2, Diff, 1), dirty(1, 3, Raw, 2)]);
    log.group(vec![note(1, 1, 1, nth(1)), note(1, 2, 1, nth(3)), note(1, 3, 1, 3), note(1, 0, 1, 0), note(1, 0, 2, nth(0))]);
    // Of blocks 2 and 3 another record is named: the one behind it, and a plain one at the page of its payload.
    let found = log.recover();
    let is_dirty = |block| found.given.blocks[&(1, block)].dirty;
    assert_eq!([is_dirty(0), is_dirty(1), is_dirty(2), is_dirty(3)], [true, false, true, true]);
}

#[test]
fn an_object_outlives_its_block_while_somebody_rests_on_it() {
    let mut log = Log::new();
    log.group(vec![clean(1, 1, Lz4, 1), clean(1, 2, Zstd, 2), clean(1, 3, Raw, 3), clean(1, 4, Raw, 4)]);
    log.group(vec![clean(1, 5, Diff, 1), dirty(1, 6, Duplicate, 3)]);
    // The blocks of all four get other content; nobody rests on objects 2 and 4.
    log.group(vec![dirty(1, 1, Zero, 0), dirty(1, 2, Zero, 0), invalidate(1, 3), invalidate(1, 4)]);
    let found = log.recover();
    assert_eq!((found.base(1), found.base(3), found.given.bases.len()), (Some((1, nth(0))), Some((1, nth(2))), 2));
    assert_eq!((found.report.bases, found.report.forgotten_blocks), (2, 0));
    // Once nobody rests on one any more, it is gone.
    log.group(vec![invalidate(1, 5), dirty(1, 6, Zero, 0)]);
    assert_eq!(log.recover().given.bases.len(), 0);
}

#[test]
fn an_object_that_moved_is_where_its_last_record_stands() {
    let mut log = Log::new();
    let (one, two) = (clean(1, 1, Lz4, 1), clean(1, 2, Raw, 2));
    log.group(vec![one.clone(), two.clone(), dirty(1, 5, Diff, 1), dirty(1, 6, Diff, 2)]);
    log.group(vec![dirty(1, 2, Zero, 0)]);
    log.segment();
    // One moves as a block, two without its address.
    log.group(vec![(vital(one.0), one.1.clone()), (vital(base(&two).0), two.1.clone())]);
    let found = log.recover();
    assert_eq!((found.block(1, 1), found.base(2)), (Some((2, nth(0), false)), Some((2, nth(1)))));
    assert_eq!(found.given.bases.len(), 1);
    // And the base moves again.
    log.segment();
    log.group(vec![(vital(base(&two).0), two.1)]);
    assert_eq!(log.recover().base(2), Some((3, nth(0))));
}

#[test]
fn objects_of_a_removed_volume_are_still_bases() {
    let mut log = Log::new();
    log.group(vec![dirty(9, 1, Lz4, 1), dirty(9, 2, Duplicate, 1), clean(1, 1, Diff, 1), dirty(9, 3, Zstd, 2)]);
    let found = log.recover();
    assert_eq!((found.given.blocks.len(), found.block(1, 1), found.base(1)), (1, Some((1, nth(2), false)), Some((1, nth(0)))));
    assert_eq!(found.given.bases.len(), 1);
}

#[test]
fn without_its_base_a_clean_block_is_forgotten_and_a_dirty_one_kept() {
    let mut log = Log::new();
    log.group(vec![clean(1, 1, Lz4, 1), dirty(1, 4, Zero, 0)]);
    log.segment();
    log.group(vec![clean(1, 2, Diff, 1), dirty(1, 3, Duplicate, 1)]);
    log.tail_seq = 2;
    log.segment();
    log.group(vec![clean(1, 5, Zero, 0)]);
    let found = log.recover();
    assert_eq!((found.block(1, 1), found.block(1, 2)), (None, None));
    assert_eq!((found.block(1, 3), found.block(1, 5)), (Some((2, nth(1), true)), Some((3, nth(0), false))));
    assert_eq!((found.report.forgotten_blocks, found.report.damaged_places), (1, 0));
    let inspection = inspect(&mut log.disk.clone(), &mut |_, _| {});
    assert_eq!((inspection.problems_count, inspection.shards[0].dirty_mismatches), (1, 1));
    let text = &inspection.problems[0];
    assert!(text.contains("dirty block 3 of volume 1 (Duplicate on object 1) rests on object 1 that is not there"), "{text}");
}

#[test]
fn the_inspector_tells_which_packed_payload_is_rotten() {
    let mut log = Log::new();
    let group = log.group(vec![clean(1, 1, Lz4, 5), dirty(1, 2, Diff, 5)]);
    log.claims = group;
    log.group(vec![clean(1, 3, Zero, 0)]);
    let mut disk = log.disk.clone();
    assert_eq!(inspect(&mut disk, &mut |_, _| {}).problems, Vec::<String>::new());
    log.rot(group, 1);
    let inspection = inspect(&mut log.disk.clone(), &mut |_, _| {});
    let texts = [
        "shard 0, segment 1, page 0 from byte 320, 3904 bytes: clean block 1 of volume 1 (Lz4, object 5) does not match its checksum",
        "shard 0, segment 1, page 1 from byte 128, 3904 bytes: dirty block 2 of volume 1 (Diff on object 5) does not match its checksum",
    ];
    assert_eq!(inspection.problems, texts);
}

/// A torn clean object harms nobody until something dirty rests on it.
#[test]
fn a_dirty_block_on_a_torn_base_ends_the_log() {
    for kind in [DataClean, Base] {
        let object = if kind == Base { base(&clean(1, 1, Zstd, 1)) } else { clean(1, 1, Zstd, 1) };
        let mut log = Log::new();
        let torn = log.group(vec![object.clone()]);
        log.group(vec![clean(1, 2, Duplicate, 1)]);
        log.tear(torn);
        let found = log.recover();
        assert_eq!((found.end.next_group, found.block(1, 2)), (3, Some((1, nth(1), false))));
        log.group(vec![dirty(1, 3, Duplicate, 1)]);
        log.group(vec![dirty(1, 4, Zero, 0)]);
        let found = log.recover();
        assert_eq!((found.end.next_group, found.block(1, 3), found.block(1, 4)), (3, None, None), "{kind:?}");
        assert_eq!((found.report.discarded_groups, found.report.damaged_places), (2, 0));
        // Had it been flushed, it would be rot and no torn end.
        log.claims = 4;
        log.group(vec![dirty(1, 5, Zero, 0)]);
        assert_eq!(log.recover().end.next_group, 6);
    }
}

#[test]
fn an_object_appended_again_is_no_longer_torn() {
    let mut log = Log::new();
    let object = clean(1, 1, Lz4, 1);
    let torn = log.group(vec![object.clone()]);
    log.group(vec![object]);
    log.group(vec![dirty(1, 3, Diff, 1)]);
    log.tear(torn);
    let found = log.recover();
    assert_eq!((found.end.next_group, found.block(1, 1)), (4, Some((1, nth(1), false))));
}

#[test]
fn torn_payloads_that_something_dirty_needs_end_the_log() {
    let object = clean(1, 1, Lz4, 1);
    let orphan = base(&clean(1, 2, Raw, 2));
    let cases = [(vital(object.0), object.1), (vital(orphan.0), orphan.1), dirty(1, 3, Raw, 3), dirty(1, 3, Lz4, 3), dirty(1, 3, Diff, 3)];
    for case in cases {
        let mut log = Log::new();
        log.group(vec![dirty(1, 9, Zero, 0)]);
        let torn = log.group(vec![case.clone()]);
        assert_eq!(log.recover().end.next_group, 3);
        log.tear(torn);
        assert_eq!(log.recover().end.next_group, 2, "{case:?}");
    }
    // What has no payload cannot be torn.
    let mut log = Log::new();
    log.group(vec![dirty(1, 1, Zero, 0), dirty(1, 2, Duplicate, 9), (vital(clean(1, 3, Raw, 4).0), clean(1, 3, Raw, 4).1)]);
    assert_eq!(log.recover().end.next_group, 2);
}

/// A hole may have swallowed what made clean blocks void; objects stay what they are.
#[test]
fn behind_damage_objects_of_dirty_blocks_are_kept() {
    let mut log = Log::new();
    log.group(vec![clean(1, 1, Lz4, 1), dirty(1, 2, Diff, 1), clean(1, 3, Zero, 0), clean(1, 4, Raw, 2), dirty(1, 5, Raw, 3)]);
    log.segment();
    let lost = log.group(vec![clean(1, 6, Zero, 0)]);
    log.segment();
    log.claims = lost;
    // The newer content of block 5 was in the hole, and its object, moved since, in a segment behind.
    log.group(vec![clean(1, 7, Diff, 2), clean(1, 8, Duplicate, 3), base(&dirty(1, 5, Raw, 3))]);
    log.rot(lost, 0);
    let found = log.recover();
    assert_eq!((found.report.damaged_places, found.report.forgotten_blocks), (1, 3));
    assert_eq!((found.block(1, 1), found.block(1, 3), found.block(1, 4)), (None, None, None));
    assert_eq!((found.base(1), found.base(2), found.given.bases.len()), (Some((1, nth(0))), Some((1, nth(3))), 2));
    assert_eq!((found.block(1, 2), found.block(1, 5)), (Some((1, nth(1), true)), Some((1, nth(4), true))));
    assert_eq!((found.block(1, 7), found.block(1, 8)), (Some((3, nth(0), false)), Some((3, nth(1), false))));
}

/// No writer gives an object to two blocks; whoever forges it gets one of them.
#[test]
fn an_object_of_two_blocks_is_the_last_ones() {
    let mut log = Log::new();
    log.group(vec![dirty(1, 1, Lz4, 1), dirty(1, 2, Lz4, 1), clean(1, 3, Diff, 1)]);
    let found = log.recover();
    assert_eq!((found.block(1, 1), found.block(1, 2), found.given.bases.len()), (None, Some((1, nth(1), true)), 0));
}

/// A nearly full ring: the tail passes objects that only clean blocks rest on, and stops at those that dirty ones need.
#[test]
fn the_tail_stops_at_the_bases_of_dirty_blocks() {
    for needed_by_dirty in [false, true] {
        let mut log = Log::new();
        let segments = u64::from(log.layout.segments_per_shard);
        log.group(vec![clean(1, 1, Lz4, 1), clean(1, 2, Zero, 0)]);
        log.segment();
        log.group(vec![clean(1, 1, Zero, 0), clean(1, 3, Diff, 1)]);
        log.segment();
        log.group(vec![if needed_by_dirty { dirty(1, 4, Duplicate, 1) } else { clean(1, 4, Duplicate, 1) }]);
        while log.seq < segments {
            log.segment();
            log.group(vec![clean(1, 100 + log.seq, Zero, 0)]);
        }
        let found = log.recover();
        if needed_by_dirty {
            assert_eq!((found.end.tail_seq, found.report.forgotten_blocks), (1, 0));
            assert_eq!(
                (found.base(1), found.block(1, 3), found.block(1, 4)),
                (Some((1, nth(0))), Some((2, nth(1), false)), Some((3, nth(0), true)))
            );
        } else {
            // Segments 1 and 2 are passed with blocks 2, 1 and 3; block 4 rests on what is gone.
            assert_eq!((found.end.tail_seq, found.report.forgotten_blocks), (1 + SEGMENTS_FREE_WANTED, 4));
            assert_eq!((found.base(1), found.block(1, 4)), (None, None));
            assert_eq!(found.given.blocks.len() as u64, segments - 3);
        }
    }
}

/// What was unreadable once may be read by the next start: behind the segment that marks the hole there must be nothing of it.
#[test]
fn the_tail_is_never_left_in_a_hole() {
    let mut log = Log::new();
    let segments = u64::from(log.layout.segments_per_shard);
    let hole_seq = 1 + SEGMENTS_FREE_WANTED;
    log.group(vec![clean(1, 1, Zero, 0)]);
    while log.seq < segments {
        log.segment();
        log.claims = log.group - 1;
        log.group(vec![clean(1, log.seq, Zero, 0)]);
    }
    log.rot(hole_seq, 0);
    let found = log.recover();
    assert_eq!((found.end.tail_seq, found.report.damaged_places), (hole_seq + 1, 1));
}

/// A segment with more records than its reserved footer page holds.
#[test]
fn footers_overflow_into_the_pages_before_them() {
    let mut log = Log::new();
    for group in 0..5 {
        log.group((0..100).map(|nth| dirty(1, group * 100 + nth, Zero, 0)).collect());
    }
    assert!(log.layout.footer_overflow_pages(500) > 0);
    let found = log.recover();
    assert_eq!((found.given.blocks.len(), found.report.footers_written, found.report.sealed_segments), (500, 1, 0));
    let (mut pool, recovered, _) = run_recovery(&mut log.disk);
    pool.begin_session(&mut log.disk, &[recovered.end], &[]).expect("begins");
    let (pool, recovered, items) = run_recovery(&mut log.disk);
    assert_eq!((recovered.report.sealed_segments, recovered.report.walked_segments, items.len()), (1, 0, 500));
    let RecoveredItem::Block(last) = items[499] else { panic!("there is no base") };
    assert_eq!((last.block, last.ordinal), (499, nth(499)));
    let inspection = inspect(&mut log.disk, &mut |_, _| {});
    assert_eq!((inspection.problems, inspection.shards[0].footers), (Vec::new(), 1));
    // A footer whose overflow is lost is none.
    let mut disk = log.disk.clone();
    let layout = pool.superblock.layout;
    disk.rot(layout.footer_write_offset(SHARD, 0, 500), |bytes| bytes[5] ^= 1);
    let (_, recovered, items) = run_recovery(&mut disk);
    assert_eq!((recovered.report.walked_segments, items.len()), (1, 500));
}

/// Groups for whose records there is no room in a footer are nobody's.
#[test]
fn groups_that_reach_into_the_footer_do_not_count() {
    let mut log = Log::new();
    let mut groups = 0;
    while log.page < log.layout.group_pages() {
        log.group((0..120).map(|nth| dirty(1, groups * 120 + nth, Zero, 0)).collect());
        groups += 1;
    }
    let found = log.recover();
    let records = found.given.blocks.len() as u32;
    assert!(records < groups as u32 * 120 && records <= log.layout.records_max());
    assert!(records / 120 <= log.layout.group_pages_with(records));
}

/// A group of which only the header reached the SSD, in the place of one with the same owner, place and length: what is there was written for
/// other content.
#[test]
fn the_payload_of_an_earlier_version_is_not_taken_for_the_torn_one() {
    for encoding in [Lz4, Diff] {
        let version = |content: u8| packed(DataDirty, (1, 1), encoding, 1, &[content; LARGE]);
        let mut log = Log::new();
        if encoding == Diff {
            log.group(vec![clean(1, 2, Lz4, 1)]);
        }
        // As another life would have written it: then this one does.
        let (disk, places, page, number) = (log.disk.clone(), log.places.clone(), log.page, log.group);
        log.group(vec![version(1)]);
        let before = std::mem::replace(&mut log.disk, disk);
        (log.places, log.page, log.group) = (places, page, number);
        log.group(vec![version(2)]);
        let (seq, page) = log.places[number as usize - 1];
        let offset_bytes = log.layout.page_offset(SHARD, log.layout.physical(seq), page + 1);
        let stale = before.page(offset_bytes / 4096);
        log.disk.rot(offset_bytes, |bytes| *bytes = stale);
        assert_eq!(log.recover().end.next_group, number, "{encoding:?}: the group is torn");
    }
}
