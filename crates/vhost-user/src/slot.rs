//! A chain between the two rings, and how its data gets from the guest's memory into pages, and back.

use crate::block::Range;
use crate::chain::{Pieces, for_each_part};
use crate::memory::GuestMemory;
use crate::ring::Ring;
use page::{PAGE_BYTES, PageMutVec, PageVec};
use smallvec::SmallVec;
use types::{BLOCK_BYTES, SECTOR_BYTES};

/// A chain between the two rings.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    pub(crate) taken: bool,
    pub(crate) work: Work,
    pub(crate) data: Pieces,
    pub(crate) data_bytes: u32,
    pub(crate) status_at: u64,
    /// Parts that the volume has not answered.
    pub(crate) parts_open: u32,
    pub(crate) parts_submitted: u32,
    pub(crate) parts: u32,
    pub(crate) status: u8,
}

impl Slot {
    /// It is answered. A long list is given back: each queue has a thousand slots.
    pub(crate) fn forget_data(&mut self) {
        self.data = Pieces::new();
    }
}

/// What a chain asks of the volume.
#[derive(Debug, Default)]
pub(crate) enum Work {
    #[default]
    Flush,
    Read(u64),
    Write(u64),
    Discard(SmallVec<[Range; 1]>),
    WriteZeroes(SmallVec<[Range; 1]>),
}

/// The part of a request that begins `offset` bytes into its data.
pub(crate) fn part_of(start_sector: u64, offset: u32, bytes: u32) -> Range {
    Range { start_sector: start_sector + u64::from(offset) / SECTOR_BYTES, sectors: bytes / SECTOR_BYTES as u32 }
}

/// Where in its first page a range begins.
pub(crate) fn skip_bytes(range: &Range) -> usize {
    (range.start_sector * SECTOR_BYTES % BLOCK_BYTES) as usize
}

/// Copies `bytes` bytes from `offset` on into the pages, from `skip` on; `false`: not all were there.
pub(crate) fn copy_in(memory: &GuestMemory, data: &Pieces, pages: &mut PageMutVec, skip: usize, offset: u32, bytes: u32) -> bool {
    let (mut position, mut whole) = (skip, true);
    for_each_part(data, offset, bytes, |guest, count| {
        for_each_page(&mut position, count, |done, page, within, piece| {
            whole &= memory.read(guest + done as u64, &mut pages[page][within..within + piece]).is_ok();
        });
    });
    whole
}

/// Copies `bytes` bytes of the pages, from `skip` on, to where the driver wants them; `false`: it has no room any more.
pub(crate) fn copy_out(ring: &Ring, data: &Pieces, pages: &PageVec, skip: usize, offset: u32, bytes: u32) -> bool {
    let (mut position, mut whole) = (skip, true);
    for_each_part(data, offset, bytes, |guest, count| {
        for_each_page(&mut position, count, |done, page, within, piece| {
            whole &= ring.write(guest + done as u64, &pages[page][within..within + piece]).is_ok();
        });
    });
    whole
}

/// Goes over the next `bytes` bytes of pages. `visit` gets how many are done, the page, where in it, and how many.
fn for_each_page(position: &mut usize, bytes: usize, mut visit: impl FnMut(usize, usize, usize, usize)) {
    let mut done = 0;
    while done < bytes {
        let (page, within) = (*position / PAGE_BYTES, *position % PAGE_BYTES);
        let piece = (PAGE_BYTES - within).min(bytes - done);
        visit(done, page, within, piece);
        (done, *position) = (done + piece, *position + piece);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::Piece;

    /// A guest may use long lists in all slots of all queues, one after another.
    #[test]
    fn a_slot_that_is_answered_keeps_no_list() {
        let data = (0..1000).map(|index| Piece { guest: index, bytes: 1 }).collect();
        let mut slot = Slot { data, ..Slot::default() };
        assert!(slot.data.spilled());
        slot.forget_data();
        assert!(!slot.data.spilled() && slot.data.is_empty());
    }
}
