//! Pools whose blocks lie in slots.

use super::Plan;
use super::content::ContentPlan;
use crate::prng::Prng;

impl Plan {
    /// Makes it a run on the slot layout, whatever the seed says. Blocks are stored as they are there, and nothing decays yet. In a third of the
    /// runs the pool is resized, in another it was a log before: its rings are anywhere; or it is one, until it is upgraded.
    pub fn always_slots(&mut self) {
        (self.slots, self.content, self.rot_ns) = (true, None, 0);
        self.resizes = self.seed.is_multiple_of(3);
        // What an upgrade moves is not seen by who keeps the books of what a bad page harms.
        self.upgrades = self.seed % 3 == 1 && !self.ssd_faults.harmful() && !self.ssd_leaves;
    }

    /// Makes it a run on the slot layout, in which much is to be said of each slot, that is stopped in order again and again, and dies in the stop or in the start behind it.
    pub fn always_stop_in_slots(&mut self) {
        self.always_packed_slots();
        self.ssd_volatile = true;
        (self.operator_ns, self.operator[5], self.crash_in_blocking_percent) = (1_000_000, 3, 60);
        (self.crashes, self.power_percent) = (self.crashes.max(6), 100);
    }

    /// The same where blocks are packed side by side into slots, as their content asks. In a quarter of the runs many rest on others, in
    /// another dirty blocks outgrow the slots.
    pub fn always_packed_slots(&mut self) {
        match self.seed % 4 {
            2 => self.always_share(),
            3 => self.always_swell(),
            _ => self.content = Some(ContentPlan::drawn(&mut Prng::new(self.seed).fork(29), self.volumes.len())),
        }
        self.pack_into_slots();
    }

    /// The same where in all runs many blocks rest on others.
    pub fn always_share_slots(&mut self) {
        self.always_share();
        self.pack_into_slots();
    }

    fn pack_into_slots(&mut self) {
        let content = self.content.take();
        self.always_slots();
        self.content = content;
    }
}
