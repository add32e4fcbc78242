//! An SSD that damages what it writes, in silence, and does nothing else wrong.

use super::Plan;
use types::Mode;

impl Plan {
    /// The SSD damages one write in twenty, and nothing else disturbs.
    pub fn damage_writes(&mut self) {
        self.forget_units();
        (self.ssd_faults.on, self.ssd_faults.budget, self.ssd_faults.corrupt_write_per_10k) = (true, 60, 500);
        (self.crashes, self.operator_ns) = (0, 0);
    }

    /// The SSD damages some writes in silence, few blocks are written by clients that rest, and the operator stops the pool again and again: what was
    /// written last is what a damage meets.
    pub fn damage_last_words(&mut self) {
        self.forget_units();
        (self.ssd_faults.on, self.ssd_faults.budget, self.ssd_faults.corrupt_write_per_10k) = (true, 30, 300);
        (self.crashes, self.operator_ns, self.operator) = (0, 2_000_000, [0, 0, 0, 0, 0, 5, 0]);
        (self.connections, self.depth, self.think_ns) = (1, 1, 1_000_000);
        (self.mix.ops[1], self.mix.sizes, self.requests) = (80, [0, 0, 40, 5, 0, 0], 300);
        for volume in &mut self.volumes {
            (volume.options.mode, volume.options.write_cache_depth_ns) = (Mode::WriteBack, 30_000_000_000);
        }
    }
}
