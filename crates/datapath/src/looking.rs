//! What the data path tells people who look into a volume: where blocks are, what happened to them, how the address space looks.

use engine::region_heat::{ONE, Regions};
use engine::shard::{BlockFacts, DirtyExtent};
use engine::trail::Recent;
use types::{BLOCK_BYTES, EXTENT_BLOCKS, SECTOR_BYTES};

/// A range of a volume, looked into.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Explained {
    /// The volume runs with its cache; else there is nothing more to tell.
    pub has_cache: bool,
    /// Blocks that are cached, by address; others are not.
    pub blocks: Vec<BlockFacts>,
    /// Extents with dirty blocks, by address.
    pub dirty: Vec<DirtyExtent>,
    /// The latest requests in the range's extents, newest first.
    pub recent: Vec<Recent>,
    /// Requests to the range lately: about eight minutes' worth.
    pub heat: f64,
    /// For how long requests have been remembered, in nanoseconds.
    pub remembered_ns: u64,
}

impl Explained {
    /// Adds what another shard, or a later part of the range, has.
    pub fn add(&mut self, part: engine::shard::Explained) {
        self.blocks.extend(part.blocks);
        self.dirty.extend(part.dirty);
        self.recent.extend(part.recent);
    }

    /// Brings what was added from several places into order.
    pub fn sort(&mut self) {
        self.blocks.sort_unstable_by_key(|facts| facts.block);
        self.dirty.sort_unstable_by_key(|extent| extent.first_block);
        self.recent.sort_by_key(|recent| recent.ago_ns);
    }

    /// Since when the block has been dirty, if its extent is known to have dirty blocks: for how many nanoseconds at least.
    pub fn dirty_for_ns(&self, block: u64) -> Option<u64> {
        let extent = block / EXTENT_BLOCKS * EXTENT_BLOCKS;
        let at = self.dirty.binary_search_by_key(&extent, |dirty| dirty.first_block).ok()?;
        // Those that a start found have been dirty longer than anything is remembered.
        Some(self.dirty[at].for_ns.unwrap_or(self.remembered_ns))
    }
}

/// Whether a request touched blocks of this range.
pub fn touches(recent: &Recent, first_block: u64, blocks: u64) -> bool {
    let (start, end) = (recent.start_sector * SECTOR_BYTES, (recent.start_sector + u64::from(recent.sectors)) * SECTOR_BYTES);
    start < (first_block + blocks) * BLOCK_BYTES && first_block * BLOCK_BYTES < end
}

/// Cells of equal size, from some place of a volume on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cells {
    /// First block of the first cell.
    pub first_block: u64,
    /// Blocks of a cell.
    pub cell_blocks: u64,
    /// How many.
    pub count: u32,
}

impl Cells {
    /// The cell that the block lies in, if it lies in one.
    pub fn cell_of(&self, block: u64) -> Option<usize> {
        let cell = block.checked_sub(self.first_block)? / self.cell_blocks;
        (cell < u64::from(self.count)).then_some(cell as usize)
    }

    /// Blocks of all cells.
    pub fn blocks(&self) -> u64 {
        self.cell_blocks * u64::from(self.count)
    }
}

/// How the address space looks. One value a cell.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct AddressMap {
    /// Requests lately.
    pub heat: Vec<f64>,
    /// Blocks on the SSD.
    pub cached_blocks: Vec<u64>,
    /// Of them, dirty.
    pub dirty_blocks: Vec<u64>,
    /// How old these counts are, in milliseconds.
    pub age_ms: u64,
    /// The part of the pool that was looked at, 0 to 1.
    pub counted_part: f64,
}

impl AddressMap {
    /// Of a volume that has no cache.
    pub fn empty(cells: u32) -> AddressMap {
        let count = cells as usize;
        AddressMap { heat: vec![0.0; count], cached_blocks: vec![0; count], dirty_blocks: vec![0; count], age_ms: 0, counted_part: 1.0 }
    }
}

/// Adds the heat of a volume of that size to cells of it: what is known of a region is spread evenly over it.
pub fn spread_heat(heat: &mut [f64], cells: Cells, regions: &Regions, size_bytes: u64) {
    let (from, cell_bytes) = (cells.first_block * BLOCK_BYTES, cells.cell_blocks * BLOCK_BYTES);
    for (cell, heat) in heat.iter_mut().enumerate() {
        let start = from + cell as u64 * cell_bytes;
        let end = (start + cell_bytes).min(size_bytes);
        let mut at = start;
        while at < end {
            let region = at / regions.region_bytes;
            let region_end = ((region + 1) * regions.region_bytes).min(size_bytes);
            let overlap = region_end.min(end) - at;
            let part = overlap as f64 / (region_end - region * regions.region_bytes) as f64;
            *heat += part * f64::from(regions.counts.get(region as usize).copied().unwrap_or(0)) / f64::from(ONE);
            at += overlap;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 256;

    fn spread(cells: Cells, size_bytes: u64) -> Vec<f64> {
        let regions = Regions { region_bytes: 4 << 20, counts: vec![8 * ONE, 0, 4 * ONE] };
        let mut heat = vec![0.0; cells.count as usize];
        spread_heat(&mut heat, cells, &regions, size_bytes);
        heat
    }

    #[test]
    fn heat_is_spread_over_what_a_region_has_of_the_volume() {
        let cells = |first_block, cell_blocks, count| Cells { first_block, cell_blocks, count };
        assert_eq!(spread(cells(0, 4 * MIB, 3), 12 << 20), [8.0, 0.0, 4.0]);
        assert_eq!(spread(cells(0, MIB, 5), 12 << 20), [2.0, 2.0, 2.0, 2.0, 0.0]);
        assert_eq!(spread(cells(3 * MIB, 6 * MIB, 1), 12 << 20), [3.0]);
        // The last region has but 1 MiB of the volume, and the last cell half of that.
        assert_eq!(spread(cells(8 * MIB, MIB / 2, 2), 9 << 20), [2.0, 2.0]);
        assert_eq!(spread(cells(0, 100 * MIB, 1), 9 << 20), [12.0]);
    }

    #[test]
    fn blocks_are_in_cells_or_beside_them() {
        let cells = Cells { first_block: 512, cell_blocks: 256, count: 2 };
        let found: Vec<_> = [511, 512, 767, 768, 1023, 1024].map(|block| cells.cell_of(block)).into();
        assert_eq!(found, [None, Some(0), Some(0), Some(1), Some(1), None]);
        assert_eq!(cells.blocks(), 512);
    }
}
