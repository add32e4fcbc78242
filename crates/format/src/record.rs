//! A record: what the log knows about one block at one moment.
//!
//! ```text
//!  0 kind u8   1 mask u8   2 encoding u8 (0: plain; bit 7: vital)   3 object number, bits 32..40 (plain: zero)
//!  4 volume u32
//!  8 block u64
//! 16 checksum u32, masked (crate::checksum) from version 3 on    (data and bases; else 0)
//! 20 place u32, in 16-byte units        (of the payload in its segment, 0 without; clean note: of the noted payload, see below)
//! 24 plain data: 256 u32, the payload's length in units | packed: payload length u16, in bytes  | clean note: the noted segment's seq u64
//! 26                                                    |         zero u16                      |
//! 28             zero u32                               |         object number, bits 0..32     |
//! ```
//!
//! A *plain* record owns a page of its segment, whatever its content; [`packed`](crate::packed) records do not. A clean note of a plain
//! record gives its place, one of a packed record its ordinal (bit 31 and the count of packed records before it in its segment).

use crate::bytes::{all_zero, get_u16, get_u32, get_u64, put_u16, put_u32, put_u64};
use crate::checksum::{PayloadOwner, block_checksum, mask, unmask};
use crate::packed::{Encoding, PACKED_ORDINAL, PAGE_UNITS, Packed};
use crate::{DecodeError, PAGE_BYTES};
use types::{VOLUME_BLOCKS_MAX, VolumeId};

/// Bytes of an encoded record.
pub const RECORD_BYTES: usize = 32;

/// What a record says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordKind {
    /// The payload is the block as the backing device has it.
    DataClean,
    /// The payload is newer than the backing device.
    DataDirty,
    /// As [`RecordKind::DataDirty`], but the payload could not be read when it was appended again, and is not what its checksum says. The record
    /// stands for the loss: nobody is to take it for a torn write. Where the block was packed it has no payload ([`Encoding::Lost`]).
    DataLost,
    /// Whatever the log held of this block before is void, the whole block. No payload.
    Invalidate,
    /// What the dirty record at this place says is at home now: if the newest record of the block is still that one, it is clean.
    /// Otherwise the note means nothing. No payload.
    CleanNote {
        /// The segment of the noted record.
        of_seq: u64,
        /// The noted record's ordinal in that segment: of a plain one the page of its payload; of a packed one
        /// [`PACKED_ORDINAL`] and the count of packed records before it in the segment.
        of_ordinal: u32,
    },
    /// A packed object without an address: its block has newer content, but others still rest on this one. Volume and block are 0.
    Base,
}

impl RecordKind {
    /// Whether the record says what a block contains.
    pub const fn is_data(self) -> bool {
        matches!(self, RecordKind::DataClean | RecordKind::DataDirty | RecordKind::DataLost)
    }
}

/// One entry of a group's record table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// What it says.
    pub kind: RecordKind,
    /// The volume, by its number in the log.
    pub volume: VolumeId,
    /// The block in the volume, below [`VOLUME_BLOCKS_MAX`].
    pub block: u64,
    /// Data: which 512-byte sectors of the payload are valid, bit 0 the first; never 0. The newest record of a block stands
    /// alone, so whoever appends a partial block merges older valid sectors into it. Packed records: all. Other kinds: 0.
    pub mask: u8,
    /// Data and bases: [`block_checksum`] of all 4096 bytes, valid or not, decoded. Other kinds: 0.
    pub checksum: u32,
    /// Of plain data and of encoding [`Encoding::Raw`]: the page of the payload, counted from the start of the segment. Else 0.
    pub slot_page: u32,
    /// How the content is stored, if not plainly. Only with data and, always, [`RecordKind::Base`].
    pub packed: Option<Packed>,
}

const KIND_DATA_CLEAN: u8 = 1;
const KIND_DATA_DIRTY: u8 = 2;
const KIND_INVALIDATE: u8 = 3;
const KIND_CLEAN_NOTE: u8 = 4;
const KIND_DATA_LOST: u8 = 5;
const KIND_BASE: u8 = 6;

/// In the byte of the encoding: the payload is vital.
const VITAL: u8 = 1 << 7;

