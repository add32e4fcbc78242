//! Old data on the SSD that is not what it was any more (F5).

use engine::api::{Io, IoKind};

use super::{Happening, World};
use crate::coverage::Fault;

/// The low bytes of what a page of the ring says (docs/internals/on-disk-format.md): tail, durable group, count of bytes; of each of the first
/// statements its kind, mask, volume, block, slot and old slot. A bit that turns round there may leave something that could have been written so.
const TELLING_BYTES: [u64; 15] = [48, 56, 74, 128, 129, 132, 136, 148, 152, 160, 161, 164, 168, 180, 184];
/// Of each of the first statements besides: how its block is stored, where, in how many bytes, and on which object it rests.
const TELLING_OF_PACKED_BYTES: [u64; 15] = [130, 131, 141, 142, 143, 156, 162, 163, 173, 174, 175, 188, 194, 195, 220];

impl World<'_> {
    /// Decay goes on while the pool runs.
    pub fn rot(&mut self) {
        let delay = self.prng.spread(self.plan.rot_ns);
        self.queue.after(delay, Happening::Rot);
        self.decay();
    }

    /// The machine was off: what the next start reads first may have decayed just then.
    pub fn rot_while_off(&mut self) {
        if self.plan.rot_ns > 0 && self.safety && self.prng.percent(50) {
            self.decay();
        }
    }

    /// Damages a write of long ago: only where a durable page of the ring says that it was durable.
    fn decay(&mut self) {
        let faults = &mut self.devices[0].faults;
        let old = self.log_writes.provably_durable();
        if faults.budget == 0 || old.is_empty() {
            return;
        }
        // Often one of the youngest: what is older is said again by a sweep.
        let among = if self.prng.percent(50) { 4.min(old.len()) } else { old.len() };
        let super::log_writes::LogWrite { offset, length, .. } = old[old.len() - 1 - self.prng.below(among as u64) as usize];
        // What is being written over just now may have been written already, or be damaged only until it is: nobody could say.
        let over = |io: &Io| {
            matches!(io.kind, IoKind::Write { .. }) && io.offset_bytes < offset + length && offset < io.offset_bytes + io.length_bytes
        };
        if self.devices[0].flights().any(|flight| over(&flight.io)) {
            return;
        }
        self.devices[0].faults.budget -= 1;
        // Half of the time it is one page, as those of the ring are.
        let length = if self.prng.percent(50) { length.min(4096) } else { length };
        if length <= 4096 && self.prng.percent(50) {
            let of_packed = self.plan.content.is_some() && self.prng.percent(50);
            let at = self.prng.pick(if of_packed { &TELLING_OF_PACKED_BYTES } else { &TELLING_BYTES });
            self.devices[0].media.flip_a_bit(offset + at, 1, &mut self.disk_prng);
        } else {
            self.devices[0].media.rot(offset, length, &mut self.disk_prng);
        }
        self.log_writes.decays(offset);
        self.blame.taint(offset, length, self.devices[0].next_token());
        self.blame.ssd_harmed = true;
        self.tell(format!("SSD bytes {offset}..{} decay", offset + length));
        self.cover(Fault::Corruption);
    }
}
