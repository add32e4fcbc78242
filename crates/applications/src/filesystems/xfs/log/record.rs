//! Records of the log: a block of header, more of them before a large record, and blocks of
//! operations. Each block on the disk begins with the number of the round that it was written in;
//! the words that stood there are kept in the headers.

use crate::bytes::{be32, be64, le32};
use format::checksum::crc32c;

/// The unit of the log.
pub(super) const BLOCK_BYTES: usize = 512;
/// What a header begins with. No round has this number.
const MAGIC: u32 = 0xfeed_babe;
/// Versions of the log; the second has large records, with more than one block of header.
const VERSION_1: u32 = 1;
const VERSION_2: u32 = 2;
/// Records of Linux on a machine with the low byte first. What the log holds of inodes, and the
/// heads of its items, are in the order of the machine; others are not read.
const LITTLE_ENDIAN: u32 = 1;
/// Bytes of operations that a header has first words for.
const HEADER_COVERS_BYTES: u32 = 32 << 10;
const HEADER_COVERS_BLOCKS: usize = 64;
/// Bytes of operations in a record at most.
const RECORD_BYTES_MAX: u32 = 256 << 10;
/// Where headers keep the checksum, and the first words: in the first one, and in the others.
const CRC_AT: usize = 32;
const WORDS_AT: usize = 44;
const MORE_WORDS_AT: usize = 4;
/// Bytes of a header that the checksum covers: on all machines but 32-bit x86, there, and of the
/// other headers.
const CRC_COVERS: [usize; 2] = [328, 324];
const CRC_COVERS_MORE: usize = 260;

/// A place in the log: in which round, and at which block. Later ones are greater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Place {
    pub(super) cycle: u32,
    pub(super) block: u32,
}

impl Place {
    /// From the number that the disk has for it, the LSN.
    fn of(lsn: u64) -> Place {
        Place { cycle: (lsn >> 32) as u32, block: lsn as u32 }
    }

    /// As the disk has it.
    pub(super) fn lsn(self) -> u64 {
        u64::from(self.cycle) << 32 | u64::from(self.block)
    }

    /// So many blocks later, less than a round of `round` blocks.
    pub(super) fn after(self, blocks: u32, round: u32) -> Place {
        let block = u64::from(self.block) + u64::from(blocks);
        match block.checked_sub(round.into()) {
            Some(block) => Place { cycle: next_cycle(self.cycle), block: block as u32 },
            None => Place { cycle: self.cycle, block: block as u32 },
        }
    }
}

fn next_cycle(cycle: u32) -> u32 {
    match cycle.wrapping_add(1) {
        MAGIC => MAGIC + 1,
        next => next,
    }
}

/// The round that a block was written in.
pub(super) fn cycle(block: &[u8]) -> u32 {
    match be32(block, 0) {
        MAGIC => be32(block, 4),
        cycle => cycle,
    }
}

/// The header of a record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) place: Place,
    /// Where a recovery would have begun when it was written.
    pub(super) tail: Place,
    /// How many operations it has.
    pub(super) operations: u32,
    /// Bytes of them.
    bytes: u32,
    /// Blocks of header.
    heads: u32,
    crc: u32,
}

/// Why a record is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Broken {
    /// It was not written to its end.
    Unfinished,
    /// A later round has written over it.
    Overwritten,
}

impl Header {
    /// The header in a block; `None` if it is none of the log of that file system.
    pub(super) fn of(block: &[u8], uuid: &[u8; 16]) -> Option<Header> {
        let (version, size) = (be32(block, 8), be32(block, 320));
        let heads = if version & VERSION_2 != 0 { size.div_ceil(HEADER_COVERS_BYTES).max(1) } else { 1 };
        let header = Header {
            place: Place::of(be64(block, 16)),
            tail: Place::of(be64(block, 24)),
            operations: be32(block, 40),
            bytes: be32(block, 12),
            heads,
            crc: le32(block, CRC_AT),
        };
        let is_sane = be32(block, 0) == MAGIC
            && be32(block, 4) == header.place.cycle
            && version & !(VERSION_1 | VERSION_2) == 0
            && version != 0
            && be32(block, 300) == LITTLE_ENDIAN
            && block.get(304..320) == Some(uuid)
            && heads <= RECORD_BYTES_MAX / HEADER_COVERS_BYTES
            && (1..=heads * HEADER_COVERS_BYTES).contains(&header.bytes)
            && header.tail <= header.place;
        is_sane.then_some(header)
    }

