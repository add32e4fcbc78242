//! What packed records bring into the log, and where it went.

use alloc::vec::Vec;
use page::{Page, PagePool, PageVec};
use types::BLOCK_BYTES;

/// The payload of a packed record on its way into the log.
#[derive(Default)]
pub struct PackedPayload {
    /// Stored bytes, checksum first; none for a page, and where there is no payload.
    pub bytes: Vec<u8>,
    /// The block as clients see it, for whoever reads it before it is on the SSD, and to be stored if that is how. `None` if only its stored
    /// bytes are at hand.
    pub page: Option<Page>,
}

/// Where an appended packed record went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PackedAppended {
    /// The physical segment.
    pub physical: u32,
    /// Which packed record of that segment it is.
    pub ordinal: u32,
    /// The group to wait for.
    pub group: u64,
}

/// Where the payload of a packed record lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placed {
    /// The physical segment.
    pub physical: u32,
    /// Which packed record of that segment.
    pub ordinal: u32,
    /// In 16-byte units from the start of the segment.
    pub place: u32,
}

/// Stored bytes as pages, the last one filled up with zeroes; `None` if there are no pages.
pub(super) fn pages_of(bytes: &[u8], pool: &PagePool) -> Option<PageVec> {
    let page_of = |chunk: &[u8]| {
        let mut page = pool.allocate()?;
        page[..chunk.len()].copy_from_slice(chunk);
        page[chunk.len()..].fill(0);
        Some(page.freeze())
    };
    bytes.chunks(BLOCK_BYTES as usize).map(page_of).collect()
}
