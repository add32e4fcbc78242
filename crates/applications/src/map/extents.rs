//! The extents of a volume: which byte of which object lies where.

use super::runs::{Run, Runs, Value};
use std::ops::Range;
use types::ObjectId;

/// Extents are counted in sectors: files may begin anywhere, pages need not lie on their own
/// boundary.
const SECTOR_BYTES: u64 = 512;
/// Bytes of memory for the extents of one volume.
const BYTES_MAX: usize = 16 << 20;
/// An extent takes 32 bytes; chunks that insertions have just split are half empty.
const EXTENTS_MAX: usize = BYTES_MAX / (2 * size_of::<Run<Owner>>());

const _: () = assert!(size_of::<Run<Owner>>() == 32, "the bound on memory counts on it");

/// Bytes of the device that belong to one object, one after the other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Where on the device, in whole sectors.
    pub bytes: Range<u64>,
    /// Whose.
    pub object: ObjectId,
    /// Which byte of the object the first one is.
    pub object_offset_bytes: u64,
}

/// What a run of sectors says: the object, and which sector of it the first one is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Owner {
    sector: u64,
    object: ObjectId,
}

impl Value for Owner {
    fn after(self, units: u64) -> Owner {
        Owner { sector: self.sector.wrapping_add(units), ..self }
    }
}

/// The extents of one volume.
#[derive(Clone, Debug)]
pub struct Map {
    runs: Runs<Owner>,
}

impl Default for Map {
    fn default() -> Map {
        Map { runs: Runs::new(EXTENTS_MAX) }
    }
}

impl Map {
    /// The extent that holds a byte of the device.
    pub fn at(&self, offset_bytes: u64) -> Option<Extent> {
        self.runs.at(offset_bytes / SECTOR_BYTES).map(extent)
    }

    /// The extents that a range of bytes touches, cut to its sectors, in order.
    pub fn over(&self, bytes: Range<u64>) -> impl Iterator<Item = Extent> + '_ {
        self.runs.over(bytes.start / SECTOR_BYTES..bytes.end.div_ceil(SECTOR_BYTES)).map(extent)
    }

    /// All extents, in order of address.
    pub fn all(&self) -> impl Iterator<Item = Extent> + '_ {
        self.runs.all().map(extent)
    }

    /// Extents held.
    pub fn count(&self) -> usize {
        self.runs.count()
    }

    /// Adds an extent, in place of whatever was known of its bytes. False if it cannot be kept: there is no room, or it is
    /// not of whole sectors.
    pub fn add(&mut self, bytes: &Range<u64>, object: ObjectId, object_offset_bytes: u64) -> bool {
        let owner = Owner { sector: object_offset_bytes / SECTOR_BYTES, object };
        sectors(bytes, object_offset_bytes).is_some_and(|sectors| self.runs.set(&sectors, owner).is_ok())
    }

    /// Memory held, in bytes; 16 MiB at most.
    pub fn bytes(&self) -> usize {
        size_of::<Map>() + self.runs.bytes()
    }
}

/// Whole sectors that do not run over the end of numbers; else `None`.
fn sectors(bytes: &Range<u64>, object_offset_bytes: u64) -> Option<Range<u64>> {
    let whole = [bytes.start, bytes.end, object_offset_bytes].iter().all(|at| at % SECTOR_BYTES == 0);
    let fits = bytes.end < 1 << 62 && object_offset_bytes < 1 << 62;
    (whole && fits && bytes.start < bytes.end).then_some(bytes.start / SECTOR_BYTES..bytes.end / SECTOR_BYTES)
}

fn extent(run: Run<Owner>) -> Extent {
    Extent {
        bytes: run.start * SECTOR_BYTES..run.end() * SECTOR_BYTES,
        object: run.value.object,
        object_offset_bytes: run.value.sector * SECTOR_BYTES,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const TABLE: ObjectId = ObjectId(7);

    fn with_table() -> Map {
        let mut map = Map::default();
        assert!(map.add(&(10 * MIB..20 * MIB), TABLE, 0));
        map
    }

    #[test]
    fn a_byte_has_the_object_and_the_place_of_its_extent() {
        let map = with_table();
        let extent = map.at(12 * MIB + 5).expect("mapped");
        assert_eq!((extent.bytes, extent.object), (10 * MIB..20 * MIB, TABLE));
        assert_eq!(map.at(20 * MIB), None);
        let cut: Vec<_> = map.over(15 * MIB..30 * MIB).map(|extent| (extent.bytes, extent.object_offset_bytes)).collect();
        assert_eq!(cut, [(15 * MIB..20 * MIB, 5 * MIB)]);
    }

    #[test]
    fn extents_of_no_whole_sectors_or_beyond_all_devices_are_refused() {
        let mut map = with_table();
        for (bytes, offset) in [(5..517, 0), (0..100, 0), (512..512, 0), (0..u64::MAX, 0), (0..512, u64::MAX - 511), (0..512, 1)] {
            assert!(!map.add(&bytes, ObjectId(8), offset), "{bytes:?} {offset}");
        }
        assert_eq!(map.count(), 1);
    }

    #[test]
    fn a_full_map_refuses_and_stays_within_its_memory() {
        let (mut map, mut refused) = (Map::default(), 0);
        let mut state = 3u64;
        for _ in 0..EXTENTS_MAX + 50_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = (state >> 24) * 4096 % (1 << 45);
            refused += u64::from(!map.add(&(at..at + 4096), ObjectId((state >> 60) as u32), at / 2 / 512 * 512));
        }
        assert!(refused > 0 && map.count() >= EXTENTS_MAX - 2);
        map.runs.check_invariants();
        assert!(map.bytes() <= BYTES_MAX + (64 << 10));
    }

    #[test]
    fn the_map_is_what_a_plain_array_is() {
        const SECTORS: u64 = 2000;
        for seed in 1..25u64 {
            let (mut map, mut plain) = (Map::default(), vec![None; SECTORS as usize]);
            let mut state = seed;
            let mut random = |below: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 33) % below
            };
            for _ in 0..600 {
                let start = random(SECTORS);
                let end = (start + 1 + random(64)).min(SECTORS);
                // Few objects in few lines, so that extents continue each other as often as not.
                let (object, line) = (ObjectId(random(3) as u32), random(3) * 1000);
                assert!(map.add(&(start * 512..end * 512), object, (start + line) * 512));
                (start..end).for_each(|at| plain[at as usize] = Some((object, at + line)));
            }
            for sector in 0..SECTORS {
                let at = sector * 512 + 100;
                let place = |extent: Extent| (extent.object, (extent.object_offset_bytes + at - extent.bytes.start) / 512);
                assert_eq!(map.at(at).map(place), plain[sector as usize], "seed {seed}, sector {sector}");
            }
            map.runs.check_invariants();
        }
    }
}
