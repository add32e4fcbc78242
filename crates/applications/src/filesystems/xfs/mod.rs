//! XFS, read from the raw volume: superblock, inodes, directories, and where the bytes of files
//! lie. Versions 4 and 5.
//!
//! What is committed in its log is laid over what lies at home: a new file has a name, and one that
//! grows its extents, as soon as the kernel has written the log: when somebody calls `fsync`, and every
//! 30 seconds (`fs.xfs.xfssyncd_centisecs`). A name that leads to an inode that is not there yet is
//! left out, and the search is not complete.
//!
//! Sources: "XFS Algorithms & Data Structures" (3rd edition), and `fs/xfs/libxfs/xfs_format.h` and
//! `xfs_da_format.h` of the Linux kernel. Not read: files in a realtime section, and links.

mod directory;
mod extents;
mod inode;
mod log;
mod superblock;

pub(crate) use log::Log;
pub use superblock::Refused;

use super::pieces::Pieces;
use super::volume::drive;
use super::walk::{Tree, walk};
use super::{FileExtent, Found, Limits, ReadAt, Volume};
use superblock::Superblock;

/// An XFS file system on a volume.
#[derive(Debug)]
pub struct Xfs {
    superblock: Superblock,
}

/// A file system being read, with what is left of the limits.
pub(super) struct Reader<'a> {
    superblock: &'a Superblock,
    /// What is laid over the blocks at their homes.
    log: Option<&'a Log>,
    pub(super) pieces: Pieces<'a>,
}

impl Xfs {
    /// Looks for a file system that begins at `start` of the volume.
    ///
    /// # Errors
    ///
    /// Why there is none that can be read.
    pub fn open(read: &mut ReadAt, start: u64) -> Result<Xfs, Refused> {
        let volume = Volume::default();
        drive(read, &volume, Xfs::open_on(&volume, start))
    }

    /// [`Xfs::open`] on a volume that is read by asking.
    pub(crate) async fn open_on(volume: &Volume, start: u64) -> Result<Xfs, Refused> {
        Ok(Xfs { superblock: Superblock::read(volume, start).await? })
    }

    /// The file system's UUID.
    #[must_use]
    pub fn uuid(&self) -> [u8; 16] {
        self.superblock.uuid
    }

    /// Where it ends on the volume, by its own word.
    pub(crate) fn end(&self) -> u64 {
        self.superblock.end()
    }

    /// Files of databases, with where they lie. Directories that usually hold them are looked into
    /// first.
    pub fn data_files(&self, read: &mut ReadAt, limits: &Limits) -> Found {
        let volume = Volume::default();
        drive(read, &volume, async {
            let mut log = Log::default();
            let log_bytes = self.follow(&mut log, &volume, limits.bytes).await;
            let rest = Limits { bytes: limits.bytes - log_bytes, ..*limits };
            let mut found = self.data_files_on(&volume, &rest, &log).await;
            found.bytes_read += log_bytes;
            found
        })
    }

    /// Follows the log from where it was left, reading `bytes_max` at most; how many it were.
    pub(crate) async fn follow(&self, log: &mut Log, volume: &Volume, bytes_max: u64) -> u64 {
        let limits = Limits { bytes: bytes_max, ..Limits::default() };
        let mut pieces = Pieces::new(volume, self.superblock.end(), &limits);
        log.follow(&self.superblock, &mut pieces).await;
        bytes_max - pieces.bytes_left
    }

    /// [`Xfs::data_files`] of a volume that is read by asking, and whose log was followed.
    pub(crate) async fn data_files_on(&self, volume: &Volume, limits: &Limits, log: &Log) -> Found {
        let pieces = Pieces::new(volume, self.superblock.end(), limits);
        let reader = Reader { superblock: &self.superblock, log: Some(log), pieces };
        let mut found = walk(Tree::Xfs(reader), self.superblock.root, limits).await;
        found.complete &= !log.is_behind();
        found
    }
}

impl Reader<'_> {
    /// Size and extents of a regular file.
    pub(super) async fn file(&mut self, number: u64) -> Option<(u64, Vec<FileExtent>)> {
        let Some(inode) = self.inode(number).await else {
            self.pieces.failed = true;
            return None;
        };
        if !inode.is_file {
            return None;
        }
        let extents = extents::of(self, &inode, u64::MAX).await;
        Some((inode.bytes, extents))
    }

    /// Reads a block whose parts lie at these places of the volume, each of the same length, as it is
    /// committed; whether it could be read. In version 5 it has its LSN and its UUID at these offsets.
    async fn block(&mut self, places: &[u64], block: &mut [u8], at: (usize, usize)) -> bool {
        let part_bytes = self.superblock.block_bytes as usize;
        for (place, part) in places.iter().zip(block.chunks_mut(part_bytes)) {
            if self.pieces.read(*place, part).await.is_none() {
                return false;
            }
        }
        if let Some(log) = self.log {
            log.lay_block(self.superblock, places, block, at);
        }
        true
    }
}
