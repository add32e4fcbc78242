//! Going through all slots, a few at a time.

use super::{Index, Slot};

impl Index {
    /// The first slot at or behind a position that can hold something, and its position: plain slots come first, then packed ones by segment.
    /// What is put into an earlier slot meanwhile is not met.
    pub fn next_slot(&self, position: u64) -> Option<(u64, Slot)> {
        let plain = u64::from(self.slots());
        if position < plain {
            return Some((position, Slot(position as u32)));
        }
        if !self.is_wide() {
            return None;
        }
        let behind = position - plain;
        let (mut physical, mut ordinal) = ((behind >> self.ordinal_bits) as u32, (behind & u64::from(self.packed_max() - 1)) as u32);
        while physical < self.segments() {
            if ordinal < self.packed_len(physical) {
                let position = plain + (u64::from(physical) << self.ordinal_bits) + u64::from(ordinal);
                return Some((position, self.packed_slot(physical, ordinal)));
            }
            (physical, ordinal) = (physical + 1, 0);
        }
        None
    }

    /// Every slot that can hold something.
    pub fn every_slot(&self) -> impl Iterator<Item = Slot> + '_ {
        let mut position = 0;
        core::iter::from_fn(move || {
            let (at, slot) = self.next_slot(position)?;
            position = at + 1;
            Some(slot)
        })
    }

    /// Whether others may rest on what is in this packed slot.
    pub fn is_object(&self, slot: Slot) -> bool {
        self.mixed.as_ref().is_some_and(|mixed| {
            let entry = mixed.packed.entries.at(slot);
            entry.is_object() && mixed.packed.object(entry.object()) == Some(slot)
        })
    }
}
