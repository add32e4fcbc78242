//! Dirty blocks that no client has used for long are destaged before the hand comes to their shelf.
//!
//! There a dirty block must stay, whatever else would be worth its slot. So when its shelf is one of the next to be judged, its extent counts as old:
//! destage takes it next, neighbours included, at its usual pace. Blocks in use are left alone: they would be dirty again at once. So it is for
//! all blocks while clients queue at that device: a scattered block costs RAID 5 four of the commands they wait for.

use super::Shard;
use super::destage::dirty::DirtySet;
use crate::index::Slot;
use crate::policy::Heat;
use crate::store::Region;

impl Shard {
    /// These shelves are the next to be judged.
    #[inline(never)]
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
        if meta.dirty && !clients_queue && Heat::from_bits(meta.frequency).uses() == 0 {
            self.dirty.set_age(key.extent(), DirtySet::OLDEST_NS);
        }
    }
}
