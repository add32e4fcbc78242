//! The disks that room the SSD with the log: where each of them lies. In two copies, so that they are found again when all that is known of them
//! elsewhere is lost.
//!
//! ```text
//!    0 magic "HEARTHDK"      8 crc32c of bytes 12..length     12 version u32
//!   16 length u32           20 piece count u32               24 generation u64
//!   32 begin of the room u64                                 40 end of the room u64
//!   48 zero
//!   64 one record a piece, 128 bytes:
//!        0 uuid    16 offset u64    24 size u64    32 name length u8    33 number of the piece u8    34 zero    64 name, 64 bytes
//! ```
//!
//! A disk consists of one piece or more, which follow one another in the table, numbered from 0.
//!
//! The copies stand at the end of the superblock's two slots, where no superblock reaches: there in every layout, whatever becomes of the log.
//! Disks lie in the room for them, which begins behind the last byte of the log.

use crate::bytes::{all_zero, get_u32, get_u64, get_uuid, put, put_u32, put_u64};
use crate::checksum::{header_matches, seal_header};
use crate::layout::{SUPERBLOCK_SLOT_BYTES, SuperblockSlot};
use crate::{DecodeError, PAGE_BYTES};
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

/// The first eight bytes of a copy.
pub const DISKS_MAGIC: &[u8; 8] = b"HEARTHDK";
/// Room for one copy.
pub const DISKS_SLOT_BYTES: u64 = 16 << 10;
/// Most disks beside one log.
pub const DISKS_MAX: usize = 64;
/// Most pieces of all disks together.
pub const PIECES_MAX: usize = 127;
/// Longest name, in bytes.
pub const DISK_NAME_BYTES_MAX: usize = 64;
/// The version that this release writes, and the newest that it reads.
const VERSION: u32 = 1;
const RECORDS_AT: usize = 64;
const RECORD_BYTES: usize = 128;

const _: () = assert!(RECORDS_AT + PIECES_MAX * RECORD_BYTES <= DISKS_SLOT_BYTES as usize, "the longest table fits its slot");

/// Where the copy beside that superblock begins, in bytes.
pub const fn disks_offset_bytes(slot: SuperblockSlot) -> u64 {
    slot.offset_bytes() + SUPERBLOCK_SLOT_BYTES - DISKS_SLOT_BYTES
}

/// A piece of a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Its first byte on the SSD, a multiple of 4096.
    pub offset_bytes: u64,
    /// Its size in bytes, a multiple of 4096.
    pub size_bytes: u64,
}

impl Piece {
    /// Behind its last byte.
    pub const fn end_bytes(&self) -> u64 {
        self.offset_bytes.saturating_add(self.size_bytes)
    }
}

/// Where one disk lies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiskPlace {
    /// Who it is.
    pub uuid: [u8; 16],
    /// Its name: 1 to [`DISK_NAME_BYTES_MAX`] bytes.
    pub name: String,
    /// What it consists of, from its first byte to its last; at least one.
    pub pieces: Vec<Piece>,
}

/// All disks beside a log.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DiskTable {
    /// Counts the versions of the table, from 1.
    pub generation: u64,
    /// Where the room for disks begins: the log ends before.
    pub room_at_bytes: u64,
    /// Where it ends.
    pub room_end_bytes: u64,
    /// No two pieces overlap.
    pub disks: Vec<DiskPlace>,
}

impl DiskTable {
    /// The table as bytes, whole pages.
    ///
    /// # Panics
    /// If it contradicts itself: the caller checks before.
    pub fn encode(&self) -> Vec<u8> {
        self.check().expect("a table is sound before it is written");
        let pieces = || self.disks.iter().flat_map(|disk| disk.pieces.iter().enumerate().map(move |(number, piece)| (disk, number, piece)));
        let length = RECORDS_AT + pieces().count() * RECORD_BYTES;
        let mut bytes = vec![0; length.next_multiple_of(PAGE_BYTES)];
        let into = &mut bytes[..length];
        put(into, 0, DISKS_MAGIC);
        put_u32(into, 12, VERSION);
        put_u32(into, 16, length as u32);
        put_u32(into, 20, pieces().count() as u32);
        put_u64(into, 24, self.generation);
        put_u64(into, 32, self.room_at_bytes);
        put_u64(into, 40, self.room_end_bytes);
        for ((disk, number, piece), slot) in pieces().zip(into[RECORDS_AT..].chunks_exact_mut(RECORD_BYTES)) {
            put(slot, 0, &disk.uuid);
            put_u64(slot, 16, piece.offset_bytes);
            put_u64(slot, 24, piece.size_bytes);
            slot[32] = disk.name.len() as u8;
            slot[33] = number as u8;
            put(slot, 64, disk.name.as_bytes());
        }
        seal_header(into);
        bytes
    }

