//! All members over a sample of the blocks.
//!
//! One of so many blocks is sampled, by a hash of its key, and the caches have room for the same part of the real one: then their miss
//! ratios are about those of caches of full size (SHARDS, FAST 2015). Keys are known once, in one table, and each member keeps five bytes
//! a key beside it.

use crate::member::MEMBERS;
use crate::queues::Queues;
use alloc::vec::Vec;

/// No number.
const NONE: u32 = u32::MAX;
/// Keys known for each block of room: what the members hold, and remember, is about two and a half times the room.
const KEYS_PER_ROOM: u32 = 3;
/// Numbers looked at for one that is free: about as many become free as are taken.
const LOOKED_AT: u32 = 8;

/// See the module.
#[derive(Debug)]
pub struct Miniatures {
    /// A key is sampled if the hash's lowest so many bits are zero.
    sample_bits: u32,
    seed: u64,
    room: u32,
    members: Vec<Queues>,
    /// By number: the upper half of the key's hash; whether a key is sampled is in the lower one.
    hashes: Vec<u32>,
    /// By number: the next one of the same bucket; of a free one, the next free one.
    next: Vec<u32>,
    buckets: Vec<u32>,
    free: u32,
    /// The number that is looked at next.
    hand: u32,
}

/// What a sampled access was: bit `n` is set if member `n` missed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Missed(pub u8);

impl Missed {
    /// Whether this member missed.
    pub const fn by(self, member: usize) -> bool {
        self.0 >> member & 1 != 0
    }
}

impl Miniatures {
    /// Miniatures of a cache with room for so many blocks: of at most `room_max` blocks each.
    pub fn new(room_blocks: u64, room_max: u32, seed: u64) -> Miniatures {
        let mut sample_bits = 0;
        while room_blocks >> sample_bits > u64::from(room_max) {
            sample_bits += 1;
        }
        let room = ((room_blocks >> sample_bits) as u32).max(2);
        let keys = room * KEYS_PER_ROOM + LOOKED_AT;
        let mut next: Vec<u32> = (1..=keys).collect();
        next[keys as usize - 1] = NONE;
        Miniatures {
            sample_bits,
            seed,
            room,
            members: MEMBERS.iter().map(|member| Queues::new(*member, room, keys)).collect(),
            hashes: alloc::vec![0; keys as usize],
            next,
            buckets: alloc::vec![NONE; keys.next_power_of_two() as usize / 2],
            free: 0,
            hand: 0,
        }
    }

    /// Blocks that each miniature has room for.
    pub fn room(&self) -> u32 {
        self.room
    }

    /// One block in so many is sampled.
    pub fn one_in(&self) -> u64 {
        1 << self.sample_bits
    }

    /// A client uses the block of `key`. `None` for a block that is not sampled.
    #[inline]
    pub fn access(&mut self, key: u64) -> Option<Missed> {
        let hash = hash(key ^ self.seed);
        (hash & ((1 << self.sample_bits) - 1) == 0).then(|| self.access_sampled((hash >> 32) as u32))
    }

    fn access_sampled(&mut self, hash: u32) -> Missed {
        let Some(number) = self.find(hash).or_else(|| self.insert(hash)) else { return Missed(u8::MAX) };
        let mut missed = 0;
        for (at, member) in self.members.iter_mut().enumerate() {
            missed |= u8::from(!member.access(number)) << at;
        }
        Missed(missed)
    }

    /// Bytes on the heap.
    pub fn memory_bytes(&self) -> u64 {
        let words = self.hashes.capacity() + self.next.capacity() + self.buckets.capacity();
        (words * size_of::<u32>()) as u64 + self.hashes.len() as u64 * Queues::BLOCK_BYTES * self.members.len() as u64
    }

    fn bucket(&self, hash: u32) -> usize {
        hash as usize & (self.buckets.len() - 1)
    }

    fn find(&self, hash: u32) -> Option<u32> {
        let mut number = self.buckets[self.bucket(hash)];
        while number != NONE {
            if self.hashes[number as usize] == hash {
                return Some(number);
            }
            number = self.next[number as usize];
        }
        None
    }

