//! The index as a clean stop leaves it, and a start that reads it instead of the log.
//!
//! Written in this order: all chunks, flush, footers of segments still open, flush, head, flush, superblock called clean with the generation that head and chunks
//! name. Any later store of the superblock has another generation, which ends the checkpoint's validity; the first thing a
//! start does is such a store. So a checkpoint is used at most once, and never after the log went on.

use super::recovery::seal_end;
use crate::medium::Medium;
use crate::mutants;
use crate::superblock::{OpenError, PoolState};
use alloc::vec;
use alloc::vec::Vec;
use format::checkpoint::{
    CHECKPOINT_HEAD_BYTES, CHUNK_BYTES, CHUNK_ENTRIES, CheckpointEntry, CheckpointHead, ChunkHead, ENTRY_BYTES, LogEnd, chunk_bytes_for,
};
use format::layout::CHECKPOINT_AT_BYTES;
use types::{ShardIndex, VolumeId};

/// Writes the checkpoint and calls the pool clean. All shards are quiet, and everything they wrote is complete.
///
/// `entry` gives what the index knows of a slot, `None` for nothing; it is asked once for each slot, in ascending order, shard by
/// shard. Entries name volumes by their place in `volumes`.
///
/// # Errors
/// What the medium says. The pool is then not clean, and the next start reads the log.
pub fn write(
    medium: &mut dyn Medium,
    pool: &mut PoolState,
    ends: &[LogEnd],
    volumes: &[VolumeId],
    entry: &mut dyn FnMut(ShardIndex, u32) -> Option<CheckpointEntry>,
) -> Result<(), OpenError> {
    let layout = pool.superblock.layout;
    assert_eq!(ends.len(), usize::from(layout.shards), "one log end a shard");
    let (uuid, generation) = (pool.superblock.uuid, pool.next_generation());
    let mut entries = Vec::with_capacity(CHUNK_ENTRIES.min(layout.slots_per_shard()) as usize * ENTRY_BYTES);
    for shard in (0..layout.shards).map(ShardIndex) {
        for (first_slot, offset_bytes, count) in chunks(pool, shard) {
            entries.clear();
            for slot in first_slot..first_slot + count {
                entries.extend_from_slice(&CheckpointEntry::encode(entry(shard, slot)));
            }
            let head = ChunkHead { uuid, generation, shard, first_slot, entries: count };
            medium.write(offset_bytes, &head.encode(&entries))?;
        }
    }
    // The footers claim that their segments are flushed, so these are first.
    pool.flush(medium)?;
    for (shard, end) in (0..layout.shards).map(ShardIndex).zip(ends) {
        seal_end(medium, pool, shard, end)?;
    }
    pool.flush(medium)?;
    let session = pool.superblock.session;
    let head = CheckpointHead { uuid, session, generation, log_ends: ends.to_vec(), volumes: volumes.to_vec() };
    medium.write(CHECKPOINT_AT_BYTES, &head.encode())?;
    pool.flush(medium)?;
    pool.store_clean(medium)
}

/// Instead of [`write`], where a checkpoint cannot say all that is known: the log alone tells the next start, which finds a footer in every
/// segment. All shards are quiet, and everything they wrote is complete.
///
/// If a shard's log has lost all that the session wrote, no footer can say that there was something. Then the superblock does: a session that begins
/// where the logs end makes all before it history, and what is missing there is damage.
///
/// # Errors
/// What the medium says. The next start then walks the groups of the segments that were open.
pub fn write_footers(medium: &mut dyn Medium, pool: &mut PoolState, ends: &[LogEnd]) -> Result<(), OpenError> {
    assert_eq!(ends.len(), usize::from(pool.superblock.layout.shards), "one log end a shard");
    pool.flush(medium)?;
    let mut all_said = true;
    for (shard, end) in (0..).map(ShardIndex).zip(ends) {
        all_said &= seal_end(medium, pool, shard, end)?;
    }
    pool.flush(medium)?;
    if all_said { Ok(()) } else { pool.begin_session(medium, ends, &[]) }
}

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

    /// The segment that lies in this physical place, by the log's end; `None` if none there is live.
    pub fn seq_at(&self, pool: &PoolState, shard: ShardIndex, physical: u32) -> Option<u64> {
        let (end, layout) = (&self.0.log_ends[usize::from(shard.0)], &pool.superblock.layout);
        let tail_physical = layout.physical(end.tail_seq);
        let ahead = u64::from((physical + layout.segments_per_shard - tail_physical) % layout.segments_per_shard);
        Some(end.tail_seq + ahead).filter(|seq| *seq < end.next_seq)
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
