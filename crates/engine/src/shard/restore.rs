//! The blocks of a shard as a checkpoint or recovery gives them, gathered before there is a shard.

use crate::destage::dirty::DirtySet;
use crate::index::{Index, Slot, SlotMeta};
use crate::key::{Key, Map};
use alloc::vec::Vec;
use types::VolumeIndex;

/// Blocks put into the index together: enough for their cache misses to overlap, few enough to stay in the nearest cache.
const BATCH_BLOCKS: usize = 64;

/// A block that was found on the SSD.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecoveredBlock {
    /// Which volume's.
    pub volume: VolumeIndex,
    /// Which block.
    pub block: u64,
    /// Where its payload lies.
    pub slot: Slot,
    /// Newer than the backing device.
    pub dirty: bool,
    /// Valid sectors.
    pub mask: u8,
    /// Of the payload.
    pub checksum: u32,
}

/// See the module.
pub struct Restored {
    pub(super) index: Index,
    pub(super) partial: Map<Key, u8>,
    pub(super) dirty: DirtySet,
    /// Blocks by volume.
    pub(super) blocks: Map<u16, u64>,
    waiting: Vec<RecoveredBlock>,
}

impl Restored {
    /// Nothing, for a log with that many slots.
    pub fn new(slots: u32) -> Restored {
        Restored {
            index: Index::new(slots),
            partial: Map::default(),
            dirty: DirtySet::default(),
            blocks: Map::default(),
            waiting: Vec::with_capacity(BATCH_BLOCKS),
        }
    }

    /// Adds a block. If one comes more than once, the newest is last.
    pub fn add(&mut self, block: RecoveredBlock) {
        self.waiting.push(block);
        if self.waiting.len() == BATCH_BLOCKS {
            self.settle();
        }
    }

    /// Puts what waits into the index.
    pub(super) fn settle(&mut self) {
        for block in &self.waiting {
            self.index.approach(Key::new(block.volume, block.block));
        }
        for block in core::mem::take(&mut self.waiting).drain(..) {
            self.put(block);
        }
        self.waiting.reserve(BATCH_BLOCKS);
    }

    fn put(&mut self, block: RecoveredBlock) {
        let key = Key::new(block.volume, block.block);
        let meta = SlotMeta { dirty: block.dirty, partial: block.mask != u8::MAX, frequency: 0, checksum: block.checksum };
        if self.index.insert(key, block.slot, meta).is_none() {
            *self.blocks.entry(block.volume.0).or_default() += 1;
        }
        if !self.partial.is_empty() {
            self.partial.remove(&key);
        }
        if meta.partial {
            self.partial.insert(key, block.mask);
        }
        if block.dirty { self.dirty.insert(key, 0) } else { self.dirty.remove(key) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_of_a_block_counts_whether_or_not_it_is_in_the_same_batch() {
        for between in [0, 1, BATCH_BLOCKS as u32, 1000] {
            let mut restored = Restored::new(4000);
            let block = |block: u64, slot: u32, dirty: bool, mask: u8| RecoveredBlock {
                volume: VolumeIndex(2),
                block,
                slot: Slot(slot),
                dirty,
                mask,
                checksum: slot,
            };
            restored.add(block(7, 0, true, 3));
            (1..=between).for_each(|slot| restored.add(block(1000 + u64::from(slot), slot, false, u8::MAX)));
            restored.add(block(7, 2000, false, u8::MAX));
            restored.settle();
            restored.index.check_invariants();
            assert_eq!(restored.index.get(Key::new(VolumeIndex(2), 7)), Some(Slot(2000)));
            assert_eq!((restored.dirty.blocks(), restored.partial.len()), (0, 0));
            assert_eq!(restored.blocks[&2], u64::from(between) + 1);
        }
    }
}
