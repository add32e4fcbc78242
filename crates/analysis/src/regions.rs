//! Where the hot parts are: ranges of blocks in the order of what a cache gains by holding them.
//!
//! The uses that are kept are of a sample of the blocks, so a region is made as long as it takes to have
//! [`SAMPLED_MIN`] blocks in the sample: what is told of one block tells little of its neighbours, but what
//! is told of eight of a region does.

use crate::kept::Kept;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// The shortest region, in blocks: 1 MiB, which a disk reads in one request.
pub const REGION_BLOCKS_MIN: u64 = 256;
/// Blocks of a region that are in the sample, on average.
pub const SAMPLED_MIN: u64 = 8;

/// Part of a region.
#[derive(Clone, PartialEq, Debug)]
pub struct Region {
    /// Its blocks.
    pub blocks: Range<u64>,
    /// Reads of blocks that were used before, a block of it: hits that a cache would have had.
    pub gain: f64,
}

/// Cuts ranges of blocks, which do not overlap, into regions; those that gain most come first, among equals the lower address.
#[must_use]
pub fn by_gain(kept: &Kept, ranges: &[Range<u64>]) -> Vec<Region> {
    let rate = kept.rate().max(f64::MIN_POSITIVE);
    let length = ((SAMPLED_MIN as f64 / rate) as u64).next_power_of_two().max(REGION_BLOCKS_MIN);
    let (mut seen, mut again): (HashSet<u64>, HashMap<u64, u64>) = (HashSet::new(), HashMap::new());
    for used in kept.uses().filter(|used| !used.is_scan) {
        // What was written is in a cache as well as what was read.
        if !seen.insert(used.block) && !used.is_write {
            *again.entry(used.block / length).or_default() += 1;
        }
    }
    let mut regions = Vec::new();
    for range in ranges {
        let mut start = range.start;
        while start < range.end {
            let number = start / length;
            let end = ((number + 1) * length).min(range.end);
            let gain = again.get(&number).map_or(0.0, |count| *count as f64 / (rate * length as f64));
            regions.push(Region { blocks: start..end, gain });
            start = end;
        }
    }
    regions.sort_by(|one, other| other.gain.total_cmp(&one.gain).then(one.blocks.start.cmp(&other.blocks.start)));
    regions
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line_hash;

    /// Reads of a hot gibibyte at the end of eight, of a hundred other blocks once each, and a scan of everything.
    fn kept(uses_max: usize) -> Kept {
        let mut kept = Kept::new(0, uses_max);
        for n in 0..400_000_u64 {
            let hot = line_hash(n, 1) % (1 << 18);
            kept.note(7 * (1 << 18) + hot, n % 10 == 0, false, n);
            kept.note(n * 5 % (1 << 21), false, true, n);
            if n < 100 {
                kept.note(n * 1000, false, false, n);
            }
        }
        kept
    }

    #[test]
    fn what_is_read_again_comes_first_and_nothing_is_lost() {
        let (mut seen, mut all_gain) = (HashSet::new(), 0.0);
        for used in kept(1 << 20).uses().filter(|used| !used.is_scan) {
            all_gain += f64::from(u8::from(!seen.insert(used.block) && !used.is_write));
        }
        for uses_max in [1 << 20, 1 << 16] {
            let kept = kept(uses_max);
            let all = 0..1 << 21;
            let regions = by_gain(&kept, std::slice::from_ref(&all));
            let hot: Vec<_> = regions.iter().filter(|region| region.gain > 0.0).collect();
            assert!(hot.iter().all(|region| region.blocks.start >= 7 << 18), "scans and single reads are nothing to gain");
            let hot_blocks: u64 = hot.iter().map(|region| region.blocks.end - region.blocks.start).sum();
            assert!(hot_blocks > (1 << 18) * 9 / 10, "{hot_blocks}");
            let gain = hot.iter().map(|region| region.gain * (region.blocks.end - region.blocks.start) as f64).sum::<f64>();
            assert!((all_gain * 0.95..all_gain * 1.05).contains(&gain), "{gain} of {all_gain}");
            let mut blocks: Vec<_> = regions.iter().map(|region| region.blocks.clone()).collect();
            blocks.sort_by_key(|range| range.start);
            assert!(blocks[0].start == 0 && blocks.last().is_some_and(|last| last.end == all.end));
            assert!(blocks.windows(2).all(|pair| pair[0].end == pair[1].start));
        }
    }

    #[test]
    fn regions_stay_within_the_ranges() {
        let regions = by_gain(&kept(1 << 20), &[100..300, 7 << 18..(7 << 18) + 10]);
        let blocks: Vec<_> = regions.iter().map(|region| region.blocks.clone()).collect();
        assert_eq!(blocks, [7 << 18..(7 << 18) + 10, 100..256, 256..300]);
    }
}
