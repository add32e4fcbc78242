//! What is known of a packed slot, in 24 bytes, and where these entries are kept.

use super::{Slot, SlotMeta};
use crate::key::{KEY_BITS, Key};
use alloc::vec;
use alloc::vec::Vec;
use format::Encoding;

/// How and where a packed record is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stored {
    /// How.
    pub encoding: Encoding,
    /// Where the payload begins, in units of 16 bytes from the region's start, as the slot says it.
    pub place: u32,
    /// Bytes of the payload, at most 4096; 0 if there is none.
    pub bytes: u16,
    /// The id of a full record, else that of the object it rests on; 0 for zeroes.
    pub object: u64,
}

impl From<format::Packed> for Stored {
    fn from(packed: format::Packed) -> Stored {
        Stored { encoding: packed.encoding, place: packed.place, bytes: packed.bytes, object: packed.object }
    }
}

/// Most records that may rest on one object. The counts have 16 bits; the rest is room for what a recovery may find in excess.
pub const REFERENCES_MAX: u16 = 60_000;

/// Unit of places, in bytes: a page has 256 of them.
pub(super) const PLACES_PER_PAGE: u32 = 256;

/// How many records rest on a full record.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct References {
    /// All of them.
    pub all: u16,
    /// Those that are newer than the backing device, or that the store still says are.
    pub dirty: u16,
}

/// Bits of a place: regions of up to 8 MiB.
pub(super) const PLACE_BITS: u32 = 19;
const PLACE_MASK: u32 = (1 << PLACE_BITS) - 1;
const BYTES_MAX: u16 = 4096;
const OBJECT_BITS: u32 = 40;
const KEY_MASK: u64 = (1 << KEY_BITS) - 1;
const DIRTY: u64 = 1 << KEY_BITS;
const FREQUENCY_SHIFT: u32 = KEY_BITS + 1;
const STATE_SHIFT: u32 = FREQUENCY_SHIFT + 2;
const ENCODING_SHIFT: u32 = STATE_SHIFT + 2;
const OBJECT_SHIFT: u32 = ENCODING_SHIFT + 4;
const HOLDS: u64 = 1 << (OBJECT_SHIFT + OBJECT_BITS - 32);

/// What a packed slot holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// Nothing any more.
    Dead = 0,
    /// The newest record of a block; if it is full, an object too.
    Block = 1,
    /// An object without a block.
    Orphan = 2,
    /// The newest record of a block, full, and no object any more.
    Dropped = 3,
}

/// What is known of a packed slot, without padding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PackedEntry {
    /// From the lowest: 44 key, 1 dirty, 2 frequency, 2 state, 4 encoding, 8 the upper bits of the object's id, 1 holds; 2 are free.
    bits: u64,
    object_low: u32,
    /// 19 place, 13 bytes.
    extent: u32,
    checksum: u32,
    /// Of a full record: who rests on it.
    pub(super) references: References,
}

const _: () = assert!(size_of::<PackedEntry>() == 24);
const _: () = assert!(OBJECT_SHIFT + OBJECT_BITS - 32 < u64::BITS);

impl PackedEntry {
    pub(super) const DEAD: PackedEntry =
        PackedEntry { bits: 0, object_low: 0, extent: 0, checksum: 0, references: References { all: 0, dirty: 0 } };

    fn new(state: State, bits: u64, checksum: u32, stored: Stored) -> PackedEntry {
        let Stored { encoding, place, bytes, object } = stored;
        assert!(place <= PLACE_MASK, "place {place} is in no region");
        assert!(bytes <= BYTES_MAX, "{bytes} bytes are more than a block");
        assert!(object < 1 << OBJECT_BITS, "object {object} has more than {OBJECT_BITS} bits");
        assert_eq!(object == 0, matches!(encoding, Encoding::Zero | Encoding::Lost), "{encoding:?} with object {object}");
        PackedEntry {
            bits: bits | (state as u64) << STATE_SHIFT | (encoding as u64) << ENCODING_SHIFT | object >> 32 << OBJECT_SHIFT,
            object_low: object as u32,
            extent: place | u32::from(bytes) << PLACE_BITS,
            checksum,
            references: References::default(),
        }
    }

    pub(super) fn block(key: Key, meta: SlotMeta, stored: Stored) -> PackedEntry {
        assert!(!meta.partial, "a packed record has all sectors of its block");
        let bits = key.0 | if meta.dirty { DIRTY } else { 0 } | u64::from(meta.frequency.min(3)) << FREQUENCY_SHIFT;
        PackedEntry::new(State::Block, bits, meta.checksum, stored)
    }

    pub(super) fn orphan(checksum: u32, stored: Stored) -> PackedEntry {
        assert!(stored.encoding.is_full(), "{:?} without a block", stored.encoding);
        PackedEntry::new(State::Orphan, 0, checksum, stored)
    }

