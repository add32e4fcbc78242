//! Which member a cache should follow: the one whose miniature misses least, where that is more than chance.
//!
//! Misses are counted over sampled accesses, and count half after [`HALF_ROOMS`] rooms of the miniature. Two members are compared on the same
//! accesses: only those count on which they differ, and of them a fair coin would give either half. A change must be better than that by
//! [`TAKE_DEVIATIONS`]; what is not better than the default by [`KEEP_DEVIATIONS`] gives way to it.
//!
//! Measured on five traces at 1, 10 and 30 % of the footprint, without layout and RAM tier, in parts of the gap from LRU to the optimum: the
//! default member alone .367 / .204 / .125; chosen so .367 / .232 / .117. What is said below of other numbers was measured with
//! memories of 800 thousandths (chosen so .379 / .237 / .083).

use crate::member::MEMBERS;
use crate::miniatures::{Miniatures, Missed};

/// Members to choose from.
const COUNT: usize = MEMBERS.len();
/// Blocks that a miniature has room for at most. On the traces 256 were too few: sampled misses differed by chance more than by member.
const ROOM_MAX: u32 = 1024;
/// Half-life of the counts, in rooms of the miniature. Two made the choice follow noise at 1 % of the footprint, 32 gave what 16 do.
const HALF_ROOMS: f64 = 16.0;
/// Shortest half-life, in sampled accesses.
const HALF_MIN: f64 = 2000.0;
/// Nothing is chosen before so many rooms were sampled: until then a miniature mostly fills. With two instead of eight, a trace of four
/// rooms at 30 % of its footprint missed .638 instead of .614.
const ROOMS_BEFORE_FIRST: f64 = 8.0;
/// Sampled accesses between two looks.
const LOOK_EVERY: u32 = 500;
/// A member must miss by this part less than the one that is followed.
const MARGIN: f64 = 0.01;
/// And by so many standard deviations of what chance gives.
const TAKE_DEVIATIONS: f64 = 2.0;
/// See the module.
const KEEP_DEVIATIONS: f64 = 1.0;

/// See the module.
#[derive(Debug)]
pub struct Chooser {
    miniatures: Miniatures,
    /// What is left of a count after one more sampled access.
    decay: f64,
    /// Sampled accesses, and those that each member missed, faded.
    sampled: f64,
    misses: [f64; COUNT],
    /// Sampled accesses that one of two members missed, by the higher number and the lower one.
    differing: [[f64; COUNT]; COUNT],
    since_look: u32,
    accesses: u64,
    choice: Choice,
}

/// What was chosen, and what was seen.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Choice {
    /// The number of the member that is followed, in [`MEMBERS`].
    pub member: usize,
    /// Blocks that clients have used since it is.
    pub accesses_since: u64,
    /// How often another member was chosen.
    pub changes: u64,
    /// The part of lately sampled accesses that each member missed, from 0 to 1; 0 before the first.
    pub miss_ratios: [f64; COUNT],
    /// One block in so many is sampled.
    pub one_in: u64,
}

impl Chooser {
    /// For a cache with room for so many blocks. Which are sampled depends on the seed.
    pub fn new(room_blocks: u64, seed: u64) -> Chooser {
        let miniatures = Miniatures::new(room_blocks, ROOM_MAX, seed);
        let half = (HALF_ROOMS * f64::from(miniatures.room())).max(HALF_MIN);
        let choice = Choice { one_in: miniatures.one_in(), ..Choice::default() };
        Chooser {
            miniatures,
            // For a half-life of thousands, that is 0.5 to the power of 1 / half.
            decay: 1.0 - core::f64::consts::LN_2 / half,
            sampled: 0.0,
            misses: [0.0; COUNT],
            differing: [[0.0; COUNT]; COUNT],
            since_look: 0,
            accesses: 0,
            choice,
        }
    }

    /// A client uses the block of `key`, wherever that is. The number of the member to follow, if it is another one from now on.
    #[inline]
    pub fn access(&mut self, key: u64) -> Option<usize> {
        self.accesses += 1;
        let missed = self.miniatures.access(key)?;
        self.count(missed)
    }

    /// What was chosen, and what was seen.
    pub fn choice(&self) -> Choice {
        let sampled = self.sampled.max(1.0);
        Choice {
            accesses_since: self.accesses - self.choice.accesses_since,
            miss_ratios: self.misses.map(|misses| misses / sampled),
            ..self.choice
        }
    }

