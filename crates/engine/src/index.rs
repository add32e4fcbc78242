//! Block address → where the block lies on the SSD, and what must be known about it there.
//!
//! A *slot* is a page of the shard's log. Per slot there are a packed key, two bits of use, the flags dirty and partial, and the
//! checksum of its content: 10 bytes, side by side, so that a hit touches one cache line of them. A table of 4-byte buckets (24 bits of slot, 8 bits of tag) finds the slot of a
//! key by linear probing: at 85 % load 4.7 bytes a slot. Together 14.7 bytes a slot, whatever is cached.
//!
//! Invariants: a key has at most one slot; a slot with a key is found by that key; a slot without one has no flag set.

use crate::key::{KEY_BITS, Key};
use alloc::vec;
use alloc::vec::Vec;

/// A page of the shard's log: `physical segment index * pages per segment + page`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Slot(pub u32);

/// Slots one shard can have: 64 GiB of log. A bucket keeps 24 bits of slot beside its tag.
pub const SLOTS_MAX: u32 = (1 << 24) - 1;

/// Buckets for a hundred slots: load 85 %, where an unsuccessful probe looks at 22 neighbouring buckets (about two cache lines).
const BUCKETS_PER_100_SLOTS: u64 = 118;

const EMPTY: u32 = 0;
const KEY_NONE_HIGH: u16 = 0x0fff;
const KEY_NONE_LOW: u32 = u32::MAX;
const FLAG_DIRTY: u16 = 1 << 12;
const FLAG_PARTIAL: u16 = 1 << 13;
const FREQUENCY_SHIFT: u32 = 14;
const FLAGS: u16 = 0xf000;

const _: () = assert!(KEY_BITS == 32 + 12);

/// What is known of a slot, without padding: low and high half of the key's lower 32 bits; bits 0..12 the key's upper bits, 12 dirty, 13
/// partial, 14..16 frequency; low and high half of the checksum.
#[derive(Clone, Copy)]
struct Entry([u16; 5]);

impl Entry {
    const NONE: Entry = Entry([u16::MAX, u16::MAX, KEY_NONE_HIGH, 0, 0]);

    #[inline]
    fn key_low(self) -> u32 {
        u32::from(self.0[0]) | u32::from(self.0[1]) << 16
    }

    #[inline]
    fn key(self) -> Option<Key> {
        let high = self.0[2] & !FLAGS;
        let low = self.key_low();
        if high == KEY_NONE_HIGH && low == KEY_NONE_LOW { None } else { Some(Key(u64::from(high) << 32 | u64::from(low))) }
    }

    #[inline]
    fn new(key: Key, meta: SlotMeta) -> Entry {
        debug_assert!(meta.frequency < 4);
        let flags = if meta.dirty { FLAG_DIRTY } else { 0 } | if meta.partial { FLAG_PARTIAL } else { 0 };
        let high = (key.0 >> 32) as u16 | flags | u16::from(meta.frequency) << FREQUENCY_SHIFT;
        Entry([key.0 as u16, (key.0 >> 16) as u16, high, meta.checksum as u16, (meta.checksum >> 16) as u16])
    }
}

/// See the module.
pub struct Index {
    entries: Vec<Entry>,
    /// `(slot + 1) << 8 | tag`, or [`EMPTY`].
    buckets: Vec<u32>,
    live: u32,
}

impl Index {
    /// An empty index for `slots` slots, at most [`SLOTS_MAX`].
    pub fn new(slots: u32) -> Index {
        assert!(slots <= SLOTS_MAX, "{slots} slots are more than a shard can have");
        let buckets = (u64::from(slots) * BUCKETS_PER_100_SLOTS / 100 + 8) as usize;
        Index { entries: vec![Entry::NONE; slots as usize], buckets: vec![EMPTY; buckets], live: 0 }
    }

    /// Blocks in the index.
    pub fn live_blocks(&self) -> u32 {
        self.live
    }

    /// Slots there are.
    pub fn slots(&self) -> u32 {
        self.entries.len() as u32
    }

