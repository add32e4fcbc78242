//! Dirty blocks that the SSD could not give back. Each is tried again by itself after a rest, in turn
//! with the sweeps.
//!
//! Never together with others: a run of which one block cannot be read does not go home, and would be
//! picked again with that block where destage waits longer between two runs than the block rests.

use super::RETRY_AFTER_NS;
use crate::key::{Key, Map};
use crate::mutants;
use crate::shard::Shard;
use alloc::collections::BTreeSet;
use types::VolumeIndex;

/// See the module.
#[derive(Default)]
pub(super) struct Unreadable {
    /// When each block may be tried again.
    until_ns: Map<Key, u64>,
    /// The same for each volume, in the order of time.
    by_time: Map<u16, BTreeSet<(u64, Key)>>,
}

impl Unreadable {
    pub(super) fn contains(&self, key: Key) -> bool {
        self.until_ns.contains_key(&key)
    }

    pub(super) fn of_volume(&self, index: VolumeIndex) -> u64 {
        self.by_time.get(&index.0).map_or(0, |blocks| blocks.len() as u64)
    }

    pub(super) fn len(&self) -> usize {
        self.until_ns.len()
    }

    /// Not to be tried again before this moment.
    fn rests(&mut self, key: Key, until_ns: u64) {
        self.remove(key);
        self.until_ns.insert(key, until_ns);
        let is_new = self.by_time.entry(key.volume().0).or_default().insert((until_ns, key));
        assert!(is_new, "{key:?} rests once");
    }

    /// Whether it was one of them.
    pub(super) fn remove(&mut self, key: Key) -> bool {
        let Some(until_ns) = self.until_ns.remove(&key) else { return false };
        let of_volume = self.by_time.get_mut(&key.volume().0).expect("both tables know the block");
        assert!(of_volume.remove(&(until_ns, key)), "both tables know when {key:?} may be tried again");
        if of_volume.is_empty() {
            self.by_time.remove(&key.volume().0);
        }
        true
    }

    pub(super) fn forget(&mut self, index: VolumeIndex) {
        // A volume of which all blocks can be read is in neither table.
        if let Some(blocks) = self.by_time.remove(&index.0) {
            for (_, key) in blocks {
                self.until_ns.remove(&key);
            }
        }
    }

    /// When the next of the volume that rests now may be tried again.
    pub(super) fn next_ns(&self, index: VolumeIndex, now_ns: u64) -> Option<u64> {
        let later = (now_ns + 1, Key(0))..;
        self.by_time.get(&index.0)?.range(later).next().map(|(until_ns, _)| *until_ns)
    }

    /// Those of the volume whose rest is over.
    fn due(&self, index: VolumeIndex, now_ns: u64) -> impl Iterator<Item = Key> {
        let until_now = ..(now_ns + 1, Key(0));
        self.by_time.get(&index.0).into_iter().flat_map(move |blocks| blocks.range(until_now)).map(|(_, key)| *key)
    }
}

impl Shard {
    /// Dirty blocks of the volume that destage could not read from the SSD, and that nobody has written
    /// anew since.
    pub fn unreadable_blocks(&self, index: VolumeIndex) -> u64 {
        self.destager.unreadable_blocks(index)
    }

    /// A block of a run could not be read (`unreadable`), or is not what was written.
    pub(super) fn destage_cannot_read(&mut self, key: Key, unreadable: bool) {
        // Overwritten or made void meanwhile: then it no longer matters; a newer version is not worse for it.
        let current = self.index.get(key).is_some_and(|slot| self.destager.on_the_way.get(&key) == Some(&slot));
        if current && self.dirty.contains(key) {
            self.cached_copy_is_bad(key, unreadable);
            self.destager.unreadable.rests(key, self.now_ns + RETRY_AFTER_NS);
        }
    }

    /// The next run: by turns a block whose rest is over, and what the sweep finds, as long as there are
    /// both. With an age in ns, the sweep is that of blocks which are older.
    pub(super) fn next_run(&mut self, index: VolumeIndex, aged_ns: Option<u64>) -> Option<(Key, usize)> {
        let sweep = |shard: &mut Shard| match aged_ns {
            None => shard.next_run_of_sweep(index),
            Some(depth_ns) => shard.next_aged_run(index, depth_ns),
        };
        if self.destager.unreadable.len() == 0 || mutants::active(mutants::UNREADABLE_WITH_NEIGHBOURS) {
            return sweep(self);
        }
        let is_turn_of_sweep = self.destager.sweeps.get(&index.0).is_some_and(|sweep| sweep.retried);
        if is_turn_of_sweep && let Some(run) = sweep(self) {
            self.destager.sweeps.entry(index.0).or_default().retried = false;
            return Some(run);
        }
        let again = self.next_retry(index);
        self.destager.sweeps.entry(index.0).or_default().retried = again.is_some();
        if again.is_some() || is_turn_of_sweep { again } else { sweep(self) }
    }

    fn next_retry(&self, index: VolumeIndex) -> Option<(Key, usize)> {
        self.destager.unreadable.due(index, self.now_ns).find(|key| !self.is_held_back(*key)).map(|key| (key, 1))
    }

    /// Whether a sweep leaves the block alone because it could not be read.
    pub(super) fn is_left_to_retries(&self, key: Key) -> bool {
        match self.destager.unreadable.until_ns.get(&key) {
            None => false,
            Some(until_ns) => !mutants::active(mutants::UNREADABLE_WITH_NEIGHBOURS) || *until_ns > self.now_ns,
        }
    }
}
