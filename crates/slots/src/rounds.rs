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
    /// Slots that the sweep has passed, in all.
    swept: u64,
    /// The first page that is needed.
    tail: u64,
    /// How far the sweep was when a page was begun, from the tail on.
    begun: VecDeque<u64>,
    /// What the sweep owes: slots, and what is to be said of them beyond one statement each.
    owed: u64,
}

impl Rounds {
    /// After a start that has stated everything in the pages `first..=last`.
    ///
    /// # Panics
    /// If there are no slots.
    pub fn new(slots: u32, first: u64, last: u64) -> Rounds {
        assert!(slots > 0, "no slots");
        Rounds { slots, swept: 0, tail: first, begun: (first..=last).map(|_| 0).collect(), owed: 0 }
    }

    /// The first page that a start needs.
    pub fn tail(&self) -> u64 {
        self.tail
    }

    /// The page begun last.
    pub fn head(&self) -> u64 {
        self.tail + self.begun.len() as u64 - 1
    }

    /// A page is begun; gives its number. A round has so much to say now, one for each slot and what is beyond that, and of the ring's pages
    /// `pages` may be in use at once. Where a part of what is in the next slot was said already, in a page before, it is passed in full only a
    /// round later.
    pub fn begin(&mut self, to_say: u64, pages: u64, within_slot: bool) -> u64 {
        self.begun.push_back(self.swept + u64::from(within_slot));
        self.owed += (to_say * ROUND_DENOMINATOR).div_ceil(pages.max(1) * ROUND_NUMERATOR);
        self.head()
    }

    /// So much is to be said, or passed in silence, with the page just begun or soon after it.
    pub fn owed(&self) -> u64 {
        self.owed
    }

    /// The slot that is next: if something lives in it, that is to be stated in the page that was begun last, before it is passed.
    pub fn next(&self) -> u32 {
        (self.swept % u64::from(self.slots)) as u32
    }

    /// Passes the next slot.
    pub fn pass(&mut self) {
        self.swept += 1;
        self.pay(1);
    }

    /// So much was said.
    pub fn pay(&mut self, said: u64) {
        self.owed = self.owed.saturating_sub(said);
    }

    /// Slots that have to be passed before the tail can pass another page, from the next one on.
    pub fn behind(&self) -> u32 {
        self.begun.get(1).map_or(0, |left| (left + u64::from(self.slots)).saturating_sub(self.swept) as u32)
    }

    /// The tail passes what it can; the page begun last stays. Gives how many pages it has passed.
    pub fn advance(&mut self) -> u64 {
        let before = self.tail;
        // It was left when the next was begun: what is passed before that may be stated in it.
        while self.begun.get(1).is_some_and(|left| self.swept >= left + u64::from(self.slots)) {
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
    use alloc::vec::Vec;

    #[test]
    fn the_tail_passes_a_page_when_a_round_has_begun_after_it() {
        let mut rounds = Rounds::new(4, 1, 1);
        let passed = |rounds: &mut Rounds| {
            let slot = rounds.next();
            rounds.pass();
            slot
        };
        assert_eq!((rounds.begin(4, 8, false), rounds.head(), rounds.tail()), (2, 2, 1));
        assert_eq!([0; 3].map(|_| passed(&mut rounds)), [0, 1, 2]);
        assert_eq!(rounds.begin(4, 8, false), 3);
        assert_eq!((passed(&mut rounds), rounds.advance()), (3, 1), "this round began after the first was left");
        assert_eq!((passed(&mut rounds), passed(&mut rounds), rounds.advance()), (0, 1, 0));
        assert_eq!((passed(&mut rounds), rounds.advance()), (2, 1));
        assert_eq!([0; 5].map(|_| passed(&mut rounds)), [3, 0, 1, 2, 3]);
        assert_eq!((rounds.advance(), rounds.tail()), (0, 3), "the page begun last stays");
        rounds.begin(4, 8, true);
        (0..4).for_each(|_| rounds.pass());
        assert_eq!(rounds.advance(), 0, "a part of the slot passed first was said in the page before");
        assert_eq!((passed(&mut rounds), rounds.advance()), (0, 1));
    }

    /// Whatever lives is stated in a page from the tail on, after each step; and the ring is never full, also after a start that has filled
    /// a quarter of it.
    #[test]
    fn what_lives_is_stated_and_the_ring_is_never_full() {
        for (slots, pages) in [(64_u32, 8_u64), (512, 8), (512, 64), (5000, 80), (6400, 100)] {
            let first = 7;
            let last = first + pages / 4;
            let mut rounds = Rounds::new(slots, first, last);
            let mut stated = vec![last; slots as usize];
            for step in 0..20 * pages {
                let page = rounds.begin(slots.into(), pages, false);
                assert!(page + 1 - rounds.tail() <= pages, "{slots} slots, {pages} pages: full after {step}");
                // A client's write.
                stated[(step * 7919 % u64::from(slots)) as usize] = page;
                while rounds.owed() > 0 {
                    stated[rounds.next() as usize] = page;
                    rounds.pass();
                }
                rounds.advance();
                let tail = rounds.tail();
                assert!(stated.iter().all(|page| *page >= tail), "{slots} slots, {pages} pages: lost at {step}");
            }
        }
    }

    /// The same where what lives in a slot takes several statements, and more or fewer as time goes on.
    #[test]
    fn slots_with_much_to_say_of_them_are_passed_in_time() {
        let (slots, pages, a_page) = (600_u32, 64_u64, 124_u64);
        let mut rounds = Rounds::new(slots, 1, 1);
        let mut statements: Vec<u64> = (0..u64::from(slots)).map(|slot| slot * 31 % 8).collect();
        for step in 0..40 * pages {
            let page = rounds.begin(u64::from(slots) + 2 * statements.iter().sum::<u64>(), pages, false);
            assert!(page + 1 - rounds.tail() <= pages, "full after {step}");
            let mut said = 8;
            while rounds.owed() > 0 && said + statements[rounds.next() as usize] <= a_page {
                let of_slot = statements[rounds.next() as usize];
                said += of_slot;
                rounds.pay(2 * of_slot);
                rounds.pass();
            }
            rounds.advance();
            let changed = (step * 7919 % u64::from(slots)) as usize;
            statements.swap(changed, (step % u64::from(slots)) as usize);
        }
    }
}
