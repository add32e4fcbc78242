//! Whether the neighbours of a block that is missed will be wanted too: what a read of the backing device may bring along.
//!
//! An extent is cut into groups of eight blocks. Of each group the block is kept that a small read asked for last; a read of another one says that
//! neighbours are used there. What part of an extent's reads say so is counted over its last hundred or so. Extents share entries, and take them
//! from each other: what is remembered of an extent is a guess, and a wrong one costs a longer read.

use crate::key::{ExtentKey, Key, mix};
use alloc::vec;
use alloc::vec::Vec;
use types::EXTENT_BLOCKS;

/// Blocks of a group; a group begins at a multiple of it.
pub const GROUP_BLOCKS: u64 = 8;
const GROUPS: usize = (EXTENT_BLOCKS / GROUP_BLOCKS) as usize;
/// Blocks of the cache for each entry.
const ROOM_BLOCKS_AN_ENTRY: u64 = 128;
const ENTRIES_MIN: u64 = 64;
const ENTRIES_MAX: u64 = 1 << 20;
/// So much of an extent's reads have to say that neighbours are used.
const PAYS_PERCENT: u32 = 30;
/// Reads of an extent that are counted before the counts are halved, and its groups forgotten.
const READS_MAX: u8 = 128;

/// Of one extent, in 20 bytes.
#[derive(Clone, Copy)]
struct Entry {
    /// Two groups a byte: 8 more than the number in its group of the block that was read last; 0 if none was.
    last: [u8; GROUPS / 2],
    /// Bits of the extent's number that its place does not tell.
    tag: u16,
    /// Reads of a group of which another block had been read before.
    near: u8,
    reads: u8,
}

const _: () = assert!(size_of::<Entry>() == 20 && GROUP_BLOCKS == 8);

const NONE: Entry = Entry { last: [0; GROUPS / 2], tag: 0, near: 0, reads: 0 };

/// What became lately of what came along, of one volume.
#[derive(Clone, Copy, Default)]
pub struct Worth {
    used: u16,
    /// Those that left without being used.
    unused: u16,
}

/// One block in so many that come along has to be used.
const USED_ONE_IN: u16 = 8;
/// Blocks whose fate is counted before the counts are halved, and the fewest that say anything.
const FATES_MAX: u16 = 2048;
const FATES_MIN: u16 = 64;
/// Where it is not worth it one extent in so many goes on with it, so that a change is seen.
const TRIED_ONE_IN: u64 = 16;

impl Worth {
    /// A block that had come along is used, or left unused.
    pub fn note(&mut self, is_used: bool) {
        if is_used {
            self.used += 1;
        } else {
            self.unused += 1;
        }
        if self.used + self.unused == FATES_MAX {
            (self.used, self.unused) = (self.used / 2, self.unused / 2);
        }
    }

    fn is_worth_it(self) -> bool {
        let all = self.used + self.unused;
        all < FATES_MIN || self.used >= all / USED_ONE_IN
    }
}

/// See the module.
pub struct Neighbours {
    entries: Vec<Entry>,
    /// Nothing comes along, whatever is known.
    is_off: bool,
}

impl Neighbours {
    /// For a cache of so many blocks.
    pub fn new(room_blocks: u64) -> Neighbours {
        let entries = (room_blocks / ROOM_BLOCKS_AN_ENTRY).next_power_of_two().clamp(ENTRIES_MIN, ENTRIES_MAX);
        Neighbours { entries: vec![NONE; entries as usize], is_off: false }
    }

    /// From now on nothing comes along.
    pub fn switch_off(&mut self) {
        self.is_off = true;
    }

