//! What a page of the ring says about one slot, or about several of a shelf.
//!
//! Statements are redone by slot, in the order in which they were made: what a slot holds is what the last of them says. All are
//! multiples of 16 bytes; the first byte is the kind in its low half, flags in its high half.
//!
//! ```text
//! short set, 16 bytes: a block as a page, all of it valid, known to be on the SSD
//!    0 kind 1 | dirty 0x10    1 volume, 22 bits, above block, 34 bits: 7 bytes
//!    8 checksum u32          12 slot u32
//! set, 32 bytes
//!    0 kind 2 | dirty 0x10 | settled 0x20 | lost 0x40 | vital 0x80        1 mask u8     2 encoding u8 (0: plain)
//!    3 place in the page, in units of 16 bytes, u8 (packed; plain: 0)
//!    4 volume u32             8 block u40     13 object, bits 32..40      14 length u16 (packed payload, in bytes)
//!   16 checksum u32          20 slot u32      24 old slot u32 (all ones: none)
//!   28 object, bits 0..32
//! at home, 16 bytes:   0 kind 3 | packed 0x10    1 place in the page (packed), u8    2 zero    4 slot u32    8 checksum u32    12 zero
//! gone, 16 bytes:      0 kind 4 | packed 0x10    1 place in the page (packed), u8    2 zero    4 slot u32    8 checksum u32    12 zero
//!                      not packed: all that is in the slot
//! gone, of a shelf, 80 bytes:      0 kind 5    1 zero      4 shelf u32       8 zero      16 one bit a slot, 64 bytes
//! ```

use crate::bytes::{all_zero, get_u16, get_u32, get_u64, put, put_u16, put_u32, put_u64};
use crate::checksum::{mask, unmask};
use crate::packed::{Encoding, OBJECTS_MAX, PACKED_BYTES_MAX, PACKED_BYTES_MIN};
use crate::{DecodeError, PAGE_BYTES};
use alloc::vec::Vec;
use types::{VOLUME_BLOCKS_MAX, VolumeId};

/// Bytes that every statement is a multiple of.
pub const UNIT_BYTES: usize = 16;
/// Slots of a shelf: what one statement can say to be gone.
pub const SHELF_SLOTS: u32 = 512;

/// Packed payloads begin at multiples of so many bytes of a slot.
pub const PLACE_BYTES: usize = 64;
const PLACE_UNITS: u8 = (PLACE_BYTES / UNIT_BYTES) as u8;

const SHORT: u8 = 1;
const SET: u8 = 2;
const HOME: u8 = 3;
const GONE: u8 = 4;
const GONE_OF_SHELF: u8 = 5;

const DIRTY: u8 = 0x10;
const SETTLED: u8 = 0x20;
const LOST: u8 = 0x40;
const VITAL: u8 = 0x80;
/// Of [`HOME`] and [`GONE`]: one packed payload is meant, not all of the slot.
const PACKED: u8 = 0x10;

const KIND: u8 = 0x0f;
const NO_SLOT: u32 = u32::MAX;
/// Volumes below this number fit a short set.
const SHORT_VOLUMES: u32 = 1 << 22;
const BLOCK_BITS: u32 = 34;
const _: () = assert!(VOLUME_BLOCKS_MAX == 1 << BLOCK_BITS);

/// How a block is stored that is not a page as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stored {
    /// How.
    pub encoding: Encoding,
    /// The object, or the one that it rests on; 0 if there is none.
    pub object: u64,
    /// Bytes of the payload, its checksum included; 0 without one.
    pub bytes: u16,
    /// Where in its slot it begins, in units of [`UNIT_BYTES`], at a multiple of [`PLACE_BYTES`]; it may end in the slot behind. Nothing else has this place, also where there
    /// is no payload.
    pub unit: u8,
}

/// A block is in a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Set {
    /// The volume, by its number on the SSD. 0, as the block, of an object without a block.
    pub volume: VolumeId,
    /// The block, below [`VOLUME_BLOCKS_MAX`].
    pub block: u64,
    /// Which of its 512-byte sectors are valid, bit 0 the first; never 0.
    pub mask: u8,
    /// It is newer than what the backing device has.
    pub dirty: bool,
    /// The payload is on the SSD for sure: a start need not look at it.
    pub settled: bool,
    /// The payload could not be read when it was moved: the statement stands for the loss.
    pub lost: bool,
    /// Dirty blocks rest on this object.
    pub vital: bool,
    /// Of all bytes of the block, decoded.
    pub checksum: u32,
    /// The slot; of a packed payload, the one that it begins in.
    pub slot: u32,
    /// The slot that the block, or the object without a block, had before: it is not there any more.
    pub old: Option<u32>,
    /// How it is stored, if not as a page.
    pub stored: Option<Stored>,
}

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Statement {
    /// A block is in a slot.
    Set(Set),
    /// The block in this slot, whose content has that checksum, has come home.
    Home {
        /// The slot.
        slot: u32,
        /// Of a packed payload: its place, as in [`Stored::unit`].
        unit: Option<u8>,
        /// What the statement that put it there says.
        checksum: u32,
    },
    /// Nothing current is in this slot any more, or at this place in it: its block is void, or was given up.
    Gone {
        /// The slot.
        slot: u32,
        /// Of one packed payload: its place, as in [`Stored::unit`]. `None`: all that is in the slot.
        unit: Option<u8>,
        /// What the statement that put a block there says.
        checksum: u32,
    },
    /// The same of several slots.
    GoneOfShelf {
        /// The first slot is this times [`SHELF_SLOTS`].
        shelf: u32,
        /// Which of its slots: one bit each, the lowest first.
        slots: [u64; 8],
    },
}

