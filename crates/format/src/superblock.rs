//! The superblock: the root of the on-disk state, in two copies.
//!
//! ```text
//!    0 magic "HEARTHSB"      8 crc32c of bytes 12..length     12 version u32
//!   16 length u32           20 flags u32 (bit 0: clean)      24 pool uuid
//!   40 generation u64       48 session u64
//!   56 ssd bytes u64        64 segment bytes u32             68 segments per shard u32
//!   72 shards u16           74 volume count u16              76 next volume id u32
//!   80 from version 4 on, else zero: ring pages u32, arrangement u16 (0 side by side, 1 interleaved, 2 behind a checkpoint), zero u16,
//!   88 log session u64, epoch u64, what a reader must know u64 (0), segments a shard that the rings may name u32, zero u32
//!  256 one log start a shard, 32 bytes: first seq u64, first group u64, tail seq u64, from version 4 on first page of the ring u32, zero
//!      one record a volume, 384 bytes:
//!        0 id u32     4 mode u8    5 flags u8 (bit 0: may have dirty, bit 1: damaged)    6 name length u8    7 zero
//!        8 uuid      24 size bytes u64     32 name, 64 bytes     96 backing identity length u16     98 zero
//!      112 backing identity, 256 bytes    368 zero
//! ```
//!
//! Magic number, checksum, version and length stay where they are in all versions to come, so that damage and novelty can
//! be told apart. The bytes behind `length` up to the end of their page are zero.

use crate::bytes::{all_zero, get_u16, get_u32, get_u64, get_uuid, put, put_u16, put_u32, put_u64};
use crate::checksum::{header_matches, seal_header};
use crate::layout::{Arrangement, SHARDS_MAX, SLOTS_PER_SHARD_MAX, SUPERBLOCK_SLOT_BYTES};
use crate::slots::{RingPlace, SLOTS_VERSION};
use crate::{COUNT_MAX, DecodeError, FORMAT_VERSION, Layout, PAGE_BYTES, is_read};
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use types::{Mode, ShardIndex, VOLUMES_MAX, VolumeId};

/// The first eight bytes of a device that carries a pool.
pub const SUPERBLOCK_MAGIC: &[u8; 8] = b"HEARTHSB";
/// Longest volume name, in bytes of UTF-8.
pub const NAME_BYTES_MAX: usize = 64;
/// Longest backing identity, in bytes.
pub const BACKING_IDENTITY_BYTES_MAX: usize = 256;

const STARTS_AT: usize = 256;
const START_BYTES: usize = 32;
const VOLUME_BYTES: usize = 384;
const VOLUME_NAME_AT: usize = 32;
const VOLUME_IDENTITY_AT: usize = 112;

/// Bytes, whole pages, of the longest superblock: what stands in its slot behind these is no superblock's.
pub const STORED_BYTES_MAX: usize =
    (STARTS_AT + SHARDS_MAX as usize * START_BYTES + VOLUMES_MAX * VOLUME_BYTES).next_multiple_of(PAGE_BYTES);

const _: () = assert!(STORED_BYTES_MAX <= SUPERBLOCK_SLOT_BYTES as usize, "the largest superblock fits its slot");

/// Where the current session's part of a shard's log begins. Everything before it was found, checked, sealed and flushed
/// when the session began. With slots: what of its ring counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogStart {
    /// The first segment that this session writes, from 1. All segments from here on with another session are void. With slots: the
    /// first group that counts.
    pub first_seq: u64,
    /// The number of its first group, from 1. With slots: all groups before this one are durable.
    pub first_group: u64,
    /// Segments before this one hold nothing that counts, whatever the log says; at most `first_seq`. With slots the same as that.
    pub tail_seq: u64,
    /// With slots: the page of the shard's part that its ring begins with; 0 unless the pool was a log before. Else 0.
    pub ring_first: u32,
}

impl LogStart {
    /// Of a log in which nothing was ever written.
    pub const EMPTY: LogStart = LogStart { first_seq: 1, first_group: 1, tail_seq: 1, ring_first: 0 };
}

/// What the pool knows of a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeRecord {
    /// Its number in the log, from 1, never used again after the volume is gone.
    pub id: VolumeId,
    /// Who it is, for the outside.
    pub uuid: [u8; 16],
    /// Its name: 1 to [`NAME_BYTES_MAX`] bytes.
    pub name: String,
    /// Size of the volume in bytes.
    pub size_bytes: u64,
    /// Its mode when last set.
    pub mode: Mode,
    /// Whether the log may hold dirty blocks of it. Set durably before the first dirty record is written, cleared when none
    /// is left.
    pub may_have_dirty: bool,
    /// Recovery found damage behind which dirty blocks of this volume may have been lost. Not attached unless forced, which
    /// clears it.
    pub damaged: bool,
    /// How to know the backing device again; at most [`BACKING_IDENTITY_BYTES_MAX`] bytes that mean nothing here.
    pub backing_identity: Vec<u8>,
}

