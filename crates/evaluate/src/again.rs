//! Which reads of a pattern are of blocks that were used before: the only ones that a cache can answer.
//!
//! A pattern follows from its seed, so this is known exactly, without looking at the requests on their way.

use crate::pattern::{Pattern, Requests, Wrong};

/// Reads of some part of a load.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reads {
    /// All of them.
    pub count: u64,
    /// Of them, those of blocks that neither a read nor a write had used before.
    pub first: u64,
}

impl Reads {
    /// Those of blocks that were used before.
    pub fn again(self) -> u64 {
        self.count - self.first
    }
}

/// The blocks used so far, by all that was played since it was made.
#[derive(Clone, Debug)]
pub struct Again {
    used: Vec<bool>,
    pattern: Pattern,
}

impl Again {
    /// None was used yet.
    pub fn new(pattern: Pattern) -> Again {
        let blocks = pattern.space_bytes / pattern.block_bytes.max(1);
        Again { used: vec![false; usize::try_from(blocks).unwrap_or(0)], pattern }
    }

    /// The first so many requests of that seed.
    ///
    /// # Errors
    /// What of the pattern makes no sense.
    pub fn play(&mut self, seed: u64, requests: u64) -> Result<Reads, Wrong> {
        let mut reads = Reads::default();
        let count = usize::try_from(requests).unwrap_or(usize::MAX);
        for request in Requests::new(self.pattern.clone(), seed)?.take(count) {
            let block = (request.offset_bytes / self.pattern.block_bytes) as usize;
            let is_first = !std::mem::replace(&mut self.used[block], true);
            if !request.is_write {
                reads.count += 1;
                reads.first += u64::from(is_first);
            }
        }
        Ok(reads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::Places;

    fn pattern(reads_percent: u32, places: Places) -> Pattern {
        Pattern { block_bytes: 4096, space_bytes: 100 * 4096, reads_percent, places }
    }

    #[test]
    fn only_the_first_read_of_a_block_is_one() {
        let mut again = Again::new(pattern(100, Places::Sequential));
        assert_eq!(again.play(1, 70), Ok(Reads { count: 70, first: 70 }));
        // It begins anew at the first block, and comes to 30 that were not used yet.
        assert_eq!(again.play(2, 250), Ok(Reads { count: 250, first: 30 }));
        assert_eq!(Reads { count: 250, first: 30 }.again(), 220);
    }

    #[test]
    fn a_write_uses_a_block_too() {
        let mut again = Again::new(pattern(0, Places::Sequential));
        assert_eq!(again.play(1, 100), Ok(Reads::default()));
        again.pattern.reads_percent = 100;
        assert_eq!(again.play(1, 100), Ok(Reads { count: 100, first: 0 }));
    }

    #[test]
    fn it_counts_what_is_played() {
        let pattern = pattern(60, Places::Uniform);
        let reads = Again::new(pattern.clone()).play(7, 1000).expect("it makes sense");
        let played: Vec<_> = Requests::new(pattern, 7).expect("it makes sense").take(1000).collect();
        assert_eq!(reads.count, played.iter().filter(|request| !request.is_write).count() as u64);
        assert!(reads.first > 0 && reads.first < 100, "{reads:?}");
    }
}
