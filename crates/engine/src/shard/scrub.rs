//! What lies in a region compared with its checksums, for a check of the pool while it serves.
//!
//! One region a command, so that whoever asks sees how far it is, and can stop and go on. Every cached block whose newest version lies there is read
//! from the SSD, whatever RAM has of it; neither RAM nor heat changes. One small read is on its way at a time, and after each the shard leaves
//! the SSD alone for three times as long as the read took: clients lose at most a quarter of one queue place. A bad block is treated as if a client
//! had met it: a clean one is made void, a dirty one is told and kept.
//!
//! What moves meanwhile needs no look: eviction has read and compared what it appended again, and what is new is in memory until it is written.

use super::fetch::{Unfetched, Wanted};
use super::proof::Proof;
use super::{Context, Shard};
use crate::api::{CommandFailure, IoError, IoKind};
use crate::index::Slot;
use crate::key::Key;
use crate::store::{Place, RegionId, Safety};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use page::PageMutVec;
use types::VolumeIndex;

/// Pages read at once: few enough that a client's read behind it hardly notices.
const READ_PAGES_MAX: u32 = 32;
/// Packed blocks fetched at once; each is a read or two of a few kilobytes.
const FETCHES_MAX: u32 = 8;
/// The shard rests so many times as long as a read took.
const REST_TIMES: u64 = 3;
/// And at least so long: blocks that need no read (zeroes) take no time by the clock.
const REST_NS_MIN: u64 = 50_000;
/// Without pages to read into it tries again after so long.
const NO_PAGES_NS: u64 = 1_000_000;
/// Addresses of bad dirty blocks that are remembered; further ones are only counted.
pub const SCRUB_BAD_MAX: usize = 16;

/// What a look through one region has found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Scrubbed {
    /// Blocks that were compared.
    pub blocks: u64,
    /// Of them, clean ones that were bad; they are void now.
    pub clean_bad: u64,
    /// Of them, dirty ones that are bad: their newest content is lost unless it is in RAM.
    pub dirty_bad: u64,
    /// Volume and block number of the first [`SCRUB_BAD_MAX`] bad dirty ones.
    pub dirty_bad_at: Vec<(VolumeIndex, u64)>,
}

/// A block on its way from the SSD, and how it will be known.
#[derive(Clone, Copy)]
struct Looked {
    key: Key,
    slot: Slot,
    proof: Proof,
    page: u32,
    offset_bytes: u64,
}

/// A run of pages being read.
pub struct ScrubRead {
    region: RegionId,
    first_page: u32,
    looked: Vec<Looked>,
}

/// Where it stands.
#[derive(Default)]
pub struct Scrub {
    token: Option<u64>,
    /// The region that is looked through.
    region: Option<RegionId>,
    /// Blocks stored as pages, by page.
    pages: VecDeque<Slot>,
    packed: VecDeque<Slot>,
    /// A run could not be read: its blocks are read one by one, to know which it was.
    singly: u32,
    in_flight: u32,
    begun_ns: u64,
    rest_until_ns: u64,
    stopped: Option<CommandFailure>,
    found: Scrubbed,
}

impl Scrub {
    /// Whether a command waits for its end.
    #[inline]
    pub fn is_under_way(&self) -> bool {
        self.token.is_some()
    }

    /// Whether something is being read.
    pub fn is_reading(&self) -> bool {
        self.in_flight > 0
    }

    /// When it goes on after a rest.
    pub fn deadline(&self) -> Option<u64> {
        (self.token.is_some() && self.in_flight == 0).then_some(self.rest_until_ns)
    }

    /// Nothing more is begun; what is on its way ends.
    pub fn stop(&mut self, why: CommandFailure) {
        self.stopped = self.stopped.or(Some(why));
        self.pages.clear();
        self.packed.clear();
    }

    /// The same, if it is that command's.
    pub fn cancel(&mut self, token: u64) {
        if self.token == Some(token) {
            self.stop(CommandFailure::Cancelled);
        }
    }
}

