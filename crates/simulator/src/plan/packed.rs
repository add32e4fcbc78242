//! What a pool was before, and runs that are about packed blocks, several in a slot.

use super::Plan;
use super::content::ContentPlan;
use crate::prng::Prng;

impl Plan {
    /// A third of the pools are resized, another third were logs before.
    pub(super) fn draw_past(&mut self) {
        (self.resizes, self.was_log) = (self.seed.is_multiple_of(3), self.seed % 3 == 1);
    }

    /// Whether the pool is a log until its first start. Not where the SSD does wrong: what an upgrade moves is not seen by who keeps the books of
    /// what a bad page harms.
    pub fn begins_as_log(&self) -> bool {
        self.was_log && !self.ssd_faults.harmful() && !self.ssd_leaves && self.rot_ns == 0
    }

    /// Makes it a run in which much is to be said of each slot, that is stopped in order again and again, and dies in the stop or in the start
    /// behind it.
    pub fn always_stop(&mut self) {
        self.always_pack();
        self.ssd_volatile = true;
        (self.operator_ns, self.operator[5], self.crash_in_blocking_percent) = (1_000_000, 3, 60);
        (self.crashes, self.power_percent) = (self.crashes.max(6), 100);
    }

    /// Makes it a run in which blocks are packed side by side into slots, as their content asks, whatever the seed says. In a quarter of the runs
    /// many rest on others, in another dirty blocks outgrow the slots.
    pub fn always_pack(&mut self) {
        match self.seed % 4 {
            2 => self.always_share(),
            3 => self.always_swell(),
            _ => self.content = Some(ContentPlan::drawn(&mut Prng::new(self.seed).fork(29), self.volumes.len())),
        }
    }
}
