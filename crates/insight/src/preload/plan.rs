//! The plan of a preload: ranges in address order, read in pieces of up to 1 MiB.
//!
//! A disk that turns reads what lies between two ranges in less time than it needs to seek past it, as long as that is short. So short gaps are read,
//! around the cache: what was not asked for costs the SSD nothing. Longer ones are skipped.
//!
//! Properties, tested below: each wanted byte is in exactly one piece that is kept; pieces ascend and do not overlap; what is read and not kept lies
//! between two ranges and is no longer than [`GAP_BYTES_MAX`]; a plan taken up at any position keeps all that is wanted from there on.

use datapath::{PIECE_BYTES_MAX, Piece};
use std::ops::Range;
use types::BLOCK_BYTES;

/// The longest gap that is read: what a 7,200 rpm disk reads (150 MB/s) in the time of a seek (8.5 ms), in whole blocks.
pub const GAP_BYTES_MAX: u64 = 150_000_000 / 10_000 * 85 / BLOCK_BYTES * BLOCK_BYTES;
/// Most ranges of a plan: what a job is remembered by stays below 2 MiB. More are joined where the least lies between.
pub const RANGES_MAX: usize = 65_536;
/// Which bytes are to be kept, in address order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// Ascending, none empty, at least a block between two of them.
    ranges: Vec<Range<u64>>,
}

impl Plan {
    /// Whole blocks of `ranges`, which come in the order of their worth: of those within `budget_bytes`. What lies beyond `volume_bytes` is left out.
    /// The last block of a volume may be cut short.
    pub fn new(ranges: &[Range<u64>], budget_bytes: Option<u64>, volume_bytes: u64) -> Plan {
        let mut left_bytes = budget_bytes.unwrap_or(u64::MAX);
        let mut within = Vec::new();
        for range in ranges {
            let start = range.start / BLOCK_BYTES * BLOCK_BYTES;
            let end = range.end.min(volume_bytes).checked_next_multiple_of(BLOCK_BYTES).map_or(volume_bytes, |end| end.min(volume_bytes));
            if range.is_empty() || start >= end {
                continue;
            }
            let length_bytes = (end - start).min(left_bytes / BLOCK_BYTES * BLOCK_BYTES);
            if length_bytes == 0 {
                break;
            }
            within.push(start..start + length_bytes);
            left_bytes -= length_bytes;
        }
        within.sort_unstable_by_key(|range| (range.start, range.end));
        let mut plan = Plan { ranges: join(within) };
        plan.coarsen(RANGES_MAX);
        plan.cut(budget_bytes.unwrap_or(u64::MAX));
        plan
    }

    /// A plan whose ranges are as [`Plan::ranges`] gave them. `None`: they are not.
    pub fn of_ranges(ranges: Vec<Range<u64>>) -> Option<Plan> {
        let ascend = ranges.windows(2).all(|pair| pair[0].end < pair[1].start);
        let whole = ranges.iter().all(|range| range.start < range.end && range.start.is_multiple_of(BLOCK_BYTES));
        (ascend && whole && ranges.len() <= RANGES_MAX).then_some(Plan { ranges })
    }

    /// At most so many ranges: the shortest gaps become part of them.
    fn coarsen(&mut self, ranges_max: usize) {
        let Some(excess) = self.ranges.len().checked_sub(ranges_max).filter(|excess| *excess > 0) else { return };
        let mut gaps: Vec<(u64, usize)> =
            self.ranges.windows(2).enumerate().map(|(index, pair)| (pair[1].start - pair[0].end, index)).collect();
        gaps.select_nth_unstable(excess - 1);
        let mut filled = vec![false; self.ranges.len()];
        gaps[..excess].iter().for_each(|(_, index)| filled[*index] = true);
        let mut joined: Vec<Range<u64>> = Vec::with_capacity(ranges_max);
        let mut goes_on = false;
        for (index, range) in self.ranges.iter().enumerate() {
            match joined.last_mut().filter(|_| goes_on) {
                Some(last) => last.end = range.end,
                None => joined.push(range.clone()),
            }
            goes_on = filled[index];
        }
        self.ranges = joined;
    }