impl Shard {
    /// What the last region's look has found so far.
    pub fn scrubbed(&self) -> &Scrubbed {
        &self.scrub.found
    }

    /// Begins with the region at this place. The answer may come at once.
    pub(super) fn begin_scrub(&mut self, token: u64, at: u32) -> Result<(), CommandFailure> {
        if self.quiescing {
            return Err(CommandFailure::Stopped);
        }
        if self.scrub.token.is_some() {
            return Err(CommandFailure::AnotherCheck);
        }
        if self.loss.is_ssd_failed() {
            return Err(CommandFailure::SsdFailed);
        }
        let rest_until_ns = self.scrub.rest_until_ns;
        self.scrub = Scrub { token: Some(token), rest_until_ns, ..Scrub::default() };
        let Some(region) = self.store.region(at) else { return Ok(()) };
        let cached = |slot: &Slot| self.index.key_of(*slot).is_some_and(|key| self.volumes.get(key.volume()).is_some());
        let (mut pages, packed): (Vec<Slot>, Vec<Slot>) = region.slots(&self.index).filter(cached).partition(|slot| self.is_page(*slot));
        pages.sort_by_key(|slot| self.place_of(*slot).page);
        (self.scrub.region, self.scrub.pages, self.scrub.packed) = (Some(region.id), pages.into(), packed.into());
        Ok(())
    }

    /// Goes on as far as it can now. Gives the token when all is done, and whether it was stopped.
    pub(super) fn scrub(&mut self) -> Option<(u64, Result<(), CommandFailure>)> {
        let token = self.scrub.token?;
        if self.scrub.in_flight > 0 {
            return None;
        }
        if self.scrub.pages.is_empty() && self.scrub.packed.is_empty() {
            self.scrub.token = None;
            return Some((token, self.scrub.stopped.map_or(Ok(()), Err)));
        }
        if self.loss.is_ssd_failed() {
            self.scrub.stop(CommandFailure::SsdFailed);
            return self.scrub();
        }
        if self.now_ns < self.scrub.rest_until_ns {
            return None;
        }
        self.scrub.begun_ns = self.now_ns;
        let begun = if self.scrub.pages.is_empty() { self.scrub_packed() } else { self.scrub_pages() };
        if !begun {
            // No pages to read into: later. A deadline that stayed in the past would wake the shard for nothing, without end.
            self.scrub.rest_until_ns = self.now_ns + NO_PAGES_NS;
        } else if self.scrub.in_flight == 0 {
            // All of them had moved on, or needed no read.
            return self.scrub();
        }
        None
    }

    /// The block in the slot, if it is there to be read: not of a volume that goes, nor on its way to the SSD (nor before it, without a place).
    fn scrubbable(&self, slot: Slot) -> Option<Looked> {
        let key = self.index.key_of(slot)?;
        let Place { page, offset_bytes, safety, .. } = self.place_of(slot);
        if self.volumes.get(key.volume()).is_none_or(|volume| volume.state.is_detaching()) {
            return None;
        }
        (safety >= Safety::Complete).then(|| Looked { key, slot, proof: self.proof_of(slot), page, offset_bytes })
    }

    /// Reads the next run of pages. False if there are no pages to read into.
    fn scrub_pages(&mut self) -> bool {
        let mut looked: Vec<Looked> = Vec::new();
        while let Some(slot) = self.scrub.pages.front().copied() {
            if let Some(next) = self.scrubbable(slot).filter(|_| self.is_page(slot)) {
                let far = looked.first().is_some_and(|first| next.page >= first.page + READ_PAGES_MAX);
                // A slot between may be free, and be written while it is read.
                let gap = looked.last().is_some_and(|last| next.page != last.page + 1);
                if far || gap || self.scrub.singly > 0 && !looked.is_empty() {
                    break;
                }
                looked.push(next);
            }
            self.scrub.pages.pop_front();
        }
        let (Some(first), Some(last)) = (looked.first(), looked.last()) else { return true };
        let (first_page, offset_bytes, count) = (first.page, first.offset_bytes, last.page + 1 - first.page);
        let Some(buffers) = self.allocate(count as usize) else {
            looked.iter().rev().for_each(|one| self.scrub.pages.push_front(one.slot));
            return false;
        };
        self.scrub.singly = self.scrub.singly.saturating_sub(1);
        let region = self.scrub.region.expect("a region is looked through");
        self.store.readers().begin(region);
        self.scrub.in_flight += 1;
        let span = self.store.ssds().read_span(offset_bytes, count as usize, true);
        let pages: PageMutVec = buffers.into_iter().collect();
        self.out.io(span, IoKind::Read(pages), Context::Scrub(ScrubRead { region, first_page, looked }));
        true
    }