impl Set {
    /// Whether it fits half the room: what a sweep says of most blocks.
    fn is_short(&self) -> bool {
        let is_plain = self.stored.is_none() && self.mask == u8::MAX && !self.lost && !self.vital;
        is_plain && self.settled && self.old.is_none() && self.volume.0 < SHORT_VOLUMES
    }

    /// The rules of its fields.
    fn check(&self) -> Result<(), &'static str> {
        if self.block >= VOLUME_BLOCKS_MAX {
            return Err("block");
        }
        // A packed payload may lie in the slot where the one before it lies, too.
        if self.slot == NO_SLOT || self.old == Some(self.slot) && self.stored.is_none() {
            return Err("slot");
        }
        if self.mask == 0 || self.stored.is_some() && self.mask != u8::MAX {
            return Err("mask");
        }
        if self.lost && !self.dirty {
            return Err("lost");
        }
        let Some(stored) = self.stored else {
            return if self.vital { Err("vital") } else { Ok(()) };
        };
        if self.lost != (stored.encoding == Encoding::Lost) {
            return Err("lost");
        }
        if self.vital && !stored.encoding.is_full() {
            return Err("vital");
        }
        let has_object = (1..OBJECTS_MAX).contains(&stored.object);
        let wants_object = stored.encoding.is_full() || stored.encoding.rests_on_base();
        if has_object != wants_object || !has_object && stored.object != 0 {
            return Err("object");
        }
        if stored.encoding == Encoding::Raw && stored.unit != 0 || !stored.unit.is_multiple_of(PLACE_UNITS) {
            return Err("place");
        }
        let fits = match stored.encoding {
            Encoding::Raw => usize::from(stored.bytes) == PAGE_BYTES,
            encoding if encoding.has_packed_payload() => (PACKED_BYTES_MIN..=PACKED_BYTES_MAX).contains(&stored.bytes),
            _ => stored.bytes == 0,
        };
        if fits { Ok(()) } else { Err("length") }
    }
}

