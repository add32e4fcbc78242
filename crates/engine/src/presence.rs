//! Where a shard has cached blocks, coarsely: what a discard of terabytes asks instead of looking for each block of its range.
//!
//! The address space is cut into regions of 64 extents. A region that has cached blocks has an entry of 16 bytes: how many, and a bit for
//! each extent that may have some. A bit is set when a block enters, and cleared when the region has no block left or a range
//! request has seen that the extent has none; so an extent without its bit has no block, and one with it has to be looked at.
//!
//! A block counts once for the SSD and once for RAM. The entries are spread over several tables, so that none takes long to grow.
//!
//! Invariants: a region's count is the number of its blocks in the index plus those in RAM; a region without blocks has no entry; the
//! extent of every block has its bit set.

use crate::key::{ExtentKey, Key, Map};
use core::ops::Range;
use types::EXTENT_BLOCKS;

/// Extents of a region: as many as a word has bits.
const REGION_EXTENTS: u64 = u64::BITS as u64;

/// Tables that entries are spread over. A volume of 64 TiB has a million regions: a table of 65,536 entries grows within a millisecond.
const TABLES: usize = 16;

#[derive(Clone, Copy, Default)]
struct Region {
    blocks: u32,
    extents: u64,
}

/// See the module.
#[derive(Default)]
pub struct Presence {
    tables: [Map<u32, Region>; TABLES],
}

/// Of the pool: volume and address in one number of 30 bits.
fn region_of(extent: ExtentKey) -> u32 {
    (extent.0 / REGION_EXTENTS) as u32
}

fn bit_of(extent: ExtentKey) -> u64 {
    1 << (extent.0 % REGION_EXTENTS)
}

/// What [`Presence::next_extent`] has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// An extent that may have blocks.
    Extent(ExtentKey),
    /// None so far: go on from here.
    NoneBefore(ExtentKey),
}

impl Presence {
    /// The block has entered the index, or RAM.
    #[inline]
    pub fn enter(&mut self, key: Key) {
        self.enter_many(key.extent(), 1);
    }

    fn enter_many(&mut self, extent: ExtentKey, blocks: u32) {
        let number = region_of(extent);
        let region = self.tables[number as usize % TABLES].entry(number).or_default();
        region.blocks += blocks;
        region.extents |= bit_of(extent);
    }

    /// The block has left the index, or RAM.
    #[inline]
    pub fn leave(&mut self, key: Key) {
        let number = region_of(key.extent());
        let table = &mut self.tables[number as usize % TABLES];
        let region = table.get_mut(&number).expect("a block that leaves was counted");
        region.blocks -= 1;
        if region.blocks == 0 {
            table.remove(&number);
        }
    }

    /// The first extent of the range that may have blocks. Looks at `regions_max` regions at most.
    pub fn next_extent(&self, range: Range<ExtentKey>, regions_max: u32) -> Found {
        let mut from = range.start;
        for _ in 0..regions_max {
            let number = region_of(from);
            let extents = self.tables[number as usize % TABLES].get(&number).map_or(0, |region| region.extents);
            let ahead = extents >> (from.0 % REGION_EXTENTS);
            if ahead != 0 {
                let found = ExtentKey(from.0 + u64::from(ahead.trailing_zeros()));
                return if found < range.end { Found::Extent(found) } else { Found::NoneBefore(range.end) };
            }
            from = ExtentKey((from.0 / REGION_EXTENTS + 1) * REGION_EXTENTS);
            if from >= range.end {
                return Found::NoneBefore(range.end);
            }
        }
        Found::NoneBefore(from)
    }

    /// The extent has been looked at: it has no block.
    pub fn is_empty_now(&mut self, extent: ExtentKey) {
        let number = region_of(extent);
        if let Some(region) = self.tables[number as usize % TABLES].get_mut(&number) {
            region.extents &= !bit_of(extent);
        }
    }

    /// Memory of the tables, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.tables.iter().map(|table| table.allocation_size() as u64).sum()
    }

    /// Compares with all blocks that are in the index or RAM, those in both given twice; for tests and the simulator.
    ///
    /// # Panics
    /// If they differ.
    pub fn check(&self, keys: impl Iterator<Item = Key>) {
        let mut counts: Map<u32, u32> = Map::default();
        for key in keys {
            let (number, extent) = (region_of(key.extent()), key.extent());
            *counts.entry(number).or_default() += 1;
            let bits = self.tables[number as usize % TABLES].get(&number).map_or(0, |region| region.extents);
            assert!(bits & bit_of(extent) != 0, "extent {} has a block and no bit: {key:?}", extent.0 * EXTENT_BLOCKS);
        }
        let entries = self.tables.iter().flat_map(|table| table.iter());
        assert_eq!(counts.len(), entries.clone().count(), "regions with blocks");
        for (number, region) in entries {
            assert_eq!(counts.get(number), Some(&region.blocks), "blocks of region {number}");
        }
    }
}

