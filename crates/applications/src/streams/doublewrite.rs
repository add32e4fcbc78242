//! Rule *doublewrite*: second places of known pages, rewritten under other names and never read.
//!
//! InnoDB writes a batch of pages to one fixed area first, then each to its own place. So in that
//! area pages say numbers that do not belong there, and every batch puts other pages into the same
//! slots. Both must hold: a page that only lies at a second place can be a copy of a table's file,
//! and its slots keep their names. One read that is no scan (a recovery, or a table after all) ends
//! the finding.

use super::seen::{PageAt, Seen};

/// Regions of 1 MiB that are watched at a time: sixteen areas of MariaDB (2 MiB each).
const REGIONS_MAX: usize = 32;
const REGION_BYTES: u64 = 1 << 20;
/// Slots are pages of 16 KiB, InnoDB's usual size; smaller pages share a slot.
const SLOT_BYTES: u64 = 16 << 10;
const SLOTS: usize = (REGION_BYTES / SLOT_BYTES) as usize;
/// Pages at a second place, and slots that changed their page, before a region is called
/// doublewrite.
const PAGES_MIN: u32 = 16;
/// Counts are halved here, so that what was long ago weighs less.
const PAGES_HALVED: u32 = 4096;

#[derive(Clone, Debug)]
struct Region {
    index: u64,
    used: u64,
    /// Pages that live elsewhere.
    strangers: u32,
    /// Pages that live here.
    at_home: u32,
    /// Slots that were given another page.
    changed: u32,
    /// Which page was written last to each slot; 0 is none.
    slots: [u32; SLOTS],
}

impl Region {
    fn is_doublewrite(&self) -> bool {
        self.strangers >= PAGES_MIN && self.changed >= PAGES_MIN && self.at_home * 20 <= self.strangers
    }
}

/// The regions of a volume where pages lie that live elsewhere.
#[derive(Debug)]
pub struct Doublewrites {
    regions: Vec<Region>,
    tick: u64,
}

impl Default for Doublewrites {
    fn default() -> Doublewrites {
        Doublewrites { regions: Vec::with_capacity(REGIONS_MAX), tick: 0 }
    }
}

impl Doublewrites {
    /// A write and its pages; says whether all of them went to a doublewrite area.
    pub fn written(&mut self, seen: &Seen) -> bool {
        self.tick += 1;
        for page in seen.pages {
            self.page_written(page);
        }
        !seen.pages.is_empty() && seen.pages.iter().all(|page| self.holds(page.offset_bytes))
    }

    fn holds(&self, offset_bytes: u64) -> bool {
        self.regions.iter().any(|region| region.index == offset_bytes / REGION_BYTES && region.is_doublewrite())
    }

    fn page_written(&mut self, page: &PageAt) {
        let index = page.offset_bytes / REGION_BYTES;
        let stranger = page.home_bytes.is_some_and(|home| home != page.offset_bytes);
        let found = self.regions.iter().position(|region| region.index == index);
        let Some(at) = found.or_else(|| stranger.then(|| self.fresh(index))) else { return };
        let region = &mut self.regions[at];
        region.used = self.tick;
        region.strangers += u32::from(stranger);
        region.at_home += u32::from(page.home_bytes == Some(page.offset_bytes));
        let slot = &mut region.slots[(page.offset_bytes % REGION_BYTES / SLOT_BYTES) as usize];
        let name = name(page);
        region.changed += u32::from(*slot != 0 && *slot != name);
        *slot = name;
        if region.strangers.max(region.at_home).max(region.changed) >= PAGES_HALVED {
            region.strangers /= 2;
            region.at_home /= 2;
            region.changed /= 2;
        }
    }

    fn fresh(&mut self, index: u64) -> usize {
        let region = Region { index, used: 0, strangers: 0, at_home: 0, changed: 0, slots: [0; SLOTS] };
        if self.regions.len() < REGIONS_MAX {
            self.regions.push(region);
            return self.regions.len() - 1;
        }
        let oldest = self.regions.iter().enumerate().min_by_key(|(_, region)| region.used).map_or(0, |(at, _)| at);
        self.regions[oldest] = region;
        oldest
    }

    /// A read that is no scan: what is read is no doublewrite area.
    pub fn read(&mut self, seen: &Seen) {
        let range = seen.range();
        let (first, last) = (range.start / REGION_BYTES, range.end.saturating_sub(1) / REGION_BYTES);
        self.regions.retain(|region| region.index < first || last < region.index);
    }

    /// First bytes of the regions of 1 MiB that are doublewrite areas now.
    pub fn found(&self) -> impl Iterator<Item = u64> + '_ {
        self.regions.iter().filter(|region| region.is_doublewrite()).map(|region| region.index * REGION_BYTES)
    }

    /// Memory held, in bytes.
    pub fn bytes(&self) -> usize {
        self.regions.capacity() * size_of::<Region>()
    }
}

/// Owner and number in 32 bits, never 0. Two pages of one name in one slot hide one change of it.
fn name(page: &PageAt) -> u32 {
    let mixed = page.owner.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(page.number).wrapping_mul(0xd6e8_feb8_6659_fd93);
    ((mixed >> 32) ^ mixed) as u32 | 1
}

#[cfg(test)]
mod tests {
    use super::*;

    const AREA: u64 = 5 << 20;

    fn page(offset_bytes: u64, number: u32, home_bytes: Option<u64>) -> PageAt {
        PageAt { offset_bytes, len_bytes: 16384, owner: 7, number, prev: None, next: None, level: 0, leaf: true, log: false, home_bytes }
    }

    fn write(found: &mut Doublewrites, pages: &[PageAt]) -> bool {
        found.written(&Seen {
            at_ms: 0,
            offset_bytes: pages[0].offset_bytes,
            len_bytes: pages.len() as u32 * 16384,
            write: true,
            origin: None,
            place: None,
            pages,
        })
    }

    fn home(number: u32) -> u64 {
        (1 << 30) + u64::from(number) * 16384
    }

    #[test]
    fn batches_of_other_pages_in_the_same_slots_are_doublewrite_and_their_homes_are_not() {
        let mut found = Doublewrites::default();
        for round in 0..50u32 {
            let numbers: Vec<u32> = (0..24).map(|at| (round * 24 + at) * 31 % 2000).collect();
            let batch: Vec<PageAt> =
                numbers.iter().zip(0..).map(|(number, at)| page(AREA + at * 16384, *number, Some(home(*number)))).collect();
            assert_eq!(write(&mut found, &batch), round >= 1, "{round}");
            for number in numbers {
                assert!(!write(&mut found, &[page(home(number), number, Some(home(number)))]));
            }
        }
        assert_eq!(found.found().collect::<Vec<_>>(), [AREA]);
        let read = Seen { at_ms: 0, offset_bytes: AREA, len_bytes: 4096, write: false, origin: None, place: None, pages: &[] };
        found.read(&read);
        assert_eq!(found.found().count(), 0);
    }

    #[test]
    fn a_copy_of_a_file_is_no_doublewrite() {
        let mut found = Doublewrites::default();
        for pass in 0..5 {
            for number in 0..64 {
                assert!(!write(&mut found, &[page(AREA + u64::from(number) * 16384, number, Some(home(number)))]), "{pass}");
            }
        }
    }

    #[test]
    fn pages_whose_home_is_unknown_say_nothing() {
        let mut found = Doublewrites::default();
        for round in 0..100 {
            assert!(!write(&mut found, &[page(AREA, round, None)]));
        }
        assert_eq!(found.regions.len(), 0);
    }
}
