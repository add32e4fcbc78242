//! Runs of equal or continuing values over a line of units: the sorted lists below map and labels.
//!
//! Invariants: runs are sorted, do not overlap and are not empty; neighbours that continue each
//! other are one; no chunk is empty; there are at most `runs_max`. Look-ups are two binary
//! searches.

use std::ops::Range;

/// Runs in a chunk: an insertion moves 16 KiB at most. Whole chunks are split in halves.
const CHUNK_RUNS: usize = 512;

/// What a run says about its units.
pub trait Value: Copy + PartialEq {
    /// What it says from `units` further on.
    fn after(self, units: u64) -> Self;
}

/// A run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run<V> {
    pub start: u64,
    pub value: V,
    pub units: u32,
}

impl<V: Value> Run<V> {
    pub fn end(&self) -> u64 {
        self.start + u64::from(self.units)
    }

    /// The part of it inside a range that it overlaps.
    fn within(&self, range: &Range<u64>) -> Run<V> {
        let (start, end) = (self.start.max(range.start), self.end().min(range.end));
        Run { start, value: self.value.after(start - self.start), units: (end - start) as u32 }
    }
}

/// There is no room for it: nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the map of this volume holds as many extents as it may ({runs_max})")]
pub struct Full {
    /// How many.
    pub runs_max: usize,
}

/// Runs in order.
#[derive(Clone, Debug)]
pub struct Runs<V> {
    chunks: Vec<Vec<Run<V>>>,
    count: usize,
    runs_max: usize,
}

impl<V: Value> Runs<V> {
    pub fn new(runs_max: usize) -> Runs<V> {
        Runs { chunks: Vec::new(), count: 0, runs_max }
    }

    pub fn count(&self) -> usize {
        self.count
    }

    /// Chunk and index of the first run that ends after `at`; past the last chunk if there is none.
    fn locate(&self, at: u64) -> (usize, usize) {
        let chunk = self.chunks.partition_point(|chunk| chunk.last().is_none_or(|run| run.end() <= at));
        let index = self.chunks.get(chunk).map_or(0, |chunk| chunk.partition_point(|run| run.end() <= at));
        (chunk, index)
    }

    /// The run that holds a unit.
    pub fn at(&self, unit: u64) -> Option<Run<V>> {
        let (chunk, index) = self.locate(unit);
        self.chunks.get(chunk)?.get(index).copied().filter(|run| run.start <= unit)
    }

