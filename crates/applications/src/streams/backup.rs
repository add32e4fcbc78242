//! Rule *backup*: a scan that has passed over nine tenths of its object, or over three objects in a
//! row.
//!
//! Needs a map, for the size of objects. A full scan by one query passes over its table too and is
//! called the same: what may enter the cache does not differ between the two.

use super::seen::{Evidence, OriginSlot, Place};
use types::ObjectId;

/// Objects whose scans are followed at a time.
const OBJECTS_MAX: usize = 64;
/// Readers whose objects are counted.
const READERS_MAX: usize = 8;
/// An object is taken in so many parts of equal size; which of them were read is one bit each.
const PARTS: u64 = 64;
/// Parts that are nine tenths.
const PARTS_MIN: u32 = 58;
/// Objects in a row that make a backup.
const IN_ROW: u32 = 3;
/// A scan that pauses longer is another one.
const PAUSE_MS: u64 = 60_000;

#[derive(Clone, Copy, Debug)]
struct Pass {
    object: ObjectId,
    bytes: u64,
    parts: u64,
    last_ms: u64,
    whole: bool,
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
        pass.bytes = pass.bytes.saturating_add(len_bytes);
        pass.parts |= parts(place, len_bytes);
        pass.last_ms = at_ms;
        let covered = pass.bytes >= place.object_bytes - place.object_bytes / 10;
        if !pass.whole && covered && pass.parts.count_ones() >= PARTS_MIN {
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
        let fresh = Pass { object, bytes: 0, parts: 0, last_ms: at_ms, whole: false };
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

/// The parts of the object that a range touches, as bits.
fn parts(place: Place, len_bytes: u64) -> u64 {
    let part_bytes = place.object_bytes.div_ceil(PARTS).max(1);
    let first = (place.offset_bytes / part_bytes).min(PARTS - 1);
    let last = (place.offset_bytes.saturating_add(len_bytes.saturating_sub(1)) / part_bytes).min(PARTS - 1);
    let upto = |part: u64| if part >= PARTS - 1 { u64::MAX } else { (1 << (part + 1)) - 1 };
    upto(last) & !(upto(first) >> 1)
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
        assert_eq!(said.iter().position(Option::is_some), Some(89), "90 of 100 MiB");
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

    #[test]
    fn parts_are_bits_of_equal_size() {
        for (offset, len, bits) in [(0, MIB, 1), (0, 100 * MIB, u64::MAX), (99 * MIB, MIB, 1 << 63), (200 * MIB, MIB, 1 << 63), (0, 0, 1)] {
            assert_eq!(parts(place(1, offset), len), bits, "{offset} {len}");
        }
        let odd = Place { object: ObjectId(1), offset_bytes: u64::MAX, object_bytes: 1 };
        assert_eq!(parts(odd, u64::MAX), 1 << 63);
    }
}
