//! Which reads from the SSD leave a copy in a full RAM: one in eight. What is read once seldom enters then, and what is read often soon does, so that an
//! LRU queue keeps nearly what is used most (q-LRU: Garetto, Leonardi, Martina, "A unified approach to the performance analysis of caching systems", 2016).
//!
//! Neighbours are decided alike for a moment, so that a request of several blocks enters whole: only then it is a hit in RAM.

/// One read in so many, as a power of two.
const ONE_IN_LOG2: u32 = 3;
/// Blocks that are decided alike: 64 KiB, which holds the pages of databases.
const NEIGHBOURS_LOG2: u32 = 4;
/// Reads for which a decision stands.
const MOMENT_LOG2: u32 = 6;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Sampler {
    reads: u32,
}

impl Sampler {
    /// A block is read from the SSD: is it to enter RAM?
    #[inline]
    pub(crate) fn takes(&mut self, key: u64) -> bool {
        self.reads = self.reads.wrapping_add(1);
        let moment = u64::from(self.reads >> MOMENT_LOG2);
        // Multiplicative hashing, twice: moments alone must not choose the same places again and again.
        let mixed = (key >> NEIGHBOURS_LOG2).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ moment.wrapping_mul(0xd1b5_4a32_d192_ed03);
        (mixed ^ mixed >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - ONE_IN_LOG2) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_eight_of_all_and_of_each() {
        let mut sampler = Sampler::default();
        let taken = (0..80_000u64).filter(|nth| sampler.takes(nth.wrapping_mul(0x5851_f42d_4c95_7f2d) >> 20)).count();
        assert!((9000..11_000).contains(&taken), "{taken} of 80,000 places");
        for key in [0, 7 << 4, 1 << 40] {
            let taken = (0..80_000).filter(|_| sampler.takes(key)).count();
            assert!((7000..13_000).contains(&taken), "block {key} {taken} of 80,000 times");
        }
    }

    #[test]
    fn a_request_enters_whole_or_not_at_all() {
        let mut sampler = Sampler::default();
        let mut cut = 0;
        for request in 0..10_000u64 {
            let first = (request.wrapping_mul(0x5851_f42d_4c95_7f2d) >> 24) << 2;
            let taken = (first..first + 4).filter(|key| sampler.takes(*key)).count();
            cut += u32::from(taken != 0 && taken != 4);
        }
        // A sixteenth of the requests crosses the end of a moment, and a fifth of those changes its mind.
        assert!(cut < 300, "{cut} of 10,000 requests were cut");
    }
}
