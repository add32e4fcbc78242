//! Rule *chain*: leaf pages that are read in key order, wherever they lie.
//!
//! A page of a B-tree names the one before it. When that one was read a short while ago, this read
//! continues its run; from 16 on the run is a scan. So a dump by a session of the server is found
//! even where the keys lie scattered over the file: 0.998 of its bytes on the recorded load, where
//! the size of requests and their order on the device find nothing.
//!
//! How long a while? Among 4096 leaves the hot, neighbouring leaves of point reads make runs by
//! chance: with it 0.955 of what is marked is a scan. Among the last 1024 it is 0.998 and the
//! recall is the same to the third digit (0.2109, 0.2105 of all scans), so that is what is kept; a
//! quarter of the memory.

use super::seen::PageAt;
use std::ops::Range;

/// Leaves that are remembered.
pub const LEAVES_MAX: usize = 1024;
/// Leaves in a row that make a scan.
pub const RUN_MIN: u16 = 16;

/// Cells of the index: twice the leaves, so that searches stay short.
const CELLS: usize = 2 * LEAVES_MAX;
/// No leaf.
const NONE: u16 = u16::MAX;

const _: () = assert!(CELLS.is_power_of_two(), "cells are found by masking");
const _: () = assert!(CELLS < NONE as usize, "leaves are numbered in 16 bits");

#[derive(Clone, Copy, Debug)]
struct Leaf {
    owner: u64,
    offset_bytes: u64,
    number: u32,
    len_bytes: u32,
    /// Leaves in a row up to this one.
    run: u16,
    /// The one before it, if it is remembered.
    before: u16,
}

/// The leaves that were read last, and the runs they make.
#[derive(Debug)]
pub struct Chains {
    /// A ring: the leaf read next takes the place of the oldest.
    leaves: Vec<Leaf>,
    next: usize,
    /// Open addressing with linear probes: where a leaf is in the ring.
    cells: Vec<u16>,
}

impl Default for Chains {
    fn default() -> Chains {
        Chains { leaves: Vec::with_capacity(LEAVES_MAX), next: 0, cells: vec![NONE; CELLS] }
    }
}

impl Chains {
    /// A leaf was read. Says whether it belongs to a scan; when the run has just become one, the
    /// leaves before it are added to `confirmed`.
    pub fn read(&mut self, page: &PageAt, confirmed: &mut Vec<Range<u64>>) -> bool {
        if !page.leaf {
            return false;
        }
        let before = match page.prev {
            Some(prev) if prev != page.number => self.find(page.owner, prev).map_or(NONE, |(_, leaf)| leaf),
            _ => NONE,
        };
        let run = if before == NONE { 1 } else { self.leaves[usize::from(before)].run.saturating_add(1) };
        // A leaf that is read again keeps no second entry: the run it had is forgotten.
        if let Some((cell, _)) = self.find(page.owner, page.number) {
            self.empty(cell);
        }
        let leaf = Leaf { owner: page.owner, offset_bytes: page.offset_bytes, number: page.number, len_bytes: page.len_bytes, run, before };
        self.remember(leaf);
        if run == RUN_MIN {
            self.tell(page.owner, before, confirmed);
        }
        run >= RUN_MIN
    }

    /// Walks a run back. A leaf may have given its place to another since: then the walk ends.
    fn tell(&self, owner: u64, mut at: u16, confirmed: &mut Vec<Range<u64>>) {
        let from = confirmed.len();
        for run in (1..RUN_MIN).rev() {
            let Some(leaf) = self.leaves.get(usize::from(at)) else { break };
            if leaf.run != run || leaf.owner != owner {
                break;
            }
            confirmed.push(leaf.offset_bytes..leaf.offset_bytes.saturating_add(u64::from(leaf.len_bytes)));
            at = leaf.before;
        }
        confirmed[from..].reverse();
    }

    fn remember(&mut self, leaf: Leaf) {
        let at = self.next;
        if at < self.leaves.len() {
            let old = self.leaves[at];
            if let Some((cell, found)) = self.find(old.owner, old.number)
                && usize::from(found) == at
            {
                self.empty(cell);
            }
            self.leaves[at] = leaf;
        } else {
            self.leaves.push(leaf);
        }
        self.next = (at + 1) % LEAVES_MAX;
        let mut cell = home(leaf.owner, leaf.number);
        while self.cells[cell] != NONE {
            cell = (cell + 1) % CELLS;
        }
        self.cells[cell] = at as u16;
    }

    /// The cell and the place in the ring of a leaf.
    fn find(&self, owner: u64, number: u32) -> Option<(usize, u16)> {
        let mut cell = home(owner, number);
        while self.cells[cell] != NONE {
            let leaf = &self.leaves[usize::from(self.cells[cell])];
            if leaf.number == number && leaf.owner == owner {
                return Some((cell, self.cells[cell]));
            }
            cell = (cell + 1) % CELLS;
        }
        None
    }

