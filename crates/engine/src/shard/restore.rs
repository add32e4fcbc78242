//! The blocks of a shard as a checkpoint or recovery gives them, gathered before there is a shard.

use super::Proof;
use super::destage::dirty::DirtySet;
use crate::index::{Index, NoMemory, Slot, SlotMeta, Stored};
use crate::key::{Key, Map};
use crate::presence::Gathering;
use crate::store::slots::recovery::Expected;
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
    /// How a packed record is stored; `None` of a plain one.
    pub stored: Option<Stored>,
}

impl RecoveredBlock {
    /// How its content is known.
    pub fn proof(&self) -> Proof {
        Proof::new(self.checksum, self.stored.as_ref())
    }
}

/// What waits for its batch.
#[derive(Clone, Copy)]
enum Found {
    Block(RecoveredBlock),
    /// An object without a block.
    Base {
        slot: Slot,
        checksum: u32,
        stored: Stored,
    },
}

/// See the module.
pub struct Restored {
    pub(super) index: Index,
    pub(super) partial: Map<Key, u8>,
    pub(super) dirty: DirtySet,
    /// Blocks by volume.
    pub(super) blocks: Map<u16, u64>,
    pub(super) presence: Gathering,
    waiting: Vec<Found>,
    /// Packed records came: their references must be counted.
    packed: bool,
    /// The number of the next object.
    pub(super) next_object: u64,
}

impl Restored {
    /// Nothing, for a store with that many plain slots, in regions of that many pages.
    ///
    /// # Panics
    /// If there is no memory for its index.
    pub fn new(slots: u32, region_pages: u32) -> Restored {
        Restored::with_index(Index::new(slots, region_pages))
    }

    /// The same.
    ///
    /// # Errors
    /// [`NoMemory`] if there is none for its index.
    pub fn try_new(slots: u32, region_pages: u32) -> Result<Restored, NoMemory> {
        Index::try_new(slots, region_pages).map(Restored::with_index)
    }

    /// The same in an index that is empty.
    pub fn with_index(index: Index) -> Restored {
        assert_eq!(index.live_blocks(), 0, "nothing was restored yet");
        Restored {
            index,
            partial: Map::default(),
            dirty: DirtySet::default(),
            blocks: Map::default(),
            presence: Gathering::default(),
            waiting: Vec::with_capacity(BATCH_BLOCKS),
            packed: false,
            next_object: 1,
        }
    }

    /// No record of the store names an object of this number or above.
    pub fn objects_end_before(&mut self, next_object: u64) {
        self.next_object = next_object;
    }

    /// So much will be added, and some of it is packed. It costs memory, or time, if it is wrong.
    pub fn expect(&mut self, expected: Expected) {
        let Expected { blocks, objects } = expected;
        self.index.expect_packed(blocks, objects);
    }

    /// Adds a block. If one comes more than once, the newest is last.
    pub fn add(&mut self, block: RecoveredBlock) {
        self.wait(Found::Block(block));
    }

    /// Adds an object without a block, on which others may rest. If an object comes more than once, with or without a block, the newest
    /// is last.
    pub fn add_base(&mut self, slot: Slot, checksum: u32, stored: Stored) {
        self.wait(Found::Base { slot, checksum, stored });
    }

    fn wait(&mut self, found: Found) {
        self.waiting.push(found);
        if self.waiting.len() == BATCH_BLOCKS {
            self.settle();
        }
    }

    /// Puts what waits into the index.
    pub(super) fn settle(&mut self) {
        for found in &self.waiting {
            if let Found::Block(block) = found {
                let key = Key::new(block.volume, block.block);
                self.index.approach(key);
                self.presence.approach(key);
            }
        }
        for found in core::mem::take(&mut self.waiting).drain(..) {
            match found {
                Found::Block(block) => self.put(block),
                Found::Base { slot, checksum, stored } => {
                    let meta = SlotMeta { dirty: false, partial: false, frequency: 0, checksum };
                    self.index.restore_packed(slot, None, meta, stored);
                    self.packed = true;
                }
            }
        }
        self.waiting.reserve(BATCH_BLOCKS);
    }

    /// Ends the gathering: all is in the index, and who rests on what is counted.
    pub(super) fn finish(&mut self) {
        self.settle();
        if core::mem::take(&mut self.packed) {
            self.index.recount_references();
            // The store has not heard of them.
            self.index.take_ended();
        }
    }

    fn put(&mut self, block: RecoveredBlock) {
        let key = Key::new(block.volume, block.block);
        let meta = SlotMeta { dirty: block.dirty, partial: block.mask != u8::MAX, frequency: 0, checksum: block.checksum };
        let old = match block.stored {
            None => self.index.insert(key, block.slot, meta),
            Some(stored) => {
                self.packed = true;
                self.index.restore_packed(block.slot, Some(key), meta, stored)
            }
        };
        if old.is_none() {
            *self.blocks.entry(block.volume.0).or_default() += 1;
            self.presence.add(key);
        }
        if !self.partial.is_empty() {
            self.partial.remove(&key);
        }
        if meta.partial {
            self.partial.insert(key, block.mask);
        }
        if block.dirty { self.dirty.insert(key, DirtySet::RECOVERED_NS) } else { self.dirty.remove(key) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::BYTES_PER_NUMBER;
    use crate::index::{Encoding, References};

    #[test]
    fn the_newest_of_a_block_counts_whether_or_not_it_is_in_the_same_batch() {
        for between in [0, 1, BATCH_BLOCKS as u32, 1000] {
            let mut restored = Restored::new(4000, 16);
            let block = |block: u64, slot: u32, dirty: bool, mask: u8| RecoveredBlock {
                volume: VolumeIndex(2),
                block,
                slot: Slot(slot),
                dirty,
                mask,
                checksum: slot,
                stored: None,
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

    #[test]
    fn packed_records_find_what_they_rest_on_whichever_comes_first() {
        let mut restored = Restored::new(4000, 16);
        let stored = |encoding, object| Stored { encoding, place: 300, bytes: 100, object };
        let packed = |number| Index::slot_at(48, number * BYTES_PER_NUMBER);
        let mut add = |block: u64, slot: Slot, dirty: bool, stored: Option<Stored>| {
            restored.add(RecoveredBlock { volume: VolumeIndex(2), block, slot, dirty, mask: u8::MAX, checksum: 9, stored });
        };
        add(1, packed(5), true, Some(stored(Encoding::Diff, 70)));
        add(2, packed(2), true, Some(stored(Encoding::Zstd, 71)));
        add(3, packed(7), false, Some(stored(Encoding::Duplicate, 71)));
        add(4, packed(8), false, Some(stored(Encoding::Lz4, 72)));
        add(5, Slot(52), false, None);
        // Newer ones: a plain block over an object that another rests on, and over one nobody rests on.
        add(2, Slot(53), false, None);
        add(4, Slot(54), false, None);
        let base = Index::slot_at(144, 0);
        restored.add_base(base, 1, stored(Encoding::Raw, 70));
        restored.finish();
        let index = &restored.index;
        index.check_invariants();
        assert_eq!((index.object(70), index.object(71), index.object(72)), (Some(base), Some(packed(2)), None));
        assert!(index.is_orphan(base) && index.is_orphan(packed(2)));
        assert_eq!(index.references(base), References { all: 1, dirty: 1 });
        assert_eq!(index.references(packed(2)), References { all: 1, dirty: 0 });
        assert_eq!(index.get(Key::new(VolumeIndex(2), 2)), Some(Slot(53)));
        assert_eq!((restored.dirty.blocks(), restored.blocks[&2]), (1, 5));
    }
}
