//! Which part of the cache the block in a plain slot belongs to: three bits a slot, beside its entry, and how many slots each part has.
//!
//! Only an index that was asked for it keeps them ([`super::Index::keep_parts`]). What a part means is the policy's affair.
//!
//! Invariant: an empty slot is of part 0 and counted nowhere; `counts` counts all others.

use super::NoMemory;
use alloc::vec::Vec;

/// Parts that can be told apart.
pub const PARTS: usize = 8;
const PLANES: usize = PARTS.ilog2() as usize;

/// See the module. The bits lie in planes, so that 64 slots are compared at once.
#[derive(Default)]
pub(super) struct Parts {
    planes: [Vec<u64>; PLANES],
    counts: [u32; PARTS],
}

impl Parts {
    pub(super) fn new(slots: u32) -> Result<Parts, NoMemory> {
        let words = slots.div_ceil(u64::BITS) as usize;
        let no_memory = NoMemory { bytes: (words * size_of::<u64>() * PLANES) as u64 };
        let plane = || page::zeroed(words).ok_or(no_memory);
        Ok(Parts { planes: [plane()?, plane()?, plane()?], counts: [0; PARTS] })
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.planes.iter().map(|plane| (plane.capacity() * size_of::<u64>()) as u64).sum()
    }

    pub(super) fn counts(&self) -> [u32; PARTS] {
        self.counts
    }

    #[inline]
    pub(super) fn get(&self, slot: u32) -> u8 {
        let (word, bit) = ((slot / u64::BITS) as usize, slot % u64::BITS);
        (0..PLANES).fold(0, |part, plane| part | ((self.planes[plane][word] >> bit & 1) as u8) << plane)
    }

    /// A block came into the slot, which was empty.
    #[inline]
    pub(super) fn enter(&mut self, slot: u32, part: u8) {
        self.set(slot, part);
        self.counts[usize::from(part)] += 1;
    }

    /// The block of the slot belongs to another part.
    #[inline]
    pub(super) fn change(&mut self, slot: u32, part: u8) {
        let before = self.get(slot);
        if before != part {
            self.counts[usize::from(before)] -= 1;
            self.enter(slot, part);
        }
    }

    /// The slot is empty.
    #[inline]
    pub(super) fn leave(&mut self, slot: u32) {
        self.counts[usize::from(self.get(slot))] -= 1;
        self.set(slot, 0);
    }

    #[inline]
    fn set(&mut self, slot: u32, part: u8) {
        assert!(usize::from(part) < PARTS, "part {part}");
        let (word, bit) = ((slot / u64::BITS) as usize, slot % u64::BITS);
        for (plane, words) in self.planes.iter_mut().enumerate() {
            words[word] = words[word] & !(1 << bit) | u64::from(part >> plane & 1) << bit;
        }
    }

    /// All of one part, which is not 0, are of another.
    pub(super) fn merge(&mut self, part: u8, into: u8) {
        assert!(part != 0 && part != into && usize::from(part.max(into)) < PARTS, "part {part} into {into}");
        for word in 0..self.planes[0].len() {
            let same = |plane: usize| if part >> plane & 1 == 1 { self.planes[plane][word] } else { !self.planes[plane][word] };
            let found = (0..PLANES).fold(u64::MAX, |found, plane| found & same(plane));
            for (plane, words) in self.planes.iter_mut().enumerate() {
                words[word] = if into >> plane & 1 == 1 { words[word] | found } else { words[word] & !found };
            }
        }
        self.counts[usize::from(into)] += core::mem::take(&mut self.counts[usize::from(part)]);
    }

    /// The first slot of `first..end` that is of this part, which is not 0. Empty slots are of none.
    pub(super) fn first_of(&self, part: u8, first: u32, end: u32) -> Option<u32> {
        assert!(part != 0 && usize::from(part) < PARTS, "part {part}");
        let mut word = first / u64::BITS;
        let mut mask = u64::MAX << (first % u64::BITS);
        while word * u64::BITS < end {
            let same = |plane: usize| {
                let bits = self.planes[plane][word as usize];
                if part >> plane & 1 == 1 { bits } else { !bits }
            };
            let found = (0..PLANES).fold(mask, |found, plane| found & same(plane));
            if found != 0 {
                return Some(word * u64::BITS + found.trailing_zeros()).filter(|slot| *slot < end);
            }
            (word, mask) = (word + 1, u64::MAX);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_kept_counted_and_found() {
        let mut parts = Parts::new(1000).expect("room");
        let part_of = |slot: u32| (slot.wrapping_mul(0x9e37_79b9) >> 20) as u8 % 8;
        (0..1000).for_each(|slot| parts.enter(slot, part_of(slot)));
        (0..1000).step_by(3).for_each(|slot| parts.leave(slot));
        (0..1000).step_by(6).for_each(|slot| parts.enter(slot, 5));
        (1..1000).step_by(3).for_each(|slot| parts.change(slot, 2));
        (2..1000).step_by(3).for_each(|slot| parts.change(slot, if part_of(slot) == 4 { 7 } else { part_of(slot) }));
        parts.merge(7, 4);
        let expected = |slot: u32| match slot {
            _ if slot % 3 == 1 => Some(2),
            _ if slot.is_multiple_of(6) => Some(5),
            _ if slot.is_multiple_of(3) => None,
            _ => Some(if part_of(slot) == 7 { 4 } else { part_of(slot) }),
        };
        for slot in 0..1000 {
            assert_eq!(parts.get(slot), expected(slot).unwrap_or(0), "slot {slot}");
        }
        for part in 0..8 {
            let count = (0..1000).filter(|slot| expected(*slot) == Some(part)).count();
            assert_eq!(parts.counts()[usize::from(part)] as usize, count, "part {part}");
        }
        for (first, end) in [(0, 1000), (63, 65), (64, 128), (100, 101), (999, 1000), (500, 500)] {
            for part in 1..8 {
                let found = (first..end).find(|slot| expected(*slot) == Some(part));
                assert_eq!(parts.first_of(part, first, end), found, "part {part} in {first}..{end}");
            }
        }
    }
}
