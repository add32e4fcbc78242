//! What a shard knows of its slots, for a store that states it again.

use super::volumes::Volumes;
use crate::index::{BYTES_PER_NUMBER, Encoding, Index, Slot, Stored};
use crate::key::{Key, Map};
use crate::store::Facts;
use core::ops::Range;
use format::slots::Set;
use format::slots::statement::UNIT_BYTES;
use types::VolumeId;

/// See the module.
pub struct Known<'a> {
    /// Which block is where.
    pub index: &'a Index,
    /// Valid sectors of blocks that are not whole.
    pub partial: &'a Map<Key, u8>,
    /// Their numbers on the SSD.
    pub volumes: &'a Volumes,
}

impl Facts for Known<'_> {
    fn in_slot(&self, slot: Slot) -> Option<Set> {
        self.index.key_of(slot).map(|key| self.block(key, slot))
    }

    fn packed_count(&self, slots: Range<u32>) -> u64 {
        if self.index.is_wide() { self.index.packed_count(slots) } else { 0 }
    }

    fn packed_in(&self, slot: u32, from: Slot) -> Option<(Slot, Set)> {
        if !self.index.is_wide() {
            return None;
        }
        // What is lost and came home after all is a miss.
        let is_miss = |packed: &Slot| self.index.stored(*packed).encoding == Encoding::Lost && !self.index.meta(*packed).dirty;
        let packed = self.index.packed_from(from, slot + 1).find(|packed| !is_miss(packed))?;
        let stored = self.index.stored(packed);
        let unit = Index::number_in_page(packed) * (BYTES_PER_NUMBER / UNIT_BYTES as u32);
        let Stored { encoding, bytes, object, .. } = stored;
        let how = Some(format::slots::statement::Stored { encoding, object, bytes, unit: unit as u8 });
        let set = match self.index.key_of(packed) {
            Some(key) => self.block(key, packed),
            // An object without a block.
            None => Set { volume: VolumeId(0), block: 0, dirty: false, ..plain(self.index.meta(packed).checksum) },
        };
        Some((packed, Set { slot, lost: encoding == Encoding::Lost, stored: how, ..set }))
    }
}

impl<'a> Known<'a> {
    /// What is in these slots, in the order of slots and places.
    pub fn sweep(self, slots: Range<u32>) -> impl Iterator<Item = Set> + 'a {
        let mut slot = slots.start;
        // The first packed slot that was not looked at of one that holds such.
        let mut from = None;
        core::iter::from_fn(move || {
            while slot < slots.end {
                if from.is_none()
                    && let Some(set) = self.in_slot(Slot(slot))
                {
                    slot += 1;
                    return Some(set);
                }
                let packed = from.take().unwrap_or(Slot(Index::slot_at(slot, 0).0));
                if packed.0 < Index::slot_at(slot + 1, 0).0
                    && let Some((found, set)) = self.packed_in(slot, packed)
                {
                    from = Some(Slot(found.0 + 1));
                    return Some(set);
                }
                slot += 1;
            }
            None
        })
    }

    fn block(&self, key: Key, slot: Slot) -> Set {
        let meta = self.index.meta(slot);
        let volume = self.volumes.get(key.volume()).expect("a cached block's volume is known").id;
        let mask = if meta.partial { self.partial[&key] } else { u8::MAX };
        Set { volume, block: key.block(), mask, dirty: meta.dirty, slot: slot.0, ..plain(meta.checksum) }
    }
}

/// A whole block of no volume with that checksum.
fn plain(checksum: u32) -> Set {
    Set {
        volume: VolumeId(0),
        block: 0,
        mask: u8::MAX,
        dirty: false,
        settled: false,
        lost: false,
        vital: false,
        checksum,
        slot: 0,
        old: None,
        stored: None,
    }
}
