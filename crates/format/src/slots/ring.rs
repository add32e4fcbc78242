//! Where a ring lies among the pages of its shard's part.

/// See the module. All other pages of the part are slots, and keep their numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RingPlace {
    /// Its first page, counted from the beginning of the part.
    pub first: u32,
    /// How many pages it has, side by side; at least one.
    pub pages: u32,
}

impl RingPlace {
    /// The page of the part that a group is written to.
    pub const fn page_of(&self, group: u64) -> u32 {
        self.first + (group % self.pages as u64) as u32
    }

    /// Whether a page of the part belongs to the ring.
    pub const fn contains(&self, page: u32) -> bool {
        page >= self.first && page - self.first < self.pages
    }

    /// Whether all of these pages do.
    pub const fn contains_all(&self, first: u32, pages: u32) -> bool {
        first >= self.first && first + pages <= self.first + self.pages
    }

    /// The slot that so many slots are before.
    pub const fn nth_slot(&self, nth: u32) -> u32 {
        if nth < self.first { nth } else { nth + self.pages }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn all_pages_are_slots_or_of_the_ring() {
        for first in 0..=12 {
            let ring = RingPlace { first, pages: 8 };
            let slots: Vec<u32> = (0..12).map(|nth| ring.nth_slot(nth)).collect();
            let expected: Vec<u32> = (0..20).filter(|page| !ring.contains(*page)).collect();
            assert_eq!(slots, expected, "{ring:?}");
            assert!((0..100).all(|group| ring.contains(ring.page_of(group))));
            assert!(ring.contains_all(first, 8) && ring.contains_all(first + 3, 2) && !ring.contains_all(first + 3, 6));
        }
    }
}
