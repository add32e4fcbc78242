//! Files of databases, found on a raw volume: which there are, and where their bytes lie.
//!
//! Nothing here reads by itself: the caller hands in a function that reads the volume, so that the
//! bytes come through the cache as clients see them, at the pace that the caller allows. A mounted
//! file system changes meanwhile: what is found is a hint until pages of the extent agree with it.
//!
//! Where the file system is mounted on this machine, the kernel could tell where files lie (FIEMAP). It
//! is not asked: the file system may lie on a volume of the daemon that asks, and a thread that waits
//! there for its own daemon holds that daemon up for ever when the volume is suspended.
//!
//! Hostile images: every loop is bounded by [`Limits`] or by the size of a block, every number is
//! checked before it is used, and what does not fit is left out.

pub mod ext4;
mod file_system;
mod journal;
pub(crate) mod lvm;
mod partitions;
mod pieces;
mod volume;
mod walk;
pub mod xfs;

use crate::Engine;
pub use file_system::{FileSystem, Refused};
pub(crate) use journal::Journal;
pub use partitions::starts;
pub(crate) use partitions::starts_of;
pub use volume::Read;
pub(crate) use volume::Volume;

/// Reads bytes of the volume at an offset, both of them multiples of 512; `false` if not all of
/// them could be had.
pub type ReadAt<'a> = dyn FnMut(u64, &mut [u8]) -> bool + 'a;

/// How far a search goes.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes read of the volume; some 4 KiB for each directory, and for every 16 files or fewer (8
    /// on XFS).
    pub bytes: u64,
    /// Directories looked into.
    pub directories: usize,
    /// Files found.
    pub files: usize,
    /// Extents of all files together.
    pub extents: usize,
}

impl Default for Limits {
    /// A host with a million files is searched to its end; about 40 MiB of memory at the very most.
    fn default() -> Limits {
        Limits { bytes: 1 << 30, directories: 100_000, files: 50_000, extents: 1 << 20 }
    }
}

/// A run of a file's bytes on the volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileExtent {
    /// Where it begins in the file.
    pub file_offset: u64,
    /// Where it begins on the volume.
    pub volume_offset: u64,
    /// Its length.
    pub bytes: u64,
    /// `false` where space is allocated and was never written: reads give zeroes, the volume has
    /// anything.
    pub written: bool,
}

/// A file of a database.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DataFile {
    /// Its path from the root of the file system, without a slash before it.
    pub path: String,
    /// The engine that it is of.
    pub engine: Engine,
    /// Its number in its file system: paths with the same one lead to the same file.
    pub inode: u64,
    /// Its size as the file system says.
    pub bytes: u64,
    /// Where it lies, in file order.
    pub extents: Vec<FileExtent>,
}

/// What a search found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Found {
    /// Files of databases.
    pub files: Vec<DataFile>,
    /// Directories looked into.
    pub directories: usize,
    /// Bytes read of the volume.
    pub bytes_read: u64,
    /// Whether it all was searched, and could be read.
    pub complete: bool,
}
