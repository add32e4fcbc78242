//! Going through all slots, a few at a time.

use super::plain::Fields;
use super::{Index, Slot};
use crate::key::Key;

impl Index {
    /// The first slot at or behind a position that can hold something, and its position: plain slots come first, then packed ones by region.
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
        let (mut at, mut ordinal) = ((behind >> self.ordinal_bits) as u32, (behind & u64::from(self.packed_max() - 1)) as u32);
        while at < self.regions() {
            if ordinal < self.packed_len(at) {
                let position = plain + (u64::from(at) << self.ordinal_bits) + u64::from(ordinal);
                return Some((position, self.packed_slot(at, ordinal)));
            }
            (at, ordinal) = (at + 1, 0);
        }
        None
    }

    /// Shows the blocks of at most `steps` entries to `each`, with whether they are dirty; gives where to go on, `None` at the end. Positions
    /// are not those of [`Index::next_slot`], and ascend up to [`Index::look_end`]. If nothing changes meanwhile each block is shown once; one
    /// that moves, or in a region that is given back memory, may be shown twice or not at all.
    pub fn look(&self, mut position: u64, mut steps: u32, mut each: impl FnMut(Key, bool)) -> Option<u64> {
        let plain = u64::from(self.slots());
        while steps > 0 && position < plain {
            let region = position / u64::from(self.pages_per_region);
            let region_end = ((region + 1) * u64::from(self.pages_per_region)).min(plain);
            if !self.plain_used[region as usize] {
                (position, steps) = (region_end, steps - 1);
                continue;
            }
            let end = region_end.min(position + u64::from(steps));
            for entry in &self.plain[position as usize..end as usize] {
                if let Some(key) = entry.key() {
                    each(key, entry.meta().dirty);
                }
            }
            let left_out = u64::from(mistakes::active(mistakes::COUNT_SKIPS) && end < region_end);
            (position, steps) = (end + left_out, steps - (end - position) as u32);
        }
        while steps > 0 && position < self.look_end() {
            let behind = position - plain;
            let (at, from) = ((behind >> self.ordinal_bits) as u32, (behind & u64::from(self.packed_max() - 1)) as usize);
            let held = self.mixed.as_ref().map_or(&[][..], |mixed| mixed.packed.entries.held_in(at));
            let end = held.len().min(from + steps as usize);
            for entry in held.get(from..end).unwrap_or_default() {
                if let Some(key) = entry.key() {
                    each(key, entry.is_dirty());
                }
            }
            steps -= (end.saturating_sub(from) as u32).max(1);
            let next = if end < held.len() { (at, end) } else { (at + 1, 0) };
            position = plain + (u64::from(next.0) << self.ordinal_bits) + next.1 as u64;
        }
        (position < self.look_end()).then_some(position)
    }

    /// Where the positions of [`Index::look`] end.
    pub fn look_end(&self) -> u64 {
        let packed = if self.is_wide() { u64::from(self.regions()) << self.ordinal_bits } else { 0 };
        u64::from(self.slots()) + packed
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
