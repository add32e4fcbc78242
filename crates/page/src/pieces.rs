//! Data of a client that begins and ends anywhere within pages, piece by piece.

use crate::{PAGE_BYTES, Page, PageMut};

/// Calls `visit` with address and length of each run of bytes that lie side by side, out of the
/// pieces that [`for_each_piece`] gives.
pub fn for_each_run(pages: &[Page], skip_bytes: u32, data_bytes: u32, mut visit: impl FnMut(*const u8, usize)) {
    let mut run: Option<(*const u8, usize)> = None;
    for_each_piece(pages, skip_bytes, data_bytes, |piece| match &mut run {
        Some((start, length)) if start.wrapping_add(*length) == piece.as_ptr() => *length += piece.len(),
        _ => {
            if let Some((start, length)) = run.replace((piece.as_ptr(), piece.len())) {
                visit(start, length);
            }
        }
    });
    if let Some((start, length)) = run {
        visit(start, length);
    }
}

/// As [`for_each_run`], for pages that are being filled.
pub fn for_each_run_mut(pages: &mut [PageMut], skip_bytes: u32, data_bytes: u32, mut visit: impl FnMut(*mut u8, usize)) {
    let mut run: Option<(*mut u8, usize)> = None;
    for_each_piece_mut(pages, skip_bytes, data_bytes, |piece| match &mut run {
        Some((start, length)) if start.wrapping_add(*length) == piece.as_mut_ptr() => *length += piece.len(),
        _ => {
            if let Some((start, length)) = run.replace((piece.as_mut_ptr(), piece.len())) {
                visit(start, length);
            }
        }
    });
    if let Some((start, length)) = run {
        visit(start, length);
    }
}

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
