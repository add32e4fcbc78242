//! Notes in the store that a block has come home: what a start after a crash need not destage again.
//!
//! A note goes with the next group and nobody waits for it; without room it comes later. Only leaving write-back waits for all of them.

use super::{CLEAN_HOLD_NS, Shard};
use crate::index::Slot;
use crate::key::Key;
use crate::mutants;
use crate::store::{Purpose, Urgency};
use types::VolumeIndex;

/// Late notes written in one turn, so that clients do not wait for them.
const NOTES_A_TURN: usize = 64;

impl Shard {
    /// The block in that slot has come home. Until the store says so it is dirty after a crash, and what it rests on must be there.
    pub(super) fn note_or_remember(&mut self, key: Key, slot: Slot) {
        if mutants::active(mutants::BASE_LET_GO_EARLY) {
            self.index.let_go_of_base(slot);
        }
        if !self.note_clean(key, slot) {
            self.unnoted.insert(key, slot);
        }
    }

    /// Writes some of the notes that had no room.
    pub(super) fn note_some_late(&mut self) {
        if !self.unnoted.is_empty() {
            self.note_some();
        }
    }

    #[inline(never)]
    fn note_some(&mut self) {
        for _ in 0..NOTES_A_TURN {
            match self.unnoted.keys().next().copied() {
                Some(key) if self.note_late(key) => {}
                _ => break,
            }
        }
    }

    /// Writes that the block's record is at home. False without room.
    fn note_clean(&mut self, key: Key, slot: Slot) -> bool {
        if self.loss.is_ssd_failed() {
            self.index.let_go_of_base(slot);
            return true;
        }
        if !self.store.has_room(Purpose::Clean) {
            return false;
        }
        let checksum = self.index.meta(slot).checksum;
        let group = self.store.note_home(slot, checksum, Urgency::By(self.now_ns + 10 * CLEAN_HOLD_NS));
        self.index.let_go_of_base(slot);
        let volume = self.volumes.of(key);
        volume.note_group = volume.note_group.max(group);
        true
    }

    /// Makes up for a note that had no room. False if there still is none.
    fn note_late(&mut self, key: Key) -> bool {
        let slot = self.unnoted[&key];
        // Appended again or made void since: then a record says more than a note would.
        let is_current = self.index.get(key) == Some(slot) && !self.index.meta(slot).dirty;
        let done = !is_current || self.note_clean(key, slot);
        if done {
            self.unnoted.remove(&key);
        }
        done
    }

    /// Whether the store says durably of every block of the volume that it is at home; makes it say so. Without that, a start after a
    /// crash would take blocks for dirty, and depend on the SSD for them, in a volume that needs no SSD. A failed store says nothing any
    /// more: then the host's record that nobody is to believe it must do.
    pub(super) fn notes_are_durable(&mut self, index: VolumeIndex) -> bool {
        if self.loss.is_ssd_failed() {
            return self.volumes.is_past_ssd(index);
        }
        while let Some((key, _)) = self.unnoted.range(Key::new(index, 0)..).next().filter(|(key, _)| key.volume() == index) {
            let key = *key;
            if !self.note_late(key) {
                return false;
            }
        }
        let group = self.volumes.of(Key::new(index, 0)).note_group;
        if group > self.store.commits().durable() {
            self.store.commits_mut().want_durable(group);
            return false;
        }
        true
    }
}
