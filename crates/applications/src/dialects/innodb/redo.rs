//! The redo log of InnoDB, and the head of a binary log.
//!
//! MySQL writes its redo log in blocks of 512 bytes, each under its own CRC-32C. MariaDB since 10.8
//! writes a stream of bytes after the header, which cannot be told by content: how it is written
//! tells.

use super::checksum;
use crate::Engine;
use crate::bytes::{be16, be32, be64, is_zero, le16, le32};
use crate::page::{Certainty, Native, Page, PageKind};
use crate::recognise::Head;

/// A block of the redo log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Block {
    /// The head of a log file, with the LSN that it begins with.
    Header {
        /// The LSN of the first byte after the headers.
        lsn: u64,
    },
    /// A block of records.
    Records {
        /// Its number: LSN / 512, modulo 2^30.
        number: u32,
    },
}

/// MariaDB's format word since 10.8, and its bits for encrypted logs before.
const PHYSICAL: u32 = 0x5068_7973;

/// The block, or the head of a binary log, at the start of `bytes`.
#[inline]
pub(crate) fn recognise(bytes: &[u8], head: &Head) -> Option<Page> {
    let length = be16(head, 4);
    let records = (12..=512).contains(&length) && be16(head, 6) <= length && be32(head, 0) & 0x3fff_ffff != 0;
    if records {
        return log_page(bytes, Block::Records { number: be32(head, 0) & 0x3fff_ffff });
    }
    let format = be32(head, 0);
    if matches!(format, PHYSICAL | 1..=6) && head[16..48].is_ascii() && head[16].is_ascii_alphabetic() {
        return log_page(bytes, Block::Header { lsn: be64(head, 8) });
    }
    binlog(head)
}

fn log_page(bytes: &[u8], block: Block) -> Option<Page> {
    if !checksum::log_block(bytes.first_chunk()?) {
        return None;
    }
    Some(Page { native: Native::Redo(block), ..Page::new(Engine::Innodb, Certainty::Verified, PageKind::Log, 512) })
}

/// `FE 'bin'`, then the event that describes the format: a short magic alone is met by chance.
fn binlog(head: &Head) -> Option<Page> {
    let (kind, length, next) = (head[8], le32(head, 13), le32(head, 17));
    if head[..4] != *b"\xfebin" || kind != 15 || next != length.wrapping_add(4) || le16(head, 23) != 4 {
        return None;
    }
    let version = &head[25..75];
    let text = version.iter().position(|byte| *byte == 0)?;
    let spelled = text > 0 && version[0].is_ascii_digit() && version[..text].is_ascii() && is_zero(version, text, version.len());
    spelled.then_some(Page { native: Native::Binlog, ..Page::new(Engine::Innodb, Certainty::Likely, PageKind::Log, 4096) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recognise;
    use format::checksum::crc32c;

    /// A block of a redo log as MySQL writes it.
    fn block() -> Vec<u8> {
        let mut block = vec![0x51; 512];
        block[..4].copy_from_slice(&0x8000_1234u32.to_be_bytes());
        block[4..8].copy_from_slice(&[2, 0, 0, 12]);
        let sum = crc32c(&block[..508]);
        block[508..].copy_from_slice(&sum.to_be_bytes());
        block
    }

    #[test]
    fn a_block_of_records_is_verified_and_a_damaged_one_nothing() {
        let mut block = block();
        let page = recognise(&block).expect("a block");
        assert_eq!((page.certainty, page.native), (Certainty::Verified, Native::Redo(Block::Records { number: 0x1234 })));
        for bit in 0..4096 {
            block[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(recognise(&block), None, "bit {bit}");
            block[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
