//! A sample of the blocks that clients use, for who watches a load: which were used, when, and how they
//! were served. Nothing is decided by it.
//!
//! A block is in the sample or not by its number alone ([`line_hash`] below a threshold), so that all its
//! uses are seen or none: reuse distances in the sample are those of the whole, scaled (Waldspurger and
//! others, "Efficient MRC Construction with SHARDS", FAST 2015). When there are more samples than fit,
//! the threshold of the busiest volume is halved and what lies above it is forgotten, which is what a
//! smaller sample would have held: no time is left out.

use crate::api::{Op, Outcome};
use alloc::vec::Vec;
use types::BLOCK_SECTORS;

/// Samples that are held until somebody takes them: 1 MiB.
pub const SAMPLES_MAX: usize = 1 << 16;
/// Removals held; later ones replace the oldest.
pub const REMOVALS_MAX: usize = 1 << 10;

/// Mixes a block's number so that the result, compared with a threshold, stands for a random choice of
/// blocks. Different blocks have different hashes: each step can be undone ([`line_of`]).
#[inline]
#[must_use]
pub const fn line_hash(line: u64, seed: u64) -> u64 {
    // The low bytes of a product depend on few bits of the number: they go to the top, and the second
    // factor carries all of them there.
    line.wrapping_add(seed).wrapping_mul(FACTOR).swap_bytes().wrapping_mul(FACTOR)
}

/// The block of a hash: the inverse of [`line_hash`].
#[inline]
#[must_use]
pub const fn line_of(hash: u64, seed: u64) -> u64 {
    hash.wrapping_mul(INVERSE).swap_bytes().wrapping_mul(INVERSE).wrapping_sub(seed)
}

/// Odd, and without pattern: 2^64 divided by the golden ratio.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
const INVERSE: u64 = inverse(FACTOR);

/// The inverse of an odd number modulo 2^64, by Newton's method: each step doubles the right bits.
const fn inverse(odd: u64) -> u64 {
    let mut inverse = odd;
    let mut step = 0;
    while step < 6 {
        inverse = inverse.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(inverse)));
        step += 1;
    }
    inverse
}

const _: () = assert!(FACTOR.wrapping_mul(INVERSE) == 1);

/// A request that was answered, as far as a sample tells of it.
#[derive(Clone, Copy, Debug)]
pub struct Used {
    /// The volume, by any number that is its own.
    pub volume: u32,
    /// When, in milliseconds on any scale that does not go back; wraps.
    pub time_ms: u32,
    /// What was asked.
    pub op: Op,
    /// First sector in the volume.
    pub start_sector: u64,
    /// How many sectors.
    pub sectors: u32,
    /// How it was served.
    pub outcome: Outcome,
    /// It is part of a sequential stream.
    pub sequential: bool,
}

/// One use of one sampled block, in 16 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    place: u64,
    /// Which volume.
    pub volume: u32,
    /// When it was answered.
    pub time_ms: u32,
}

const _: () = assert!(size_of::<Sample>() == 16);

const BLOCK_BITS: u32 = 34;
const WRITE: u64 = 1 << BLOCK_BITS;
const SEQUENTIAL: u64 = 1 << (BLOCK_BITS + 1);
const OUTCOME_SHIFT: u32 = BLOCK_BITS + 2;
const OUTCOMES: [Outcome; 8] = [
    Outcome::RamHit,
    Outcome::SsdHit,
    Outcome::Miss,
    Outcome::Bypass,
    Outcome::WriteBack,
    Outcome::WriteThrough,
    Outcome::Other,
    Outcome::BackingFlush,
];

impl Sample {
    /// The block.
    #[must_use]
    pub fn block(self) -> u64 {
        self.place & (WRITE - 1)
    }

    /// Whether it was written; otherwise it was read.
    #[must_use]
    pub fn is_write(self) -> bool {
        self.place & WRITE != 0
    }

    /// Whether the request was part of a sequential stream.
    #[must_use]
    pub fn is_sequential(self) -> bool {
        self.place & SEQUENTIAL != 0
    }

    /// How it was served.
    #[must_use]
    pub fn outcome(self) -> Outcome {
        OUTCOMES[(self.place >> OUTCOME_SHIFT) as usize % OUTCOMES.len()]
    }
}

