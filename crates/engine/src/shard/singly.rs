//! A read of several blocks that fails is repeated block by block, so that each is judged by its own page alone: one bad page of the SSD harms no other.
//!
//! [`super::parts`] does the same for packed blocks, [`super::evict`] and [`super::scrub`] for theirs.

use super::read::SsdPart;
use super::{Context, Shard};
use crate::api::IoKind;
use crate::store::RegionId;
use page::PageMutVec;
use smallvec::SmallVec;
use types::BLOCK_BYTES;

/// A part of a destage run that is read from the SSD.
#[derive(Clone, Copy)]
pub struct DestagePart {
    /// The run.
    pub run: u32,
    /// The region that is read.
    pub region: RegionId,
    /// The first of the blocks read, counted in the run.
    pub first: usize,
    /// Where on the SSD.
    pub offset_bytes: u64,
}

impl Shard {
    /// The blocks of a request's part, one by one.
    #[inline(never)]
    pub(super) fn read_part_singly(&mut self, part: &SsdPart, pages: PageMutVec) {
        self.ops.get_mut(part.op).pending += pages.len() as u32;
        for (ahead, page) in pages.into_iter().enumerate() {
            let offset_bytes = part.offset_bytes + ahead as u64 * BLOCK_BYTES;
            let proofs = SmallVec::from_buf([part.proofs[ahead]]);
            let one = SsdPart { op: part.op, first: part.first + ahead, overlay: part.overlay, region: part.region, offset_bytes, proofs };
            self.store.readers().begin(part.region);
            let span = self.store.ssds().read_span(offset_bytes, 1, false);
            self.out.io(span, IoKind::Read(PageMutVec::from_buf([page])), Context::ReadSsd(one));
        }
    }

    /// The blocks of a run's part, one by one; gives their count.
    #[inline(never)]
    pub(super) fn read_destage_singly(&mut self, part: DestagePart, pages: PageMutVec) -> u32 {
        let count = pages.len() as u32;
        for (ahead, page) in pages.into_iter().enumerate() {
            let offset_bytes = part.offset_bytes + ahead as u64 * BLOCK_BYTES;
            self.store.readers().begin(part.region);
            let span = self.store.ssds().read_span(offset_bytes, 1, true);
            let context = Context::DestageRead(DestagePart { first: part.first + ahead, offset_bytes, ..part });
            self.out.io(span, IoKind::Read(PageMutVec::from_buf([page])), context);
        }
        count
    }
}
