//! Rule *backup*: a scan that has read nine tenths of its object, each block once, or three objects
//! in a row.
//!
//! One block in each of 256 parts of an object stands for it. So passes that each read something else
//! are one, as a dump in the order of a scattered key makes them; and passes in which the same blocks
//! come again are no backup, though they add up to the whole: ranges of an application.
//!
//! Needs a map, for the size of objects. A full scan by one query passes over its table too and is
//! called the same: what may enter the cache does not differ between the two.

use super::seen::{Evidence, OriginSlot, Place};
use types::ObjectId;

/// Objects whose scans are followed at a time.
const OBJECTS_MAX: usize = 64;
/// Readers whose objects are counted.
const READERS_MAX: usize = 8;
/// Parts of an object, of which one block each is looked at.
const PARTS: u64 = 256;
/// The least that a part has: a block.
const BLOCK_BYTES: u64 = 4096;
/// Of so many blocks one may be read again.
const ONCE: u32 = 4;
/// Objects in a row that make a backup.
const IN_ROW: u32 = 3;
/// A scan that pauses longer is another one.
const PAUSE_MS: u64 = 60_000;

#[derive(Clone, Copy, Debug)]
struct Pass {
    object: ObjectId,
    /// Parts whose block was read, as bits, and how many they are.
    read: [u64; (PARTS / 64) as usize],
    count: u32,
    /// Blocks that were read again.
    again: u32,
    last_ms: u64,
    whole: bool,
}

impl Pass {
    fn new(object: ObjectId, at_ms: u64) -> Pass {
        Pass { object, read: [0; (PARTS / 64) as usize], count: 0, again: 0, last_ms: at_ms, whole: false }
    }

    /// Takes a range of the object in. Whether nine tenths were read by now, and hardly anything again.
    fn scanned(&mut self, place: Place, len_bytes: u64) -> bool {
        let part_bytes = place.object_bytes.div_ceil(PARTS).next_multiple_of(BLOCK_BYTES);
        let parts = place.object_bytes.div_ceil(part_bytes);
        let end_bytes = place.offset_bytes.saturating_add(len_bytes).min(place.object_bytes);
        for part in place.offset_bytes / part_bytes..end_bytes.div_ceil(part_bytes) {
            let block = part * part_bytes + within(part, part_bytes.min(place.object_bytes - part * part_bytes));
            if !(place.offset_bytes..end_bytes).contains(&block) {
                continue;
            }
            let (word, bit) = (&mut self.read[(part / 64) as usize], 1 << (part % 64));
            let is_new = *word & bit == 0;
            *word |= bit;
            self.count += u32::from(is_new);
            self.again = self.again.saturating_add(u32::from(!is_new));
        }
        u64::from(self.count) * 10 >= parts * 9 && self.again <= self.count / ONCE
    }
}

