//! The RAM tier's pages. Order and verdicts are the policy's; here is only what is held.
//!
//! Invariant: a page held here equals the block's current content (its record in the store if it has one, else the backing
//! device), so that dropping any page at any time loses nothing. Only whole blocks are held.

use crate::key::{Key, Map};
use crate::policy::RamSlot;
use page::Page;

/// A block in RAM.
pub struct RamBlock {
    /// Its content.
    pub page: Page,
    /// Its place in the policy's order.
    pub slot: RamSlot,
}

/// Blocks in RAM by key.
#[derive(Default)]
pub struct Ram {
    blocks: Map<Key, RamBlock>,
}

impl Ram {
    /// The block, if it is here.
    #[inline]
    pub fn get(&self, key: Key) -> Option<&RamBlock> {
        self.blocks.get(&key)
    }

    /// New content for a block that is here. False if it is not.
    pub fn replace(&mut self, key: Key, page: &Page) -> bool {
        let Some(block) = self.blocks.get_mut(&key) else { return false };
        block.page = page.clone();
        true
    }

    /// The policy moved a block that is here to another place in its order.
    pub fn set_slot(&mut self, key: Key, slot: RamSlot) {
        self.blocks.get_mut(&key).expect("the block is here").slot = slot;
    }

    /// Puts a block in that is not here.
    pub fn insert(&mut self, key: Key, block: RamBlock) {
        let old = self.blocks.insert(key, block);
        assert!(old.is_none(), "a block is put into RAM once");
    }

    /// Takes a block out.
    pub fn remove(&mut self, key: Key) -> Option<RamBlock> {
        self.blocks.remove(&key)
    }

    /// Blocks held.
    pub fn len(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// Whether no block is held.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// All keys, in no particular but a repeatable order.
    pub fn keys(&self) -> impl Iterator<Item = Key> + '_ {
        self.blocks.keys().copied()
    }
}