impl Statement {
    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        match self {
            Statement::Set(set) if set.is_short() => UNIT_BYTES,
            Statement::Set(_) => 2 * UNIT_BYTES,
            Statement::Home { .. } | Statement::Gone { .. } => UNIT_BYTES,
            Statement::GoneOfShelf { .. } => 5 * UNIT_BYTES,
        }
    }

    /// Writes it behind what is there.
    ///
    /// # Panics
    /// If it breaks a rule of its fields.
    #[inline]
    pub fn append_to(&self, said: &mut Vec<u8>) {
        match self {
            Statement::Set(set) if set.is_short() => {
                assert!(set.block < VOLUME_BLOCKS_MAX && set.slot != NO_SLOT, "{set:?}");
                let key = u64::from(set.volume.0) << BLOCK_BITS | set.block;
                let mut unit = [0; UNIT_BYTES];
                put_u64(&mut unit, 0, key << 8 | u64::from(SHORT | if set.dirty { DIRTY } else { 0 }));
                put_u32(&mut unit, 8, mask(set.checksum));
                put_u32(&mut unit, 12, set.slot);
                said.extend_from_slice(&unit);
            }
            _ => self.append_long(said),
        }
    }

    fn append_long(&self, said: &mut Vec<u8>) {
        let from = said.len();
        said.resize(from + self.bytes(), 0);
        let into = &mut said[from..];
        match self {
            Statement::Set(set) => {
                assert_eq!(set.check(), Ok(()), "{set:?}");
                set.encode_long(into);
            }
            Statement::Home { slot, unit, checksum } | Statement::Gone { slot, unit, checksum } => {
                into[0] = if matches!(self, Statement::Home { .. }) { HOME } else { GONE } | unit.map_or(0, |_| PACKED);
                into[1] = unit.unwrap_or(0);
                put_u32(into, 4, *slot);
                put_u32(into, 8, mask(*checksum));
            }
            Statement::GoneOfShelf { shelf, slots } => {
                into[0] = GONE_OF_SHELF;
                put_u32(into, 4, *shelf);
                for (word, at) in slots.iter().zip((UNIT_BYTES..).step_by(8)) {
                    put_u64(into, at, *word);
                }
            }
        }
    }

    /// Reads one from the beginning of `from`, whose checksum the caller has verified; gives its bytes too.
    ///
    /// # Errors
    /// [`DecodeError::Field`] for what no writer makes.
    pub fn decode(from: &[u8]) -> Result<(Statement, usize), DecodeError> {
        let wrong = |field| Err(DecodeError::Field { field });
        let Some(&first) = from.first() else { return wrong("statement") };
        let bytes = match first & KIND {
            SHORT | HOME | GONE => UNIT_BYTES,
            SET => 2 * UNIT_BYTES,
            GONE_OF_SHELF => 5 * UNIT_BYTES,
            _ => return wrong("statement kind"),
        };
        let Some(from) = from.get(..bytes) else { return wrong("statement length") };
        let has_flags = first & !KIND != 0;
        let statement = match first & KIND {
            SHORT => {
                let key = get_u64(from, 0) >> 8;
                if first & !(KIND | DIRTY) != 0 {
                    return wrong("statement flags");
                }
                Statement::Set(Set {
                    volume: VolumeId((key >> BLOCK_BITS) as u32),
                    block: key & (VOLUME_BLOCKS_MAX - 1),
                    mask: u8::MAX,
                    dirty: first & DIRTY != 0,
                    settled: true,
                    lost: false,
                    vital: false,
                    checksum: unmask(get_u32(from, 8), super::SLOTS_VERSION),
                    slot: get_u32(from, 12),
                    old: None,
                    stored: None,
                })
            }
            SET => Statement::Set(Set::decode_long(from)?),
            HOME | GONE => {
                let unit = (first & PACKED != 0).then_some(from[1]);
                let is_plain = first & !KIND == 0 && from[1] == 0;
                if !is_plain && (first & !KIND != PACKED || !from[1].is_multiple_of(PLACE_UNITS))
                    || !all_zero(&from[2..4])
                    || !all_zero(&from[12..])
                {
                    return wrong("statement padding");
                }
                let (slot, checksum) = (get_u32(from, 4), unmask(get_u32(from, 8), super::SLOTS_VERSION));
                if first & KIND == HOME { Statement::Home { slot, unit, checksum } } else { Statement::Gone { slot, unit, checksum } }
            }
            _ => {
                if has_flags || !all_zero(&from[1..4]) || !all_zero(&from[8..UNIT_BYTES]) {
                    return wrong("statement padding");
                }
                let slots = core::array::from_fn(|word| get_u64(from, UNIT_BYTES + 8 * word));
                Statement::GoneOfShelf { shelf: get_u32(from, 4), slots }
            }
        };
        if let Statement::Set(set) = &statement
            && let Err(field) = set.check()
        {
            return wrong(field);
        }
        if statement.bytes() != bytes {
            // There is one way to say a thing.
            return wrong("statement form");
        }
        Ok((statement, bytes))
    }

    /// All statements of `from`, one behind the other.
    pub(super) fn decode_all(mut from: &[u8], mut each: impl FnMut(&Statement)) -> Result<(), DecodeError> {
        while !from.is_empty() {
            let (statement, bytes) = Statement::decode(from)?;
            each(&statement);
            from = &from[bytes..];
        }
        Ok(())
    }
}

impl Set {
    fn encode_long(&self, into: &mut [u8]) {
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        into[0] = SET | flag(self.dirty, DIRTY) | flag(self.settled, SETTLED) | flag(self.lost, LOST) | flag(self.vital, VITAL);
        into[1] = self.mask;
        put_u32(into, 4, self.volume.0);
        put(into, 8, &self.block.to_le_bytes()[..5]);
        put_u32(into, 16, mask(self.checksum));
        put_u32(into, 20, self.slot);
        put_u32(into, 24, self.old.unwrap_or(NO_SLOT));
        if let Some(stored) = &self.stored {
            into[2] = stored.encoding as u8;
            into[3] = stored.unit;
            into[13] = (stored.object >> 32) as u8;
            put_u16(into, 14, stored.bytes);
            put_u32(into, 28, stored.object as u32);
        }
    }

    fn decode_long(from: &[u8]) -> Result<Set, DecodeError> {
        let wrong = |field| Err(DecodeError::Field { field });
        let stored = match from[2] {
            0 if from[3] == 0 && from[13] == 0 && all_zero(&from[14..16]) && all_zero(&from[28..]) => None,
            0 => return wrong("statement padding"),
            number => {
                let Some(encoding) = Encoding::from_u8(number) else { return wrong("encoding") };
                let object = u64::from(from[13]) << 32 | u64::from(get_u32(from, 28));
                Some(Stored { encoding, object, bytes: get_u16(from, 14), unit: from[3] })
            }
        };
        let old = get_u32(from, 24);
        Ok(Set {
            volume: VolumeId(get_u32(from, 4)),
            block: get_u64(from, 8) & ((1 << 40) - 1),
            mask: from[1],
            dirty: from[0] & DIRTY != 0,
            settled: from[0] & SETTLED != 0,
            lost: from[0] & LOST != 0,
            vital: from[0] & VITAL != 0,
            checksum: unmask(get_u32(from, 16), super::SLOTS_VERSION),
            slot: get_u32(from, 20),
            old: (old != NO_SLOT).then_some(old),
            stored,
        })
    }
}
