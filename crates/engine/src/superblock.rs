//! The root of a pool: made, loaded, and stored safely.
//!
//! Invariants: at any moment at least one of the two copies on the medium is whole, because a copy is overwritten only after
//! the other one is known to be flushed, and the two are never under way in the same flush. When [`PoolState::store`] returns
//! both copies say the same, so that the loss of either loses nothing. After a failed flush nothing more is stored.
//!
//! The order of a start: [`load`], [`PoolState::reserve_session`], then for each shard [`recover`](slots::recovery::recover), or what a clean stop has
//! left ([`slots::stop`]), then [`PoolState::begin_session`], and only then is anything served.

use crate::index::NoMemory;
use crate::medium::{Medium, MediumError};
use crate::mutants;
use crate::store::slots;
use alloc::vec;
use format::checkpoint::LogEnd;
use format::layout::{SLOTS_PER_SHARD_MAX, SuperblockSlot};
use format::{DecodeError, Layout, LayoutError, LogStart, NEWEST_VERSION, PAGE_BYTES, Superblock};
use types::{ShardIndex, VolumeId};

/// Why a pool cannot be made, opened or kept.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpenError {
    /// The SSD refused an access.
    #[error("the SSD: {0}")]
    Medium(#[from] MediumError),
    /// The layout asked for cannot be.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// Neither superblock copy carries the magic number.
    #[error("there is no hearth pool on this device")]
    NoPool,
    /// A pool was here, but no copy of its superblock is intact.
    #[error("the pool's superblock is damaged: neither of its two copies is intact")]
    SuperblockDamaged,
    /// There are disks beside the cache, but no copy of their table is intact.
    #[error("the table of the disks beside the cache is damaged: neither of its two copies is intact")]
    DisksDamaged,
    /// Made by a newer release.
    #[error("the pool has format version {found}, this release reads up to {NEWEST_VERSION}: use the newer release")]
    NewerVersion {
        /// The version found.
        found: u32,
    },
    /// The device is smaller than the pool on it.
    #[error("the device has {found_bytes} bytes, but the pool on it takes {needed_bytes}: it was truncated or is another one")]
    Truncated {
        /// What the pool takes.
        needed_bytes: u64,
        /// What there is.
        found_bytes: u64,
    },
    /// The part of each shard is longer than an index can name.
    #[error(
        "each of its {shards} logs has {log_bytes} bytes, more than hearth can use: an earlier release made it so, and never cached anything there"
    )]
    LogsTooLong {
        /// How many there are.
        shards: u16,
        /// Size of each in bytes.
        log_bytes: u64,
    },
    /// Its blocks lie in a log, as earlier releases wrote it: it is to become slots first ([`upgrade`](crate::store::upgrade::upgrade)).
    #[error("its blocks lie in a log, as earlier releases wrote it: it must be upgraded to slots before it is opened")]
    NeedsUpgrade,
    /// The machine has no memory for the index.
    #[error(transparent)]
    Memory(#[from] NoMemory),
    /// A flush failed earlier: what is on the SSD is not known any more.
    #[error("an earlier flush of the SSD failed; nothing more is written to it")]
    FlushFailed,
    /// The log was written by a later session than the superblock knows.
    #[error("the log (session {found}) is newer than the superblock (session {known}): the SSD lost a write that it had confirmed")]
    SuperblockOutdated {
        /// The session found in the log.
        found: u64,
        /// The session of the superblock.
        known: u64,
    },
    /// The ring has no room to state what was found in it beside what it rests on.
    #[error("the ring that says what is cached has no room for a start: the SSD was changed, or written by another release")]
    RingFull,
    /// The pool cannot be cut there.
    #[error("there are dirty blocks in shard {shard} where the cache is to end: destage them first")]
    DirtyWhereItEnds {
        /// Which of them.
        shard: u16,
    },
    /// Only pools in slots whose shards end together can be cut.
    #[error("this cache cannot be cut or lengthened where it is")]
    NotResizable,
    /// Parts of the log, each with a checksum that matches, cannot have been written one after the other.
    #[error("the log contradicts itself from segment {segment} on: the SSD was changed, or assembled from two copies")]
    Contradiction {
        /// The first segment that does not follow.
        segment: u64,
    },
}

/// A pool's superblock and how it stands on the medium.
#[derive(Clone, Debug)]
pub struct PoolState {
    /// What is or will be stored. Change it, then call [`PoolState::store`].
    pub superblock: Superblock,
    /// A copy that is whole and flushed.
    good: SuperblockSlot,
    flush_failed: bool,
    /// The superblock's session is that of a start that has not begun it yet: see [`PoolState::reserve_session`].
    is_reserved: bool,
}

