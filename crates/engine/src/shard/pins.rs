//! What the policies of objects say to a shard: which way a write takes, what enters, and what stays.

use super::Shard;
use super::evict::stored_bytes;
use crate::api::COLD_BLOCKS_MAX;
use crate::front::shard_of;
use crate::index::Slot;
use crate::key::Key;
use crate::mutants;
use crate::policy::{Heat, PINNED_MAX_PERMILLE};
use crate::treatment::PolicyMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use types::{Admit, BLOCK_BYTES, EXTENT_BLOCKS, EXTENT_SECTORS, VolumeIndex};

/// Pinned bytes by the region that they were appended to. Those written over since still count until all of their region is judged, and of what an
/// earlier life left nothing is known until then.
#[derive(Default)]
pub struct Pins {
    /// By the region's place.
    bytes: Vec<u32>,
    total: u64,
}

impl Pins {
    fn add(&mut self, at: u32, bytes: u64) {
        let at = at as usize;
        if self.bytes.len() <= at {
            self.bytes.resize(at + 1, 0);
        }
        self.bytes[at] += bytes as u32;
        self.total += bytes;
    }

    /// A block leaves the region before all of it is judged.
    pub fn leave(&mut self, at: u32, bytes: u64) {
        if let Some(counted) = self.bytes.get_mut(at as usize) {
            let left = counted.saturating_sub(bytes as u32);
            self.total -= u64::from(*counted - left);
            *counted = left;
        }
    }

    /// All of the region is judged: what stays pinned is counted anew.
    pub fn take_back(&mut self, at: u32) {
        if let Some(bytes) = self.bytes.get_mut(at as usize) {
            self.total -= u64::from(core::mem::take(bytes));
        }
    }
}

impl Shard {
    /// A volume's policies change. A map that was made for another volume says nothing of this one.
    pub(super) fn set_policies(&mut self, index: VolumeIndex, map: Option<Arc<PolicyMap>>) {
        if let Some(volume) = self.volumes.get_mut(index) {
            let id = volume.id;
            volume.policies = map.filter(|map| map.volume() == id);
        }
    }

    /// A clean block has been appended to the store: counted if it is pinned.
    pub(super) fn note_pinned(&mut self, key: Key) {
        if let Some(slot) = self.index.get(key).filter(|_| self.volumes.is_pinned(key)) {
            let at = self.place_of(slot).at;
            self.evictor.pins.add(at, stored_bytes(&self.index, slot));
        }
    }

    /// Whether a pinned block may be kept: while there is room for pins, and in the part of a region that clean blocks may have at all, so that
    /// eviction always gains room. Of a region that is pinned throughout a quarter is let go for that, and comes back with its next use.
    fn may_keep_pinned(&mut self, bytes: u64) -> bool {
        let capacity = self.store.capacity();
        let most = capacity.regions * u64::from(capacity.region_pages) * BLOCK_BYTES * PINNED_MAX_PERMILLE / 1000;
        self.evictor.pins.total < most && self.evictor.may_keep_clean(bytes)
    }

    /// What is to become of a clean block that the hand has come to, if its object has a policy that says so: kept with this heat, or forgotten.
    pub(super) fn verdict_by_policy(&mut self, key: Key, slot: Slot, heat: Heat) -> Option<Option<Heat>> {
        match self.volumes.treatment_of(key).admit() {
            Admit::Never => Some(None),
            Admit::Pinned if mutants::active(mutants::PINS_TAKE_ALL) => Some(Some(heat)),
            Admit::Pinned if self.may_keep_pinned(stored_bytes(&self.index, slot)) => Some(Some(self.policy.on_stays(heat))),
            Admit::Pinned | Admit::Normal => None,
        }
    }

    /// These blocks will not be used again soon: RAM gives up its clean copies, and no proof of use is remembered. What is dirty stays, and so
    /// does what the SSD holds, which eviction will forget.
    pub(super) fn cool(&mut self, index: VolumeIndex, blocks: Range<u64>) {
        let Some(volume) = self.volumes.get(index) else { return };
        let (id, end) = (volume.id, volume.size_bytes.div_ceil(BLOCK_BYTES));
        let (shard, shards) = (self.config.place.shard, self.config.place.layout.shards);
        let end = blocks.end.min(end).min(blocks.start.saturating_add(COLD_BLOCKS_MAX));
        let mut block = blocks.start;
        while block < end {
            let extent = block / EXTENT_BLOCKS;
            let extent_end = end.min((extent + 1) * EXTENT_BLOCKS);
            if shard_of(id, extent * EXTENT_SECTORS, shards) == shard {
                (block..extent_end).for_each(|block| self.cool_block(Key::new(index, block)));
            }
            block = extent_end;
        }
    }

    fn cool_block(&mut self, key: Key) {
        if self.dirty.contains(key) {
            if mutants::active(mutants::COLD_DROPS_DIRTY) {
                self.drop_from_ram(key);
                self.forget(key);
            }
            return;
        }
        self.drop_from_ram(key);
        self.policy.forget(key.0);
        if let Some(slot) = self.index.get(key) {
            self.index.set_frequency(slot, Heat::default().bits());
        }
    }

    /// For [`Shard::check_invariants`]: policies are those of the volumes they are used for, and pins are counted.
    ///
    /// # Panics
    /// If they are not.
    pub(super) fn check_policies(&self) {
        for index in self.volumes.attached() {
            let volume = self.volumes.get(*index).expect("attached");
            assert!(
                volume.policies.as_deref().is_none_or(|map| map.volume() == volume.id),
                "policies of another volume are used for {index:?}"
            );
        }
        assert_eq!(self.evictor.pins.total, self.evictor.pins.bytes.iter().copied().map(u64::from).sum(), "pinned bytes");
    }
}
