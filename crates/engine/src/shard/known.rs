//! What a shard knows of its slots, for a store that states it again.

use super::volumes::Volumes;
use crate::index::{Index, Slot};
use crate::key::{Key, Map};
use crate::store::Facts;
use format::slots::Set;

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
        let key = self.index.key_of(slot)?;
        let meta = self.index.meta(slot);
        let volume = self.volumes.get(key.volume()).expect("a cached block's volume is known").id;
        let mask = if meta.partial { self.partial[&key] } else { u8::MAX };
        Some(Set {
            volume,
            block: key.block(),
            mask,
            dirty: meta.dirty,
            settled: false,
            lost: false,
            vital: false,
            checksum: meta.checksum,
            slot: slot.0,
            old: None,
            stored: None,
        })
    }
}
