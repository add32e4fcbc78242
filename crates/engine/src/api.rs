//! The words spoken between the engine and the outside.
//!
//! Driving a [`Shard`](crate::shard::Shard): feed it with `submit`, `complete`, `command` and `tick`; after each feeding call drain
//! `poll_action` until it gives `None`. Time is nanoseconds on any monotonic scale and is handed in; it must not go back.
//! Every [`Io`] handed out must be answered by exactly one `complete` with the same [`IoId`] and the same pages (a failed read of a
//! backing device: with or without); every [`Request`] put in is answered by exactly one [`Action::Reply`].

use crate::treatment::PolicyMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use page::{PageMutVec, PageVec};
use types::{Admission, BypassReason, Mode, OnSsdLoss, SsdIndex, VolumeId, VolumeIndex};

/// What a client asks for. Sector addresses are relative to the volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// Read sectors.
    Read,
    /// Write sectors.
    Write,
    /// Make sectors read as zeroes.
    WriteZeroes,
    /// The client no longer needs the sectors. They read as zeroes or as before, stable either way.
    Discard,
    /// All writes acknowledged before this request was submitted become durable.
    Flush,
    /// As a discard, but the sectors read as zeroes: what a loop device makes of a discard, and of zeroes that may deallocate.
    PunchHole,
}

/// Who asks, and what for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// A client, which waits for the answer.
    Client,
    /// A client whose stream is known to pass over its objects once: what is cached is served, nothing enters.
    Stream,
    /// hearth itself, a read of what is asked for by name, such as a warm-up: it enters the cache without
    /// proof of re-use, whatever its size, and is no part of a stream.
    Warm,
    /// hearth itself, a read of what lies on a volume, or of what lies between two pieces of a warm-up:
    /// what is cached is served, nothing enters whatever the policy of the place, no trace is left.
    Look,
}

impl Origin {
    /// Whether hearth asks for itself. No client waits: destage goes on as if such a read were not there.
    pub const fn is_own(self) -> bool {
        matches!(self, Origin::Warm | Origin::Look)
    }

    /// Why all its requests go around the cache, if they do.
    pub(crate) const fn bypass(self) -> Option<BypassReason> {
        match self {
            Origin::Stream | Origin::Look => Some(BypassReason::Stream),
            Origin::Client | Origin::Warm => None,
        }
    }
}

/// One request. Made by [`Request::new`] or a shorter form of it.
#[derive(Clone, Debug)]
pub struct Request {
    /// Chosen by the submitter, unique among its requests in flight; comes back in the [`Reply`].
    pub id: u64,
    /// Which volume.
    pub volume: VolumeIndex,
    /// What to do.
    pub op: Op,
    /// Durable when acknowledged (writes, zeroes, holes and discards only).
    pub fua: bool,
    /// First sector; ignored for flush.
    pub start_sector: u64,
    /// Count of sectors; 0 for flush, else at least 1.
    pub sectors: u32,
    /// For [`Op::Write`]: `pages[i]` holds block `start_sector / 8 + i` and the data begins at byte
    /// `start_sector % 8 * 512` of `pages[0]`. Empty otherwise.
    pub pages: PageVec,
    /// Who asks. Other requests than reads come from clients.
    pub(crate) origin: Origin,
    /// Why it goes around the cache, if it does: what its origin says, then what the front decides.
    pub(crate) bypass: Option<BypassReason>,
    /// Decided by the front: a large write that the SSD takes because its client may wait for it, unless dirty data nears its limit.
    pub(crate) in_burst: bool,
    /// One step of a discard or write-zeroes over whole extents of several shards.
    pub(crate) range: Option<RangeStep>,
}

impl Request {
    /// A request without data; [`Request::pages`] and [`Request::fua`] complete a write.
    #[inline]
    pub fn new(id: u64, volume: VolumeIndex, op: Op, start_sector: u64, sectors: u32, origin: Origin) -> Request {
        let bypass = origin.bypass();
        Request { id, volume, op, fua: false, start_sector, sectors, pages: PageVec::new(), origin, bypass, in_burst: false, range: None }
    }

