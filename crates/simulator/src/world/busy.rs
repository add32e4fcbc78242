//! A host that has little time now and then: what can wait may wait, and nothing else may come of it.

use super::{Happening, World};

impl World<'_> {
    /// The host has much to do from now on, or has not. When faults stop it stays as it is: whatever the host says, all must get home.
    pub fn host_busy(&mut self, is_busy: bool) {
        if !self.safety {
            return;
        }
        let lasts_ns = self.prng.spread(self.plan.busy_ns);
        self.queue.after(lasts_ns, Happening::Busy(!is_busy));
        self.system_mut().set_host_busy(is_busy);
    }
}
