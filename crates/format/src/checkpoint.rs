//! The checkpoint: the index of a clean stop as raw arrays, so that a start reads megabytes instead of the log.
//!
//! Head, 16 KiB, written last:
//! ```text
//!    0 magic "HRTHCKP1"      8 crc32c of bytes 12..16384     12 version u32
//!   16 pool uuid            32 session u64                   40 generation u64
//!   48 shards u16           50 volume count u16              52 zero
//!  256 one log end a shard, 24 bytes: next seq u64, next group u64, tail seq u64   (256 at most)
//! 8192 volume ids, 4 bytes each (1,024 at most), zero behind them
//! ```
//! Chunk, 1 MiB (the last of a shard is shorter), one entry a slot in slot order:
//! ```text
//!    0 magic "HRTHCHK1"      8 crc32c of bytes 12..           12 version u32
//!   16 pool uuid            32 generation u64                40 shard u16    42 zero u16
//!   44 first slot u32       48 entry count u32               52 zero
//!   64 entries: key u64, checksum u32 (masked, see crate::checksum, from version 3 on); zero behind the last, to the end of its page
//! ```
//! Key: bits 0..34 block, 34..44 place of the volume in the head's table, 44..52 mask, 52 in use, 53 dirty, 54..64 heat.

use crate::bytes::{get_u16, get_u32, get_u64, get_uuid, put, put_u16, put_u32, put_u64};
use crate::checksum::{header_matches, mask, seal_header, unmask};
use crate::layout::SHARDS_MAX;
use crate::{COUNT_MAX, DecodeError, FORMAT_VERSION, PAGE_BYTES, is_read};
use alloc::vec;
use alloc::vec::Vec;
use types::{ShardIndex, VOLUME_BLOCKS_MAX, VOLUMES_MAX, VolumeId};

/// Size of the checkpoint's head, in bytes.
pub const CHECKPOINT_HEAD_BYTES: u64 = 16 << 10;
/// Size of a full chunk, in bytes.
pub const CHUNK_BYTES: u32 = 1 << 20;
/// Bytes of an entry.
pub const ENTRY_BYTES: usize = 12;
/// Entries of a full chunk.
pub const CHUNK_ENTRIES: u32 = (CHUNK_BYTES - CHUNK_TABLE_AT as u32) / ENTRY_BYTES as u32;

const HEAD_MAGIC: &[u8; 8] = b"HRTHCKP1";
const CHUNK_MAGIC: &[u8; 8] = b"HRTHCHK1";
const CHUNK_TABLE_AT: usize = 64;
const ENDS_AT: usize = 256;
const END_BYTES: usize = 24;
const VOLUMES_AT: usize = 8192;

const _: () = assert!(ENDS_AT + SHARDS_MAX as usize * END_BYTES <= VOLUMES_AT);
const _: () = assert!(VOLUMES_AT + VOLUMES_MAX * 4 <= CHECKPOINT_HEAD_BYTES as usize);

/// Size of a chunk with that many entries, in bytes, whole pages.
pub const fn chunk_bytes_for(entries: u32) -> u32 {
    (CHUNK_TABLE_AT as u32 + entries * ENTRY_BYTES as u32).next_multiple_of(PAGE_BYTES as u32)
}

/// Where a shard's log goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogEnd {
    /// The segment to open next. Nothing that counts is in it.
    pub next_seq: u64,
    /// The number of the next group.
    pub next_group: u64,
    /// Oldest live segment; `next_seq` if there is none.
    pub tail_seq: u64,
}

impl LogEnd {
    /// Whether a log in a ring of that many segments can end so.
    pub fn is_sound(&self, segments: u64) -> bool {
        (1..2 * COUNT_MAX).contains(&self.next_group)
            && (1..2 * COUNT_MAX).contains(&self.next_seq)
            && (1..=self.next_seq).contains(&self.tail_seq)
            && self.next_seq - self.tail_seq <= segments
    }
}

/// What the checkpoint as a whole says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CheckpointHead {
    /// The pool.
    pub uuid: [u8; 16],
    /// The session that ended with it.
    pub session: u64,
    /// The generation of the superblock that calls the pool clean; no other one may use this checkpoint.
    pub generation: u64,
    /// One a shard.
    pub log_ends: Vec<LogEnd>,
    /// Volumes by their place in entries' keys.
    pub volumes: Vec<VolumeId>,
}

