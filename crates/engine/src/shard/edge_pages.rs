//! The latest blocks that writes covered in part, as they were completed.
//!
//! File systems write their logs in pieces that end within a block (XFS: 1.5 KiB), each awaited: the next begins in the block where the last one
//! ended. Its record stands alone, so what the block holds already is needed again; without this, that is a read of the SSD for every commit.
//!
//! These are copies: one that is not what the index says is in the slot is not used.

use super::Shard;
use crate::index::Slot;
use crate::key::Key;
use alloc::collections::VecDeque;
use page::Page;

/// So many are kept: of some logs, each with the block where a piece ends.
const EDGES_MAX: usize = 8;

/// See the module.
#[derive(Default)]
pub struct EdgePages(VecDeque<(Key, Slot, Page)>);

impl EdgePages {
    /// A block has been completed, and is in this slot now.
    pub fn keep(&mut self, key: Key, slot: Slot, page: Page) {
        self.0.retain(|(other, ..)| *other != key);
        if self.0.len() == EDGES_MAX {
            self.0.pop_front();
        }
        self.0.push_back((key, slot, page));
    }

    /// Pages are wanted elsewhere.
    pub fn give_back(&mut self) {
        self.0.clear();
    }
}

impl Shard {
    /// The content of a block in this slot, if it is one of the latest.
    pub(super) fn edge_page(&self, key: Key, slot: Slot) -> Option<Page> {
        let (_, _, page) = self.edge_pages.0.iter().find(|(of, at, _)| (*of, *at) == (key, slot))?;
        // The store may have brought another version of the block to the very slot.
        let volume = self.volumes.get(key.volume())?.id;
        self.proof_of(slot).holds(volume, key.block(), page).then(|| page.clone())
    }
}
