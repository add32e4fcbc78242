//! Pools whose blocks lie in slots.

use super::Plan;

impl Plan {
    /// Makes it a run on the slot layout, whatever the seed says. Blocks are stored as they are there, and nothing decays yet.
    pub fn always_slots(&mut self) {
        (self.slots, self.content, self.rot_ns) = (true, None, 0);
    }
}
