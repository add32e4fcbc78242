//! Volumes that grow while a run goes on.

use super::Plan;
use crate::prng::Prng;

impl Plan {
    /// No volume grows.
    pub(super) fn keep_sizes(&mut self) {
        (self.grow_ns, self.mix.end_percent) = (0, 0);
        self.volumes.iter_mut().for_each(|volume| volume.first_sectors = volume.sectors);
    }

    /// Volumes grow step by step while clients are at their ends, which are mostly within a block.
    pub(super) fn grow(&mut self, prng: &mut Prng) {
        self.grow_ns = prng.pick(&[100_000, 1_000_000, 10_000_000]);
        self.mix.end_percent = prng.pick(&[20, 60]);
        if prng.percent(50) {
            // More blocks with some valid sectors than are kept so: these are completed from the backing device.
            (self.mix.sizes, self.mix.hot_blocks) = ([40, 30, 20, 10, 2, 0], 128);
        }
        for volume in &mut self.volumes {
            let part = volume.sectors * prng.pick(&[1, 2, 3]) / 4;
            volume.first_sectors = (part / 8 * 8 + prng.pick(&[0, 1, 3, 7])).min(volume.sectors);
        }
    }

    /// Makes it a run like those of [`Plan::grow`], whatever the seed says.
    pub fn always_grow(&mut self) {
        self.forget_units();
        self.grow(&mut Prng::new(self.seed).fork(30));
    }
}
