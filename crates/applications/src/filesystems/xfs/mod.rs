//! XFS, read from the raw volume: superblock, inodes, directories, and where the bytes of files
//! lie. Versions 4 and 5.
//!
//! Its log is not read. The kernel forces the log every 30 seconds (`fs.xfs.xfssyncd_centisecs`),
//! and begins to write all metadata home that was in the log by then (`xfs_log_worker` in
//! `fs/xfs/xfs_log.c`). So a new directory or file, and the extents of one that has grown, are found
//! within a minute. Before that they are not seen; a name that leads to an inode that is not there
//! yet is left out, and the search is not complete.
//!
//! Sources: "XFS Algorithms & Data Structures" (3rd edition), and `fs/xfs/libxfs/xfs_format.h` and
//! `xfs_da_format.h` of the Linux kernel. Not read: files in a realtime section, and links.

mod directory;
mod extents;
mod inode;
mod superblock;

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
        drive(read, &volume, self.data_files_on(&volume, limits))
    }

    /// [`Xfs::data_files`] of a volume that is read by asking.
    pub(crate) async fn data_files_on(&self, volume: &Volume, limits: &Limits) -> Found {
        let pieces = Pieces::new(volume, self.superblock.end(), limits);
        let reader = Reader { superblock: &self.superblock, pieces };
        walk(Tree::Xfs(reader), self.superblock.root, limits).await
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
}
