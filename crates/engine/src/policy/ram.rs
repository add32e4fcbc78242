//! The order in which blocks leave RAM: least recently used first, of the class that is worth less.
//!
//! Blocks that only RAM holds and copies of blocks that are on the SSD as well stand in queues of their own. A use of the former saves an access
//! to the backing device, one of the latter an access to the SSD. So where the backing device is busy RAM holds what the SSD does not,
//! and where all is on the SSD it holds what is used most.
//!
//! Blocks that were read along with others, and nobody has asked for, stand in a third queue, which holds a part of RAM at most. They leave
//! without a trace.
//!
//! Beside the queues, a handful of blocks taken out to be overwritten are remembered until they come back.
//!
//! Invariant: every slot is either linked in the queue of its class or in the list of free slots; each `len` counts the former.

use alloc::vec::Vec;

use super::{Arrival, Heat, RamSlot};

/// No slot.
const NONE: u32 = u32::MAX;

/// Removed blocks remembered: more than a 1 MiB request, the largest part of one, has blocks.
const REMOVED: usize = 512;

/// What a use of a block that only RAM holds saves, in uses of a copy: a hard disk's read takes about a hundred of an SSD's.
const ONLY_WORTH: u64 = 100;
/// Each class keeps one in this many blocks while the other grows, so that its uses stay known.
const CLASS_ONE_IN: u64 = 16;
/// Blocks that were read along hold one in this many blocks of RAM while others want it.
const ALONG_ONE_IN: u64 = 16;

/// Blocks of one class, and how often they were used lately.
#[derive(Debug)]
struct Queue {
    newest: u32,
    oldest: u32,
    len: u64,
    uses: u64,
}

impl Queue {
    const fn new() -> Queue {
        Queue { newest: NONE, oldest: NONE, len: 0, uses: 0 }
    }
}

/// One block in RAM.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RamEntry {
    pub(crate) key: u64,
    /// Towards the newer neighbour; in a free slot the next free one.
    newer: u32,
    /// Towards the older neighbour.
    older: u32,
    /// See [`Arrival`].
    pub(crate) heat: Heat,
    /// See [`Arrival`].
    pub(crate) proven: bool,
    /// See [`Arrival`].
    pub(crate) returned: bool,
    /// See [`Arrival`].
    pub(crate) copy: bool,
    /// No client has asked for it so far.
    pub(crate) own: bool,
    /// It was read along with others, and no client has asked for it so far.
    pub(crate) along: bool,
    /// Whether the slot is linked; guards against a caller's stale slot.
    used: bool,
    /// The epoch in which it came.
    pub(crate) born: u16,
}

impl RamEntry {
    pub(super) const fn new(key: u64, arrival: Arrival, born: u16) -> RamEntry {
        RamEntry {
            key,
            newer: NONE,
            older: NONE,
            heat: arrival.heat,
            proven: arrival.proven,
            returned: arrival.returned,
            copy: arrival.copy,
            own: arrival.own,
            along: false,
            used: true,
            born,
        }
    }

    /// Only RAM holds it, and it is of the small part.
    const fn is_small_only(&self) -> bool {
        !self.copy && !self.along && self.heat.part() != 0
    }
}

/// The queue.
#[derive(Debug)]
pub(crate) struct RamQueue {
    slots: Vec<RamEntry>,
    free: u32,
    /// Blocks that only RAM holds.
    only: Queue,
    /// Blocks that are on the SSD as well.
    copies: Queue,
    /// Blocks that were read along.
    along: Queue,
    /// Of the first, those of the small part.
    small_only: u64,
    /// Blocks that left since the uses were halved.
    left: u64,
    /// By the low bits of their key.
    removed: Vec<Option<RamEntry>>,
    /// Blocks that RAM may hold.
    capacity: u64,
}

impl RamQueue {
    /// An empty queue that will hold about `ram_blocks`.
    pub(crate) fn new(ram_blocks: u64) -> RamQueue {
        let mut queue = RamQueue {
            slots: Vec::new(),
            free: NONE,
            only: Queue::new(),
            copies: Queue::new(),
            along: Queue::new(),
            small_only: 0,
            left: 0,
            removed: alloc::vec![None; REMOVED],
            capacity: 0,
        };
        queue.set_capacity(ram_blocks);
        queue
    }

    /// Makes room for `ram_blocks` in one piece, so that inserting does not allocate.
    pub(crate) fn set_capacity(&mut self, ram_blocks: u64) {
        self.capacity = ram_blocks;
        let more = (ram_blocks as usize).saturating_sub(self.slots.len());
        self.slots.reserve_exact(more);
    }

