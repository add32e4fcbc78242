//! Looking into volumes: from other threads, a little at a time, so that no reactor is held long.

mod counting;

pub(super) use counting::Counting;

use super::pools::LivePool;
use super::{Machine, failed, locked};
use api::error::ControlError;
use counting::Window;
use datapath::looking::{AddressMap, Cells, Explained, spread_heat};
use engine::region_heat::Regions;
use runtime::{PoolRef, monotonic_ns};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use types::{BLOCK_BYTES, EXTENT_BLOCKS, VolumeIndex};

/// Blocks explained by one look: with about 100 ns each, some 50 µs if all are of one reactor. A multiple of an extent's.
const BLOCKS_A_LOOK: u64 = 512;
/// A range of so many looks is done at once; a longer one leaves the reactors this many times as long to others as it held them.
const LOOKS_AT_ONCE: u64 = 8;
const REST: u64 = 4;

/// What is looked into. Holds neither volume nor pool: either may be taken away meanwhile.
struct Place {
    pool: PoolRef,
    pool_name: String,
    started: Instant,
    index: VolumeIndex,
    size_bytes: u64,
}

impl Machine {
    /// `None` if the volume has no cache.
    fn place(&self, volume: &str) -> Result<Option<Place>, ControlError> {
        let live = self.volume(volume)?;
        let place = |(pool, index): &(Arc<LivePool>, VolumeIndex)| Place {
            pool: pool.handle.clone(),
            pool_name: pool.name.clone(),
            started: pool.started,
            index: *index,
            size_bytes: live.reference.size_bytes(),
        };
        Ok(live.cached.as_ref().map(place))
    }

    pub(super) fn explain_range(&self, volume: &str, first_block: u64, blocks: u64) -> Result<Explained, ControlError> {
        let Some(place) = self.place(volume)? else { return Ok(Explained::default()) };
        let mut explained = Explained::default();
        let end = first_block + blocks;
        let (mut at, mut looks) = (first_block, 0);
        while at < end {
            let next = ((at / BLOCKS_A_LOOK + 1) * BLOCKS_A_LOOK).min(end);
            let (parts, held_ns): (Arc<Mutex<Vec<_>>>, _) = (Arc::default(), Arc::new(AtomicU64::new(0)));
            let (adding, holding, index) = (parts.clone(), held_ns.clone(), place.index);
            let look = move |_, shard: &engine::shard::Shard| {
                let begun = monotonic_ns();
                if let Some(part) = shard.explain(begun, index, at, next - at) {
                    locked(&adding).push(part);
                }
                holding.fetch_add(monotonic_ns() - begun, Ordering::Relaxed);
            };
            self.runtime.inspect_shards(&place.pool, look).map_err(unanswered)?;
            locked(&parts).drain(..).for_each(|part| explained.add(part));
            (at, looks) = (next, looks + 1);
            if looks >= LOOKS_AT_ONCE && at < end {
                std::thread::sleep(Duration::from_nanos(held_ns.load(Ordering::Relaxed) * REST));
            }
        }
        explained.sort();
        // Of all its megabytes: less is not known apart.
        let first_extent = first_block / EXTENT_BLOCKS;
        let extents = end.div_ceil(EXTENT_BLOCKS) - first_extent;
        let cells = Cells { first_block: first_extent * EXTENT_BLOCKS, cell_blocks: extents * EXTENT_BLOCKS, count: 1 };
        Ok(Explained {
            has_cache: true,
            heat: self.heat(&place, cells)?[0],
            remembered_ns: u64::try_from(place.started.elapsed().as_nanos()).unwrap_or(u64::MAX),
            ..explained
        })
    }

    /// The heat of all shards, by cell.
    fn heat(&self, place: &Place, cells: Cells) -> Result<Vec<f64>, ControlError> {
        let collected: Arc<Mutex<Vec<Regions>>> = Arc::default();
        let (adding, index) = (collected.clone(), place.index);
        let look = move |_, shard: &engine::shard::Shard| {
            let regions = shard.heat(monotonic_ns(), index);
            locked(&adding).extend(regions);
        };
        self.runtime.inspect_shards(&place.pool, look).map_err(unanswered)?;
        let mut heat = vec![0.0; cells.count as usize];
        locked(&collected).iter().for_each(|regions| spread_heat(&mut heat, cells, regions, place.size_bytes));
        Ok(heat)
    }

    pub(super) fn map_addresses(&self, volume: &str, cells: Cells) -> Result<AddressMap, ControlError> {
        let Some(place) = self.place(volume)? else { return Ok(AddressMap::empty(cells.count)) };
        let heat = self.heat(&place, cells)?;
        let last_block = place.size_bytes.div_ceil(BLOCK_BYTES);
        let window = Window { pool: place.pool_name, started: place.started, volume: volume.into(), place: place.index, cells, last_block };
        let counted = self.counting.ask(&self.runtime, &place.pool, window)?;
        Ok(AddressMap { heat, ..counted })
    }
}

fn unanswered(error: runtime::RuntimeError) -> ControlError {
    failed(error, "the machine is overloaded or a device hangs; try again later")
}
