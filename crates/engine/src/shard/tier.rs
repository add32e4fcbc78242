//! Putting blocks into index and RAM and taking them out, so that all counts stay together.

use super::{CLEAN_HOLD_NS, Shard};
use crate::index::{Slot, SlotMeta};
use crate::key::Key;
use crate::locks::OpId;
use crate::mutants;
use crate::policy::{Access, Advice, Arrival, Heat, Place, Verdict};
use crate::ram::RamBlock;
use crate::store::{Payload, Purpose, Store, Urgency};
use format::{Record, RecordKind, payload_checksum};
use page::Page;
use types::{Admission, BLOCK_BYTES, BypassReason};

/// Blocks that RAM may hold over its size while they wait for their backing device to flush, or for a base, beside an eighth of its size.
const UNSETTLED_SLACK_MIN: u64 = 64;

/// A block on its way into the store.
pub struct NewBlock {
    /// Which.
    pub key: Key,
    /// Its content.
    pub page: Page,
    /// Valid sectors.
    pub mask: u8,
    /// Newer than the backing device.
    pub dirty: bool,
    /// For its index entry.
    pub heat: Heat,
    /// Of the content; computed here unless the caller has it.
    pub checksum: Option<u32>,
    /// Dirty content that could not be read: `page` is not what `checksum` says.
    pub lost: bool,
}

impl Shard {
    /// Appends a block and points the index at it; gives the group. The store must have room.
    pub(super) fn store_block(&mut self, block: NewBlock, urgency: Urgency) -> u64 {
        if let Some(group) = self.store_packed(&block, urgency) {
            return group;
        }
        let NewBlock { key, page, mask, dirty, heat, checksum, lost } = block;
        let id = self.volume_of(key).id;
        if checksum.is_none() {
            self.destage_replaced(key);
        }
        let checksum = checksum.unwrap_or_else(|| payload_checksum(id, key.block(), &page));
        let kind = match (dirty, lost) {
            (true, false) => RecordKind::DataDirty,
            (true, true) => RecordKind::DataLost,
            (false, _) => RecordKind::DataClean,
        };
        let record = Record { kind, volume: id, block: key.block(), mask, checksum, slot_page: 0, packed: None };
        let appended = self.store.append(record, Payload::Page(page), urgency);
        let slot = appended.slot.expect("a record with payload has a slot");
        let meta = SlotMeta { dirty, partial: mask != u8::MAX, frequency: heat.bits(), checksum };
        if self.index.insert(key, slot, meta).is_none() {
            self.volume_of(key).cached_blocks += 1;
            self.presence.enter(key);
        }
        self.partial.remove(&key);
        if meta.partial {
            self.partial.insert(key, mask);
        }
        if dirty {
            self.now_dirty(key, self.now_ns)
        } else {
            self.dirty.remove(key)
        }
        appended.group
    }

    /// Appends an `Invalidate` record for a block and forgets its index entry; gives the group. The store must have room.
    pub(super) fn store_void(&mut self, key: Key, urgency: Urgency) -> u64 {
        let id = self.volume_of(key).id;
        let kind = RecordKind::Invalidate;
        let record = Record { kind, volume: id, block: key.block(), mask: 0, checksum: 0, slot_page: 0, packed: None };
        let group = self.store.append(record, Payload::None, urgency).group;
        self.forget(key);
        group
    }

    /// Takes a block out of the index (not out of RAM). The caller has seen to it that the store says so too.
    pub(super) fn forget(&mut self, key: Key) {
        if self.index.remove(key).is_some() {
            self.volume_of(key).cached_blocks -= 1;
            self.presence.leave(key);
        }
        self.partial.remove(&key);
        self.dirty.remove(key);
        self.destage_replaced(key);
    }

    /// The valid sectors of a block in the index.
    pub(super) fn mask_of(&self, key: Key, slot: Slot) -> u8 {
        if self.index.meta(slot).partial { self.partial[&key] } else { u8::MAX }
    }

    /// Tells the policy of a touch, and stores the new heat. What hearth brings in itself needs no proof.
    pub(super) fn touch(&mut self, key: Key, write: bool, request_blocks: u32, own: bool) -> Advice {
        let place = match (self.ram.get(key), self.index.get(key)) {
            (Some(block), _) => Place::Ram(block.slot),
            (None, Some(slot)) => return self.touch_on_ssd(key, slot, write, request_blocks, own),
            (None, None) => Place::Absent,
        };
        let admission = if own || self.is_pinned(key) { Admission::Always } else { self.volume_of(key).options.admission };
        self.policy.on_access(key.0, place, Access { write, request_blocks, admission, own })
    }

    /// The same for a block that is known to be in this slot and not in RAM.
    pub(super) fn touch_on_ssd(&mut self, key: Key, slot: Slot, write: bool, request_blocks: u32, own: bool) -> Advice {
        let age_regions = self.place_of(slot).age_regions;
        let place = Place::Ssd { heat: Heat::from_bits(self.index.meta(slot).frequency), age_regions };
        let admission = self.volume_of(key).options.admission;
        let advice = self.policy.on_access(key.0, place, Access { write, request_blocks, admission, own });
        self.index.set_frequency(slot, advice.heat.bits());
        advice
    }

