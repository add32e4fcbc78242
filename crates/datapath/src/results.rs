//! What calls to the data path give back: what a start, a check or a comparison found.

use std::collections::BTreeMap;
use types::EXTENT_BYTES;

/// What formatting an SSD came to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Formatted {
    /// Why the SSD keeps what was in the part that the pool leaves unused, as a clause about the SSD; `None` if it was discarded, or there was
    /// nothing to do.
    pub not_discarded: Option<String>,
}

/// What came of checking a part of a running pool.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CheckedPart {
    /// Parts the pool has.
    pub parts: u32,
    /// Blocks compared.
    pub blocks: u64,
    /// Of them, bad clean ones, which are dropped.
    pub clean_bad: u64,
    /// Of them, bad dirty ones.
    pub dirty_bad: u64,
    /// Volume and first byte of some of them.
    pub dirty_bad_at: Vec<(String, u64)>,
}

/// What the inspection of a pool at rest has found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Inspected {
    /// In words; not all, if there are very many.
    pub problems: Vec<String>,
    /// How many there are.
    pub problems_count: u64,
}

/// What a pool's start found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PoolStarted {
    /// The superblock's session number of this start.
    pub session: u64,
    /// Bytes of the SSD in use.
    pub size_bytes: u64,
    /// The report of the recovery, one clause each.
    pub recovery: Vec<String>,
    /// Its SSD held a log of an earlier version: what became of that, as a clause.
    pub upgraded: Option<String>,
    /// Numbers (in the log) of volumes whose dirty data may be damaged; they must not be served as if nothing had happened.
    pub damaged: Vec<u32>,
    /// Dirty bytes found, by number; volumes without any may be missing.
    pub dirty_bytes: BTreeMap<u32, u64>,
    /// The SSD was lost in this life of the daemon, and came back without writes that were
    /// acknowledged and not flushed.
    pub has_lost_writes: bool,
    /// The serial of the copy of the state on the SSD; 0 if there was none. No lower one is written after it.
    pub serial: u64,
    /// The number in the log that the next volume gets, as the SSD has it.
    pub next_volume_id: u32,
    /// What an administrator should know of the state and of its copy on the SSD, one sentence each.
    pub warnings: Vec<String>,
}

/// What came of comparing a sample of clean cached blocks with the backing device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sample {
    /// Blocks compared.
    pub compared: u64,
    /// Blocks that differed.
    pub different: u64,
}

/// A piece does not cross a border of so many bytes: it would be split between shards.
pub const PIECE_BYTES_MAX: u64 = EXTENT_BYTES;

/// One read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Its first byte.
    pub at_bytes: u64,
    /// How many; at least 1.
    pub length_bytes: u64,
    /// It enters the cache; otherwise it is a gap, read around the cache.
    pub is_kept: bool,
}

impl Piece {
    /// Behind its last byte.
    pub const fn end_bytes(&self) -> u64 {
        self.at_bytes + self.length_bytes
    }
}
