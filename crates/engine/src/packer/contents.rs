//! The content of objects that other blocks may rest on, kept in memory apart from the RAM tier, which keeps what clients use.
//!
//! A clock: what was of use since the hand passed stays for another round. Bounded; everything here may go at any moment.

use crate::key::Map;
use alloc::collections::VecDeque;
use page::Page;

struct Held {
    object: u64,
    page: Page,
    used: bool,
}

/// See the module.
#[derive(Default)]
pub struct Contents {
    /// By the lower half of the object's number, which is what hints remember.
    held: Map<u32, Held>,
    order: VecDeque<u32>,
    pages_max: usize,
}

impl Contents {
    /// Room for that many pages.
    pub fn new(pages_max: usize) -> Contents {
        Contents { pages_max, ..Contents::default() }
    }

    /// The number and content of an object by the lower half of its number.
    pub fn by_hint(&self, hint: u32) -> Option<(u64, &Page)> {
        self.held.get(&hint).map(|held| (held.object, &held.page))
    }

    /// The content of an object.
    pub fn get(&self, object: u64) -> Option<&Page> {
        self.by_hint(object as u32).filter(|(found, _)| *found == object).map(|(_, page)| page)
    }

    /// The object was of use: keep it, and others leave for it.
    pub fn keep(&mut self, object: u64, page: &Page) {
        if self.pages_max == 0 {
            return;
        }
        match self.held.get_mut(&(object as u32)) {
            Some(held) if held.object == object => held.used = true,
            Some(held) => *held = Held { object, page: page.clone(), used: false },
            None => {
                self.held.insert(object as u32, Held { object, page: page.clone(), used: false });
                self.order.push_back(object as u32);
                self.shrink_to(self.pages_max);
            }
        }
        assert!(self.held.len() <= self.pages_max, "{} pages of {}", self.held.len(), self.pages_max);
    }

    /// The object is no more.
    pub fn forget(&mut self, object: u64) {
        if self.get(object).is_some() {
            self.held.remove(&(object as u32));
        }
    }

    /// Lets go until at most so many are left.
    pub fn shrink_to(&mut self, pages: usize) {
        while self.held.len() > pages {
            let next = self.order.pop_front().expect("all that is held has a place in the order");
            match self.held.get_mut(&next) {
                Some(held) if held.used => {
                    held.used = false;
                    self.order.push_back(next);
                }
                Some(_) => drop(self.held.remove(&next)),
                None => {}
            }
        }
        // Objects that were forgotten leave their place in the order behind.
        if self.order.len() > 2 * self.held.len() + 64 {
            let held = &self.held;
            let mut seen = crate::key::Set::default();
            self.order.retain(|hint| held.contains_key(hint) && seen.insert(*hint));
        }
    }

    /// Pages held.
    pub fn pages(&self) -> usize {
        self.held.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use page::PagePool;

    #[test]
    fn what_was_used_stays_longer_and_the_bound_holds() {
        let pool = PagePool::new(100);
        let page = pool.allocate_zeroed().expect("a page").freeze();
        let mut contents = Contents::new(4);
        (1..=4).for_each(|object| contents.keep(object, &page));
        contents.keep(2, &page);
        (5..=6).for_each(|object| contents.keep(object, &page));
        assert_eq!(contents.pages(), 4);
        assert!(contents.get(2).is_some() && contents.get(1).is_none() && contents.get(6).is_some());
        assert!(contents.get(2 + (1 << 32)).is_none(), "another object with the same lower half");
        contents.forget(2);
        assert!(contents.get(2).is_none());
        for object in 10..10_000 {
            contents.keep(object, &page);
            contents.forget(object);
        }
        assert!(contents.order.len() < 200, "{} places for {} pages", contents.order.len(), contents.pages());
        contents.shrink_to(0);
        assert_eq!(contents.pages(), 0);
    }
}