    /// What coarsening made of it may be more than the budget: it ends earlier.
    fn cut(&mut self, budget_bytes: u64) {
        let mut left_bytes = budget_bytes;
        for range in &mut self.ranges {
            if range.end - range.start > left_bytes {
                range.end = range.start + left_bytes / BLOCK_BYTES * BLOCK_BYTES;
                left_bytes = 0;
            }
            left_bytes = left_bytes.saturating_sub(range.end - range.start);
        }
        self.ranges.retain(|range| !range.is_empty());
    }

    /// What is kept: ascending, with at least a block between two.
    pub fn ranges(&self) -> &[Range<u64>] {
        &self.ranges
    }

    /// How many bytes are kept: what the SSD writes for it, if nothing of it is cached and blocks are stored as they are.
    pub fn bytes(&self) -> u64 {
        self.ranges.iter().map(|range| range.end - range.start).sum()
    }

    /// How many bytes are read, gaps included.
    pub fn read_bytes(&self) -> u64 {
        let gaps = self.ranges.windows(2).map(|pair| pair[1].start - pair[0].end);
        self.bytes() + gaps.filter(|gap| *gap <= GAP_BYTES_MAX).sum::<u64>()
    }

    /// How many of the bytes to be kept lie below a position.
    pub fn bytes_below(&self, at_bytes: u64) -> u64 {
        let below = &self.ranges[..self.ranges.partition_point(|range| range.start < at_bytes)];
        below.iter().map(|range| range.end.min(at_bytes) - range.start).sum()
    }

    /// The position below which all but `bytes` of what lies below `at_bytes` are: to read that much once more.
    pub fn back_by(&self, at_bytes: u64, bytes: u64) -> u64 {
        let mut left_bytes = bytes;
        let begun = self.ranges.partition_point(|range| range.start < at_bytes);
        for range in self.ranges[..begun].iter().rev() {
            let end = range.end.min(at_bytes);
            if end - range.start >= left_bytes {
                return (end - left_bytes) / BLOCK_BYTES * BLOCK_BYTES;
            }
            left_bytes -= end - range.start;
        }
        0
    }

    /// What is to be read next at a position, in order, up to about `most_bytes` of it and at least one piece; none at the end. Pieces have at most
    /// `piece_bytes_max`, which is at least a block.
    pub fn pieces(&self, at_bytes: u64, most_bytes: u64, piece_bytes_max: u64) -> Vec<Piece> {
        let piece_bytes_max = (piece_bytes_max / BLOCK_BYTES * BLOCK_BYTES).clamp(BLOCK_BYTES, PIECE_BYTES_MAX);
        let mut pieces = Vec::new();
        let mut left_bytes = most_bytes.max(1);
        let first = self.ranges.partition_point(|range| range.end <= at_bytes);
        let at_bytes = at_bytes / BLOCK_BYTES * BLOCK_BYTES;
        for (index, range) in self.ranges.iter().enumerate().skip(first) {
            let gap = match index.checked_sub(1).map(|before| self.ranges[before].end) {
                Some(end) if range.start - end <= GAP_BYTES_MAX => end.max(at_bytes)..range.start,
                _ => range.start..range.start,
            };
            let wanted = range.start.max(at_bytes)..range.end;
            for (part, is_kept) in [(gap, false), (wanted, true)] {
                let mut start = part.start;
                while start < part.end {
                    if left_bytes == 0 {
                        return pieces;
                    }
                    let border = (start / PIECE_BYTES_MAX + 1) * PIECE_BYTES_MAX;
                    let end = part.end.min(border).min(start + piece_bytes_max);
                    pieces.push(Piece { at_bytes: start, length_bytes: end - start, is_kept });
                    left_bytes = left_bytes.saturating_sub(end - start);
                    start = end;
                }
            }
        }
        pieces
    }
}

/// Ranges that ascend by their start, made one where they overlap or touch.
fn join(ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    let mut joined: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match joined.last_mut().filter(|last| range.start <= last.end) {
            Some(last) => last.end = last.end.max(range.end),
            None => joined.push(range),
        }
    }
    joined
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)]
mod tests;
