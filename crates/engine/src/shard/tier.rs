//! Putting blocks into index and RAM and taking them out, so that all counts stay together.

use super::packing::NewBlock;
use super::{CLEAN_HOLD_NS, Shard};
use crate::key::Key;
use crate::mutants;
use crate::policy::{Arrival, Heat, Verdict};
use crate::ram::RamBlock;
use crate::store::{Purpose, Urgency};
use page::Page;
use types::{BLOCK_BYTES, BypassReason};

/// Blocks that RAM may hold over its size while they wait for their backing device to flush, or for a base, beside an eighth of its size.
const UNSETTLED_SLACK_MIN: u64 = 64;

impl Shard {
    /// Keeps a block in RAM, and lets others leave for it.
    pub(super) fn ram_insert(&mut self, key: Key, page: Page, arrival: Arrival) {
        if self.config.ram_blocks == 0 {
            self.leave_ram(key, page, arrival);
            return;
        }
        let arrival = if self.index.get(key).is_some() { arrival.as_copy() } else { arrival };
        let slot = self.policy.ram_insert(key.0, arrival);
        self.ram.insert(key, RamBlock { page, slot });
        self.volumes.of(key).ram_blocks += 1;
        self.presence.enter(key);
        self.ram_makes_room();
    }

    /// Lets blocks leave RAM while it holds more than it may.
    pub(super) fn ram_makes_room(&mut self) {
        self.policy.see_ssd(self.index.parts());
        while self.ram.len() > self.config.ram_blocks {
            let Some(victim) = self.policy.ram_evict() else { break };
            let key = Key(victim.key);
            let backing = &self.volumes.of(key).backing;
            if matches!(victim.verdict, Verdict::Admit(_))
                && !backing.is_settled(key.extent())
                && !mutants::active(mutants::CLEAN_BEFORE_BACKING_FLUSH)
            {
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
            let volume = self.volumes.of(key);
            volume.ram_blocks -= 1;
            if victim.along {
                volume.along.note(false);
            }
            self.presence.leave(key);
            match victim.verdict {
                Verdict::Admit(heat) => self.admit(key, page, heat),
                Verdict::Forget if self.volumes.is_pinned(key) => self.admit(key, page, Heat::default()),
                Verdict::Forget => self.turn_away_block(key, BypassReason::FirstTouch),
                Verdict::DropCopy => self.note_uses_of_copy(key, victim.heat),
            }
        }
    }

    /// A copy leaves RAM: its uses there count for the block.
    fn note_uses_of_copy(&mut self, key: Key, of_copy: Heat) {
        if let Some(slot) = self.index.get(key) {
            let heat = Heat::from_bits(self.index.meta(slot).frequency);
            self.index.set_frequency(slot, heat.with_uses_of(of_copy).bits());
        }
    }

    /// Whether a block that no client has asked for can enter RAM without one leaving that a client uses.
    pub(super) fn ram_has_room_for_own(&self) -> bool {
        self.ram.len() < self.config.ram_blocks || self.policy.ram_has_room_for_own()
    }

    /// Keeps a block that no client has asked for: in RAM where no block leaves that a client uses, else on the SSD at once.
    pub(super) fn ram_insert_own(&mut self, key: Key, page: Page, arrival: Arrival) {
        // Not into the store before the backing device has flushed it: such a block waits in RAM.
        if self.ram_has_room_for_own() || self.config.ram_blocks == 0 || !self.volumes.of(key).backing.is_settled(key.extent()) {
            return self.ram_insert(key, page, arrival);
        }
        self.policy.see_ssd(self.index.parts());
        match self.policy.passes_ram(key.0, arrival) {
            Verdict::Admit(heat) => self.admit(key, page, heat),
            Verdict::Forget if self.volumes.is_pinned(key) => self.admit(key, page, Heat::default()),
            Verdict::Forget => self.turn_away_block(key, BypassReason::FirstTouch),
            Verdict::DropCopy => {}
        }
    }

    /// Blocks that RAM may hold while some cannot leave yet.
    fn ram_most(&self) -> u64 {
        self.config.ram_blocks + UNSETTLED_SLACK_MIN + self.config.ram_blocks / 8
    }

    /// Without a RAM tier a block leaves RAM as it arrives.
    fn leave_ram(&mut self, key: Key, page: Page, arrival: Arrival) {
        self.policy.see_ssd(self.index.parts());
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
        let volume = self.volumes.of(key);
        let (leaves, settled) = (volume.state.is_detaching() || volume.backing.failed, volume.backing.is_settled(key.extent()));
        // Of a volume that is being detached, the sweep may have passed the place it would get.
        if self.loss.is_ssd_failed() || leaves {
            return;
        }
        if !settled && !mutants::active(mutants::CLEAN_BEFORE_BACKING_FLUSH) || !self.store.has_room(Purpose::Clean) {
            self.turn_away_block(key, BypassReason::NoSpace);
            return;
        }
        self.volumes.of(key).stats.admitted_bytes += BLOCK_BYTES;
        let block = NewBlock { key, page, mask: u8::MAX, dirty: false, heat, checksum: None };
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

    /// A block was read from the SSD or written into the store: RAM may keep a copy.
    pub(super) fn keep_copy(&mut self, key: Key, page: &page::Page, arrival: Option<Arrival>) {
        if self.ram.replace(key, page) {
            if let Some(block) = self.ram.get(key) {
                self.policy.ram_set_copy(block.slot, true);
            }
        } else if let Some(arrival) = arrival.filter(|_| self.config.ram_blocks > 0) {
            self.ram_insert(key, page.clone(), arrival.as_copy());
        }
    }
}
