//! Promise: whatever was written, wherever the crash came, recovery gives exactly the log up to some group, never before the last
//! flushed one, and gives the same ever after.

use crate::support::Random;
use crate::support::lives::{SHARD, check, one_life, one_life_in, run_recovery};
use crate::support::model::Model;
use crate::support::pool::{layout_of, new_pool, pool_with};
use crate::support::writer::{FooterHabit, Writer};
use engine::recovery::{RecoveredItem, SEGMENTS_FREE_WANTED};
use format::checkpoint::LogEnd;
use format::{GroupHead, Record, RecordKind, payload_checksum};
use types::VolumeId;

/// Seeds from `first`; `HEARTH_LIVES` multiplies their count.
fn lives(first: u64, count: u64) -> std::ops::Range<u64> {
    let times = std::env::var("HEARTH_LIVES").ok().and_then(|times| times.parse().ok()).unwrap_or(1);
    let first = if times > 1 { first << 32 } else { first };
    first..first + count * times
}

#[test]
fn random_lives_with_footers_after_a_flush() {
    lives(0, 150).for_each(|seed| one_life(seed, FooterHabit::Flushed, false));
}

#[test]
fn random_lives_with_footers_at_once() {
    lives(1000, 150).for_each(|seed| one_life(seed, FooterHabit::AtOnce, false));
}

#[test]
fn random_lives_with_late_footers() {
    lives(2000, 150).for_each(|seed| one_life(seed, FooterHabit::Late, false));
}

#[test]
fn random_lives_with_all_habits() {
    lives(3000, 300).for_each(|seed| one_life(seed, FooterHabit::Mixed, false));
}

#[test]
fn random_lives_with_packed_records() {
    let habits = [FooterHabit::Flushed, FooterHabit::AtOnce, FooterHabit::Late, FooterHabit::Mixed];
    lives(4000, 400).for_each(|seed| one_life(seed, habits[seed as usize % 4], true));
}

/// A large ring that is nearly empty is read where something was written, also where that goes round its end.
#[test]
fn random_lives_in_a_large_ring_read_little_of_it() {
    const SEGMENTS: u32 = 20_000;
    let habits = [FooterHabit::Flushed, FooterHabit::AtOnce, FooterHabit::Late, FooterHabit::Mixed];
    for seed in lives(5000, 60) {
        let first_seq = [1, u64::from(SEGMENTS) - 10, 777_777][seed as usize % 3];
        let mut disk = one_life_in(seed, habits[seed as usize % 4], seed % 8 > 3, layout_of(SEGMENTS), first_seq);
        disk.reads = 0;
        let (_, recovered, _) = run_recovery(&mut disk);
        let written = recovered.end.next_seq - first_seq;
        assert!(disk.reads < 800 + 3 * written, "seed {seed}: {} reads for {written} segments", disk.reads);
    }
}

/// Segments that are gone are damage, however many they are, as long as enough is left behind them to tell of it.
#[test]
fn a_long_hole_in_a_large_ring_is_damage() {
    for (lost, left) in [(63, 1), (65, 1), (100, 1), (150, 10), (500, 20), (2_000, 60)] {
        let mut random = Random(lost);
        let (mut disk, mut pool) = pool_with(lost, layout_of(20_000));
        let end = LogEnd { next_seq: 1, next_group: 1, tail_seq: 1 };
        pool.begin_session(&mut disk, &[end], &[]).expect("begins");
        let mut writer = Writer::new(&pool, SHARD, end, Model::default(), FooterHabit::Flushed);
        let (first_lost, layout) = (10, pool.superblock.layout);
        while writer.model.groups.last().is_none_or(|group| group.seq < first_lost + lost + left) {
            // A segment is left as soon as something is in it: many segments, few groups.
            writer.write_group(&mut disk, &mut random);
            writer.next_segment(&mut disk, &mut random);
        }
        writer.settle(&mut disk, &mut random);
        for seq in first_lost..first_lost + lost {
            let begin = layout.segment_offset(SHARD, layout.physical(seq));
            (0..16).for_each(|page| disk.rot(begin + page * 4096, |bytes| bytes.fill(0)));
        }
        let (_, recovered, _) = run_recovery(&mut disk);
        assert!(recovered.report.damaged_places > 0, "{lost} lost, {left} left: {:?}", recovered.report);
        assert!(recovered.end.next_seq > first_lost + lost, "{lost} lost, {left} left: {:?}", recovered.end);
    }
}

