//! Dirty blocks that no client has used for long are destaged before their region is given up.
//!
//! There a dirty block has to be appended again, which costs an SSD write and brings nothing for a block that is not overwritten.
//! So when its region is one of the next to go, its extent counts as old: destage takes it next, neighbours included, at its usual pace. Blocks in
//! use are left alone: they would be dirty again at once, and appending them is cheaper than a write to the backing device. So it is for
//! all blocks while clients queue at that device: a scattered block costs RAID 5 four of the commands they wait for.

use super::Shard;
use super::destage::dirty::DirtySet;
use crate::index::Slot;
use crate::policy::Heat;
use crate::store::Region;

impl Shard {
    /// These regions are the next to go.
    pub(super) fn age_before_they_go(&mut self, regions: &[Region]) {
        for region in regions {
            region.slots(&self.index).for_each(|slot| self.age_before_it_goes(slot));
        }
    }

    /// What is in this slot is one of the next to go.
    pub(super) fn age_before_it_goes(&mut self, slot: Slot) {
        let Some(key) = self.index.key_of(slot) else { return };
        let meta = self.index.meta(slot);
        let volume = self.volumes.get(key.volume());
        // The queue may be short just now; reads that take half of what they may say that it was not.
        let clients_queue = volume.is_some_and(|volume| {
            let backing = &volume.backing;
            backing.client_in_flight >= super::CLIENTS_QUEUE || backing.read_latency_ns > volume.options.latency_goal_ns / 2
        });
        if meta.dirty && !clients_queue && Heat::from_bits(meta.frequency).is_idle() {
            self.dirty.set_age(key.extent(), DirtySet::OLDEST_NS);
        }
    }
}
