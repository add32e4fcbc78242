//! What a shard knows of one volume.

use crate::api::VolumeOptions;
use crate::key::{ExtentKey, Map};
use crate::locks::OpId;
use crate::stats::VolumeStats;
use alloc::vec::Vec;
use types::{SECTOR_BYTES, VolumeId};

/// See the module.
pub struct Volume {
    /// Its number in the log.
    pub id: VolumeId,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// How it is treated.
    pub options: VolumeOptions,
    /// Going away: no new requests.
    pub detaching: bool,
    /// Known, but its backing device is not available: no requests, no destage; its dirty blocks are kept.
    pub held: bool,
    /// Its counters.
    pub stats: VolumeStats,
    /// Index entries it has.
    pub cached_blocks: u64,
    /// Blocks it has in RAM.
    pub ram_blocks: u64,
    /// Reads of it that are on their way without an entry in the table of requests.
    pub quick_reads: u32,
    /// The last group with a record that an acknowledged write of this volume rests on.
    pub log_group: u64,
    /// The newest group with a record that a block of it is not dirty any more: a note that it came home, or that it is void.
    pub note_group: u64,
    /// Its backing device.
    pub backing: Backing,
}

/// What a shard knows of a backing device: what is flushed, whether it failed, how busy clients keep it.
#[derive(Default)]
pub struct Backing {
    /// Writes completed, counted.
    pub written: u64,
    /// As many of them are known to be durable.
    pub flushed: u64,
    /// The running flush covers the writes counted up to here.
    pub flushing: Option<u64>,
    /// Who waits until that many writes are durable.
    pub waiters: Vec<(u64, OpId)>,
    /// Extents written since the last flush, with the count of the write: what a power cut may still undo. A clean block of such an extent
    /// must not enter the log, which would keep it while the backing device falls back to an older version.
    pub unflushed: Map<ExtentKey, u64>,
    /// A flush failed: final until the volume is attached anew.
    pub failed: bool,
    /// Client I/Os on it now.
    pub client_in_flight: u32,
    /// When the last client I/O on it ended.
    pub client_last_ns: u64,
    /// Smoothed duration of client reads on it, in nanoseconds.
    pub read_latency_ns: u64,
}

impl Volume {
    /// A volume as attached.
    pub fn new(id: VolumeId, size_bytes: u64, options: VolumeOptions) -> Volume {
        Volume {
            id,
            size_bytes,
            options,
            detaching: false,
            held: false,
            stats: VolumeStats::default(),
            cached_blocks: 0,
            ram_blocks: 0,
            quick_reads: 0,
            log_group: 0,
            note_group: 0,
            backing: Backing::default(),
        }
    }

    /// Its size in sectors.
    pub fn sectors(&self) -> u64 {
        self.size_bytes / SECTOR_BYTES
    }
}

impl Backing {
    /// A write of the extent has completed (or may have happened in part).
    pub fn note_write(&mut self, extent: ExtentKey, fua: bool) {
        self.written += 1;
        if !fua {
            self.unflushed.insert(extent, self.written);
        }
    }

    /// Whether everything that was ever written to the extent survives a power cut.
    pub fn is_settled(&self, extent: ExtentKey) -> bool {
        !self.unflushed.contains_key(&extent)
    }
}
