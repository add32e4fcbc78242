//! One life of a pool after the other, each ended by a crash, and what must hold after it.

use super::Random;
use super::disk::Disk;
use super::given::{Given, is_readable, place_of};
use super::model::Model;
use super::pool::{pool_with, small_layout};
use super::writer::{FooterHabit, Writer};
use engine::checkpoint;
use engine::recovery::{Recovered, RecoveredItem, recover};
use engine::superblock::{self, PoolState};
use format::Layout;
use format::checkpoint::LogEnd;
use std::collections::BTreeMap;
use types::{ShardIndex, VolumeId};

pub const SHARD: ShardIndex = ShardIndex(0);

pub fn run_recovery(disk: &mut Disk) -> (PoolState, Recovered, Vec<RecoveredItem>) {
    let mut pool = superblock::load(disk).expect("loads");
    let mut items = Vec::new();
    let recovered = recover(disk, &mut pool, SHARD, false, &mut |item| items.push(item)).expect("recovers");
    (pool, recovered, items)
}

/// What must hold of a recovery; `at_least` is the group that must not be lost.
pub fn check(disk: &Disk, model: &Model, recovered: &Recovered, items: &[RecoveredItem], at_least: u64, story: &str) {
    let last = recovered.end.next_group - 1;
    assert!(last >= at_least, "{story}: the log ends at {last}, but {at_least} was promised; {recovered:?}");
    let issued = model.groups.last().map_or(0, |group| group.number);
    assert!(last <= issued.max(at_least), "{story}: the log ends at {last}, but only {issued} was written");
    if let Some(group) = model.group(last) {
        assert_eq!(recovered.end.tail_seq, group.tail_seq, "{story}: tail");
        assert_eq!(recovered.end.next_seq, group.seq + 1, "{story}: next segment");
    }
    assert_eq!(recovered.report.damaged_places, 0, "{story}: damage where there is none: {recovered:?}");
    let expected = model.live(last, recovered.end.tail_seq, &[VolumeId(1), VolumeId(2), VolumeId(3)]);
    assert_eq!(recovered.next_object, expected.next_object, "{story}");
    let order: BTreeMap<(u64, u32), usize> = model.placed().iter().zip(0..).map(|(one, nth)| ((one.seq, one.ordinal), nth)).collect();
    assert!(items.iter().map(|item| order[&place_of(item)]).is_sorted(), "{story}: not in log order");
    let mut given = Given::default();
    items.iter().for_each(|item| given.add(*item));
    let (blocks, bases) = (given.blocks.len() as u64, given.bases.len() as u64);
    assert_eq!((recovered.report.dirty_blocks + recovered.report.clean_blocks, recovered.report.bases), (blocks, bases), "{story}");
    assert_eq!(given, expected.given, "{story}: the log ending at {last}");
    let layout = superblock::load(&mut disk.clone()).expect("loads").superblock.layout;
    for record in given.blocks.values().filter(|record| record.dirty && !model.is_lost(record.segment_seq, record.ordinal)) {
        let item = RecoveredItem::Block(*record);
        assert!(is_readable(disk, &layout, &item), "{story}: {record:?}");
        // It may be that nobody kept the base of a dirty block, but not that it is there and cannot be read.
        assert!(given.base_of(record).is_none_or(|base| is_readable(disk, &layout, &base)), "{story}: the base of {record:?}");
    }
}