    /// Bytes on the heap.
    pub fn memory_bytes(&self) -> u64 {
        self.miniatures.memory_bytes()
    }

    fn count(&mut self, missed: Missed) -> Option<usize> {
        self.sampled = self.sampled * self.decay + 1.0;
        for one in 0..COUNT {
            self.misses[one] = self.misses[one] * self.decay + f64::from(u8::from(missed.by(one)));
            for other in 0..one {
                let differ = missed.by(one) != missed.by(other);
                let counted = &mut self.differing[one][other];
                *counted = *counted * self.decay + f64::from(u8::from(differ));
            }
        }
        self.since_look += 1;
        if self.since_look < LOOK_EVERY || self.sampled < ROOMS_BEFORE_FIRST * f64::from(self.miniatures.room()) {
            return None;
        }
        self.since_look = 0;
        let chosen = self.choose();
        (chosen != self.choice.member).then(|| {
            self.choice = Choice { member: chosen, accesses_since: self.accesses, changes: self.choice.changes + 1, ..self.choice };
            chosen
        })
    }

    fn choose(&self) -> usize {
        let mut best = 0;
        for member in 1..COUNT {
            if self.misses[member] < self.misses[best] {
                best = member;
            }
        }
        let followed = self.choice.member;
        let saves = self.misses[followed] - self.misses[best] > MARGIN * self.misses[followed];
        let chosen = if saves && self.is_better(best, followed, TAKE_DEVIATIONS) { best } else { followed };
        if chosen == 0 || self.is_better(chosen, 0, KEEP_DEVIATIONS) { chosen } else { 0 }
    }

    /// Whether one member misses less than another by so many deviations: of `n` accesses on which they differ, the difference is
    /// one of the root of `n`.
    fn is_better(&self, one: usize, than: usize, deviations: f64) -> bool {
        let gain = self.misses[than] - self.misses[one];
        gain > 0.0 && gain * gain >= deviations * deviations * self.differing[one.max(than)][one.min(than)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks `0..blocks` in turn.
    fn loop_over(chooser: &mut Chooser, blocks: u64, accesses: u64) {
        (0..accesses).for_each(|nth| {
            chooser.access(nth % blocks);
        });
    }

    #[test]
    fn what_no_member_does_better_leaves_the_default() {
        let mut chooser = Chooser::new(1000, 0);
        (0..100_000).for_each(|key| {
            assert_eq!(chooser.access(key), None);
        });
        let choice = chooser.choice();
        assert_eq!((choice.member, choice.changes, choice.accesses_since), (0, 0, 100_000));
        assert!(choice.miss_ratios.iter().all(|ratio| (0.999..1.001).contains(ratio)), "{:?}", choice.miss_ratios);
    }

    #[test]
    fn a_member_that_misses_less_is_chosen_and_given_up_when_it_does_no_more() {
        let mut chooser = Chooser::new(1000, 7);
        // In a loop a little larger than the cache each member keeps as much as its small part lets it.
        loop_over(&mut chooser, 1100, 200_000);
        let choice = chooser.choice();
        let least = choice.miss_ratios.iter().copied().fold(1.0, f64::min);
        assert!(choice.miss_ratios[choice.member] <= least * (1.0 + MARGIN) && choice.changes > 0, "{choice:?}");
        assert!(choice.miss_ratios[0] > choice.miss_ratios[choice.member], "{choice:?}");
        assert!(choice.accesses_since < 200_000);
        // New blocks only: nothing is better than anything else, once the loop has faded.
        (1 << 20..(1 << 20) + 1_000_000).for_each(|key| {
            chooser.access(key);
        });
        assert_eq!(chooser.choice().member, 0);
    }

    #[test]
    fn its_memory_does_not_grow_with_the_cache() {
        for blocks in [2, 1000, 100_000, 1 << 25] {
            let chooser = Chooser::new(blocks, 1);
            assert!(chooser.memory_bytes() <= 160 << 10, "{} for {blocks}", chooser.memory_bytes());
            assert!(chooser.miniatures.room() <= ROOM_MAX);
        }
    }

    #[test]
    fn the_same_accesses_lead_to_the_same_choices() {
        let [mut one, mut other] = [Chooser::new(500, 3), Chooser::new(500, 3)];
        for nth in 0..300_000_u64 {
            let key = nth.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (48 + nth % 5);
            assert_eq!(one.access(key), other.access(key));
        }
        assert_eq!(one.choice(), other.choice());
    }
}
