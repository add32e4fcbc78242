//! Promise: whatever was written, wherever the crash came, recovery gives exactly the log up to some group, never before the last
//! flushed one, and gives the same ever after.

mod support;

use format::checkpoint::LogEnd;
use support::Random;
use support::lives::{SHARD, check, one_life, run_recovery};
use support::model::Model;
use support::pool::new_pool;
use support::writer::{FooterHabit, Writer};

/// Seeds from `first`; `HEARTH_LIVES` multiplies their count.
fn lives(first: u64, count: u64) -> std::ops::Range<u64> {
    let times = std::env::var("HEARTH_LIVES").ok().and_then(|times| times.parse().ok()).unwrap_or(1);
    let first = if times > 1 { first << 32 } else { first };
    first..first + count * times
}

#[test]
fn random_lives_with_footers_after_a_flush() {
    lives(0, 150).for_each(|seed| one_life(seed, FooterHabit::Flushed));
}

#[test]
fn random_lives_with_footers_at_once() {
    lives(1000, 150).for_each(|seed| one_life(seed, FooterHabit::AtOnce));
}

#[test]
fn random_lives_with_late_footers() {
    lives(2000, 150).for_each(|seed| one_life(seed, FooterHabit::Late));
}

#[test]
fn random_lives_with_all_habits() {
    lives(3000, 300).for_each(|seed| one_life(seed, FooterHabit::Mixed));
}

/// Every prefix of one life's writes; of the unflushed ones all, none, each one missing, each one alone, and the last one torn at
/// each page.
#[test]
fn every_prefix_and_torn_last_writes() {
    for (seed, habit) in [(1, FooterHabit::Flushed), (2, FooterHabit::AtOnce), (3, FooterHabit::Late)] {
        let mut random = Random(seed);
        let (mut disk, mut pool) = new_pool(seed, 1);
        let end = LogEnd { next_seq: 1, next_group: 1, tail_seq: 1 };
        pool.begin_session(&mut disk, &[end], &[]).expect("begins");
        let mut writer = Writer::new(&pool, SHARD, end, Model::default(), habit);
        let mut states = 0;
        writer.steps_per_flush = 15;
        for step in 0..130 {
            writer.step(&mut disk, &mut random);
            let unflushed = disk.unflushed();
            let mut try_state = |kept: &dyn Fn(usize) -> bool, last_sectors: usize| {
                let mut crashed = disk.clone();
                crashed.cut_power_keeping(kept, last_sectors);
                let (_, recovered, records) = run_recovery(&mut crashed);
                let story = format!("seed {seed}, {habit:?}, step {step}, {last_sectors} sectors of the last");
                check(&crashed, &writer.model, &recovered, &records, writer.durable, &story);
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
