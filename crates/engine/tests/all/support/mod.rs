//! What the storage tests share: a disk with a volatile cache that crashes on demand, a writer of logs with a model of what it
//! wrote, and a small generator of random numbers.
#![allow(dead_code)] // Each test file uses a part.

pub mod alone;
pub mod checkpoint;
pub mod disk;
pub mod given;
pub mod lives;
pub mod lost;
pub mod model;
pub mod packing;
pub mod pool;
pub mod writer;

/// Random numbers from a seed (SplitMix64).
#[derive(Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    /// Below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// True `times` out of `of`.
    pub fn chance(&mut self, times: u64, of: u64) -> bool {
        self.below(of) < times
    }
}