impl Record {
    /// Whether a payload page of its own follows in the group.
    pub const fn has_page_payload(&self) -> bool {
        match &self.packed {
            None => self.kind.is_data(),
            Some(packed) => matches!(packed.encoding, Encoding::Raw),
        }
    }

    /// Whether the group's packed area holds a payload of it.
    pub const fn has_packed_payload(&self) -> bool {
        matches!(&self.packed, Some(packed) if packed.encoding.has_packed_payload())
    }

    /// The units that its payload takes in the group's packed area.
    pub const fn packed_units(&self) -> u32 {
        match &self.packed {
            None => 0,
            Some(packed) => packed.units(),
        }
    }

    /// Whom the payload is sealed for: the object of a full encoding, else the block.
    pub const fn payload_owner(&self) -> PayloadOwner {
        match &self.packed {
            Some(packed) if packed.encoding.is_full() => PayloadOwner::Object(packed.object),
            _ => PayloadOwner::Block(self.volume, self.block),
        }
    }

    /// The checksum that this record has if `data` is its content.
    #[inline]
    pub fn checksum_of(&self, data: &[u8; PAGE_BYTES]) -> u32 {
        match &self.packed {
            Some(packed) => block_checksum(Some(packed.encoding), packed.object, self.volume, self.block, data),
            None => block_checksum(None, 0, self.volume, self.block, data),
        }
    }

    /// Writes the record into its [`RECORD_BYTES`] bytes.
    ///
    /// # Panics
    /// If `into` has another length, or the record breaks a rule of its fields.
    pub fn encode(&self, into: &mut [u8]) {
        assert_eq!(into.len(), RECORD_BYTES);
        assert!(self.block < VOLUME_BLOCKS_MAX, "block {} of volume {}", self.block, self.volume.0);
        into.fill(0);
        into[0] = match self.kind {
            RecordKind::DataClean => KIND_DATA_CLEAN,
            RecordKind::DataDirty => KIND_DATA_DIRTY,
            RecordKind::Invalidate => KIND_INVALIDATE,
            RecordKind::CleanNote { .. } => KIND_CLEAN_NOTE,
            RecordKind::DataLost => KIND_DATA_LOST,
            RecordKind::Base => KIND_BASE,
        };
        put_u32(into, 4, self.volume.0);
        put_u64(into, 8, self.block);
        if let Some(packed) = &self.packed {
            return self.encode_packed(packed, into);
        }
        match self.kind {
            RecordKind::DataClean | RecordKind::DataDirty | RecordKind::DataLost => {
                assert!(self.mask != 0, "a payload without a valid sector");
                into[1] = self.mask;
                put_u32(into, 16, mask(self.checksum));
                put_u32(into, 20, self.slot_page * PAGE_UNITS);
                put_u32(into, 24, PAGE_UNITS);
            }
            RecordKind::Invalidate => {}
            RecordKind::CleanNote { of_seq, of_ordinal } => {
                let packed = of_ordinal & PACKED_ORDINAL != 0;
                assert!(packed || of_ordinal < PACKED_ORDINAL / PAGE_UNITS, "page {of_ordinal} of a segment");
                put_u32(into, 20, if packed { of_ordinal } else { of_ordinal * PAGE_UNITS });
                put_u64(into, 24, of_seq);
            }
            RecordKind::Base => panic!("a base that is not packed: {self:?}"),
        }
    }

    fn encode_packed(&self, packed: &Packed, into: &mut [u8]) {
        assert_eq!(packed.check(self), Ok(()), "{self:?}");
        into[1] = self.mask;
        into[2] = packed.encoding as u8 | if packed.vital { VITAL } else { 0 };
        into[3] = (packed.object >> 32) as u8;
        put_u32(into, 16, mask(self.checksum));
        put_u32(into, 20, packed.place);
        put_u16(into, 24, packed.bytes);
        put_u32(into, 28, packed.object as u32);
    }

