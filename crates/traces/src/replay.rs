//! A trace through a cache, and what came out, beside LRU, Belady and a cache that admits everything.

use crate::reference::{AdmitAlways, Belady, Lru};
use crate::stream::{BlockAccess, Stream};

/// Anything that can be asked for a block.
pub trait Cache {
    /// Touches a block; whether it was there. Called once per access of a trace, in order.
    fn access(&mut self, access: BlockAccess) -> bool;

    /// Blocks written to the SSD so far; 0 where there is none.
    fn ssd_blocks_written(&self) -> u64 {
        0
    }
}

/// What a replay measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// Block accesses.
    pub accesses: u64,
    /// Those that found nothing.
    pub misses: u64,
    /// Blocks written to the SSD: admitted, overwritten, and moved.
    pub ssd_blocks_written: u64,
}

impl Outcome {
    /// Misses per access.
    pub fn miss_ratio(&self) -> f64 {
        self.misses as f64 / self.accesses.max(1) as f64
    }
}

/// Sends the whole stream through the cache.
pub fn replay(stream: &Stream, cache: &mut dyn Cache) -> Outcome {
    let misses = stream.accesses.iter().filter(|access| !cache.access(**access)).count() as u64;
    Outcome { accesses: stream.accesses.len() as u64, misses, ssd_blocks_written: cache.ssd_blocks_written() }
}

/// What a cache of some size is compared with on a trace.
#[derive(Clone, Copy, Debug)]
pub struct Yardsticks {
    /// RAM and SSD together.
    pub capacity_blocks: u64,
    /// Least recently used.
    pub lru: Outcome,
    /// The optimum.
    pub belady: Outcome,
    /// The same without RAM tier and admission: every miss and every write goes to the SSD.
    pub admit_always: Outcome,
}

impl Yardsticks {
    /// Replays the stream through each.
    pub fn new(stream: &Stream, capacity_blocks: u64) -> Yardsticks {
        let footprint = stream.footprint_blocks();
        Yardsticks {
            capacity_blocks,
            lru: replay(stream, &mut Lru::new(footprint, capacity_blocks)),
            belady: replay(stream, &mut Belady::new(stream, capacity_blocks)),
            admit_always: replay(stream, &mut AdmitAlways::new(footprint, capacity_blocks)),
        }
    }

    /// The part of LRU's avoidable misses that a cache avoids: 0 as LRU, 1 as Belady. `None` if LRU is the optimum.
    pub fn gap_closed(&self, cache: &Outcome) -> Option<f64> {
        let gap = self.lru.misses - self.belady.misses;
        (gap > 0).then(|| (self.lru.misses as f64 - cache.misses as f64) / gap as f64)
    }

    /// How much higher a cache's miss ratio is than LRU's; negative if lower.
    pub fn above_lru(&self, cache: &Outcome) -> f64 {
        cache.miss_ratio() - self.lru.miss_ratio()
    }

    /// A cache's SSD writes as a part of what admitting everything writes.
    pub fn write_part(&self, cache: &Outcome) -> f64 {
        cache.ssd_blocks_written as f64 / self.admit_always.ssd_blocks_written.max(1) as f64
    }
}
