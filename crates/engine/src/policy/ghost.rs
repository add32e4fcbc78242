//! A memory of blocks that were forgotten: fingerprints with the count of fetches.
//!
//! Buckets of eight 16-bit entries (12 bits of fingerprint, 4 of count), each bucket a FIFO: the newest at the front, the oldest pushed
//! out. A key has one bucket. A wrong match (8 in 4,095) admits a block too early, nothing worse. Counts are halved bucket
//! by bucket, all of them once in a period.

use super::heat::FREQUENCY_MAX;
use super::pace::FADE_LAPS;
use alloc::vec::Vec;

/// Entries in a bucket: one 16-byte read.
const BUCKET_ENTRIES: usize = 8;
/// Fewest buckets, so that tiny caches have a memory at all.
const BUCKETS_MIN: u64 = 4;
/// Bytes of a bucket.
const BUCKET_BYTES: u64 = 2 * BUCKET_ENTRIES as u64;
const FREQUENCY_BITS: u32 = 4;
const FINGERPRINT: u16 = !(FREQUENCY_MAX as u16);

const _: () = assert!(FREQUENCY_MAX as u16 == (1 << FREQUENCY_BITS) - 1);

/// The ghost queue. 0 marks an empty place.
#[derive(Debug)]
pub struct Ghost {
    buckets: Vec<[u16; BUCKET_ENTRIES]>,
    /// Accesses in which every bucket is halved once.
    period_accesses: u64,
    /// Halving owed, in buckets times `period_accesses`.
    owed: u64,
    next_to_halve: usize,
}

impl Ghost {
    /// A memory for an SSD of `ssd_blocks`: one byte per block, that is one entry for every second block. Its counts halve
    /// as fast as those of cached blocks fade in a cache of `capacity_blocks`: e-folding time times ln 2.
    pub fn new(ssd_blocks: u64, capacity_blocks: u64) -> Ghost {
        let buckets = (ssd_blocks / BUCKET_BYTES).max(BUCKETS_MIN);
        Ghost {
            buckets: alloc::vec![[0; BUCKET_ENTRIES]; buckets as usize],
            period_accesses: (capacity_blocks * FADE_LAPS * 7 / 10).max(1),
            owed: 0,
            next_to_halve: 0,
        }
    }

    /// Time passes by one access.
    #[inline]
    pub fn on_access(&mut self) {
        self.owed += self.buckets.len() as u64;
        if self.owed >= self.period_accesses {
            self.owed -= self.period_accesses;
            self.halve_next();
        }
    }

    /// Remembers `key` as the newest of its bucket.
    pub fn remember(&mut self, key: u64, frequency: u8) {
        let (index, fingerprint) = self.locate(key);
        let bucket = &mut self.buckets[index];
        let end = bucket.iter().position(|&entry| entry & FINGERPRINT == fingerprint).unwrap_or(BUCKET_ENTRIES - 1);
        bucket.copy_within(0..end, 1);
        bucket[0] = fingerprint | u16::from(frequency.min(FREQUENCY_MAX));
    }

    /// The count of `key` if it is remembered; it is not any more afterwards.
    pub fn take(&mut self, key: u64) -> Option<u8> {
        let (index, fingerprint) = self.locate(key);
        let bucket = &mut self.buckets[index];
        let at = bucket.iter().position(|&entry| entry & FINGERPRINT == fingerprint)?;
        let frequency = (bucket[at] & !FINGERPRINT) as u8;
        bucket.copy_within(at + 1.., at);
        bucket[BUCKET_ENTRIES - 1] = 0;
        Some(frequency)
    }

    /// Bytes on the heap.
    pub fn memory_bytes(&self) -> u64 {
        (self.buckets.capacity() * size_of::<[u16; BUCKET_ENTRIES]>()) as u64
    }

    fn halve_next(&mut self) {
        for entry in &mut self.buckets[self.next_to_halve] {
            *entry = (*entry & FINGERPRINT) | ((*entry & !FINGERPRINT) >> 1);
        }
        self.next_to_halve = (self.next_to_halve + 1) % self.buckets.len();
    }

    fn locate(&self, key: u64) -> (usize, u16) {
        // The high bits choose a bucket, the low ones are the fingerprint.
        let hash = retention::hash(key);
        let index = ((u128::from(hash) * self.buckets.len() as u128) >> 64) as usize;
        let fingerprint = ((hash as u16) & (u16::MAX >> FREQUENCY_BITS)).max(1) << FREQUENCY_BITS;
        (index, fingerprint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_bucket() -> Ghost {
        Ghost { buckets: alloc::vec![[0; BUCKET_ENTRIES]], period_accesses: 100, owed: 0, next_to_halve: 0 }
    }

    #[test]
    fn what_was_remembered_is_taken_once_with_its_count() {
        let mut ghost = Ghost::new(1 << 14, 1 << 14);
        ghost.remember(7, 3);
        assert_eq!(ghost.take(8), None);
        assert_eq!(ghost.take(7), Some(3));
        assert_eq!(ghost.take(7), None);
    }

    #[test]
    fn the_oldest_of_a_bucket_goes_first() {
        let mut ghost = one_bucket();
        (0..9).for_each(|key| ghost.remember(key, 1));
        assert_eq!(ghost.take(0), None);
        assert!((1..9).all(|key| ghost.take(key) == Some(1)));
    }

    #[test]
    fn a_key_remembered_twice_takes_one_place() {
        let mut ghost = one_bucket();
        (0..8).for_each(|key| ghost.remember(key, 1));
        ghost.remember(0, 2);
        ghost.remember(8, 1);
        assert_eq!(ghost.take(0), Some(2), "it became the newest");
        assert_eq!(ghost.take(1), None, "the oldest went");
    }

    #[test]
    fn counts_halve_with_time_and_blocks_stay_remembered() {
        let mut ghost = one_bucket();
        ghost.remember(5, 8);
        (0..100).for_each(|_| ghost.on_access());
        ghost.remember(6, 8);
        assert_eq!(ghost.take(5), Some(4));
        assert_eq!(ghost.take(6), Some(8));
    }
}
