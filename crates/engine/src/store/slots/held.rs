//! How what is in a slot is kept while a start reads the ring: 12 bytes a slot, 24 a packed payload.

use core::ops::{Range, RangeInclusive};
use format::PAGE_BYTES;
use format::packed::Encoding;
use format::slots::Set;
use format::slots::statement::{PLACE_BYTES, Stored, UNIT_BYTES};
use types::{VOLUME_BLOCKS_MAX, VOLUMES_MAX, VolumeId};

/// Whether an object without a block was found, not a block.
pub fn is_base(set: &Set) -> bool {
    set.stored.is_some() && set.volume == VolumeId(0)
}

/// What is known of a block beside its checksum and its place. Never 0, since some sector of a block is valid.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Word(pub u64);

/// Bits of a block's number.
pub const BLOCK_BITS: u32 = 34;
const VOLUME_BITS: u32 = 11;
/// Where the mask is.
pub const MASK_AT: u32 = BLOCK_BITS + VOLUME_BITS;
/// It is newer than what the backing device has.
pub const DIRTY: u64 = 1 << 53;
/// Its payload is there for sure.
pub const SETTLED: u64 = 1 << 54;
/// Its payload could not be read.
pub const LOST: u64 = 1 << 55;
/// Dirty blocks rest on it.
pub const VITAL: u64 = 1 << 56;
/// It was said first, in this ring, in a group above the watermark.
pub const ABOVE: u64 = 1 << 57;
/// The volume of an object without a block, and that of blocks of volumes that are gone. Between them are those that are known.
pub const NO_VOLUME: u64 = 0;
/// See [`NO_VOLUME`].
pub const GONE_VOLUME: u64 = (1 << VOLUME_BITS) - 1;

const _: () = assert!(VOLUME_BLOCKS_MAX == 1 << BLOCK_BITS && (VOLUMES_MAX as u64) < GONE_VOLUME && DIRTY == 1 << (MASK_AT + 8));

impl Word {
    /// No block is there.
    pub const EMPTY: Word = Word(0);

    /// Whether one of these flags is set.
    pub fn has(self, flag: u64) -> bool {
        self.0 & flag != 0
    }

    /// Which block of which volume.
    pub fn key(self) -> u64 {
        self.0 & ((1 << MASK_AT) - 1)
    }

    /// The volume, by its place among those that are known.
    pub fn volume(self) -> u64 {
        self.key() >> BLOCK_BITS
    }

    /// Whether it is an object without a block.
    pub fn is_base(self) -> bool {
        self.volume() == NO_VOLUME
    }

    /// An object whose block is not there any more.
    pub fn without_block(self) -> Word {
        Word(self.0 & !(((1 << MASK_AT) - 1) | DIRTY | VITAL))
    }
}

/// A packed payload.
#[derive(Clone, Copy)]
pub struct Packed {
    /// Its slot, and the place there: [`place_of`].
    pub place: u32,
    /// Of its content.
    pub checksum: u32,
    /// What is known of its block.
    pub word: Word,
    /// From the lowest bit on: object (40), bytes (16), encoding (8).
    pub stored: u64,
}

/// Packed payloads begin at so many places of a slot.
pub const PLACES_A_SLOT: u32 = (PAGE_BYTES / PLACE_BYTES) as u32;
const PLACE_UNITS: u32 = (PLACE_BYTES / UNIT_BYTES) as u32;

/// Where a packed payload begins, in units of [`PLACE_BYTES`] of all slots.
pub fn place_of(slot: u32, unit: u8) -> u32 {
    slot * PLACES_A_SLOT + u32::from(unit) / PLACE_UNITS
}

/// All that can begin in these slots.
pub fn places_in(slots: RangeInclusive<u32>) -> RangeInclusive<u32> {
    slots.start() * PLACES_A_SLOT..=slots.end() * PLACES_A_SLOT + (PLACES_A_SLOT - 1)
}

const _: () = assert!(size_of::<Packed>() == 24);

impl Packed {
    /// How it is stored.
    pub fn stored(&self) -> Stored {
        let (slot_place, bits) = (self.place % PLACES_A_SLOT, self.stored);
        let encoding = Encoding::from_u8((bits >> 56) as u8).expect("it was one");
        let object = bits & ((1 << 40) - 1);
        Stored { encoding, object, bytes: (bits >> 40) as u16, unit: (slot_place * PLACE_UNITS) as u8 }
    }

    /// The slot that it begins in.
    pub fn slot(&self) -> u32 {
        self.place / PLACES_A_SLOT
    }

    /// The units that it takes.
    pub fn units(&self) -> Range<u64> {
        let Stored { bytes, unit, .. } = self.stored();
        units_of(self.slot(), unit, bytes)
    }

    /// A full packed payload: the object that it is.
    pub fn object(&self) -> Option<u64> {
        object_of(&self.stored())
    }

    /// The object that it rests on.
    pub fn rests_on(&self) -> Option<u64> {
        let stored = self.stored();
        stored.encoding.rests_on_base().then_some(stored.object)
    }
}

/// The object that it is, if its content stands by itself.
pub fn object_of(stored: &Stored) -> Option<u64> {
    stored.encoding.is_full().then_some(stored.object)
}

/// [`Packed::stored`] as it is kept.
pub fn bits_of(stored: &Stored) -> u64 {
    stored.object | u64::from(stored.bytes) << 40 | (stored.encoding as u64) << 56
}

/// Units of a slot.
pub const SLOT_UNITS: u64 = (PAGE_BYTES / UNIT_BYTES) as u64;

/// The units that a packed payload takes, of all slots. What has no payload takes one.
pub fn units_of(slot: u32, unit: u8, bytes: u16) -> Range<u64> {
    let first = u64::from(slot) * SLOT_UNITS + u64::from(unit);
    first..first + usize::from(bytes).div_ceil(UNIT_BYTES).max(1) as u64
}

/// The units that what is said to be in a slot takes; `None` if it goes on in another region, of so many slots.
pub fn units_said(set: &Set, region_slots: u32) -> Option<Range<u64>> {
    let Some(stored) = &set.stored else {
        let first = u64::from(set.slot) * SLOT_UNITS;
        return Some(first..first + SLOT_UNITS);
    };
    let units = units_of(set.slot, stored.unit, stored.bytes);
    let region_units = u64::from(region_slots) * SLOT_UNITS;
    ((units.end - 1) / region_units == units.start / region_units).then_some(units)
}