    /// Memory of all arrays, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        (self.entries.len() * size_of::<Entry>() + self.buckets.len() * size_of::<u32>()) as u64
    }

    /// Where the block lies, if it is cached on the SSD.
    #[inline]
    pub fn get(&self, key: Key) -> Option<Slot> {
        let hash = key.hash();
        let mut at = self.home(hash);
        loop {
            let bucket = self.buckets[at];
            if bucket == EMPTY {
                return None;
            }
            if bucket & 0xff == tag(hash) {
                let slot = Slot((bucket >> 8) - 1);
                if self.key_of(slot) == Some(key) {
                    return Some(slot);
                }
            }
            at = self.next(at);
        }
    }

    /// Has the processor fetch what [`Index::insert`] or [`Index::get`] of the key will look at first: asked for many keys, one after the
    /// other, the waits for memory overlap.
    #[inline]
    pub fn approach(&self, key: Key) {
        core::hint::black_box(self.buckets[self.home(key.hash())]);
    }

    /// The block whose newest record lies in this slot.
    #[inline]
    pub fn key_of(&self, slot: Slot) -> Option<Key> {
        self.entries[slot.0 as usize].key()
    }

    /// Puts the block at `slot`, away from where it was; gives back its old slot. The new slot must have no key.
    pub fn insert(&mut self, key: Key, slot: Slot, meta: SlotMeta) -> Option<Slot> {
        assert!(self.key_of(slot).is_none(), "slot {} has a block already", slot.0);
        let hash = key.hash();
        let mut at = self.home(hash);
        let old = loop {
            let bucket = self.buckets[at];
            if bucket == EMPTY {
                self.live += 1;
                break None;
            }
            if bucket & 0xff == tag(hash) {
                let old = Slot((bucket >> 8) - 1);
                if self.key_of(old) == Some(key) {
                    self.clear_slot(old);
                    break Some(old);
                }
            }
            at = self.next(at);
        };
        self.buckets[at] = ((slot.0 + 1) << 8) | tag(hash);
        self.entries[slot.0 as usize] = Entry::new(key, meta);
        old
    }

    /// Forgets the block; gives back where it was.
    pub fn remove(&mut self, key: Key) -> Option<Slot> {
        let hash = key.hash();
        let mut at = self.home(hash);
        let slot = loop {
            let bucket = self.buckets[at];
            if bucket == EMPTY {
                return None;
            }
            if bucket & 0xff == tag(hash) {
                let slot = Slot((bucket >> 8) - 1);
                if self.key_of(slot) == Some(key) {
                    break slot;
                }
            }
            at = self.next(at);
        };
        self.clear_slot(slot);
        self.close_gap(at);
        self.live -= 1;
        Some(slot)
    }

    /// Linear probing without tombstones: entries behind a freed bucket move up if their home lies at or before it.
    fn close_gap(&mut self, mut gap: usize) {
        let mut at = gap;
        loop {
            at = self.next(at);
            let bucket = self.buckets[at];
            if bucket == EMPTY {
                break;
            }
            let key = self.key_of(Slot((bucket >> 8) - 1)).expect("a bucket's slot has a key");
            let home = self.home(key.hash());
            let distance_from_home = (at + self.buckets.len() - home) % self.buckets.len();
            let distance_from_gap = (at + self.buckets.len() - gap) % self.buckets.len();
            if distance_from_home >= distance_from_gap {
                self.buckets[gap] = bucket;
                gap = at;
            }
        }
        self.buckets[gap] = EMPTY;
    }

    fn clear_slot(&mut self, slot: Slot) {
        self.entries[slot.0 as usize] = Entry::NONE;
    }

    /// What is known about the block in this slot.
    #[inline]
    pub fn meta(&self, slot: Slot) -> SlotMeta {
        let Entry([_, _, high, checksum_low, checksum_high]) = self.entries[slot.0 as usize];
        SlotMeta {
            dirty: high & FLAG_DIRTY != 0,
            partial: high & FLAG_PARTIAL != 0,
            frequency: (high >> FREQUENCY_SHIFT) as u8,
            checksum: u32::from(checksum_low) | u32::from(checksum_high) << 16,
        }
    }

    /// Notes that the block in this slot is at home now.
    pub fn set_clean(&mut self, slot: Slot) {
        self.entries[slot.0 as usize].0[2] &= !FLAG_DIRTY;
    }

    /// Sets the two bits of use.
    #[inline]
    pub fn set_frequency(&mut self, slot: Slot, frequency: u8) {
        let high = &mut self.entries[slot.0 as usize].0[2];
        *high = (*high & 0x3fff) | (u16::from(frequency.min(3)) << FREQUENCY_SHIFT);
    }

    #[inline]
    fn home(&self, hash: u64) -> usize {
        // Multiply-shift maps the hash's upper half evenly to any count of buckets (Lemire 2019, "fast range").
        (((hash >> 32) * self.buckets.len() as u64) >> 32) as usize
    }

    #[inline]
    fn next(&self, at: usize) -> usize {
        if at + 1 == self.buckets.len() { 0 } else { at + 1 }
    }

    /// Recounts everything; for tests and the simulator.
    pub fn check_invariants(&self) {
        let mut found = 0;
        for slot in 0..self.slots() {
            if let Some(key) = self.key_of(Slot(slot)) {
                assert_eq!(self.get(key), Some(Slot(slot)), "slot {slot} is not found by its key");
                found += 1;
            } else {
                assert_eq!(self.entries[slot as usize].0[2] & FLAGS, 0, "slot {slot} has flags and no key");
            }
        }
        assert_eq!(found, self.live);
        assert_eq!(self.buckets.iter().filter(|bucket| **bucket != EMPTY).count(), found as usize);
    }
}