/// The root of a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Superblock {
    /// The pool. Random, and in every structure of it.
    pub uuid: [u8; 16],
    /// Counts the versions of the superblock, from 1.
    pub generation: u64,
    /// Counts the starts of the pool; 0 before the first. Raised durably before a start writes to the log.
    pub session: u64,
    /// The last session ended in order and its checkpoint was written with this generation.
    pub clean: bool,
    /// The number the next volume gets.
    pub next_volume_id: VolumeId,
    /// Where everything lies.
    pub layout: Layout,
    /// With slots: the session whose pages of the rings count. Else 0.
    pub log_session: u64,
    /// With slots: counts who may write the pool; 0 where nobody counts. Else 0.
    pub epoch: u64,
    /// With slots: segments of each shard that its ring may still name, where the pool has given some away since its session began; what was
    /// there is forgotten. Else as many as the layout has.
    pub named_segments: u32,
    /// One a shard.
    pub log_starts: Vec<LogStart>,
    /// At most [`VOLUMES_MAX`], ids and names all different.
    pub volumes: Vec<VolumeRecord>,
}

impl Superblock {
    /// Of a pool that was just formatted: no volumes, an empty log.
    pub fn new(uuid: [u8; 16], layout: Layout) -> Superblock {
        Superblock {
            uuid,
            generation: 1,
            session: 0,
            clean: false,
            next_volume_id: VolumeId(1),
            layout,
            log_session: 0,
            epoch: 0,
            named_segments: layout.segments_per_shard,
            log_starts: vec![LogStart::EMPTY; usize::from(layout.shards)],
            volumes: Vec::new(),
        }
    }

    /// The superblock as bytes, whole pages, to be written at the beginning of a slot.
    ///
    /// # Panics
    /// If a limit is not kept: the caller checks what people enter before it gets here.
    pub fn encode(&self) -> Vec<u8> {
        self.check().expect("a superblock is sound before it is written");
        let volumes_at = STARTS_AT + self.log_starts.len() * START_BYTES;
        let length = volumes_at + self.volumes.len() * VOLUME_BYTES;
        let mut bytes = vec![0; length.next_multiple_of(PAGE_BYTES)];
        let into = &mut bytes[..length];
        put(into, 0, SUPERBLOCK_MAGIC);
        put_u32(into, 12, if self.layout.has_slots() { SLOTS_VERSION } else { FORMAT_VERSION });
        put_u32(into, 16, length as u32);
        put_u32(into, 20, u32::from(self.clean));
        put(into, 24, &self.uuid);
        put_u64(into, 40, self.generation);
        put_u64(into, 48, self.session);
        put_u64(into, 56, self.layout.ssd_bytes);
        put_u32(into, 64, self.layout.segment_bytes);
        put_u32(into, 68, self.layout.segments_per_shard);
        put_u16(into, 72, self.layout.shards);
        put_u16(into, 74, self.volumes.len() as u16);
        put_u32(into, 76, self.next_volume_id.0);
        if self.layout.has_slots() {
            put_u32(into, 80, self.layout.ring_pages);
            put_u16(into, 84, self.layout.arrangement as u16);
            put_u64(into, 88, self.log_session);
            put_u64(into, 96, self.epoch);
            put_u32(into, 112, self.named_segments);
        }
        for (start, slot) in self.log_starts.iter().zip(into[STARTS_AT..].chunks_exact_mut(START_BYTES)) {
            put_u64(slot, 0, start.first_seq);
            put_u64(slot, 8, start.first_group);
            put_u64(slot, 16, start.tail_seq);
            put_u32(slot, 24, start.ring_first);
        }
        for (volume, slot) in self.volumes.iter().zip(into[volumes_at..].chunks_exact_mut(VOLUME_BYTES)) {
            volume.encode(slot);
        }
        seal_header(into);
        bytes
    }

