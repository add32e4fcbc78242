//! Slots whose last statement is not durable yet: which group said it.

use crate::key::Map;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

/// See the module.
pub struct Young {
    /// One bit a slot: most reads are of slots that are not young, and need to know no more.
    map: Vec<u64>,
    groups: Map<u32, u64>,
    /// In the order of groups.
    order: VecDeque<(u64, u32)>,
}

impl Young {
    /// None of so many slots is young.
    pub fn new(slots: u32) -> Young {
        Young { map: vec![0; slots.div_ceil(u64::BITS) as usize], groups: Map::default(), order: VecDeque::new() }
    }

    /// The group said something of the slot.
    pub fn add(&mut self, slot: u32, group: u64) {
        self.map[(slot / u64::BITS) as usize] |= 1 << (slot % u64::BITS);
        self.groups.insert(slot, group);
        self.order.push_back((group, slot));
    }

    /// The group that said something of a slot last, if it is not durable.
    #[inline]
    pub fn group_of(&self, slot: u32) -> Option<u64> {
        let is_young = self.map[(slot / u64::BITS) as usize] >> (slot % u64::BITS) & 1 != 0;
        if is_young { self.groups.get(&slot).copied() } else { None }
    }

    /// All groups up to this one are durable.
    pub fn durable(&mut self, group: u64) {
        while let Some((_, slot)) = self.order.pop_front_if(|(of, _)| *of <= group) {
            if self.groups.get(&slot).is_some_and(|last| *last <= group) {
                self.groups.remove(&slot);
                self.map[(slot / u64::BITS) as usize] &= !(1 << (slot % u64::BITS));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_young_until_the_last_that_was_said_of_it_is_durable() {
        let mut young = Young::new(100);
        young.add(70, 1);
        young.add(71, 1);
        young.add(70, 3);
        assert_eq!((young.group_of(70), young.group_of(71), young.group_of(72)), (Some(3), Some(1), None));
        young.durable(2);
        assert_eq!((young.group_of(70), young.group_of(71)), (Some(3), None));
        young.durable(3);
        assert_eq!(young.group_of(70), None);
    }
}