    /// Memory, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        (self.entries.capacity() * size_of::<Entry>()) as u64
    }

    fn place(&self, extent: ExtentKey) -> (usize, u16) {
        let hash = mix(extent.0);
        (hash as usize & (self.entries.len() - 1), (hash >> 48) as u16)
    }

    /// A client has read a block, as the first one of a small request.
    pub fn note(&mut self, block: Key) {
        let (at, tag) = self.place(block.extent());
        let entry = &mut self.entries[at];
        if entry.tag != tag {
            *entry = Entry { tag, ..NONE };
        }
        let in_extent = block.block() % EXTENT_BLOCKS;
        let group = (in_extent / GROUP_BLOCKS) as usize;
        let (byte, shift) = (&mut entry.last[group / 2], group % 2 * 4);
        let (before, now) = (*byte >> shift & 15, (in_extent % GROUP_BLOCKS) as u8 | 8);
        *byte = *byte & !(15 << shift) | now << shift;
        entry.near += u8::from(before != 0 && before != now);
        entry.reads += 1;
        if entry.reads == READS_MAX {
            *entry = Entry { tag, near: entry.near / 2, reads: READS_MAX / 2, ..NONE };
        }
    }

    /// Whether neighbours are to come along in this extent, of a volume of which that is worth so much.
    pub fn may_come_along(&self, extent: ExtentKey, worth: Worth) -> bool {
        !self.is_off && (worth.is_worth_it() || mix(!extent.0).is_multiple_of(TRIED_ONE_IN)) && self.are_used(extent)
    }

    fn are_used(&self, extent: ExtentKey) -> bool {
        let (at, tag) = self.place(extent);
        let entry = &self.entries[at];
        entry.tag == tag && entry.near > 0 && u32::from(entry.near) * 100 >= u32::from(entry.reads) * PAYS_PERCENT
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::VolumeIndex;

    fn key(block: u64) -> Key {
        Key::new(VolumeIndex(3), block)
    }

    fn noted(blocks: impl Iterator<Item = u64>) -> Neighbours {
        let mut neighbours = Neighbours::new(100_000);
        blocks.for_each(|block| neighbours.note(key(block)));
        neighbours
    }

    fn are_used(neighbours: &Neighbours, block: u64) -> bool {
        neighbours.are_used(key(block).extent())
    }

    #[test]
    fn neighbours_are_used_where_other_blocks_of_a_group_are_read() {
        assert!(!are_used(&noted([].into_iter()), 5));
        assert!(!are_used(&noted((0..2000).map(|nth| nth % 32 * 8 + 3)), 5), "the same blocks again and again");
        assert!(!are_used(&noted((0..32).map(|group| group * 8 + group % 7)), 5), "one of each group");
        assert!(are_used(&noted((0..256).map(|nth| nth * 4 % 256)), 5));
        assert!(are_used(&noted([16, 18].into_iter()), 5) && !are_used(&noted([15, 16].into_iter()), 5), "groups are aligned");
        // One read in four says so.
        let few = (0..400).flat_map(|nth| [nth * 8 % 256, nth * 8 % 256, nth * 8 % 256, nth * 8 % 256 + nth / 32 % 2]);
        assert!(!are_used(&noted(few), 5));
    }

    #[test]
    fn what_is_hardly_used_does_not_come_along_but_in_few_extents() {
        let mut neighbours = Neighbours::new(1_000_000);
        let extents = || (0..160).map(|extent| key(extent * EXTENT_BLOCKS).extent());
        (0..160).for_each(|extent| (0..32).for_each(|nth| neighbours.note(key(extent * EXTENT_BLOCKS + nth * 4))));
        let come = |worth: Worth| extents().filter(|extent| neighbours.may_come_along(*extent, worth)).count();
        let mut worth = Worth::default();
        // Two may have one place.
        let all = come(worth);
        assert!((150..=160).contains(&all), "{all}");
        (0..100_000).for_each(|nth| worth.note(nth % 10 == 0));
        let tried = come(worth);
        assert!(tried > 0 && tried < 30, "{tried}");
        (0..100_000).for_each(|nth| worth.note(nth % 7 == 0));
        assert_eq!(come(worth), all);
    }

    #[test]
    fn what_is_not_so_any_more_is_forgotten() {
        let then = (0..1000).map(|nth| nth * 3 % 256);
        assert!(are_used(&noted(then.clone()), 7));
        assert!(!are_used(&noted(then.chain((0..1000).map(|nth| nth % 32 * 8))), 7));
    }

    #[test]
    fn an_extent_that_takes_the_place_of_another_begins_anew() {
        let mut neighbours = Neighbours::new(0);
        assert_eq!(neighbours.memory_bytes(), ENTRIES_MIN * 20);
        (0..256).for_each(|nth| neighbours.note(key(nth * 4 % 256)));
        let (place, tag) = neighbours.place(key(0).extent());
        let takes_it = |extent: &u64| neighbours.place(key(extent * EXTENT_BLOCKS).extent()).0 == place;
        let other = (1..10_000).find(takes_it).expect("there are few places");
        assert_ne!(neighbours.place(key(other * EXTENT_BLOCKS).extent()).1, tag);
        neighbours.note(key(other * EXTENT_BLOCKS));
        assert!(!are_used(&neighbours, 0) && !are_used(&neighbours, other * EXTENT_BLOCKS));
    }
}
