//! Checkpoints as clean stops left them beside a log.

use super::disk::Disk;
use engine::medium::{Medium, MediumError};
use engine::superblock::PoolState;
use format::PAGE_BYTES;
use format::checkpoint::{CHUNK_BYTES, CHUNK_ENTRIES, CheckpointEntry, CheckpointHead, ChunkHead, LogEnd};
use format::layout::{CHECKPOINT_AT_BYTES, SuperblockSlot};
use types::{ShardIndex, VolumeId};

/// Writes a checkpoint, and a superblock that calls the pool clean. Entries name volumes by their place in `volumes`.
pub fn write(
    disk: &mut Disk,
    pool: &mut PoolState,
    ends: &[LogEnd],
    volumes: &[VolumeId],
    entry: &mut dyn FnMut(ShardIndex, u32) -> Option<CheckpointEntry>,
) -> Result<(), MediumError> {
    let superblock = &mut pool.superblock;
    let (uuid, layout) = (superblock.uuid, superblock.layout);
    let generation = superblock.generation + 1;
    for shard in (0..layout.shards).map(ShardIndex) {
        let (slots, begin) = (layout.slots_per_shard(), layout.checkpoint_offset(shard));
        for (nth, first_slot) in (0..).zip((0..slots).step_by(CHUNK_ENTRIES as usize)) {
            let count = CHUNK_ENTRIES.min(slots - first_slot);
            let entries: Vec<u8> = (first_slot..first_slot + count).flat_map(|slot| CheckpointEntry::encode(entry(shard, slot))).collect();
            let head = ChunkHead { uuid, generation, shard, first_slot, entries: count };
            disk.write(begin + nth * u64::from(CHUNK_BYTES), &head.encode(&entries))?;
        }
    }
    disk.flush()?;
    let head = CheckpointHead { uuid, session: superblock.session, generation, log_ends: ends.to_vec(), volumes: volumes.to_vec() };
    disk.write(CHECKPOINT_AT_BYTES, &head.encode())?;
    disk.flush()?;
    (superblock.generation, superblock.clean) = (generation, true);
    let mut bytes = superblock.encode();
    bytes.resize(bytes.len().next_multiple_of(PAGE_BYTES), 0);
    for slot in SuperblockSlot::ALL {
        disk.write(slot.offset_bytes(), &bytes)?;
        disk.flush()?;
    }
    Ok(())
}
