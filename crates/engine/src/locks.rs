//! Order among requests that touch the same block.
//!
//! Every client request locks all its blocks at once, in the order of arrival: reads share a block, anything else has it
//! alone, and nobody overtakes a waiter. Because a request queues on all its blocks in one step, the waits-for relation
//! follows arrival order and cannot form a cycle.
//!
//! A range request ([`Locks::acquire_range`]) has all blocks of its range alone. It takes its place in the queue of each block that has
//! an entry when it arrives; a block without one gets its entry, with the range request as holder, when somebody else asks for it. So
//! a range costs what others do in it, whatever its length.
//!
//! A glance ([`Locks::glance`]) is a read that makes nobody wait. It holds nothing: whoever asks for one of its blocks alone meanwhile
//! gets it, and the glance is told at its end that it was overtaken. What it read counts for nothing then.
//!
//! Invariants: an entry has a holder; a block with an entry has every range request that covers it as its holder or in its queue; range
//! requests stand in `ranges`, and in each queue, in order of arrival; one that overlaps an earlier one lacks one lock for that.

use crate::key::{Key, Map};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

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

/// A range request that holds its range or waits for it.
struct RangeLock {
    op: OpId,
    range: Range<Key>,
    /// Blocks in whose entries it stands.
    entries: Vec<Key>,
}

/// A read that holds nothing.
struct Glance {
    op: OpId,
    range: Range<Key>,
    overtaken: bool,
}

/// All locks of a shard; only blocks with requests in flight have an entry.
#[derive(Default)]
pub struct Locks {
    held: Map<Key, Lock>,
    /// In order of arrival.
    ranges: Vec<RangeLock>,
    /// Locks a waiting request still lacks.
    lacking: Map<OpId, u32>,
    /// Nearly always none.
    glances: Vec<Glance>,
}

impl Locks {
    /// Whether a read of the block could start at once. True for blocks nobody uses.
    #[inline]
    pub fn free_for_read(&self, key: Key) -> bool {
        match self.held.get(&key) {
            Some(lock) => !lock.writer && lock.waiting.is_empty(),
            None => !self.is_in_a_range(key),
        }
    }

    #[inline]
    fn is_in_a_range(&self, key: Key) -> bool {
        !self.ranges.is_empty() && self.ranges.iter().any(|lock| lock.range.contains(&key))
    }

    /// Shares the block with its readers if that is possible at once; [`Locks::release`] gives it back.
    pub fn share_if_free(&mut self, key: Key) -> bool {
        if self.is_in_a_range(key) {
            return false;
        }
        let lock = self.held.entry(key).or_default();
        let free = !lock.writer && lock.waiting.is_empty();
        lock.readers += u32::from(free);
        free
    }

    /// Begins a glance at `count` blocks from `first`. False, and nothing is begun, if somebody has one of them alone or waits for that.
    pub fn glance(&mut self, op: OpId, first: Key, count: u32) -> bool {
        let range = first..Key(first.0 + u64::from(count));
        let free = (range.start.0..range.end.0).all(|key| self.free_for_read(Key(key)));
        if free {
            self.glances.push(Glance { op, range, overtaken: false });
        }
        free
    }

    /// Whether somebody has asked for a block of the glance alone since it began.
    pub fn is_overtaken(&self, op: OpId) -> bool {
        self.glances.iter().any(|glance| glance.op == op && glance.overtaken)
    }

    /// The glance is over; gives whether it was overtaken.
    pub fn end_glance(&mut self, op: OpId) -> bool {
        let at = self.glances.iter().position(|glance| glance.op == op).expect("a glance that ends has begun");
        self.glances.swap_remove(at).overtaken
    }

    fn overtake(&mut self, range: &Range<Key>) {
        for glance in self.glances.iter_mut().filter(|glance| overlap(&glance.range, range)) {
            glance.overtaken = true;
        }
    }

