//! The whole state, recounted. Run by the simulator after every step and by tests; too slow for production.

use super::Shard;
use crate::index::Slot;
use crate::key::{Key, Map};

impl Shard {
    /// Checks the invariants written at the head of this module and of the rooms it uses.
    ///
    /// # Panics
    /// If one does not hold: our reasoning was wrong.
    pub fn check_invariants(&self) {
        self.index.check_invariants();
        let mut cached: Map<u16, u64> = Map::default();
        let mut dirty = 0;
        for slot in (0..self.index.slots()).map(Slot) {
            let Some(key) = self.index.key_of(slot) else { continue };
            let meta = self.index.meta(slot);
            *cached.entry(key.volume().0).or_default() += 1;
            dirty += u64::from(meta.dirty);
            assert_eq!(meta.dirty, self.dirty.contains(key), "dirty set and index disagree about {key:?}");
            assert_eq!(meta.partial, self.partial.contains_key(&key), "masks and index disagree about {key:?}");
            let seq = self.log.seq_of(slot);
            let space = self.log.space();
            assert!((space.tail_durable()..=space.head_seq()).contains(&seq), "{key:?} lies in dead segment {seq}");
        }
        assert_eq!(dirty, self.dirty.blocks());
        assert!(self.partial.keys().all(|key| self.index.get(*key).is_some()), "a mask without a block");
        for (index, ..) in self.attached() {
            let volume = self.volume(index).expect("attached");
            assert_eq!(volume.cached_blocks, cached.get(&index.0).copied().unwrap_or(0), "cached blocks of {index:?}");
            let ram = self.ram.keys().filter(|key| key.volume() == index).count() as u64;
            assert_eq!(volume.ram_blocks, ram, "blocks in RAM of {index:?}");
        }
        assert_eq!(self.policy.ram_len(), self.ram.len(), "policy and RAM hold the same blocks");
        assert!(self.ram.keys().all(|key| !self.partial.contains_key(&key)), "RAM holds whole blocks only");
        for op in self.ops.iter().filter(|op| op.blocks > 0) {
            assert!(op.blocks as usize <= 256 && op.key(op.blocks as usize - 1) >= Key(op.first.0));
        }
    }
}
