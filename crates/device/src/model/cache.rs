//! The caches in front of the spindles: write-back (a controller's NVRAM or a drive's own) and an array's read cache.

use super::set::{ReadCacheParameters, WriteCacheParameters};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use types::BLOCK_BYTES;

/// The blocks a byte range touches.
pub(super) fn blocks_of(range: Range<u64>) -> Range<u64> {
    range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES)
}

/// Dirty data by block, and the sweep that takes it to the spindles.
#[derive(Clone, Debug)]
pub(super) struct WriteCache {
    parameters: WriteCacheParameters,
    capacity_blocks: usize,
    /// Blocks that wait, with the number of the write that first made them dirty.
    dirty: BTreeMap<u64, u64>,
    /// Blocks on their way to the spindles, likewise.
    leaving: BTreeMap<u64, u64>,
    /// Both of the above by that number: what a flush waits for.
    by_number: BTreeSet<(u64, u64)>,
    next_number: u64,
    /// Where the sweep goes on.
    sweep_block: u64,
    pub absorbed_blocks: u64,
    pub destaged_blocks: u64,
}

impl WriteCache {
    pub fn new(parameters: WriteCacheParameters) -> WriteCache {
        WriteCache {
            parameters,
            capacity_blocks: (parameters.capacity_bytes / BLOCK_BYTES) as usize,
            dirty: BTreeMap::new(),
            leaving: BTreeMap::new(),
            by_number: BTreeSet::new(),
            next_number: 0,
            sweep_block: 0,
            absorbed_blocks: 0,
            destaged_blocks: 0,
        }
    }

    pub fn parameters(&self) -> &WriteCacheParameters {
        &self.parameters
    }

    /// Whether a write could fit in an empty cache.
    pub fn takes(&self, blocks: &Range<u64>) -> bool {
        (blocks.end - blocks.start) as usize <= self.capacity_blocks
    }

    /// Takes a write, or says no while there is no room for what of it is not dirty already.
    pub fn accept(&mut self, blocks: Range<u64>) -> bool {
        let known = self.dirty.range(blocks.clone()).count();
        let fresh = (blocks.end - blocks.start) as usize - known;
        if fresh > 0 && self.used_blocks() + fresh > self.capacity_blocks {
            return false;
        }
        let number = self.next_number;
        self.next_number += 1;
        for block in blocks {
            self.dirty.entry(block).or_insert_with(|| {
                self.by_number.insert((number, block));
                number
            });
        }
        self.absorbed_blocks += known as u64;
        true
    }

    /// Forgets dirty blocks that a discard or a write past the cache has overtaken. Less than a block is no block.
    pub fn drop_dirty(&mut self, blocks: Range<u64>) {
        if blocks.is_empty() {
            return;
        }
        let gone: Vec<(u64, u64)> = self.dirty.range(blocks).map(|(block, number)| (*block, *number)).collect();
        for (block, number) in gone {
            self.dirty.remove(&block);
            self.by_number.remove(&(number, block));
        }
    }

    /// Whether the block can be read from here.
    pub fn holds(&self, block: u64) -> bool {
        self.dirty.contains_key(&block) || self.leaving.contains_key(&block)
    }

    pub fn used_blocks(&self) -> usize {
        self.dirty.len() + self.leaving.len()
    }

    pub fn is_empty(&self) -> bool {
        self.used_blocks() == 0
    }

    /// Share of the capacity that is in use.
    pub fn fill(&self) -> f64 {
        self.used_blocks() as f64 / self.capacity_blocks.max(1) as f64
    }

    /// A flush that arrives now waits for all writes numbered below this.
    pub fn flush_number(&self) -> u64 {
        self.next_number
    }

    /// Whether all writes numbered below `number` are on the spindles.
    pub fn is_flushed(&self, number: u64) -> bool {
        self.by_number.first().is_none_or(|(oldest, _)| *oldest >= number)
    }