/// Makes an empty pool. Whatever was on the medium is lost.
///
/// # Errors
/// [`OpenError::Layout`] or [`OpenError::Truncated`] if the layout does not fit, before anything is written; else what the medium says.
/// After an error there may be no pool, or the new one; no old one.
pub fn create(medium: &mut dyn Medium, layout: Layout, uuid: [u8; 16]) -> Result<PoolState, OpenError> {
    layout.check()?;
    if layout.ssd_bytes > medium.size_bytes() {
        return Err(OpenError::Truncated { needed_bytes: layout.ssd_bytes, found_bytes: medium.size_bytes() });
    }
    // An old superblock in the second slot could outrank the new one in the first.
    wipe(medium)?;
    let superblock = Superblock::new(uuid, layout);
    let state = PoolState { superblock, good: SuperblockSlot::A, flush_failed: false, is_reserved: false };
    for slot in SuperblockSlot::ALL {
        medium.write(slot.offset_bytes(), &state.superblock.encode())?;
        medium.flush()?;
    }
    Ok(state)
}

/// Makes an empty pool in the place of another one: at any moment, also after a crash, the medium carries one of the two.
///
/// # Errors
/// As [`create`]; and if what is there cannot be read.
pub fn create_anew(medium: &mut dyn Medium, layout: Layout, uuid: [u8; 16]) -> Result<PoolState, OpenError> {
    layout.check()?;
    if layout.ssd_bytes > medium.size_bytes() {
        return Err(OpenError::Truncated { needed_bytes: layout.ssd_bytes, found_bytes: medium.size_bytes() });
    }
    let mut state = load(medium)?;
    // It outranks the old one from its first copy on.
    state.superblock = Superblock { generation: state.superblock.generation, ..Superblock::new(uuid, layout) };
    state.store(medium)?;
    Ok(state)
}

/// Gives a pool that is not running less of its SSD, or more: up to `ssd_bytes`. What it has in front of that stays; what is clean behind it is
/// forgotten. In one step; repeated, it changes nothing.
///
/// # Errors
/// [`OpenError::NotResizable`] if the layout, or what was begun and never started, does not allow that; [`OpenError::DirtyWhereItEnds`];
/// [`OpenError::Truncated`]; what the medium says. Then the pool is as it was, or, after an error of the medium, resized.
pub fn resize(medium: &mut dyn Medium, ssd_bytes: u64) -> Result<PoolState, OpenError> {
    let before = load(medium)?.superblock.layout;
    let mut state = resized(medium, ssd_bytes)?;
    if state.superblock.layout != before {
        state.store(medium)?;
    }
    Ok(state)
}

/// Whether [`resize`] can be done; changes nothing.
///
/// # Errors
/// As [`resize`].
pub fn may_resize(medium: &mut dyn Medium, ssd_bytes: u64) -> Result<(), OpenError> {
    resized(medium, ssd_bytes).map(drop)
}

/// The pool as it would be.
fn resized(medium: &mut dyn Medium, ssd_bytes: u64) -> Result<PoolState, OpenError> {
    if ssd_bytes > medium.size_bytes() {
        return Err(OpenError::Truncated { needed_bytes: ssd_bytes, found_bytes: medium.size_bytes() });
    }
    let mut state = load(medium)?;
    let before = state.superblock.layout;
    let layout = before.resized(ssd_bytes).ok_or(OpenError::NotResizable)?;
    if layout == before {
        return Ok(state);
    }
    // Where it was cut and never started since, the rings name slots that may be somebody else's by now.
    if state.superblock.named_segments != before.segments_per_shard {
        return Err(OpenError::NotResizable);
    }
    state.superblock.named_segments = before.segments_per_shard.max(layout.segments_per_shard);
    state.superblock.layout = layout;
    for shard in (0..layout.shards).map(ShardIndex) {
        slots::recovery::may_cut(medium, &state.superblock, shard)?;
    }
    Ok(state)
}

/// Makes the medium carry no pool.
///
/// # Errors
/// What the medium says.
pub fn wipe(medium: &mut dyn Medium) -> Result<(), OpenError> {
    for slot in SuperblockSlot::ALL {
        if slot.offset_bytes() + PAGE_BYTES as u64 <= medium.size_bytes() {
            medium.write(slot.offset_bytes(), &[0; PAGE_BYTES])?;
        }
    }
    Ok(medium.flush()?)
}

/// One copy as found. The error of the outer result is the medium's.
pub(crate) fn read_copy(medium: &mut dyn Medium, slot: SuperblockSlot) -> Result<Result<Superblock, DecodeError>, MediumError> {
    let (offset_bytes, size_bytes) = (slot.offset_bytes(), medium.size_bytes());
    if offset_bytes + PAGE_BYTES as u64 > size_bytes {
        return Ok(Err(DecodeError::Magic));
    }
    let mut first_page = [0; PAGE_BYTES];
    medium.read(offset_bytes, &mut first_page)?;
    let length = match Superblock::stored_bytes(&first_page) {
        Ok(length) if offset_bytes + length as u64 <= size_bytes => length,
        Ok(_) => return Ok(Err(DecodeError::Checksum)),
        Err(error) => return Ok(Err(error)),
    };
    let mut bytes = vec![0; length];
    medium.read(offset_bytes, &mut bytes)?;
    Ok(Superblock::decode(&bytes))
}