/// Blocks whose content a client gave up (discards and zeroes).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Removed {
    /// Which volume.
    pub volume: u32,
    /// When.
    pub time_ms: u32,
    /// First block, whole ones only.
    pub start_block: u64,
    /// How many.
    pub blocks: u64,
}

/// What was sampled since it was taken last.
#[derive(Debug, Default)]
pub struct Tap {
    samples: Vec<Sample>,
    removed: Vec<Removed>,
    /// Where the next removal goes when there is no room for more.
    oldest_removed: usize,
}

impl Tap {
    /// Takes note of an answered request of a volume whose blocks are sampled below this hash.
    #[inline]
    pub fn note(&mut self, used: &Used, below: u64) {
        let first = used.start_sector / BLOCK_SECTORS;
        let end = (used.start_sector + u64::from(used.sectors)).div_ceil(BLOCK_SECTORS);
        match used.op {
            Op::Read | Op::Write => {
                // The first product of [`line_hash`], from block to block: no two blocks have the same.
                let (mut product, end) = (first.wrapping_mul(FACTOR), end.wrapping_mul(FACTOR));
                while product != end {
                    if product.swap_bytes().wrapping_mul(FACTOR) < below {
                        // In the open, the compiler would count blocks along with products: one more instruction for those that
                        // are not taken, and those are nearly all.
                        self.take_sample(used, core::hint::black_box(product).wrapping_mul(INVERSE));
                    }
                    product = product.wrapping_add(FACTOR);
                }
            }
            Op::Discard | Op::PunchHole | Op::WriteZeroes => self.note_removed(used),
            Op::Flush => {}
        }
    }

    #[inline]
    fn take_sample(&mut self, used: &Used, block: u64) {
        let write = u64::from(used.op == Op::Write) << BLOCK_BITS;
        let sequential = u64::from(used.sequential) << (BLOCK_BITS + 1);
        let place = block | write | sequential | (used.outcome as u64) << OUTCOME_SHIFT;
        self.samples.push(Sample { place, volume: used.volume, time_ms: used.time_ms });
    }

    #[cold]
    fn note_removed(&mut self, used: &Used) {
        // Parts of blocks at the edges stay in use.
        let start_block = used.start_sector.div_ceil(BLOCK_SECTORS);
        let end = (used.start_sector + u64::from(used.sectors)) / BLOCK_SECTORS;
        let Some(blocks) = end.checked_sub(start_block).filter(|blocks| *blocks > 0) else { return };
        let removed = Removed { volume: used.volume, time_ms: used.time_ms, start_block, blocks };
        if self.removed.len() < REMOVALS_MAX {
            self.removed.push(removed);
        } else {
            self.removed[self.oldest_removed] = removed;
            self.oldest_removed = (self.oldest_removed + 1) % REMOVALS_MAX;
        }
    }

