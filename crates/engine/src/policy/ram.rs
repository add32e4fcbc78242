//! The order in which blocks leave RAM: a FIFO of slots.
//!
//! Invariant: every slot is either linked in the queue or in the list of free slots; `len` counts the former.

use alloc::vec::Vec;

use super::{Arrival, HEAT_MAX, RamSlot};

/// No slot.
const NONE: u32 = u32::MAX;

/// One block in RAM.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RamEntry {
    pub(crate) key: u64,
    /// Towards the newer neighbour; in a free slot the next free one.
    newer: u32,
    /// Towards the older neighbour.
    older: u32,
    /// Touches since it entered, at most [`HEAT_MAX`].
    pub(crate) touches: u8,
    /// See [`Arrival`].
    pub(crate) proven: bool,
    /// See [`Arrival`].
    pub(crate) copy: bool,
    /// Whether the slot is linked; guards against a caller's stale slot.
    used: bool,
}

/// The queue.
#[derive(Debug)]
pub(crate) struct RamQueues {
    slots: Vec<RamEntry>,
    free: u32,
    newest: u32,
    oldest: u32,
    len: u64,
}

impl RamQueues {
    /// An empty queue that will hold about `ram_blocks`.
    pub(crate) fn new(ram_blocks: u64) -> RamQueues {
        let mut queues = RamQueues { slots: Vec::new(), free: NONE, newest: NONE, oldest: NONE, len: 0 };
        queues.set_capacity(ram_blocks);
        queues
    }

    /// Makes room for `ram_blocks` in one piece, so that inserting does not allocate.
    pub(crate) fn set_capacity(&mut self, ram_blocks: u64) {
        let more = (ram_blocks as usize).saturating_sub(self.slots.len());
        self.slots.reserve_exact(more);
    }

    /// Links a block as the newest.
    pub(crate) fn insert(&mut self, key: u64, arrival: Arrival) -> RamSlot {
        let entry = RamEntry {
            key,
            newer: NONE,
            older: self.newest,
            touches: arrival.touches,
            proven: arrival.proven,
            copy: arrival.copy,
            used: true,
        };
        let index = if self.free == NONE {
            self.slots.push(entry);
            (self.slots.len() - 1) as u32
        } else {
            let index = self.free;
            self.free = self.slots[index as usize].newer;
            self.slots[index as usize] = entry;
            index
        };
        match self.newest {
            NONE => self.oldest = index,
            newest => self.slots[newest as usize].newer = index,
        }
        self.newest = index;
        self.len += 1;
        RamSlot(index)
    }

    /// The block was used again.
    pub(crate) fn touch(&mut self, slot: RamSlot, proven: bool) {
        let entry = self.entry(slot);
        entry.touches = (entry.touches + 1).min(HEAT_MAX);
        entry.proven |= proven;
    }

    /// Whether the newest version is on the SSD as well.
    pub(crate) fn set_copy(&mut self, slot: RamSlot, copy: bool) {
        self.entry(slot).copy = copy;
    }

    /// Unlinks the oldest block.
    pub(crate) fn pop(&mut self) -> Option<RamEntry> {
        (self.oldest != NONE).then(|| self.remove(RamSlot(self.oldest)))
    }

    /// Unlinks a block.
    pub(crate) fn remove(&mut self, slot: RamSlot) -> RamEntry {
        let entry = *self.entry(slot);
        match entry.newer {
            NONE => self.newest = entry.older,
            newer => self.slots[newer as usize].older = entry.older,
        }
        match entry.older {
            NONE => self.oldest = entry.newer,
            older => self.slots[older as usize].newer = entry.newer,
        }
        let place = &mut self.slots[slot.0 as usize];
        place.used = false;
        place.newer = self.free;
        self.free = slot.0;
        self.len -= 1;
        entry
    }

    /// Blocks linked.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Bytes on the heap.
    pub(crate) fn memory_bytes(&self) -> u64 {
        (self.slots.capacity() * size_of::<RamEntry>()) as u64
    }

    fn entry(&mut self, slot: RamSlot) -> &mut RamEntry {
        let entry = &mut self.slots[slot.0 as usize];
        assert!(entry.used, "RAM slot {} is not in use", slot.0);
        entry
    }
}
