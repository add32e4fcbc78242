//! Which slots are free, and which become free later.
//!
//! A slot is *free*, *used*, or *leaving*: nothing current is in it, but a start could still find what was there, or somebody is
//! reading it. It is free once the group that says so is durable, and all who read when it was left have ended.
//!
//! Requests of several blocks are to stay in one piece, and what is written at the same time is to be one write. So free slots are kept
//! as *runs*, by length. While there are long ones, one of them is filled from its begin to its end, whatever is asked for; after
//! that the shortest run that is long enough is taken. Runs grow together again as slots become free. A run lies in one
//! [`SHELF_SLOTS`] shelf.
//!
//! Invariants: free, used and leaving slots are all slots; a slot in the free map belongs to one run, whose length one of its
//! entries names (entries that are out of date are dropped when they are met).

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

/// Slots of a shelf: runs end where it ends, and it is what is looked over at once.
pub const SHELF_SLOTS: u32 = 512;

/// A run of so many slots is long. A group of a busy client's writes fits in it.
const LONG_SLOTS: u32 = 32;

const WORD_BITS: u32 = u64::BITS;
const LENGTHS: usize = SHELF_SLOTS as usize + 1;
/// Entries of runs may be out of date: so many times as many as slots are free, and some more, before they are made anew.
const ENTRIES_PER_FREE: usize = 2;
const ENTRIES_SPARE: usize = 1024;

/// Slots side by side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// The first of them.
    pub first: u32,
    /// How many; at least one.
    pub count: u32,
}

/// A slot that nothing current is in.
#[derive(Clone, Copy, Debug)]
struct Leaving {
    slot: u32,
    /// The group that says so.
    group: u64,
    /// Who reads in this epoch, or in one before, may read it.
    epoch: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Places {
    slots: u32,
    /// One bit a slot, set where it is free.
    map: Vec<u64>,
    free: u32,
    /// Runs that free slots make, each within its shelf.
    free_runs: u64,
    /// First slots of runs, by the run's length.
    runs: Vec<Vec<u32>>,
    /// One bit a length, set where there is an entry.
    lengths: [u64; LENGTHS.div_ceil(WORD_BITS as usize)],
    entries: usize,
    /// Where the long run that is being filled goes on.
    filling: Option<u32>,
    /// In the order in which they were left.
    leaving: VecDeque<Leaving>,
    /// The same of those whose groups are durable, and only readers are waited for: epochs and slots.
    read: VecDeque<(u64, u32)>,
}

impl Places {
    /// Places of so many slots; `is_used` says of each whether something is in it.
    pub fn new(slots: u32, is_used: impl Fn(u32) -> bool) -> Places {
        let mut map = vec![0; slots.div_ceil(WORD_BITS) as usize];
        let mut free = 0;
        for slot in (0..slots).filter(|slot| !is_used(*slot)) {
            map[(slot / WORD_BITS) as usize] |= 1 << (slot % WORD_BITS);
            free += 1;
        }
        let mut places = Places {
            slots,
            map,
            free,
            free_runs: 0,
            runs: vec![Vec::new(); LENGTHS],
            lengths: [0; LENGTHS.div_ceil(WORD_BITS as usize)],
            entries: 0,
            filling: None,
            leaving: VecDeque::new(),
            read: VecDeque::new(),
        };
        places.find_runs();
        places.free_runs = places.entries as u64;
        places
    }

    /// All slots there are.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// Those that can be taken now.
    pub fn free(&self) -> u32 {
        self.free
    }

    /// Those that become free without more being given up.
    pub fn leaving(&self) -> u32 {
        (self.leaving.len() + self.read.len()) as u32
    }

    /// Whether a slot can be taken.
    pub fn is_free(&self, slot: u32) -> bool {
        self.map[(slot / WORD_BITS) as usize] >> (slot % WORD_BITS) & 1 != 0
    }

    /// Runs of free slots, longest possible ones.
    pub fn free_runs(&self) -> u64 {
        self.free_runs
    }

