//! The checksum of PostgreSQL pages: 32 running FNV-1a hashes, folded to 16 bits with the block
//! number.
//!
//! Source: `storage/checksum_impl.h` of PostgreSQL (its description, and its table of start
//! values).

use crate::bytes::{le16, le32};

/// FNV prime.
const PRIME: u32 = 16_777_619;
/// Hashes that run side by side.
const LANES: usize = 32;
/// What the hashes begin with.
#[rustfmt::skip]
const START: [u32; LANES] = [
    0x5b1f_36e9, 0xb852_5960, 0x02ab_50aa, 0x1de6_6d2a, 0x79ff_467a, 0x9bb9_f8a3, 0x217e_7cd2, 0x83e1_3d2c,
    0xf8d4_474f, 0xe39e_b970, 0x42c6_ae16, 0x9932_16fa, 0x7b09_3b5d, 0x98da_ff3c, 0xf718_902a, 0x0b1c_9cdb,
    0xe58f_764b, 0x1876_36bc, 0x5d7b_3bb1, 0xe73d_e7de, 0x92be_c979, 0xcca6_c0b2, 0x304a_0979, 0x85aa_43d4,
    0x7831_25bb, 0x6ca8_eaa2, 0xe407_eac6, 0x4b5c_fc3e, 0x9fbf_8c76, 0x15ca_20be, 0xf2ca_9fd3, 0x959b_d756,
];
/// Numbers that the 16 bits can be: 0 means "no checksum".
const VALUES: u32 = 65535;
/// Blocks that candidates are given for: those of a file of 1 GiB of 8 KiB pages.
const BLOCKS: u32 = 1 << 17;

/// The hash of a page with its checksum taken as zero, before the block number comes in.
pub(super) fn hash(page: &[u8]) -> u32 {
    let mut lanes = START;
    let mut mix = |words: &[u32; LANES]| {
        for (lane, word) in lanes.iter_mut().zip(words) {
            let mixed = *lane ^ word;
            *lane = mixed.wrapping_mul(PRIME) ^ (mixed >> 17);
        }
    };
    for (row, bytes) in page.chunks_exact(LANES * 4).enumerate() {
        let mut words = [0; LANES];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(4)) {
            *word = le32(bytes, 0);
        }
        if row == 0 {
            // `pd_checksum` is the low half of the third word.
            words[2] &= 0xffff_0000;
        }
        mix(&words);
    }
    mix(&[0; LANES]);
    mix(&[0; LANES]);
    lanes.iter().fold(0, |folded, lane| folded ^ lane)
}

/// Whether a page's checksum says that it is block `block` of its relation, and whole. `None` if it
/// carries no checksum. A page of another place fits once in 65,535.
#[must_use]
pub fn holds(page: &[u8], block: u32) -> Option<bool> {
    Sum::of(page).holds(block)
}

/// What a page's checksum says of its block number.
pub(super) struct Sum {
    hash: u32,
    /// 0 if the page carries none.
    sum: u32,
}

impl Sum {
    pub(super) fn of(page: &[u8]) -> Sum {
        let sum = u32::from(le16(page, 8));
        Sum { hash: if sum == 0 { 0 } else { hash(page) }, sum }
    }

    /// As [`holds`].
    pub(super) fn holds(&self, block: u32) -> Option<bool> {
        (self.sum != 0).then(|| (self.hash ^ block) % VALUES + 1 == self.sum)
    }

    /// The blocks below [`BLOCKS`] that it fits. A third is possible, once in 10^4 pages, and left out.
    pub(super) fn candidates(&self) -> [Option<u32>; 2] {
        let Sum { hash, sum } = *self;
        let mut found = [None; 2];
        if sum == 0 {
            return found;
        }
        // hash ^ block = multiple * 65535 + sum - 1, and the high bits of the left side are the hash's.
        let lowest = hash & !(BLOCKS - 1);
        let first = (lowest.saturating_sub(sum - 1)).div_ceil(VALUES);
        let fits = (first..first + 4)
            .filter_map(|multiple| multiple.checked_mul(VALUES)?.checked_add(sum - 1))
            .map(|mixed| mixed ^ hash)
            .filter(|block| *block < BLOCKS);
        for (slot, block) in found.iter_mut().zip(fits) {
            *slot = Some(block);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page with the checksum for `block`.
    fn page(seed: u8, block: u32) -> Vec<u8> {
        let mut page: Vec<u8> = (0..8192u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8 ^ seed).collect();
        let sum = (hash(&page) ^ block) % VALUES + 1;
        page[8..10].copy_from_slice(&(sum as u16).to_le_bytes());
        page
    }

    #[test]
    fn the_true_block_is_among_the_candidates() {
        let mut missed = 0;
        for seed in 0..=255u8 {
            let block = u32::from(seed) * 509 + 7;
            let page = page(seed, block);
            assert_eq!(holds(&page, block), Some(true));
            let candidates = Sum::of(&page).candidates();
            for candidate in candidates.into_iter().flatten() {
                assert_eq!(holds(&page, candidate), Some(true), "block {candidate}");
            }
            missed += u32::from(!candidates.contains(&Some(block)));
        }
        assert_eq!(missed, 0);
    }

    #[test]
    fn no_checksum_holds_nothing() {
        let mut page = page(1, 1);
        page[8..10].fill(0);
        assert_eq!(holds(&page, 1), None);
        assert_eq!(Sum::of(&page).candidates(), [None; 2]);
    }
}
