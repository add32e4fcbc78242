//! Blocks of WiredTiger files (MongoDB): a page header of 28 bytes, a block header of 12, little
//! endian.

use super::{Dialect, Engine, Facts};
use crate::bytes::{le32, le64};
use crate::page::{Certainty, Native, Page, PageKind};
use crate::recognise::Head;
use format::checksum::crc32c;

/// See [`Engine::WiredTiger`].
pub(super) struct WiredTiger;

impl Dialect for WiredTiger {
    fn facts(&self) -> &'static Facts {
        const { &Facts::of_pages("WiredTiger", "wiredtiger") }
    }

    fn page(&self, _: &[u8], _: &Head) -> Option<Page> {
        None
    }

    fn rare_page(&self, bytes: &[u8], head: &Head) -> Option<Page> {
        recognise(bytes, head)
    }

    fn verify(&self, _: &mut Page, _: &[u8]) {
        // That was done when it was recognised.
    }
}

/// Bytes that the checksum covers where it does not cover the block.
const SHORT_BYTES: usize = 64;
/// Allocation size: lengths are multiples of it.
const ALLOCATION_BYTES: u32 = 4096;
/// Longer blocks are not looked at.
const BYTES_MAX: u32 = 1 << 20;

/// The block at the start of `bytes`, proven by its checksum.
#[inline]
fn recognise(bytes: &[u8], head: &Head) -> Option<Page> {
    let (page_type, length) = (head[24], le32(head, 28));
    let fits = matches!(page_type, 1..=7) && 0 < length && length <= BYTES_MAX && length.is_multiple_of(ALLOCATION_BYTES);
    // The header's spare bytes, and what its flags leave free.
    if !fits || head[26] != 0 || head[36] > 1 || head[37..40] != [0; 3] || le64(head, 8) == 0 {
        return None;
    }
    let covered = bytes.get(..if head[36] & 1 != 0 { length as usize } else { SHORT_BYTES })?;
    if checksum(covered)? != le32(head, 32) {
        return None;
    }
    let kind = match page_type {
        1 => PageKind::Space,
        5 => PageKind::Lob,
        _ => PageKind::Table,
    };
    let whole = bytes.len() >= length as usize;
    let native = Native::WiredTiger(page_type);
    Some(Page { whole, native, ..Page::new(Engine::WiredTiger, Certainty::Verified, kind, length) })
}

/// CRC-32C with the word that keeps it taken as zero. Few foreign blocks come this far, so a copy
/// will do.
fn checksum(covered: &[u8]) -> Option<u32> {
    let mut copy = covered.to_vec();
    copy.get_mut(32..36)?.fill(0);
    Some(crc32c(&copy))
}
