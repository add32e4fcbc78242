//! What is on its way home, and what waits for that: what other rooms ask of destage.

use super::Unreadable;
use super::dirty::DirtySet;
use super::pace::{Pace, Pressure};
use crate::index::Slot;
use crate::key::{ExtentKey, Key, Map, Set};
use crate::locks::OpId;
use crate::shard::proof::Proof;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::ops::Range;
use page::Page;
use types::VolumeIndex;

/// In the place of a slot: the version that is going home has been overwritten. No store has this many pages.
const OVERTAKEN: Slot = Slot(u32::MAX);

/// Neighbouring dirty blocks on their way home.
pub(super) struct Run {
    pub(super) first: Key,
    pub(super) slots: Vec<Slot>,
    /// Valid sectors: all of them, except for a run of one partial block.
    pub(super) mask: u8,
    pub(super) pages: Vec<Option<Page>>,
    pub(super) proofs: Vec<Proof>,
    pub(super) reading: u32,
    pub(super) failed: bool,
    /// The group that must be durable before the backing device is written: otherwise a power cut could leave there what the store has
    /// forgotten again, behind the back of an older clean record of the block.
    pub(super) group: u64,
    /// When it was written, as the count of writes of its backing device; before: `None`.
    pub(super) written: Option<u64>,
}

/// What destage keeps about a volume.
#[derive(Default)]
pub(super) struct Sweep {
    /// Where the sweep goes on.
    pub(super) next: Option<ExtentKey>,
    /// How often it has come to the end of the volume.
    pub(super) passes: u64,
    /// The last run was another try of a block that could not be read.
    pub(super) retried: bool,
    /// Extents of the sweep through what is old, in the order in which they are next.
    pub(super) aged: VecDeque<ExtentKey>,
    /// Bring everything home.
    pub(super) all: bool,
    pub(super) pace: Pace,
    pub(super) pressure: Pressure,
    pub(super) runs: u32,
    /// Blocks written and not flushed.
    pub(super) unflushed: usize,
    pub(super) retry_at_ns: u64,
    /// Dirty data passed the high mark: destage until the low mark.
    pub(super) pressed: bool,
    /// The last look found nothing to start; time alone changes that only at this moment. A completion or a request looks anew.
    pub(super) nothing_until_ns: u64,
}

/// See the module.
#[derive(Default)]
pub struct Destager {
    pub(super) runs: Map<u32, Run>,
    pub(super) next_run: u32,
    /// Every block in a run, with the slot that is being brought home; only while its write can be on its way.
    pub(super) on_the_way: Map<Key, Slot>,
    /// Blocks written and waiting for the flush, with the slot that was brought home.
    pub(super) written: Map<Key, Slot>,
    pub(super) sweeps: Map<u16, Sweep>,
    /// Extents that may have a dirty block which nothing holds back: all others need not be looked at.
    pub(super) candidates: BTreeSet<ExtentKey>,
    pub(super) demanded: Set<Key>,
    pub(super) waiters: Map<Key, Vec<OpId>>,
    pub(super) unreadable: Unreadable,
    /// Runs in memory that wait for their records to be durable.
    pub(super) waiting_durable: Vec<u32>,
    pub(super) pages: usize,
    /// The host has little time for what can wait.
    pub(super) host_is_busy: bool,
}

impl Destager {
    /// Whether the host has little time beside what clients ask for.
    pub fn set_host_busy(&mut self, is_busy: bool) {
        self.host_is_busy = is_busy;
        // What was found with the other answer says nothing.
        for sweep in self.sweeps.values_mut() {
            sweep.nothing_until_ns = 0;
        }
    }

    /// Nothing is under way yet.
    pub fn of(dirty: &DirtySet) -> Destager {
        Destager { candidates: dirty.extents().collect(), ..Destager::default() }
    }

    /// Dirty blocks of the volume that could not be read from the SSD, and that nobody has written anew since.
    pub fn unreadable_blocks(&self, index: VolumeIndex) -> u64 {
        self.unreadable.of_volume(index)
    }

    /// Whether a destage write of the block may be on its way to the backing device.
    pub fn is_on_its_way(&self, key: Key) -> bool {
        self.on_the_way.contains_key(&key)
    }

    /// A block of the range whose destage write may be on its way to the backing device.
    pub fn on_the_way_in(&self, range: &Range<Key>) -> Option<Key> {
        self.on_the_way.keys().find(|key| range.contains(key)).copied()
    }

    /// The request is to be woken when the block's destage has ended, well or not.
    pub fn wait(&mut self, key: Key, id: OpId) {
        self.waiters.entry(key).or_default().push(id);
    }

    /// A request cannot go on before this dirty block is at home.
    pub fn demand(&mut self, key: Key) {
        self.demanded.insert(key);
    }

    /// Whether requests wait for blocks to come home.
    pub fn is_wanted(&self) -> bool {
        !self.demanded.is_empty()
    }

    /// Brings everything of the volume home, or stops doing so.
    pub fn bring_all(&mut self, index: VolumeIndex, all: bool) {
        self.sweeps.entry(index.0).or_default().all = all;
    }

    /// Full passes of the volume's sweep so far, and the number the next run will get.
    pub fn passes(&self, index: VolumeIndex) -> (u64, u32) {
        (self.sweeps.get(&index.0).map_or(0, |sweep| sweep.passes), self.next_run)
    }

    /// Whether all runs with numbers below `run` have ended.
    pub fn ended_before(&self, index: VolumeIndex, run: u32) -> bool {
        !self.runs.iter().any(|(id, other)| *id < run && other.first.volume() == index)
    }

    /// The volume's backing device was let go: nothing is on its way to it. What is dirty, and what the store is still to be told, stays.
    pub fn rests(&mut self, index: VolumeIndex) {
        assert!(!self.is_busy(index), "destage of volume {} is under way", index.0);
        self.sweeps.remove(&index.0);
        self.demanded.retain(|key| key.volume() != index);
    }

    /// Whether runs of the volume are under way or wait for their flush.
    pub fn is_busy(&self, index: VolumeIndex) -> bool {
        self.sweeps.get(&index.0).is_some_and(|sweep| sweep.runs > 0 || sweep.unflushed > 0)
    }

    /// A client has written the block anew, or writes over it at home: what is on its way home is no longer current, even if the store brings
    /// the new version to the very slot number of the old one before the old one's flush is done.
    pub fn overtaken(&mut self, key: Key) {
        for places in [&mut self.on_the_way, &mut self.written] {
            if let Some(slot) = places.get_mut(&key) {
                *slot = OVERTAKEN;
            }
        }
    }

    /// The same for all blocks of a range of which no destage write is on its way.
    pub fn overtaken_in(&mut self, range: &Range<Key>) {
        self.written.iter_mut().filter(|(key, _)| range.contains(key)).for_each(|(_, slot)| *slot = OVERTAKEN);
    }

    /// What held the block back has ended.
    pub fn may_look_at(&mut self, key: Key) {
        self.candidates.insert(key.extent());
    }

    /// The same of all that is dirty.
    pub fn may_look_at_all(&mut self, dirty: &DirtySet) {
        self.candidates = dirty.extents().collect();
    }

    /// Whether it is a dirty block that cannot be read from the SSD.
    pub fn is_unreadable(&self, key: Key) -> bool {
        self.unreadable.contains(key)
    }

    /// The block has new content, or none: what could not be read does not matter any more.
    pub fn replaced(&mut self, key: Key) {
        if self.unreadable.remove(key) {
            self.may_look_at(key);
        }
    }
}
