//! A memory of blocks that were forgotten, as fingerprints.
//!
//! Buckets of eight 16-bit fingerprints, each bucket a FIFO: the newest at the front, the oldest pushed out. A key has one
//! bucket. A wrong fingerprint match (8 in 65,535) admits a block too early, nothing worse.

use alloc::vec::Vec;

/// Fingerprints in a bucket: one 16-byte read.
const BUCKET_ENTRIES: usize = 8;
/// Fewest buckets, so that tiny caches have a memory at all.
const BUCKETS_MIN: u64 = 16;
/// Bytes of a bucket.
const BUCKET_BYTES: u64 = 2 * BUCKET_ENTRIES as u64;

/// The ghost queue. 0 marks an empty place.
#[derive(Debug)]
pub struct Ghost {
    buckets: Vec<[u16; BUCKET_ENTRIES]>,
}

impl Ghost {
    /// A memory for a log of `ssd_blocks`: one byte per block, that is one fingerprint for every second block.
    pub fn new(ssd_blocks: u64) -> Ghost {
        let buckets = (ssd_blocks / BUCKET_BYTES).max(BUCKETS_MIN);
        Ghost { buckets: alloc::vec![[0; BUCKET_ENTRIES]; buckets as usize] }
    }

    /// Remembers `key` as the newest of its bucket.
    pub fn remember(&mut self, key: u64) {
        let (index, fingerprint) = self.locate(key);
        let bucket = &mut self.buckets[index];
        let end = bucket.iter().position(|&f| f == fingerprint).unwrap_or(BUCKET_ENTRIES - 1);
        bucket.copy_within(0..end, 1);
        bucket[0] = fingerprint;
    }

    /// Whether `key` is remembered; it is not any more afterwards.
    pub fn take(&mut self, key: u64) -> bool {
        let (index, fingerprint) = self.locate(key);
        let bucket = &mut self.buckets[index];
        let Some(at) = bucket.iter().position(|&f| f == fingerprint) else { return false };
        bucket.copy_within(at + 1.., at);
        bucket[BUCKET_ENTRIES - 1] = 0;
        true
    }

    /// Bytes on the heap.
    pub fn memory_bytes(&self) -> u64 {
        (self.buckets.capacity() * size_of::<[u16; BUCKET_ENTRIES]>()) as u64
    }

    fn locate(&self, key: u64) -> (usize, u16) {
        let hash = hash(key);
        let index = ((u128::from(hash) * self.buckets.len() as u128) >> 64) as usize;
        let fingerprint = (hash as u16).max(1);
        (index, fingerprint)
    }
}

/// Spreads a key over 64 bits; the high bits choose a bucket or a sample, the low ones are the fingerprint. The constants
/// are those of the 64-bit finaliser of MurmurHash3 (public domain).
pub(crate) fn hash(key: u64) -> u64 {
    let mut h = key ^ (key >> 33);
    h = h.wrapping_mul(0xff51_afd7_ed55_8ccd);
    h ^= h >> 33;
    h = h.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    h ^ (h >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_remembered_is_taken_once() {
        let mut ghost = Ghost::new(1 << 14);
        ghost.remember(7);
        assert!(!ghost.take(8));
        assert!(ghost.take(7));
        assert!(!ghost.take(7));
    }

    #[test]
    fn the_oldest_of_a_bucket_goes_first() {
        let mut ghost = Ghost { buckets: alloc::vec![[0; BUCKET_ENTRIES]] };
        (0..9).for_each(|key| ghost.remember(key));
        assert!(!ghost.take(0));
        assert!((1..9).all(|key| ghost.take(key)));
    }

    #[test]
    fn a_key_remembered_twice_takes_one_place() {
        let mut ghost = Ghost { buckets: alloc::vec![[0; BUCKET_ENTRIES]] };
        (0..8).for_each(|key| ghost.remember(key));
        ghost.remember(0);
        ghost.remember(8);
        assert!(ghost.take(0), "it became the newest");
        assert!(!ghost.take(1), "the oldest went");
    }
}