    /// A read.
    #[inline]
    pub fn read(id: u64, volume: VolumeIndex, start_sector: u64, sectors: u32, origin: Origin) -> Request {
        Request::new(id, volume, Op::Read, start_sector, sectors, origin)
    }

    /// A client's write of whole or partial blocks.
    #[inline]
    pub fn write(id: u64, volume: VolumeIndex, start_sector: u64, sectors: u32, pages: PageVec) -> Request {
        Request::new(id, volume, Op::Write, start_sector, sectors, Origin::Client).pages(pages)
    }

    /// The same with these pages: see the field.
    #[must_use]
    #[inline]
    pub fn pages(self, pages: PageVec) -> Request {
        Request { pages, ..self }
    }

    /// The same, durable when acknowledged or not.
    #[must_use]
    #[inline]
    pub fn fua(self, fua: bool) -> Request {
        Request { fua, ..self }
    }

    /// The same, sent around the cache for this reason, as a front does.
    #[must_use]
    #[inline]
    pub fn around(self, reason: Option<BypassReason>) -> Request {
        Request { bypass: reason.or(self.bypass), ..self }
    }

    /// The same as a large write that the SSD takes, as a front decides.
    #[must_use]
    #[inline]
    pub fn burst(self, in_burst: bool) -> Request {
        Request { in_burst, ..self }
    }

    /// The same as a step of a range request, as a front sends them.
    #[must_use]
    #[inline]
    pub fn step(self, range: Option<RangeStep>) -> Request {
        Request { range, ..self }
    }

    /// Whether it is a step of a range request.
    #[inline]
    pub fn is_step(&self) -> bool {
        self.range.is_some()
    }

    /// Who asks.
    #[inline]
    pub fn origin(&self) -> Origin {
        self.origin
    }
}

/// What a shard does for a discard or write-zeroes over whole extents of several shards (a *range request*), step by step. The front
/// sends the steps; [`crate::front`] says in which order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RangeStep {
    /// Lock the range and make its clean cached blocks void. Answered when a crash no longer finds any of them; the lock stays.
    Hold,
    /// Write the backing device, all of the range at once. Sent to one shard, when every shard holds the range.
    Write {
        /// Some shard has dirty blocks in the range: the write must be durable before they are made void.
        over_dirty: bool,
    },
    /// Make the dirty blocks of the range void if it was written. The lock stays.
    Settle(RangeWrite),
    /// Hold once more what is held: the SSD was lost under it.
    HoldAgain,
    /// Unlock the range. If some shard had dirty blocks in it and it was written, it is settled already, and here nothing was written.
    Release(RangeWrite),
}

/// What became of the write of a range request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RangeWrite {
    /// It is on the backing device; `durable`: a power cut cannot undo it.
    Done {
        /// See above.
        durable: bool,
    },
    /// It failed: any part of it may have happened.
    Failed,
    /// Nothing was written.
    Untouched,
}

/// Why a request failed, as clients are told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestError {
    /// A device failed, or dirty data cannot be read (EIO).
    Io,
    /// The backing store is out of space (ENOSPC).
    NoSpace,
    /// The volume is read-only (EPERM).
    ReadOnly,
    /// Out of range, or not what the operation allows (EINVAL).
    Invalid,
    /// The volume is going away (ESHUTDOWN).
    Shutdown,
}

/// The answer to one [`Request`].
#[derive(Clone, Debug)]
pub struct Reply {
    /// The request's id.
    pub id: u64,
    /// Done, or why not.
    pub result: Result<(), RequestError>,
    /// For a successful read: the blocks that hold the data, laid out as [`Request::pages`]. Empty otherwise.
    pub pages: PageVec,
    /// Where the answer came from; for latency histograms by outcome.
    pub outcome: Outcome,
    /// The answer to a [`RangeStep`]; `None` for all others, and for a range that is released.
    pub range: Option<RangeReply>,
}

/// What the front learns from a step of a range request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RangeReply {
    /// The shard holds the range.
    Held {
        /// It has dirty blocks in it.
        over_dirty: bool,
    },
    /// What became of the write.
    Written(RangeWrite),
    /// The range is settled, and still held.
    Settled,
    /// The SSD was lost meanwhile, and what was dirty in the range goes home over what was written. The range is still held, and is to be
    /// held and written again.
    Again,
}

