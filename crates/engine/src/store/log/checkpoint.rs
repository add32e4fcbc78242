//! The index as a clean stop left it beside the log, for a start that read it instead.
//!
//! Head and chunks name the generation of the superblock that calls the pool clean. Any later store of the superblock has another generation, which ends the
//! checkpoint's validity; the first thing a start does is such a store. So a checkpoint is used at most once, and never after the log went on.

use crate::medium::Medium;
use crate::mutants;
use crate::superblock::{OpenError, PoolState};
use alloc::vec;
use format::checkpoint::{
    CHECKPOINT_HEAD_BYTES, CHUNK_BYTES, CHUNK_ENTRIES, CheckpointEntry, CheckpointHead, ChunkHead, LogEnd, chunk_bytes_for,
};
use format::layout::CHECKPOINT_AT_BYTES;
use types::{ShardIndex, VolumeId};

/// The head of a checkpoint that belongs to the pool as it was loaded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Checkpoint(CheckpointHead);

/// Opens the checkpoint, if there is a valid one.
///
/// # Errors
/// What the medium says; the log may still be recovered.
pub fn open(medium: &mut dyn Medium, pool: &PoolState) -> Result<Option<Checkpoint>, OpenError> {
    let superblock = &pool.superblock;
    let any_generation = mutants::active(mutants::OLD_CHECKPOINT_BELIEVED);
    if !superblock.clean && !any_generation {
        return Ok(None);
    }
    let mut bytes = vec![0; CHECKPOINT_HEAD_BYTES as usize];
    medium.read(CHECKPOINT_AT_BYTES, &mut bytes)?;
    let Ok(head) = CheckpointHead::decode(&bytes) else {
        return Ok(None);
    };
    let ours = head.uuid == superblock.uuid
        && (head.session == superblock.session || any_generation)
        && (head.generation == superblock.generation || any_generation)
        && head.log_ends.len() == superblock.log_starts.len();
    let segments = u64::from(superblock.layout.segments_per_shard);
    Ok((ours && head.log_ends.iter().all(|end| end.is_sound(segments))).then_some(Checkpoint(head)))
}

impl Checkpoint {
    /// Where each shard's log goes on.
    pub fn log_ends(&self) -> &[LogEnd] {
        &self.0.log_ends
    }

    /// The volumes that entries name by their place.
    pub fn volumes(&self) -> &[VolumeId] {
        &self.0.volumes
    }

    /// Gives each used slot of one shard, in ascending slot order (which is not the log's order where the ring wraps).
    ///
    /// Gives `false` if a chunk is damaged: then what was given so far must be forgotten and the shard recovered from its log.
    ///
    /// # Errors
    /// What the medium says; likewise.
    pub fn load_shard(
        &self,
        medium: &mut dyn Medium,
        pool: &PoolState,
        shard: ShardIndex,
        sink: &mut dyn FnMut(u32, CheckpointEntry),
    ) -> Result<bool, OpenError> {
        let mut buffer = vec![0; CHUNK_BYTES as usize];
        for (first_slot, offset_bytes, count) in chunks(pool, shard) {
            let bytes = &mut buffer[..chunk_bytes_for(count) as usize];
            medium.read(offset_bytes, bytes)?;
            let expected = ChunkHead { uuid: self.0.uuid, generation: self.0.generation, shard, first_slot, entries: count };
            let entries = match ChunkHead::decode(bytes) {
                Ok((head, entries)) if head == expected => entries,
                _ => return Ok(false),
            };
            for (slot, entry) in (first_slot..).zip(entries) {
                if let Some(entry) = entry {
                    if usize::from(entry.volume) >= self.0.volumes.len() {
                        return Ok(false);
                    }
                    sink(slot, entry);
                }
            }
        }
        Ok(true)
    }
}

/// First slot, offset in bytes and count of entries of each chunk of a shard.
fn chunks(pool: &PoolState, shard: ShardIndex) -> impl Iterator<Item = (u32, u64, u32)> + use<> {
    let (slots, begin) = (pool.superblock.layout.slots_per_shard(), pool.superblock.layout.checkpoint_offset(shard));
    (0..slots.div_ceil(CHUNK_ENTRIES)).map(move |nth| {
        let first_slot = nth * CHUNK_ENTRIES;
        (first_slot, begin + u64::from(nth) * u64::from(CHUNK_BYTES), CHUNK_ENTRIES.min(slots - first_slot))
    })
}
