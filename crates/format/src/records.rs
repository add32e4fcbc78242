//! What management keeps on the SSD about its pool: names, modes, the identities of backing devices. In two copies, so that a pool whose
//! state directory is lost, or older than the SSD, can be told from what the SSD itself says.
//!
//! ```text
//!    0 magic "HEARTHRC"      8 crc32c of bytes 12..length     12 version u32
//!   16 length u32           20 zero                          24 pool uuid
//!   40 serial u64           48 zero
//!   64 content: bytes that mean nothing here
//! ```
//!
//! The copies stand in the superblock's two slots, between the longest superblock and the table of the disks: there in every layout. A pool
//! that was made before there was such a record has none.

use crate::bytes::{all_zero, get_u32, get_u64, get_uuid, put, put_u32, put_u64};
use crate::checksum::{header_matches, seal_header};
use crate::disks::disks_offset_bytes;
use crate::layout::{SUPERBLOCK_SLOT_BYTES, SuperblockSlot};
use crate::superblock::STORED_BYTES_MAX;
use crate::{COUNT_MAX, DecodeError, PAGE_BYTES};
use alloc::vec;
use alloc::vec::Vec;

/// The first eight bytes of a copy.
pub const RECORDS_MAGIC: &[u8; 8] = b"HEARTHRC";
/// Room for one copy.
pub const RECORDS_SLOT_BYTES: u64 = 100 << 10;
/// Longest content, in bytes.
pub const CONTENT_BYTES_MAX: usize = RECORDS_SLOT_BYTES as usize - CONTENT_AT;
/// The version that this release writes, and the newest that it reads.
const VERSION: u32 = 1;
const CONTENT_AT: usize = 64;

const _: () = assert!(
    STORED_BYTES_MAX as u64 + RECORDS_SLOT_BYTES + crate::disks::DISKS_SLOT_BYTES <= SUPERBLOCK_SLOT_BYTES,
    "the longest superblock, a record and a table of disks fit a slot"
);

/// Where the copy beside that superblock begins, in bytes.
pub const fn records_offset_bytes(slot: SuperblockSlot) -> u64 {
    disks_offset_bytes(slot) - RECORDS_SLOT_BYTES
}

/// A record of a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolRecords {
    /// The pool that it is about: a record of another one is none.
    pub uuid: [u8; 16],
    /// Counts the versions of the record, from 1.
    pub serial: u64,
    /// At most [`CONTENT_BYTES_MAX`] bytes.
    pub content: Vec<u8>,
}

impl PoolRecords {
    /// The record as bytes, whole pages.
    ///
    /// # Panics
    /// If a limit is not kept: the caller looks before.
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.content.len() <= CONTENT_BYTES_MAX && (1..COUNT_MAX).contains(&self.serial), "a record is sound before it is written");
        let length = CONTENT_AT + self.content.len();
        let mut bytes = vec![0; length.next_multiple_of(PAGE_BYTES)];
        let into = &mut bytes[..length];
        put(into, 0, RECORDS_MAGIC);
        put_u32(into, 12, VERSION);
        put_u32(into, 16, length as u32);
        put(into, 24, &self.uuid);
        put_u64(into, 40, self.serial);
        put(into, CONTENT_AT, &self.content);
        seal_header(into);
        bytes
    }

    /// Reads a record from the bytes of its slot.
    ///
    /// # Errors
    /// [`DecodeError::Magic`] where there is none; else what is wrong with it.
    pub fn decode(bytes: &[u8]) -> Result<PoolRecords, DecodeError> {
        let wrong = |field| Err(DecodeError::Field { field });
        if bytes.len() < CONTENT_AT || !bytes.starts_with(RECORDS_MAGIC) {
            return Err(DecodeError::Magic);
        }
        let length = get_u32(bytes, 16) as usize;
        if length < CONTENT_AT || length > bytes.len() || !header_matches(&bytes[..length]) {
            return Err(DecodeError::Checksum);
        }
        let version = get_u32(bytes, 12);
        if version != VERSION {
            return Err(DecodeError::Version { found: version });
        }
        if !all_zero(&bytes[20..24]) || !all_zero(&bytes[48..CONTENT_AT]) {
            return wrong("padding");
        }
        let serial = get_u64(bytes, 40);
        if serial == 0 || serial >= COUNT_MAX {
            return wrong("serial");
        }
        Ok(PoolRecords { uuid: get_uuid(bytes, 24), serial, content: bytes[CONTENT_AT..length].to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(content_bytes: usize) -> PoolRecords {
        PoolRecords { uuid: [7; 16], serial: 9, content: (0..content_bytes).map(|at| at as u8).collect() }
    }

    #[test]
    fn what_is_written_is_read() {
        for content_bytes in [0, 1, 4032, 4033, CONTENT_BYTES_MAX] {
            let record = record(content_bytes);
            let bytes = record.encode();
            assert!(bytes.len().is_multiple_of(PAGE_BYTES) && bytes.len() as u64 <= RECORDS_SLOT_BYTES);
            assert_eq!(PoolRecords::decode(&bytes), Ok(record));
        }
    }

    /// The bytes of version 1 stay what they are.
    #[test]
    fn version_1_is_these_bytes() {
        let mut expected = [0; PAGE_BYTES];
        expected[..8].copy_from_slice(b"HEARTHRC");
        expected[8..12].copy_from_slice(&0x1f6653cd_u32.to_le_bytes());
        (expected[12], expected[16], expected[40]) = (1, 67, 9);
        expected[24..40].fill(7);
        expected[64..67].copy_from_slice(b"abc");
        let record = PoolRecords { content: b"abc".to_vec(), ..record(0) };
        assert_eq!(record.encode(), expected);
        assert_eq!(PoolRecords::decode(&expected), Ok(record));
    }

    #[test]
    fn every_flipped_bit_and_every_truncation_is_seen() {
        let bytes = record(100).encode();
        let length = CONTENT_AT + 100;
        for bit in 0..length * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(PoolRecords::decode(&damaged).is_err(), "bit {bit}");
        }
        for bytes_left in 0..length {
            assert!(PoolRecords::decode(&bytes[..bytes_left]).is_err(), "{bytes_left} bytes");
        }
    }

    #[test]
    fn no_superblock_reaches_the_record_and_it_reaches_no_disk_table() {
        for slot in SuperblockSlot::ALL {
            assert!(slot.offset_bytes() + STORED_BYTES_MAX as u64 <= records_offset_bytes(slot));
            assert_eq!(records_offset_bytes(slot) + RECORDS_SLOT_BYTES, disks_offset_bytes(slot));
        }
    }
}