    /// Runs that overlap a range, cut to it, in order.
    pub fn over(&self, range: Range<u64>) -> impl Iterator<Item = Run<V>> + '_ {
        let (chunk, index) = self.locate(range.start);
        let first = self.chunks.get(chunk).map_or(&[][..], |chunk| &chunk[index..]);
        let rest = self.chunks.get(chunk + 1..).unwrap_or(&[]).iter().flatten();
        let end = if range.is_empty() { 0 } else { range.end };
        first.iter().chain(rest).take_while(move |run| run.start < end).map(move |run| run.within(&range))
    }

    /// All runs, in order.
    pub fn all(&self) -> impl Iterator<Item = Run<V>> + '_ {
        self.chunks.iter().flatten().copied()
    }

    /// Says `value` of a range, and nothing else any more. It must end below 2^63.
    pub fn set(&mut self, range: &Range<u64>, value: V) -> Result<(), Full> {
        if range.is_empty() {
            return Ok(());
        }
        let pieces = (range.end - range.start).div_ceil(u64::from(u32::MAX));
        // Cutting one run in two adds one; the pieces come on top.
        if self.count as u64 + pieces + 1 > self.runs_max as u64 {
            return Err(Full { runs_max: self.runs_max });
        }
        self.clear(range)?;
        let mut start = range.start;
        while start < range.end {
            let units = (range.end - start).min(u64::from(u32::MAX)) as u32;
            self.put(Run { start, value: value.after(start - range.start), units });
            start += u64::from(units);
        }
        Ok(())
    }

    /// Says nothing of a range any more. Refused when it would cut a run in two and there is no
    /// room.
    pub fn clear(&mut self, range: &Range<u64>) -> Result<(), Full> {
        if range.is_empty() {
            return Ok(());
        }
        let (mut chunk, mut index) = self.locate(range.start);
        if let Some(run) = self.run_at(chunk, index)
            && run.start < range.start
        {
            if run.end() > range.end {
                if self.count == self.runs_max {
                    return Err(Full { runs_max: self.runs_max });
                }
                self.insert(chunk, index + 1, run.within(&(range.end..run.end())));
                (chunk, index) = self.locate(run.start);
            }
            self.chunks[chunk][index] = run.within(&(run.start..range.start));
            index += 1;
        }
        let first = chunk;
        while chunk < self.chunks.len() {
            let runs = &mut self.chunks[chunk];
            let covered = runs[index..].iter().take_while(|run| run.end() <= range.end).count();
            runs.drain(index..index + covered);
            self.count -= covered;
            let left = runs.len() > index;
            if let Some(run) = runs.get_mut(index)
                && run.start < range.end
            {
                *run = run.within(&(range.end..run.end()));
            }
            if runs.is_empty() {
                self.chunks.remove(chunk);
            } else {
                chunk += 1;
            }
            if left {
                break;
            }
            index = 0;
        }
        self.tend(first);
        self.tend(first.saturating_sub(1));
        Ok(())
    }

    fn run_at(&self, chunk: usize, index: usize) -> Option<Run<V>> {
        self.chunks.get(chunk)?.get(index).copied()
    }

    /// Puts a run where nothing is said, joined to its neighbours where they continue each other.
    fn put(&mut self, mut run: Run<V>) {
        if let Some(before) = run.start.checked_sub(1).and_then(|unit| self.at(unit))
            && let Some(joined) = join(&before, &run)
        {
            self.take(before.start);
            run = joined;
        }
        if let Some(after) = self.at(run.end())
            && let Some(joined) = join(&run, &after)
        {
            self.take(after.start);
            run = joined;
        }
        let (chunk, index) = self.locate(run.start);
        self.insert(chunk, index, run);
    }

    fn take(&mut self, start: u64) {
        let (chunk, index) = self.locate(start);
        self.chunks[chunk].remove(index);
        self.count -= 1;
        if self.chunks[chunk].is_empty() {
            self.chunks.remove(chunk);
        }
        self.tend(chunk);
        self.tend(chunk.saturating_sub(1));
    }

    /// Joins a chunk with those behind it while they are half a chunk together, and gives back
    /// memory: so what is held stays within twice what the runs need.
    fn tend(&mut self, chunk: usize) {
        while let [one, other, ..] = self.chunks.get_mut(chunk..).unwrap_or_default()
            && one.len() + other.len() <= CHUNK_RUNS / 2
        {
            one.append(other);
            self.chunks.remove(chunk + 1);
        }
        if let Some(runs) = self.chunks.get_mut(chunk)
            && runs.capacity() > 2 * runs.len() + 16
        {
            runs.shrink_to_fit();
        }
    }

    fn insert(&mut self, mut chunk: usize, mut index: usize, run: Run<V>) {
        self.count += 1;
        if chunk == self.chunks.len() {
            match self.chunks.len() {
                0 => self.chunks.push(Vec::new()),
                // Past the end: the last chunk grows.
                len => (chunk, index) = (len - 1, self.chunks[len - 1].len()),
            }
        }
        if self.chunks[chunk].len() == CHUNK_RUNS {
            // Runs often come in order of address: then full chunks stay behind, not halves.
            let last = chunk + 1 == self.chunks.len() && index == CHUNK_RUNS;
            let half = if last { CHUNK_RUNS } else { CHUNK_RUNS / 2 };
            let upper = self.chunks[chunk].split_off(half);
            self.chunks.insert(chunk + 1, upper);
            if index > half || last {
                (chunk, index) = (chunk + 1, index - half);
            }
        }
        self.chunks[chunk].insert(index, run);
    }

    /// Memory held, in bytes.
    pub fn bytes(&self) -> usize {
        let runs: usize = self.chunks.iter().map(|chunk| chunk.capacity() * size_of::<Run<V>>()).sum();
        runs + self.chunks.capacity() * size_of::<Vec<Run<V>>>()
    }

    /// Stops where an invariant does not hold.
    #[cfg(test)]
    pub fn check_invariants(&self) {
        let runs: Vec<Run<V>> = self.all().collect();
        assert_eq!(runs.len(), self.count);
        assert!(self.count <= self.runs_max);
        assert!(self.chunks.iter().all(|chunk| !chunk.is_empty() && chunk.len() <= CHUNK_RUNS));
        assert!(self.chunks.windows(2).all(|pair| pair[0].len() + pair[1].len() > CHUNK_RUNS / 2));
        assert!(self.bytes() <= self.count * size_of::<Run<V>>() * 9 / 4 + (self.chunks.len() + 4) * 64);
        assert!(runs.iter().all(|run| run.units > 0));
        for pair in runs.windows(2) {
            assert!(pair[0].end() <= pair[1].start);
            assert!(join(&pair[0], &pair[1]).is_none(), "neighbours that continue each other");
        }
    }
}

