//! Block address → where the block lies on the SSD, and what must be known about it there.
//!
//! A *plain slot* is a page of the shard's part of the SSD. Per plain slot there are a packed key, two bits of use, the flags dirty and partial, and the
//! checksum of its content: 10 bytes, side by side, so that a hit touches one cache line of them. A table of 4-byte buckets (25 bits of
//! slot and 7 of tag, or 24 and 8) finds the slot of a key by linear probing: at 85 % load 4.7 bytes a slot. Together 14.7 bytes a slot, whatever is
//! cached.
//!
//! A *packed slot* is a record of a region that is stored as its content asks: compressed, or resting on another record. Per packed slot
//! there are 24 bytes, and one may be alive without a block, as an *object* others rest on (see `objects.rs`). With the first of them the
//! index becomes wide: from then on keys are found in 5-byte buckets that can name both kinds of slot, in tables that grow one by one.
//!
//! Invariants: a key has at most one slot; a slot with a key is found by that key; a slot without one has no flag set.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

mod buckets;
pub mod key;
mod objects;
mod packed;
mod parts;
mod plain;
mod sweep;

#[cfg(test)]
mod model_test;
#[cfg(test)]
mod tests;

pub use format::Encoding;
pub use objects::{Census, DirtyLoad};
pub use packed::{Ended, REFERENCES_MAX, References, Stored};
pub use parts::PARTS;

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use buckets::{Buckets, Narrow, Wide};
use core::ops::Range;
use key::Key;
use objects::Packed;
use packed::{PART_ORDINAL_BITS, PART_PAGES, PLACE_BITS, PLACES_PER_PAGE, PackedEntry, State};
use parts::Parts;
use plain::{Entry, Fields};

/// Where a block lies. Plain: a page of the shard's part of the SSD, `region * pages per region + page`. Packed: bit 31, and below
/// it a number for each [`BYTES_PER_NUMBER`] bytes of the plain slots, in their order: where the payload begins.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Slot(pub u32);

const PACKED: u32 = 1 << 31;

impl Slot {
    /// Whether a packed record is meant, not a page.
    #[inline]
    pub const fn is_packed(self) -> bool {
        self.0 & PACKED != 0
    }

    /// The packed slot of a part: which number of it.
    #[inline]
    const fn packed(at: u32, ordinal: u32) -> Slot {
        Slot(PACKED | at << PART_ORDINAL_BITS | ordinal)
    }

    /// Part, and number in it.
    #[inline]
    fn packed_place(self) -> (u32, u32) {
        assert!(self.is_packed(), "slot {} is a page or none", self.0);
        ((self.0 & !PACKED) >> PART_ORDINAL_BITS, self.0 & ((1 << PART_ORDINAL_BITS) - 1))
    }
}

/// Plain slots one shard can have: 128 GiB of SSD. Of larger regions' packed slots no more fit into 31 bits.
pub const SLOTS_MAX: u32 = format::layout::SLOTS_PER_SHARD_MAX;

/// RAM of an index for each plain slot, in thousandths of a byte, once all of its memory is in use; packed slots come on top.
pub const PLAIN_SLOT_MILLIBYTES: u64 = 14_730;

/// There is no memory for the tables of an index.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("there is no memory for an index of {bytes} bytes")]
pub struct NoMemory {
    /// How much it would take.
    pub bytes: u64,
}

/// A page has 64 numbers of packed slots.
const ORDINAL_BITS_OVER_PAGES: u32 = 6;
/// Each number stands for so many bytes of a page.
pub const BYTES_PER_NUMBER: u32 = types::BLOCK_BYTES as u32 >> ORDINAL_BITS_OVER_PAGES;

/// What the index knows about the block in a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotMeta {
    /// Newer than the backing device.
    pub dirty: bool,
    /// Not all sectors of the block are valid; which ones is in the shard's table of partial blocks. Never of a packed slot.
    pub partial: bool,
    /// Use since it was written, 0 to 3; in an index that keeps parts, four times the block's part on top.
    pub frequency: u8,
    /// CRC-32C over content and address (`format::payload_checksum`).
    pub checksum: u32,
}