    /// Queues the request on `count` blocks from `first`. True if it has all of them; otherwise `release` by others will
    /// name it when it has.
    pub fn acquire(&mut self, op: OpId, first: Key, count: u32, kind: Kind) -> bool {
        if kind == Kind::Exclusive && !self.glances.is_empty() {
            self.overtake(&(first..Key(first.0 + u64::from(count))));
        }
        let mut lacking = 0;
        for index in 0..u64::from(count) {
            let lock = self.entry(Key(first.0 + index));
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

    /// The entry of a block. A new one has the range requests that cover the block in it.
    fn entry(&mut self, key: Key) -> &mut Lock {
        if self.is_in_a_range(key) && !self.held.contains_key(&key) {
            let mut lock = Lock::default();
            for covering in self.ranges.iter_mut().filter(|lock| lock.range.contains(&key)) {
                covering.entries.push(key);
                if lock.writer {
                    lock.waiting.push_back((covering.op, Kind::Exclusive));
                    *self.lacking.get_mut(&covering.op).expect("it waits for the range before it") += 1;
                } else {
                    lock.writer = true;
                }
            }
            self.held.insert(key, lock);
        }
        self.held.entry(key).or_default()
    }

    /// Queues a range request on all blocks from `range.start` to before `range.end`, to have them alone. True if it has all of them;
    /// otherwise `release` or `release_range` by others will name it when it has.
    pub fn acquire_range(&mut self, op: OpId, range: Range<Key>) -> bool {
        assert!(range.start < range.end, "a range has blocks: {range:?}");
        self.overtake(&range);
        let mut entries = Vec::new();
        for (key, lock) in self.held.iter_mut().filter(|(key, _)| range.contains(key)) {
            lock.waiting.push_back((op, Kind::Exclusive));
            entries.push(*key);
        }
        let earlier = self.ranges.iter().filter(|lock| overlap(&lock.range, &range)).count();
        let lacking = (entries.len() + earlier) as u32;
        self.ranges.push(RangeLock { op, range, entries });
        if lacking > 0 {
            self.lacking.insert(op, lacking);
        }
        lacking == 0
    }

    /// Gives the range back that a request has; requests that now have all they want are appended to `ready`.
    pub fn release_range(&mut self, op: OpId, ready: &mut impl Extend<OpId>) {
        let at = self.ranges.iter().position(|lock| lock.op == op).expect("a released range was locked");
        assert!(!self.lacking.contains_key(&op), "a range is released by its holder");
        let RangeLock { range, entries, .. } = self.ranges.remove(at);
        for key in entries {
            self.release(key, 1, Kind::Exclusive, ready);
        }
        for later in (at..self.ranges.len()).filter(|later| overlap(&self.ranges[*later].range, &range)).collect::<Vec<_>>() {
            let waits = self.ranges[later].op;
            has_one_more(&mut self.lacking, waits, ready);
        }
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
                has_one_more(&mut self.lacking, op, ready);
            }
            if !lock.writer && lock.readers == 0 {
                assert!(lock.waiting.is_empty(), "a lock that is removed has no waiting operation");
                self.held.remove(&key);
            }
        }
    }

    /// Blocks that are locked now.
    pub fn blocks_held(&self) -> usize {
        self.held.len()
    }
}

fn overlap(one: &Range<Key>, other: &Range<Key>) -> bool {
    one.start < other.end && other.start < one.end
}