    /// Reads a record from its [`RECORD_BYTES`] bytes in a structure of that version, whose checksum the
    /// caller has verified.
    ///
    /// # Errors
    /// [`DecodeError::Field`] for values no writer of this version gives.
    pub fn decode(from: &[u8], version: u32) -> Result<Record, DecodeError> {
        let wrong = |field| Err(DecodeError::Field { field });
        if get_u64(from, 8) >= VOLUME_BLOCKS_MAX {
            return wrong("record block");
        }
        if from[2] != 0 {
            return Record::decode_packed(from, version);
        }
        if from[3] != 0 {
            return wrong("record encoding");
        }
        let place = get_u32(from, 20);
        let (kind, length) = match from[0] {
            KIND_DATA_CLEAN => (RecordKind::DataClean, u64::from(PAGE_UNITS)),
            KIND_DATA_DIRTY => (RecordKind::DataDirty, u64::from(PAGE_UNITS)),
            KIND_DATA_LOST => (RecordKind::DataLost, u64::from(PAGE_UNITS)),
            KIND_INVALIDATE => (RecordKind::Invalidate, 0),
            KIND_CLEAN_NOTE => {
                let of_seq = get_u64(from, 24);
                let of_ordinal = if place & PACKED_ORDINAL != 0 { place } else { place / PAGE_UNITS };
                (RecordKind::CleanNote { of_seq, of_ordinal }, of_seq)
            }
            _ => return wrong("record kind"),
        };
        let is_page = !matches!(kind, RecordKind::CleanNote { .. }) || place & PACKED_ORDINAL == 0;
        if is_page && !place.is_multiple_of(PAGE_UNITS) {
            return wrong("record place");
        }
        let record = Record {
            kind,
            volume: VolumeId(get_u32(from, 4)),
            block: get_u64(from, 8),
            mask: from[1],
            checksum: if kind.is_data() { unmask(get_u32(from, 16), version) } else { get_u32(from, 16) },
            slot_page: if kind.is_data() { place / PAGE_UNITS } else { 0 },
            packed: None,
        };
        // For notes the eight bytes at 24 are a sequence number, for all others a length with zeroes behind it.
        if get_u64(from, 24) != length {
            return wrong("record length");
        }
        if kind.is_data() == (record.mask == 0) {
            return wrong("record mask");
        }
        if !kind.is_data() && (record.checksum != 0 || kind == RecordKind::Invalidate && place != 0) {
            return wrong("record without payload");
        }
        Ok(record)
    }

    fn decode_packed(from: &[u8], version: u32) -> Result<Record, DecodeError> {
        let wrong = |field| Err(DecodeError::Field { field });
        let kind = match from[0] {
            KIND_DATA_CLEAN => RecordKind::DataClean,
            KIND_DATA_DIRTY => RecordKind::DataDirty,
            KIND_DATA_LOST => RecordKind::DataLost,
            KIND_BASE => RecordKind::Base,
            _ => return wrong("record kind"),
        };
        let Some(encoding) = Encoding::from_u8(from[2] & !VITAL) else { return wrong("record encoding") };
        if get_u16(from, 26) != 0 {
            return wrong("record length");
        }
        let packed = Packed {
            encoding,
            place: get_u32(from, 20),
            bytes: get_u16(from, 24),
            object: u64::from(from[3]) << 32 | u64::from(get_u32(from, 28)),
            vital: from[2] & VITAL != 0,
        };
        let record = Record {
            kind,
            volume: VolumeId(get_u32(from, 4)),
            block: get_u64(from, 8),
            mask: from[1],
            checksum: unmask(get_u32(from, 16), version),
            slot_page: if encoding == Encoding::Raw { packed.place / PAGE_UNITS } else { 0 },
            packed: Some(packed),
        };
        packed.check(&record).map_or_else(wrong, |()| Ok(record))
    }
}

/// Decodes `count` records standing one behind the other in a structure of that version. Bytes after them
/// must be zero.
pub(crate) fn decode_table(from: &[u8], count: usize, version: u32) -> Result<alloc::vec::Vec<Record>, DecodeError> {
    if count * RECORD_BYTES > from.len() {
        return Err(DecodeError::Field { field: "record count" });
    }
    let (table, rest) = from.split_at(count * RECORD_BYTES);
    if !all_zero(rest) {
        return Err(DecodeError::Field { field: "padding" });
    }
    table.chunks_exact(RECORD_BYTES).map(|bytes| Record::decode(bytes, version)).collect()
}