/// Reads the superblock: of two intact copies the newer one, of one intact copy that one.
///
/// # Errors
/// Each kind of trouble has its own [`OpenError`]. A copy that cannot be read is an error only if the other one is not intact.
pub fn load(medium: &mut dyn Medium) -> Result<PoolState, OpenError> {
    let copies = SuperblockSlot::ALL.map(|slot| (slot, read_copy(medium, slot)));
    let mut best: Option<(SuperblockSlot, &Superblock)> = None;
    let mut trouble = OpenError::NoPool;
    for (slot, copy) in &copies {
        match copy {
            Ok(Ok(superblock)) => {
                if best.is_none_or(|(_, other)| superblock.generation > other.generation) {
                    best = Some((*slot, superblock));
                }
            }
            // Intact but from a newer release, which may have changed anything: never fall back to the older copy.
            Ok(Err(DecodeError::Version { found })) => {
                return Err(OpenError::NewerVersion { found: *found });
            }
            Ok(Err(DecodeError::Magic)) => {}
            Ok(Err(DecodeError::Checksum | DecodeError::Field { .. })) => {
                if trouble == OpenError::NoPool {
                    trouble = OpenError::SuperblockDamaged;
                }
            }
            Err(error) => trouble = OpenError::Medium(*error),
        }
    }
    let Some((good, superblock)) = best else {
        return Err(trouble);
    };
    let needed_bytes = superblock.layout.ssd_bytes;
    if needed_bytes > medium.size_bytes() {
        return Err(OpenError::Truncated { needed_bytes, found_bytes: medium.size_bytes() });
    }
    Ok(PoolState { superblock: superblock.clone(), good, flush_failed: false, is_reserved: false })
}

impl PoolState {
    /// Makes [`PoolState::superblock`], with the next generation, the state of the pool. When this returns, it survives any
    /// crash and the loss of one copy. Any store ends the validity of a checkpoint.
    ///
    /// # Errors
    /// After an error the medium has the old state or the new one, and storing may be tried again, unless it was a flush that
    /// failed: then every later call gives [`OpenError::FlushFailed`].
    pub fn store(&mut self, medium: &mut dyn Medium) -> Result<(), OpenError> {
        self.superblock.clean = false;
        self.store_as_is(medium)
    }

    /// As [`PoolState::store`], and calls the pool clean: for the end of a clean stop.
    pub(crate) fn store_clean(&mut self, medium: &mut dyn Medium) -> Result<(), OpenError> {
        self.superblock.clean = true;
        self.store_as_is(medium)
    }

    fn store_as_is(&mut self, medium: &mut dyn Medium) -> Result<(), OpenError> {
        self.check_flushes()?;
        // Counted up even if the write fails: what it left behind must never outrank, or equal, a later store.
        self.superblock.generation += 1;
        let bytes = self.superblock.encode();
        let second = self.good;
        if mutants::active(mutants::SUPERBLOCKS_IN_ONE_FLUSH) {
            medium.write(second.other().offset_bytes(), &bytes)?;
            return self.write_copy(medium, second, &bytes);
        }
        self.write_copy(medium, second.other(), &bytes)?;
        self.good = second.other();
        self.write_copy(medium, second, &bytes)
    }

    fn write_copy(&mut self, medium: &mut dyn Medium, slot: SuperblockSlot, bytes: &[u8]) -> Result<(), OpenError> {
        medium.write(slot.offset_bytes(), bytes)?;
        self.flush(medium)
    }

    /// Whether shards can be made of it, as it is: what was loaded can be wiped, and written over, whatever it says.
    ///
    /// # Errors
    /// [`OpenError::LogsTooLong`]; [`OpenError::NeedsUpgrade`].
    pub fn check_slots(&self) -> Result<(), OpenError> {
        self.check_logs()?;
        if self.superblock.layout.has_slots() { Ok(()) } else { Err(OpenError::NeedsUpgrade) }
    }

    /// Whether a log, or what it becomes, can be read by shards.
    ///
    /// # Errors
    /// [`OpenError::LogsTooLong`].
    pub(crate) fn check_logs(&self) -> Result<(), OpenError> {
        let Layout { shards, segments_per_shard, segment_bytes, .. } = self.superblock.layout;
        let pages = u64::from(segments_per_shard) * u64::from(self.superblock.layout.pages_per_segment());
        if pages > u64::from(SLOTS_PER_SHARD_MAX) {
            return Err(OpenError::LogsTooLong { shards, log_bytes: u64::from(segments_per_shard) * u64::from(segment_bytes) });
        }
        Ok(())
    }