/// The block of a part of that length that stands for it, any but the same in each.
fn within(part: u64, part_bytes: u64) -> u64 {
    let blocks = part_bytes.div_ceil(BLOCK_BYTES).max(1);
    ((part + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % blocks * BLOCK_BYTES
}

#[derive(Clone, Copy, Debug)]
struct Reader {
    origin: Option<OriginSlot>,
    last: ObjectId,
    last_ms: u64,
    objects: u32,
}

/// What scans have passed over.
#[derive(Debug)]
pub struct Backups {
    passes: Vec<Pass>,
    readers: Vec<Reader>,
}

impl Default for Backups {
    fn default() -> Backups {
        Backups { passes: Vec::with_capacity(OBJECTS_MAX), readers: Vec::with_capacity(READERS_MAX) }
    }
}

impl Backups {
    /// A read of a scan, of `len_bytes` from `place` on; at its confirmation, all that it has read
    /// so far. Says why the scan is a backup, if it is.
    pub fn scanned(&mut self, at_ms: u64, origin: Option<OriginSlot>, place: Place, len_bytes: u64) -> Option<Evidence> {
        let reader = self.reader(at_ms, origin);
        let in_row = reader.is_some_and(|index| self.readers[index].objects >= IN_ROW);
        if place.object_bytes == 0 {
            return in_row.then_some(Evidence::ObjectsInRow);
        }
        let pass = self.pass(at_ms, place.object);
        pass.last_ms = at_ms;
        if pass.scanned(place, len_bytes) && !pass.whole {
            pass.whole = true;
            self.passed(at_ms, origin, place.object);
        }
        let whole = self.pass(at_ms, place.object).whole;
        if in_row { Some(Evidence::ObjectsInRow) } else { whole.then_some(Evidence::WholeObject) }
    }

    /// A reader is through with an object.
    fn passed(&mut self, at_ms: u64, origin: Option<OriginSlot>, object: ObjectId) {
        match self.reader(at_ms, origin) {
            Some(index) => {
                let reader = &mut self.readers[index];
                reader.objects += u32::from(reader.last != object);
                (reader.last, reader.last_ms) = (object, at_ms);
            }
            None => {
                let fresh = Reader { origin, last: object, last_ms: at_ms, objects: 1 };
                if self.readers.len() < READERS_MAX {
                    self.readers.push(fresh);
                } else if let Some(oldest) = self.readers.iter_mut().min_by_key(|reader| reader.last_ms) {
                    *oldest = fresh;
                }
            }
        }
    }

    fn reader(&mut self, at_ms: u64, origin: Option<OriginSlot>) -> Option<usize> {
        self.readers.retain(|reader| at_ms.saturating_sub(reader.last_ms) < PAUSE_MS);
        self.readers.iter().position(|reader| reader.origin == origin)
    }

    fn pass(&mut self, at_ms: u64, object: ObjectId) -> &mut Pass {
        let fresh = Pass::new(object, at_ms);
        let known = self.passes.iter().position(|pass| pass.object == object);
        let index = known.unwrap_or_else(|| {
            if self.passes.len() < OBJECTS_MAX {
                self.passes.push(fresh);
                return self.passes.len() - 1;
            }
            let oldest = self.passes.iter().enumerate().min_by_key(|(_, pass)| pass.last_ms);
            oldest.map_or(0, |(index, _)| index)
        });
        let pass = &mut self.passes[index];
        if pass.object != object || at_ms.saturating_sub(pass.last_ms) >= PAUSE_MS {
            *pass = fresh;
        }
        pass
    }

    /// Memory held, in bytes.
    pub fn bytes(&self) -> usize {
        self.passes.capacity() * size_of::<Pass>() + self.readers.capacity() * size_of::<Reader>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn place(object: u32, offset_bytes: u64) -> Place {
        Place { object: ObjectId(object), offset_bytes, object_bytes: 100 * MIB }
    }

    fn scan(backups: &mut Backups, object: u32, from_ms: u64) -> Vec<Option<Evidence>> {
        (0..100).map(|mib| backups.scanned(from_ms + mib, None, place(object, mib * MIB), MIB)).collect()
    }

    #[test]
    fn nine_tenths_of_an_object_make_a_backup() {
        let said = scan(&mut Backups::default(), 1, 0);
        assert!(said.iter().position(Option::is_some).is_some_and(|at| (88..=92).contains(&at)), "90 of 100 MiB: {said:?}");
        assert_eq!(said[99], Some(Evidence::WholeObject));
    }

    #[test]
    fn one_part_read_many_times_is_no_whole() {
        let mut backups = Backups::default();
        for round in 0..50 {
            for mib in 0..10 {
                assert_eq!(backups.scanned(round * 10 + mib, None, place(1, mib * MIB), MIB), None);
            }
        }
    }

    #[test]
    fn after_three_objects_in_a_row_every_scan_of_that_reader_is_a_backup() {
        let mut backups = Backups::default();
        for object in 1..=3 {
            assert_eq!(scan(&mut backups, object, u64::from(object) * 1000)[0], None);
        }
        assert_eq!(scan(&mut backups, 4, 4000)[0], Some(Evidence::ObjectsInRow));
        let other = Some(OriginSlot(3));
        assert_eq!(backups.scanned(4100, other, place(5, 0), MIB), None, "another reader");
        assert_eq!(backups.scanned(100_000, None, place(6, 0), MIB), None, "later");
    }

    #[test]
    fn the_same_object_again_and_again_is_not_several() {
        let mut backups = Backups::default();
        for pass in 0..5 {
            let said = scan(&mut backups, 1, pass * 100_000);
            assert_eq!(said[0], None, "{pass}");
        }
    }

    /// Each pass reads another tenth of the blocks, some of them again: an index by a scattered key.
    #[test]
    fn passes_in_which_blocks_come_again_are_no_backup() {
        let (mut backups, mut state) = (Backups::default(), 7u64);
        let mut random = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state >> 33
        };
        for pass in 0..100 {
            for page in (0..12_800).filter(|_| random() % 10 == 0) {
                assert_eq!(backups.scanned(pass, None, place(1, page * 8192), 8192), None, "{pass}");
            }
        }
        // Ten passes that each read another tenth are one.
        let mut backups = Backups::default();
        for pass in 0..10 {
            for page in (pass..12_800).step_by(10) {
                backups.scanned(pass, None, place(2, page * 8192), 8192);
            }
        }
        assert_eq!(backups.scanned(10, None, place(2, 0), 8192), Some(Evidence::WholeObject));
    }

    #[test]
    fn odd_places_and_small_objects_do_no_harm() {
        let mut backups = Backups::default();
        for (offset_bytes, object_bytes, len) in
            [(0, 1, 1), (u64::MAX, 1, u64::MAX), (0, u64::MAX, u64::MAX), (u64::MAX - 1, u64::MAX, 5), (3, 8192, 0)]
        {
            backups.scanned(0, None, Place { object: ObjectId(1), offset_bytes, object_bytes }, len);
        }
        let small = |offset_bytes| Place { object: ObjectId(2), offset_bytes, object_bytes: 20_000 };
        let said: Vec<_> = (0..3).map(|read| backups.scanned(0, None, small(read * 8192), 8192)).collect();
        assert_eq!(said, [None, None, Some(Evidence::WholeObject)]);
    }
}