/// Bits of use.
const USE_BITS: u32 = 2;

/// What a wide index has beside its plain entries.
struct Mixed {
    /// Slots of both kinds by key.
    keys: Wide,
    packed: Packed,
}

/// See the module.
pub struct Index {
    plain: Vec<Entry>,
    /// Regions that ever held a plain block: the entries of others were never touched.
    plain_used: Vec<bool>,
    /// How many these are.
    plain_used_regions: u32,
    /// Plain slots by key, while the index is narrow.
    narrow: Narrow,
    mixed: Option<Box<Mixed>>,
    /// Of plain slots, where they are kept.
    parts: Option<Parts>,
    live: u32,
    pages_per_region: u32,
}

/// The block whose newest record lies in the slot.
#[inline]
fn key_in(plain: &[Entry], packed: &Packed, slot: Slot) -> Option<Key> {
    match plain.get(slot.0 as usize) {
        Some(entry) => entry.key(),
        None => packed.entries.at(slot).key(),
    }
}

impl Index {
    /// An empty index for `slots` plain slots, at most [`SLOTS_MAX`], in regions of that many pages.
    ///
    /// # Panics
    /// If there is no memory for it.
    pub fn new(slots: u32, pages_per_region: u32) -> Index {
        Index::try_new(slots, pages_per_region).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The same.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn try_new(slots: u32, pages_per_region: u32) -> Result<Index, NoMemory> {
        Index::naming(slots, pages_per_region, slots)
    }

    /// The same whose buckets could name up to `named` slots, so that an index of few slots looks for them as one of many does. For tests.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn naming(slots: u32, pages_per_region: u32, named: u32) -> Result<Index, NoMemory> {
        assert!(slots <= SLOTS_MAX, "{slots} slots are more than a shard can have");
        assert!(pages_per_region.is_power_of_two(), "regions of {pages_per_region} pages");
        let no_memory = NoMemory { bytes: u64::from(slots) * PLAIN_SLOT_MILLIBYTES / 1000 };
        Ok(Index {
            plain: page::zeroed(slots as usize).ok_or(no_memory)?,
            plain_used: vec![false; slots.div_ceil(pages_per_region) as usize],
            plain_used_regions: 0,
            narrow: Narrow::new(slots, named.max(slots)).ok_or(no_memory)?,
            mixed: None,
            parts: None,
            live: 0,
            pages_per_region,
        })
    }

    /// Blocks in the index.
    pub fn live_blocks(&self) -> u32 {
        self.live
    }

    /// Plain slots there are.
    pub fn slots(&self) -> u32 {
        self.plain.len() as u32
    }

    /// Pages of a region: so many plain slots follow each other in one.
    pub fn pages_per_region(&self) -> u32 {
        self.pages_per_region
    }

    /// Regions there are.
    pub fn regions(&self) -> u32 {
        self.slots().div_ceil(self.pages_per_region)
    }

