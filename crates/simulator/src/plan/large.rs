//! What only large SSDs have, made small: many more shards than threads, long rings of which little is used, and buckets of the index that name so
//! many slots that hardly a bit of a hash is left.

use super::Plan;
use crate::prng::Prng;
use types::EXTENT_SECTORS;

impl Plan {
    /// A pool as a large SSD has it.
    pub(super) fn enlarge(&mut self, prng: &mut Prng) {
        (self.shards, self.segment_bytes) = (prng.pick(&[4, 7, 16]), 64 << 10);
        let segments = prng.pick(&[8, 12, 100, 300]);
        self.ssd_bytes = (1 << 20) + (1 << 20) + u64::from(self.shards) * segments * self.segment_bytes;
        self.index_slots = prng.pick(&[(1 << 25) - 1, (1 << 28) - 1, (1 << 31) - 2]);
        for volume in &mut self.volumes {
            volume.sectors = EXTENT_SECTORS * prng.between(2, 8) + prng.pick(&[0, 24]);
        }
        // Each shard has some of it.
        (self.mix.hot_blocks, self.requests) = (128, self.requests.max(300));
    }

    /// Makes it a run like those of [`Plan::enlarge`], whatever the seed says.
    pub fn always_enlarge(&mut self) {
        self.forget_units();
        self.enlarge(&mut Prng::new(self.seed).fork(34));
        self.keep_sizes();
    }
}