/// The request has got one of the locks it lacked.
fn has_one_more(lacking: &mut Map<OpId, u32>, op: OpId, ready: &mut impl Extend<OpId>) {
    let count = lacking.get_mut(&op).expect("a waiter lacks something");
    *count -= 1;
    if *count == 0 {
        lacking.remove(&op);
        ready.extend(Some(op));
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

    #[test]
    fn a_glance_holds_nobody_up_and_is_told_who_passed() {
        let mut locks = Locks::default();
        let mut ready = Vec::new();
        assert!(locks.acquire(1, key(9), 1, Kind::Shared));
        assert!(locks.glance(2, key(8), 4) && locks.glance(3, key(0), 8) && locks.glance(4, key(11), 1));
        assert!(locks.acquire(5, key(11), 2, Kind::Exclusive), "at once");
        assert!(!locks.glance(6, key(12), 1), "somebody has it alone");
        assert_eq!([2, 3, 4].map(|op| locks.is_overtaken(op)), [true, false, true]);
        assert!(locks.end_glance(2) && locks.end_glance(4));
        assert!(locks.acquire(7, key(4), 1, Kind::Shared) && !locks.is_overtaken(3), "readers share");
        assert!(!locks.acquire(8, key(4), 1, Kind::Exclusive) && locks.is_overtaken(3), "who waits will pass");
        assert!(!locks.glance(6, key(4), 1), "nobody overtakes a waiter");
        assert!(locks.end_glance(3) && locks.glance(3, key(20), 2));
        assert!(locks.acquire_range(9, key(16)..key(32)) && locks.end_glance(3));
        locks.release_range(9, &mut ready);
        locks.release(key(4), 1, Kind::Shared, &mut ready);
        locks.release(key(4), 1, Kind::Exclusive, &mut ready);
        locks.release(key(9), 1, Kind::Shared, &mut ready);
        locks.release(key(11), 2, Kind::Exclusive, &mut ready);
        assert!(ready == vec![8] && locks.blocks_held() == 0 && locks.glances.is_empty());
    }

    #[test]
    fn a_range_has_every_block_alone_and_costs_only_what_others_ask_for() {
        let mut locks = Locks::default();
        let mut ready = Vec::new();
        assert!(locks.acquire(1, key(500), 1, Kind::Shared));
        assert!(!locks.acquire_range(2, key(0)..key(1 << 30)), "behind the reader");
        assert!(!locks.acquire(3, key(7), 1, Kind::Shared), "behind the range, which has no entry for that block yet");
        assert!(!locks.share_if_free(key(8)) && !locks.free_for_read(key(9)));
        assert!(locks.acquire(4, key(1 << 30), 1, Kind::Exclusive) && locks.free_for_read(key(1 << 31)), "outside");
        assert_eq!(locks.blocks_held(), 3);
        locks.release(key(500), 1, Kind::Shared, &mut ready);
        assert_eq!(core::mem::take(&mut ready), vec![2]);
        assert!(!locks.acquire_range(5, key(256)..key(512)));
        locks.release_range(2, &mut ready);
        ready.sort_unstable();
        assert_eq!(core::mem::take(&mut ready), vec![3, 5]);
        locks.release_range(5, &mut ready);
        locks.release(key(7), 1, Kind::Shared, &mut ready);
        locks.release(key(1 << 30), 1, Kind::Exclusive, &mut ready);
        assert!(ready.is_empty() && locks.blocks_held() == 0 && locks.ranges.is_empty() && locks.lacking.is_empty());
    }

    /// A range grants and waits exactly as a request does that locks each of its blocks.
    #[test]
    fn ranges_agree_with_requests_that_lock_block_by_block() {
        struct Asked {
            op: OpId,
            blocks: Range<u64>,
            kind: Kind,
            range: bool,
            has: bool,
        }
        for seed in 0..200_u64 {
            let (mut locks, mut plain) = (Locks::default(), Locks::default());
            let mut asked: Vec<Asked> = Vec::new();
            for step in 0..120_u64 {
                let random = crate::key::mix((seed << 32) | step);
                let holders: Vec<usize> = (0..asked.len()).filter(|at| asked[*at].has).collect();
                let (mut here, mut there) = (Vec::new(), Vec::new());
                if step < 80 && random & 1 == 0 || holders.is_empty() {
                    let range = random >> 1 & 3 == 0;
                    let first = (random >> 8) % 24;
                    let count = if range { 4 + (random >> 16) % 20 } else { 1 + (random >> 16) % 3 };
                    let kind = if range || random >> 3 & 1 == 0 { Kind::Exclusive } else { Kind::Shared };
                    let op = step as OpId;
                    let has = match range {
                        true => locks.acquire_range(op, key(first)..key(first + count)),
                        false => locks.acquire(op, key(first), count as u32, kind),
                    };
                    assert_eq!(has, plain.acquire(op, key(first), count as u32, kind), "seed {seed} step {step}");
                    asked.push(Asked { op, blocks: first..first + count, kind, range, has });
                } else {
                    let Asked { op, blocks, kind, range, .. } = asked.remove(holders[(random >> 24) as usize % holders.len()]);
                    let count = (blocks.end - blocks.start) as u32;
                    match range {
                        true => locks.release_range(op, &mut here),
                        false => locks.release(key(blocks.start), count, kind, &mut here),
                    }
                    plain.release(key(blocks.start), count, kind, &mut there);
                    here.sort_unstable();
                    there.sort_unstable();
                    assert_eq!(here, there, "seed {seed} step {step}");
                    asked.iter_mut().filter(|one| here.contains(&one.op)).for_each(|one| one.has = true);
                }
                for block in 0..64 {
                    assert_eq!(locks.free_for_read(key(block)), plain.free_for_read(key(block)), "seed {seed} step {step} block {block}");
                }
            }
        }
    }
}