    /// Memory of all arrays, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        let mixed = self.mixed.as_ref().map_or(0, |mixed| mixed.keys.memory_bytes() + mixed.packed.memory_bytes());
        // As long as there are no packed records all of them are taken for used: they will be.
        let used = self.plain_used_regions as usize * self.pages_per_region as usize;
        let plain = if self.is_wide() { used.min(self.plain.len()) } else { self.plain.len() };
        let parts = self.parts.as_ref().map_or(0, Parts::memory_bytes);
        (plain * size_of::<Entry>() + self.plain_used.len() + self.narrow.memory_bytes() + mixed) as u64 + parts
    }

    /// Parts of packed slots.
    fn packed_parts(&self) -> u32 {
        self.slots().div_ceil(PART_PAGES)
    }

    /// How and where a record is stored; the slot says the latter.
    fn placed(&self, slot: Slot, stored: Stored) -> Stored {
        let numbers = self.pages_per_region << ORDINAL_BITS_OVER_PAGES;
        Stored { place: (slot.0 & !PACKED & (numbers - 1)) * (PLACES_PER_PAGE >> ORDINAL_BITS_OVER_PAGES), ..stored }
    }

    /// From now on it is kept which part of the cache each block in a plain slot belongs to, three bits a slot. All are of part 0 now.
    ///
    /// # Panics
    /// If there is no memory for it.
    pub fn keep_parts(&mut self) {
        let mut parts = Parts::new(self.slots()).unwrap_or_else(|error| panic!("{error}"));
        (0..self.slots()).filter(|slot| self.plain[*slot as usize].key().is_some()).for_each(|slot| parts.enter(slot, 0));
        self.parts = Some(parts);
    }

    /// Blocks by their part; `None` where parts are not kept. Those in packed slots are of part 0.
    pub fn parts(&self) -> Option<[u32; PARTS]> {
        let mut counts = self.parts.as_ref().map(Parts::counts)?;
        counts[0] += self.live - counts.iter().sum::<u32>();
        Some(counts)
    }

    /// All blocks of one part, which is not 0, belong to another one from now on. About a millisecond for ten million slots. Nothing where
    /// parts are not kept.
    pub fn merge_parts(&mut self, part: u8, into: u8) {
        if let Some(parts) = &mut self.parts {
            parts.merge(part, into);
        }
    }

    /// The first of these plain slots whose block is of this part, which is not 0. `None` where parts are not kept.
    pub fn first_of_part(&self, part: u8, slots: Range<u32>) -> Option<u32> {
        self.parts.as_ref()?.first_of(part, slots.start, slots.end)
    }

    /// Whether packed slots are in use, or have been: see [`Index::widen`].
    pub fn is_wide(&self) -> bool {
        self.mixed.is_some()
    }

    /// Where the block lies, if it is cached on the SSD.
    #[inline]
    pub fn get(&self, key: Key) -> Option<Slot> {
        let hash = key.hash();
        match &self.mixed {
            None => Some(self.narrow.probe(hash, |slot| self.plain[slot.0 as usize].key() == Some(key)).ok()?.1),
            Some(mixed) => mixed.keys.find(hash, |slot| key_in(&self.plain, &mixed.packed, slot) == Some(key)),
        }
    }

    /// Has the processor fetch what [`Index::insert`] or [`Index::get`] of the key will look at first: asked for many keys, one after the
    /// other, the waits for memory overlap.
    #[inline]
    pub fn approach(&self, key: Key) {
        match &self.mixed {
            None => self.narrow.approach(key.hash()),
            Some(mixed) => mixed.keys.approach(key.hash()),
        }
    }

    /// The block whose newest record lies in this slot. An orphan has none.
    #[inline]
    pub fn key_of(&self, slot: Slot) -> Option<Key> {
        match self.plain.get(slot.0 as usize) {
            Some(entry) => entry.key(),
            None => self.packed_entry(slot).key(),
        }
    }

    /// What is known about the block in this slot. Of an orphan, its checksum only.
    #[inline]
    pub fn meta(&self, slot: Slot) -> SlotMeta {
        match self.plain.get(slot.0 as usize) {
            Some(entry) => {
                let meta = entry.meta();
                let part = self.parts.as_ref().map_or(0, |parts| parts.get(slot.0));
                SlotMeta { frequency: meta.frequency | part << USE_BITS, ..meta }
            }
            None => self.packed_entry(slot).meta(),
        }
    }

    /// Puts the block at the plain slot `slot`, away from where it was; gives back its old slot. The new slot must have no key.
    pub fn insert(&mut self, key: Key, slot: Slot, mut meta: SlotMeta) -> Option<Slot> {
        assert!(!slot.is_packed(), "slot {} is no page", slot.0);
        assert!(self.key_of(slot).is_none(), "slot {} has a block already", slot.0);
        let old = self.put_key(key, slot);
        self.release(old);
        if let Some(parts) = &mut self.parts {
            parts.enter(slot.0, meta.frequency >> USE_BITS);
            meta.frequency &= (1 << USE_BITS) - 1;
        }
        self.plain[slot.0 as usize] = plain::entry(key, meta);
        let used = &mut self.plain_used[(slot.0 / self.pages_per_region) as usize];
        self.plain_used_regions += u32::from(!*used);
        *used = true;
        old
    }

    /// Forgets the block; gives back where it was.
    pub fn remove(&mut self, key: Key) -> Option<Slot> {
        let Index { plain, narrow, mixed, .. } = self;
        let hash = key.hash();
        let slot = match mixed {
            None => {
                let key_of = |slot: Slot| plain[slot.0 as usize].key();
                narrow.take(hash, |slot| key_of(slot) == Some(key), |slot| key_of(slot).expect("a bucket's slot has a key").hash())
            }
            Some(mixed) => {
                let key_of = |slot| key_in(plain, &mixed.packed, slot);
                mixed.keys.take(hash, |slot| key_of(slot) == Some(key), |slot| key_of(slot).expect("a bucket's slot has a key").hash())
            }
        }?;
        self.live -= 1;
        self.clear_slot(slot);
        Some(slot)
    }

    /// Makes the buckets name the slot for the key; gives back which they named before.
    #[inline]
    fn put_key(&mut self, key: Key, slot: Slot) -> Option<Slot> {
        let Index { plain, narrow, mixed, .. } = self;
        let hash = key.hash();
        match mixed {
            None => narrow.put(hash, slot, |slot| plain[slot.0 as usize].key() == Some(key)),
            Some(mixed) => {
                let key_of = |slot| key_in(plain, &mixed.packed, slot);
                let hash_of = |slot| key_of(slot).expect("a bucket's slot has a key").hash();
                mixed.keys.put(hash, slot, |slot| key_of(slot) == Some(key), hash_of)
            }
        }
    }

    /// Clears the slot a block has left for another, if it had one.
    #[inline]
    fn release(&mut self, old: Option<Slot>) {
        match old {
            Some(slot) => self.clear_slot(slot),
            None => self.live += 1,
        }
    }

    #[inline]
    fn clear_slot(&mut self, slot: Slot) {
        match self.plain.get_mut(slot.0 as usize) {
            Some(entry) => {
                *entry = plain::NONE;
                if let Some(parts) = &mut self.parts {
                    parts.leave(slot.0);
                }
            }
            None => self.packed_mut().release(slot),
        }
    }

    /// Notes that the block in this slot is at home now. What it rests on counts it as dirty until [`Index::let_go_of_base`], for the store
    /// still says that it is.
    pub fn set_clean(&mut self, slot: Slot) {
        match self.plain.get_mut(slot.0 as usize) {
            Some(entry) => entry.set_clean(),
            None => self.packed_mut().set_clean(slot),
        }
    }

    /// Notes that the store says of the block in this slot, which is clean, that it came home: a crash does not make it dirty again.
    pub fn let_go_of_base(&mut self, slot: Slot) {
        if slot.is_packed() {
            self.packed_mut().let_go_of_base(slot);
        }
    }

    /// Sets the two bits of use, and the part where parts are kept. An orphan has none.
    #[inline]
    pub fn set_frequency(&mut self, slot: Slot, frequency: u8) {
        match self.plain.get_mut(slot.0 as usize) {
            Some(entry) => {
                entry.set_frequency(frequency & ((1 << USE_BITS) - 1));
                if let Some(parts) = &mut self.parts {
                    parts.change(slot.0, frequency >> USE_BITS);
                }
            }
            None => self.packed_mut().entries.set_frequency(slot, frequency),
        }
    }

    /// Recounts everything; for tests and the simulator.
    pub fn check_invariants(&self) {
        let mut found = 0;
        for slot in 0..self.slots() {
            if let Some(key) = self.key_of(Slot(slot)) {
                assert_eq!(self.get(key), Some(Slot(slot)), "slot {slot} is not found by its key");
                found += 1;
            } else {
                assert!(!self.plain[slot as usize].has_flags(), "slot {slot} has flags and no key");
            }
        }
        let buckets = match &self.mixed {
            None => self.narrow.count(),
            Some(mixed) => {
                for (slot, entry) in mixed.packed.entries.iter() {
                    if let Some(key) = entry.key() {
                        assert_eq!(self.get(key), Some(slot), "packed slot {} is not found by its key", slot.0);
                        found += 1;
                    }
                }
                mixed.packed.check();
                mixed.keys.check()
            }
        };
        assert_eq!(found, self.live);
        if let Some(parts) = &self.parts {
            let plain = (0..self.slots()).filter(|slot| self.key_of(Slot(*slot)).is_some()).count();
            assert_eq!(parts.counts().iter().sum::<u32>() as usize, plain, "each block in a plain slot is of one part");
        }
        assert_eq!(buckets, found as usize);
    }
}

