//! Objects: full packed records that others may rest on, found by their id; who rests on them is counted, not listed.
//!
//! Invariants:
//! * The table of objects has exactly the full entries in the states block and orphan, each id once.
//! * An object's counts are those of the blocks that rest on it. A block whose object is not in the table *dangles*: it cannot be read,
//!   and its end takes nothing from anybody, because an id never comes back once it has left the table.
//! * An orphan has a reference: it dies with the last.
//!
//! While a recovery puts entries, in an order where those who rest on an object may come before it, nothing is counted and no object dies;
//! [`Packed::recount`] ends this.

use super::packed::{PackedEntries, PackedEntry, REFERENCES_MAX, References, State};
use super::{Slot, buckets::Wide};
use crate::key::mix;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use format::Encoding;

/// What the packed slots hold, in numbers. Blocks are counted by how they are stored.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Census {
    /// Blocks stored as they are.
    pub raw: u64,
    /// Blocks compressed with LZ4.
    pub lz4: u64,
    /// Blocks compressed with Zstandard.
    pub zstd: u64,
    /// Blocks of zeroes.
    pub zero: u64,
    /// Blocks that are the same as an object.
    pub duplicate: u64,
    /// Blocks stored as a difference to an object.
    pub delta: u64,
    /// Dirty blocks whose content could not be read when they were appended again.
    pub lost: u64,
    /// Objects without a block.
    pub orphans: u64,
    /// Objects that others rest on.
    pub references: u64,
    /// Bytes in the store of all of these, with their records in groups and footers.
    pub stored_bytes: u64,
}

/// Bytes in the store of an entry that is alive.
fn stored_bytes(entry: &PackedEntry) -> u64 {
    let payload = entry.stored().map_or(0, |stored| u64::from(stored.bytes).next_multiple_of(u64::from(format::packed::PLACE_UNIT_BYTES)));
    payload + 2 * format::record::RECORD_BYTES as u64
}

/// What may not be forgotten before dirty blocks have come home: of packed slots.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DirtyLoad {
    /// Dirty blocks.
    pub blocks: u64,
    /// Bytes in the store of these and of the objects that dirty blocks rest on, or that the store still says they do; as in [`Census::stored_bytes`].
    pub bytes: u64,
}

impl DirtyLoad {
    fn of(entry: &PackedEntry) -> DirtyLoad {
        let is_vital = entry.is_dirty() || entry.references.dirty > 0;
        DirtyLoad { blocks: u64::from(entry.is_dirty()), bytes: if is_vital { stored_bytes(entry) } else { 0 } }
    }

    fn add(&mut self, other: DirtyLoad) {
        self.blocks += other.blocks;
        self.bytes += other.bytes;
    }

    fn take(&mut self, other: DirtyLoad) {
        self.blocks -= other.blocks;
        self.bytes -= other.bytes;
    }
}

impl Census {
    /// Blocks stored in full, with an address or without.
    pub fn objects(&self) -> u64 {
        self.raw + self.lz4 + self.zstd + self.orphans
    }

    fn blocks_of(&mut self, entry: &PackedEntry) -> &mut u64 {
        match entry.stored().expect("a block is stored somehow").encoding {
            Encoding::Raw => &mut self.raw,
            Encoding::Lz4 => &mut self.lz4,
            Encoding::Zstd => &mut self.zstd,
            Encoding::Zero => &mut self.zero,
            Encoding::Duplicate => &mut self.duplicate,
            Encoding::Diff | Encoding::LzDelta | Encoding::ZstdDelta => &mut self.delta,
            Encoding::Lost => &mut self.lost,
        }
    }
}

/// A count that has come here stays: a recovery found more than can be counted. The object then ends only when it is given up.
const UNCOUNTABLE: u16 = u16::MAX;

fn less_one(count: &mut u16) {
    if *count != UNCOUNTABLE {
        *count -= 1;
    }
}

/// The packed part of an index, except for its keys.
pub(super) struct Packed {
    pub(super) entries: PackedEntries,
    /// Objects by id.
    objects: Wide,
    pub(super) census: Census,
    pub(super) dirty_load: DirtyLoad,
    /// Whether references are counted; not while a recovery puts entries.
    counted: bool,
}

impl Packed {
    /// With room for so many objects before a table grows.
    pub(super) fn new(plain_slots: u32, parts: u32, objects: u32) -> Packed {
        let (entries, objects) = (PackedEntries::new(parts), Wide::new(plain_slots, objects));
        Packed { entries, objects, census: Census::default(), dirty_load: DirtyLoad::default(), counted: true }
    }

    pub(super) fn object(&self, id: u64) -> Option<Slot> {
        self.objects.find(mix(id), |slot| self.entries.at(slot).object() == id)
    }

    /// Adds an entry, not yet linked.
    pub(super) fn push(&mut self, slot: Slot, entry: PackedEntry) {
        assert!(self.counted, "a recovery has not ended");
        self.entries.put(slot, entry);
        self.count_entry(&entry);
    }

