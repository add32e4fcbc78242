//! Small pools to test with.

use super::disk::Disk;
use engine::superblock::{self, PoolState};
use format::{Layout, LayoutError, VolumeRecord};
use types::{Mode, VolumeId};

/// The smallest pool there is with that many shards.
pub fn small_layout(shards: u16) -> Layout {
    let smallest = Layout::plan(0, shards, 64 << 10).expect_err("too small");
    let LayoutError::TooSmall { needed_bytes, .. } = smallest else { panic!("{smallest}") };
    Layout::plan(needed_bytes, shards, 64 << 10).expect("the smallest pool")
}

pub fn uuid_of(seed: u64) -> [u8; 16] {
    let mut uuid = [7; 16];
    uuid[..8].copy_from_slice(&seed.to_le_bytes());
    uuid
}

pub fn volume(id: u32, mode: Mode) -> VolumeRecord {
    VolumeRecord {
        id: VolumeId(id),
        uuid: [id as u8; 16],
        name: format!("volume-{id}"),
        size_bytes: 1 << 20,
        mode,
        may_have_dirty: mode == Mode::WriteBack,
        damaged: false,
        backing_identity: vec![id as u8; 20],
    }
}

/// One shard with that many segments of 64 KiB.
pub fn layout_of(segments: u32) -> Layout {
    let ring = Layout { segments_per_shard: segments, ..small_layout(1) };
    Layout { ssd_bytes: ring.end_bytes(), ..ring }
}

/// A pool with volumes 1 to 3, all write-back.
pub fn new_pool(seed: u64, shards: u16) -> (Disk, PoolState) {
    pool_with(seed, small_layout(shards))
}

/// The same with that layout.
pub fn pool_with(seed: u64, layout: Layout) -> (Disk, PoolState) {
    let mut disk = Disk::new(layout.ssd_bytes);
    let mut pool = superblock::create(&mut disk, layout, uuid_of(seed)).expect("creates");
    pool.superblock.volumes.extend((1..=3).map(|id| volume(id, Mode::WriteBack)));
    pool.superblock.next_volume_id = VolumeId(4);
    pool.store(&mut disk).expect("stores");
    (disk, pool)
}