/// What the index knows of one slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CheckpointEntry {
    /// Place of the volume in [`CheckpointHead::volumes`], below [`VOLUMES_MAX`].
    pub volume: u16,
    /// The block.
    pub block: u64,
    /// Its valid sectors.
    pub mask: u8,
    /// Newer than the backing device.
    pub dirty: bool,
    /// What the policy wants remembered; 10 bits.
    pub heat: u16,
    /// Of the payload.
    pub checksum: u32,
}

const KEY_VOLUME_SHIFT: u32 = 34;
const KEY_MASK_SHIFT: u32 = 44;
const KEY_USED: u64 = 1 << 52;
const KEY_DIRTY: u64 = 1 << 53;
const KEY_HEAT_SHIFT: u32 = 54;

const _: () = assert!(VOLUME_BLOCKS_MAX == 1 << KEY_VOLUME_SHIFT && VOLUMES_MAX == 1 << (KEY_MASK_SHIFT - KEY_VOLUME_SHIFT));

impl CheckpointEntry {
    /// Most heat an entry can remember.
    pub const HEAT_MAX: u16 = (1 << 10) - 1;

    /// The entry as bytes; of `None`, a slot that holds nothing, zeroes.
    ///
    /// # Panics
    /// If a field passes its bits.
    pub fn encode(entry: Option<CheckpointEntry>) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        let Some(entry) = entry else { return bytes };
        assert!(entry.block < VOLUME_BLOCKS_MAX && usize::from(entry.volume) < VOLUMES_MAX, "{entry:?}");
        assert!(entry.heat <= CheckpointEntry::HEAT_MAX && entry.mask != 0, "{entry:?}");
        let key = entry.block
            | u64::from(entry.volume) << KEY_VOLUME_SHIFT
            | u64::from(entry.mask) << KEY_MASK_SHIFT
            | KEY_USED
            | if entry.dirty { KEY_DIRTY } else { 0 }
            | u64::from(entry.heat) << KEY_HEAT_SHIFT;
        put_u64(&mut bytes, 0, key);
        put_u32(&mut bytes, 8, mask(entry.checksum));
        bytes
    }

    /// Reads an entry of a chunk of that version; `None` for a slot that holds nothing.
    #[inline]
    pub fn decode(bytes: &[u8; ENTRY_BYTES], version: u32) -> Option<CheckpointEntry> {
        let key = get_u64(bytes, 0);
        if key & KEY_USED == 0 {
            return None;
        }
        Some(CheckpointEntry {
            volume: (key >> KEY_VOLUME_SHIFT) as u16 & (VOLUMES_MAX as u16 - 1),
            block: key & (VOLUME_BLOCKS_MAX - 1),
            mask: (key >> KEY_MASK_SHIFT) as u8,
            dirty: key & KEY_DIRTY != 0,
            heat: (key >> KEY_HEAT_SHIFT) as u16,
            checksum: unmask(get_u32(bytes, 8), version),
        })
    }
}

impl CheckpointHead {
    /// The head as [`CHECKPOINT_HEAD_BYTES`] bytes, to be written at
    /// [`CHECKPOINT_AT_BYTES`](crate::layout::CHECKPOINT_AT_BYTES) after all chunks are flushed.
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.log_ends.len() <= usize::from(SHARDS_MAX) && self.volumes.len() <= VOLUMES_MAX);
        let mut bytes = vec![0; CHECKPOINT_HEAD_BYTES as usize];
        put(&mut bytes, 0, HEAD_MAGIC);
        put_u32(&mut bytes, 12, FORMAT_VERSION);
        put(&mut bytes, 16, &self.uuid);
        put_u64(&mut bytes, 32, self.session);
        put_u64(&mut bytes, 40, self.generation);
        put_u16(&mut bytes, 48, self.log_ends.len() as u16);
        put_u16(&mut bytes, 50, self.volumes.len() as u16);
        for (end, slot) in self.log_ends.iter().zip(bytes[ENDS_AT..].chunks_exact_mut(END_BYTES)) {
            put_u64(slot, 0, end.next_seq);
            put_u64(slot, 8, end.next_group);
            put_u64(slot, 16, end.tail_seq);
        }
        for (id, slot) in self.volumes.iter().zip(bytes[VOLUMES_AT..].chunks_exact_mut(4)) {
            put_u32(slot, 0, id.0);
        }
        seal_header(&mut bytes);
        bytes
    }

    /// Reads a head from its [`CHECKPOINT_HEAD_BYTES`] bytes.
    ///
    /// # Errors
    /// Says why there is none.
    pub fn decode(bytes: &[u8]) -> Result<CheckpointHead, DecodeError> {
        check_start(bytes, CHECKPOINT_HEAD_BYTES as usize, HEAD_MAGIC)?;
        let (shards, volumes) = (usize::from(get_u16(bytes, 48)), usize::from(get_u16(bytes, 50)));
        if shards > usize::from(SHARDS_MAX) || volumes > VOLUMES_MAX {
            return Err(DecodeError::Field { field: "counts" });
        }
        let ends = bytes[ENDS_AT..].chunks_exact(END_BYTES).take(shards);
        Ok(CheckpointHead {
            uuid: get_uuid(bytes, 16),
            session: get_u64(bytes, 32),
            generation: get_u64(bytes, 40),
            log_ends: ends
                .map(|end| LogEnd { next_seq: get_u64(end, 0), next_group: get_u64(end, 8), tail_seq: get_u64(end, 16) })
                .collect(),
            volumes: bytes[VOLUMES_AT..].chunks_exact(4).take(volumes).map(|id| VolumeId(get_u32(id, 0))).collect(),
        })
    }
}