    /// Puts a recovered entry, not yet linked. From now on nothing is counted, until [`Packed::recount`].
    pub(super) fn restore(&mut self, slot: Slot, entry: PackedEntry) {
        self.counted = false;
        self.entries.put(slot, entry);
        self.count_entry(&entry);
    }

    fn count_entry(&mut self, entry: &PackedEntry) {
        self.dirty_load.add(DirtyLoad::of(entry));
        self.census.stored_bytes += if entry.state() == State::Dead { 0 } else { stored_bytes(entry) };
        match entry.state() {
            State::Dead => {}
            State::Orphan => self.census.orphans += 1,
            State::Block | State::Dropped => *self.census.blocks_of(entry) += 1,
        }
    }

    /// Changes the entry of a slot that holds something; what of it is dirty is counted again.
    fn change<T>(&mut self, slot: Slot, change: impl FnOnce(&mut PackedEntry) -> T) -> T {
        let entry = self.entries.at_mut(slot);
        self.dirty_load.take(DirtyLoad::of(entry));
        let result = change(entry);
        self.dirty_load.add(DirtyLoad::of(entry));
        result
    }

    /// Connects a new entry with the objects: a full one becomes the place of its object, another counts where it rests.
    /// `old` is where the block was until now; it must not have been released.
    pub(super) fn link(&mut self, slot: Slot, old: Option<Slot>) {
        let entry = *self.entries.at(slot);
        let old = old.filter(|old| old.is_packed()).map(|old| *self.entries.at(old));
        if entry.is_full() {
            let dropped = old.is_some_and(|old| old.state() == State::Dropped && old.object() == entry.object());
            if dropped && self.counted {
                // Those who rested on it dangle and are not counted: it must not be found again.
                self.change(slot, PackedEntry::drop_object);
            } else {
                self.list(slot);
            }
        } else if let Some(base) = entry.base().filter(|_| self.counted) {
            let replaces = old.is_some_and(|old| old.base() == Some(base));
            self.count_reference(base, entry.is_dirty(), replaces);
        }
    }

    /// Makes the slot the place of its object. If there is one already, the object has moved: references come along.
    pub(super) fn list(&mut self, slot: Slot) {
        let Packed { entries, objects, .. } = self;
        let id = entries.at(slot).object();
        let moved = objects.put(mix(id), slot, |at| entries.at(at).object() == id, |at| mix(entries.at(at).object()));
        let Some(from) = moved else { return };
        let old = *entries.at(from);
        self.change(slot, |entry| entry.references = old.references);
        if old.state() == State::Orphan {
            self.die(from);
        } else {
            // Whether the block goes too is not decided here; in either case it is no object any more.
            assert!(!self.counted || old.key() == self.entries.at(slot).key(), "object {id} moves away from under its block");
            self.change(from, PackedEntry::drop_object);
        }
    }

    fn count_reference(&mut self, base: u64, dirty: bool, replaces: bool) {
        let slot = self.object(base).unwrap_or_else(|| panic!("object {base} is not there to rest on"));
        let references = self.entries.at(slot).references;
        // One too many, for a moment, if the record takes the place of another that rests here too.
        assert!(references.all < REFERENCES_MAX || replaces, "{} rest on object {base} already", references.all);
        if mistakes::active(mistakes::SECOND_REFERENCE_UNCOUNTED) && references.all == 1 {
            return;
        }
        self.census.references += u64::from(references.all == 0);
        self.change(slot, |entry| {
            entry.references.all = references.all.saturating_add(1);
            entry.references.dirty = references.dirty.saturating_add(u16::from(dirty));
        });
    }

    fn give_back_reference(&mut self, base: u64, dirty: bool) {
        let Some(slot) = self.object(base) else { return };
        self.change(slot, |entry| {
            less_one(&mut entry.references.all);
            if dirty {
                less_one(&mut entry.references.dirty);
            }
        });
        let entry = self.entries.at(slot);
        if entry.references.all == 0 {
            let is_orphan = entry.state() == State::Orphan;
            self.census.references -= 1;
            if is_orphan {
                self.unlist(slot);
                self.die(slot);
            }
        }
    }

    fn unlist(&mut self, slot: Slot) {
        let Packed { entries, objects, .. } = self;
        let listed = objects.take(mix(entries.at(slot).object()), |at| at == slot, |at| mix(entries.at(at).object()));
        assert_eq!(listed, Some(slot), "an object is where the table says");
    }

    /// Ends an entry that is in no table.
    fn die(&mut self, slot: Slot) {
        let entry = *self.entries.at(slot);
        self.dirty_load.take(DirtyLoad::of(&entry));
        self.census.orphans -= u64::from(entry.state() == State::Orphan);
        self.census.stored_bytes -= if entry.state() == State::Dead { 0 } else { stored_bytes(&entry) };
        self.entries.end(slot);
    }

