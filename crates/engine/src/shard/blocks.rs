//! Taking blocks out of index and RAM, and noting what is done with them, so that all counts stay together.

use super::Shard;
use crate::index::Slot;
use crate::key::Key;
use crate::policy::{Access, Advice, Heat, Place};
use crate::store::{Payload, Urgency};
use format::{Record, RecordKind};
use types::Admission;

impl Shard {
    /// A block is dirty from now on.
    pub(super) fn now_dirty(&mut self, key: Key, now_ns: u64) {
        self.dirty.insert(key, now_ns);
        self.destager.may_look_at(key);
    }

    /// Appends an `Invalidate` record for a block and forgets its index entry; gives the group. The store must have room.
    pub(super) fn store_void(&mut self, key: Key, urgency: Urgency) -> u64 {
        let id = self.volumes.of(key).id;
        let kind = RecordKind::Invalidate;
        let record = Record { kind, volume: id, block: key.block(), mask: 0, checksum: 0, slot_page: 0, packed: None };
        let group = self.store.append(record, self.index.get(key), Payload::None, urgency).group;
        self.forget(key);
        group
    }

    /// Takes a block out of the index (not out of RAM). The caller has seen to it that the store says so too.
    pub(super) fn forget(&mut self, key: Key) {
        if self.index.remove(key).is_some() {
            self.volumes.of(key).cached_blocks -= 1;
            self.presence.leave(key);
        }
        self.partial.remove(&key);
        self.dirty.remove(key);
        self.destager.replaced(key);
    }

    /// Tells the policy of a touch, and stores the new heat. What hearth brings in itself needs no proof.
    pub(super) fn touch(&mut self, key: Key, write: bool, request_blocks: u32, own: bool) -> Advice {
        let place = match (self.ram.get(key), self.index.get(key)) {
            (Some(block), _) => Place::Ram(block.slot),
            (None, Some(slot)) => return self.touch_on_ssd(key, slot, write, request_blocks, own),
            (None, None) => Place::Absent,
        };
        let admission = if own || self.volumes.is_pinned(key) { Admission::Always } else { self.volumes.of(key).options.admission };
        let advice = self.policy.on_access(key.0, place, Access { write, request_blocks, admission, own });
        if advice.was_along && !write {
            self.came_along_for_good(key, 1);
        }
        advice
    }

    /// The same for a block that is known to be in this slot and not in RAM.
    pub(super) fn touch_on_ssd(&mut self, key: Key, slot: Slot, write: bool, request_blocks: u32, own: bool) -> Advice {
        let place = Place::Ssd { heat: Heat::from_bits(self.index.meta(slot).frequency) };
        let admission = self.volumes.of(key).options.admission;
        let advice = self.policy.on_access(key.0, place, Access { write, request_blocks, admission, own });
        self.index.set_frequency(slot, advice.heat.bits());
        advice
    }

    /// A client's read finds blocks that had come along, each for the first time.
    pub(super) fn came_along_for_good(&mut self, first: Key, blocks: u64) {
        let volume = self.volumes.of(first);
        volume.stats.read_along_hits += blocks;
        (0..blocks).for_each(|_| volume.along.note(true));
        self.neighbours.note(first);
    }

    /// Takes a block out of RAM, if it is there.
    pub(super) fn drop_from_ram(&mut self, key: Key) -> bool {
        let Some(block) = self.ram.remove(key) else { return false };
        self.policy.ram_remove(block.slot);
        self.volumes.of(key).ram_blocks -= 1;
        self.presence.leave(key);
        true
    }
}
