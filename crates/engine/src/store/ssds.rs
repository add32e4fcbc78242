//! Which SSD an I/O of the store is for. All I/Os of SSDs get their [`Span`] here, and nowhere else.

use crate::api::{IoKind, Target, WriteKind};
use crate::outbox::{Outbox, Span};
use page::PageVec;
use types::{BLOCK_BYTES, SsdIndex};

/// The SSD that the store lies on. Of copies on several SSDs, a page would have the same offset on each; these methods would choose the
/// one to read, and write and flush all.
pub struct Ssds;

impl Ssds {
    /// Where to read so many pages.
    #[inline]
    pub fn read_span(&self, offset_bytes: u64, pages: usize, background: bool) -> Span {
        self.span(offset_bytes, pages, background)
    }

    /// Hands out a write of pages, whose completion means `context`.
    pub(super) fn write<C>(&self, out: &mut Outbox<C>, offset_bytes: u64, pages: PageVec, background: bool, writes: WriteKind, context: C) {
        let span = self.span(offset_bytes, pages.len(), background);
        out.io_of(span, IoKind::Write { pages, fua: false }, writes, context);
    }

    /// Hands out a flush of all that was written, whose completion means `context`.
    pub(super) fn flush<C>(&self, out: &mut Outbox<C>, context: C) {
        out.io(self.span(0, 0, false), IoKind::Flush, context);
    }

    #[inline]
    fn span(&self, offset_bytes: u64, pages: usize, background: bool) -> Span {
        Span { target: Target::Ssd(SsdIndex::FIRST), offset_bytes, length_bytes: pages as u64 * BLOCK_BYTES, background }
    }
}