    /// Empties a cell; those behind it that would no longer be found move up.
    fn empty(&mut self, mut hole: usize) {
        let mut cell = hole;
        loop {
            cell = (cell + 1) % CELLS;
            if self.cells[cell] == NONE {
                break;
            }
            let leaf = &self.leaves[usize::from(self.cells[cell])];
            let wanted = home(leaf.owner, leaf.number);
            if cell.wrapping_sub(wanted) % CELLS >= cell.wrapping_sub(hole) % CELLS {
                self.cells[hole] = self.cells[cell];
                hole = cell;
            }
        }
        self.cells[hole] = NONE;
    }

    /// Memory held, in bytes.
    pub fn bytes(&self) -> usize {
        self.leaves.capacity() * size_of::<Leaf>() + self.cells.capacity() * size_of::<u16>()
    }
}

/// Where the search for a leaf begins; multiplicative hashing by the golden ratio.
fn home(owner: u64, number: u32) -> usize {
    let mixed = (owner ^ (owner >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93) ^ u64::from(number);
    (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % CELLS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(owner: u64, number: u32, prev: Option<u32>) -> PageAt {
        PageAt {
            offset_bytes: u64::from(number.wrapping_mul(7919) % 100_003) * 16384,
            len_bytes: 16384,
            owner,
            number,
            prev,
            next: None,
            level: 0,
            leaf: true,
            log: false,
        }
    }

    #[test]
    fn a_run_of_sixteen_scattered_leaves_is_a_scan_and_tells_the_first_fifteen() {
        let (mut chains, mut confirmed) = (Chains::default(), Vec::new());
        let numbers: Vec<u32> = (0..40).map(|step| 1000 + step * 37 % 41).collect();
        for (at, number) in numbers.iter().enumerate() {
            // Other sessions read in between.
            for stranger in 0..20 {
                let other = (at * 20 + stranger) as u32 * 2 + 5000;
                assert!(!chains.read(&leaf(9, other, Some(other + 99_999)), &mut confirmed));
            }
            let prev = at.checked_sub(1).map(|before| numbers[before]);
            assert_eq!(chains.read(&leaf(5, *number, prev), &mut confirmed), at >= 15, "{at}");
        }
        let first: Vec<u64> = numbers[..15].iter().map(|number| leaf(5, *number, None).offset_bytes).collect();
        assert_eq!(confirmed.iter().map(|range| range.start).collect::<Vec<_>>(), first);
    }

    #[test]
    fn other_indexes_levels_and_long_pauses_make_no_run() {
        let (mut chains, mut confirmed) = (Chains::default(), Vec::new());
        for number in 0..100u32 {
            let page = leaf(u64::from(number % 2), number, number.checked_sub(1));
            assert!(!chains.read(&page, &mut confirmed), "two indexes");
            let branch = PageAt { leaf: false, level: 1, ..leaf(3, number, number.checked_sub(1)) };
            assert!(!chains.read(&branch, &mut confirmed), "not a leaf");
        }
        let mut stranger = 1_000_000;
        for number in 0..20u32 {
            assert!(!chains.read(&leaf(4, number, number.checked_sub(1)), &mut confirmed), "too long ago");
            for _ in 0..LEAVES_MAX {
                stranger += 2;
                chains.read(&leaf(8, stranger, None), &mut confirmed);
            }
        }
        assert!(confirmed.is_empty());
    }

    #[test]
    fn pages_that_lie_about_their_neighbours_end_nothing() {
        let (mut chains, mut confirmed) = (Chains::default(), Vec::new());
        let mut state = 1u64;
        for _ in 0..100_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (number, prev) = ((state >> 40) as u32 % 300, (state >> 33) as u32 % 300);
            chains.read(&leaf(state >> 62, number, Some(prev)), &mut confirmed);
        }
        let held = chains.cells.iter().filter(|cell| **cell != NONE).count();
        assert!(held <= LEAVES_MAX, "{held}");
        for _ in 0..100 {
            assert!(!chains.read(&leaf(9, 7, Some(7)), &mut confirmed), "its own neighbour is no run");
        }
    }

    #[test]
    fn what_is_remembered_is_what_a_plain_list_remembers() {
        let (mut chains, mut confirmed) = (Chains::default(), Vec::new());
        let mut list: Vec<(u64, u32, u16)> = Vec::new();
        let mut state = 42u64;
        for step in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (owner, number) = (state >> 63, (state >> 35) as u32 % 2500);
            let prev = number.checked_sub(1 + (state >> 20) as u32 % 2);
            let run_of = |wanted: u32| list.iter().rev().take(LEAVES_MAX).find(|entry| (entry.0, entry.1) == (owner, wanted));
            let run = prev.and_then(run_of).map_or(1, |entry| entry.2.saturating_add(1));
            list.push((owner, number, run));
            assert_eq!(chains.read(&leaf(owner, number, prev), &mut confirmed), run >= RUN_MIN, "{step}");
        }
    }
}
