//! Order among requests that touch the same block.
//!
//! Every client request locks all its blocks at once, in the order of arrival: reads share a block, anything else has it
//! alone, and nobody overtakes a waiter. Because a request queues on all its blocks in one step, the waits-for relation
//! follows arrival order and cannot form a cycle.

use crate::key::{Key, Map};
use alloc::collections::VecDeque;

/// Names a request inside the shard.
pub type OpId = u32;

#[derive(Default)]
struct Lock {
    readers: u32,
    writer: bool,
    waiting: VecDeque<(OpId, Kind)>,
}

/// How a block is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Together with other readers.
    Shared,
    /// Alone.
    Exclusive,
}

/// All locks of a shard; only blocks with requests in flight have an entry.
#[derive(Default)]
pub struct Locks {
    held: Map<Key, Lock>,
    /// Locks a waiting request still lacks.
    lacking: Map<OpId, u32>,
}

impl Locks {
    /// Whether a read of the block could start at once. True for blocks nobody uses.
    #[inline]
    pub fn free_for_read(&self, key: Key) -> bool {
        self.held.is_empty() || self.held.get(&key).is_none_or(|lock| !lock.writer && lock.waiting.is_empty())
    }

    /// Shares the block with its readers if that is possible at once; [`Locks::release`] gives it back.
    pub fn share_if_free(&mut self, key: Key) -> bool {
        let lock = self.held.entry(key).or_default();
        let free = !lock.writer && lock.waiting.is_empty();
        lock.readers += u32::from(free);
        free
    }

    /// Queues the request on `count` blocks from `first`. True if it has all of them; otherwise `release` by others will
    /// name it when it has.
    pub fn acquire(&mut self, op: OpId, first: Key, count: u32, kind: Kind) -> bool {
        let mut lacking = 0;
        for index in 0..u64::from(count) {
            let lock = self.held.entry(Key(first.0 + index)).or_default();
            let free = !lock.writer && lock.waiting.is_empty() && (kind == Kind::Shared || lock.readers == 0);
            if free && kind == Kind::Shared {
                lock.readers += 1;
            } else if free {
                lock.writer = true;
            } else {
                lock.waiting.push_back((op, kind));
                lacking += 1;
            }
        }
        if lacking > 0 {
            self.lacking.insert(op, lacking);
        }
        lacking == 0
    }

    /// Gives the blocks back; requests that now have all of theirs are appended to `ready`, in order of arrival per block.
    pub fn release(&mut self, first: Key, count: u32, kind: Kind, ready: &mut impl Extend<OpId>) {
        for index in 0..u64::from(count) {
            let key = Key(first.0 + index);
            let lock = self.held.get_mut(&key).expect("a released block was locked");
            match kind {
                Kind::Shared => lock.readers -= 1,
                Kind::Exclusive => {
                    assert!(lock.writer, "an exclusive lock is released by its holder");
                    lock.writer = false;
                }
            }
            while let Some((op, wanted)) = lock.waiting.front().copied() {
                let free = !lock.writer && (wanted == Kind::Shared || lock.readers == 0);
                if !free {
                    break;
                }
                lock.waiting.pop_front();
                match wanted {
                    Kind::Shared => lock.readers += 1,
                    Kind::Exclusive => lock.writer = true,
                }
                let lacking = self.lacking.get_mut(&op).expect("a waiter lacks something");
                *lacking -= 1;
                if *lacking == 0 {
                    self.lacking.remove(&op);
                    ready.extend(Some(op));
                }
            }
            if !lock.writer && lock.readers == 0 {
                debug_assert!(lock.waiting.is_empty());
                self.held.remove(&key);
            }
        }
    }

    /// Blocks that are locked now.
    pub fn blocks_held(&self) -> usize {
        self.held.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    fn key(block: u64) -> Key {
        Key(block)
    }

    #[test]
    fn readers_share_and_nobody_overtakes_a_writer() {
        let mut locks = Locks::default();
        let mut ready = Vec::new();
        assert!(locks.acquire(1, key(0), 4, Kind::Shared));
        assert!(locks.acquire(2, key(2), 4, Kind::Shared));
        assert!(!locks.acquire(3, key(3), 1, Kind::Exclusive));
        assert!(!locks.acquire(4, key(3), 1, Kind::Shared), "behind the writer");
        assert!(!locks.free_for_read(key(3)));
        assert!(locks.free_for_read(key(0)));
        locks.release(key(0), 4, Kind::Shared, &mut ready);
        assert!(ready.is_empty());
        locks.release(key(2), 4, Kind::Shared, &mut ready);
        assert_eq!(ready, vec![3]);
        locks.release(key(3), 1, Kind::Exclusive, &mut ready);
        assert_eq!(ready, vec![3, 4]);
        locks.release(key(3), 1, Kind::Shared, &mut ready);
        assert_eq!(locks.blocks_held(), 0);
    }

    #[test]
    fn a_request_waits_for_all_its_blocks() {
        let mut locks = Locks::default();
        let mut ready = Vec::new();
        assert!(locks.acquire(1, key(0), 1, Kind::Exclusive));
        assert!(locks.acquire(2, key(9), 1, Kind::Exclusive));
        assert!(!locks.acquire(3, key(0), 10, Kind::Exclusive));
        locks.release(key(0), 1, Kind::Exclusive, &mut ready);
        assert!(ready.is_empty());
        locks.release(key(9), 1, Kind::Exclusive, &mut ready);
        assert_eq!(ready, vec![3]);
        locks.release(key(0), 10, Kind::Exclusive, &mut ready);
        assert_eq!(locks.blocks_held(), 0);
    }
}
