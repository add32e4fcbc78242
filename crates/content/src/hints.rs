//! A bounded memory of keys: which object had one last. Direct-mapped, the newest wins, nothing is promised.

use alloc::vec;
use alloc::vec::Vec;

/// Number of an object in its store; never 0.
pub type ObjectId = u32;

/// No object: memory as it comes from the system, so that a large table costs what is used of it.
const NONE: ObjectId = 0;

/// See the module. 8 bytes a place.
#[derive(Debug)]
pub struct Hints {
    /// The key's upper half, and the object.
    places: Vec<(u32, ObjectId)>,
}

impl Hints {
    /// An empty memory of that many places; with 0 nothing is ever remembered.
    pub fn new(places: usize) -> Hints {
        Hints { places: vec![(0, NONE); places] }
    }

    /// The object that had this key last, perhaps.
    pub fn get(&self, key: u64) -> Option<ObjectId> {
        let (tag, object) = *self.places.get(self.place(key)?)?;
        (object != NONE && tag == (key >> 32) as u32).then_some(object)
    }

    /// The object has this key.
    pub fn put(&mut self, key: u64, object: ObjectId) {
        if let Some(place) = self.place(key) {
            self.places[place] = ((key >> 32) as u32, object);
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.places.fill((0, NONE));
    }

    /// Bytes on the heap.
    pub fn memory_bytes(&self) -> u64 {
        (self.places.capacity() * size_of::<(u32, ObjectId)>()) as u64
    }

    fn place(&self, key: u64) -> Option<usize> {
        // Multiply-shift of the lower half: the upper one is the tag.
        (!self.places.is_empty()).then(|| (((key & 0xffff_ffff) * self.places.len() as u64) >> 32) as usize)
    }
}

/// Such a memory that grows with what it is to remember, a small table at a time, so that nobody waits for long. Two places for a key: the newer
/// first.
#[derive(Debug)]
pub struct GrowingHints {
    /// By the key's lower half; the place within by its upper half, which is the tag.
    tables: Vec<Table>,
    bytes: u64,
    bytes_max: u64,
}

#[derive(Debug)]
struct Table {
    places: Vec<(u32, ObjectId)>,
    taken: u32,
}

/// Places of a table to begin with: its first growth copies 4 KiB.
const TABLE_PLACES: usize = 512;

/// Bytes of a place.
const PLACE_BYTES: u64 = size_of::<(u32, ObjectId)>() as u64;

impl GrowingHints {
    /// An empty memory of that many places to begin with; with 0 nothing is ever remembered.
    pub fn new(places: usize) -> GrowingHints {
        let count = places.div_ceil(TABLE_PLACES);
        // An even number: two for a key.
        let each = places.checked_div(count).unwrap_or(0).next_multiple_of(2);
        let table = || Table { places: vec![(0, NONE); each], taken: 0 };
        let bytes = (count * each) as u64 * PLACE_BYTES;
        GrowingHints { tables: (0..count).map(|_| table()).collect(), bytes, bytes_max: bytes }
    }

    /// It may grow up to so many bytes; it never shrinks.
    pub fn allow(&mut self, bytes_max: u64) {
        self.bytes_max = self.bytes_max.max(bytes_max);
    }

    /// The object that had this key last, perhaps.
    pub fn get(&self, key: u64) -> Option<ObjectId> {
        let tag = (key >> 32) as u32;
        let table = &self.tables.get(self.table(key))?.places;
        let pair = &table[pair_of(tag, table.len())..][..2];
        pair.iter().find(|(held, object)| *held == tag && *object != NONE).map(|(_, object)| *object)
    }

    /// The object has this key.
    pub fn put(&mut self, key: u64, object: ObjectId) {
        let at = self.table(key);
        let Some(table) = self.tables.get_mut(at) else { return };
        table.put((key >> 32) as u32, object);
        let more = (table.places.len() / 2).next_multiple_of(2);
        let more_bytes = more as u64 * PLACE_BYTES;
        if table.taken as usize >= table.places.len() / 8 * 5 && self.bytes + more_bytes <= self.bytes_max {
            table.grow(more);
            self.bytes += more_bytes;
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        for table in &mut self.tables {
            table.places.fill((0, NONE));
            table.taken = 0;
        }
    }

    /// Bytes on the heap.
    pub fn memory_bytes(&self) -> u64 {
        self.bytes + (self.tables.capacity() * size_of::<Table>()) as u64
    }

    fn table(&self, key: u64) -> usize {
        (((key & 0xffff_ffff) * self.tables.len() as u64) >> 32) as usize
    }
}

/// The first of the two places of a tag.
fn pair_of(tag: u32, places: usize) -> usize {
    ((u64::from(tag) * (places as u64 / 2)) >> 32) as usize * 2
}

impl Table {
    fn put(&mut self, tag: u32, object: ObjectId) {
        let first = pair_of(tag, self.places.len());
        let pair = &mut self.places[first..first + 2];
        if pair[0].1 != NONE && pair[0].0 != tag {
            self.taken += u32::from(pair[1].1 == NONE);
            pair[1] = pair[0];
        } else {
            self.taken += u32::from(pair[0].1 == NONE);
        }
        pair[0] = (tag, object);
    }

    fn grow(&mut self, more: usize) {
        let old = core::mem::take(&mut self.places);
        self.places = vec![(0, NONE); old.len() + more];
        self.taken = 0;
        for pair in old.chunks_exact(2) {
            // The newer last, so that it stands first again.
            pair.iter().rev().filter(|(_, object)| *object != NONE).for_each(|(tag, object)| self.put(*tag, *object));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_of_a_place_is_remembered() {
        let mut hints = Hints::new(16);
        let key_of = |object: u64| (object << 59) | (object << 28);
        (1..100).for_each(|object: u64| hints.put(key_of(object), object as u32));
        let found: Vec<u64> = (1..100).filter(|object| hints.get(key_of(*object)) == Some(*object as u32)).collect();
        assert!(!found.is_empty() && found.len() <= 16);
        hints.clear();
        assert!((1..100).all(|object: u64| hints.get(key_of(object)).is_none()));
        let mut none = Hints::new(0);
        none.put(1, 1);
        assert_eq!(none.get(1), None);
    }

    #[test]
    fn what_grows_keeps_what_it_has_and_its_bound() {
        let key_of = |object: u64| object.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut hints = GrowingHints::new(2048);
        let begun = hints.memory_bytes();
        let known =
            |hints: &GrowingHints, count: u64| (1..=count).filter(|object| hints.get(key_of(*object)) == Some(*object as u32)).count();
        (1..=20_000).for_each(|object| hints.put(key_of(object), object as u32));
        assert_eq!(hints.memory_bytes(), begun, "nothing was allowed");
        assert!(known(&hints, 20_000) <= 2048 && known(&hints, 20_000) > 1500, "{}", known(&hints, 20_000));
        hints.clear();
        hints.allow(160_000);
        (1..=20_000).for_each(|object| hints.put(key_of(object), object as u32));
        assert!(hints.memory_bytes() > 120_000 && hints.memory_bytes() < 165_000, "{} bytes", hints.memory_bytes());
        assert!(known(&hints, 20_000) > 9_500, "{} of 20,000 with a place for each", known(&hints, 20_000));
        hints.put(key_of(7), 9);
        assert_eq!(hints.get(key_of(7)), Some(9));
        let mut none = GrowingHints::new(0);
        none.put(1, 1);
        assert_eq!((none.get(1), none.memory_bytes()), (None, 0));
    }
}