    /// Takes the next run of the sweep for the spindles: ascending blocks, `None` if nothing waits. With parity rows
    /// (`row_blocks`), all dirty blocks of one row and of the rows after it as long as those are dirty throughout; without,
    /// one unbroken run.
    pub fn next_run(&mut self, row_blocks: Option<u64>) -> Option<Vec<u64>> {
        let start = self.first_from(self.sweep_block).or_else(|| self.first_from(0))?;
        let limit_blocks = (self.parameters.merge_bytes_max / BLOCK_BYTES).max(1);
        let run: Vec<u64> = match row_blocks {
            None => (start..start + limit_blocks).take_while(|block| self.waits(*block)).collect(),
            Some(row_blocks) => {
                let row = start / row_blocks * row_blocks;
                let mut end = row + row_blocks;
                while end + row_blocks - row <= limit_blocks && (end..end + row_blocks).all(|block| self.waits(block)) {
                    end += row_blocks;
                }
                self.dirty.range(start..end).map(|(block, _)| *block).filter(|block| self.waits(*block)).collect()
            }
        };
        for block in &run {
            let number = self.dirty.remove(block).expect("a block of the run is dirty");
            self.leaving.insert(*block, number);
        }
        self.sweep_block = run.last().expect("the run begins with a dirty block") + 1;
        self.destaged_blocks += run.len() as u64;
        Some(run)
    }

    fn first_from(&self, block: u64) -> Option<u64> {
        self.dirty.range(block..).map(|(block, _)| *block).find(|block| self.waits(*block))
    }

    /// A block rewritten while its older version is leaving waits for that.
    fn waits(&self, block: u64) -> bool {
        self.dirty.contains_key(&block) && !self.leaving.contains_key(&block)
    }

    /// A run has reached the spindles.
    pub fn run_done(&mut self, run: &[u64]) {
        for block in run {
            let number = self.leaving.remove(block).expect("a block of a finished run was leaving");
            self.by_number.remove(&(number, *block));
        }
    }

    /// Byte ranges with data that is not on the spindles.
    pub fn ranges(&self) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        let blocks: BTreeSet<u64> = self.dirty.keys().chain(self.leaving.keys()).copied().collect();
        for block in blocks {
            let (start, end) = (block * BLOCK_BYTES, (block + 1) * BLOCK_BYTES);
            match ranges.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => ranges.push(start..end),
            }
        }
        ranges
    }
}

/// Lines of recently read data, least recently used first out.
#[derive(Clone, Debug)]
pub(super) struct ReadCache {
    parameters: ReadCacheParameters,
    capacity_lines: usize,
    stamps: BTreeMap<u64, u64>,
    /// Lines with the stamp they had when queued; only the newest entry of a line counts.
    order: VecDeque<(u64, u64)>,
    next_stamp: u64,
}

impl ReadCache {
    pub fn new(parameters: ReadCacheParameters) -> ReadCache {
        let capacity_lines = (parameters.capacity_bytes / parameters.line_bytes) as usize;
        ReadCache { parameters, capacity_lines, stamps: BTreeMap::new(), order: VecDeque::new(), next_stamp: 0 }
    }

    pub fn parameters(&self) -> &ReadCacheParameters {
        &self.parameters
    }

    fn lines(&self, range: Range<u64>) -> Range<u64> {
        range.start / self.parameters.line_bytes..range.end.div_ceil(self.parameters.line_bytes)
    }

    /// Whether the byte is cached.
    pub fn holds(&self, offset_bytes: u64) -> bool {
        self.stamps.contains_key(&(offset_bytes / self.parameters.line_bytes))
    }

    /// `range` widened to whole lines.
    pub fn whole_lines(&self, range: Range<u64>) -> Range<u64> {
        let lines = self.lines(range);
        lines.start * self.parameters.line_bytes..lines.end * self.parameters.line_bytes
    }

