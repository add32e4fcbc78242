//! The requests of each queue that are under way, in memory that the front end keeps while we are gone.
//!
//! The layout and the order of stores are those of "Inflight I/O tracking", docs/interop/vhost-user.rst of QEMU, for split
//! queues:
//!
//! ```text
//!   a queue's region:  u64 features  u16 version  u16 entries  u16 last batch's head  u16 used index   then its entries
//!   an entry:          u8 in flight  u8 answered  4 unused     u16 next of the batch  u64 counter
//! ```
//! The byte `answered` is padding there. We note in it that the volume has carried the request out, so that a write does not take effect
//! a second time when the next daemon finds it, perhaps over a newer one. Nobody else looks at it.
//!
//! The front end can write what it likes here: whatever is read is checked before it is used, and the worst it gets is wrong answers.

use crate::mapping::Mapping;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU64, Ordering, fence};

const HEADER_BYTES: u64 = 16;
const ENTRY_BYTES: u64 = 16;
/// Regions begin on cache lines.
const ALIGNMENT: u64 = 64;
const VERSION: u16 = 1;

/// Bytes of the region of a queue with so many entries.
const fn region_bytes(entries: u16) -> u64 {
    (HEADER_BYTES + ENTRY_BYTES * entries as u64).next_multiple_of(ALIGNMENT)
}

/// Bytes of the regions of so many queues.
pub(crate) const fn total_bytes(queues: u16, entries: u16) -> u64 {
    queues as u64 * region_bytes(entries)
}

/// New memory for so many queues, all zeroes, that nobody can make shorter.
pub(crate) fn make(queues: u16, entries: u16) -> io::Result<OwnedFd> {
    let file = memfd_create("hearth-inflight", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&file, total_bytes(queues, entries))?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

/// The regions of all queues.
#[derive(Debug)]
pub(crate) struct Inflight {
    mapping: Mapping,
    queues: u16,
    entries: u16,
    /// The next request's number; all queues share it, so that their requests have one order.
    counter: AtomicU64,
}

impl Inflight {
    /// What a front end hands back.
    ///
    /// # Errors
    /// If it is too short, or is no memory.
    pub(crate) fn new(file: &OwnedFd, offset: u64, bytes: u64, queues: u16, entries: u16) -> io::Result<Inflight> {
        let needed = total_bytes(queues, entries);
        if bytes < needed || !offset.is_multiple_of(ALIGNMENT) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the in-flight memory is too short or begins between cache lines"));
        }
        let inflight = Inflight { mapping: Mapping::new(file, offset, needed)?, queues, entries, counter: AtomicU64::new(0) };
        let last = inflight.noted().last().map_or(0, |(counter, _, _)| *counter);
        inflight.counter.store(last.wrapping_add(1), Ordering::Relaxed);
        Ok(inflight)
    }

    /// What is noted as under way and not carried out: counter, queue and head of each.
    pub(crate) fn noted(self: &Inflight) -> BTreeSet<(u64, u16, u16)> {
        let mut noted = BTreeSet::new();
        for queue in 0..self.queues {
            for head in 0..self.entries {
                let entry = u64::from(queue) * region_bytes(self.entries) + HEADER_BYTES + ENTRY_BYTES * u64::from(head);
                if self.u8(entry).load(Ordering::Acquire) != 0 && self.u8(entry + 1).load(Ordering::Relaxed) == 0 {
                    noted.insert((self.u64(entry + 8).load(Ordering::Relaxed), queue, head));
                }
            }
        }
        noted
    }

    fn address(&self, at: u64, bytes: u64) -> *mut u8 {
        assert!(at + bytes <= self.mapping.bytes() && at.is_multiple_of(bytes), "byte {at} of {}", self.mapping.bytes());
        // SAFETY: just checked.
        unsafe { self.mapping.start().add(at as usize).as_ptr() }
    }

    fn u8(&self, at: u64) -> &AtomicU8 {
        // SAFETY: mapped as long as `self`, and reached as atomics only.
        unsafe { AtomicU8::from_ptr(self.address(at, 1)) }
    }

    fn u16(&self, at: u64) -> &AtomicU16 {
        // SAFETY: as in `u8`; aligned, since the memory begins on a cache line.
        unsafe { AtomicU16::from_ptr(self.address(at, 2).cast()) }
    }

    fn u64(&self, at: u64) -> &AtomicU64 {
        // SAFETY: as in `u16`.
        unsafe { AtomicU64::from_ptr(self.address(at, 8).cast()) }
    }
}

