//! Data of a client that begins and ends anywhere within pages, piece by piece.

use crate::{PAGE_BYTES, Page, PageMut};

/// Calls `visit` with the pieces of `pages` that hold `data_bytes` bytes beginning at `skip_bytes` of the first page.
pub fn for_each_piece<'a>(pages: &'a [Page], skip_bytes: u32, data_bytes: u32, mut visit: impl FnMut(&'a [u8])) {
    let (mut skip, mut left) = (skip_bytes as usize, data_bytes as usize);
    for page in pages {
        let count = left.min(PAGE_BYTES - skip);
        if count == 0 {
            return;
        }
        visit(&page[skip..skip + count]);
        (left, skip) = (left - count, 0);
    }
}

/// As [`for_each_piece`], for pages that are being filled.
pub fn for_each_piece_mut(pages: &mut [PageMut], skip_bytes: u32, data_bytes: u32, mut visit: impl FnMut(&mut [u8])) {
    let (mut skip, mut left) = (skip_bytes as usize, data_bytes as usize);
    for page in pages {
        let count = left.min(PAGE_BYTES - skip);
        if count == 0 {
            return;
        }
        visit(&mut page[skip..skip + count]);
        (left, skip) = (left - count, 0);
    }
}