    /// The slot has lost its block, to a newer record or for good.
    pub(super) fn release(&mut self, slot: Slot) {
        let entry = *self.entries.at(slot);
        *self.census.blocks_of(&entry) -= 1;
        if entry.is_object() {
            if entry.references.all > 0 || !self.counted {
                self.change(slot, PackedEntry::lose_block);
                self.census.orphans += 1;
                return;
            }
            self.unlist(slot);
        }
        self.die(slot);
        if let Some(base) = entry.base().filter(|_| self.counted) {
            self.give_back_reference(base, entry.needs_base());
        }
    }

    pub(super) fn set_clean(&mut self, slot: Slot) {
        self.change(slot, PackedEntry::set_clean);
    }

    /// The store says that the block in the slot came home: its base is needed no more than that of any clean block.
    pub(super) fn let_go_of_base(&mut self, slot: Slot) {
        let entry = *self.entries.at(slot);
        if !entry.holds() {
            return;
        }
        self.entries.at_mut(slot).let_go();
        if let Some(base) = entry.base().filter(|_| self.counted).and_then(|base| self.object(base)) {
            self.change(base, |entry| {
                let dirty = &mut entry.references.dirty;
                less_one(dirty);
                if mistakes::active(mistakes::BASE_GIVEN_BACK_TWICE) && *dirty > 0 {
                    less_one(dirty);
                }
            });
        }
    }

    pub(super) fn drop_object(&mut self, slot: Slot) {
        let entry = *self.entries.at(slot);
        assert!(entry.is_object(), "slot {} is no object's", slot.0);
        self.unlist(slot);
        self.census.references -= u64::from(entry.references.all > 0);
        if entry.state() == State::Orphan {
            self.die(slot);
        } else {
            self.change(slot, PackedEntry::drop_object);
        }
    }

    /// Counts all references from scratch, and ends orphans nobody rests on.
    pub(super) fn recount(&mut self) {
        let slots: Vec<Slot> = self.entries.iter().filter(|(_, entry)| entry.is_object()).map(|(slot, _)| slot).collect();
        for slot in &slots {
            self.change(*slot, |entry| entry.references = References::default());
        }
        self.census.references = 0;
        for at in 0..self.entries.parts() {
            for nth in 0..self.entries.held_in(at).len() {
                let entry = self.entries.held_in(at)[nth];
                if let Some(base) = entry.base().and_then(|base| self.object(base)) {
                    self.census.references += u64::from(self.entries.at(base).references.all == 0);
                    self.change(base, |object| {
                        let references = &mut object.references;
                        references.all = references.all.saturating_add(1);
                        references.dirty = references.dirty.saturating_add(u16::from(entry.needs_base()));
                    });
                }
            }
        }
        for slot in slots {
            let entry = self.entries.at(slot);
            if entry.state() == State::Orphan && entry.references.all == 0 {
                self.unlist(slot);
                self.die(slot);
            }
        }
        self.counted = true;
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.entries.memory_bytes() + self.objects.memory_bytes()
    }

    /// Recounts everything.
    pub(super) fn check(&self) {
        self.entries.check();
        let mut resting: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        for (_, entry) in self.entries.iter() {
            if let Some(base) = entry.base() {
                let (all, dirty) = resting.entry(base).or_default();
                (*all, *dirty) = (*all + 1, *dirty + u64::from(entry.needs_base()));
            }
        }
        let (mut census, mut dirty_load, mut objects) = (Census::default(), DirtyLoad::default(), 0);
        for (slot, entry) in self.entries.iter() {
            census.stored_bytes += if entry.state() == State::Dead { 0 } else { stored_bytes(entry) };
            dirty_load.add(DirtyLoad::of(entry));
            match entry.state() {
                State::Dead => assert_eq!(*entry, PackedEntry::DEAD, "slot {} holds nothing", slot.0),
                State::Block | State::Dropped => *census.blocks_of(entry) += 1,
                State::Orphan => {
                    census.orphans += 1;
                    assert!(entry.references.all > 0 || !self.counted, "no entry rests on orphan {}", entry.object());
                    assert!(!entry.is_dirty(), "orphan {} is dirty", entry.object());
                }
            }
            let References { all, dirty } = entry.references;
            if entry.is_object() {
                objects += 1;
                assert_eq!(self.object(entry.object()), Some(slot), "object {} is elsewhere", entry.object());
                census.references += u64::from(all > 0);
                let found = resting.get(&entry.object()).copied().unwrap_or_default();
                let right = |count: u16, found: u64| u64::from(count) == found || count == UNCOUNTABLE || !self.counted;
                assert!(right(all, found.0) && right(dirty, found.1), "{found:?} rest on object {}, not {all}, {dirty}", entry.object());
            } else {
                assert_eq!((all, dirty), (0, 0), "slot {} is no object's", slot.0);
                assert!(entry.state() != State::Orphan && (entry.state() != State::Dropped || entry.is_full()));
            }
        }
        assert_eq!(self.objects.check(), objects, "objects in the table");
        assert_eq!((self.census, self.dirty_load), (census, dirty_load));
    }
}
