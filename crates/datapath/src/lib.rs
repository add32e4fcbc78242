//! What management needs of the data path, as a trait: the real one drives the runtime, the one in tests fails on demand.
//!
//! No method is called with the manager's lock held, so none can make another management call wait. Calls about one
//! volume or pool come one at a time (the manager claims the object first); statistics and progress may be
//! asked at any time from any thread.

use api::error::ControlError;
pub use records::device_facts::{DeviceFacts, FoundDevice};
use records::state::PoolRecord;
use std::time::Duration;
use types::SsdIndex;
use uuid::Uuid;

pub mod figures;
pub mod looking;
pub mod mapped;
mod parts;
mod results;
pub mod sectors;

pub use export::{Absence, Offer, Withdrawal};
pub use parts::{
    Backings, Checks, Contents, Counters, Disks, Exports, Facts, Growth, Pools, Records, Shares, Taps, Volumes, Waits, Warming,
};
pub use results::{CheckedPart, Formatted, Inspected, PIECE_BYTES_MAX, Piece, PoolStarted, Sample};

/// What a device is used as.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum DeviceUse {
    /// The backing device of a volume.
    Backing {
        /// The volume.
        volume: String,
        /// Its pool.
        pool: String,
    },
    /// The SSD of a pool.
    Ssd {
        /// The pool.
        pool: String,
    },
}

/// A device with I/O in flight.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WaitingFor {
    /// Its path.
    pub device: String,
    /// What it is used as.
    pub by: DeviceUse,
    /// I/Os in flight.
    pub requests: u64,
    /// How long the oldest of them has been in flight.
    pub oldest: Duration,
    /// For how long it has answered nothing.
    pub silent: Duration,
}

/// A file in use whose path leads to it no more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StrayedFile {
    /// Its content goes when it is let go: it has no name any more.
    pub is_deleted: bool,
    /// A name by which other programs can read it as long as it is in use.
    pub open_as: String,
}

/// A command to the engine that takes its time.
pub trait Pending: Send {
    /// Whether it has ended, and how. Not asked again after it has said so.
    fn poll(&mut self) -> Option<Result<(), ControlError>>;
    /// Asks the engine to stop it; what is done stays done. The end still comes through [`Pending::poll`].
    fn cancel(&mut self);
}

/// One life of a pool, from a start to its stop: tokens and figures of shards are of one life only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Life {
    /// Which pool.
    pub uuid: Uuid,
    /// The superblock's session number of its start.
    pub session: u64,
}

impl Life {
    /// Whether it is the life that the pool is in, as far as its record says: the record of a start follows the start.
    pub fn is_of(self, pool: &PoolRecord) -> bool {
        self.uuid == pool.uuid && self.session >= pool.session
    }
}

/// Something the data path reports by itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// A pool's SSD failed: see [`Pools::ssd_failed`] and [`Pools::degraded_recorded`].
    SsdFailed {
        /// The pool.
        pool: String,
        /// Which it is: a pool of that name may be on another SSD by now, or have been started again.
        life: Life,
        /// Which SSD of the pool.
        ssd: SsdIndex,
        /// It has no space for what was written.
        no_space: bool,
    },
    /// A pool's SSD failed, and nothing of the volume is dirty in any of its shards. What would make the SSD stale waits until
    /// [`Pools::ssd_forgotten`].
    NothingDirty {
        /// The pool.
        pool: String,
        /// Which it is.
        life: Life,
        /// The volume.
        volume: String,
    },
    /// A pool's SSD failed, and dirty blocks go home: see [`Pools::going_home`].
    GoingHome {
        /// The pool.
        pool: String,
        /// Which it is.
        life: Life,
    },
    /// A pool's SSD is lost, and blocks of the volume were written past it. They are acknowledged after [`Pools::past_recorded`].
    PastSsd {
        /// The pool.
        pool: String,
        /// Which it is.
        life: Life,
        /// The volume.
        volume: String,
        /// Which blocks of it.
        blocks: std::ops::Range<u64>,
        /// For the answer.
        token: u64,
    },
    /// A volume's backing device failed a flush: it acknowledges no more writes until it is attached anew. Not all of the pool may know:
    /// see [`Volumes::backing_failed`].
    BackingFailed {
        /// The volume.
        volume: String,
    },
    /// A dirty block cannot be read; the client got an error.
    DirtyBlockUnreadable {
        /// The volume.
        volume: String,
        /// Block number.
        block: u64,
    },
    /// A clean block did not match its checksum and was dropped.
    ChecksumMismatch {
        /// The volume.
        volume: String,
        /// Block number.
        block: u64,
    },
    /// A destage write failed and will be tried again.
    DestageFailed {
        /// The volume.
        volume: String,
        /// Block number.
        block: u64,
    },
}

/// A volume that can be watched.
pub struct TappedVolume {
    /// Its name.
    pub name: String,
    /// Its pool, if it is cached.
    pub pool: Option<String>,
    /// To say how much of it is sampled.
    pub reference: runtime::VolumeRef,
}

/// What was seen of watched volumes, by reactor.
pub type Tapped = Vec<runtime::Tapped>;

/// Everything below management.
pub trait DataPath:
    Facts + Pools + Records + Contents + Checks + Volumes + Backings + Growth + Disks + Exports + Shares + Waits + Taps + Warming + Counters
{
}

impl<T> DataPath for T where
    T: Facts
        + Pools
        + Records
        + Contents
        + Checks
        + Volumes
        + Backings
        + Growth
        + Disks
        + Exports
        + Shares
        + Waits
        + Taps
        + Warming
        + Counters
{
}
