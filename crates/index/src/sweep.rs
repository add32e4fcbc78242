//! Going through all slots, a few at a time.

use super::packed::{Ended, PART_ORDINAL_BITS, PART_PAGES};
use super::plain::Fields;
use super::{BYTES_PER_NUMBER, Index, ORDINAL_BITS_OVER_PAGES, PACKED, Slot};
use crate::key::Key;
use alloc::vec::Vec;
use core::ops::Range;

impl Index {
    /// The first slot at or behind a position that can hold something, and its position: plain slots come first, then packed ones by part.
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
        let (mut at, mut ordinal) = ((behind >> PART_ORDINAL_BITS) as u32, (behind & ((1 << PART_ORDINAL_BITS) - 1)) as u32);
        while at < self.packed_parts() {
            if let Some(ordinal) = self.next_packed(at, ordinal) {
                let position = plain + (u64::from(at) << PART_ORDINAL_BITS) + u64::from(ordinal);
                return Some((position, Slot::packed(at, ordinal)));
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
            let (at, from) = ((behind >> PART_ORDINAL_BITS) as u32, (behind & ((1 << PART_ORDINAL_BITS) - 1)) as usize);
            let held = self.mixed.as_ref().map_or(&[][..], |mixed| mixed.packed.entries.held_in(at));
            let end = held.len().min(from + steps as usize);
            for entry in held.get(from..end).unwrap_or_default() {
                if let Some(key) = entry.key() {
                    each(key, entry.is_dirty());
                }
            }
            steps -= (end.saturating_sub(from) as u32).max(1);
            let next = if end < held.len() { (at, end) } else { (at + 1, 0) };
            position = plain + (u64::from(next.0) << PART_ORDINAL_BITS) + next.1 as u64;
        }
        (position < self.look_end()).then_some(position)
    }

    /// Where the positions of [`Index::look`] end.
    pub fn look_end(&self) -> u64 {
        let packed = if self.is_wide() { u64::from(self.packed_parts()) << PART_ORDINAL_BITS } else { 0 };
        u64::from(self.slots()) + packed
    }

    /// The first packed slot of a part that holds something, from this one on.
    fn next_packed(&self, at: u32, ordinal: u32) -> Option<u32> {
        self.mixed.as_ref().and_then(|mixed| mixed.packed.entries.next_alive(at, ordinal))
    }

    /// The packed slots that hold something and begin in these plain slots.
    pub fn packed_in(&self, slots: Range<u32>) -> impl Iterator<Item = Slot> + '_ {
        self.packed_from(Index::slot_at(slots.start, 0), slots.end)
    }

    /// The same: from this one on, up to this plain slot.
    pub fn packed_from(&self, from: Slot, end: u32) -> impl Iterator<Item = Slot> + '_ {
        let mut next = from.0 & !PACKED;
        let end = end << ORDINAL_BITS_OVER_PAGES;
        core::iter::from_fn(move || {
            let entries = &self.mixed.as_ref()?.packed.entries;
            while next < end {
                let (at, ordinal) = (next >> PART_ORDINAL_BITS, next & ((1 << PART_ORDINAL_BITS) - 1));
                if let Some(found) = entries.next_alive(at, ordinal) {
                    let found = (at << PART_ORDINAL_BITS) + found;
                    next = found + 1;
                    return (found < end).then_some(Slot(PACKED | found));
                }
                next = (at + 1) << PART_ORDINAL_BITS;
            }
            None
        })
    }

    /// The same: how many these are. A part of [`PART_PAGES`] slots takes no longer than one.
    pub fn packed_count(&self, slots: Range<u32>) -> u64 {
        let Some(mixed) = &self.mixed else { return 0 };
        let (first, last) = (slots.start.next_multiple_of(PART_PAGES), slots.end / PART_PAGES * PART_PAGES);
        if first >= last {
            return self.packed_in(slots).count() as u64;
        }
        let parts = first / PART_PAGES..last / PART_PAGES;
        let within: usize = parts.map(|part| mixed.packed.entries.held_in(part).len()).sum();
        let at_ends = self.packed_in(slots.start..first).count() + self.packed_in(last..slots.end).count();
        (within + at_ends) as u64
    }

    /// Whether payload that is alive lies in this plain slot, or a record without payload has its
    /// place there.
    pub fn has_packed(&self, slot: u32) -> bool {
        let Some(mixed) = &self.mixed else { return false };
        if self.packed_in(slot..slot + 1).next().is_some() {
            return true;
        }
        // One that begins before may end here: it is shorter than a page, and of the same region.
        let is_first = slot.is_multiple_of(self.pages_per_region);
        let before = |slot: u32| {
            let first = slot << ORDINAL_BITS_OVER_PAGES;
            let (at, ordinal) = (first >> PART_ORDINAL_BITS, first & ((1 << PART_ORDINAL_BITS) - 1));
            let entries = &mixed.packed.entries;
            let in_part = entries.last_alive_before(at, ordinal).map(|found| (at << PART_ORDINAL_BITS) + found);
            let before_part = || {
                let at = at.checked_sub(1).filter(|_| ordinal == 0)?;
                entries.last_alive_before(at, 1 << PART_ORDINAL_BITS).map(|found| (at << PART_ORDINAL_BITS) + found)
            };
            in_part.or_else(before_part).map(|found| Slot(PACKED | found))
        };
        let counts = !is_first && !mistakes::active(mistakes::SLOT_LEFT_WITH_ONE_ALIVE);
        counts && before(slot).is_some_and(|last| self.page_behind(last) > slot)
    }

    /// The plain slot that a packed one begins in.
    pub const fn page_of(slot: Slot) -> u32 {
        (slot.0 & !PACKED) >> ORDINAL_BITS_OVER_PAGES
    }

    /// The packed slot at so many bytes from the begin of a plain slot on, a multiple of [`BYTES_PER_NUMBER`].
    pub const fn slot_at(slot: u32, bytes: u32) -> Slot {
        Slot(PACKED | ((slot << ORDINAL_BITS_OVER_PAGES) + bytes / BYTES_PER_NUMBER))
    }

    /// How many numbers of the plain slot that it begins in are before it.
    pub const fn number_in_page(slot: Slot) -> u32 {
        slot.0 & ((1 << ORDINAL_BITS_OVER_PAGES) - 1)
    }

    /// The plain slot behind the last one that the payload of a packed slot lies in.
    fn page_behind(&self, slot: Slot) -> u32 {
        Index::page_behind_of(slot, self.stored(slot).bytes)
    }

    /// The same of a payload of so many bytes.
    pub const fn page_behind_of(slot: Slot, bytes: u16) -> u32 {
        let from = (slot.0 & !PACKED & ((1 << ORDINAL_BITS_OVER_PAGES) - 1)) * BYTES_PER_NUMBER;
        let pages = (from + bytes as u32).div_ceil(BYTES_PER_NUMBER << ORDINAL_BITS_OVER_PAGES);
        Index::page_of(slot) + if pages == 0 { 1 } else { pages }
    }

    /// Packed slots that hold nothing any more since this was asked last.
    pub fn take_ended(&mut self) -> Vec<Ended> {
        self.mixed.as_mut().map_or_else(Vec::new, |mixed| mixed.packed.entries.take_ended())
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
