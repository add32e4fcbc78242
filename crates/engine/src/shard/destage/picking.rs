//! Which blocks go home next: the next run of neighbours in a sweep over the addresses, of all dirty blocks or of the old ones.

use super::RUN_BLOCKS_MAX;
use crate::key::{ExtentKey, Key};
use crate::mutants;
use crate::shard::Shard;
use alloc::vec::Vec;
use types::VolumeIndex;

/// When a block reaches the write-cache depth, a sweep takes along what is older than one in this many of it: more blocks in one sweep over the
/// addresses means shorter ways between them.
const AGED_ALONG_ONE_IN: u64 = 2;
/// Extents of such a sweep at most.
const AGED_EXTENTS_MAX: usize = 4096;
/// An extent whose old blocks are all on their way is looked at again after this long.
const HELD_PAUSE_NS: u64 = 100_000_000;

impl Shard {
    /// The next run at or after the sweep's place, around the end once.
    #[inline(never)]
    pub(super) fn next_run_of_sweep(&mut self, index: VolumeIndex) -> Option<(Key, usize)> {
        let start = self.destager.sweeps.entry(index.0).or_default().next.unwrap_or(ExtentKey::first_of(index));
        for (mut from, until) in [(start, None), (ExtentKey::first_of(index), Some(start))] {
            while let Some(extent) = self.destager.candidates.range(from..).next().copied().filter(|extent| extent.volume() == index) {
                if until.is_some_and(|until| extent >= until) {
                    break;
                }
                if let Some(run) = self.run_in(extent) {
                    self.destager.sweeps.entry(index.0).or_default().next = Some(extent);
                    return Some(run);
                }
                if !mutants::active(mutants::UNREADABLE_WITH_NEIGHBOURS) {
                    self.destager.candidates.remove(&extent);
                }
                from = ExtentKey(extent.0 + 1);
            }
            self.destager.sweeps.entry(index.0).or_default().passes += 1;
        }
        None
    }

    /// The next run of the sweep through what is old. One begins when the oldest block has reached the write-cache depth.
    #[inline(never)]
    pub(super) fn next_aged_run(&mut self, index: VolumeIndex, depth_ns: u64) -> Option<(Key, usize)> {
        loop {
            let sweep = self.destager.sweeps.entry(index.0).or_default();
            let Some(extent) = sweep.aged.front().copied() else {
                self.begin_aged_sweep(index, depth_ns)?;
                continue;
            };
            if let Some(run) = self.run_in(extent) {
                self.destager.sweeps.entry(index.0).or_default().next = Some(extent);
                return Some(run);
            }
            // All its blocks are on their way: what remains is younger. Younger than any that counts as old now, or this would not end; and
            // by a pause, or a device that hangs would be asked about at every moment.
            self.dirty.set_age(extent, self.now_ns + HELD_PAUSE_NS);
            self.destager.sweeps.entry(index.0).or_default().aged.pop_front();
        }
    }

    /// Lists the extents that are old, in address order from the sweep's place on. `None` if none has reached the depth.
    fn begin_aged_sweep(&mut self, index: VolumeIndex, depth_ns: u64) -> Option<()> {
        let (oldest_ns, _) = self.dirty.oldest(index)?;
        if oldest_ns > self.now_ns.saturating_sub(depth_ns) {
            return None;
        }
        let along_ns = self.now_ns.saturating_sub(depth_ns / AGED_ALONG_ONE_IN);
        let mut aged: Vec<ExtentKey> = self.dirty.older_than(index, along_ns).take(AGED_EXTENTS_MAX).collect();
        aged.sort_unstable();
        let sweep = self.destager.sweeps.entry(index.0).or_default();
        let place = aged.partition_point(|extent| sweep.next.is_some_and(|next| *extent < next));
        aged.rotate_left(place);
        sweep.aged = aged.into();
        Some(())
    }

    /// The first run of dirty blocks in the extent that nothing holds back.
    pub(super) fn run_in(&self, extent: ExtentKey) -> Option<(Key, usize)> {
        let (_, dirty) = self.dirty.next_extent(extent.volume(), extent).filter(|(found, _)| *found == extent)?;
        let free = |index: usize| {
            // First the bit: most blocks are not dirty, and all that follows looks into tables.
            if !dirty.contains(index) {
                return false;
            }
            let key = extent.key(index);
            let held = !mutants::active(mutants::TWO_VERSIONS_DESTAGED) && self.destager.is_on_its_way(key)
                || self.destager.written.contains_key(&key)
                || self.is_shielded(key);
            !held && !self.is_left_to_retries(key)
        };
        let first = (0..RUN_BLOCKS_MAX).find(|index| free(*index))?;
        let is_partial = |index: usize| self.partial.contains_key(&extent.key(index));
        if is_partial(first) {
            return Some((extent.key(first), 1));
        }
        let count = (first..RUN_BLOCKS_MAX).take_while(|index| free(*index) && !is_partial(*index)).count();
        Some((extent.key(first), count))
    }

    /// Every dirty block that nothing holds back is in an extent that a sweep will look at: else it would never go home.
    pub(in crate::shard) fn check_candidates(&self) {
        let destager = &self.destager;
        for key in self.dirty.iter().filter(|key| !destager.candidates.contains(&key.extent())) {
            assert!(self.is_held_back(key) || destager.unreadable.contains(key), "no sweep looks at dirty {key:?}");
        }
    }
}