    /// Keeps a block in RAM, and lets others leave for it.
    pub(super) fn ram_insert(&mut self, key: Key, page: Page, arrival: Arrival) {
        if self.config.ram_blocks == 0 {
            self.leave_ram(key, page, arrival);
            return;
        }
        let arrival = if self.index.get(key).is_some() { arrival.as_copy() } else { arrival };
        let slot = self.policy.ram_insert(key.0, arrival);
        self.ram.insert(key, RamBlock { page, slot });
        self.volume_of(key).ram_blocks += 1;
        self.presence.enter(key);
        while self.ram.len() > self.config.ram_blocks {
            let Some(victim) = self.policy.ram_evict() else { break };
            let key = Key(victim.key);
            let backing = &self.volume_of(key).backing;
            if matches!(victim.verdict, Verdict::Admit(_)) && !backing.is_settled(key.extent()) && !mutants::active(41) {
                // Not into the store before the backing device has flushed it; RAM may be a little over its size meanwhile.
                self.flush_backing(key.volume());
                if self.ram.len() <= self.ram_most() {
                    let slot = self.policy.ram_return(victim, false);
                    self.ram.set_slot(key, slot);
                    break;
                }
            }
            if let Verdict::Admit(heat) = victim.verdict
                && self.ram.len() <= self.ram_most()
                && self.awaits_base(key, heat)
            {
                let slot = self.policy.ram_return(victim, false);
                self.ram.set_slot(key, slot);
                break;
            }
            let page = self.ram.remove(key).expect("policy and RAM hold the same blocks").page;
            self.volume_of(key).ram_blocks -= 1;
            self.presence.leave(key);
            match victim.verdict {
                Verdict::Admit(heat) => self.admit(key, page, heat),
                Verdict::Forget if self.is_pinned(key) => self.admit(key, page, Heat::default()),
                Verdict::Forget => self.turn_away_block(key, BypassReason::FirstTouch),
                Verdict::DropCopy => {}
            }
        }
    }

    /// Whether a block that no client has asked for can enter RAM without one leaving that a client uses.
    pub(super) fn ram_has_room_for_own(&self) -> bool {
        self.ram.len() < self.config.ram_blocks || self.policy.ram_has_room_for_own()
    }

    /// Keeps a block that no client has asked for: in RAM where no block leaves that a client uses, else on the SSD at once.
    pub(super) fn ram_insert_own(&mut self, key: Key, page: Page, arrival: Arrival) {
        // Not into the store before the backing device has flushed it: such a block waits in RAM.
        if self.ram_has_room_for_own() || self.config.ram_blocks == 0 || !self.volume_of(key).backing.is_settled(key.extent()) {
            return self.ram_insert(key, page, arrival);
        }
        match self.policy.passes_ram(key.0, arrival) {
            Verdict::Admit(heat) => self.admit(key, page, heat),
            Verdict::Forget if self.is_pinned(key) => self.admit(key, page, Heat::default()),
            Verdict::Forget => self.turn_away_block(key, BypassReason::FirstTouch),
            Verdict::DropCopy => {}
        }
    }

    /// A request goes around the cache, or has to wait. Counted is what clients ask for.
    pub(super) fn turn_away(&mut self, id: OpId, reason: BypassReason) {
        let op = self.ops.get_mut(id);
        op.reason = Some(reason);
        let (key, own) = (op.first, op.request.origin.is_own());
        if !own {
            self.volume_of(key).stats.turn_away(reason);
        }
    }

    /// A block that a request brought does not get a place on the SSD.
    pub(super) fn turn_away_block(&mut self, key: Key, reason: BypassReason) {
        self.volume_of(key).stats.turn_away(reason);
        self.trail.turned_away(key, reason);
    }

    /// Blocks that RAM may hold while some cannot leave yet.
    fn ram_most(&self) -> u64 {
        self.config.ram_blocks + UNSETTLED_SLACK_MIN + self.config.ram_blocks / 8
    }

    /// Without a RAM tier a block leaves RAM as it arrives.
    fn leave_ram(&mut self, key: Key, page: Page, arrival: Arrival) {
        self.policy.ram_insert(key.0, arrival);
        while let Some(victim) = self.policy.ram_evict() {
            match victim.verdict {
                _ if victim.key != key.0 => {}
                Verdict::Admit(heat) => self.admit(key, page.clone(), heat),
                Verdict::Forget => self.turn_away_block(key, BypassReason::FirstTouch),
                Verdict::DropCopy => {}
            }
        }
    }

    /// Writes a clean block to the SSD, if there is room.
    fn admit(&mut self, key: Key, page: Page, heat: Heat) {
        if self.index.get(key).is_some() {
            return;
        }
        let volume = self.volume_of(key);
        let (leaves, settled) = (volume.detaching || volume.backing.failed, volume.backing.is_settled(key.extent()));
        // Of a volume that is being detached, the sweep may have passed the place it would get.
        if self.loss.is_ssd_failed() || leaves {
            return;
        }
        if !settled && !mutants::active(41) || !self.store.has_room(Purpose::Clean) {
            self.turn_away_block(key, BypassReason::NoSpace);
            return;
        }
        self.volume_of(key).stats.admitted_bytes += BLOCK_BYTES;
        let block = NewBlock { key, page, mask: u8::MAX, dirty: false, heat, checksum: None, lost: false };
        self.store_block(block, Urgency::By(self.now_ns + CLEAN_HOLD_NS));
        self.note_pinned(key);
    }

    /// Writes a clean block that is in RAM alone to the SSD; RAM has a copy from then on. It may have left, or been written over, since this was
    /// meant to be done.
    pub(super) fn admit_from_ram(&mut self, key: Key, heat: Heat) {
        let Some((page, slot)) = self.ram.get(key).map(|block| (block.page.clone(), block.slot)) else { return };
        if self.index.get(key).is_none() {
            self.admit(key, page, heat);
            self.policy.ram_set_copy(slot, self.index.get(key).is_some());
        }
    }

    /// Takes a block out of RAM, if it is there.
    pub(super) fn drop_from_ram(&mut self, key: Key) -> bool {
        let Some(block) = self.ram.remove(key) else { return false };
        self.policy.ram_remove(block.slot);
        self.volume_of(key).ram_blocks -= 1;
        self.presence.leave(key);
        true
    }
}
