//! Memory that runs short (F13): nearly all pages of the daemon's pool are out for a while. Requests may wait, and nothing else may come
//! of it: when the pages are back, all goes on.

use super::{Happening, World};
use crate::coverage::Fault;

impl World<'_> {
    /// Takes pages away, or gives them back.
    pub fn shortage(&mut self, begins: bool) {
        if !begins {
            self.give_pages_back();
            return;
        }
        if !self.safety {
            return;
        }
        let left = self.prng.pick(&[0, 0, 1, 8, 64]);
        self.pages.set_limit(self.pages.pages_out() + left);
        self.tell(format!("pages run short: {left} left"));
        self.cover(Fault::Shortage);
        let lasts_ns = self.prng.pick(&[10_000, 1_000_000, 50_000_000]);
        let pause_ns = self.prng.spread(self.plan.shortage_ns);
        self.queue.after(lasts_ns, Happening::Shortage(false));
        self.queue.after(lasts_ns + pause_ns, Happening::Shortage(true));
    }

    /// Also where a life ends, or faults stop.
    pub fn give_pages_back(&mut self) {
        self.pages.set_limit(usize::MAX);
    }
}
