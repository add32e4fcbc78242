//! Writes past a lost SSD, where the volume is to go on ([`OnSsdLoss::Continue`]).
//!
//! 1. Before the first, the host has recorded that clean blocks on the SSD are void.
//! 2. The backing device is written; durably, if dirty blocks are written over.
//! 3. The host records that what the SSD holds of these blocks is void ([`Event::PastSsd`]). Until that is durable a start finds the old dirty
//!    version, and the write, which is not acknowledged yet, is lost as a whole.
//! 4. The dirty versions are forgotten, and the write is acknowledged.
//!
//! Where nothing is dirty in an extent it is recorded as a whole, once. What the store calls dirty there has come home and equals what the
//! backing device had before step 2.
//!
//! A flush covers blocks too that were acknowledged in the store and not durable there. They go home, and are recorded alike.
//!
//! At a start that finds the SSD, what was recorded becomes void ([`Command::VoidPast`]), durably, before the volume is attached.
//!
//! [`Command::VoidPast`]: crate::api::Command::VoidPast

use super::{Shard, range};
use crate::api::Event;
use crate::key::{ExtentKey, Key, Map};
use crate::locks::OpId;
use crate::mutants;
use crate::presence::Found;
use crate::store::{Purpose, Urgency};
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::ops::Range;
use types::{EXTENT_BLOCKS, VolumeIndex};

/// Blocks looked at in one turn, so that clients of other volumes do not wait.
const BLOCKS_A_TURN: u32 = if cfg!(feature = "mutants") { 64 } else { 4096 };

/// Tokens of different shards differ: the shard's number is in the top bits.
const SHARD_SHIFT: u32 = 48;

/// See the module.
#[derive(Default)]
pub struct Past {
    /// Blocks of which it is recorded that the SSD holds nothing, by extent.
    recorded: Map<ExtentKey, [u64; EXTENT_BLOCKS as usize / 64]>,
    /// What the host is asked to record, and for which request.
    asked: Map<u64, (OpId, Range<Key>)>,
    next_token: u64,
    /// Blocks whose newest record, or its voiding, was acknowledged and is not durable in the store.
    unstored: BTreeSet<Key>,
}

impl Past {
    /// The store has failed: what of it is acknowledged and not durable.
    pub(super) fn note_unstored(&mut self, keys: BTreeSet<Key>) {
        self.unstored = keys;
    }

    fn covers(&self, keys: &Range<Key>) -> bool {
        (keys.start.0..keys.end.0).map(Key).all(|key| {
            let at = (key.0 % EXTENT_BLOCKS) as usize;
            self.recorded.get(&key.extent()).is_some_and(|blocks| blocks[at / 64] >> (at % 64) & 1 == 1)
        })
    }

    fn add(&mut self, keys: &Range<Key>) {
        if keys.end.0 - keys.start.0 <= EXTENT_BLOCKS {
            for key in (keys.start.0..keys.end.0).map(Key) {
                let at = (key.0 % EXTENT_BLOCKS) as usize;
                self.recorded.entry(key.extent()).or_default()[at / 64] |= 1 << (at % 64);
            }
        }
        let stored: Vec<Key> = self.unstored.range(keys.clone()).copied().collect();
        for key in stored {
            self.unstored.remove(&key);
        }
    }
}

impl Shard {
    /// Asks the host to record that the SSD holds nothing of these blocks; the request is woken when it has.
    fn ask_to_record(&mut self, id: OpId, keys: Range<Key>) {
        let past = &mut self.loss.past;
        past.next_token += 1;
        let token = u64::from(self.config.place.shard.0) << SHARD_SHIFT | past.next_token;
        let (volume, first) = (keys.start.volume(), keys.start.block());
        let blocks = first..first + (keys.end.0 - keys.start.0);
        past.asked.insert(token, (id, keys));
        self.out.event(Event::PastSsd { token, volume, blocks });
        if mutants::active(mutants::PAST_WRITE_UNRECORDED) {
            self.past_is_recorded(token);
        }
    }