    /// Puts a block in as the newest.
    pub(crate) fn insert(&mut self, key: u64, arrival: Arrival, born: u16) -> RamSlot {
        self.insert_entry(RamEntry::new(key, arrival, born))
    }

    /// The same of a block that was read along with others.
    pub(crate) fn insert_along(&mut self, key: u64) -> RamSlot {
        let arrival = Arrival { heat: Heat::default(), proven: false, returned: false, copy: false, restored: false, own: true };
        self.insert_entry(RamEntry { along: true, ..RamEntry::new(key, arrival, 0) })
    }

    /// A client has asked for such a block: it arrives now.
    pub(crate) fn arrives(&mut self, slot: RamSlot, arrival: Arrival, born: u16) {
        self.unlink(slot.0);
        let key = self.entry(slot).key;
        *self.entry(slot) = RamEntry::new(key, arrival, born);
        self.link_newest(slot.0);
    }

    /// Whether there is any room for such blocks.
    pub(crate) fn may_hold_along(&self) -> bool {
        self.along_max() > 0
    }

    fn along_max(&self) -> u64 {
        self.capacity / ALONG_ONE_IN
    }

    fn insert_entry(&mut self, entry: RamEntry) -> RamSlot {
        assert!((self.slots.len() as u64) < u64::from(NONE), "slots have numbers below {NONE}");
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
        RamSlot(index)
    }

    /// The block was used again, by a client unless it is `own`.
    #[inline]
    pub(crate) fn touch(&mut self, slot: RamSlot, proven: bool, own: bool) {
        let entry = self.entry(slot);
        entry.proven |= proven;
        entry.own &= own;
        let (along, copy) = (entry.along, entry.copy);
        let queue = self.queue(along, copy);
        queue.uses += 1;
        if queue.newest != slot.0 {
            self.unlink(slot.0);
            self.link_newest(slot.0);
        }
    }

    /// Whether the newest version is on the SSD as well. A block that changes its class is the newest there.
    pub(crate) fn set_copy(&mut self, slot: RamSlot, copy: bool) {
        if self.entry(slot).copy != copy {
            self.unlink(slot.0);
            self.entry(slot).copy = copy;
            self.link_newest(slot.0);
        }
    }

    /// Takes the least recently used block of the class that is worth less out.
    pub(crate) fn pop(&mut self) -> Option<RamEntry> {
        let oldest = self.next();
        if oldest == NONE {
            return None;
        }
        assert!(self.len() > 0, "the oldest block was counted");
        self.left += 1;
        if self.left >= self.len() {
            self.left = 0;
            self.only.uses /= 2;
            self.copies.uses /= 2;
        }
        Some(self.remove(RamSlot(oldest)))
    }

    /// Whether no client has asked for the block that leaves next.
    pub(crate) fn next_is_own(&self) -> bool {
        let next = self.next();
        next != NONE && self.slots[next as usize].own
    }

    fn next(&self) -> u32 {
        match self.only.len + self.copies.len {
            others if self.along.len > if others == 0 { 0 } else { self.along_max() } => self.along.oldest,
            _ if self.a_copy_should_leave() => self.copies.oldest,
            _ => self.only.oldest,
        }
    }

    fn a_copy_should_leave(&self) -> bool {
        let (only, copies) = (self.only.len, self.copies.len);
        let few = (only + copies) / CLASS_ONE_IN;
        match () {
            () if copies == 0 || only == 0 => only == 0,
            () if copies <= few => false,
            () if only <= few => true,
            // Uses a block, crosswise; the one more lets a class that is not used yet try itself.
            () => self.copies.uses * only < ONLY_WORTH * (self.only.uses + 1) * copies,
        }
    }

    /// Takes a block out.
    pub(crate) fn remove(&mut self, slot: RamSlot) -> RamEntry {
        let entry = *self.entry(slot);
        self.unlink(slot.0);
        let place = &mut self.slots[slot.0 as usize];
        place.used = false;
        place.newer = self.free;
        self.free = slot.0;
        entry
    }

    /// Takes a block out that may soon be back with new content.
    pub(crate) fn remove_for_overwrite(&mut self, slot: RamSlot) {
        let entry = self.remove(slot);
        if !entry.along {
            self.removed[entry.key as usize % REMOVED] = Some(entry);
        }
    }

    /// The same of a block that was on the SSD alone.
    pub(crate) fn remember_for_overwrite(&mut self, key: u64, arrival: Arrival, born: u16) {
        self.removed[key as usize % REMOVED] = Some(RamEntry::new(key, arrival, born));
    }

    /// What a block was when it was taken out to be overwritten, if it is remembered.
    pub(crate) fn take_removed(&mut self, key: u64) -> Option<RamEntry> {
        self.removed[key as usize % REMOVED].take_if(|entry| entry.key == key)
    }