    /// Takes so many slots, in one run if there is one that is long enough. False, and nothing is taken, if fewer are free.
    pub fn take(&mut self, wanted: u32, mut taken: impl FnMut(Run)) -> bool {
        if wanted > self.free {
            return false;
        }
        let mut left = wanted;
        while left > 0 {
            let run = self.next_for(left);
            let count = run.count.min(left);
            self.mark(Run { count, ..run }, false);
            if run.count > count {
                self.enter(Run { first: run.first + count, count: run.count - count });
            }
            taken(Run { first: run.first, count });
            left -= count;
        }
        self.free -= wanted;
        true
    }

    /// Nothing current is in the slot any more, as that group says; who reads now does so in `epoch`.
    ///
    /// # Panics
    /// If the slot is free, or an earlier call named a later group or epoch.
    pub fn leave(&mut self, slot: u32, group: u64, epoch: u64) {
        assert!(slot < self.slots && !self.is_free(slot), "slot {slot} is in use");
        if let Some(last) = self.leaving.back() {
            assert!(last.group <= group && last.epoch <= epoch, "slots are left in order");
        }
        self.leaving.push_back(Leaving { slot, group, epoch });
    }

    /// The same where it is durable already that nothing current is there.
    ///
    /// # Panics
    /// If the slot is free, or an earlier call named a later epoch.
    pub fn leave_durably(&mut self, slot: u32, epoch: u64) {
        assert!(slot < self.slots && !self.is_free(slot), "slot {slot} is in use");
        assert!(self.read.back().is_none_or(|last| last.0 <= epoch), "slots are left in order");
        self.read.push_back((epoch, slot));
    }

    /// A slot that was taken and of which nothing was ever said is free again.
    ///
    /// # Panics
    /// If the slot is free.
    pub fn give_back(&mut self, slot: u32) {
        self.set_free(slot);
    }

    /// All groups up to `durable` are durable, and nobody reads any more who began before `epoch`: slots that were left become free.
    /// Gives how many.
    pub fn settle(&mut self, durable: u64, epoch: u64) -> u32 {
        let before = self.leaving();
        while let Some(leaving) = self.leaving.front().filter(|leaving| leaving.group <= durable && leaving.epoch < epoch) {
            let slot = leaving.slot;
            self.leaving.pop_front();
            self.set_free(slot);
        }
        while let Some((_, slot)) = self.read.pop_front_if(|(of, _)| *of < epoch) {
            self.set_free(slot);
        }
        if self.entries > ENTRIES_PER_FREE * self.free as usize + ENTRIES_SPARE {
            self.find_runs();
        }
        before - self.leaving()
    }

    fn set_free(&mut self, slot: u32) {
        self.mark(Run { first: slot, count: 1 }, true);
        self.free += 1;
        let run = self.run_around(slot);
        self.enter(run);
    }

    /// Where so many slots are to be taken from, as far as it has them. What is free before the run, and beside it, has an entry.
    fn next_for(&mut self, wanted: u32) -> Run {
        if let Some(first) = self.filling.take().filter(|first| self.is_free(*first)) {
            let run = self.run_around(first);
            let count = run.first + run.count - first;
            if count >= wanted {
                if run.first < first {
                    // What was before it has become free.
                    self.enter(Run { first: run.first, count: first - run.first });
                }
                self.filling = (count > wanted).then_some(first + wanted);
                return Run { first, count };
            }
        }
        let run = self.best_for(wanted);
        self.filling = (run.count >= LONG_SLOTS && run.count > wanted).then_some(run.first + wanted);
        run
    }

