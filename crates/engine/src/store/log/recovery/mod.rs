//! From the bytes on the SSD to what the cache held.
//!
//! The rules:
//! - Segments before the current session's start ([`format::LogStart`]) are history: recovery of that session found, sealed
//!   and flushed them, so something missing there is damage. Segments from the start on count only with the current session.
//! - The *watermark* is the highest `durable_group` in any header or footer of the current session. Groups up to it were flushed:
//!   they must be there. A segment whose footer ends at or below it is taken from the footer.
//! - Behind that, groups are walked one by one. The log ends before the first group above the watermark that is missing, or
//!   whose dirty payload does not match its checksum, or whose dirty block rests on an object above the watermark that does not.
//!   Everything behind the end is void, however intact.
//! - The tail is what the last accepted group says. Segments before it do not count.
//! - The newest record of a block wins; a clean note counts only if it names that very record.
//! - The last record of an object says where it is, whatever became of its block. One without a block is kept while live blocks rest on
//!   it. A clean block whose base is gone is forgotten, a dirty one kept: reading it is an error, never older data.
//! - A hole at or below the watermark that neither footer nor headers fill is damage. Nobody knows what the lost records said,
//!   so clean blocks from before the hole are forgotten (the lost record may have been their invalidation) and volumes that may have
//!   dirty blocks are reported. The dirty blocks that were found are kept.
//! - Before anything is served, what was accepted is flushed, then every accepted segment without a true footer gets one, then that is
//!   flushed. The footer claims durability, so it must not go out in the first flush. Recovery that is interrupted anywhere and
//!   run again finds the same end: it writes nothing but footers that say what it found.
//! - [`PoolState::begin_session`] then fixes the ends of all shards in one step.

mod chain;
mod footers;
mod read;
mod replay;
mod seal;
mod segment;

use crate::medium::Medium;
use crate::superblock::{OpenError, PoolState};
use alloc::vec::Vec;
pub use format::checkpoint::LogEnd;
use format::slots::Set;
use format::{Packed, Record, RecordKind, Superblock};
pub(crate) use read::payload_matches;
use types::{ShardIndex, VolumeId};

/// Each start takes a fresh segment, so a pool that crashes again and again before it can evict would run out of them. Recovery
/// keeps as many free at the cost of the oldest clean blocks. Dirty ones are never given up: a writer keeps a reserve of its own.
pub const SEGMENTS_FREE_WANTED: u64 = 2;

/// The newest record of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecoveredRecord {
    /// The volume, known to the superblock.
    pub volume: VolumeId,
    /// The block in it.
    pub block: u64,
    /// The segment of the record and its payload.
    pub segment_seq: u64,
    /// The record's ordinal in that segment: of a plain one the page of the payload, of a packed one
    /// [`PACKED_ORDINAL`](format::packed::PACKED_ORDINAL) and a count.
    pub ordinal: u32,
    /// Newer than the backing device.
    pub dirty: bool,
    /// Valid sectors.
    pub mask: u8,
    /// Checksum of the content ([`format::block_checksum`]). It was verified only if the record stood above the watermark and is dirty.
    pub checksum: u32,
    /// How the content is stored, if it is packed. The base that it rests on is given too (before it or after it), unless it is lost.
    pub stored: Option<Packed>,
}

/// An object that live blocks rest on and that is no block itself any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecoveredBase {
    /// The segment of the record and its payload.
    pub segment_seq: u64,
    /// The record's ordinal in that segment, as in [`RecoveredRecord::ordinal`].
    pub ordinal: u32,
    /// Checksum of the content ([`format::object_checksum`]).
    pub checksum: u32,
    /// Its number, and where and how it is stored.
    pub stored: Packed,
}

/// What recovery gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecoveredItem {
    /// The newest record of a block. Of full encodings it is also where the object is.
    Block(RecoveredRecord),
    /// An object without a block. No object is given twice.
    Base(RecoveredBase),
}

impl RecoveredItem {
    /// The segment that it stands in.
    pub fn segment_seq(&self) -> u64 {
        match self {
            RecoveredItem::Block(record) => record.segment_seq,
            RecoveredItem::Base(base) => base.segment_seq,
        }
    }

    /// Its ordinal there.
    pub fn ordinal(&self) -> u32 {
        match self {
            RecoveredItem::Block(record) => record.ordinal,
            RecoveredItem::Base(base) => base.ordinal,
        }
    }

    /// How the content is stored, if it is packed.
    pub fn stored(&self) -> Option<Packed> {
        match self {
            RecoveredItem::Block(record) => record.stored,
            RecoveredItem::Base(base) => Some(base.stored),
        }
    }

    /// The record as it stands in the log now, to compare its payload with.
    pub(crate) fn record(&self) -> Record {
        let (kind, volume, block, mask, checksum, ordinal) = match *self {
            RecoveredItem::Block(RecoveredRecord { volume, block, ordinal, dirty, mask, checksum, .. }) => {
                let kind = if dirty { RecordKind::DataDirty } else { RecordKind::DataClean };
                (kind, volume, block, mask, checksum, ordinal)
            }
            RecoveredItem::Base(base) => (RecordKind::Base, VolumeId(0), 0, u8::MAX, base.checksum, base.ordinal),
        };
        let packed = self.stored();
        Record { kind, volume, block, mask, checksum, slot_page: segment::slot_page(ordinal, packed.as_ref()), packed }
    }
}