    /// Whether a block can enter without another leaving.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.len() < self.capacity
    }

    /// Blocks that only RAM holds.
    pub(crate) fn only_len(&self) -> u64 {
        self.only.len
    }

    /// Of them, those of the small part.
    pub(crate) fn small_only(&self) -> u64 {
        self.small_only
    }

    /// What is known of a block.
    pub(crate) fn get(&self, slot: RamSlot) -> &RamEntry {
        let entry = &self.slots[slot.0 as usize];
        assert!(entry.used, "RAM slot {} is not in use", slot.0);
        entry
    }

    /// Blocks linked.
    pub(crate) fn len(&self) -> u64 {
        self.only.len + self.copies.len + self.along.len
    }

    /// Bytes on the heap.
    pub(crate) fn memory_bytes(&self) -> u64 {
        (self.slots.capacity() * size_of::<RamEntry>() + REMOVED * size_of::<Option<RamEntry>>()) as u64
    }

    fn queue(&mut self, along: bool, copy: bool) -> &mut Queue {
        match (along, copy) {
            (true, _) => &mut self.along,
            (false, true) => &mut self.copies,
            (false, false) => &mut self.only,
        }
    }

    fn link_newest(&mut self, index: u32) {
        self.small_only += u64::from(self.slots[index as usize].is_small_only());
        let RamEntry { along, copy, .. } = self.slots[index as usize];
        let queue = self.queue(along, copy);
        let older = core::mem::replace(&mut queue.newest, index);
        queue.len += 1;
        if older == NONE {
            queue.oldest = index;
        } else {
            self.slots[older as usize].newer = index;
        }
        let entry = &mut self.slots[index as usize];
        (entry.newer, entry.older) = (NONE, older);
    }

    #[inline]
    fn unlink(&mut self, index: u32) {
        let RamEntry { newer, older, copy, along, .. } = self.slots[index as usize];
        self.small_only -= u64::from(self.slots[index as usize].is_small_only());
        let queue = self.queue(along, copy);
        assert!(queue.len > 0, "what is linked was counted");
        queue.len -= 1;
        if newer == NONE {
            queue.newest = older;
        }
        if older == NONE {
            queue.oldest = newer;
        }
        if newer != NONE {
            self.slots[newer as usize].older = older;
        }
        if older != NONE {
            self.slots[older as usize].newer = newer;
        }
    }

    /// The same, to change its uses: not its part.
    pub(crate) fn entry(&mut self, slot: RamSlot) -> &mut RamEntry {
        let entry = &mut self.slots[slot.0 as usize];
        assert!(entry.used, "RAM slot {} is not in use", slot.0);
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 32 copies with even keys and 32 blocks with odd keys that only RAM holds.
    fn mixed() -> (RamQueue, Vec<RamSlot>) {
        let mut queue = RamQueue::new(64);
        let arrival = Arrival { heat: Heat::default(), proven: false, returned: false, copy: false, restored: false, own: false };
        let slots = (0..64).map(|key| queue.insert(key, if key % 2 == 0 { arrival.as_copy() } else { arrival }, 0)).collect();
        (queue, slots)
    }

    #[test]
    fn copies_leave_first_oldest_first_but_a_few_stay() {
        let (mut queue, slots) = mixed();
        queue.touch(slots[0], false, false);
        let left: Vec<u64> = (0..28).map(|_| queue.pop().expect("blocks are there").key).collect();
        assert!(left.iter().copied().eq((1..29).map(|at| 2 * at)), "{left:?}");
        assert_eq!(core::iter::from_fn(|| queue.pop()).take(16).count(), 16);
        assert_eq!(queue.copies.len, 1, "one in sixteen of the 20 that are left");
    }

    #[test]
    fn copies_that_are_used_a_hundred_times_as_often_stay() {
        let (mut queue, slots) = mixed();
        (0..200).for_each(|_| slots.iter().step_by(2).for_each(|slot| queue.touch(*slot, false, false)));
        assert!((0..20).all(|_| queue.pop().expect("blocks are there").key % 2 == 1));
    }

    #[test]
    fn a_block_changes_its_class_and_all_leave_once() {
        let (mut queue, slots) = mixed();
        slots.iter().for_each(|slot| queue.set_copy(*slot, true));
        assert_eq!((queue.copies.len, queue.only.len), (64, 0));
        slots.iter().skip(10).for_each(|slot| queue.set_copy(*slot, false));
        let mut left: Vec<u64> = core::iter::from_fn(|| queue.pop()).map(|entry| entry.key).collect();
        left.sort_unstable();
        assert!(left.into_iter().eq(0..64));
        assert_eq!(queue.len(), 0);
    }
}