    /// How many bytes, whole pages, a superblock has whose first page is this one: as much is to be read for
    /// [`Superblock::decode`]. Only a guess until the checksum was compared.
    ///
    /// # Errors
    /// [`DecodeError::Magic`] if there is none; [`DecodeError::Checksum`] if the length cannot be.
    pub fn stored_bytes(first_page: &[u8; PAGE_BYTES]) -> Result<usize, DecodeError> {
        if !first_page.starts_with(SUPERBLOCK_MAGIC) {
            return Err(DecodeError::Magic);
        }
        let length = get_u32(first_page, 16) as usize;
        if length < STARTS_AT || length > SUPERBLOCK_SLOT_BYTES as usize {
            return Err(DecodeError::Checksum);
        }
        Ok(length.next_multiple_of(PAGE_BYTES))
    }

    /// Reads a superblock.
    ///
    /// # Errors
    /// Says why it is none, or none that this release can use.
    pub fn decode(bytes: &[u8]) -> Result<Superblock, DecodeError> {
        let wrong = |field| Err(DecodeError::Field { field });
        if bytes.len() < STARTS_AT || !bytes.starts_with(SUPERBLOCK_MAGIC) {
            return Err(DecodeError::Magic);
        }
        let length = get_u32(bytes, 16) as usize;
        if length < STARTS_AT || length > bytes.len() || !header_matches(&bytes[..length]) {
            return Err(DecodeError::Checksum);
        }
        let version = get_u32(bytes, 12);
        if !is_read(version) && version != SLOTS_VERSION {
            return Err(DecodeError::Version { found: version });
        }
        let (log_session, epoch, needs) = match version {
            SLOTS_VERSION => (get_u64(bytes, 88), get_u64(bytes, 96), get_u64(bytes, 104)),
            _ => (0, 0, 0),
        };
        if needs != 0 {
            // What a later release added, and this one cannot do without.
            return Err(DecodeError::Version { found: SLOTS_VERSION + 1 });
        }
        // Zero, as is all there, in versions without it.
        let Some(arrangement) = Arrangement::from_u16(get_u16(bytes, 84)) else { return wrong("arrangement") };
        let layout = Layout {
            ssd_bytes: get_u64(bytes, 56),
            segment_bytes: get_u32(bytes, 64),
            segments_per_shard: get_u32(bytes, 68),
            shards: get_u16(bytes, 72),
            ring_pages: if version == SLOTS_VERSION { get_u32(bytes, 80) } else { 0 },
            arrangement,
        };
        let (shards, volumes) = (usize::from(layout.shards), usize::from(get_u16(bytes, 74)));
        let volumes_at = STARTS_AT + shards * START_BYTES;
        if length != volumes_at + volumes * VOLUME_BYTES {
            return wrong("length");
        }
        let flags = get_u32(bytes, 20);
        let zero_from = if version == SLOTS_VERSION { 116 } else { 80 };
        if flags > 1 || !all_zero(&bytes[zero_from..STARTS_AT]) || version == SLOTS_VERSION && !all_zero(&bytes[86..88]) {
            return wrong("flags");
        }
        if (version == SLOTS_VERSION) != layout.has_slots() {
            return wrong("ring");
        }
        let starts = bytes[STARTS_AT..volumes_at].chunks_exact(START_BYTES);
        let log_start = |start: &[u8]| LogStart {
            first_seq: get_u64(start, 0),
            first_group: get_u64(start, 8),
            tail_seq: get_u64(start, 16),
            ring_first: get_u32(start, 24),
        };
        let superblock = Superblock {
            uuid: get_uuid(bytes, 24),
            generation: get_u64(bytes, 40),
            session: get_u64(bytes, 48),
            clean: flags == 1,
            next_volume_id: VolumeId(get_u32(bytes, 76)),
            layout,
            log_session,
            epoch,
            named_segments: if version == SLOTS_VERSION { get_u32(bytes, 112) } else { layout.segments_per_shard },
            log_starts: starts.map(log_start).collect(),
            volumes: bytes[volumes_at..length].chunks_exact(VOLUME_BYTES).map(VolumeRecord::decode).collect::<Result<_, _>>()?,
        };
        superblock.check()?;
        Ok(superblock)
    }

    /// With slots: where the ring of a shard lies in its part.
    pub fn ring(&self, shard: ShardIndex) -> RingPlace {
        RingPlace { first: self.log_starts[usize::from(shard.0)].ring_first, pages: self.layout.ring_pages }
    }

    /// The volume with that number.
    pub fn volume(&self, id: VolumeId) -> Option<&VolumeRecord> {
        self.volumes.iter().find(|volume| volume.id == id)
    }

