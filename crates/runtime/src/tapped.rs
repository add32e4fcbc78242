//! What a watcher of loads gets to see: samples of the blocks that clients used, and, of what the cache did
//! not answer, each request with what its first page says of itself.
//!
//! Off until a volume is watched ([`VolumeRef::watch`]). The content of pages stays on the reactor: a [`Sight`] holds
//! numbers only.

use crate::RuntimeError;
use crate::message::Message;
use crate::runtime::Runtime;
use crate::volume::VolumeRef;
use engine::api::Outcome;
use engine::tap::{Removed, Sample};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Sights that a reactor holds until they are taken; more are counted as lost.
pub const SIGHTS_MAX: usize = 8192;

/// What a page of a database says of itself in its head. The numbers mean what who recognises says they mean.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageSeen {
    /// What it belongs to: a table space with an index, a relation.
    pub object: u64,
    /// Its number there.
    pub page: u32,
    /// The pages before and behind it in the order of its keys; `u32::MAX` for none.
    pub neighbours: (u32, u32),
    /// Its kind.
    pub kind: u16,
    /// How far it is from the leaves of its tree.
    pub level: u8,
    /// A page of rows, which a scan passes over.
    pub is_leaf: bool,
    /// A page of a log.
    pub is_log: bool,
    /// Its size in bytes, as a power of two.
    pub size_log2: u8,
}

/// Recognises a page by its first 4096 bytes. Runs on reactors: it must be quick, and must not block or panic.
pub type Recognise = Arc<dyn Fn(&[u8]) -> Option<PageSeen> + Send + Sync>;

/// A write, or a read that the cache did not answer alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sight {
    /// The volume's number ([`VolumeRef::number`]).
    pub volume: u32,
    /// When it was answered, in milliseconds of the monotonic clock; wraps.
    pub time_ms: u32,
    /// First sector.
    pub start_sector: u64,
    /// How many.
    pub sectors: u32,
    /// A write; otherwise a read.
    pub is_write: bool,
    /// Part of a sequential stream of reads.
    pub sequential: bool,
    /// Who asked: a number that the way in gives, 0 where it does not tell.
    pub client: u32,
    /// What its first page says.
    pub page: Option<PageSeen>,
}

/// Blocks that clients used of a volume since it was added, sampled or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Used {
    /// Read, but for sequential streams.
    pub read_blocks: u64,
    /// Read by sequential streams.
    pub sequential_blocks: u64,
    /// Written.
    pub written_blocks: u64,
}

/// What one reactor saw since the last time.
#[derive(Debug, Default)]
pub struct Tapped {
    /// In the order in which requests were answered.
    pub samples: Vec<Sample>,
    /// Discarded and zeroed.
    pub removed: Vec<Removed>,
    /// In the order in which requests were answered.
    pub sights: Vec<Sight>,
    /// Sights there was no room for.
    pub sights_lost: u64,
    /// By volume number, of those that are watched.
    pub used: Vec<(u32, Used)>,
}

impl Runtime {
    /// How pages are recognised from now on; only the first call counts.
    pub fn set_recognise(&self, recognise: Recognise) {
        self.directory.recognise.get_or_init(|| recognise);
    }

    /// Takes what was seen since the last time, of each reactor. Afterwards [`VolumeRef::sampled_below`] says of each volume
    /// which of its samples count: those above were kept by some reactors only.
    ///
    /// # Errors
    /// [`RuntimeError::Timeout`] if a reactor does not answer within `patience`. What the others had seen is lost.
    pub fn take_tapped(&self, patience: Duration) -> Result<Vec<Tapped>, RuntimeError> {
        self.ask_all("what was seen", patience, |_, done| Message::TakeTapped { done })
    }
}

impl VolumeRef {
    /// A number that no other volume has while the runtime lives.
    pub fn number(&self) -> u32 {
        self.0.number
    }

    /// Samples blocks whose hash ([`engine::tap::line_hash`]) lies below this from now on; 0: none, and nothing is seen at all.
    pub fn watch(&self, sampled_below: u64) {
        self.0.sampled_below.store(sampled_below, Ordering::Relaxed);
    }

    /// A smaller sample, unless it is smaller already or the volume is not watched.
    pub fn sample_below(&self, sampled_below: u64) {
        self.0.sampled_below.fetch_min(sampled_below, Ordering::Relaxed);
    }

    /// See [`VolumeRef::watch`]. Reactors lower it by themselves when they see more than they can hold.
    pub fn sampled_below(&self) -> u64 {
        self.0.sampled_below.load(Ordering::Relaxed)
    }
}

/// Whether a read was not answered by the cache alone.
pub(crate) fn is_missed(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Miss | Outcome::Bypass)
}