    /// Blocks of the record, its header among them.
    pub(super) fn blocks(&self) -> u32 {
        self.heads + self.bytes.div_ceil(BLOCK_BYTES as u32)
    }

    /// The operations of a record, of which `bytes` are all blocks. The checksum must fit where
    /// `is_checked`, and else where there is one: old kernels write none.
    pub(super) fn open(&self, bytes: &[u8], round: u32, is_checked: bool) -> Result<Vec<u8>, Broken> {
        let mut expected = self.place;
        for block in bytes.chunks(BLOCK_BYTES) {
            match cycle(block) {
                cycle if cycle == expected.cycle => {}
                cycle if cycle > expected.cycle => return Err(Broken::Overwritten),
                _ => return Err(Broken::Unfinished),
            }
            expected = expected.after(1, round);
        }
        let (heads, data) = bytes.split_at_checked(self.heads as usize * BLOCK_BYTES).ok_or(Broken::Unfinished)?;
        let data = data.get(..self.bytes as usize).ok_or(Broken::Unfinished)?;
        let has_crc = is_checked || self.crc != 0;
        if has_crc && !CRC_COVERS.into_iter().any(|covers| self.sum(heads, data, covers) == self.crc) {
            return Err(Broken::Unfinished);
        }
        let mut data = data.to_vec();
        for (number, block) in data.chunks_mut(BLOCK_BYTES).enumerate() {
            let (head, inside) = (number / HEADER_COVERS_BLOCKS, number % HEADER_COVERS_BLOCKS);
            let at = if head == 0 { WORDS_AT } else { head * BLOCK_BYTES + MORE_WORDS_AT } + 4 * inside;
            if let (Some(to), Some(word)) = (block.get_mut(..4), heads.get(at..at + 4)) {
                to.copy_from_slice(word);
            }
        }
        Ok(data)
    }

    fn sum(&self, heads: &[u8], data: &[u8], covers: usize) -> u32 {
        let mut all = Vec::with_capacity(heads.len() + data.len());
        all.extend_from_slice(&heads[..covers]);
        all[CRC_AT..CRC_AT + 4].fill(0);
        // As many of them as the operations need, not all that are there.
        let needed = self.bytes.div_ceil(HEADER_COVERS_BYTES) as usize;
        for head in heads.chunks(BLOCK_BYTES).take(needed).skip(1) {
            all.extend_from_slice(&head[..CRC_COVERS_MORE]);
        }
        all.extend_from_slice(data);
        crc32c(&all)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) const UUID: [u8; 16] = *b"a file system's!";