    fn scrub_packed(&mut self) -> bool {
        while self.scrub.in_flight < FETCHES_MAX {
            let Some(slot) = self.scrub.packed.front().copied() else { break };
            if let Some(looked) = self.scrubbable(slot) {
                let Some(mut buffers) = self.allocate(self.fetch_pages_from_ssd(slot)) else { return self.scrub.in_flight > 0 };
                self.scrub.in_flight += 1;
                self.fetch(Wanted::Scrub(slot), looked.key, slot, true, &mut buffers);
            }
            self.scrub.packed.pop_front();
        }
        true
    }

    /// A run of pages has been read, or not.
    pub(super) fn scrub_read(&mut self, read: ScrubRead, result: Result<(), IoError>, pages: PageMutVec) {
        self.store.readers().end(read.region);
        if result.is_err() && read.looked.len() > 1 {
            // Which of them it was a check that was stopped does not ask any more, and believes it of none.
            if self.scrub.stopped.is_none() {
                self.scrub.singly += read.looked.len() as u32;
                read.looked.iter().rev().for_each(|one| self.scrub.pages.push_front(one.slot));
            }
            return self.scrub_rests();
        }
        for one in &read.looked {
            // What has gone meanwhile, or has been written anew, does not matter any more.
            if self.index.key_of(one.slot) != Some(one.key) || self.proof_of(one.slot) != one.proof {
                continue;
            }
            let id = self.volumes.of(one.key).id;
            let page = pages.get((one.page - read.first_page) as usize).filter(|_| result.is_ok());
            self.scrub.found.blocks += 1;
            if !page.is_some_and(|page| one.proof.holds(id, one.key.block(), page)) {
                let dirty = self.cached_copy_is_bad(one.key, result.is_err());
                self.scrub_found_bad(one.key, dirty);
            }
        }
        self.scrub_rests();
    }

    /// A packed block has been fetched, or not.
    pub(super) fn packed_scrubbed(&mut self, key: Key, slot: Slot, result: Result<page::Page, Unfetched>) {
        if self.index.key_of(slot) == Some(key) {
            self.scrub.found.blocks += 1;
            if let Err(why) = result {
                let dirty = self.packed_copy_is_bad(key, why);
                // A clean block whose base was given up is a miss, and nothing is wrong with the SSD.
                if dirty || why != Unfetched::Gone {
                    self.scrub_found_bad(key, dirty);
                }
            }
        }
        self.scrub_rests();
    }

    fn scrub_found_bad(&mut self, key: Key, dirty: bool) {
        if !dirty {
            self.scrub.found.clean_bad += 1;
            // What RAM has of it may go to the SSD again.
            if let Some(block) = self.ram.get(key) {
                self.policy.ram_set_copy(block.slot, self.index.get(key).is_some());
            }
            return;
        }
        self.scrub.found.dirty_bad += 1;
        if self.scrub.found.dirty_bad_at.len() < SCRUB_BAD_MAX {
            self.scrub.found.dirty_bad_at.push((key.volume(), key.block()));
        }
    }

    /// A read has ended; with the last of them the rest begins.
    fn scrub_rests(&mut self) {
        self.scrub.in_flight -= 1;
        if self.scrub.in_flight == 0 {
            let took_ns = self.now_ns.saturating_sub(self.scrub.begun_ns);
            self.scrub.rest_until_ns = self.now_ns + took_ns.saturating_mul(REST_TIMES).max(REST_NS_MIN);
        }
    }
}
