//! How much may be dirty, and what a write has to wait for.

use super::Shard;
use crate::key::Key;
use crate::locks::OpId;
use crate::mutants;
use crate::store::Purpose;
use types::{BLOCK_BYTES, BypassReason, VolumeIndex};

/// Large writes go around when dirty data is above this part of its limit, in thousandths: where destage begins to hurry, and well below where
/// writes are slowed down.
const CROWDED_PERMILLE: u128 = 700;

impl Shard {
    /// Until when the write waits because destage is not faster, if it does.
    pub(super) fn pace_until(&self, id: OpId) -> Option<u64> {
        let volume = self.ops.get(id).request.volume;
        let of_all = (self.dirty_pages(), self.dirty_pages_max());
        let until_ns = self.throttle.wait_until(self.now_ns, volume, self.dirty_and_limit(volume), of_all)?;
        (self.becomes_dirty(id) > 0).then_some(until_ns)
    }

    /// Blocks of the write that are not dirty, or may take more room in the store than they do.
    pub(super) fn becomes_dirty(&self, id: OpId) -> u64 {
        self.count_blocks(id, |key| self.takes_room(key))
    }

    pub(super) fn count_blocks(&self, id: OpId, counts: impl Fn(Key) -> bool) -> u64 {
        let op = self.ops.get(id);
        (0..op.blocks as usize).filter(|index| counts(op.key(*index))).count() as u64
    }

    /// Whether a write makes the block one more of those that are dirty. An unreadable block does not count until it is written anew.
    pub(super) fn adds_dirty(&self, key: Key) -> bool {
        !self.dirty.contains(key) || self.destager.is_unreadable(key)
    }

    /// Whether dirty blocks may take more of the store after a write of this one. A packed block may take a whole page
    /// when it is written anew.
    pub(super) fn takes_room(&self, key: Key) -> bool {
        self.adds_dirty(key)
            || (!mutants::active(mutants::PACKED_OVERWRITE_UNCOUNTED) && self.index.get(key).is_some_and(|slot| slot.is_packed()))
    }

    /// Dirty blocks of the volume in this shard, and how many there may be. What cannot be read never goes home: did it count, it could hold up the
    /// volume for ever.
    pub(super) fn dirty_and_limit(&self, index: VolumeIndex) -> (u64, u64) {
        let volume = self.volumes.get(index).expect("a request's volume is attached");
        let shards = u64::from(self.config.place.layout.shards);
        let limit = (volume.options.dirty_limit_bytes / BLOCK_BYTES / shards).max(1);
        (self.dirty.blocks_of(index).saturating_sub(self.destager.unreadable_blocks(index)), limit)
    }

    /// Whether dirty data of the volume, or of all, nears its limit: what is left of it is for small writes, which would wait at the limit.
    pub(super) fn is_crowded(&self, index: VolumeIndex) -> bool {
        let (of_volume, volume_max) = self.dirty_and_limit(index);
        let beyond = |have: u64, max: u64| u128::from(have) * 1000 > u128::from(max) * CROWDED_PERMILLE;
        beyond(of_volume, volume_max) || beyond(self.dirty_pages(), self.dirty_pages_max())
    }

    /// Whether dirty limits and the store have room for this write.
    pub(super) fn may_store(&self, id: OpId) -> bool {
        self.hindrance(id).is_none()
    }

    /// Whether the first write of the volume that waits does so for dirty blocks to go home.
    pub(super) fn waits_for_destage(&self, volume: VolumeIndex) -> bool {
        self.throttle.first_of(volume).is_some_and(|id| self.hindrance(id) == Some(BypassReason::DirtyLimit))
    }

    /// Why this write has to wait, if it has to.
    pub(super) fn hindrance(&self, id: OpId) -> Option<BypassReason> {
        let op = self.ops.get(id);
        // A limit smaller than one request still lets one through at a time.
        let (of_volume, volume_max) = self.dirty_and_limit(op.request.volume);
        let within = |have: u64, new: u64, max: u64| new == 0 || have == 0 || have + new <= max;
        let limits = within(of_volume, self.count_blocks(id, |key| self.adds_dirty(key)), volume_max)
            && within(self.dirty_pages(), self.becomes_dirty(id), self.dirty_pages_max());
        match limits || mutants::active(mutants::DIRTY_LIMIT_IGNORED) {
            false => Some(BypassReason::DirtyLimit),
            true => (!self.store.has_room(Purpose::Write { blocks: op.blocks })).then_some(BypassReason::NoSpace),
        }
    }

    /// Pages of the store that dirty blocks take, and what they rest on. What is packed takes as much as is stored of it: the limit is there so that the
    /// eviction gains room, and it forgets all the rest.
    pub fn dirty_pages(&self) -> u64 {
        let packed = self.index.dirty_load();
        self.dirty.blocks() - packed.blocks + packed.bytes.div_ceil(BLOCK_BYTES)
    }

    /// How many such pages there may be before writes wait. A write that begins below it ends above it at most by its own blocks, each with what it rests
    /// on; a recovery may find more.
    pub fn dirty_pages_max(&self) -> u64 {
        self.store.capacity().usable_pages * u64::from(self.config.dirty_max_permille) / 1000
    }

    /// Whether a request of that many blocks could ever find room.
    pub(super) fn fits_store(&self, blocks: u32) -> bool {
        self.store.has_room(Purpose::EverWrite { blocks }) && u64::from(blocks) <= self.dirty_pages_max().max(1)
    }
}
