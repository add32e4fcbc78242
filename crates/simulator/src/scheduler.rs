//! Virtual time: a queue of what will happen, ordered by time and, among equals, by a draw from the seed.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::prng::Prng;

struct Entry<E> {
    at_ns: u64,
    tie: u64,
    event: E,
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    /// Reversed: the heap gives its greatest first, and we want the earliest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at_ns, other.tie).cmp(&(self.at_ns, self.tie))
    }
}

/// The clock and the queue.
pub struct Scheduler<E> {
    now_ns: u64,
    heap: BinaryHeap<Entry<E>>,
    prng: Prng,
}

impl<E> Scheduler<E> {
    /// An empty queue at time zero.
    pub fn new(prng: Prng) -> Scheduler<E> {
        Scheduler { now_ns: 0, heap: BinaryHeap::new(), prng }
    }

    /// What orders equals.
    pub fn prng(&mut self) -> &mut Prng {
        &mut self.prng
    }

    /// Now, in virtual nanoseconds.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Lets `event` happen `delay_ns` from now.
    pub fn after(&mut self, delay_ns: u64, event: E) {
        let at_ns = self.now_ns.saturating_add(delay_ns);
        let tie = self.prng.bits();
        self.heap.push(Entry { at_ns, tie, event });
    }

    /// The time of the next event.
    pub fn next_at(&self) -> Option<u64> {
        self.heap.peek().map(|entry| entry.at_ns)
    }

    /// Takes the next event and moves the clock to it.
    pub fn pop(&mut self) -> Option<E> {
        let entry = self.heap.pop()?;
        self.now_ns = self.now_ns.max(entry.at_ns);
        Some(entry.event)
    }

    /// Moves the clock, never back.
    pub fn advance_to(&mut self, at_ns: u64) {
        self.now_ns = self.now_ns.max(at_ns);
    }

    /// Forgets everything that was to happen (the machine died), keeping what `keep` says.
    pub fn retain(&mut self, keep: impl Fn(&E) -> bool) {
        self.heap = std::mem::take(&mut self.heap).into_iter().filter(|entry| keep(&entry.event)).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_time_never_goes_back() {
        let mut scheduler = Scheduler::new(Prng::new(1));
        for delay in [5, 1, 9, 1, 0] {
            scheduler.after(delay, delay);
        }
        let mut seen = Vec::new();
        while let Some(event) = scheduler.pop() {
            assert_eq!(scheduler.now_ns(), event);
            seen.push(event);
        }
        assert_eq!(seen, [0, 1, 1, 5, 9]);
    }
}