    /// A long run, as long as there are some; else one that is long enough, the shortest of those; else the longest there is. It is no entry
    /// any more.
    fn best_for(&mut self, wanted: u32) -> Run {
        let wanted = wanted.min(SHELF_SLOTS) as usize;
        loop {
            let long = self.length_from(wanted.max(LONG_SLOTS as usize));
            let length = long.or_else(|| self.length_from(wanted)).or_else(|| self.length_up_to(wanted)).expect("something is free");
            let first = self.runs[length].pop().expect("its bit is set");
            self.entries -= 1;
            if self.runs[length].is_empty() {
                self.lengths[length / WORD_BITS as usize] &= !(1 << (length % WORD_BITS as usize));
            }
            // Else it was taken, cut, or has grown: that run has an entry of its own.
            if self.is_free(first) {
                let run = self.run_around(first);
                if run.first == first && run.count as usize == length {
                    return run;
                }
            }
        }
    }

    /// The shortest length from `least` on that has an entry.
    fn length_from(&self, least: usize) -> Option<usize> {
        let (word, bit) = (least / WORD_BITS as usize, least % WORD_BITS as usize);
        let first = self.lengths[word] & (u64::MAX << bit);
        let rest = self.lengths[word + 1..].iter().copied();
        let found = core::iter::once(first).chain(rest).enumerate().find(|(_, bits)| *bits != 0)?;
        Some((word + found.0) * WORD_BITS as usize + found.1.trailing_zeros() as usize)
    }

    /// The longest length below `most` that has an entry.
    fn length_up_to(&self, most: usize) -> Option<usize> {
        (0..=most / WORD_BITS as usize).rev().find_map(|word| {
            let bits = self.lengths[word];
            (bits != 0).then(|| word * WORD_BITS as usize + (WORD_BITS - 1 - bits.leading_zeros()) as usize)
        })
    }

    fn enter(&mut self, run: Run) {
        let length = run.count as usize;
        self.runs[length].push(run.first);
        self.lengths[length / WORD_BITS as usize] |= 1 << (length % WORD_BITS as usize);
        self.entries += 1;
    }

    fn mark(&mut self, run: Run, free: bool) {
        let mut slot = run.first;
        let end = run.first + run.count;
        let is_joined_before = !slot.is_multiple_of(SHELF_SLOTS) && self.is_free(slot - 1);
        let is_joined_behind = !end.is_multiple_of(SHELF_SLOTS) && end < self.slots && self.is_free(end);
        let neighbours = u64::from(is_joined_before) + u64::from(is_joined_behind);
        self.free_runs = if free { self.free_runs + 1 - neighbours } else { self.free_runs + neighbours - 1 };
        while slot < end {
            let bit = slot % WORD_BITS;
            let count = (end - slot).min(WORD_BITS - bit);
            let mask = (u64::MAX >> (WORD_BITS - count)) << bit;
            let word = &mut self.map[(slot / WORD_BITS) as usize];
            assert_eq!(*word & mask, if free { 0 } else { mask }, "slots {run:?} change");
            *word ^= mask;
            slot += count;
        }
    }

    /// The run of free slots, in its shelf, that a free slot belongs to.
    fn run_around(&self, slot: u32) -> Run {
        let shelf = slot / SHELF_SLOTS * SHELF_SLOTS;
        let (mut first, mut end) = (slot, slot + 1);
        let most = (shelf + SHELF_SLOTS).min(self.slots);
        // Whole words at once.
        while first > shelf {
            let bits = first % WORD_BITS;
            let width = if bits == 0 { WORD_BITS } else { bits };
            let word = self.map[((first - 1) / WORD_BITS) as usize];
            let ones = (word << (WORD_BITS - width)).leading_ones().min(width);
            first -= ones;
            if ones < width {
                break;
            }
        }
        while end < most {
            let bits = end % WORD_BITS;
            let width = WORD_BITS - bits;
            let ones = (self.map[(end / WORD_BITS) as usize] >> bits).trailing_ones().min(width);
            end += ones;
            if ones < width {
                break;
            }
        }
        Run { first, count: end.min(most) - first }
    }

    /// The first run from a slot on, which is not within a run.
    fn next_run(&self, from: u32) -> Option<Run> {
        let mut word = (from / WORD_BITS) as usize;
        let mut bits = *self.map.get(word)? & (u64::MAX << (from % WORD_BITS));
        while bits == 0 {
            word += 1;
            bits = *self.map.get(word)?;
        }
        let first = word as u32 * WORD_BITS + bits.trailing_zeros();
        Some(self.run_around(first))
    }

