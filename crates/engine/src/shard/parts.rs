//! Stored bytes of packed blocks, from the SSD: what is asked for between two drainings and lies side by side is one read.
//!
//! What was written together is packed together and mostly read together: the blocks of a database's page lie in one to three pages, and so do
//! their bases. A read that fails is repeated part by part, so that each block is judged by its own pages alone.

use super::fetch::FetchPart;
use super::{Context, Shard};
use crate::api::IoKind;
use crate::store::RegionId;
use alloc::boxed::Box;
use alloc::vec::Vec;
use page::{PageMut, PageMutVec};
use smallvec::SmallVec;

/// Most pages of one read: as many as a destage run or a request of 256 KiB has blocks.
const READ_PAGES_MAX: u32 = 64;

/// One part of a fetch: the pages that hold it.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Number of the fetch.
    pub fetch: u32,
    /// Which part of it.
    pub part: FetchPart,
    /// Nobody waits for it.
    pub background: bool,
    /// Their region.
    pub region: RegionId,
    /// Of the SSD's pages.
    pub first_page: u32,
    /// Where that page lies on the SSD, in bytes.
    pub offset_bytes: u64,
    /// How many, at least one.
    pub pages: u32,
}

impl Part {
    fn end(&self) -> u32 {
        self.first_page + self.pages
    }
}

/// Parts whose reads have not begun, and pages for them: as many as all have together, so always enough.
#[derive(Default)]
pub struct Awaited {
    parts: Vec<Part>,
    buffers: Vec<PageMut>,
}

impl Awaited {
    /// Asks for a part, with pages for it.
    pub fn ask(&mut self, part: Part, pages: impl Iterator<Item = PageMut>) {
        self.parts.push(part);
        self.buffers.extend(pages);
    }

    /// Whether all reads have begun.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }
}

/// A read of parts that lie side by side, in order of their first pages.
pub struct PartsRead {
    pub(super) parts: SmallVec<[Part; 1]>,
    /// After a failure of several: the parts to be read after this one, and pages that are not needed for it.
    pub(super) singly: Option<Box<Singly>>,
}

/// Parts of a read that failed, still to be read one after the other.
pub(super) struct Singly {
    pub(super) parts: Vec<Part>,
    pub(super) spare: Vec<PageMut>,
}

impl Shard {
    /// Begins the reads of all parts that were asked for.
    #[inline(never)]
    pub(super) fn read_awaited(&mut self) {
        let mut awaited = core::mem::take(&mut self.awaited);
        awaited.parts.sort_by_key(|part| (part.background, part.region, part.first_page));
        let mut rest = awaited.parts.as_slice();
        while let Some(first) = rest.first() {
            let mut end = first.end();
            let joins = |part: &&Part, end: u32| {
                let same = (part.background, part.region) == (first.background, first.region);
                same && part.first_page <= end && part.end() - first.first_page <= READ_PAGES_MAX
            };
            let mut count = 1;
            while let Some(part) = rest.get(count).filter(|part| joins(part, end)) {
                end = end.max(part.end());
                count += 1;
            }
            let (parts, others) = rest.split_at(count);
            rest = others;
            let pages = awaited.buffers.drain(awaited.buffers.len() - (end - first.first_page) as usize..).collect();
            self.read_parts(PartsRead { parts: parts.into(), singly: None }, pages);
        }
        // The lists are used again; pages that overlapping parts have in common go back.
        awaited.parts.clear();
        awaited.buffers.clear();
        self.awaited = awaited;
    }

    fn read_parts(&mut self, read: PartsRead, pages: PageMutVec) {
        let Part { background, offset_bytes, .. } = read.parts[0];
        let span = self.store.ssds().read_span(offset_bytes, pages.len(), background);
        self.out.io(span, IoKind::Read(pages), Context::Fetch(read));
    }

    /// One after the other, since their pages overlap: there may be too few for all at once.
    pub(super) fn read_next_singly(&mut self, mut singly: Box<Singly>) {
        let Some(part) = singly.parts.pop() else { return };
        let pages = singly.spare.drain(singly.spare.len() - part.pages as usize..).collect();
        self.read_parts(PartsRead { parts: SmallVec::from_buf([part]), singly: Some(singly) }, pages);
    }
}