/// Every prefix of one life's writes; of the unflushed ones all, none, each one missing, each one alone, and the last one torn at
/// each page.
#[test]
fn every_prefix_and_torn_last_writes() {
    let habits = [FooterHabit::Flushed, FooterHabit::AtOnce, FooterHabit::Late];
    for (seed, habit) in (1..).zip(habits.into_iter().chain(habits)) {
        let mut random = Random(seed);
        let (mut disk, mut pool) = new_pool(seed, 1);
        let end = LogEnd { next_seq: 1, next_group: 1, tail_seq: 1 };
        pool.begin_session(&mut disk, &[end], &[]).expect("begins");
        let mut writer = Writer::new(&pool, SHARD, end, Model::default(), habit);
        writer.loses = true;
        writer.packs = seed > 3;
        let mut states = 0;
        writer.steps_per_flush = 15;
        for step in 0..if writer.packs { 90 } else { 130 } {
            writer.step(&mut disk, &mut random);
            let unflushed = disk.unflushed();
            let mut try_state = |kept: &dyn Fn(usize) -> bool, last_sectors: usize| {
                let mut crashed = disk.clone();
                crashed.cut_power_keeping(kept, last_sectors);
                let (_, recovered, items) = run_recovery(&mut crashed);
                let story = format!("seed {seed}, {habit:?}, step {step}, {last_sectors} sectors of the last");
                check(&crashed, &writer.model, &recovered, &items, writer.durable, &story);
                states += 1;
            };
            try_state(&|_| false, 0);
            for sectors in [1, 7, 8, 9, 16, 24, usize::MAX] {
                try_state(&|_| true, sectors);
            }
            for one in 0..unflushed {
                try_state(&|nth| nth != one, usize::MAX);
                try_state(&|nth| nth == one, usize::MAX);
            }
        }
        assert!(states > 1000, "only {states} states");
    }
}

/// A pool that dies right after each start, before it can evict anything: its oldest clean blocks leave, never a dirty one, and there is
/// always a segment to go on with.
#[test]
fn a_crash_loop_leaves_room() {
    for dirty in [false, true] {
        let (mut disk, mut pool) = new_pool(9, 1);
        let layout = pool.superblock.layout;
        let segments = u64::from(layout.segments_per_shard);
        let mut end = LogEnd { next_seq: 1, next_group: 1, tail_seq: 1 };
        for start in 0..20 {
            pool.begin_session(&mut disk, &[end], &[]).expect("begins");
            if end.next_seq - end.tail_seq == segments {
                assert!(dirty, "a ring full of clean blocks");
                break;
            }
            let payload = [start as u8; 4096];
            let record = Record {
                kind: if dirty { RecordKind::DataDirty } else { RecordKind::DataClean },
                volume: VolumeId(1),
                block: start,
                mask: 0xff,
                checksum: payload_checksum(VolumeId(1), start, &payload),
                slot_page: 1,
                packed: None,
            };
            let head = GroupHead {
                uuid: pool.superblock.uuid,
                session: pool.superblock.session,
                shard: SHARD,
                segment_seq: end.next_seq,
                group: end.next_group,
                tail_seq: end.tail_seq,
                durable_group: end.next_group - 1,
                page: 0,
            };
            let mut bytes = [[0; 4096], payload];
            head.encode(&[record], &[], &mut bytes[0]);
            let id = disk.submit(layout.segment_offset(SHARD, layout.physical(end.next_seq)), bytes.as_flattened().to_vec());
            disk.complete(id);
            let (later_pool, recovered, items) = run_recovery(&mut disk);
            (pool, end) = (later_pool, recovered.end);
            let Some(RecoveredItem::Block(newest)) = items.last() else { panic!("start {start}: nothing is there") };
            assert_eq!(newest.block, start, "the newest is there");
            if dirty {
                assert_eq!(items.len() as u64, start + 1, "a dirty block was given up");
            } else {
                assert!(segments - (end.next_seq - end.tail_seq) >= SEGMENTS_FREE_WANTED, "start {start}: {end:?}");
            }
        }
    }
}
