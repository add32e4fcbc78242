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
}
