//! Blocks that a scan has just read: their sampled uses count as the scan's.

use std::collections::HashMap;
use std::ops::Range;
use types::BLOCK_BYTES;

/// A use and the request that it is of are told within this time of each other.
const NEAR_MS: u64 = 3_000;
/// Most blocks that are marked, of those that are sampled: as many as fit into a table of 2048 places, 35 KiB.
const MARKS_MAX: usize = 1792;

/// See the module.
#[derive(Default)]
pub struct Marks {
    by_block: HashMap<u64, u64>,
}

impl Marks {
    /// A scan has read these bytes; only blocks that are sampled need be marked.
    pub fn mark(&mut self, bytes: &Range<u64>, now_ms: u64, is_sampled: impl Fn(u64) -> bool) {
        for block in bytes.start / BLOCK_BYTES..bytes.end.div_ceil(BLOCK_BYTES) {
            if is_sampled(block) && self.by_block.len() < MARKS_MAX {
                self.by_block.insert(block, now_ms);
            }
        }
    }

    /// Whether the use of a block at that time was a scan's.
    pub fn is_scan(&self, block: u64, at_ms: u64) -> bool {
        self.by_block.get(&block).is_some_and(|marked_ms| marked_ms.abs_diff(at_ms) <= NEAR_MS)
    }

    /// Forgets what is long past.
    pub fn forget(&mut self, now_ms: u64) {
        self.by_block.retain(|_, marked_ms| now_ms.saturating_sub(*marked_ms) <= 2 * NEAR_MS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_of_its_time() {
        let mut marks = Marks::default();
        marks.mark(&(8192..20_000), 10_000, |block| block != 3);
        assert!(marks.is_scan(2, 10_500) && marks.is_scan(4, 9_000));
        assert!(!marks.is_scan(3, 10_000), "it is not sampled");
        assert!(!marks.is_scan(1, 10_000) && !marks.is_scan(5, 10_000) && !marks.is_scan(2, 20_000));
        marks.forget(20_000);
        assert!(!marks.is_scan(2, 10_000));
    }
}
