//! Volumes whose aligned units are written as a whole or not at all.

use super::Plan;
use crate::disk::faults::Faults;
use crate::prng::Prng;
use types::{BLOCK_BYTES, Mode};

/// Blocks of the largest unit.
const UNIT_BLOCKS_MAX: u64 = 16;

impl Plan {
    /// Units of several blocks are written and read, some of them larger than what goes around the cache otherwise, while flushes are slow, dirty
    /// data goes home at once or hardly, and the power goes. No device does wrong: a lost SSD ends the promise.
    pub(super) fn keep_units(&mut self, prng: &mut Prng) {
        let unit_bytes = (BLOCK_BYTES as u32) << prng.between(1, u64::from(UNIT_BLOCKS_MAX.ilog2()) + 1);
        self.mix.ops = [40, prng.pick(&[40, 80]), prng.pick(&[0, 0, 3]), prng.pick(&[0, 0, 3]), prng.pick(&[0, 3])];
        (self.mix.sizes, self.mix.units_percent) = ([4, 2, 20, 20, prng.pick(&[0, 10]), 0], prng.pick(&[60, 90]));
        (self.mix.hot_blocks, self.mix.hot_percent, self.mix.fua_percent) = (prng.pick(&[16, 64]), 90, prng.pick(&[0, 10]));
        self.ssd_pace.flush_ns = self.ssd_pace.io_ns * prng.pick(&[1, 30, 300]);
        (self.crashes, self.power_percent, self.ssd_volatile, self.read_all_after_restart) = (6, prng.pick(&[50, 100]), true, true);
        (self.ssd_faults, self.ssd_leaves, self.ssd_leaves_again, self.backing_leaves) = (Faults::none(), false, false, false);
        (self.rot_ns, self.meddles, self.exchange_percent, self.operator[0]) = (0, None, 0, 0);
        // Enough of them for the longest write, which may take a quarter of the slots.
        let segments = prng.between(18, 28);
        self.ssd_bytes = (1 << 20) + 2 * self.segment_bytes + u64::from(self.shards) * segments * self.segment_bytes;
        let depth_ns = prng.pick(&[1_000_000, 30_000_000_000]);
        for volume in &mut self.volumes {
            let options = &mut volume.options;
            (options.mode, options.atomic_bytes, options.write_cache_depth_ns) = (Mode::WriteBack, Some(unit_bytes), depth_ns);
            (options.max_io_bytes, options.sequential_cutoff_bytes) = (prng.pick(&[4 << 10, 64 << 10]), prng.pick(&[None, Some(64 << 10)]));
            volume.faults = Faults::none();
        }
    }

    /// It is about something else: a pool may be too small for it, or lose its SSD.
    pub(super) fn forget_units(&mut self) {
        self.mix.units_percent = 0;
        self.volumes.iter_mut().for_each(|volume| volume.options.atomic_bytes = None);
    }

    /// Makes it a run like those of [`Plan::keep_units`], whatever the seed says.
    pub fn always_keep_units(&mut self) {
        self.keep_units(&mut Prng::new(self.seed).fork(35));
    }
}