/// Packed slots and objects.
impl Index {
    /// Makes the index fit for packed slots, at once for all keys it has; the first packed record does so by itself. There is no way back.
    pub fn widen(&mut self) {
        self.widen_for(self.live, 0);
    }

    /// Before a recovery puts what it has found: so many blocks in all, of which some are packed, and so many objects. Tables are made as large as
    /// they become; without this they would grow many times, and look at each entry each time.
    pub fn expect_packed(&mut self, blocks: u32, objects: u32) {
        self.widen_for(blocks.max(self.live), objects);
    }

    fn widen_for(&mut self, blocks: u32, objects: u32) {
        if self.mixed.is_some() {
            return;
        }
        let places = u64::from(self.pages_per_region) * u64::from(PLACES_PER_PAGE);
        assert!(places <= 1 << PLACE_BITS, "places of {} pages", self.pages_per_region);
        let packed = Packed::new(self.slots(), self.packed_parts(), objects);
        let mut keys = Wide::new(self.slots(), blocks);
        let plain = &self.plain;
        let hash_of = |slot: Slot| plain[slot.0 as usize].key().expect("a bucket's slot has a key").hash();
        let pages = self.pages_per_region;
        // Others were never touched, and take no memory: most of a large index that is nearly empty.
        let used = (0..).zip(&self.plain_used).filter(|(_, used)| **used).map(|(at, _)| at * pages);
        for slot in used.flat_map(|first| (first..self.slots().min(first + pages)).map(Slot)) {
            if plain[slot.0 as usize].key().is_some() {
                keys.put(hash_of(slot), slot, |_| false, hash_of);
            }
        }
        self.narrow.free();
        self.mixed = Some(Box::new(Mixed { keys, packed }));
    }