    /// Reads a table from the bytes of its slot.
    ///
    /// # Errors
    /// [`DecodeError::Magic`] where there is none; else what is wrong with it.
    pub fn decode(bytes: &[u8]) -> Result<DiskTable, DecodeError> {
        let wrong = |field| DecodeError::Field { field };
        if bytes.len() < RECORDS_AT || !bytes.starts_with(DISKS_MAGIC) {
            return Err(DecodeError::Magic);
        }
        let length = get_u32(bytes, 16) as usize;
        if length < RECORDS_AT || length > bytes.len() || !header_matches(&bytes[..length]) {
            return Err(DecodeError::Checksum);
        }
        let version = get_u32(bytes, 12);
        if version != VERSION {
            return Err(DecodeError::Version { found: version });
        }
        let count = get_u32(bytes, 20) as usize;
        if count > PIECES_MAX || length != RECORDS_AT + count * RECORD_BYTES || !all_zero(&bytes[48..RECORDS_AT]) {
            return Err(wrong("piece count"));
        }
        let mut disks: Vec<DiskPlace> = Vec::new();
        for from in bytes[RECORDS_AT..length].chunks_exact(RECORD_BYTES) {
            let name_bytes = usize::from(from[32]);
            if name_bytes > DISK_NAME_BYTES_MAX {
                return Err(wrong("disk name"));
            }
            let name = core::str::from_utf8(&from[64..64 + name_bytes]).map_err(|_| wrong("disk name"))?;
            let (uuid, piece) = (get_uuid(from, 0), Piece { offset_bytes: get_u64(from, 16), size_bytes: get_u64(from, 24) });
            match disks.last_mut().filter(|disk| disk.uuid == uuid && disk.name == name) {
                Some(disk) if disk.pieces.len() == usize::from(from[33]) => disk.pieces.push(piece),
                None if from[33] == 0 => disks.push(DiskPlace { uuid, name: name.to_string(), pieces: vec![piece] }),
                _ => return Err(wrong("piece number")),
            }
        }
        let table =
            DiskTable { generation: get_u64(bytes, 24), room_at_bytes: get_u64(bytes, 32), room_end_bytes: get_u64(bytes, 40), disks };
        table.check()?;
        Ok(table)
    }

    /// The rules that hold in every stored table: above all, no byte is given twice.
    ///
    /// # Errors
    /// Which is broken.
    pub fn check(&self) -> Result<(), DecodeError> {
        let wrong = |field| Err(DecodeError::Field { field });
        let page = PAGE_BYTES as u64;
        if self.generation == 0 {
            return wrong("generation");
        }
        if self.room_at_bytes > self.room_end_bytes || !self.room_at_bytes.is_multiple_of(page) {
            return wrong("room");
        }
        if self.disks.len() > DISKS_MAX || self.disks.iter().map(|disk| disk.pieces.len()).sum::<usize>() > PIECES_MAX {
            return wrong("piece count");
        }
        for (nth, disk) in self.disks.iter().enumerate() {
            if disk.name.is_empty() || disk.name.len() > DISK_NAME_BYTES_MAX {
                return wrong("disk name");
            }
            let is_whole = |piece: &Piece| (piece.offset_bytes | piece.size_bytes).is_multiple_of(page) && piece.size_bytes > 0;
            if disk.pieces.is_empty() || !disk.pieces.iter().all(is_whole) {
                return wrong("disk size");
            }
            if self.disks[..nth].iter().any(|other| other.uuid == disk.uuid || other.name == disk.name) {
                return wrong("disk twice");
            }
        }
        let mut free_from = self.room_at_bytes;
        for piece in self.pieces() {
            if piece.offset_bytes < free_from || piece.end_bytes() > self.room_end_bytes {
                return wrong("disk place");
            }
            free_from = piece.end_bytes();
        }
        Ok(())
    }

