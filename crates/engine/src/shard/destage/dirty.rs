//! Which blocks are dirty, in address order, and since when.
//!
//! One bitmap per 1 MiB extent that has dirty blocks: 56 bytes and a tree entry for up to 256 blocks, so that a densely
//! written region costs almost nothing and a scattered one what its extents cost. The age is kept per extent: that of its oldest
//! dirty block (an extent that is rewritten forever keeps its first age, so it goes home in time).
//!
//! Invariants: `counts[v]` is the number of bits set in the extents of volume `v`; no extent without a bit is kept; `by_age`
//! holds each extent once, with its age, and knows the oldest of each volume.

use crate::key::{ExtentKey, Key};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use types::{EXTENT_BLOCKS, VOLUMES_MAX, VolumeIndex};

/// The dirty blocks of one extent.
#[derive(Clone, Debug)]
pub struct DirtyExtent {
    bits: [u64; 4],
    /// When the oldest of them became dirty.
    pub oldest_ns: u64,
}

impl DirtyExtent {
    /// Whether block `index` of the extent is dirty.
    pub fn contains(&self, index: usize) -> bool {
        self.bits[index / 64] >> (index % 64) & 1 == 1
    }

    /// Indices of dirty blocks, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        (0..EXTENT_BLOCKS as usize).filter(|index| self.contains(*index))
    }

    fn is_empty(&self) -> bool {
        self.bits == [0; 4]
    }
}

/// All dirty blocks of a shard.
pub struct DirtySet {
    extents: BTreeMap<ExtentKey, DirtyExtent>,
    by_age: ByAge,
    counts: Vec<u64>,
    total: u64,
}

/// Extents in the order of their age.
struct ByAge {
    all: BTreeSet<(VolumeIndex, u64, ExtentKey)>,
    /// The first of each volume: asked for at every turn of a shard.
    oldest: Vec<Option<(u64, ExtentKey)>>,
}

impl Default for ByAge {
    fn default() -> ByAge {
        ByAge { all: BTreeSet::new(), oldest: vec![None; VOLUMES_MAX] }
    }
}

impl ByAge {
    fn insert(&mut self, since_ns: u64, extent: ExtentKey) {
        assert!(self.all.insert((extent.volume(), since_ns, extent)), "{extent:?} has one age");
        let oldest = &mut self.oldest[usize::from(extent.volume().0)];
        *oldest = Some(oldest.map_or((since_ns, extent), |oldest| oldest.min((since_ns, extent))));
    }

    fn remove(&mut self, since_ns: u64, extent: ExtentKey) {
        let volume = extent.volume();
        assert!(self.all.remove(&(volume, since_ns, extent)), "{extent:?} has an age");
        let oldest = &mut self.oldest[usize::from(volume.0)];
        if *oldest == Some((since_ns, extent)) {
            let first = self.all.range((volume, 0, ExtentKey(0))..).next();
            *oldest = first.filter(|(owner, ..)| *owner == volume).map(|(_, since_ns, extent)| (*since_ns, *extent));
        }
    }
}

impl Default for DirtySet {
    fn default() -> DirtySet {
        DirtySet { extents: BTreeMap::new(), by_age: ByAge::default(), counts: vec![0; VOLUMES_MAX], total: 0 }
    }
}

impl DirtySet {
    /// The age of what has waited longest.
    pub const OLDEST_NS: u64 = 0;
    /// The age of what a recovery brings: nobody knows since when it is dirty.
    pub const RECOVERED_NS: u64 = 1;

    /// Notes that the block is dirty since `now_ns` (or longer, if it was).
    pub fn insert(&mut self, key: Key, now_ns: u64) {
        // A clock that begins at zero must not make anything look as old as that.
        let now_ns = now_ns.max(DirtySet::RECOVERED_NS);
        let by_age = &mut self.by_age;
        let extent = self.extents.entry(key.extent()).or_insert_with(|| {
            by_age.insert(now_ns, key.extent());
            DirtyExtent { bits: [0; 4], oldest_ns: now_ns }
        });
        let index = (key.0 % EXTENT_BLOCKS) as usize;
        let bit = 1 << (index % 64);
        if extent.bits[index / 64] & bit == 0 {
            extent.bits[index / 64] |= bit;
            self.counts[usize::from(key.volume().0)] += 1;
            self.total += 1;
        }
    }

    /// Notes that the block is not dirty.
    pub fn remove(&mut self, key: Key) {
        let Some(extent) = self.extents.get_mut(&key.extent()) else { return };
        let index = (key.0 % EXTENT_BLOCKS) as usize;
        let bit = 1 << (index % 64);
        if extent.bits[index / 64] & bit != 0 {
            extent.bits[index / 64] &= !bit;
            let count = &mut self.counts[usize::from(key.volume().0)];
            assert!((1..=self.total).contains(count), "{count} dirty blocks of the volume, {} in all", self.total);
            *count -= 1;
            self.total -= 1;
            if extent.is_empty() {
                self.by_age.remove(extent.oldest_ns, key.extent());
                self.extents.remove(&key.extent());
            }
        }
    }

    /// The extent's age is another: it begins anew when its blocks are on their way home, since what is written from then on is young; and
    /// [`DirtySet::OLDEST_NS`] sends it home next.
    pub fn set_age(&mut self, extent: ExtentKey, now_ns: u64) {
        if let Some(dirty) = self.extents.get_mut(&extent) {
            self.by_age.remove(dirty.oldest_ns, extent);
            dirty.oldest_ns = now_ns;
            self.by_age.insert(now_ns, extent);
        }
    }

