//! A region that is judged: what of it goes, what moves, and which of that has been read.
//!
//! In three steps, so that a crash at any point finds every block: (1) the shard says what goes, and what moves is appended again; (2) the store says durably
//! what goes; (3) only then do the entries of forgotten blocks leave the index and their slots become free. Until (3) they are served as before, and a
//! write over them makes them void by a record like any other.

use super::{Region, RegionId};
use crate::index::Slot;
use crate::outbox::Span;
use crate::policy::Heat;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use page::{PageMutVec, PagePool};

/// Something of the region that is to be kept.
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    /// Its slot.
    pub slot: Slot,
    /// Its heat from now on.
    pub heat: Heat,
    /// Pages of its region that its stored bytes touch; none if it has none.
    pub first_page: u32,
    /// How many.
    pub pages: u32,
    /// It is read by itself: a read of several has failed, and each is judged by its own pages.
    pub alone: bool,
}

/// A run of pages being read for appending again what is in them.
#[derive(Debug)]
pub struct Batch {
    /// Their region, which is read until [`Eviction::has_read`].
    pub region: RegionId,
    /// The first of them.
    pub first_page: u32,
    /// What is in them.
    pub keep: Vec<Kept>,
}

/// What the store has to know of the shard to take room back.
#[derive(Clone, Copy, Debug)]
pub struct EvictTurn {
    /// Blocks of the largest write that waits for room.
    pub wanted_blocks: Option<u32>,
    /// The part of the cache that is to give something up: 0 is the main one.
    pub part: u8,
}

/// The next step of taking room back.
#[derive(Debug)]
pub enum Evict {
    /// Nothing can be done now, or need be.
    Rest,
    /// The shard is to say what of the region stays: [`Eviction::keep`].
    Judge(Judge),
    /// Read these, and append them again. Without pages they have no payload: there is nothing to read.
    Read(Batch, Span, PageMutVec),
    /// There are no pages to read into.
    NoPages,
}

/// A region to be judged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Judge {
    /// Which.
    pub region: Region,
    /// Only what belongs to this part of the cache is judged; all else stays.
    pub part: Option<u8>,
    /// When so many bytes of clean blocks are kept, no more are: taking back must gain room.
    pub clean_bytes_max: u64,
    /// Packed records of a plain slot with fewer bytes of them alive are appended again.
    pub moves_below_bytes: u32,
}

impl Judge {
    /// All of its pinned blocks are come to, so that they are counted from none.
    pub fn counts_pins(&self) -> bool {
        self.part.is_none_or(|part| part == 0)
    }
}

/// See the module.
#[derive(Default, Debug)]
pub struct Eviction {
    region: Option<RegionId>,
    /// To be moved and not yet read.
    to_read: VecDeque<Kept>,
    reading: u32,
    stopped: bool,
    /// What does not stay.
    gone: Vec<Slot>,
}

impl Eviction {
    /// The region is judged: this is to be kept, in the order in which it is to be read.
    pub fn keep(&mut self, kept: impl IntoIterator<Item = Kept>) {
        self.to_read.extend(kept);
    }

    /// The region is judged: all but this stays where it is.
    pub fn let_go(&mut self, gone: Vec<Slot>) {
        self.gone = gone;
    }

    pub(super) fn take_gone(&mut self) -> Vec<Slot> {
        core::mem::take(&mut self.gone)
    }

    /// Only these are still to be read.
    pub(super) fn retain(&mut self, is_wanted: impl Fn(&Kept) -> bool) {
        self.to_read.retain(is_wanted);
    }

    /// A read of several failed: each is to be read alone, before all others.
    pub fn read_alone(&mut self, keep: Vec<Kept>) {
        let alone = keep.into_iter().rev().map(|kept| Kept { alone: true, ..kept });
        alone.for_each(|kept| self.to_read.push_front(kept));
    }

    /// A batch has been read. False if what is in it does not matter any more.
    pub fn has_read(&mut self) -> bool {
        assert!(self.reading > 0, "a batch was being read");
        self.reading -= 1;
        !self.stopped
    }

    /// The SSD is lost: there is nothing to take back.
    pub fn stop(&mut self) {
        self.stopped = true;
        self.give_up();
    }

    /// Whether nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.region.is_none() && self.reading == 0
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped
    }

    pub(super) fn region(&self) -> Option<RegionId> {
        self.region
    }

    pub(super) fn begin(&mut self, region: RegionId) {
        assert!(self.region.is_none() && self.to_read.is_empty(), "one region at a time");
        self.region = Some(region);
    }

    /// What was not moved yet stays where it is.
    pub(super) fn give_up(&mut self) {
        self.to_read.clear();
        self.gone.clear();
        self.region = None;
    }

    /// Everything is appended.
    pub(super) fn end(&mut self) {
        assert!(self.region.is_some() && self.is_read(), "all of a region was read");
        self.region = None;
    }

    /// Whether all that is to be kept has been read, and appended or dropped.
    pub(super) fn is_read(&self) -> bool {
        self.to_read.is_empty() && self.reading == 0
    }

    pub(super) fn waits(&self) -> bool {
        !self.to_read.is_empty()
    }

    pub(super) fn reading(&self) -> u32 {
        self.reading
    }

    /// The next batch of at most so many pages side by side, and pages to read it into. `None` if there are no pages, and then nothing changes.
    pub(super) fn next_batch(&mut self, pages_max: u32, pool: &PagePool) -> Option<(Batch, PageMutVec)> {
        let first = self.to_read.front().copied().expect("something is to be read");
        let first_page = first.first_page;
        let mut end_page = first_page;
        let mut keep = Vec::new();
        while let Some(next) = self.to_read.front()
            && (next.pages == 0 || next.first_page >= first_page && next.first_page + next.pages <= first_page + pages_max)
            && (first.pages > 0 || next.pages == 0)
            && (next.pages == 0 || keep.is_empty() || next.first_page <= end_page)
            && (keep.is_empty() || !first.alone && !next.alone)
        {
            end_page = end_page.max(next.first_page + next.pages);
            keep.extend(self.to_read.pop_front());
        }
        let pages: Option<PageMutVec> = (first_page..end_page).map(|_| pool.allocate()).collect();
        let Some(pages) = pages else {
            for kept in keep.into_iter().rev() {
                self.to_read.push_front(kept);
            }
            return None;
        };
        self.reading += 1;
        Some((Batch { region: self.region.expect("a region is taken back"), first_page, keep }, pages))
    }
}
