//! Promise: the tests of recovery can fail. Each planted mistake is caught within a stated number of seeds.
#![cfg(feature = "mutants")]

#[path = "all/support/mod.rs"]
mod support;

use engine::{mutants, superblock};
use format::checkpoint::LogEnd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use support::Random;
use support::lives::{SHARD, check, one_life, run_recovery};
use support::lost::they_stay_errors;
use support::model::Model;
use support::pool::{new_pool, volume};
use support::writer::{FooterHabit, Writer};
use types::{Mode, VolumeId};

/// A superblock stored until the power fails; one copy must be whole.
fn stores_until_a_crash(seed: u64) {
    let mut random = Random(seed);
    let (mut disk, mut pool) = new_pool(seed, 1);
    for _ in 0..4 {
        let id = pool.superblock.next_volume_id;
        pool.superblock.volumes.push(volume(id.0, Mode::WriteThrough));
        pool.superblock.next_volume_id = VolumeId(id.0 + 1);
        disk.calls_left = Some(random.below(6));
        let old = pool.superblock.generation;
        let stored = pool.store(&mut disk).is_ok();
        disk.cut_power(&mut random);
        pool = superblock::load(&mut disk).expect("one copy is always whole");
        assert!(!stored || pool.superblock.generation > old);
    }
}

/// A header in the middle of what was flushed, and said to be, is gone: that is told.
fn lives_with_a_lost_header(seed: u64) {
    let mut random = Random(seed);
    let (mut disk, mut pool) = new_pool(seed, 1);
    let end = LogEnd { next_seq: 1, next_group: 1, tail_seq: 1 };
    pool.begin_session(&mut disk, &[end], &[]).expect("begins");
    let mut writer = Writer::new(&pool, SHARD, end, Model::default(), FooterHabit::Late);
    (0..2).for_each(|_| writer.write_group(&mut disk, &mut random));
    writer.settle(&mut disk, &mut random);
    let page = pool.superblock.layout.page_offset(SHARD, 0, 0);
    disk.rot(page, |bytes| bytes.fill(0));
    let (_, recovered, _) = run_recovery(&mut disk);
    // A footer says again what the headers of its segment say.
    assert!(recovered.report.damaged_places > 0 || recovered.report.sealed_segments > 0, "seed {seed}: {recovered:?}");
}

/// A session begins behind a clean stop: the checkpoint of that is void.
fn the_next_session_ends_a_checkpoint(seed: u64) {
    let (mut disk, mut pool) = new_pool(seed, 1);
    let end = LogEnd { next_seq: 1, next_group: 1, tail_seq: 1 };
    pool.begin_session(&mut disk, &[end], &[]).expect("begins");
    support::checkpoint::write(&mut disk, &mut pool, &[end], &[], &mut |_, _| None).expect("writes");
    pool.begin_session(&mut disk, &[end], &[]).expect("begins");
    let pool = superblock::load(&mut disk).expect("loads");
    assert_eq!(engine::checkpoint::open(&mut disk, &pool), Ok(None), "seed {seed}");
}

/// One bit of one header flips: the log ends before it, or the loss is told.
fn lives_with_a_flipped_header(seed: u64) {
    let mut random = Random(seed);
    let (mut disk, mut pool) = new_pool(seed, 1);
    let end = LogEnd { next_seq: 1, next_group: 1, tail_seq: 1 };
    pool.begin_session(&mut disk, &[end], &[]).expect("begins");
    let mut writer = Writer::new(&pool, SHARD, end, Model::default(), FooterHabit::Late);
    (0..4).for_each(|_| writer.write_group(&mut disk, &mut random));
    writer.complete_all(&mut disk);
    let page = pool.superblock.layout.page_offset(SHARD, 0, 0);
    disk.rot(page, |bytes| bytes[256 + random.below(60) as usize] ^= 1 << random.below(8));
    let (_, recovered, records) = run_recovery(&mut disk);
    check(&disk, &writer.model, &recovered, &records, 0, "a flipped bit");
}

/// Seeds within which each is caught, and those that need more: something clean must be torn that something dirty rests on soon after.
const SEEDS_MAX: u64 = 300;
const RARE: [(u32, u64); 1] = [(mutants::TORN_BASE_ACCEPTED, 2000)];

/// How many of the first seeds pass before the scenario fails.
fn seeds_until_caught(number: u32, scenario: &dyn Fn(u64), first: u64, seeds_max: u64) -> Option<u64> {
    mutants::set(number);
    let caught = (first..first + seeds_max).find(|seed| catch_unwind(AssertUnwindSafe(|| scenario(*seed))).is_err());
    mutants::set(0);
    caught.map(|seed| seed - first)
}

#[test]
fn each_is_caught() {
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let life = |seed| one_life(seed, FooterHabit::Mixed, false);
    let late_life = |seed| one_life(seed, FooterHabit::Late, false);
    let packed_life = |seed| one_life(seed, FooterHabit::Mixed, true);
    let lost = |_| they_stay_errors(true);
    let scenarios: [(u32, &dyn Fn(u64)); 10] = [
        (mutants::TORN_PAYLOAD_BELIEVED, &life),
        (mutants::HEADERS_UNCHECKED, &lives_with_a_flipped_header),
        (mutants::EARLIER_LAP_ACCEPTED, &life),
        (mutants::GAP_ACCEPTED, &late_life),
        (mutants::RECOVERY_UNSTABLE, &life),
        (mutants::SUPERBLOCKS_IN_ONE_FLUSH, &stores_until_a_crash),
        (mutants::TORN_BASE_ACCEPTED, &packed_life),
        (mutants::LOST_IS_ZEROES, &lost),
        (mutants::BAD_GROUP_ENDS_LOG, &lives_with_a_lost_header),
        (mutants::OLD_CHECKPOINT_BELIEVED, &the_next_session_ends_a_checkpoint),
    ];
    let mut missed = Vec::new();
    for (number, scenario) in scenarios {
        mutants::set(number);
        let mut counts: Vec<u64> = Vec::new();
        let most = RARE.iter().find(|(rare, _)| *rare == number).map_or(SEEDS_MAX, |(_, most)| *most);
        for round in 0..5 {
            match seeds_until_caught(number, scenario, round << 32, most) {
                Some(count) => counts.push(count + 1),
                None => missed.push(mutants::name_of(number)),
            }
        }
        mutants::set(0);
        counts.sort_unstable();
        println!("{}: caught by seed {:?} (median of five)", mutants::name_of(number), counts.get(counts.len() / 2));
    }
    std::panic::set_hook(quiet);
    // Without a mistake all of it passes.
    assert_eq!(seeds_until_caught(0, &life, 0, 20), None);
    assert_eq!(seeds_until_caught(0, &packed_life, 0, 20), None);
    assert_eq!(seeds_until_caught(0, &lost, 0, 1), None);
    assert_eq!(seeds_until_caught(0, &lives_with_a_lost_header, 0, 50), None);
    assert_eq!(seeds_until_caught(0, &the_next_session_ends_a_checkpoint, 0, 5), None);
    assert_eq!(seeds_until_caught(0, &lives_with_a_flipped_header, 0, 50), None);
    assert_eq!(seeds_until_caught(0, &stores_until_a_crash, 0, 50), None);
    assert!(missed.is_empty(), "not caught in time: {missed:?}");
}