    /// Flushes the medium; a failure is remembered.
    pub(crate) fn flush(&mut self, medium: &mut dyn Medium) -> Result<(), OpenError> {
        self.check_flushes()?;
        medium.flush().map_err(|error| {
            self.flush_failed = !mutants::active(mutants::FAILED_FLUSH_RETRIED);
            OpenError::Medium(error)
        })
    }

    fn check_flushes(&self) -> Result<(), OpenError> {
        if self.flush_failed { Err(OpenError::FlushFailed) } else { Ok(()) }
    }

    /// The number of the session that [`PoolState::begin_session`] will begin.
    pub fn next_session(&self) -> u64 {
        self.superblock.session + u64::from(!self.is_reserved)
    }

    /// Gives out the number of the next session, durably, and for good: where blocks lie in slots, a start writes under it before it begins. An
    /// interrupted start must not have used the number that a later one uses.
    ///
    /// # Errors
    /// As [`PoolState::store`].
    pub fn reserve_session(&mut self, medium: &mut dyn Medium) -> Result<(), OpenError> {
        self.superblock.session = self.next_session();
        self.is_reserved = true;
        if mutants::active(mutants::SESSION_TWICE) {
            return Ok(());
        }
        // A pool that was stopped in order stays so until its session has begun: until then nothing that counts is written to a ring.
        self.store_as_is(medium)
    }

    /// Begins a session in the rings as a clean stop has left them ([`crate::store::slots::stop`]): they go on in the session that they are of.
    ///
    /// # Errors
    /// As [`PoolState::begin_session`].
    pub fn continue_session(&mut self, medium: &mut dyn Medium) -> Result<(), OpenError> {
        assert!(self.superblock.clean && self.superblock.layout.has_slots(), "it was stopped in order");
        self.superblock.session = self.next_session();
        self.is_reserved = false;
        if mutants::active(mutants::STAYS_CLEAN) { self.store_as_is(medium) } else { self.store(medium) }
    }

    /// For the end of a clean stop where blocks lie in slots: all that counts of the rings is before these ends, from their tails on.
    pub(crate) fn store_stopped(&mut self, medium: &mut dyn Medium, ends: &[LogEnd]) -> Result<(), OpenError> {
        self.go_on_at(ends);
        self.store_clean(medium)
    }

    /// The rings stay where they are.
    fn go_on_at(&mut self, ends: &[LogEnd]) {
        for (start, end) in self.superblock.log_starts.iter_mut().zip(ends) {
            *start = LogStart { ring_first: start.ring_first, ..log_start(end) };
        }
    }

    /// Begins a session: from here on the logs go on where recovery, or the checkpoint, says they end. One atomic step for all
    /// shards; whatever stands behind those ends is void for ever. Volumes in `damaged` are marked as such.
    ///
    /// # Errors
    /// As [`PoolState::store`]. The pool must then be loaded anew.
    pub fn begin_session(&mut self, medium: &mut dyn Medium, ends: &[LogEnd], damaged: &[VolumeId]) -> Result<(), OpenError> {
        assert_eq!(ends.len(), usize::from(self.superblock.layout.shards), "one log end a shard");
        self.superblock.session = self.next_session();
        self.is_reserved = false;
        if self.superblock.layout.has_slots() {
            self.superblock.log_session = self.superblock.session;
            self.superblock.named_segments = self.superblock.layout.segments_per_shard;
        }
        self.go_on_at(ends);
        for volume in &mut self.superblock.volumes {
            volume.damaged |= damaged.contains(&volume.id);
        }
        self.store(medium)
    }

    /// Makes the log, whose session has begun and has written nothing, a pool with slots, in one step: `upgraded` is its superblock. What the
    /// rings say was written before, and is flushed first.
    ///
    /// # Errors
    /// As [`PoolState::store`]. The pool must then be loaded anew; it is the one or the other.
    pub(crate) fn become_slots(&mut self, medium: &mut dyn Medium, upgraded: Superblock) -> Result<(), OpenError> {
        let is_upgrade = !self.superblock.layout.has_slots() && upgraded.layout.has_slots();
        assert!(is_upgrade && upgraded.log_session == self.superblock.session, "a log becomes slots");
        self.flush(medium)?;
        self.superblock = Superblock { generation: self.superblock.generation, ..upgraded };
        self.store(medium)
    }
}

fn log_start(end: &LogEnd) -> LogStart {
    LogStart { first_seq: end.next_seq, first_group: end.next_group, tail_seq: end.tail_seq, ring_first: 0 }
}
