//! Keys by which equal blocks, and blocks with equal parts, meet.
//!
//! XXH3 with a secret seed of the pool: fast, and nobody who does not know the seed can look for collisions. It is no proof of equality: who
//! finds a key compares the content.

use crate::{BLOCK_BYTES, Block};
use twox_hash::{XxHash3_64, XxHash3_128};

/// Parts of a block that get keys of their own, 512 bytes each: what a sector is, and what stays whole in a page that was copied and changed a little.
pub const PARTS: usize = 8;
const PART_BYTES: usize = BLOCK_BYTES / PARTS;

/// A block's key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Fingerprint(pub u128);

/// The key of a block's content.
pub fn of(seed: u64, block: &Block) -> Fingerprint {
    Fingerprint(XxHash3_128::oneshot_with_seed(seed, block))
}

/// The keys of a block's parts; `None` for a part whose bytes are all the same, which says nothing.
pub fn of_parts(seed: u64, block: &Block) -> [Option<u64>; PARTS] {
    core::array::from_fn(|index| {
        let part = &block[index * PART_BYTES..(index + 1) * PART_BYTES];
        let plain = part.iter().all(|byte| *byte == part[0]);
        (!plain).then(|| XxHash3_64::oneshot_with_seed(seed, part))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_content_has_equal_keys_of_one_seed_only() {
        let block: Block = core::array::from_fn(|at| (at * at) as u8);
        let mut other = block;
        other[700] ^= 1;
        assert_eq!(of(1, &block), of(1, &block.clone()));
        assert_ne!(of(1, &block), of(2, &block));
        assert_ne!(of(1, &block), of(1, &other));
        let (parts, others) = (of_parts(1, &block), of_parts(1, &other));
        let changed: alloc::vec::Vec<usize> = (0..PARTS).filter(|index| parts[*index] != others[*index]).collect();
        assert_eq!(changed, [1]);
        assert_eq!(of_parts(1, &[9; BLOCK_BYTES]), [None; PARTS]);
    }
}