/// Two neighbours as one, if the second continues the first.
fn join<V: Value>(one: &Run<V>, other: &Run<V>) -> Option<Run<V>> {
    let continues = one.end() == other.start && one.value.after(u64::from(one.units)) == other.value;
    let units = one.units.checked_add(other.units)?;
    continues.then_some(Run { start: one.start, value: one.value, units })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A constant (even) or a count that goes on (odd).
    #[derive(Clone, Copy, PartialEq, Debug)]
    struct Said(u64, bool);

    impl Value for Said {
        fn after(self, units: u64) -> Said {
            if self.1 { Said(self.0 + units, true) } else { self }
        }
    }

    const UNITS: usize = 3000;

    fn is_model(runs: &Runs<Said>, model: &[Option<Said>]) {
        runs.check_invariants();
        for (unit, expected) in model.iter().enumerate() {
            let found = runs.at(unit as u64).map(|run| run.value.after(unit as u64 - run.start));
            assert_eq!(found, *expected, "{unit}");
        }
    }

    #[test]
    fn runs_are_what_a_plain_array_is() {
        for seed in 1..40u64 {
            let (mut runs, mut model) = (Runs::new(700), vec![None; UNITS]);
            let mut state = seed;
            let mut random = |below: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 33) % below
            };
            for step in 0..400 {
                let start = random(UNITS as u64);
                let longest = if seed % 3 == 0 { 8 } else { 200 };
                let end = (start + random(longest)).min(UNITS as u64);
                let (range, said) = (start..end, Said(random(3), random(2) == 0));
                let part = &mut model[start as usize..end as usize];
                if random(4) == 0 {
                    runs.clear(&range).expect("room");
                    part.fill(None);
                } else {
                    runs.set(&range, said).expect("room");
                    part.iter_mut().zip(0..).for_each(|(unit, further)| *unit = Some(said.after(further)));
                }
                if step % 50 == 0 {
                    is_model(&runs, &model);
                }
                let (from, to) = (random(UNITS as u64), random(UNITS as u64));
                let over: u64 = runs.over(from..to).map(|run| u64::from(run.units)).sum();
                let expected = model.get(from as usize..to as usize).map_or(0, |part| part.iter().flatten().count());
                assert_eq!(over, expected as u64, "{from}..{to}");
            }
            is_model(&runs, &model);
        }
    }

    #[test]
    fn many_runs_fill_chunks_and_then_none_is_let_in() {
        let mut runs = Runs::new(3000);
        for step in 0..2998u64 {
            // In order, then from the other end, then in between.
            let at = if step < 1000 { step * 4 } else { 100_000 - step * 7 % 2999 * 20 };
            runs.set(&(at..at + 2), Said(step, false)).expect("room");
        }
        runs.check_invariants();
        let count = runs.count();
        assert!(count > 2900, "{count}");
        let before: Vec<_> = runs.all().collect();
        let mut full = runs.clone();
        for at in 0..200u64 {
            let _ = full.set(&(200_000 + at * 2..200_001 + at * 2), Said(1, false));
        }
        assert!(full.set(&(1..2), Said(9, false)).is_err());
        assert_eq!(full.all().take(count).collect::<Vec<_>>(), before, "nothing of the old is lost");
        full.clear(&(0..1 << 62)).expect("room");
        assert_eq!((full.count(), full.chunks.len()), (0, 0));
    }

    #[test]
    fn long_ranges_are_several_runs() {
        let mut runs = Runs::new(100);
        let long = u64::from(u32::MAX) * 3 + 5;
        runs.set(&(7..7 + long), Said(0, true)).expect("room");
        assert_eq!(runs.count(), 4);
        assert_eq!(runs.at(6 + long).map(|run| run.value.after(6 + long - run.start)), Some(Said(long - 1, true)));
        assert!(runs.set(&(0..1 << 62), Said(0, true)).is_err(), "too many pieces");
    }
}