/// Counts blocks of which nobody is to hear before all are known, as a start finds them: neighbours in time are often neighbours in place.
#[derive(Default)]
pub struct Gathering {
    presence: Presence,
    /// The extent that came last, and how many blocks of it.
    run: Option<(ExtentKey, u32)>,
}

impl Gathering {
    /// Reads what [`Gathering::add`] reads first: the waits for several of these overlap.
    #[inline]
    pub fn approach(&self, key: Key) {
        let number = region_of(key.extent());
        core::hint::black_box(self.presence.tables[number as usize % TABLES].get(&number).is_some());
    }

    /// One more block.
    #[inline]
    pub fn add(&mut self, key: Key) {
        match &mut self.run {
            Some((extent, blocks)) if *extent == key.extent() => *blocks += 1,
            _ => {
                self.settle();
                self.run = Some((key.extent(), 1));
            }
        }
    }

    fn settle(&mut self) {
        if let Some((extent, blocks)) = self.run.take() {
            self.presence.enter_many(extent, blocks);
        }
    }

    /// All of them.
    pub fn finish(mut self) -> Presence {
        self.settle();
        self.presence
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::mix;
    use alloc::collections::BTreeMap;
    use alloc::vec::Vec;
    use types::VolumeIndex;

    fn found_in(presence: &Presence, range: Range<ExtentKey>, regions_max: u32) -> Vec<ExtentKey> {
        let (mut found, mut from) = (Vec::new(), range.start);
        while from < range.end {
            match presence.next_extent(from..range.end, regions_max) {
                Found::Extent(extent) => {
                    found.push(extent);
                    from = ExtentKey(extent.0 + 1);
                }
                Found::NoneBefore(next) => {
                    assert!(next > from && next <= range.end);
                    from = next;
                }
            }
        }
        found
    }

    #[test]
    fn every_extent_with_a_block_is_found_and_none_outside_the_range() {
        let mut presence = Presence::default();
        let mut model: BTreeMap<Key, u32> = BTreeMap::new();
        for step in 0..6_000_u64 {
            let random = mix(step);
            let key = Key::new(VolumeIndex((random % 2) as u16), ((random >> 8) % 600_000) & !63);
            let count = model.entry(key).or_default();
            if *count == 0 || *count < 2 && random >> 63 == 0 {
                *count += 1;
                presence.enter(key);
            } else {
                *count -= 1;
                presence.leave(key);
            }
            if step % 200 != 0 {
                continue;
            }
            model.retain(|_, count| *count > 0);
            presence.check(model.iter().flat_map(|(key, count)| (0..*count).map(|_| *key)));
            let (a, b) = ((random >> 16) % 2_400, (random >> 40) % 2_400);
            let extent = |number| Key::new(VolumeIndex(1), number * EXTENT_BLOCKS).extent();
            let range = extent(a.min(b))..extent(a.max(b) + 1);
            let found = found_in(&presence, range.clone(), 1 + (random % 7) as u32);
            assert!(found.is_sorted() && found.iter().all(|extent| range.contains(extent)));
            let mut expected: Vec<ExtentKey> = model.keys().map(|key| key.extent()).filter(|extent| range.contains(extent)).collect();
            expected.dedup();
            assert!(expected.iter().all(|extent| found.contains(extent)));
            let stale: Vec<ExtentKey> = found.iter().filter(|extent| !expected.contains(extent)).copied().collect();
            stale.iter().for_each(|extent| presence.is_empty_now(*extent));
            assert_eq!(found_in(&presence, range, 64), expected, "what was seen to be empty is not met again");
        }
    }

    #[test]
    fn a_start_counts_as_entering_one_by_one_does() {
        let keys: Vec<Key> = (0..2_000).map(|step| Key::new(VolumeIndex(3), mix(step / 5) % 100_000 + step % 5)).collect();
        let mut gathering = Gathering::default();
        keys.iter().for_each(|key| gathering.add(*key));
        gathering.finish().check(keys.into_iter());
    }

    #[test]
    fn twenty_tebibytes_without_a_block_are_passed_in_some_thousand_looks() {
        let presence = Presence::default();
        let range = ExtentKey::first_of(VolumeIndex(0))..ExtentKey(20 << 20);
        let mut looks = 0;
        let mut from = range.start;
        while let Found::NoneBefore(next) = presence.next_extent(from..range.end, 4_096)
            && next < range.end
        {
            (from, looks) = (next, looks + 1);
        }
        assert_eq!(looks, (20 << 20) / REGION_EXTENTS / 4_096 - 1);
    }
}
