//! A group that statements are still added to, one that waits to be handed out, and one that is being written.

use super::bins::Bin;
use crate::api::WriteKind;
use crate::index::Slot;
use crate::store::Urgency;
use alloc::vec::Vec;
use format::slots::{STATEMENT_BYTES_MAX, Statement};
use page::{Page, PageVec};

/// Pages of one write: longer runs are written in parts.
const RUN_PAGES_MAX: usize = 256;

/// A group in the making.
pub struct Building {
    /// Its number.
    pub group: u64,
    /// What it says, in order, as it will stand in its page.
    said: Vec<u8>,
    /// Slots, and what is to be in them.
    pub payloads: Vec<(u32, Page, WriteKind)>,
    /// Packed payloads, in slots of their own.
    pub bins: Vec<Bin>,
    /// Its packed records.
    pub packed: Vec<Slot>,
    /// The tail that it names: as it was when the group was closed.
    pub tail: u64,
    /// The earliest time anyone wants it out.
    pub deadline_ns: u64,
    /// A client waits for completion.
    pub commit: bool,
    /// A client waits for completion, and for no longer than another group is under way.
    pub share: bool,
    /// Somebody waits for durability.
    pub durable: bool,
}

impl Building {
    /// An empty group.
    pub fn new(group: u64) -> Building {
        let (said, payloads) = (Vec::with_capacity(STATEMENT_BYTES_MAX), Vec::new());
        let (bins, packed) = (Vec::new(), Vec::new());
        Building { group, said, payloads, bins, packed, tail: 0, deadline_ns: u64::MAX, commit: false, share: false, durable: false }
    }

    /// Bytes that are left for statements.
    pub fn room(&self) -> usize {
        STATEMENT_BYTES_MAX - self.said.len()
    }

    /// Adds a statement, for which there is room.
    #[inline]
    pub fn say(&mut self, statement: &Statement) {
        statement.append_to(&mut self.said);
    }

    /// All that it says.
    pub fn said(&self) -> &[u8] {
        &self.said
    }

    /// Somebody wants the group out that soon.
    pub fn want(&mut self, urgency: Urgency) {
        match urgency {
            Urgency::Commit => self.commit = true,
            Urgency::Share => self.share = true,
            Urgency::Durable => self.durable = true,
            Urgency::By(time_ns) => self.deadline_ns = self.deadline_ns.min(time_ns),
        }
    }

    /// Its payloads as runs of neighbouring slots: the first slot of each, and the pages. With `apart`, a run is of one kind; else of what its
    /// first page is.
    pub fn runs(&mut self, region_slots: u32, apart: bool) -> Vec<(u32, PageVec, WriteKind)> {
        self.payloads.sort_unstable_by_key(|(slot, ..)| *slot);
        let mut runs: Vec<(u32, PageVec, WriteKind)> = Vec::new();
        // Slots of one region lie side by side on the SSD.
        let goes_on = |first: u32, pages: &PageVec, slot: u32| {
            first + pages.len() as u32 == slot && first / region_slots == slot / region_slots && pages.len() < RUN_PAGES_MAX
        };
        for (slot, page, writes) in self.payloads.drain(..) {
            match runs.last_mut() {
                Some((first, pages, before)) if (!apart || *before == writes) && goes_on(*first, pages, slot) => pages.push(page),
                _ => runs.push((slot, PageVec::from_iter([page]), writes)),
            }
        }
        runs
    }
}

/// A group being written.
pub struct Writing {
    /// Its number.
    pub group: u64,
    /// The tail that it names.
    pub tail: u64,
    /// Writes that are not done.
    pub left: usize,
    /// Slots whose content is served from memory until it is complete.
    pub slots: Vec<u32>,
    /// The same of packed ones.
    pub packed: Vec<Slot>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use page::PagePool;

    #[test]
    fn neighbours_are_written_at_once_unless_kinds_are_kept_apart() {
        let pool = PagePool::new(8);
        let runs = |apart| {
            let mut building = Building::new(1);
            for (slot, writes) in [(9, WriteKind::Fills), (3, WriteKind::Clients), (4, WriteKind::Fills), (5, WriteKind::Fills)] {
                building.payloads.push((slot, pool.allocate().expect("a page").freeze(), writes));
            }
            let runs = building.runs(16, apart).into_iter();
            runs.map(|(first, pages, writes)| (first, pages.len(), writes)).collect::<Vec<_>>()
        };
        assert_eq!(runs(false), [(3, 3, WriteKind::Clients), (9, 1, WriteKind::Fills)]);
        assert_eq!(runs(true), [(3, 1, WriteKind::Clients), (4, 2, WriteKind::Fills), (9, 1, WriteKind::Fills)]);
    }
}