/// What recovery of one shard found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RecoveryReport {
    /// A clean stop had said of everything where it is: nothing else was read.
    pub after_clean_stop: bool,
    /// Live segments.
    pub segments: u64,
    /// Of them, taken from their footers without a look at the rest.
    pub sealed_segments: u64,
    /// Groups in live segments.
    pub groups: u64,
    /// Records in them.
    pub records: u64,
    /// The highest group known to be flushed before recovery.
    pub durable_group: u64,
    /// Groups behind the end of the log whose headers were found intact: in flight when the pool stopped, never acknowledged as
    /// durable.
    pub discarded_groups: u64,
    /// Footers written.
    pub footers_written: u64,
    /// Live segments below the watermark without a usable footer, read from their headers instead.
    pub walked_segments: u64,
    /// Pages that could not be read, of which another copy was used or (forced) none.
    pub unreadable_pages: u64,
    /// Holes below the watermark, found now. Each may have swallowed any number of groups.
    pub damaged_places: u64,
    /// Volumes that may have lost dirty blocks in them: do not attach unless forced. Give them to
    /// [`PoolState::begin_session`].
    pub damaged_volumes: Vec<VolumeId>,
    /// Live dirty blocks.
    pub dirty_blocks: u64,
    /// Live clean blocks.
    pub clean_blocks: u64,
    /// Clean blocks forgotten: because damage stands behind them, to free a segment, or because what they rest on is gone.
    pub forgotten_blocks: u64,
    /// Objects that blocks rest on and that are no blocks themselves.
    pub bases: u64,
    /// Of blocks in slots, unless there was a clean stop: clean and whole ones that became so last, oldest first; some of each volume.
    pub newest: Vec<Set>,
}

/// The log of a shard, recovered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recovered {
    /// Where the log goes on. No segment from `next_seq` on holds anything that counts. Where the ring is nearly full, the
    /// tail was moved past segments without live dirty blocks, to leave [`SEGMENTS_FREE_WANTED`] free.
    pub end: LogEnd,
    /// The number of the next object: above all that any record of the live log names.
    pub next_object: u64,
    /// What was found.
    pub report: RecoveryReport,
}

/// Recovers one shard: gives the newest record of every block that has content, and the objects without a block that some rest on, in
/// ascending log order (oldest first), and where the log goes on. Nothing is given before all of it is durable.
///
/// `force` is for rescue: pages that cannot be read count as damage instead of an error, and a log newer than the
/// superblock is taken as far as the superblock knows it.
///
/// # Errors
/// What the medium says, and [`OpenError::SuperblockOutdated`]. The pool is as it was and recovery may be repeated, except that a failed
/// flush is final.
pub fn recover(
    medium: &mut dyn Medium,
    pool: &mut PoolState,
    shard: ShardIndex,
    force: bool,
    sink: &mut dyn FnMut(RecoveredItem),
) -> Result<Recovered, OpenError> {
    let mut report = RecoveryReport::default();
    let mut reader = read::Reader::new(medium, &pool.superblock, shard, force);
    let found = chain::find(&mut reader, &mut report)?;
    seal::seal(medium, pool, shard, &found, &mut report)?;
    let (end, next_object) = replay::replay(&pool.superblock, found, &mut report, sink);
    Ok(Recovered { end, next_object, report })
}

/// A live segment, as a survey names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SurveyedSegment {
    pub seq: u64,
    pub session: u64,
    /// Written by the current session: it may lack a footer.
    pub in_session: bool,
    pub first_group: u64,
    pub last_group: u64,
}

/// What a recovery would find.
pub(crate) struct Surveyed {
    pub recovery: Recovered,
    pub segments: Vec<SurveyedSegment>,
}

/// As [`recover`] with force, but writes nothing.
pub(crate) fn survey(
    medium: &mut dyn Medium,
    superblock: &Superblock,
    shard: ShardIndex,
    sink: &mut dyn FnMut(RecoveredItem),
) -> Result<Surveyed, OpenError> {
    let mut report = RecoveryReport::default();
    let mut reader = read::Reader::new(medium, superblock, shard, true);
    let found = chain::find(&mut reader, &mut report)?;
    let first_seq = superblock.log_starts[usize::from(shard.0)].first_seq;
    let surveyed = |segment: &segment::Segment| SurveyedSegment {
        seq: segment.seq,
        session: segment.session,
        in_session: segment.seq >= first_seq,
        first_group: segment.first_group,
        last_group: segment.last_group,
    };
    let segments = found.segments.iter().map(surveyed).collect();
    let (end, next_object) = replay::replay(superblock, found, &mut report, sink);
    Ok(Surveyed { recovery: Recovered { end, next_object, report }, segments })
}