/// How a request was served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// A read, all of it from RAM.
    RamHit,
    /// A read, all of it cached, some of it on the SSD.
    SsdHit,
    /// A read that needed the backing device.
    Miss,
    /// A read or write that went around the cache.
    Bypass,
    /// A write into the SSD (write-back).
    WriteBack,
    /// A write that went to the backing device and through the cache.
    WriteThrough,
    /// Flush, discard, or a failure.
    Other,
    /// A flush that had to wait for the backing device.
    BackingFlush,
}

/// Which device an [`Io`] is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// An SSD of the pool.
    Ssd(SsdIndex),
    /// The backing device of a volume.
    Backing(VolumeIndex),
}

impl Target {
    /// Whether it is an SSD, whichever.
    #[inline]
    pub fn is_ssd(self) -> bool {
        matches!(self, Target::Ssd(_))
    }
}

/// Names an [`Io`] until its completion.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct IoId(pub u64);

/// What a device is to do.
#[derive(Debug)]
pub enum IoKind {
    /// Fill the pages.
    Read(PageMutVec),
    /// Write the pages; with `fua` durable when complete.
    Write {
        /// The data.
        pages: PageVec,
        /// Durable when complete.
        fua: bool,
    },
    /// Make every write that completed before this I/O was handed out durable. A failure is final for the device.
    Flush,
    /// Make the range read as zeroes, by deallocation where the device can.
    WriteZeroes {
        /// Durable when complete.
        fua: bool,
        /// The client gives the range up: what deallocates it moves no data.
        hole: bool,
    },
    /// Deallocate: the range reads as zeroes afterwards, or (result `Unsupported`) is untouched.
    Discard,
}

/// What a write to the SSD writes. Writes of one kind become void at about the same time: a device that keeps them apart has less to copy
/// within its flash. Blocks of different kinds are written at once unless the shard was asked to keep them apart
/// ([`crate::shard::Shard::keep_writes_apart`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WriteKind {
    /// None of the others.
    #[default]
    Other,
    /// Statements about blocks: a small ring, written in sequence, again and again.
    Ring,
    /// Packed payloads, several in a page.
    Packed,
    /// Blocks that clients wrote, a page each.
    Clients,
    /// Clean blocks that were admitted, a page each.
    Fills,
}

/// One I/O for the outside to start. I/Os handed out may be performed in any order and at the same time.
#[derive(Debug)]
pub struct Io {
    /// For the completion.
    pub id: IoId,
    /// The device.
    pub target: Target,
    /// Where it starts, in bytes; a multiple of 512 (of 4096 for the SSD).
    pub offset_bytes: u64,
    /// How long it is, in bytes; a multiple of 512 (of 4096 for the SSD); 0 for a flush. With pages, the data begins at
    /// byte `offset_bytes % 4096` of the first page.
    pub length_bytes: u64,
    /// What to do, with its pages.
    pub kind: IoKind,
    /// Of a write to the SSD: what it writes.
    pub writes: WriteKind,
    /// Background work (destage, reinsertion): devices may serve client I/O first.
    pub background: bool,
}

/// Why an [`Io`] failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IoError {
    /// The device said no, or transferred less than asked (EIO and all that is not below).
    Failed,
    /// No space (ENOSPC).
    NoSpace,
    /// The device cannot do this at all (EOPNOTSUPP); only for [`IoKind::Discard`].
    Unsupported,
}

/// A completed [`Io`]: the kind comes back with its pages.
#[derive(Debug)]
pub struct Completion {
    /// The I/O's id.
    pub id: IoId,
    /// All of it done, or why not.
    pub result: Result<(), IoError>,
    /// Pages of a read, filled if `result` is ok; empty for other kinds (their pages are dropped by the device). A failed read of a backing
    /// device may keep them: one that was given up may still be writing to them.
    pub pages: PageMutVec,
}

/// What the engine wants done.
#[derive(Debug)]
pub enum Action {
    /// Start this I/O.
    Io(Io),
    /// Give this to whoever submitted the request.
    Reply(Reply),
    /// Something an administrator should know, or that must be recorded outside the SSD.
    Event(Event),
}