    /// Makes all entries anew.
    fn find_runs(&mut self) {
        self.runs.iter_mut().for_each(Vec::clear);
        self.lengths.fill(0);
        self.entries = 0;
        let mut slot = 0;
        while let Some(run) = self.next_run(slot) {
            self.enter(run);
            slot = run.first + run.count;
        }
        // The lowest places are taken first.
        self.runs.iter_mut().for_each(|of_length| of_length.reverse());
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> u64 {
        let runs: usize = self.runs.iter().map(|of_length| of_length.capacity() * size_of::<u32>()).sum();
        let left = self.leaving.capacity() * size_of::<Leaving>() + self.read.capacity() * size_of::<(u64, u32)>();
        (self.map.capacity() * size_of::<u64>() + runs + left) as u64
    }

    /// What must hold, for tests: panics where it does not. Looks at all slots.
    pub fn check(&self) {
        let free: u32 = self.map.iter().map(|word| word.count_ones()).sum();
        assert_eq!(free, self.free, "free slots");
        let mut left = self.leaving.iter().map(|leaving| leaving.slot).chain(self.read.iter().map(|read| read.1));
        assert!(left.all(|slot| !self.is_free(slot)), "what is left is not free");
        let mut slot = 0;
        while let Some(run) = self.next_run(slot) {
            assert!(self.runs[run.count as usize].contains(&run.first), "{run:?} has an entry");
            slot = run.first + run.count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;

    fn taken(places: &mut Places, wanted: u32) -> Vec<Run> {
        let mut runs = Vec::new();
        assert!(places.take(wanted, |run| runs.push(run)));
        runs
    }

    fn free_again(places: &mut Places, slots: impl IntoIterator<Item = u32>) {
        slots.into_iter().for_each(|slot| places.leave(slot, 1, 1));
        places.settle(1, 2);
    }

    #[test]
    fn a_request_lies_in_one_piece_where_one_is_long_enough() {
        let mut places = Places::new(64, |slot| slot % 8 == 7);
        assert_eq!(places.free(), 56);
        // A gap of five, one of four.
        assert_eq!(taken(&mut places, 56).len(), 8);
        free_again(&mut places, [0, 1, 2, 3, 4, 8, 9, 10, 11, 20]);
        assert_eq!(taken(&mut places, 4), [Run { first: 8, count: 4 }], "the shortest that is long enough");
        assert_eq!(taken(&mut places, 4), [Run { first: 0, count: 4 }]);
        assert_eq!(taken(&mut places, 2).len(), 2, "in pieces where no run is left");
        assert!(!places.take(1, |_| ()), "nothing is free");
        places.check();
    }

    #[test]
    fn a_slot_is_free_when_its_group_is_durable_and_its_readers_have_ended() {
        let mut places = Places::new(8, |_| true);
        places.leave(3, 5, 7);
        places.leave(4, 6, 7);
        assert_eq!((places.free(), places.leaving()), (0, 2));
        assert_eq!(places.settle(4, 9), 0, "not durable");
        assert_eq!(places.settle(5, 7), 0, "somebody may read it");
        assert_eq!(places.settle(5, 8), 1);
        assert!(places.is_free(3) && !places.is_free(4));
        assert_eq!(places.settle(6, 8), 1);
        assert_eq!(taken(&mut places, 2), [Run { first: 3, count: 2 }], "runs grow together");
        // One whose group is durable waits for readers alone, and not for those that were left before it.
        places.leave(0, 9, 9);
        places.leave_durably(1, 9);
        assert_eq!((places.settle(8, 9), places.settle(8, 10)), (0, 1));
        assert!(places.is_free(1) && !places.is_free(0));
        assert!(places.take(1, |_| ()));
        places.give_back(1);
        assert_eq!((places.free(), places.leaving()), (1, 1));
    }

    #[test]
    fn runs_end_where_their_shelf_ends() {
        let mut places = Places::new(SHELF_SLOTS * 2, |_| false);
        let runs = taken(&mut places, SHELF_SLOTS + 10);
        assert_eq!(runs, [Run { first: 0, count: SHELF_SLOTS }, Run { first: SHELF_SLOTS, count: 10 }]);
    }

    #[test]
    fn a_long_run_is_filled_before_short_ones_are_used() {
        // Free: single slots, one of two, and forty side by side.
        let mut places = Places::new(128, |slot| slot.is_multiple_of(2) && !(50..90).contains(&slot));
        assert_eq!(taken(&mut places, 1), [Run { first: 49, count: 1 }]);
        assert_eq!(taken(&mut places, 4), [Run { first: 50, count: 4 }]);
        // Another part of it is taken, and what was before it becomes free.
        free_again(&mut places, [50]);
        assert_eq!(taken(&mut places, 30), [Run { first: 54, count: 30 }]);
        assert_eq!(taken(&mut places, 1), [Run { first: 84, count: 1 }]);
        assert_eq!(taken(&mut places, 7).iter().map(|run| run.count).sum::<u32>(), 7, "what is left of it is too short");
        places.check();
        assert_eq!(taken(&mut places, 1).len(), 1, "and short ones are used");
        places.check();
    }

    /// Against a set of slots: what is taken was free, nothing is lost, and no more pieces than needed.
    #[test]
    fn it_keeps_the_books_like_a_plain_set() {
        let mut state = 88_172_645_463_325_252_u64;
        let mut below = |bound: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % bound
        };
        for slots in [1, 63, 64, 65, 500, 512, 1500] {
            let mut places = Places::new(slots, |slot| slot % 3 == 0);
            let mut free: BTreeSet<u32> = (0..slots).filter(|slot| slot % 3 != 0).collect();
            let mut used: Vec<u32> = (0..slots).filter(|slot| slot % 3 == 0).collect();
            let mut left: VecDeque<(u32, u64)> = VecDeque::new();
            let mut group = 1;
            for _ in 0..3000 {
                match below(3) {
                    0 => {
                        let wanted = 1 + below(9) as u32;
                        let mut runs = Vec::new();
                        let longest = longest_run(&free);
                        let done = places.take(wanted, |run| runs.push(run));
                        assert_eq!(done, wanted as usize <= free.len());
                        if done && wanted <= longest {
                            assert_eq!(runs.len(), 1, "{wanted} of {longest}");
                        }
                        for slot in runs.iter().flat_map(|run| run.first..run.first + run.count) {
                            assert!(free.remove(&slot), "slot {slot} was free");
                            used.push(slot);
                        }
                    }
                    1 if !used.is_empty() => {
                        let slot = used.swap_remove(below(used.len() as u64) as usize);
                        group += below(2);
                        places.leave(slot, group, 1);
                        left.push_back((slot, group));
                    }
                    _ => {
                        let durable = group - below(3).min(group);
                        let count = left.iter().take_while(|(_, group)| *group <= durable).count();
                        assert_eq!(places.settle(durable, 2) as usize, count);
                        free.extend(left.drain(..count).map(|(slot, _)| slot));
                    }
                }
                assert_eq!(places.free() as usize, free.len());
            }
            places.check();
            assert!((0..slots).all(|slot| places.is_free(slot) == free.contains(&slot)));
            assert_eq!(places.free_runs(), run_count(&free));
        }
    }

    fn run_count(free: &BTreeSet<u32>) -> u64 {
        free.iter().filter(|slot| slot.is_multiple_of(SHELF_SLOTS) || !free.contains(&(**slot - 1))).count() as u64
    }

    fn longest_run(free: &BTreeSet<u32>) -> u32 {
        let (mut longest, mut length) = (0, 0);
        for slot in free {
            length = if slot.is_multiple_of(SHELF_SLOTS) || !free.contains(&(slot.wrapping_sub(1))) { 1 } else { length + 1 };
            longest = longest.max(length);
        }
        longest
    }
}