    /// The host has recorded it.
    pub(super) fn past_is_recorded(&mut self, token: u64) {
        if let Some((id, keys)) = self.loss.past.asked.remove(&token) {
            self.loss.past.add(&keys);
            self.ranges.is_recorded(id);
            self.ready.push_back(id);
        }
    }

    /// Whether it is recorded that a request has written these blocks past the SSD. If not, that is asked for, and the request waits.
    pub(super) fn is_recorded(&mut self, id: OpId, keys: Range<Key>) -> bool {
        if self.loss.past.covers(&keys) {
            return true;
        }
        let extent = keys.start.extent();
        let is_clean = self.dirty.next_extent(extent.volume(), extent).is_none_or(|(found, _)| found != extent);
        let whole = extent.key(0)..Key(extent.key(0).0 + EXTENT_BLOCKS);
        self.ask_to_record(id, if is_clean { whole } else { keys });
        false
    }

    /// The same of a range of extents.
    pub(super) fn record_range(&mut self, id: OpId, range: &Range<Key>) {
        self.ask_to_record(id, range.clone());
    }

    /// A flush of a volume that goes on: what its store did not make durable is to be at home, and recorded. `None`: it is. Otherwise how many
    /// answers the flush waits for; 0: until blocks have gone home.
    pub(super) fn record_unstored(&mut self, id: OpId, index: VolumeIndex) -> Option<u32> {
        let of_volume = self.loss.past.unstored.range(Key::new(index, 0)..).take_while(|key| key.volume() == index);
        let keys: Vec<Key> = of_volume.copied().collect();
        if keys.is_empty() {
            return None;
        }
        if keys.iter().any(|key| self.dirty.contains(*key)) {
            return Some(0);
        }
        let mut runs: Vec<Range<Key>> = Vec::new();
        for key in keys {
            match runs.last_mut().filter(|run| run.end == key) {
                Some(run) => run.end = Key(key.0 + 1),
                None => runs.push(key..Key(key.0 + 1)),
            }
        }
        let count = runs.len() as u32;
        runs.into_iter().for_each(|run| self.ask_to_record(id, run));
        Some(count)
    }

    /// Forgets a dirty block that was written over past the SSD.
    pub(super) fn forget_past(&mut self, key: Key) {
        assert!(self.loss.is_ssd_failed(), "the store would have to know");
        self.drop_from_ram(key);
        self.forget(key);
        self.is_dirty_no_more();
    }

    /// Makes blocks void that were written past the SSD, some each turn. True when none is left to look at.
    pub(super) fn void_past(&mut self, index: VolumeIndex, past: &mut VecDeque<Range<u64>>, group: &mut u64) -> bool {
        let mut steps = BLOCKS_A_TURN;
        while let Some(blocks) = past.front_mut() {
            if blocks.is_empty() {
                past.pop_front();
                continue;
            }
            if steps == 0 {
                return false;
            }
            steps -= 1;
            let key = Key::new(index, blocks.start);
            let end = ExtentKey(Key::new(index, blocks.end - 1).extent().0 + 1);
            if key.0.is_multiple_of(EXTENT_BLOCKS) {
                let next = match self.presence.next_extent(key.extent()..end, range::SLICE_STEPS) {
                    Found::Extent(extent) | Found::NoneBefore(extent) => extent.min(end),
                };
                if next > key.extent() {
                    blocks.start = if next == end { blocks.end } else { next.key(0).block() };
                    continue;
                }
            }
            if self.index.get(key).is_some() {
                if !self.store.has_room(Purpose::Clean) {
                    return false;
                }
                self.drop_from_ram(key);
                *group = self.store_void(key, Urgency::By(self.now_ns));
                self.unsettled.insert(key, *group);
            }
            blocks.start += 1;
        }
        true
    }
}