    /// The rules that hold in every stored superblock.
    fn check(&self) -> Result<(), DecodeError> {
        let wrong = |field| Err(DecodeError::Field { field });
        if self.layout.check().is_err() {
            return wrong("layout");
        }
        if self.generation == 0 || self.generation.max(self.session).max(self.epoch) >= 2 * COUNT_MAX {
            return wrong("generation");
        }
        if self.log_session > self.session || !self.layout.has_slots() && (self.log_session, self.epoch) != (0, 0) {
            return wrong("log session");
        }
        if self.log_starts.len() != usize::from(self.layout.shards) {
            return wrong("log starts");
        }
        let named_pages = u64::from(self.named_segments) * u64::from(self.layout.pages_per_segment());
        let named_more = self.named_segments > self.layout.segments_per_shard;
        if self.named_segments < self.layout.segments_per_shard
            || named_more && (!self.layout.has_slots() || named_pages > SLOTS_PER_SHARD_MAX.into())
        {
            return wrong("named segments");
        }
        // The ring does not go round the end of the shard's part.
        let last_ring = if self.layout.has_slots() { self.layout.slots_per_shard() - self.layout.ring_pages } else { 0 };
        let sound = |start: &LogStart| {
            let groups = u64::from(self.layout.ring_pages);
            let is_ring = start.tail_seq == start.first_seq && (start.first_seq..=start.first_seq + groups).contains(&start.first_group);
            start.first_group >= 1
                && (is_ring || !self.layout.has_slots())
                && start.ring_first <= last_ring
                && start.first_seq.max(start.first_group) < 2 * COUNT_MAX
                && start.tail_seq >= 1
                && start.tail_seq <= start.first_seq
                && start.first_seq - start.tail_seq <= u64::from(self.layout.segments_per_shard)
        };
        if !self.log_starts.iter().all(sound) {
            return wrong("log start");
        }
        if self.volumes.len() > VOLUMES_MAX {
            return wrong("volume count");
        }
        for (nth, volume) in self.volumes.iter().enumerate() {
            if volume.id.0 == 0 || volume.id >= self.next_volume_id {
                return wrong("volume id");
            }
            if volume.name.is_empty() || volume.name.len() > NAME_BYTES_MAX {
                return wrong("volume name");
            }
            if volume.backing_identity.len() > BACKING_IDENTITY_BYTES_MAX {
                return wrong("backing identity");
            }
            if self.volumes[..nth].iter().any(|other| other.id == volume.id || other.name == volume.name) {
                return wrong("volume twice");
            }
        }
        Ok(())
    }
}

impl VolumeRecord {
    fn encode(&self, into: &mut [u8]) {
        put_u32(into, 0, self.id.0);
        into[4] = match self.mode {
            Mode::WriteThrough => 0,
            Mode::WriteAround => 1,
            Mode::WriteBack => 2,
            Mode::PassThrough => 3,
        };
        into[5] = u8::from(self.may_have_dirty) | u8::from(self.damaged) << 1;
        into[6] = self.name.len() as u8;
        put(into, 8, &self.uuid);
        put_u64(into, 24, self.size_bytes);
        put(into, VOLUME_NAME_AT, self.name.as_bytes());
        put_u16(into, 96, self.backing_identity.len() as u16);
        put(into, VOLUME_IDENTITY_AT, &self.backing_identity);
    }

    fn decode(from: &[u8]) -> Result<VolumeRecord, DecodeError> {
        let wrong = |field| Err(DecodeError::Field { field });
        let mode = match from[4] {
            0 => Mode::WriteThrough,
            1 => Mode::WriteAround,
            2 => Mode::WriteBack,
            3 => Mode::PassThrough,
            _ => return wrong("volume mode"),
        };
        let (name_bytes, identity_bytes) = (usize::from(from[6]), usize::from(get_u16(from, 96)));
        if from[5] > 3 {
            return wrong("volume flags");
        }
        if name_bytes > NAME_BYTES_MAX {
            return wrong("volume name");
        }
        if identity_bytes > BACKING_IDENTITY_BYTES_MAX {
            return wrong("backing identity");
        }
        let Ok(name) = core::str::from_utf8(&from[VOLUME_NAME_AT..VOLUME_NAME_AT + name_bytes]) else {
            return wrong("volume name");
        };
        Ok(VolumeRecord {
            id: VolumeId(get_u32(from, 0)),
            uuid: get_uuid(from, 8),
            name: name.to_string(),
            size_bytes: get_u64(from, 24),
            mode,
            may_have_dirty: from[5] & 1 != 0,
            damaged: from[5] & 2 != 0,
            backing_identity: from[VOLUME_IDENTITY_AT..VOLUME_IDENTITY_AT + identity_bytes].to_vec(),
        })
    }
}