/// What a chunk says besides its entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkHead {
    /// The pool.
    pub uuid: [u8; 16],
    /// As in the checkpoint's head.
    pub generation: u64,
    /// Whose slots.
    pub shard: ShardIndex,
    /// The slot of the first entry.
    pub first_slot: u32,
    /// How many entries.
    pub entries: u32,
}

impl ChunkHead {
    /// The chunk as bytes, whole pages; `entries` is its entries, encoded, one behind the other.
    ///
    /// # Panics
    /// If `entries` is not as long as the head says, or longer than a chunk.
    pub fn encode(&self, entries: &[u8]) -> Vec<u8> {
        assert!(entries.len() == self.entries as usize * ENTRY_BYTES && self.entries <= CHUNK_ENTRIES);
        let mut bytes = vec![0; chunk_bytes_for(self.entries) as usize];
        put(&mut bytes, 0, CHUNK_MAGIC);
        put_u32(&mut bytes, 12, FORMAT_VERSION);
        put(&mut bytes, 16, &self.uuid);
        put_u64(&mut bytes, 32, self.generation);
        put_u16(&mut bytes, 40, self.shard.0);
        put_u32(&mut bytes, 44, self.first_slot);
        put_u32(&mut bytes, 48, self.entries);
        put(&mut bytes, CHUNK_TABLE_AT, entries);
        seal_header(&mut bytes);
        bytes
    }

    /// Reads a chunk: its head, and an entry for each slot, `None` for a slot that holds nothing.
    ///
    /// # Errors
    /// Says why there is none.
    pub fn decode(bytes: &[u8]) -> Result<(ChunkHead, impl Iterator<Item = Option<CheckpointEntry>>), DecodeError> {
        check_start(bytes, CHUNK_TABLE_AT, CHUNK_MAGIC)?;
        let head = ChunkHead {
            uuid: get_uuid(bytes, 16),
            generation: get_u64(bytes, 32),
            shard: ShardIndex(get_u16(bytes, 40)),
            first_slot: get_u32(bytes, 44),
            entries: get_u32(bytes, 48),
        };
        if head.entries > CHUNK_ENTRIES || chunk_bytes_for(head.entries) as usize != bytes.len() {
            return Err(DecodeError::Field { field: "entry count" });
        }
        let (entries, _) = bytes[CHUNK_TABLE_AT..].as_chunks();
        let version = get_u32(bytes, 12);
        Ok((head, entries[..head.entries as usize].iter().map(move |entry| CheckpointEntry::decode(entry, version))))
    }
}

fn check_start(bytes: &[u8], bytes_min: usize, magic: &[u8; 8]) -> Result<(), DecodeError> {
    if bytes.len() < bytes_min || !bytes.starts_with(magic) {
        return Err(DecodeError::Magic);
    }
    if !header_matches(bytes) {
        return Err(DecodeError::Checksum);
    }
    match get_u32(bytes, 12) {
        version if is_read(version) => Ok(()),
        found => Err(DecodeError::Version { found }),
    }
}
