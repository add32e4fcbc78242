//! The order in which blocks leave RAM: least recently used first.
//!
//! Beside the queue, a handful of blocks taken out to be overwritten are remembered until they come back.
//!
//! Invariant: every slot is either linked in the queue or in the list of free slots; `len` counts the former.

use alloc::vec::Vec;

use super::{Arrival, RamSlot};

/// No slot.
const NONE: u32 = u32::MAX;

/// Removed blocks remembered: more than a 1 MiB request, the largest part of one, has blocks.
const REMOVED: usize = 512;

/// One block in RAM.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RamEntry {
    pub(crate) key: u64,
    /// Towards the newer neighbour; in a free slot the next free one.
    newer: u32,
    /// Towards the older neighbour.
    older: u32,
    /// See [`Arrival`].
    pub(crate) frequency: u8,
    /// See [`Arrival`].
    pub(crate) proven: bool,
    /// See [`Arrival`].
    pub(crate) returned: bool,
    /// See [`Arrival`].
    pub(crate) copy: bool,
    /// Whether the slot is linked; guards against a caller's stale slot.
    used: bool,
}

/// The queue.
#[derive(Debug)]
pub(crate) struct RamQueue {
    slots: Vec<RamEntry>,
    free: u32,
    newest: u32,
    oldest: u32,
    len: u64,
    /// By the low bits of their key.
    removed: Vec<Option<RamEntry>>,
}

impl RamQueue {
    /// An empty queue that will hold about `ram_blocks`.
    pub(crate) fn new(ram_blocks: u64) -> RamQueue {
        let mut queue = RamQueue { slots: Vec::new(), free: NONE, newest: NONE, oldest: NONE, len: 0, removed: alloc::vec![None; REMOVED] };
        queue.set_capacity(ram_blocks);
        queue
    }

    /// Makes room for `ram_blocks` in one piece, so that inserting does not allocate.
    pub(crate) fn set_capacity(&mut self, ram_blocks: u64) {
        let more = (ram_blocks as usize).saturating_sub(self.slots.len());
        self.slots.reserve_exact(more);
    }

    /// Puts a block in as the newest.
    pub(crate) fn insert(&mut self, key: u64, arrival: Arrival) -> RamSlot {
        let entry = RamEntry {
            key,
            newer: NONE,
            older: NONE,
            frequency: arrival.frequency,
            proven: arrival.proven,
            returned: arrival.returned,
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
        self.link_newest(index);
        self.len += 1;
        RamSlot(index)
    }

    /// The block was used again.
    #[inline]
    pub(crate) fn touch(&mut self, slot: RamSlot, proven: bool) {
        self.entry(slot).proven |= proven;
        if self.newest != slot.0 {
            self.unlink(slot.0);
            self.link_newest(slot.0);
        }
    }

    /// Whether the newest version is on the SSD as well.
    pub(crate) fn set_copy(&mut self, slot: RamSlot, copy: bool) {
        self.entry(slot).copy = copy;
    }

    /// Takes the least recently used block out.
    pub(crate) fn pop(&mut self) -> Option<RamEntry> {
        (self.oldest != NONE).then(|| self.remove(RamSlot(self.oldest)))
    }

    /// Takes a block out.
    pub(crate) fn remove(&mut self, slot: RamSlot) -> RamEntry {
        let entry = *self.entry(slot);
        self.unlink(slot.0);
        let place = &mut self.slots[slot.0 as usize];
        place.used = false;
        place.newer = self.free;
        self.free = slot.0;
        self.len -= 1;
        entry
    }

    /// Takes a block out that may soon be back with new content.
    pub(crate) fn remove_for_overwrite(&mut self, slot: RamSlot) {
        let entry = self.remove(slot);
        self.removed[entry.key as usize % REMOVED] = Some(entry);
    }

    /// What a block was when it was taken out to be overwritten, if it is remembered.
    pub(crate) fn take_removed(&mut self, key: u64) -> Option<RamEntry> {
        self.removed[key as usize % REMOVED].take_if(|entry| entry.key == key)
    }

    /// Blocks linked.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Bytes on the heap.
    pub(crate) fn memory_bytes(&self) -> u64 {
        (self.slots.capacity() * size_of::<RamEntry>() + REMOVED * size_of::<Option<RamEntry>>()) as u64
    }

    fn link_newest(&mut self, index: u32) {
        let older = self.newest;
        let entry = &mut self.slots[index as usize];
        (entry.newer, entry.older) = (NONE, older);
        match older {
            NONE => self.oldest = index,
            older => self.slots[older as usize].newer = index,
        }
        self.newest = index;
    }

    fn unlink(&mut self, index: u32) {
        let RamEntry { newer, older, .. } = self.slots[index as usize];
        match newer {
            NONE => self.newest = older,
            newer => self.slots[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.slots[older as usize].newer = newer,
        }
    }

    fn entry(&mut self, slot: RamSlot) -> &mut RamEntry {
        let entry = &mut self.slots[slot.0 as usize];
        assert!(entry.used, "RAM slot {} is not in use", slot.0);
        entry
    }
}