/// Why a [`Command`] did not do what it is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CommandFailure {
    /// The shard knows no volume in that place.
    #[error("no such volume")]
    NoVolume,
    /// The volume went away meanwhile.
    #[error("the volume went away")]
    VolumeGone,
    /// By [`Command::Cancel`].
    #[error("cancelled")]
    Cancelled,
    /// One check at a time.
    #[error("another check is under way")]
    AnotherCheck,
    /// The SSD cannot be written or read any more.
    #[error("the SSD failed")]
    SsdFailed,
    /// The pool comes to rest: the next start goes on.
    #[error("the pool is being stopped; the change continues at the next start")]
    StoppedInChange,
    /// The pool comes to rest.
    #[error("the pool is being stopped; blocks not yet destaged stay dirty")]
    StoppedInDestage,
    /// The pool comes to rest.
    #[error("the pool is being stopped")]
    Stopped,
    /// The backing device failed a flush.
    #[error("the backing device failed; dirty data stays on the SSD")]
    BackingFailed,
    /// The same, of a device that was to be let go.
    #[error("the backing device failed a flush: unflushed writes may be lost")]
    FlushFailed,
    /// The volume is held.
    #[error("the backing device is not available")]
    BackingAbsent,
    /// A destage write failed.
    #[error("the backing device refused a write; the blocks that it refused stay dirty")]
    WriteRefused,
    /// So many dirty blocks cannot be read from the SSD.
    #[error("{0} dirty blocks cannot be read from the SSD: they return EIO until clients overwrite them")]
    Unreadable(u64),
    /// The host gave the shards up.
    #[error("the pool was stopped because its SSD does not answer")]
    Abandoned,
}

/// An event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// This shard cannot write the SSD any more. The host tells all shards of the pool by
    /// [`Command::SsdFailed`]. Then it records durably, outside the SSD, that the clean blocks on it
    /// are void, and says so by [`Command::DegradedRecorded`].
    SsdFailed {
        /// Which SSD.
        ssd: SsdIndex,
        /// It has no space for what was written: its file system is full, or what it is thinly provisioned from.
        no_space: bool,
    },
    /// The SSD failed, and no block of the volume is dirty in this shard any more. When all shards
    /// have said so, the host records durably that everything the SSD holds of the volume is void,
    /// dirty blocks too, and gives [`Command::SsdForgotten`].
    NothingDirty(VolumeIndex),
    /// The SSD failed, and dirty blocks of this shard still go home; said now and then. The host tells all shards by
    /// [`Command::GoingHome`]: what waits in one of them may wait for another.
    GoingHome,
    /// The SSD is lost, and these blocks of the volume were written on the backing device. The host records durably, outside the SSD, that
    /// what the SSD holds of them is void, and says so by [`Command::PastRecorded`]; before that no write to them is acknowledged. The next
    /// start that finds the SSD gives [`Command::VoidPast`].
    PastSsd {
        /// For `PastRecorded`; no other shard of the pool uses it.
        token: u64,
        /// Which volume.
        volume: VolumeIndex,
        /// Which blocks of it.
        blocks: Range<u64>,
    },
    /// The backing device failed a flush: final (C5). The volume acknowledges no more writes until it is attached anew.
    BackingFailed(VolumeIndex),
    /// A dirty block cannot be read back; the client got an error.
    DirtyBlockUnreadable(VolumeIndex, u64),
    /// A clean block did not match its checksum and was dropped.
    ChecksumMismatch(VolumeIndex, u64),
    /// A destage write failed; the block stays dirty and is retried.
    DestageFailed(VolumeIndex, u64),
    /// A [`Command`] that takes time is done. The token is the command's.
    CommandDone(u64, Result<(), CommandFailure>),
}