/// What the index knows about the block in a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotMeta {
    /// Newer than the backing device.
    pub dirty: bool,
    /// Not all sectors of the block are valid; which ones is in the shard's table of partial blocks.
    pub partial: bool,
    /// Use since it was written, 0 to 3.
    pub frequency: u8,
    /// CRC-32C over content and address (`format::payload_checksum`).
    pub checksum: u32,
}

#[inline]
fn tag(hash: u64) -> u32 {
    (hash & 0xff) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::mix;
    use alloc::collections::BTreeMap;
    use types::VolumeIndex;

    fn meta(checksum: u32) -> SlotMeta {
        SlotMeta { dirty: checksum.is_multiple_of(2), partial: checksum.is_multiple_of(3), frequency: (checksum % 4) as u8, checksum }
    }

    #[test]
    fn agrees_with_a_map_under_random_use() {
        let slots = 1000;
        let mut index = Index::new(slots);
        let mut model: BTreeMap<Key, (Slot, SlotMeta)> = BTreeMap::new();
        let mut free: Vec<u32> = (0..slots).collect();
        for step in 0..40_000_u64 {
            let random = mix(step);
            let key = Key::new(VolumeIndex((random % 3) as u16 * 500), (random >> 8) % 800);
            if random >> 60 < 9 {
                if let Some(slot) = free.pop() {
                    let old = index.insert(key, Slot(slot), meta(step as u32));
                    let before = model.insert(key, (Slot(slot), meta(step as u32)));
                    assert_eq!(old, before.map(|(slot, _)| slot));
                    free.extend(old.map(|slot| slot.0));
                }
            } else {
                let gone = index.remove(key);
                assert_eq!(gone, model.remove(&key).map(|(slot, _)| slot));
                free.extend(gone.map(|slot| slot.0));
            }
            if step % 4000 == 0 {
                index.check_invariants();
            }
        }
        index.check_invariants();
        for (key, (slot, meta)) in model {
            assert_eq!(index.get(key), Some(slot));
            assert_eq!(index.meta(slot), meta);
        }
    }

    #[test]
    fn sixteen_bytes_a_block() {
        let index = Index::new(100_000);
        assert!(index.memory_bytes() <= 15 * 100_000, "{} bytes", index.memory_bytes());
    }
}