    /// Whether there are more samples than may be held.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.samples.len() > SAMPLES_MAX
    }

    /// If there are: the volume with most of them, whose sample is to
    /// become smaller by [`Tap::thin`].
    #[must_use]
    pub fn fullest(&self) -> Option<u32> {
        if !self.is_full() {
            return None;
        }
        let mut volumes: Vec<u32> = self.samples.iter().map(|sample| sample.volume).collect();
        volumes.sort_unstable();
        volumes.chunk_by(|one, other| one == other).max_by_key(|same| same.len()).map(|same| same[0])
    }

    /// Forgets what a volume's sample would not hold with this threshold.
    pub fn thin(&mut self, volume: u32, below: u64) {
        self.samples.retain(|sample| sample.volume != volume || line_hash(sample.block(), 0) < below);
    }

    /// What was sampled since the last time, in the order in which it was answered.
    pub fn take(&mut self) -> (Vec<Sample>, Vec<Removed>) {
        self.oldest_removed = 0;
        (core::mem::take(&mut self.samples), core::mem::take(&mut self.removed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(op: Op, start_sector: u64, sectors: u32) -> Used {
        Used { volume: 7, time_ms: 9, op, start_sector, sectors, outcome: Outcome::Miss, sequential: false }
    }

    #[test]
    fn a_hash_can_be_undone() {
        for line in (0..1000).chain([1 << 33, (1 << 34) - 1, u64::MAX]) {
            for seed in [0, 1, 0xdead_beef_0123_4567] {
                assert_eq!(line_of(line_hash(line, seed), seed), line);
            }
        }
    }

    /// Wherever the blocks lie and whatever their stride: as many as the threshold says, within four
    /// standard deviations.
    #[test]
    fn strides_and_neighbours_are_sampled_fairly() {
        for stride in [1_u64, 2, 3, 4, 8, 13, 16, 21, 64, 128, 233, 256, 1024, 4096, 65536] {
            for first in [0_u64, 1 << 20, 0x1_2345_6789] {
                for rate in [2_u64, 16, 128] {
                    let count = 1 << 16;
                    let hits = (0..count).filter(|n| line_hash((first + n * stride) % (1 << 34), 0) < u64::MAX / rate).count();
                    let expected = (count / rate) as f64;
                    let off = (hits as f64 - expected).abs() / expected.sqrt();
                    assert!(off < 4.0, "stride {stride} from {first}: {hits} of {expected}");
                }
            }
        }
    }

    #[test]
    fn all_blocks_of_a_request_are_told_as_they_were_used() {
        let mut tap = Tap::default();
        for (n, outcome) in OUTCOMES.into_iter().enumerate() {
            for (op, sequential) in [(Op::Read, true), (Op::Write, false)] {
                let start_sector = ((1 << 34) - 3) * BLOCK_SECTORS + 7;
                tap.note(&Used { op, outcome, sequential, time_ms: n as u32, ..used(op, start_sector, 10) }, u64::MAX);
                let (samples, _) = tap.take();
                let blocks: Vec<u64> = samples.iter().map(|sample| sample.block()).collect();
                assert_eq!(blocks, [(1 << 34) - 3, (1 << 34) - 2, (1 << 34) - 1]);
                for sample in samples {
                    assert_eq!((sample.is_write(), sample.is_sequential(), sample.outcome()), (op == Op::Write, sequential, outcome));
                    assert_eq!((sample.volume, sample.time_ms), (7, n as u32));
                }
            }
        }
        tap.note(&used(Op::Read, 0, 8), 0);
        tap.note(&used(Op::Flush, 0, 0), u64::MAX);
        assert!(tap.take().0.is_empty(), "off, and a flush");
    }

    #[test]
    fn removals_are_of_whole_blocks_and_bounded() {
        let mut tap = Tap::default();
        for (start, sectors, expected) in [(0, 8, Some((0, 1))), (1, 15, Some((1, 1))), (1, 14, None), (8, 4, None), (8, 20, Some((1, 2)))]
        {
            tap.note(&used(Op::Discard, start, sectors), u64::MAX);
            let told = tap.take().1.first().map(|removed| (removed.start_block, removed.blocks));
            assert_eq!(told, expected, "{start}+{sectors}");
        }
        (0..REMOVALS_MAX as u64 + 5).for_each(|n| tap.note(&used(Op::WriteZeroes, n * 8, 8), 0));
        let (_, removed) = tap.take();
        assert_eq!(removed.len(), REMOVALS_MAX);
        assert!(removed.iter().any(|removed| removed.start_block == REMOVALS_MAX as u64 + 4), "the newest is there");
    }

    #[test]
    fn a_full_tap_holds_what_a_smaller_sample_would_have_held() {
        let (mut tap, mut below) = (Tap::default(), u64::MAX);
        let busy = |n: u64| Used { volume: 1, ..used(Op::Read, line_hash(n, 3) % (1 << 30) * 8, 8) };
        let quiet = |n: u64| Used { volume: 2, ..used(Op::Read, line_hash(n, 4) % 1000 * 8, 8) };
        let all = 4 * SAMPLES_MAX as u64;
        for n in 0..all {
            tap.note(&busy(n), below);
            if n % 100 == 0 {
                tap.note(&quiet(n), u64::MAX);
            }
            if let Some(volume) = tap.fullest() {
                assert_eq!(volume, 1);
                below /= 2;
                tap.thin(1, below);
            }
        }
        let (samples, _) = tap.take();
        let expected: Vec<u64> = (0..all).map(|n| busy(n).start_sector / 8).filter(|block| line_hash(*block, 0) < below).collect();
        let of_busy: Vec<u64> = samples.iter().filter(|sample| sample.volume == 1).map(|sample| sample.block()).collect();
        assert_eq!(of_busy, expected);
        assert_eq!(samples.iter().filter(|sample| sample.volume == 2).count() as u64, all.div_ceil(100));
    }
}
