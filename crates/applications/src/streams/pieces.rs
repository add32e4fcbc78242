//! The blocks that a run has read so far, in little memory.

use std::ops::Range;

/// Blocks are 4 KiB, the unit of caching.
pub const BLOCK_BYTES: u64 = 4096;
/// Pieces kept of a run. The 512 KiB before a scan is sure are 32 pages of 16 KiB; the recorded
/// dump in key order has 3.4 of them in a piece on average. A piece too many drops the oldest.
const PIECES_MAX: usize = 10;
const COUNT_BITS: u32 = 20;
const COUNT_MAX: u64 = (1 << COUNT_BITS) - 1;
const FIRST_MAX: u64 = (1 << (64 - COUNT_BITS)) - 1;

/// Runs of blocks, in order of reading: first block above 20 bits of count, 8 bytes each.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pieces {
    packed: [u64; PIECES_MAX],
    count: u8,
}

impl Pieces {
    /// Adds the blocks that a range of bytes touches; beyond 2^44 blocks (64 PiB) nothing is kept.
    pub fn push(&mut self, bytes: &Range<u64>) {
        let (mut first, end) = (bytes.start / BLOCK_BYTES, bytes.end.div_ceil(BLOCK_BYTES));
        if bytes.is_empty() || end > FIRST_MAX {
            return;
        }
        if let Some(last) = usize::from(self.count).checked_sub(1) {
            let (start, length) = unpack(self.packed[last]);
            if start <= first && first <= start + length && end - start <= COUNT_MAX {
                self.packed[last] = pack(start, (end - start).max(length));
                return;
            }
        }
        while first < end {
            let length = (end - first).min(COUNT_MAX);
            if usize::from(self.count) == PIECES_MAX {
                self.packed.rotate_left(1);
                self.count -= 1;
            }
            self.packed[usize::from(self.count)] = pack(first, length);
            self.count += 1;
            first += length;
        }
    }

    /// Their ranges of bytes, whole blocks, in order of reading.
    pub fn ranges(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.packed[..usize::from(self.count)].iter().map(|packed| {
            let (first, length) = unpack(*packed);
            first * BLOCK_BYTES..(first + length) * BLOCK_BYTES
        })
    }
}

fn pack(first: u64, length: u64) -> u64 {
    first << COUNT_BITS | length
}

fn unpack(packed: u64) -> (u64, u64) {
    (packed >> COUNT_BITS, packed & COUNT_MAX)
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)]
mod tests {
    use super::*;

    fn check(pushed: &[Range<u64>], kept: &[Range<u64>]) {
        let mut pieces = Pieces::default();
        for range in pushed {
            pieces.push(range);
        }
        assert_eq!(pieces.ranges().collect::<Vec<_>>(), kept);
    }

    #[test]
    fn neighbours_are_one_piece_and_blocks_are_whole() {
        check(&[0..16384, 16384..32768], &[0..32768]);
        check(&[100..200, 5000..6000], &[0..8192]);
        check(&[0..4096, 8192..12288], &[0..4096, 8192..12288]);
        check(&[0..8192, 4096..8192], &[0..8192]);
        check(&[5..5, u64::MAX - 10..u64::MAX], &[]);
    }

    #[test]
    fn the_oldest_piece_goes_first() {
        let pushed: Vec<_> = (0..12u64).map(|at| at * 65536..at * 65536 + 4096).collect();
        check(&pushed, &pushed[2..]);
    }
}