    /// The blocks of a record as they lie on the disk, of a log with `round` blocks.
    pub(crate) fn record(place: Place, tail: Place, data: &[u8], operations: u32, round: u32) -> Vec<u8> {
        let size = (data.len() as u32).max(HEADER_COVERS_BYTES);
        let heads = size.div_ceil(HEADER_COVERS_BYTES) as usize;
        let mut data = data.to_vec();
        data.resize(data.len().next_multiple_of(BLOCK_BYTES), 0);
        let mut bytes = vec![0; heads * BLOCK_BYTES];
        let mut put = |at: usize, word: u32| bytes[at..at + 4].copy_from_slice(&word.to_be_bytes());
        put(0, MAGIC);
        put(4, place.cycle);
        put(8, VERSION_2);
        put(12, data.len() as u32);
        put(16, place.cycle);
        put(20, place.block);
        put(24, tail.cycle);
        put(28, tail.block);
        put(40, operations);
        put(300, LITTLE_ENDIAN);
        put(320, size);
        bytes[304..320].copy_from_slice(&UUID);
        for (number, block) in data.chunks_mut(BLOCK_BYTES).enumerate() {
            let (head, inside) = (number / HEADER_COVERS_BLOCKS, number % HEADER_COVERS_BLOCKS);
            let at = if head == 0 { WORDS_AT } else { head * BLOCK_BYTES + MORE_WORDS_AT } + 4 * inside;
            bytes[at..at + 4].copy_from_slice(&block[..4]);
        }
        bytes.extend(data);
        let mut at = place;
        for (number, block) in bytes.chunks_mut(BLOCK_BYTES).enumerate() {
            if number > 0 {
                block[..4].copy_from_slice(&at.cycle.to_be_bytes());
            }
            at = at.after(1, round);
        }
        let header = Header::of(&bytes, &UUID).expect("a header");
        let (heads, data) = bytes.split_at(heads * BLOCK_BYTES);
        let crc = header.sum(heads, data, CRC_COVERS[0]);
        bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn numbers(count: usize) -> Vec<u8> {
        (0..count).map(|number| (number * 7 + number / 251) as u8).collect()
    }

    #[test]
    fn records_of_every_size_give_what_was_written_also_around_the_end() {
        for len in [512, 1536, 32 << 10, (32 << 10) + 512, 100 << 10, 256 << 10] {
            let data = numbers(len);
            // Before the end, in the middle of header and operations, and at the end exactly.
            for block in [0, 999, 995, 990, 1000 - 65, 500] {
                let place = Place { cycle: 7, block };
                let bytes = record(place, place, &data, 1, 1000);
                let header = Header::of(&bytes, &UUID).expect("a header");
                assert_eq!((header.place, header.blocks() as usize), (place, bytes.len() / BLOCK_BYTES));
                assert!(header.open(&bytes, 1000, true).as_ref() == Ok(&data), "{len} bytes at {block}");
            }
        }
    }

    #[test]
    fn places_go_around() {
        let place = Place { cycle: 7, block: 990 };
        assert_eq!(place.after(9, 1000), Place { cycle: 7, block: 999 });
        assert_eq!(place.after(10, 1000), Place { cycle: 8, block: 0 });
        assert_eq!(Place { cycle: MAGIC - 1, block: 5 }.after(6, 10), Place { cycle: MAGIC + 1, block: 1 });
        assert!(Place { cycle: 8, block: 0 } > place && Place::of(place.lsn()) == place);
    }

    #[test]
    fn a_record_that_is_not_whole_is_none() {
        let place = Place { cycle: 7, block: 990 };
        let good = record(place, place, &numbers(20 << 10), 1, 1000);
        let header = Header::of(&good, &UUID).expect("a header");
        let mut torn = good.clone();
        torn[3000] ^= 1;
        assert_eq!(header.open(&torn, 1000, true), Err(Broken::Unfinished));
        // Blocks of the round before, and of the next one.
        for (cycle, why) in [(6_u32, Broken::Unfinished), (9, Broken::Overwritten)] {
            let mut other = good.clone();
            other[20 * BLOCK_BYTES..][..4].copy_from_slice(&cycle.to_be_bytes());
            assert_eq!(header.open(&other, 1000, true), Err(why));
        }
        assert_eq!(header.open(&good[..good.len() - 512], 1000, true), Err(Broken::Unfinished));
        // Without a checksum only where none is needed.
        let mut unchecked = good.clone();
        unchecked[CRC_AT..CRC_AT + 4].fill(0);
        let header = Header::of(&unchecked, &UUID).expect("a header");
        assert_eq!(header.open(&unchecked, 1000, true), Err(Broken::Unfinished));
        assert!(header.open(&unchecked, 1000, false).is_ok());
    }

    #[test]
    fn headers_that_make_no_sense_are_none() {
        let place = Place { cycle: 7, block: 10 };
        let good = record(place, place, &numbers(512), 1, 1000);
        assert!(Header::of(&good, b"another one's id").is_none() && Header::of(&good[..100], &UUID).is_none());
        // Magic, round, version, length, tail, order of bytes, size.
        for (at, word) in [(0, 1), (4, 8), (8, 4), (12, 0), (12, 1 << 20), (12, u32::MAX), (24, 9), (300, 2), (320, 1 << 30)] {
            let mut bad = good.clone();
            bad[at..at + 4].copy_from_slice(&u32::to_be_bytes(word));
            assert!(Header::of(&bad, &UUID).is_none(), "{word} at {at}");
        }
    }
}