    fn insert(&mut self, hash: u32) -> Option<u32> {
        self.free_some();
        let number = self.free;
        if number == NONE {
            return None;
        }
        self.free = self.next[number as usize];
        let bucket = self.bucket(hash);
        self.hashes[number as usize] = hash;
        self.next[number as usize] = self.buckets[bucket];
        self.buckets[bucket] = number;
        Some(number)
    }

    /// Looks at some numbers: those that no member knows are free.
    fn free_some(&mut self) {
        for _ in 0..LOOKED_AT {
            let number = self.hand;
            self.hand = (self.hand + 1) % self.hashes.len() as u32;
            if self.find(self.hashes[number as usize]) == Some(number) && self.members.iter().all(|member| member.is_unknown(number)) {
                self.members.iter_mut().for_each(|member| member.clear(number));
                self.unlink(number);
                self.next[number as usize] = self.free;
                self.free = number;
            }
        }
    }

    fn unlink(&mut self, number: u32) {
        let bucket = self.bucket(self.hashes[number as usize]);
        let after = self.next[number as usize];
        let mut at = self.buckets[bucket];
        if at == number {
            self.buckets[bucket] = after;
            return;
        }
        while self.next[at as usize] != number {
            at = self.next[at as usize];
        }
        self.next[at as usize] = after;
    }
}

/// Spreads a key over 64 bits, with the constants of the 64-bit finaliser of MurmurHash3 (public domain).
#[inline]
pub fn hash(key: u64) -> u64 {
    let mut h = key ^ (key >> 33);
    h = h.wrapping_mul(0xff51_afd7_ed55_8ccd);
    h ^= h >> 33;
    h = h.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    h ^ (h >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Some blocks often, many seldom.
    fn keys(count: u64) -> impl Iterator<Item = u64> {
        (1..=count).map(|nth| {
            let random = nth.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ nth << 9;
            let random = (random ^ random >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33;
            random % (1 << (3 + random / 7 % 13))
        })
    }

    #[test]
    fn a_miniature_of_full_size_is_the_cache_itself() {
        let mut miniatures = Miniatures::new(300, 1024, 5);
        assert_eq!((miniatures.one_in(), miniatures.room()), (1, 300));
        let mut full: Vec<Queues> = MEMBERS.iter().map(|member| Queues::new(*member, 300, 1 << 17)).collect();
        for key in keys(50_000) {
            let missed = miniatures.access(key).expect("all are sampled");
            for (at, queues) in full.iter_mut().enumerate() {
                assert_eq!(missed.by(at), !queues.access(key as u32), "member {at}, block {key}");
            }
        }
    }

    #[test]
    fn a_sample_misses_about_as_the_cache_does() {
        let (mut all, mut some) = (Miniatures::new(8192, 8192, 1), Miniatures::new(8192, 1024, 1));
        assert_eq!((all.one_in(), some.one_in()), (1, 8));
        let mut missed = [[0.0; 2]; MEMBERS.len()];
        let mut counts = [0.0; 2];
        for key in keys(400_000) {
            for (which, found) in [all.access(key), some.access(key)].into_iter().enumerate() {
                let Some(found) = found else { continue };
                counts[which] += 1.0;
                (0..MEMBERS.len()).for_each(|at| missed[at][which] += f64::from(u8::from(found.by(at))));
            }
        }
        for [of_all, of_some] in missed {
            let (of_all, of_some) = (of_all / counts[0], of_some / counts[1]);
            assert!((of_all - of_some).abs() < 0.06, "{of_all} of all, {of_some} of the sample");
        }
    }

    #[test]
    fn numbers_do_not_run_out() {
        let mut miniatures = Miniatures::new(100, 1024, 0);
        for key in 0..100_000 {
            miniatures.access(key * 7);
            assert!(miniatures.find((hash(key * 7) >> 32) as u32).is_some(), "block {key} has a number");
        }
    }
}