/// The region of one queue.
#[derive(Debug)]
pub(crate) struct Tracker {
    all: Arc<Inflight>,
    base: u64,
    entries: u16,
}

/// What an earlier daemon has left in a queue.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Left {
    /// To be carried out, in this order: counters and heads.
    pub(crate) again: Vec<(u64, u16)>,
    /// Carried out, and not told to the guest.
    pub(crate) answered: Vec<u16>,
}

impl Left {
    pub(crate) fn count(&self) -> u16 {
        (self.again.len() + self.answered.len()) as u16
    }
}

impl Tracker {
    /// For the queue of that number, with so many entries; `None` if the memory has no room for it.
    pub(crate) fn new(all: &Arc<Inflight>, queue: u16, entries: u16) -> Option<Tracker> {
        let fits = queue < all.queues && entries <= all.entries;
        let base = u64::from(queue) * region_bytes(all.entries);
        fits.then(|| Tracker { all: all.clone(), base, entries })
    }

    /// Whether its memory was taken away.
    pub(crate) fn is_struck(&self) -> bool {
        self.all.mapping.is_struck()
    }

    /// Begins to serve the queue, whose used index is `used`: ends what was being published when the daemon before was killed, and
    /// gives what it had under way.
    pub(crate) fn begin(&mut self, used: u16) -> Left {
        self.u16(8).store(VERSION, Ordering::Relaxed);
        self.u16(10).store(self.all.entries, Ordering::Relaxed);
        let noted = self.u16(14).load(Ordering::Acquire);
        let batch = used.wrapping_sub(noted);
        if batch != 0 && batch <= self.entries {
            let mut head = self.u16(12).load(Ordering::Relaxed);
            for _ in 0..batch {
                if head >= self.entries {
                    break;
                }
                self.u8(head, 0).store(0, Ordering::Relaxed);
                head = self.next(head).load(Ordering::Relaxed);
            }
        }
        self.u16(14).store(used, Ordering::Release);
        let mut left = Left::default();
        for head in 0..self.entries {
            match (self.u8(head, 0).load(Ordering::Acquire), self.u8(head, 1).load(Ordering::Relaxed)) {
                (0, _) => {}
                (_, 0) => left.again.push((self.counter_of(head).load(Ordering::Relaxed), head)),
                _ => left.answered.push(head),
            }
        }
        left.again.sort_unstable();
        left
    }

