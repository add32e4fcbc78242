//! Rows of one dictionary table, from pages that come in any order and more than once.
//!
//! Invariants: of each page the newest copy seen counts, and what an older copy said is gone; of a
//! row that two pages hold, the one of the page with the higher LSN counts. Never more than
//! [`ROWS_MAX`] rows and [`PAGES_MAX`] pages.

use std::collections::BTreeMap;

/// Rows of a kind at most.
pub const ROWS_MAX: usize = 1 << 16;
/// Pages of a table that are kept track of at most. A page has some ten rows and more.
const PAGES_MAX: usize = 1 << 14;

#[derive(Debug)]
struct Row<V> {
    page: u64,
    lsn: u64,
    value: V,
}

#[derive(Debug)]
pub(crate) struct Rows<K, V> {
    rows: BTreeMap<K, Row<V>>,
    /// The LSN of the newest copy of each page.
    pages: BTreeMap<u64, u64>,
    conflicts: u64,
}

impl<K, V> Default for Rows<K, V> {
    fn default() -> Self {
        Rows { rows: BTreeMap::new(), pages: BTreeMap::new(), conflicts: 0 }
    }
}

impl<K: Ord + Copy, V: PartialEq> Rows<K, V> {
    /// Begins a page: forgets what older copies of it said. `false` if a copy at least as new was
    /// read.
    pub(crate) fn begin(&mut self, page: u64, lsn: u64) -> bool {
        let full = self.pages.len() >= PAGES_MAX;
        match self.pages.get_mut(&page) {
            Some(known) if *known >= lsn => return false,
            Some(known) => {
                *known = lsn;
                self.rows.retain(|_, row| row.page != page);
            }
            None if full => return false,
            None => {
                self.pages.insert(page, lsn);
            }
        }
        true
    }

    /// A row of the page that was begun.
    pub(crate) fn put(&mut self, page: u64, lsn: u64, key: K, value: V) {
        if let Some(known) = self.rows.get_mut(&key) {
            self.conflicts += u64::from(known.page != page && known.value != value);
            if known.lsn <= lsn {
                *known = Row { page, lsn, value };
            }
        } else if self.rows.len() < ROWS_MAX {
            self.rows.insert(key, Row { page, lsn, value });
        }
    }

    pub(crate) fn get(&self, key: K) -> Option<&V> {
        self.rows.get(&key).map(|row| &row.value)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (K, &V)> {
        self.rows.iter().map(|(key, row)| (*key, &row.value))
    }

    pub(crate) fn conflicts(&self) -> u64 {
        self.conflicts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_copy_of_a_page_counts_in_any_order() {
        let mut rows = Rows::default();
        assert!(rows.begin(7, 200));
        rows.put(7, 200, 1, "new");
        assert!(!rows.begin(7, 100), "an older copy");
        assert!(rows.begin(7, 300));
        assert_eq!(rows.get(1), None, "the newest copy has no such row");
    }

    #[test]
    fn a_row_in_two_pages_is_that_of_the_newer_page() {
        let mut rows = Rows::default();
        rows.begin(1, 200);
        rows.put(1, 200, 5, "newer");
        rows.begin(2, 100);
        rows.put(2, 100, 5, "older");
        assert_eq!((rows.get(5), rows.conflicts()), (Some(&"newer"), 1));
    }

    #[test]
    fn rows_are_bounded() {
        let mut rows = Rows::default();
        rows.begin(1, 1);
        (0..2 * ROWS_MAX).for_each(|key| rows.put(1, 1, key, ()));
        assert_eq!(rows.iter().count(), ROWS_MAX);
    }
}
