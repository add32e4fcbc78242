//! A sample of a load's lines, the most recently used first, and how far back each reference reaches.

use crate::saved::{In, Out, Unreadable};
use engine::tap::{line_hash, line_of};
use std::collections::{BinaryHeap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

/// Hashes of lines need not be hashed again.
#[derive(Clone, Copy, Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("the keys are u64");
    }

    fn write_u64(&mut self, hash: u64) {
        // The sampled ones are all below the threshold: their high bits are alike.
        self.0 = hash.wrapping_mul(0xd6e8_feb8_6659_fd93);
    }
}

type ByHash<T> = HashMap<u64, T, BuildHasherDefault<AsItIs>>;

/// What a reference to a sampled line was.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Reused {
    /// Different lines used since the last reference to this one, itself included, estimated from the
    /// sample; `None`: it was never seen before.
    pub distance_lines: Option<u64>,
    /// How many references this one stands for.
    pub weight: f64,
}

/// The lines whose hash lies below a threshold, at most a fixed number: when there are more, the
/// threshold falls (SHARDS with a fixed size).
#[derive(Clone)]
pub struct Stack {
    lines_max: usize,
    /// Lines with smaller hashes are sampled.
    threshold: u64,
    /// When each was used last, by hash.
    used_at: ByHash<u32>,
    /// The greatest hash first; it may name lines that were removed.
    greatest: BinaryHeap<u64>,
    /// Of each moment, whether a line was used last then, as sums over ranges (a Fenwick tree).
    moments: Vec<u32>,
    now: u32,
}

impl Stack {
    /// An empty one that samples at most that many lines; at least 1.
    #[must_use]
    pub fn new(lines_max: usize) -> Stack {
        let lines_max = lines_max.max(1);
        Stack {
            lines_max,
            threshold: u64::MAX,
            used_at: HashMap::with_capacity_and_hasher(lines_max + 1, BuildHasherDefault::default()),
            greatest: BinaryHeap::with_capacity(lines_max + 1),
            moments: vec![0; 2 * lines_max + 2],
            now: 0,
        }
    }

    /// Only references to lines with smaller hashes need be given to [`Stack::reference`].
    #[must_use]
    pub fn threshold(&self) -> u64 {
        self.threshold
    }