    #[inline]
    fn packed_entry(&self, slot: Slot) -> &PackedEntry {
        assert!(slot.is_packed(), "slot {} is none", slot.0);
        self.mixed.as_ref().map_or(&PackedEntry::DEAD, |mixed| mixed.packed.entries.at(slot))
    }

    #[inline]
    fn packed_mut(&mut self) -> &mut Packed {
        &mut self.mixed.as_mut().expect("a packed slot of a wide index").packed
    }

    /// Puts the block at a packed slot that holds nothing, away from where it was; gives back its old slot. A full record becomes the
    /// place of its object, with all who rest on it; another counts where it rests. After that the block's old slot is cleared: there
    /// an object that others rest on stays as an orphan.
    ///
    /// # Panics
    /// If what it rests on is not there or [`Index::may_reference`] says no (except that the block's old record rests there too); if the
    /// slot holds something; if the object moves away from under another block.
    pub fn insert_packed(&mut self, key: Key, slot: Slot, meta: SlotMeta, stored: Stored) -> Option<Slot> {
        self.widen();
        let stored = self.placed(slot, stored);
        self.packed_mut().push(slot, PackedEntry::block(key, meta, stored));
        self.link(key, slot)
    }

    fn link(&mut self, key: Key, slot: Slot) -> Option<Slot> {
        let old = self.put_key(key, slot);
        self.packed_mut().link(slot, old);
        self.release(old);
        old
    }