    /// Lines of `range` were read: they are in the cache now, and the most recent.
    pub fn touch(&mut self, range: Range<u64>) {
        for line in self.lines(range) {
            self.stamps.insert(line, self.next_stamp);
            self.order.push_back((line, self.next_stamp));
            self.next_stamp += 1;
        }
        while self.stamps.len() > self.capacity_lines || self.order.len() > 2 * self.capacity_lines + 16 {
            let Some((line, stamp)) = self.order.pop_front() else { return };
            if self.stamps.get(&line) != Some(&stamp) {
                continue;
            }
            if self.stamps.len() > self.capacity_lines {
                self.stamps.remove(&line);
            } else {
                // Still wanted: queue it again in its place, which is now the newest of the stale ones.
                self.order.push_front((line, stamp));
                self.compact();
            }
        }
    }

    /// Drops superseded entries of the queue.
    fn compact(&mut self) {
        let stamps = &self.stamps;
        self.order.retain(|(line, stamp)| stamps.get(line) == Some(stamp));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(capacity_blocks: u64) -> WriteCache {
        WriteCache::new(WriteCacheParameters::nvram(capacity_blocks * BLOCK_BYTES))
    }

    #[test]
    fn rewrites_are_absorbed_and_the_limit_holds() {
        let mut cache = cache(4);
        assert!(cache.accept(0..3));
        assert!(cache.accept(1..3), "no room needed");
        assert!(!cache.accept(10..12), "only one block free");
        assert_eq!((cache.absorbed_blocks, cache.used_blocks()), (2, 3));
        assert!(!cache.takes(&(0..5)));
    }

    #[test]
    fn the_sweep_is_ascending_and_wraps() {
        let mut cache = cache(100);
        for block in [50, 7, 8, 30, 9] {
            assert!(cache.accept(block..block + 1));
        }
        assert_eq!(cache.next_run(None), Some(vec![7, 8, 9]));
        assert_eq!(cache.next_run(None), Some(vec![30]));
        assert!(cache.accept(3..4));
        assert_eq!(cache.next_run(None), Some(vec![50]));
        assert_eq!(cache.next_run(None), Some(vec![3]));
        assert_eq!(cache.next_run(None), None);
        assert_eq!(cache.used_blocks(), 6, "leaving blocks keep their room");
        cache.run_done(&[7, 8, 9]);
        assert_eq!(cache.used_blocks(), 3);
    }

    #[test]
    fn rows_are_gathered_whole() {
        let mut cache = cache(100);
        for block in [1, 3, 8, 9, 10, 11, 12] {
            assert!(cache.accept(block..block + 1));
        }
        assert_eq!(cache.next_run(Some(4)), Some(vec![1, 3]));
        assert_eq!(cache.next_run(Some(4)), Some(vec![8, 9, 10, 11]), "the next row is not dirty throughout");
        assert_eq!(cache.next_run(Some(4)), Some(vec![12]));
    }

    #[test]
    fn a_block_rewritten_while_leaving_waits_and_flush_counts_both() {
        let mut cache = cache(10);
        assert!(cache.accept(5..6));
        let run = cache.next_run(None).expect("one block is dirty");
        let first = cache.flush_number();
        assert!(cache.accept(5..6));
        let second = cache.flush_number();
        assert_eq!(cache.next_run(None), None);
        assert!(!cache.is_flushed(first));
        cache.run_done(&run);
        assert!(cache.is_flushed(first) && !cache.is_flushed(second));
        assert_eq!(cache.ranges(), vec![5 * BLOCK_BYTES..6 * BLOCK_BYTES]);
        cache.drop_dirty(0..10);
        assert!(cache.is_flushed(second) && cache.is_empty());
    }

    #[test]
    fn the_read_cache_forgets_the_least_recent() {
        let mut cache = ReadCache::new(ReadCacheParameters { capacity_bytes: 3 * 16384, line_bytes: 16384, hit_ns: 1 });
        for line in [0u64, 1, 2, 0, 3] {
            cache.touch(line * 16384..line * 16384 + 4096);
        }
        let held: Vec<u64> = (0..4).filter(|line| cache.holds(line * 16384)).collect();
        assert_eq!(held, [0, 2, 3]);
        for _ in 0..1000 {
            cache.touch(0..4096);
        }
        assert!(cache.order.len() <= 22, "{} entries for 3 lines", cache.order.len());
        assert!(cache.holds(2 * 16384) && cache.holds(3 * 16384));
    }
}
