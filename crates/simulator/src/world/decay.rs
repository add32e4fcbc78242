//! Old data on the SSD that is not what it was any more (F5).

use engine::api::{Io, IoKind};

use super::{Happening, World};
use crate::coverage::Fault;

impl World<'_> {
    /// Damages a write of long ago: only where a durable header says that it was durable.
    pub fn rot(&mut self) {
        let delay = self.prng.spread(self.plan.rot_ns);
        self.queue.after(delay, Happening::Rot);
        let faults = &mut self.devices[0].faults;
        let old = self.log_writes.provably_durable();
        if faults.budget == 0 || old.is_empty() {
            return;
        }
        let super::log_writes::LogWrite { offset, length, .. } = old[self.prng.below(old.len() as u64) as usize];
        // What is being written over just now may have been written already, or be damaged only until it is: nobody could say.
        let over = |io: &Io| {
            matches!(io.kind, IoKind::Write { .. }) && io.offset_bytes < offset + length && offset < io.offset_bytes + io.length_bytes
        };
        if self.devices[0].flights().any(|flight| over(&flight.io)) {
            return;
        }
        self.devices[0].faults.budget -= 1;
        // Half of the time it is the group's header, which little else would ever damage.
        let length = if self.prng.percent(50) { length.min(4096) } else { length };
        self.devices[0].media.rot(offset, length, &mut self.disk_prng);
        self.blame.taint(offset, length);
        self.blame.ssd_harmed = true;
        self.tell(format!("SSD bytes {offset}..{} decay", offset + length));
        self.cover(Fault::Corruption);
    }
}
