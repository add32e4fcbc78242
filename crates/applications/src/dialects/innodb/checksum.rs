//! The checksums of InnoDB pages.
//!
//! Sources: MariaDB and MySQL server, `buf0buf` and `page0zip`; ranges checked against the sample
//! pages.

use crate::bytes::{be32, le32};
use format::checksum::crc32c;

/// What stands in place of both checksums where the server computes none.
const NONE: u32 = 0xdead_beef;

/// MariaDB `full_crc32`: CRC-32C of all but the last word, which it is.
pub(super) fn full_crc32(page: &[u8]) -> bool {
    page.len() > 4 && crc32c(&page[..page.len() - 4]) == be32(page, page.len() - 4)
}

/// `ROW_FORMAT=COMPRESSED`: everything but the checksum itself, the LSN and the word after the
/// type.
pub(super) fn compressed(page: &[u8]) -> bool {
    let (Some(numbers), Some(kind), Some(body)) = (page.get(4..16), page.get(24..26), page.get(34..)) else { return false };
    crc32c(numbers) ^ crc32c(kind) ^ crc32c(body) == be32(page, 0)
}

/// What a checksum at both ends says: `None` if the server was told to compute none.
pub(super) fn both_ends(page: &[u8]) -> Option<bool> {
    let Some(end) = page.len().checked_sub(8).filter(|end| *end > 38) else { return Some(false) };
    let (first, last) = (be32(page, 0), be32(page, end));
    if first == NONE && last == NONE {
        return None;
    }
    if first == last && crc32c(&page[4..26]) ^ crc32c(&page[38..end]) == first {
        return Some(true);
    }
    // The algorithm `innodb`, default until MySQL 5.7.7: two different folds of the same bytes.
    // The short one first: it is a hundred times slower a byte.
    Some(folded(&page[..26]) == last && folded(&page[4..26]).wrapping_add(folded(&page[38..end])) == first)
}

/// `ut_fold_binary` over bytes, kept to 32 bits.
fn folded(bytes: &[u8]) -> u32 {
    let pair = |one: u32, two: u32| ((one ^ two ^ 1_653_893_711).wrapping_shl(8).wrapping_add(one) ^ 1_463_735_687).wrapping_add(two);
    bytes.iter().fold(0, |fold, byte| pair(fold, u32::from(*byte)))
}

/// A block of 512 bytes with its CRC-32C in the last word, in the order of bytes that either server
/// uses.
pub(super) fn log_block(block: &[u8; 512]) -> bool {
    let sum = crc32c(&block[..508]);
    sum == be32(block, 508) || sum == le32(block, 508)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_by_the_old_folds() {
        let mut page = vec![7u8; 4096];
        let (front, body) = (folded(&page[4..26]), folded(&page[38..4088]));
        page[..4].copy_from_slice(&front.wrapping_add(body).to_be_bytes());
        let last = folded(&page[..26]);
        page[4088..4092].copy_from_slice(&last.to_be_bytes());
        assert_eq!(both_ends(&page), Some(true));
        page[2000] ^= 1;
        assert_eq!(both_ends(&page), Some(false));
    }

    #[test]
    fn no_checksum_is_told_apart_from_a_wrong_one() {
        let mut page = vec![7u8; 4096];
        assert_eq!(both_ends(&page), Some(false));
        page[..4].copy_from_slice(&NONE.to_be_bytes());
        page[4088..4092].copy_from_slice(&NONE.to_be_bytes());
        assert_eq!(both_ends(&page), None);
    }
}