    /// Share of the lines that is sampled, from 0 to 1.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.threshold as f64 / u64::MAX as f64
    }

    /// Lines in it.
    #[must_use]
    pub fn lines(&self) -> usize {
        self.used_at.len()
    }

    /// A line is used. `None` if it is not sampled.
    pub fn reference(&mut self, hash: u64) -> Option<Reused> {
        if hash >= self.threshold {
            return None;
        }
        let rate = self.rate();
        let before = self.used_at.get(&hash).copied();
        let distance_lines = before.map(|at| {
            let newer = self.used_at.len() as u64 - u64::from(self.up_to(at));
            ((newer + 1) as f64 / rate).round() as u64
        });
        match before {
            Some(at) => self.add(at, false),
            None => self.greatest.push(hash),
        }
        if self.now as usize + 1 == self.moments.len() {
            self.used_at.remove(&hash);
            self.renumber();
        }
        self.now += 1;
        self.used_at.insert(hash, self.now);
        self.add(self.now, true);
        if self.used_at.len() > self.lines_max {
            self.lower();
        }
        Some(Reused { distance_lines, weight: 1.0 / rate })
    }

    /// Whether a line is known: it is sampled, and was used.
    #[must_use]
    pub fn holds(&self, hash: u64) -> bool {
        self.used_at.contains_key(&hash)
    }

    /// A line is used no more, for instance since it was discarded.
    pub fn remove(&mut self, hash: u64) {
        if let Some(at) = self.used_at.remove(&hash) {
            self.add(at, false);
            // The heap may not grow with lines that come and go.
            if self.greatest.len() > 2 * self.lines_max {
                self.greatest = self.used_at.keys().copied().collect();
            }
        }
    }

    /// The lines from `start` on are used no more; `seed` is that of their hashes.
    pub fn remove_range(&mut self, start: u64, lines: u64, seed: u64) {
        if lines <= self.used_at.len() as u64 {
            (start..start.saturating_add(lines)).for_each(|line| self.remove(line_hash(line, seed)));
        } else {
            let within = |hash: &u64| line_of(*hash, seed).checked_sub(start).is_some_and(|at| at < lines);
            let hashes: Vec<u64> = self.used_at.keys().copied().filter(within).collect();
            hashes.into_iter().for_each(|hash| self.remove(hash));
        }
    }

    /// Only lines with smaller hashes are sampled from now on; others that are known are forgotten.
    pub fn lower_to(&mut self, threshold: u64) {
        if threshold >= self.threshold {
            return;
        }
        // Not by `lower`: where the greatest was removed before, that would take the next, which may lie below.
        while self.greatest.peek().is_some_and(|hash| *hash >= threshold) {
            if let Some(at) = self.greatest.pop().and_then(|hash| self.used_at.remove(&hash)) {
                self.add(at, false);
            }
        }
        self.threshold = threshold;
    }

    /// Samples at most that many lines from now on; at least 1. Never more than it was made for.
    pub fn shrink(&mut self, lines_max: usize) {
        if lines_max.max(1) >= self.lines_max {
            return;
        }
        self.lines_max = lines_max.max(1);
        while self.used_at.len() > self.lines_max {
            self.lower();
        }
        self.used_at.shrink_to(self.lines_max + 1);
        self.greatest = self.used_at.keys().copied().collect();
        self.moments = vec![0; 2 * self.lines_max + 2];
        self.renumber();
    }

    /// Bytes that one takes that samples at most that many lines.
    #[must_use]
    pub fn bytes_of(lines_max: usize) -> usize {
        // The table keeps an eighth of its places free and has a power of two of them; the heap may
        // hold each line twice.
        let places = (lines_max + 1).saturating_mul(8) / 7;
        places.next_power_of_two() * 17 + (2 * lines_max + 1) * 8 + (2 * lines_max + 2) * 4
    }

    /// The line with the greatest hash goes, and what lies above it is not sampled any more.
    fn lower(&mut self) {
        while let Some(hash) = self.greatest.pop() {
            // It stands there more than once if it was removed and came again.
            if let Some(at) = self.used_at.remove(&hash) {
                self.add(at, false);
                self.threshold = hash;
                return;
            }
        }
    }

    /// The least recently used first.
    fn in_order(&self) -> Vec<u64> {
        let mut order: Vec<(u32, u64)> = self.used_at.iter().map(|(hash, at)| (*at, *hash)).collect();
        order.sort_unstable_by_key(|(at, _)| *at);
        order.into_iter().map(|(_, hash)| hash).collect()
    }

    pub(crate) fn put(&self, out: &mut Out) {
        out.u64(self.threshold);
        out.u64s(&self.in_order());
    }

    pub(crate) fn take(from: &mut In<'_>, lines_max: usize) -> Result<Stack, Unreadable> {
        let mut stack = Stack { threshold: from.u64()?, ..Stack::new(lines_max) };
        for hash in from.u64s(stack.lines_max)? {
            stack.now += 1;
            let is_new = stack.used_at.insert(hash, stack.now).is_none();
            if !is_new || hash >= stack.threshold {
                return Err(Unreadable::Nonsense("a line"));
            }
            stack.add(stack.now, true);
            stack.greatest.push(hash);
        }
        if stack.threshold == 0 { Err(Unreadable::Nonsense("the sample's share")) } else { Ok(stack) }
    }

    /// Moments count from one again, in the same order.
    fn renumber(&mut self) {
        let order = self.in_order();
        self.moments.fill(0);
        self.now = 0;
        for hash in order {
            self.now += 1;
            self.used_at.insert(hash, self.now);
            self.add(self.now, true);
        }
    }

    fn add(&mut self, at: u32, one_more: bool) {
        let mut place = at as usize;
        while let Some(sum) = self.moments.get_mut(place) {
            *sum = if one_more { *sum + 1 } else { *sum - 1 };
            place += place & place.wrapping_neg();
        }
    }

    /// Lines that were used last at this moment or before.
    fn up_to(&self, at: u32) -> u32 {
        let (mut place, mut sum) = (at as usize, 0);
        while place > 0 {
            sum += self.moments[place];
            place &= place - 1;
        }
        sum
    }
}