    /// Moves an orphan to a packed slot that holds nothing. If the object is not there any more, nobody rests on it: then the slot
    /// holds nothing.
    ///
    /// # Panics
    /// If the object is a block's, or the slot holds something.
    pub fn insert_base(&mut self, slot: Slot, checksum: u32, stored: Stored) {
        self.widen();
        let stored = self.placed(slot, stored);
        let packed = self.packed_mut();
        let Some(old) = packed.object(stored.object) else {
            return packed.push(slot, PackedEntry::DEAD);
        };
        assert_eq!(packed.entries.at(old).state(), State::Orphan, "object {} is a block's", stored.object);
        packed.push(slot, PackedEntry::orphan(checksum, stored));
        packed.list(slot);
    }

    /// How and where the packed record of a block or an orphan is stored.
    ///
    /// # Panics
    /// If the slot holds nothing, or is a page.
    pub fn stored(&self, slot: Slot) -> Stored {
        self.packed_entry(slot).stored().unwrap_or_else(|| panic!("packed slot {} holds nothing", slot.0))
    }

    /// Where the object lies: a full record that is a block's newest or that others rest on. `None` if there is none of that id, or it was
    /// given up.
    pub fn object(&self, id: u64) -> Option<Slot> {
        self.mixed.as_ref()?.packed.object(id)
    }

    /// How many rest on the record in a packed slot.
    pub fn references(&self, slot: Slot) -> References {
        self.packed_entry(slot).references
    }

    /// Whether one more record may rest on the object: it is there, and fewer than [`REFERENCES_MAX`] do.
    pub fn may_reference(&self, id: u64) -> bool {
        self.object(id).is_some_and(|slot| self.references(slot).all < REFERENCES_MAX)
    }

    /// Whether the slot holds an object without a block.
    pub fn is_orphan(&self, slot: Slot) -> bool {
        slot.is_packed() && self.packed_entry(slot).state() == State::Orphan
    }

    /// Gives up the object in a packed slot. It is not found by its id any more, and those who rest on it dangle. An orphan dies; a
    /// block stays cached, and stays no object when it moves.
    ///
    /// # Panics
    /// If the slot has no object.
    pub fn drop_object(&mut self, slot: Slot) {
        self.packed_mut().drop_object(slot);
    }

    /// What the packed slots hold, in numbers that are kept up to date.
    pub fn census(&self) -> Census {
        self.mixed.as_ref().map_or_else(Census::default, |mixed| mixed.packed.census)
    }

    /// What of the packed slots may not be forgotten before dirty blocks have come home, kept up to date.
    pub fn dirty_load(&self) -> DirtyLoad {
        self.mixed.as_ref().map_or_else(DirtyLoad::default, |mixed| mixed.packed.dirty_load)
    }

    /// Puts a recovered packed record, of a block or an orphan (`key` is `None`), at a slot that holds nothing; gives back the block's old
    /// slot. Slots may come in any order; of a block's records and of an object's places the newest comes last. An older place of
    /// the object is none any more. Nothing is counted, and no object dies, before [`Index::recount_references`], which must follow.
    pub fn restore_packed(&mut self, slot: Slot, key: Option<Key>, meta: SlotMeta, stored: Stored) -> Option<Slot> {
        self.widen();
        let stored = self.placed(slot, stored);
        let Some(key) = key else {
            let packed = self.packed_mut();
            packed.restore(slot, PackedEntry::orphan(meta.checksum, stored));
            packed.list(slot);
            return None;
        };
        self.packed_mut().restore(slot, PackedEntry::block(key, meta, stored));
        self.link(key, slot)
    }

    /// Counts all references from scratch, after recovered records were put. Orphans nobody rests on die. Records that rest on what is
    /// not there stay, and dangle.
    pub fn recount_references(&mut self) {
        if let Some(mixed) = &mut self.mixed {
            mixed.packed.recount();
        }
    }
}
