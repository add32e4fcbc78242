//! The uses of a sample of blocks, kept in order, to be sent through miniature caches later.
//!
//! When there are more than fit, half of the blocks are forgotten with all their uses: what stays is the
//! whole window still, of fewer blocks.

use crate::saved::{In, Out, Unreadable};
use engine::tap::line_hash;

const BLOCK_BITS: u32 = 34;
const WRITE: u64 = 1 << BLOCK_BITS;
const SCAN: u64 = 1 << (BLOCK_BITS + 1);
const TIME_SHIFT: u32 = BLOCK_BITS + 2;
/// Times are kept in units of so many milliseconds: 28 bits of them are 310 days.
const TIME_UNIT_MS: u64 = 100;

/// One use of one block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Use {
    /// The block.
    pub block: u64,
    /// A write; otherwise a read.
    pub is_write: bool,
    /// By a scan or backup.
    pub is_scan: bool,
    /// When, in milliseconds since the window began, to a tenth of a second.
    pub time_ms: u64,
}

/// See the module.
#[derive(Clone)]
pub struct Kept {
    uses: Vec<u64>,
    uses_max: usize,
    /// Blocks with smaller hashes are kept.
    below: u64,
    begun_ms: u64,
}

impl Kept {
    /// None yet; at most that many, at least 1.
    #[must_use]
    pub fn new(begun_ms: u64, uses_max: usize) -> Kept {
        Kept { uses: Vec::new(), uses_max: uses_max.max(1), below: u64::MAX, begun_ms }
    }

    /// Bytes that one takes at most which keeps so many.
    #[must_use]
    pub fn bytes_of(uses_max: usize) -> usize {
        uses_max * 8
    }

    /// Only blocks with smaller hashes are kept.
    #[must_use]
    pub fn below(&self) -> u64 {
        self.below
    }

    /// Share of the blocks whose uses are kept, from 0 to 1.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.below as f64 / u64::MAX as f64
    }

    /// A block was used; kept if it is in the sample.
    pub fn note(&mut self, block: u64, is_write: bool, is_scan: bool, now_ms: u64) {
        if line_hash(block, 0) >= self.below {
            return;
        }
        if self.uses.len() == self.uses_max {
            self.lower_to(self.below / 2);
            return self.note(block, is_write, is_scan, now_ms);
        }
        if self.uses.capacity() == self.uses.len() {
            // Not twice as many as may ever be.
            self.uses.reserve_exact((self.uses.len().max(64)).min(self.uses_max - self.uses.len()));
        }
        let time = (now_ms.saturating_sub(self.begun_ms) / TIME_UNIT_MS).min(u64::MAX >> TIME_SHIFT);
        let bits = if is_write { WRITE } else { 0 } | if is_scan { SCAN } else { 0 };
        self.uses.push(block & (WRITE - 1) | bits | time << TIME_SHIFT);
    }

    /// The window lies so much later.
    pub(crate) fn shift(&mut self, ms: u64) {
        self.begun_ms += ms;
    }

    /// Only blocks with smaller hashes are kept from now on, and of those that are.
    pub fn lower_to(&mut self, below: u64) {
        if below < self.below {
            self.below = below;
            self.uses.retain(|packed| line_hash(packed & (WRITE - 1), 0) < below);
        }
    }

    /// Keeps at most that many from now on, at least 1.
    pub fn shrink(&mut self, uses_max: usize) {
        self.uses_max = uses_max.clamp(1, self.uses_max);
        while self.uses.len() > self.uses_max {
            self.lower_to(self.below / 2);
        }
        self.uses.shrink_to(self.uses_max);
    }

    /// The window begins anew.
    pub fn restart(&mut self, begun_ms: u64) {
        *self = Kept { uses: std::mem::take(&mut self.uses), ..Kept::new(begun_ms, self.uses_max) };
        self.uses.clear();
    }

    pub(crate) fn put(&self, out: &mut Out) {
        out.u64(self.below);
        out.u64s(&self.uses);
    }

    pub(crate) fn take(from: &mut In<'_>, begun_ms: u64, uses_max: usize) -> Result<Kept, Unreadable> {
        let below = from.u64()?;
        let uses: Vec<u64> = from.u64s(uses_max)?.collect();
        if uses.iter().any(|packed| line_hash(packed & (WRITE - 1), 0) >= below) {
            return Err(Unreadable::Nonsense("a use"));
        }
        Ok(Kept { uses, below, ..Kept::new(begun_ms, uses_max) })
    }

    /// All of them, oldest first.
    pub fn uses(&self) -> impl Iterator<Item = Use> + '_ {
        self.uses.iter().map(|packed| Use {
            block: packed & (WRITE - 1),
            is_write: packed & WRITE != 0,
            is_scan: packed & SCAN != 0,
            time_ms: (packed >> TIME_SHIFT) * TIME_UNIT_MS,
        })
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.uses.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.uses.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_all_uses_of_some_blocks() {
        let mut kept = Kept::new(1000, 4000);
        for n in 0..100_000_u64 {
            kept.note(line_hash(n, 1) % 20_000, n % 3 == 0, n % 5 == 0, 1000 + n * 10);
        }
        assert!(kept.len() <= 4000 && kept.len() > 1500 && kept.rate() < 0.05, "{} at {}", kept.len(), kept.rate());
        let expected: Vec<Use> = (0..100_000_u64)
            .map(|n| Use { block: line_hash(n, 1) % 20_000, is_write: n % 3 == 0, is_scan: n % 5 == 0, time_ms: n * 10 / 100 * 100 })
            .filter(|used| line_hash(used.block, 0) < kept.below())
            .collect();
        assert!(kept.uses().eq(expected));
        kept.restart(5);
        assert!(kept.is_empty() && kept.below() == u64::MAX);
    }

    #[test]
    fn the_largest_block_and_the_longest_time_fit() {
        let mut kept = Kept::new(0, 1);
        kept.note((1 << 34) - 1, true, true, u64::MAX);
        let told = kept.uses().next().expect("one");
        assert_eq!((told.block, told.is_write, told.is_scan), ((1 << 34) - 1, true, true));
        assert_eq!(told.time_ms, ((1 << 28) - 1) * 100);
    }
}
