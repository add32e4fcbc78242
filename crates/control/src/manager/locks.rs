//! The order in which the manager's locks are taken. A thread that holds one takes later ones only, so no two threads wait for each other. Tests
//! check it at each lock that is taken.
//!
//! No lock is held during a call to the data path. Locks of single rooms (`starting.rs`, `stop_watch.rs`, `copies.rs`) are taken with none of these
//! held, or are held by themselves: a turn at an SSD comes before all of them.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The locks, the first that may be taken first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Rank {
    /// What is saved of watches ([`Watches`](super::insight_saved::Watches)).
    Watches,
    /// What is known of loads.
    Insight,
    /// Connections to servers of applications.
    Connections,
    /// State and conditions of pools and volumes ([`Memory`](super::desk::Memory)).
    Memory,
    /// The newest sample.
    Newest,
    /// Notices that repeat.
    Repeats,
}

/// A lock with its place in the order.
pub(super) struct Ranked<T> {
    rank: Rank,
    mutex: Mutex<T>,
}

impl<T> Ranked<T> {
    /// A lock of that rank.
    pub(super) fn new(rank: Rank, value: T) -> Ranked<T> {
        Ranked { rank, mutex: Mutex::new(value) }
    }

    /// Takes the lock; also after a holder has panicked. The state changes as a whole or not at all; of loads, samples and repeats a part may be
    /// missing then, on which no data depends.
    pub(super) fn lock(&self) -> Held<'_, T> {
        let turn = Turn::take(self.rank);
        Held { guard: self.mutex.lock().unwrap_or_else(PoisonError::into_inner), _turn: turn }
    }
}

/// A lock that is held.
pub(super) struct Held<'a, T> {
    // Given back before its turn ends.
    guard: MutexGuard<'a, T>,
    _turn: Turn,
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

/// One lock of this thread, in tests; nothing otherwise.
struct Turn(#[cfg(any(test, feature = "fake"))] Rank);

#[cfg(any(test, feature = "fake"))]
thread_local! {
    static HELD: std::cell::RefCell<Vec<Rank>> = const { std::cell::RefCell::new(Vec::new()) };
}

#[cfg(any(test, feature = "fake"))]
impl Turn {
    fn take(rank: Rank) -> Turn {
        HELD.with_borrow_mut(|held| {
            assert!(
                held.iter().all(|other| *other < rank),
                "the lock {rank:?} is taken while {held:?} are held: see the order in locks.rs"
            );
            held.push(rank);
        });
        Turn(rank)
    }
}

#[cfg(any(test, feature = "fake"))]
impl Drop for Turn {
    fn drop(&mut self) {
        HELD.with_borrow_mut(|held| held.retain(|rank| *rank != self.0));
    }
}

#[cfg(not(any(test, feature = "fake")))]
impl Turn {
    fn take(_rank: Rank) -> Turn {
        Turn()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_locks_may_be_taken_while_earlier_ones_are_held() {
        let (first, second) = (Ranked::new(Rank::Insight, 1), Ranked::new(Rank::Memory, 2));
        let held = first.lock();
        assert_eq!(*second.lock() + *held, 3);
        drop(held);
        drop(second.lock());
        drop(first.lock());
    }

    #[test]
    #[should_panic(expected = "see the order in locks.rs")]
    fn an_earlier_lock_is_not_taken_while_a_later_one_is_held() {
        let (first, second) = (Ranked::new(Rank::Insight, 1), Ranked::new(Rank::Memory, 2));
        let _held = second.lock();
        drop(first.lock());
    }
}