impl std::fmt::Debug for Stack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Stack({} of {} lines, 1 in {:.0})", self.lines(), self.lines_max, 1.0 / self.rate())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random numbers that are the same each time.
    struct Chance(u64);

    impl Chance {
        fn below(&mut self, end: u64) -> u64 {
            self.0 += 1;
            line_hash(self.0, 7) % end
        }
    }

    #[test]
    fn without_a_limit_distances_are_those_of_a_list() {
        let (mut stack, mut list, mut chance) = (Stack::new(300), Vec::<u64>::new(), Chance(0));
        for _ in 0..20_000 {
            let most = 1 + chance.below(300);
            let hash = line_hash(chance.below(most), 1);
            if chance.below(20) == 0 {
                stack.remove(hash);
                list.retain(|other| *other != hash);
                continue;
            }
            let at = list.iter().rev().position(|other| *other == hash);
            list.retain(|other| *other != hash);
            list.push(hash);
            let reused = stack.reference(hash).expect("all are sampled");
            assert_eq!(reused.distance_lines, at.map(|at| at as u64 + 1));
            assert_eq!((reused.weight, stack.lines()), (1.0, list.len()));
        }
    }

    #[test]
    fn a_range_goes_line_by_line_or_all_at_once() {
        for lines in [50, 100_000] {
            let mut stack = Stack::new(1000);
            (0..500).for_each(|line| assert!(stack.reference(line_hash(line, 5)).is_some()));
            stack.remove_range(100, lines, 5);
            assert_eq!(stack.lines() as u64, 500 - lines.min(400));
            assert!(stack.reference(line_hash(100, 5)).expect("sampled").distance_lines.is_none());
            assert!(stack.reference(line_hash(99, 5)).expect("sampled").distance_lines.is_some());
        }
    }

    #[test]
    fn a_smaller_stack_is_what_it_would_have_been_from_the_start() {
        let (mut small, mut lowered, mut shrunk) = (Stack::new(200), Stack::new(2000), Stack::new(2000));
        for line in 0..3000 {
            let hash = line_hash(line % 1500, 0);
            for stack in [&mut small, &mut lowered, &mut shrunk] {
                let _ = stack.reference(hash);
            }
        }
        lowered.lower_to(small.threshold());
        shrunk.shrink(200);
        for line in [0, 7, 1499].into_iter().chain(0..1500) {
            let hash = line_hash(line, 0);
            let told = small.reference(hash);
            assert_eq!(lowered.reference(hash), told, "{line}");
            assert_eq!(shrunk.reference(hash), told, "{line}");
        }
        assert_eq!((lowered.lines(), shrunk.lines()), (small.lines(), small.lines()));
        assert_eq!(shrunk.threshold(), small.threshold());
    }

    #[test]
    fn a_line_below_the_new_threshold_stays_where_those_above_were_removed() {
        let mut stack = Stack::new(100);
        let _ = (stack.reference(10), stack.reference(1000));
        stack.remove(1000);
        stack.lower_to(500);
        assert!(stack.holds(10) && stack.threshold() == 500);
    }

    #[test]
    fn with_a_limit_weights_stand_for_all_references() {
        let (mut stack, mut weight, mut cold, mut chance) = (Stack::new(1000), 0.0, 0.0, Chance(0));
        for _ in 0..200_000 {
            if let Some(reused) = stack.reference(line_hash(chance.below(50_000), 3)) {
                weight += reused.weight;
                cold += if reused.distance_lines.is_none() { reused.weight } else { 0.0 };
            }
        }
        assert_eq!(stack.lines(), 1000);
        assert!((weight / 200_000.0 - 1.0).abs() < 0.1, "{weight} references of 200,000");
        assert!((cold / 49_100.0 - 1.0).abs() < 0.1, "{cold} lines of 49,100");
        assert!((stack.rate() * 49_100.0 / 1000.0 - 1.0).abs() < 0.1, "{stack:?}");
    }

    #[test]
    fn lines_that_come_and_go_take_no_room() {
        let mut stack = Stack::new(10);
        for line in 0..10_000 {
            stack.reference(line_hash(line, 0)).expect("few are there at a time");
            stack.remove(line_hash(line, 0));
        }
        assert_eq!((stack.lines(), stack.rate()), (0, 1.0));
        assert!(stack.greatest.len() <= 21, "{}", stack.greatest.len());
    }
}
