//! A record: what the log knows about one block at one moment.
//!
//! ```text
//!  0 kind u8   1 mask u8   2 encoding u8 (0: raw)   3 zero
//!  4 volume u32
//!  8 block u64
//! 16 checksum u32                       (data; else 0)
//! 20 place u32, in 16-byte units        (data: of the payload in its segment; clean note: of the noted payload)
//! 24 payload length u32, 16-byte units  (data: 256; else 0)     |  clean note: the noted segment's seq u64
//! 28 zero u32                                                   |
//! ```
//!
//! Encoding, place and length leave room for compressed and delta payloads packed by the byte; version 1 writes raw
//! 4 KiB pages only and accepts nothing else.

use crate::bytes::{all_zero, get_u32, get_u64, put_u32, put_u64};
use crate::{DecodeError, PAGE_BYTES};
use types::{VOLUME_BLOCKS_MAX, VolumeId};

/// Bytes of an encoded record.
pub const RECORD_BYTES: usize = 32;
/// Places and lengths of payloads count in this many bytes.
pub const PLACE_UNIT_BYTES: u32 = 16;
const PAGE_UNITS: u32 = PAGE_BYTES as u32 / PLACE_UNIT_BYTES;

/// What a record says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordKind {
    /// The payload is the block as the backing device has it.
    DataClean,
    /// The payload is newer than the backing device.
    DataDirty,
    /// As [`RecordKind::DataDirty`], but the payload could not be read when it was appended again, and is not what its checksum says. The record
    /// stands for the loss: nobody is to take it for a torn write.
    DataLost,
    /// Whatever the log held of this block before is void, the whole block. No payload.
    Invalidate,
    /// The dirty payload at this place is at home now: if the newest record of the block is still that one, it is clean.
    /// Otherwise the note means nothing. No payload.
    CleanNote {
        /// The segment of the noted payload.
        of_seq: u64,
        /// Its page in that segment.
        of_page: u32,
    },
}

impl RecordKind {
    /// Whether a payload page follows in the group.
    pub const fn has_payload(self) -> bool {
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
    /// alone, so whoever appends a partial block merges older valid sectors into it. Other kinds: 0.
    pub mask: u8,
    /// Data: [`payload_checksum`](crate::payload_checksum) of all 4096 bytes, valid or not. Other kinds: 0.
    pub checksum: u32,
    /// Data: the page of the payload, counted from the start of the segment. Other kinds: 0.
    pub slot_page: u32,
}

const KIND_DATA_CLEAN: u8 = 1;
const KIND_DATA_DIRTY: u8 = 2;
const KIND_INVALIDATE: u8 = 3;
const KIND_CLEAN_NOTE: u8 = 4;
const KIND_DATA_LOST: u8 = 5;

impl Record {
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
        };
        put_u32(into, 4, self.volume.0);
        put_u64(into, 8, self.block);
        match self.kind {
            RecordKind::DataClean | RecordKind::DataDirty | RecordKind::DataLost => {
                assert!(self.mask != 0, "a payload without a valid sector");
                into[1] = self.mask;
                put_u32(into, 16, self.checksum);
                put_u32(into, 20, self.slot_page * PAGE_UNITS);
                put_u32(into, 24, PAGE_UNITS);
            }
            RecordKind::Invalidate => {}
            RecordKind::CleanNote { of_seq, of_page } => {
                put_u32(into, 20, of_page * PAGE_UNITS);
                put_u64(into, 24, of_seq);
            }
        }
    }

    /// Reads a record from its [`RECORD_BYTES`] bytes, whose checksum the caller has verified.
    ///
    /// # Errors
    /// [`DecodeError::Field`] for values no writer of this version gives.
    pub fn decode(from: &[u8]) -> Result<Record, DecodeError> {
        let wrong = |field| Err(DecodeError::Field { field });
        let place = get_u32(from, 20);
        if from[2] != 0 || from[3] != 0 {
            return wrong("record encoding");
        }
        if !place.is_multiple_of(PAGE_UNITS) {
            return wrong("record place");
        }
        let place_page = place / PAGE_UNITS;
        let (kind, length) = match from[0] {
            KIND_DATA_CLEAN => (RecordKind::DataClean, u64::from(PAGE_UNITS)),
            KIND_DATA_DIRTY => (RecordKind::DataDirty, u64::from(PAGE_UNITS)),
            KIND_DATA_LOST => (RecordKind::DataLost, u64::from(PAGE_UNITS)),
            KIND_INVALIDATE => (RecordKind::Invalidate, 0),
            KIND_CLEAN_NOTE => {
                let of_seq = get_u64(from, 24);
                (RecordKind::CleanNote { of_seq, of_page: place_page }, of_seq)
            }
            _ => return wrong("record kind"),
        };
        let record = Record {
            kind,
            volume: VolumeId(get_u32(from, 4)),
            block: get_u64(from, 8),
            mask: from[1],
            checksum: get_u32(from, 16),
            slot_page: if kind.has_payload() { place_page } else { 0 },
        };
        // For notes the eight bytes at 24 are a sequence number, for all others a length with zeroes behind it.
        if get_u64(from, 24) != length {
            return wrong("record length");
        }
        if record.block >= VOLUME_BLOCKS_MAX {
            return wrong("record block");
        }
        if kind.has_payload() == (record.mask == 0) {
            return wrong("record mask");
        }
        if !kind.has_payload() && (record.checksum != 0 || kind == RecordKind::Invalidate && place != 0) {
            return wrong("record without payload");
        }
        Ok(record)
    }
}

/// Decodes `count` records standing one behind the other. Bytes after them must be zero.
pub(crate) fn decode_table(from: &[u8], count: usize) -> Result<alloc::vec::Vec<Record>, DecodeError> {
    if count * RECORD_BYTES > from.len() {
        return Err(DecodeError::Field { field: "record count" });
    }
    let (table, rest) = from.split_at(count * RECORD_BYTES);
    if !all_zero(rest) {
        return Err(DecodeError::Field { field: "padding" });
    }
    table.chunks_exact(RECORD_BYTES).map(Record::decode).collect()
}
