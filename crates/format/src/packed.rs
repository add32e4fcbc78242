//! Packed records: blocks stored compressed, or as what they share with another block.
//!
//! The content of a *full* record stands by itself and is an *object* with a number of its own, which stays the same when the record is
//! appended again elsewhere. Duplicates and deltas rest on an object, their *base*, and name it by that number; a base is always full, so
//! a block is never more than two payloads away.

use crate::{PAGE_BYTES, Record, RecordKind};

/// Places of payloads count in this many bytes.
pub const PLACE_UNIT_BYTES: u32 = 16;
/// No packed payload stands before: the head of a group and one record.
const FIRST_PLACE: u32 = 18;
/// Places in a page.
pub const PAGE_UNITS: u32 = PAGE_BYTES as u32 / PLACE_UNIT_BYTES;
/// Most bytes of a packed payload, its checksum included: one that takes a page is stored raw.
pub const PACKED_BYTES_MAX: u16 = PAGE_BYTES as u16 - 1;
/// Fewest bytes of a packed payload: its checksum, and at least one byte behind it.
pub const PACKED_BYTES_MIN: u16 = 5;
/// Objects are numbered from 1 and stay below this: enough for 4 PiB of blocks written to one shard.
pub const OBJECTS_MAX: u64 = 1 << 40;
/// Set in the ordinal of a packed record in its segment; the bits below count the packed records before it. The ordinal of a plain record
/// is the page of its payload.
pub const PACKED_ORDINAL: u32 = 1 << 31;

/// How the content of a packed record is stored. The numbers stand on the SSD.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Encoding {
    /// As it is, in a page of its own.
    Raw = 1,
    /// Nothing but zeroes: no payload.
    Zero = 2,
    /// The content of an object: no payload.
    Duplicate = 3,
    /// Differing runs of bytes to an object.
    Diff = 4,
    /// Compressed with an object as the window before it, for speed.
    LzDelta = 5,
    /// Compressed with an object as the window before it, for size.
    ZstdDelta = 6,
    /// Compressed by itself, for speed.
    Lz4 = 7,
    /// Compressed by itself, for size.
    Zstd = 8,
    /// Content that could not be read when the record was appended again ([`RecordKind::DataLost`]): no payload, and no content. From format version 2 on.
    Lost = 9,
}

impl Encoding {
    /// All of them, by their numbers.
    pub const ALL: [Encoding; 9] = [
        Encoding::Raw,
        Encoding::Zero,
        Encoding::Duplicate,
        Encoding::Diff,
        Encoding::LzDelta,
        Encoding::ZstdDelta,
        Encoding::Lz4,
        Encoding::Zstd,
        Encoding::Lost,
    ];

    /// The encoding of that number, if there is one.
    pub const fn from_u8(number: u8) -> Option<Encoding> {
        if number >= 1 && number as usize <= Encoding::ALL.len() { Some(Encoding::ALL[number as usize - 1]) } else { None }
    }

    /// Whether the content stands by itself: then it is an object, and others may rest on it.
    pub const fn is_full(self) -> bool {
        matches!(self, Encoding::Raw | Encoding::Lz4 | Encoding::Zstd)
    }

    /// Whether the content of another object is needed to read it.
    pub const fn rests_on_base(self) -> bool {
        matches!(self, Encoding::Duplicate | Encoding::Diff | Encoding::LzDelta | Encoding::ZstdDelta)
    }

    /// Whether there is a payload that shares its pages with others: all but raw pages and what has no payload.
    pub const fn has_packed_payload(self) -> bool {
        !matches!(self, Encoding::Raw | Encoding::Zero | Encoding::Duplicate | Encoding::Lost)
    }
}

/// What the record of a packed block says besides what all records do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packed {
    /// How the content is stored.
    pub encoding: Encoding,
    /// Where the payload begins, in units of [`PLACE_UNIT_BYTES`] from the start of the segment; 0 without payload.
    pub place: u32,
    /// Bytes of the payload: 4096 of a raw page, else from [`PACKED_BYTES_MIN`] to [`PACKED_BYTES_MAX`], checksum included; 0 without
    /// payload.
    pub bytes: u16,
    /// Full encodings: the number of this object. Those that rest on a base: the number of the base. Zeroes and what is lost: 0. Below [`OBJECTS_MAX`].
    pub object: u64,
    /// Of a full encoding: dirty blocks rest on it, so it must be there although it is itself clean or has no address. Recovery accepts no
    /// group whose vital payload is damaged.
    pub vital: bool,
}

impl Packed {
    /// The units that the payload takes if it is packed, else 0. The next packed payload begins behind them.
    pub const fn units(&self) -> u32 {
        if self.encoding.has_packed_payload() { (self.bytes as u32).div_ceil(PLACE_UNIT_BYTES) } else { 0 }
    }

    /// The rules that hold for a packed record; says which part breaks one.
    pub(crate) fn check(&self, record: &Record) -> Result<(), &'static str> {
        let full = self.encoding.is_full();
        match record.kind {
            RecordKind::DataClean | RecordKind::DataDirty if self.encoding != Encoding::Lost => {}
            RecordKind::DataLost if self.encoding == Encoding::Lost => {}
            RecordKind::Base if full && record.volume.0 == 0 && record.block == 0 => {}
            _ => return Err("record kind"),
        }
        if record.mask != u8::MAX {
            return Err("record mask");
        }
        let has_object = (1..OBJECTS_MAX).contains(&self.object);
        if has_object != (full || self.encoding.rests_on_base()) || !has_object && self.object != 0 {
            return Err("record object");
        }
        if self.vital && !full {
            return Err("record encoding");
        }
        // Before any payload stands at least the head of its group and one record.
        let (length_fits, place_fits) = match self.encoding {
            Encoding::Raw => (
                self.bytes as usize == PAGE_BYTES,
                self.place >= PAGE_UNITS && self.place.is_multiple_of(PAGE_UNITS) && record.slot_page == self.place / PAGE_UNITS,
            ),
            Encoding::Zero | Encoding::Duplicate | Encoding::Lost => (self.bytes == 0, self.place == 0 && record.slot_page == 0),
            _ => ((PACKED_BYTES_MIN..=PACKED_BYTES_MAX).contains(&self.bytes), self.place >= FIRST_PLACE && record.slot_page == 0),
        };
        if !length_fits {
            return Err("record length");
        }
        if place_fits { Ok(()) } else { Err("record place") }
    }
}