    /// Whether the block is dirty.
    pub fn contains(&self, key: Key) -> bool {
        self.extents.get(&key.extent()).is_some_and(|extent| extent.contains((key.0 % EXTENT_BLOCKS) as usize))
    }

    /// Dirty blocks of the volume.
    pub fn blocks_of(&self, volume: VolumeIndex) -> u64 {
        self.counts[usize::from(volume.0)]
    }

    /// Dirty blocks of all volumes.
    pub fn blocks(&self) -> u64 {
        self.total
    }

    /// The first extent of the volume at or after `from` with dirty blocks.
    pub fn next_extent(&self, volume: VolumeIndex, from: ExtentKey) -> Option<(ExtentKey, &DirtyExtent)> {
        let (key, extent) = self.extents.range(from..).next()?;
        (key.volume() == volume).then_some((*key, extent))
    }

    /// All extents with dirty blocks, in address order.
    pub fn extents(&self) -> impl Iterator<Item = ExtentKey> + '_ {
        self.extents.keys().copied()
    }

    /// The extent of the volume whose dirty blocks have waited longest, and since when.
    pub fn oldest(&self, volume: VolumeIndex) -> Option<(u64, ExtentKey)> {
        self.by_age.oldest[usize::from(volume.0)]
    }

    /// Extents of the volume that are dirty since that time or longer, oldest first.
    pub fn older_than(&self, volume: VolumeIndex, before_ns: u64) -> impl Iterator<Item = ExtentKey> + '_ {
        let first = (volume, 0, ExtentKey(0));
        let range = self.by_age.all.range(first..);
        range.take_while(move |(owner, since_ns, _)| *owner == volume && *since_ns <= before_ns).map(|(.., extent)| *extent)
    }

    /// Since when the oldest of the volume's dirty blocks are dirty, but for extents that [`DirtySet::set_age`] made the oldest; those that a
    /// recovery brought come before all others, at [`DirtySet::RECOVERED_NS`].
    pub fn oldest_of_known_age(&self, volume: VolumeIndex) -> Option<u64> {
        let first = (volume, DirtySet::RECOVERED_NS, ExtentKey::first_of(volume));
        let (owner, since_ns, _) = self.by_age.all.range(first..).next()?;
        (*owner == volume).then_some(*since_ns)
    }

    /// Every dirty block, for checks.
    pub fn iter(&self) -> impl Iterator<Item = Key> + '_ {
        self.extents.iter().flat_map(|(extent, dirty)| dirty.iter().map(|index| extent.key(index)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::mix;
    use alloc::collections::BTreeSet;

    #[test]
    fn ages_that_are_known_are_told() {
        let mut dirty = DirtySet::default();
        let key = |extent: u64| Key::new(VolumeIndex(1), extent * EXTENT_BLOCKS);
        dirty.insert(Key::new(VolumeIndex(2), 0), 3);
        assert_eq!(dirty.oldest_of_known_age(VolumeIndex(1)), None);
        (1..=3).for_each(|extent| dirty.insert(key(extent), extent * 10));
        dirty.set_age(key(1).extent(), DirtySet::OLDEST_NS);
        assert_eq!(dirty.oldest(VolumeIndex(1)), Some((DirtySet::OLDEST_NS, key(1).extent())));
        assert_eq!(dirty.oldest_of_known_age(VolumeIndex(1)), Some(20));
        dirty.insert(key(4), DirtySet::RECOVERED_NS);
        assert_eq!(dirty.oldest_of_known_age(VolumeIndex(1)), Some(DirtySet::RECOVERED_NS));
    }

    #[test]
    fn agrees_with_a_set() {
        let mut dirty = DirtySet::default();
        let mut model = BTreeSet::new();
        for step in 0..20_000_u64 {
            let random = mix(step);
            let key = Key::new(VolumeIndex((random % 2) as u16), (random >> 8) % 3000);
            if random >> 62 == 0 {
                dirty.remove(key);
                model.remove(&key);
            } else {
                dirty.insert(key, step);
                model.insert(key);
            }
        }
        assert!(dirty.iter().eq(model.iter().copied()));
        assert_eq!(dirty.blocks(), model.len() as u64);
        let of_one = model.iter().filter(|key| key.volume() == VolumeIndex(1)).count() as u64;
        assert_eq!(dirty.blocks_of(VolumeIndex(1)), of_one);
        assert!(dirty.next_extent(VolumeIndex(0), ExtentKey::first_of(VolumeIndex(1))).is_none());
        let (_, oldest) = dirty.oldest(VolumeIndex(1)).expect("blocks are dirty");
        dirty.set_age(oldest, 30_000);
        assert_ne!(dirty.oldest(VolumeIndex(1)).expect("others remain").1, oldest);
        for key in &model {
            dirty.remove(*key);
            let of_volume = dirty.extents.iter().filter(|(extent, _)| extent.volume() == key.volume());
            let recount = of_volume.map(|(extent, blocks)| (blocks.oldest_ns, *extent)).min();
            assert_eq!(dirty.oldest(key.volume()), recount);
        }
        assert!(dirty.extents.is_empty() && dirty.by_age.all.is_empty());
    }
}