/// Recovery, begun anew after each crash in the middle of it, then once more to see that nothing flaps.
pub fn recover_with_crashes(disk: &mut Disk, model: &mut Model, at_least: u64, random: &mut Random, story: &str) -> (PoolState, LogEnd) {
    let mut at_least = at_least;
    for calls in 0..random.below(6) {
        let mut pool = superblock::load(disk).expect("loads");
        disk.calls_left = Some(calls);
        let ended =
            recover(disk, &mut pool, SHARD, false, &mut |_| {}).and_then(|recovered| pool.begin_session(disk, &[recovered.end], &[]));
        if ended.is_ok() {
            // Lived through: from here on it is a recovery like any other, and its result is served.
            disk.calls_left = None;
            break;
        }
        if random.chance(1, 2) {
            disk.kill_process(random);
        } else {
            disk.cut_power(random);
            at_least = at_least.min(model.groups.last().map_or(0, |group| group.number));
        }
    }
    let (mut pool, recovered, items) = run_recovery(disk);
    check(disk, model, &recovered, &items, at_least, story);
    model.truncate(recovered.end.next_group - 1, recovered.end.tail_seq);
    // It is served from here on: no crash may change it.
    let mut later = disk.clone();
    later.cut_power(random);
    let (_, again, items_again) = run_recovery(&mut later);
    assert_eq!(
        (again.end, again.next_object, &items_again),
        (recovered.end, recovered.next_object, &items),
        "{story}: flapped after a power cut"
    );
    pool.begin_session(disk, &[recovered.end], &[]).expect("begins");
    let mut later = disk.clone();
    later.cut_power(random);
    let (_, again, items_again) = run_recovery(&mut later);
    assert_eq!(
        (again.end, again.next_object, &items_again),
        (recovered.end, recovered.next_object, &items),
        "{story}: flapped after the session began"
    );
    (pool, recovered.end)
}

pub fn one_life(seed: u64, habit: FooterHabit, packs: bool) {
    one_life_in(seed, habit, packs, small_layout(1), 1);
}

/// The same in a ring of that layout whose log begins with segment `first_seq`. Gives the disk as it was left.
pub fn one_life_in(seed: u64, habit: FooterHabit, packs: bool, layout: Layout, first_seq: u64) -> Disk {
    let mut random = Random(seed);
    let (mut disk, mut pool) = pool_with(seed, layout);
    let (mut model, mut end) = (Model::default(), LogEnd { next_seq: first_seq, next_group: 1, tail_seq: first_seq });
    pool.begin_session(&mut disk, &[end], &[]).expect("begins");
    for round in 0..6 {
        let mut writer = Writer::new(&pool, SHARD, end, model, habit);
        writer.loses = true;
        writer.packs = packs;
        writer.steps_per_flush = [4, 10, 40, 100_000][random.below(4) as usize];
        // Short and long lives: crashes right after a start, and several laps of the ring.
        let steps = if random.chance(1, 3) { random.below(6) } else { random.below(160) };
        for _ in 0..steps {
            writer.step(&mut disk, &mut random);
        }
        if random.chance(1, 5) {
            // A stop in order; the next session begins where the checkpoint says.
            end = writer.stop(&mut disk);
            model = writer.model;
            super::checkpoint::write(&mut disk, &mut pool, &[end], &[], &mut |_, _| None).expect("writes");
            disk.cut_power(&mut random);
            pool = superblock::load(&mut disk).expect("loads");
            let checkpoint = checkpoint::open(&mut disk, &pool).expect("opens").expect("it was a clean stop");
            assert_eq!(checkpoint.log_ends(), [end]);
            pool.begin_session(&mut disk, &[end], &[]).expect("begins");
            continue;
        }
        let (killed, acked, durable) = (random.chance(1, 2), writer.acked, writer.durable);
        model = writer.model;
        let story = format!("seed {seed}, {habit:?}, round {round}, {}", if killed { "killed" } else { "power cut" });
        let at_least = if killed {
            disk.kill_process(&mut random);
            acked
        } else {
            disk.cut_power(&mut random);
            durable
        };
        if killed {
            // Only now may the power fail too, so that recovery works on what is in the cache.
            let mut alone = disk.clone();
            let (_, recovered, items) = run_recovery(&mut alone);
            check(&alone, &model, &recovered, &items, acked, &story);
        }
        let at_least = if killed { at_least.min(durable) } else { at_least };
        (pool, end) = recover_with_crashes(&mut disk, &mut model, at_least, &mut random, &story);
    }
    disk
}
