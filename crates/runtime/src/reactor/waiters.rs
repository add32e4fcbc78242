//! Lines of those who wait for pages.
//!
//! Per page pool, first come, first served: while somebody waits, later comers wait behind, so that a large allocation is not starved
//! by many small ones. Reads of bare volumes have a line of their own, and a share of the pool that clients' writes must leave them:
//! a write that has its pages may have to wait until reads are answered, so no read may wait for writes.

use super::Reactor;
use crate::endpoint::EndpointKey;
use crate::volume::VolumeShared;
use page::{PageMutVec, PagePool};
use std::collections::VecDeque;

/// Who waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Who {
    Endpoint(EndpointKey),
    /// A read of a bare volume, by request number.
    BareRead(u32),
}

struct Waiter {
    who: Who,
    pages: usize,
    reserved: usize,
    line: Line,
    pool: PagePool,
}

/// Which line: of this page pool, for reads of bare volumes or for clients' writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Line {
    pool_number: u32,
    is_read: bool,
}

/// The line of one reactor.
#[derive(Default)]
pub(crate) struct PageWaiters {
    line: VecDeque<Waiter>,
    /// Whose turn it is just now: it may allocate though others wait.
    turn: Option<Who>,
}

impl PageWaiters {
    pub(crate) fn is_empty(&self) -> bool {
        self.line.is_empty()
    }

    pub(crate) fn allocate_for_endpoint(&mut self, key: EndpointKey, volume: &VolumeShared, pages: usize) -> Option<PageMutVec> {
        self.allocate(Who::Endpoint(key), volume, volume.reserved_pages, pages)
    }

    pub(crate) fn allocate_for_bare_read(&mut self, request: u32, volume: &VolumeShared, pages: usize) -> Option<PageMutVec> {
        self.allocate(Who::BareRead(request), volume, 0, pages)
    }

    fn allocate(&mut self, who: Who, volume: &VolumeShared, reserved: usize, pages: usize) -> Option<PageMutVec> {
        let (pool, line) = (&volume.pages, Line { pool_number: volume.pool_number, is_read: matches!(who, Who::BareRead(_)) });
        // Who waited for another pool does so no more: its volume has changed.
        self.line.retain(|waiter| waiter.who != who || waiter.line == line);
        let may = self.turn == Some(who) || !self.line.iter().any(|waiter| waiter.line == line);
        let taken = if may { allocate_all(pool, reserved, pages) } else { None };
        if taken.is_none() && !self.line.iter().any(|waiter| waiter.who == who) {
            let waiter = Waiter { who, pages, reserved, line, pool: pool.clone() };
            // One whose turn it was keeps its place.
            if self.turn == Some(who) { self.line.push_front(waiter) } else { self.line.push_back(waiter) }
        }
        taken
    }

    /// The endpoint is gone.
    pub(crate) fn forget(&mut self, key: EndpointKey) {
        self.line.retain(|waiter| waiter.who != Who::Endpoint(key));
    }

    /// Takes out the first whose pages are there and before whom nobody waits for the same pool.
    fn next_served(&mut self) -> Option<Who> {
        let index = (0..self.line.len()).find(|&index| {
            let waiter = &self.line[index];
            let first = !self.line.range(..index).any(|earlier| earlier.line == waiter.line);
            first && has_room(&waiter.pool, waiter.reserved, waiter.pages)
        })?;
        self.line.remove(index).map(|waiter| waiter.who)
    }
}

fn has_room(pool: &PagePool, reserved: usize, pages: usize) -> bool {
    pool.pages_out() + pages + reserved <= pool.pages_max()
}

fn allocate_all(pool: &PagePool, reserved: usize, pages: usize) -> Option<PageMutVec> {
    if !has_room(pool, reserved, pages) {
        return None;
    }
    // Another thread may be faster.
    pool.allocate_many(pages)
}

impl Reactor {
    /// Tells those whose pages have come back.
    pub(crate) fn offer_pages(&mut self) {
        // Everyone in line now gets one chance, then the ring gets its turn.
        for _ in 0..self.page_waiters.line.len() {
            let Some(who) = self.page_waiters.next_served() else { return };
            self.page_waiters.turn = Some(who);
            match who {
                Who::Endpoint(key) => self.call(key, |endpoint, cx| endpoint.pages_available(cx)),
                Who::BareRead(request) => self.start_bare_read(request),
            }
            self.page_waiters.turn = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_come_first_served_and_a_failed_turn_keeps_its_place() {
        let volume = VolumeShared::for_test(PagePool::new(4), 1);
        let key = |slot| EndpointKey { slot, generation: 0 };
        let mut waiters = PageWaiters::default();
        let held = waiters.allocate(Who::Endpoint(key(0)), &volume, 1, 3).expect("three of four, one reserved");
        assert!(waiters.allocate(Who::Endpoint(key(1)), &volume, 1, 3).is_none());
        assert!(waiters.allocate(Who::Endpoint(key(2)), &volume, 1, 0).is_none(), "behind the other");
        assert_eq!(waiters.next_served(), None);
        drop(held);
        assert_eq!(waiters.next_served(), Some(Who::Endpoint(key(1))));
        waiters.turn = Some(Who::Endpoint(key(1)));
        assert!(waiters.allocate(Who::Endpoint(key(1)), &volume, 1, 4).is_none());
        waiters.turn = None;
        waiters.forget(key(2));
        assert_eq!(waiters.line[0].who, Who::Endpoint(key(1)));
    }
}