    /// The pieces of all disks, in order of their places.
    pub fn pieces(&self) -> Vec<Piece> {
        let mut pieces: Vec<Piece> = self.disks.iter().flat_map(|disk| disk.pieces.iter().copied()).collect();
        pieces.sort_by_key(|piece| piece.offset_bytes);
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::superblock::Superblock;

    fn disk(number: u8, offset_bytes: u64, size_bytes: u64) -> DiskPlace {
        DiskPlace { uuid: [number; 16], name: alloc::format!("disk{number}"), pieces: vec![Piece { offset_bytes, size_bytes }] }
    }

    fn table(disks: Vec<DiskPlace>) -> DiskTable {
        DiskTable { generation: 7, room_at_bytes: 1 << 30, room_end_bytes: 2 << 30, disks }
    }

    #[test]
    fn what_is_written_is_read() {
        for count in [0, 1, DISKS_MAX] {
            let disks = (0..count as u64).map(|number| disk(number as u8, (1 << 30) + number * (1 << 20), 1 << 20)).collect();
            let table = table(disks);
            assert_eq!(DiskTable::decode(&table.encode()), Ok(table));
        }
        // A disk of all the pieces there can be, the last of them first.
        let pieces = (0..PIECES_MAX as u64).rev().map(|number| Piece { offset_bytes: (1 << 30) + number * 8192, size_bytes: 4096 });
        let table = table(vec![DiskPlace { pieces: pieces.collect(), ..disk(1, 0, 0) }]);
        assert_eq!(DiskTable::decode(&table.encode()), Ok(table));
    }

    #[test]
    fn pieces_that_do_not_follow_one_another_are_none() {
        let two = DiskPlace { pieces: vec![Piece { offset_bytes: 1 << 30, size_bytes: 4096 }; 2], ..disk(1, 0, 0) };
        assert!(table(vec![two]).check().is_err(), "the same piece twice");
        assert!(table(vec![DiskPlace { pieces: Vec::new(), ..disk(1, 0, 0) }]).check().is_err(), "nothing");
        let mut bytes = table(vec![disk(1, 1 << 30, 4096)]).encode();
        bytes[RECORDS_AT + 33] = 1;
        seal_header(&mut bytes[..RECORDS_AT + RECORD_BYTES]);
        assert_eq!(DiskTable::decode(&bytes), Err(DecodeError::Field { field: "piece number" }));
    }

    #[test]
    fn no_superblock_reaches_the_table() {
        let layout = crate::Layout::plan_default(1 << 40, 32).expect("a large SSD");
        let longest = Superblock::new([1; 16], layout).encode().len() + types::VOLUMES_MAX * 384 + 256 * 32;
        assert!((longest as u64) < disks_offset_bytes(SuperblockSlot::A));
    }

    #[test]
    fn every_flipped_bit_is_seen() {
        let bytes = table(vec![disk(1, 1 << 30, 1 << 20), disk(2, (1 << 30) + (2 << 20), 1 << 20)]).encode();
        let length = RECORDS_AT + 2 * RECORD_BYTES;
        for bit in 0..length * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(DiskTable::decode(&damaged).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_table_that_gives_a_byte_twice_is_none() {
        let gib = 1 << 30;
        for disks in [
            vec![disk(1, gib, 8192), disk(2, gib + 4096, 4096)],
            vec![disk(1, gib + 4096, 4096), disk(2, gib, 8192)],
            vec![disk(1, gib - 4096, 4096)],
            vec![disk(1, 2 * gib - 4096, 8192)],
            vec![disk(1, gib, 0)],
            vec![disk(1, gib + 512, 4096)],
            vec![disk(1, gib, u64::MAX - 4095)],
            vec![disk(1, gib, 4096), disk(1, gib + 4096, 4096)],
        ] {
            assert!(table(disks.clone()).check().is_err(), "{disks:?}");
        }
    }
}