    #[inline]
    pub(super) fn state(&self) -> State {
        match self.bits >> STATE_SHIFT & 3 {
            0 => State::Dead,
            1 => State::Block,
            2 => State::Orphan,
            _ => State::Dropped,
        }
    }

    #[inline]
    pub(super) fn key(&self) -> Option<Key> {
        matches!(self.state(), State::Block | State::Dropped).then_some(Key(self.bits & KEY_MASK))
    }

    #[inline]
    pub(super) fn meta(&self) -> SlotMeta {
        SlotMeta { dirty: self.is_dirty(), partial: false, frequency: (self.bits >> FREQUENCY_SHIFT & 3) as u8, checksum: self.checksum }
    }

    /// How and where; `None` of a dead one.
    pub(super) fn stored(&self) -> Option<Stored> {
        let encoding = Encoding::from_u8((self.bits >> ENCODING_SHIFT & 15) as u8)?;
        let (place, bytes) = (self.extent & PLACE_MASK, (self.extent >> PLACE_BITS) as u16);
        Some(Stored { encoding, place, bytes, object: self.object() })
    }

    /// As in [`Stored`]; 0 of a dead one.
    pub(super) fn object(&self) -> u64 {
        (self.bits >> OBJECT_SHIFT & 0xff) << 32 | u64::from(self.object_low)
    }

    pub(super) fn is_full(&self) -> bool {
        self.stored().is_some_and(|stored| stored.encoding.is_full())
    }

    /// The id of the object that a block rests on.
    pub(super) fn base(&self) -> Option<u64> {
        self.stored().filter(|stored| stored.encoding.rests_on_base()).map(|stored| stored.object)
    }

    /// Whether it is in the table of objects.
    pub(super) fn is_object(&self) -> bool {
        matches!(self.state(), State::Block | State::Orphan) && self.is_full()
    }

    #[inline]
    pub(super) fn is_dirty(&self) -> bool {
        self.bits & DIRTY != 0
    }

    /// A block that rests on a base holds that from now on.
    pub(super) fn set_clean(&mut self) {
        if self.is_dirty() && self.base().is_some() {
            self.bits |= HOLDS;
        }
        self.bits &= !DIRTY;
    }

    /// Whether the store says that the block is dirty, so that its base must be there after a crash.
    pub(super) fn needs_base(&self) -> bool {
        self.bits & (DIRTY | HOLDS) != 0
    }

    /// Whether it needs its base only for what the store says.
    pub(super) fn holds(&self) -> bool {
        self.bits & HOLDS != 0
    }

    pub(super) fn let_go(&mut self) {
        self.bits &= !HOLDS;
    }

    pub(super) fn set_frequency(&mut self, frequency: u8) {
        self.bits = self.bits & !(3 << FREQUENCY_SHIFT) | u64::from(frequency.min(3)) << FREQUENCY_SHIFT;
    }

    /// The block is no object any more.
    pub(super) fn drop_object(&mut self) {
        self.bits |= (State::Dropped as u64) << STATE_SHIFT;
        self.references = References::default();
    }

    /// The object has no block any more.
    pub(super) fn lose_block(&mut self) {
        let kept = !(KEY_MASK | DIRTY | 3 << FREQUENCY_SHIFT | 3 << STATE_SHIFT);
        self.bits = self.bits & kept | (State::Orphan as u64) << STATE_SHIFT;
    }
}

/// Pages whose entries are kept together, and bits of the numbers within them.
pub(super) const PART_PAGES: u32 = 64;
pub(super) const PART_ORDINAL_BITS: u32 = PART_PAGES.ilog2() + super::ORDINAL_BITS_OVER_PAGES;

/// A packed record that holds nothing any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ended {
    /// Its slot.
    pub slot: Slot,
    /// Bytes of the payload that it had.
    pub bytes: u16,
}

/// The entries of one part.
#[derive(Clone, Default)]
struct Entries {
    /// What is alive, in the order of the numbers.
    held: Vec<PackedEntry>,
    /// Which number of the part each has.
    ordinals: Vec<u16>,
}

impl Entries {
    /// Memory beside the struct itself.
    #[inline]
    fn bytes(&self) -> usize {
        self.held.capacity() * size_of::<PackedEntry>() + self.ordinals.capacity() * size_of::<u16>()
    }

    #[inline]
    fn find(&self, ordinal: usize) -> Option<usize> {
        self.ordinals.binary_search(&u16::try_from(ordinal).ok()?).ok()
    }
}

/// The entries of all parts, each of [`PART_PAGES`] pages.
pub(super) struct PackedEntries {
    /// Those that ended since somebody asked.
    ended: Vec<Ended>,
    parts: Vec<Entries>,
    /// Of all parts: a large index has too many to add them up each time somebody asks.
    bytes: usize,
}

impl PackedEntries {
    pub(super) fn new(parts: u32) -> PackedEntries {
        PackedEntries { ended: Vec::new(), parts: vec![Entries::default(); parts as usize], bytes: 0 }
    }