    /// A request was taken from the available ring.
    pub(crate) fn take(&mut self, head: u16) {
        self.counter_of(head).store(self.all.counter.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        self.u8(head, 1).store(0, Ordering::Relaxed);
        self.u8(head, 0).store(1, Ordering::Release);
    }

    /// The volume has changed what it was to change.
    pub(crate) fn answer(&mut self, head: u16) {
        self.u8(head, 1).store(1, Ordering::Release);
    }

    /// The driver cannot be believed, and its queue is set up anew: nothing of it is to be asked for again.
    pub(crate) fn forget_all(&mut self) {
        (0..self.entries).for_each(|head| self.u8(head, 0).store(0, Ordering::Release));
    }

    /// A request is in the used ring, whose index does not say so yet.
    pub(crate) fn use_next(&mut self, head: u16) {
        let last = self.u16(12).load(Ordering::Relaxed);
        self.next(head).store(last, Ordering::Relaxed);
        self.u16(12).store(head, Ordering::Release);
    }

    /// The used ring's index says so.
    pub(crate) fn published(&mut self, heads: impl Iterator<Item = u16>, used: u16) {
        fence(Ordering::SeqCst);
        for head in heads {
            self.u8(head, 0).store(0, Ordering::Relaxed);
        }
        self.u16(14).store(used, Ordering::Release);
    }

    fn u16(&self, offset: u64) -> &AtomicU16 {
        self.all.u16(self.base + offset)
    }

    fn entry(&self, head: u16) -> u64 {
        assert!(head < self.entries, "entry {head} of {}", self.entries);
        HEADER_BYTES + ENTRY_BYTES * u64::from(head)
    }

    fn u8(&self, head: u16, byte: u64) -> &AtomicU8 {
        self.all.u8(self.base + self.entry(head) + byte)
    }

    fn next(&self, head: u16) -> &AtomicU16 {
        self.u16(self.entry(head) + 6)
    }

    fn counter_of(&self, head: u16) -> &AtomicU64 {
        self.all.u64(self.base + self.entry(head) + 8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tracker(file: &OwnedFd, queue: u16) -> Tracker {
        let all = Arc::new(Inflight::new(file, 0, total_bytes(2, 8), 2, 8).expect("mapped"));
        Tracker::new(&all, queue, 8).expect("there is room")
    }

    fn heads(left: &Left) -> Vec<u16> {
        left.again.iter().map(|(_, head)| *head).collect()
    }

    #[test]
    fn what_was_under_way_comes_again_in_the_order_in_which_it_came() {
        let file = make(2, 8).expect("memory");
        let mut first = tracker(&file, 1);
        assert_eq!(first.begin(5), Left::default());
        for head in [3, 0, 7, 2] {
            first.take(head);
        }
        first.answer(0);
        first.use_next(7);
        first.published([7].into_iter(), 6);
        // Killed here: 0 was carried out, 7 is known to the guest.
        let mut second = tracker(&file, 1);
        let left = second.begin(6);
        assert_eq!((heads(&left), left.answered), (vec![3, 2], vec![0]));
        second.take(7);
        let mut third = tracker(&file, 1);
        let left = third.begin(6);
        assert_eq!((heads(&left), left.answered), (vec![3, 2, 7], vec![0]));
        assert_eq!(tracker(&file, 0).begin(0), Left::default(), "queues are apart");
    }

    /// Killed between the index and the marks: what the index says was told is not told again.
    #[test]
    fn a_batch_that_was_published_half_is_not_run_again() {
        let file = make(2, 8).expect("memory");
        let mut first = tracker(&file, 0);
        first.begin(0xffff);
        [4, 5, 6].into_iter().for_each(|head| first.take(head));
        [5, 4].into_iter().for_each(|head| first.use_next(head));
        assert_eq!(heads(&tracker(&file, 0).begin(0xffff)), [4, 5, 6], "the index does not say so yet");
        [5, 4].into_iter().for_each(|head| first.use_next(head));
        assert_eq!(heads(&tracker(&file, 0).begin(1)), [6], "the index says two");
    }

    #[test]
    fn nonsense_does_no_harm() {
        let file = make(2, 8).expect("memory");
        let mut tracker = tracker(&file, 0);
        for head in 0..8 {
            tracker.take(head);
            tracker.next(head).store(head, Ordering::Relaxed);
        }
        tracker.u16(12).store(0xffff, Ordering::Relaxed);
        assert_eq!(tracker.begin(3).count(), 8);
        tracker.u16(12).store(1, Ordering::Relaxed);
        assert_eq!(tracker.begin(9).count(), 7, "a loop ends");
        assert_eq!(tracker.begin(9 + 9).count(), 7, "a batch is no longer than the queue");
        let all = Arc::new(Inflight::new(&file, 0, total_bytes(2, 8), 2, 8).expect("mapped"));
        assert!(Tracker::new(&all, 2, 8).is_none() && Tracker::new(&all, 0, 9).is_none());
        assert!(Inflight::new(&file, 0, total_bytes(2, 8) - 1, 2, 8).is_err());
        assert!(Inflight::new(&file, 8, total_bytes(2, 8), 2, 8).is_err());
    }
}
