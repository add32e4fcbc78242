//! How far statements about all slots have been repeated, and so which pages of the ring are needed no more.
//!
//! The ring says of each block where it is, once. Before the page that says so may be written over, it is said again: a *sweep* goes
//! round the slots, a few with each page that is written. When it has passed all of them since a page was left for the next one, whatever that page says that is still
//! true stands in a later one: the *tail* passes it.
//!
//! Invariants: `tail <= head`; a page before the tail was left a whole round ago.

use alloc::collections::VecDeque;

/// The sweep is faster than it must be for the ring never to be full: a round takes so much of the pages there are.
const ROUND_NUMERATOR: u64 = 5;
const ROUND_DENOMINATOR: u64 = 8;

/// See the module. Pages bear the number of their group.
#[derive(Debug)]
pub struct Rounds {
    slots: u32,
    /// Pages of the ring that may be in use at once.
    pages: u64,
    /// Slots that the sweep has passed, in all.
    swept: u64,
    /// The first page that is needed.
    tail: u64,
    /// How far the sweep was when a page was begun, from the tail on.
    begun: VecDeque<u64>,
    /// Slots that the sweep owes.
    owed: u64,
}

impl Rounds {
    /// After a start that has stated everything in the pages `first..=last`. Of the ring's pages, `pages` may be in use at once.
    ///
    /// # Panics
    /// If there are no slots, or more pages are in use.
    pub fn new(slots: u32, pages: u64, first: u64, last: u64) -> Rounds {
        let used = last + 1 - first;
        assert!(slots > 0 && used <= pages, "{used} of {pages} pages for {slots} slots");
        Rounds { slots, pages, swept: 0, tail: first, begun: (0..used).map(|_| 0).collect(), owed: 0 }
    }

    /// The first page that a start needs.
    pub fn tail(&self) -> u64 {
        self.tail
    }

    /// The page begun last.
    pub fn head(&self) -> u64 {
        self.tail + self.begun.len() as u64 - 1
    }

    /// A page is begun; gives its number.
    pub fn begin(&mut self) -> u64 {
        self.begun.push_back(self.swept);
        self.owed += (u64::from(self.slots) * ROUND_DENOMINATOR).div_ceil(self.pages * ROUND_NUMERATOR);
        self.head()
    }

    /// So many slots are to be passed, with the page just begun or soon after it.
    pub fn owed(&self) -> u64 {
        self.owed
    }

    /// The slot that is passed now: if something lives in it, that is to be stated in the page that was begun last.
    pub fn pass(&mut self) -> u32 {
        let slot = (self.swept % u64::from(self.slots)) as u32;
        self.swept += 1;
        self.owed = self.owed.saturating_sub(1);
        slot
    }

    /// The tail passes what it can; the page begun last stays. Gives how many pages it has passed.
    pub fn advance(&mut self) -> u64 {
        let before = self.tail;
        // It was left when the next was begun: what is passed before that may be stated in it.
        while self.begun.get(1).is_some_and(|left| self.swept - left >= u64::from(self.slots)) {
            self.begun.pop_front();
            self.tail += 1;
        }
        self.tail - before
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> u64 {
        (self.begun.capacity() * size_of::<u64>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn the_tail_passes_a_page_when_a_round_has_begun_after_it() {
        let mut rounds = Rounds::new(4, 8, 1, 1);
        assert_eq!((rounds.begin(), rounds.head(), rounds.tail()), (2, 2, 1));
        assert_eq!([rounds.pass(), rounds.pass(), rounds.pass()], [0, 1, 2]);
        assert_eq!(rounds.begin(), 3);
        assert_eq!((rounds.pass(), rounds.advance()), (3, 1), "this round began after the first was left");
        assert_eq!((rounds.pass(), rounds.pass(), rounds.advance()), (0, 1, 0));
        assert_eq!((rounds.pass(), rounds.advance()), (2, 1));
        assert_eq!([rounds.pass(), rounds.pass(), rounds.pass(), rounds.pass()], [3, 0, 1, 2]);
        assert_eq!((rounds.advance(), rounds.tail()), (0, 3), "the page begun last stays");
    }

    /// Whatever lives is stated in a page from the tail on, after each step; and the ring is never full, also after a start that has filled
    /// a quarter of it.
    #[test]
    fn what_lives_is_stated_and_the_ring_is_never_full() {
        for (slots, pages) in [(64_u32, 8_u64), (512, 8), (512, 64), (5000, 80), (6400, 100)] {
            let first = 7;
            let last = first + pages / 4;
            let mut rounds = Rounds::new(slots, pages, first, last);
            let mut stated = vec![last; slots as usize];
            for step in 0..20 * pages {
                let page = rounds.begin();
                assert!(page + 1 - rounds.tail() <= pages, "{slots} slots, {pages} pages: full after {step}");
                // A client's write.
                stated[(step * 7919 % u64::from(slots)) as usize] = page;
                while rounds.owed() > 0 {
                    stated[rounds.pass() as usize] = page;
                }
                rounds.advance();
                let tail = rounds.tail();
                assert!(stated.iter().all(|page| *page >= tail), "{slots} slots, {pages} pages: lost at {step}");
            }
        }
    }
}