/// How a volume is to be treated; may change while I/O runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeOptions {
    /// What an acknowledged write means.
    pub mode: Mode,
    /// When blocks enter the SSD.
    pub admission: Admission,
    /// Oldest a dirty block may get before its destage begins, in nanoseconds.
    pub write_cache_depth_ns: u64,
    /// Most dirty bytes of this volume, over all shards. At the limit, writes wait for destage.
    pub dirty_limit_bytes: u64,
    /// Requests longer than this go around the cache.
    pub max_io_bytes: u32,
    /// A sequential stream goes around the cache after this many bytes; `None`: never.
    pub sequential_cutoff_bytes: Option<u64>,
    /// Most bytes of large writes that the SSD takes between two flushes, because somebody may wait for them.
    pub log_burst_bytes: u64,
    /// Destage tries to keep client reads of the backing device below this, in nanoseconds.
    pub latency_goal_ns: u64,
    /// Most bytes per second of destage to this volume's backing device; `None`: as fast as the latency goal allows.
    pub destage_rate_bytes: Option<u64>,
    /// No writes at all.
    pub read_only: bool,
    /// What writes do when the SSD is lost while some of the volume is dirty.
    pub on_ssd_loss: OnSsdLoss,
    /// Write-back: what a write holds of each aligned unit of so many bytes is found as a whole or not at all after a crash. A power of two
    /// from [`BLOCK_BYTES`](types::BLOCK_BYTES) to [`atomic_bytes_max`](crate::store::atomic_bytes_max); `None`: nothing is promised
    /// of more than a block.
    pub atomic_bytes: Option<u32>,
}

impl VolumeOptions {
    /// Blocks of a unit that writes to the volume keep whole, if they do.
    #[inline]
    pub fn atomic_blocks(&self) -> Option<u32> {
        self.atomic_bytes.filter(|_| self.mode == Mode::WriteBack).map(|bytes| bytes / types::BLOCK_BYTES as u32)
    }
}

impl Default for VolumeOptions {
    fn default() -> VolumeOptions {
        VolumeOptions {
            mode: Mode::WriteThrough,
            admission: Admission::SecondTouch,
            write_cache_depth_ns: 30_000_000_000,
            dirty_limit_bytes: u64::MAX,
            max_io_bytes: 64 << 10,
            sequential_cutoff_bytes: Some(1 << 20),
            log_burst_bytes: u64::MAX,
            latency_goal_ns: 50_000_000,
            destage_rate_bytes: None,
            read_only: false,
            on_ssd_loss: OnSsdLoss::Stop,
            atomic_bytes: None,
        }
    }
}

/// Blocks of one [`Command::Cold`] that are looked at, 256 MiB: clients do not wait for more.
pub const COLD_BLOCKS_MAX: u64 = 1 << 16;