    /// Records that ended since this was asked last.
    pub(super) fn take_ended(&mut self) -> Vec<Ended> {
        core::mem::take(&mut self.ended)
    }

    /// The first record that is alive from this number of a part on.
    pub(super) fn next_alive(&self, at: u32, ordinal: u32) -> Option<u32> {
        let ordinals = &self.parts[at as usize].ordinals;
        ordinals.get(ordinals.partition_point(|one| u32::from(*one) < ordinal)).map(|one| u32::from(*one))
    }

    /// The last that is alive before this number of a part.
    pub(super) fn last_alive_before(&self, at: u32, ordinal: u32) -> Option<u32> {
        let ordinals = &self.parts[at as usize].ordinals;
        ordinals[..ordinals.partition_point(|one| u32::from(*one) < ordinal)].last().map(|one| u32::from(*one))
    }

    /// Part of a slot, and its number there, to be used as indices.
    #[inline]
    fn place_of(slot: Slot) -> (usize, usize) {
        let (at, ordinal) = slot.packed_place();
        (at as usize, ordinal as usize)
    }

    /// What the slot holds; a slot that was never used holds nothing.
    #[inline]
    pub(super) fn at(&self, slot: Slot) -> &PackedEntry {
        let (at, ordinal) = PackedEntries::place_of(slot);
        let part = &self.parts[at];
        part.find(ordinal).map_or(&PackedEntry::DEAD, |at| &part.held[at])
    }

    /// The entry of a slot that holds something.
    #[inline]
    pub(super) fn at_mut(&mut self, slot: Slot) -> &mut PackedEntry {
        let (at, ordinal) = PackedEntries::place_of(slot);
        let part = &mut self.parts[at];
        let at = part.find(ordinal).expect("a slot that holds something");
        &mut part.held[at]
    }

    /// Changes a part in a way that may take memory or give it back.
    #[inline]
    fn change(&mut self, at: usize, change: impl FnOnce(&mut Entries)) {
        let part = &mut self.parts[at];
        let before = part.bytes();
        change(part);
        self.bytes = self.bytes - before + part.bytes();
    }

    /// The slot holds nothing any more.
    pub(super) fn end(&mut self, slot: Slot) {
        let (at, ordinal) = PackedEntries::place_of(slot);
        let bytes = self.at(slot).stored().map_or(0, |stored| stored.bytes);
        self.ended.push(Ended { slot, bytes });
        self.change(at, |part| {
            let nth = part.find(ordinal).expect("a slot that holds something");
            part.held.remove(nth);
            part.ordinals.remove(nth);
        });
    }

    /// What a part holds.
    pub(super) fn held_in(&self, at: u32) -> &[PackedEntry] {
        &self.parts[at as usize].held
    }

    /// Sets the use of the block in the slot, if there is one.
    #[inline]
    pub(super) fn set_frequency(&mut self, slot: Slot, frequency: u8) {
        if self.at(slot).key().is_some() {
            self.at_mut(slot).set_frequency(frequency);
        }
    }

    /// Puts an entry where none is, in whatever order. One that holds nothing has ended at once.
    pub(super) fn put(&mut self, slot: Slot, entry: PackedEntry) {
        let (at, ordinal) = PackedEntries::place_of(slot);
        if entry == PackedEntry::DEAD {
            return self.ended.push(Ended { slot, bytes: BYTES_MAX });
        }
        let ordinal = ordinal as u16;
        self.change(at, |part| {
            let nth = part.ordinals.partition_point(|one| *one < ordinal);
            assert_ne!(part.ordinals.get(nth), Some(&ordinal), "packed record {ordinal} of part {at} is there already");
            part.ordinals.insert(nth, ordinal);
            part.held.insert(nth, entry);
        });
    }

    pub(super) fn parts(&self) -> u32 {
        self.parts.len() as u32
    }

    /// Counts what is kept beside the entries themselves; panics where it is wrong.
    pub(super) fn check(&self) {
        assert_eq!(self.bytes, self.parts.iter().map(Entries::bytes).sum::<usize>(), "memory of the entries");
        for (at, part) in self.parts.iter().enumerate() {
            assert!(!part.held.contains(&PackedEntry::DEAD), "all records of part {at} are alive");
            let numbered = part.ordinals.len() == part.held.len() && part.ordinals.is_sorted_by(|a, b| a < b);
            assert!(numbered, "the records of part {at}");
        }
    }

    /// All entries and their slots.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Slot, &PackedEntry)> {
        self.parts.iter().zip(0..).flat_map(move |(part, at)| {
            part.ordinals.iter().zip(&part.held).map(move |(ordinal, entry)| (Slot::packed(at, u32::from(*ordinal)), entry))
        })
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes + self.parts.len() * size_of::<Entries>()
    }
}
