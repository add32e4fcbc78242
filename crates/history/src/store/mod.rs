//! The file: an SQLite database with one row for each chunk.
//!
//! Two connections: the writer's, and one for queries, which in WAL mode never waits for the first. Everything that changes the file is called from
//! one thread only. Errors are of two kinds, told apart in `trouble.rs`: the file is damaged (set it aside, begin anew), or it cannot be written at present (try
//! again later). What cannot be opened at all is replaced by tables in memory, so that nobody above needs to know.

mod bounds;
mod damage;
mod open;
mod rows;
mod trouble;

pub(crate) use open::Opened;
pub(crate) use trouble::Trouble;

use crate::grain::Grain;
use rusqlite::Connection;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Smallest limit that makes sense: tables, write-ahead log and a few chunks.
pub(crate) const BYTES_MIN: u64 = 4 << 20;

/// The file and what is known about it.
pub(crate) struct Store {
    path: PathBuf,
    bytes_max: u64,
    /// None when the tables are in memory: then queries use the writer's. Stands, and so is closed, before that: the last to close brings the write-ahead
    /// log home, which this one may not.
    reader: Mutex<Option<Connection>>,
    writer: Mutex<Connection>,
    in_memory: AtomicBool,
    /// How often the file was set aside since the start.
    set_aside: AtomicU32,
    /// By grain: chunks before this time had to give way to the limit of size.
    lost_before_s: [AtomicU64; 3],
}

impl Store {
    /// Whether nothing is written to the disk.
    pub(crate) fn is_in_memory(&self) -> bool {
        self.in_memory.load(Ordering::Relaxed)
    }

    /// Chunks of a grain before this time, in seconds since 1970, have given way to the limit of size.
    pub(crate) fn lost_before_s(&self, grain: Grain) -> u64 {
        self.lost_before_s[grain as usize].load(Ordering::Relaxed)
    }

    /// How many bytes of chunks should go into one transaction, so that the write-ahead log stays small beside the file.
    pub(crate) fn batch_bytes(&self) -> usize {
        (self.bytes_max / 16).clamp(64 << 10, 1 << 20) as usize
    }

    /// Bytes of the file and its write-ahead log on the disk; 0 if in memory.
    pub(crate) fn file_bytes(&self) -> u64 {
        if self.is_in_memory() {
            return 0;
        }
        let bytes = |suffix: &str| std::fs::metadata(damage::beside(&self.path, suffix)).map_or(0, |metadata| metadata.len());
        bytes("") + bytes("-wal") + bytes("-shm")
    }

    fn writer(&self) -> MutexGuard<'_, Connection> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reader(&self) -> MutexGuard<'_, Option<Connection>> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs something that only reads, on the connection for queries.
    fn reading<R>(&self, read: impl FnOnce(&Connection) -> R) -> R {
        let reader = self.reader();
        match reader.as_ref() {
            Some(connection) => read(connection),
            None => {
                drop(reader);
                read(&self.writer())
            }
        }
    }
}
