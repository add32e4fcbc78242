//! Small reads beside each other, which bring along what lies around them.

use super::Plan;
use crate::disk::faults::Faults;
use crate::prng::Prng;
use types::{Admission, Mode};

impl Plan {
    /// Small reads and writes in groups of blocks, while some reads of the backing device take so long that what is dirty when they begin comes home
    /// meanwhile, and leaves so small an SSD. No device does wrong: an error would hide what is read.
    pub(super) fn read_beside(&mut self, prng: &mut Prng) {
        self.mix.ops = [80, prng.pick(&[20, 60]), 0, prng.pick(&[0, 0, 3]), prng.pick(&[0, 3])];
        (self.mix.sizes, self.mix.sequential_percent, self.mix.fua_percent) = ([prng.pick(&[0, 5]), 0, 40, 2, 0, 0], 0, 0);
        (self.mix.hot_blocks, self.mix.hot_percent) = (prng.pick(&[128, 512]), prng.pick(&[80, 95]));
        (self.segment_bytes, self.ram_bytes, self.shards) = (64 << 10, prng.pick(&[128 << 10, 256 << 10]), 1);
        self.ssd_bytes = (1 << 20) + 2 * self.segment_bytes + 8 * self.segment_bytes;
        (self.requests, self.connections, self.depth, self.think_ns) = (2_000, 4, prng.pick(&[4, 16]), 1_000);
        (self.crashes, self.meddles, self.rests) = (prng.pick(&[0, 1]), None, 0);
        (self.ssd_faults, self.ssd_leaves, self.ssd_leaves_again, self.backing_leaves) = (Faults::none(), false, false, false);
        self.rot_ns = 0;
        self.volumes.truncate(1);
        for volume in &mut self.volumes {
            let options = &mut volume.options;
            (options.mode, options.write_cache_depth_ns) = (prng.pick(&[Mode::WriteBack, Mode::WriteBack, Mode::WriteThrough]), 1_000_000);
            (options.admission, options.sequential_cutoff_bytes, options.destage_rate_bytes) = (Admission::Always, None, None);
            (volume.zeroed, volume.faults) = (false, Faults::none());
            // What such a read gives is what was there when it began.
            volume.pace.early_per_10k = prng.pick(&[5_000, 9_000]);
            (volume.faults.on, volume.faults.slow_read_per_10k) = (true, prng.pick(&[200, 1_000]));
        }
    }

    /// Makes it a run like those of [`Plan::read_beside`], whatever the seed says.
    pub fn always_read_beside(&mut self) {
        self.forget_units();
        self.content = None;
        self.read_beside(&mut Prng::new(self.seed).fork(37));
        self.keep_sizes();
    }
}
