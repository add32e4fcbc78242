//! Dirty blocks go home before their segment becomes the tail, if nobody has used them for most of a lap.
//!
//! At the tail a dirty block has to be appended again, which costs an SSD write and brings nothing for a block that nobody overwrites.
//! So some segments ahead of the tail, its extent counts as old: destage takes it next, neighbours included, at its usual pace. Blocks in
//! use are left alone: they would be dirty again at once, and appending them is cheaper than a write to the backing device. So it is for
//! all blocks while clients queue at that device: a scattered block costs RAID 5 four of the commands they wait for.

use super::Shard;
use crate::destage::dirty::DirtySet;
use crate::index::Slot;
use crate::policy::Heat;

/// One in this many segments of the ring lies ahead of the tail and is looked at: about as long as destage has to bring it home.
const AHEAD_ONE_IN: u64 = 8;

impl Shard {
    /// A segment has been opened: look at those that will be the tail some segments later.
    pub(super) fn age_before_tail(&mut self) {
        let space = self.log.space();
        let ahead = (space.segments() / AHEAD_ONE_IN).max(1);
        let end_seq = (space.tail_seq() + ahead + 1).min(space.head_seq());
        // While the ring is not nearly full, its tail is in no danger.
        let is_near = space.live_segments() + ahead + super::RESERVE_SEGMENTS >= space.segments();
        if !is_near {
            return;
        }
        let first_seq = space.tail_seq().max(self.aged_seq);
        self.aged_seq = end_seq.max(self.aged_seq);
        for slot in (first_seq..end_seq).flat_map(|seq| self.slots_of(seq)).collect::<alloc::vec::Vec<Slot>>() {
            let Some(key) = self.index.key_of(slot) else { continue };
            let meta = self.index.meta(slot);
            let volume = self.volumes[usize::from(key.volume().0)].as_ref();
            // The queue may be short just now; reads that take half of what they may say that it was not.
            let clients_queue = volume.is_some_and(|volume| {
                let backing = &volume.backing;
                backing.client_in_flight >= super::CLIENTS_QUEUE || backing.read_latency_ns > volume.options.latency_goal_ns / 2
            });
            if meta.dirty && !clients_queue && Heat::from_bits(meta.frequency) == Heat::default() {
                self.dirty.set_age(key.extent(), DirtySet::OLDEST_NS);
            }
        }
    }
}