/// What an administrator or the host asks of a shard.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    /// A volume appears, or is known from recovery and may be used from now on.
    Attach {
        /// Its place in the index.
        volume: VolumeIndex,
        /// Its number on the SSD.
        id: VolumeId,
        /// Its size in bytes, a multiple of 512, at most [`types::VOLUME_BYTES_MAX`].
        size_bytes: u64,
        /// How to treat it.
        options: VolumeOptions,
    },
    /// A volume is known from recovery but its backing device is not available: its blocks are kept, requests are refused. A later
    /// `Attach` of the same id makes it available.
    Hold {
        /// Its place in the index.
        volume: VolumeIndex,
        /// Its number on the SSD.
        id: VolumeId,
        /// Its size in bytes.
        size_bytes: u64,
    },
    /// The volume's backing device has grown: the volume ends there from now on. Requests behind the old end are for after this; the host
    /// gives it to all shards before it tells any client. Never to a smaller size.
    Grow {
        /// Which volume.
        volume: VolumeIndex,
        /// Its size in bytes, as for [`Command::Attach`].
        size_bytes: u64,
    },
    /// Options change. From a write-back mode to another, dirty blocks are destaged; `Event::CommandDone` when none is left.
    SetOptions {
        /// For `CommandDone`.
        token: u64,
        /// Which volume.
        volume: VolumeIndex,
        /// The new options.
        options: VolumeOptions,
    },
    /// Bring all dirty blocks of the volume home now. `CommandDone` when the backing device has flushed them, or with the error.
    Destage {
        /// For `CommandDone`.
        token: u64,
        /// Which volume.
        volume: VolumeIndex,
    },
    /// Compare every cached block in a physical segment of each shard with its checksum, at a pace that clients hardly notice. `CommandDone` when all
    /// are; what was found: [`Shard::scrubbed`](crate::shard::Shard::scrubbed). One at a time. A segment beyond the last is done at once.
    Check {
        /// For `CommandDone`.
        token: u64,
        /// Which, from 0.
        segment: u32,
    },
    /// Stop an unfinished `Destage`, `SetOptions` or `Check` of that token; what is home stays home.
    Cancel {
        /// The token of the command to stop.
        token: u64,
    },
    /// The volume goes away: everything cached of it is forgotten, dirty blocks too (the caller asked for their destage
    /// before, or means to lose them). The caller has retired its [`VolumeId`] durably.
    Detach {
        /// For `CommandDone`.
        token: u64,
        /// Which volume.
        volume: VolumeIndex,
    },
    /// The volume's backing device is to be let go, and all else stays: clients' requests end, what is on its way home ends, the device is
    /// flushed and the SSD too. Then the volume is as after [`Command::Hold`]: its blocks are kept, dirty ones too, and a later `Attach` of the
    /// same id makes it available again. So it is also if the device fails meanwhile; `CommandDone` has an error if it failed a flush, now or
    /// before, so that what it had acknowledged may be lost.
    Release {
        /// For `CommandDone`.
        token: u64,
        /// Which volume.
        volume: VolumeIndex,
    },
    /// Forget the clean blocks of the volume (the backing device changed behind our back).
    DropClean {
        /// For `CommandDone`.
        token: u64,
        /// Which volume.
        volume: VolumeIndex,
    },
    /// The policies of the volume's objects change; `None`: it has none any more. Fronts are to be told too
    /// ([`Front::set_policies`](crate::front::Front::set_policies)). Lost with the shard and when the volume goes away: to be given again
    /// after an `Attach`. A map that names another volume is of no effect.
    SetPolicies {
        /// Which volume.
        volume: VolumeIndex,
        /// What is said of its objects.
        map: Option<Arc<PolicyMap>>,
    },
    /// Blocks will not be used again soon (a table was dropped, a backup has passed). RAM gives up its clean copies of them and the policy forgets
    /// that it knew them; what is dirty stays. At most [`COLD_BLOCKS_MAX`] are looked at.
    Cold {
        /// Which volume.
        volume: VolumeIndex,
        /// Which blocks of it.
        blocks: Range<u64>,
    },
    /// Another shard of the pool cannot write the SSD any more: the SSD is not used by this one
    /// either.
    SsdFailed {
        /// Which SSD.
        ssd: SsdIndex,
    },
    /// The host has recorded durably that the clean blocks on the SSD are void (answer to
    /// [`Event::SsdFailed`]).
    DegradedRecorded,
    /// The host has recorded durably that everything the SSD holds of the volume is void (answer to
    /// [`Event::NothingDirty`] of all shards).
    SsdForgotten {
        /// Which volume.
        volume: VolumeIndex,
    },
    /// The lost SSD is still worth waiting for: dirty blocks go home in some shard (answer to [`Event::GoingHome`]), or the host still tries
    /// to record what requests wait for.
    GoingHome,
    /// The host has recorded durably that blocks were written past the SSD (answer to [`Event::PastSsd`]).
    PastRecorded {
        /// The token of the event.
        token: u64,
    },
    /// These blocks were written past the SSD when it was lost: what it holds of them is void, dirty or not. Given after a start, while the
    /// volume is held, before it is attached. `CommandDone` when that is durable.
    VoidPast {
        /// For `CommandDone`.
        token: u64,
        /// Which volume.
        volume: VolumeIndex,
        /// Which blocks of it.
        past: Vec<Range<u64>>,
    },
    /// The volume's backing device failed a flush that another shard had asked for (answer to [`Event::BackingFailed`], for all
    /// shards): a failed flush is final for the device, whoever asked.
    BackingFailed {
        /// Which volume.
        volume: VolumeIndex,
    },
    /// Finish what is in flight, take no new requests, write nothing more after `CommandDone`.
    Quiesce {
        /// For `CommandDone`.
        token: u64,
    },
}
