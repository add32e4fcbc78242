//! A file system of any kind that can be read.

use super::ext4::{self, Ext4};
use super::journal::Journal;
use super::volume::drive;
use super::xfs::{self, Xfs};
use super::{Found, Limits, ReadAt, Volume};

/// A file system on a volume.
#[derive(Debug)]
pub enum FileSystem {
    /// An ext4.
    Ext4(Ext4),
    /// An XFS.
    Xfs(Xfs),
}

/// Why there is no file system that can be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// The volume could not be read there.
    #[error("the start of it cannot be read")]
    Unreadable,
    /// Nothing known begins there.
    #[error("no file system that is known begins here")]
    Absent,
    /// ext4, but not one that can be read.
    #[error("ext4: {0}")]
    Ext4(ext4::Refused),
    /// XFS, but not one that can be read.
    #[error("XFS: {0}")]
    Xfs(xfs::Refused),
}

impl FileSystem {
    /// Looks for a file system that begins at `start` of the volume.
    ///
    /// # Errors
    ///
    /// Why there is none that can be read.
    pub fn open(read: &mut ReadAt, start: u64) -> Result<FileSystem, Refused> {
        let volume = Volume::default();
        drive(read, &volume, FileSystem::open_on(&volume, start))
    }

    /// [`FileSystem::open`] on a volume that is read by asking.
    pub(crate) async fn open_on(volume: &Volume, start: u64) -> Result<FileSystem, Refused> {
        match Ext4::open_on(volume, start).await {
            Ok(file_system) => return Ok(FileSystem::Ext4(file_system)),
            Err(ext4::Refused::Absent) => {}
            Err(ext4::Refused::Unreadable) => return Err(Refused::Unreadable),
            Err(refused) => return Err(Refused::Ext4(refused)),
        }
        match Xfs::open_on(volume, start).await {
            Ok(file_system) => Ok(FileSystem::Xfs(file_system)),
            Err(xfs::Refused::Absent) => Err(Refused::Absent),
            Err(xfs::Refused::Unreadable) => Err(Refused::Unreadable),
            Err(refused) => Err(Refused::Xfs(refused)),
        }
    }

    /// Its UUID.
    #[must_use]
    pub fn uuid(&self) -> [u8; 16] {
        match self {
            FileSystem::Ext4(one) => one.uuid(),
            FileSystem::Xfs(one) => one.uuid(),
        }
    }

    /// Where it ends on the volume, by its own word.
    pub(crate) fn end(&self) -> u64 {
        match self {
            FileSystem::Ext4(one) => one.end(),
            FileSystem::Xfs(one) => one.end(),
        }
    }

    /// Files of databases, with where they lie. Directories that usually hold them are looked into
    /// first.
    pub fn data_files(&self, read: &mut ReadAt, limits: &Limits) -> Found {
        match self {
            FileSystem::Ext4(one) => one.data_files(read, limits),
            FileSystem::Xfs(one) => one.data_files(read, limits),
        }
    }

    /// Follows the journal from where it was left, reading `bytes_max` at most;
    /// how many it were.
    pub(crate) async fn follow(&self, journal: &mut Journal, volume: &Volume, bytes_max: u64) -> u64 {
        let (read, followed) = match (self, std::mem::take(journal)) {
            (FileSystem::Ext4(one), before) => {
                let mut journal = if let Journal::Ext4(journal) = before { journal } else { ext4::Journal::default() };
                (one.follow(&mut journal, volume, bytes_max).await, Journal::Ext4(journal))
            }
            (FileSystem::Xfs(one), before) => {
                let mut log = if let Journal::Xfs(log) = before { log } else { xfs::Log::default() };
                (one.follow(&mut log, volume, bytes_max).await, Journal::Xfs(log))
            }
        };
        *journal = followed;
        read
    }

    /// [`FileSystem::data_files`] of a volume that is read by asking, and whose journal was
    /// followed.
    pub(crate) async fn data_files_on(&self, volume: &Volume, limits: &Limits, journal: &Journal) -> Found {
        match (self, journal) {
            (FileSystem::Ext4(one), Journal::Ext4(journal)) => one.data_files_on(volume, limits, journal).await,
            (FileSystem::Ext4(one), _) => one.data_files_on(volume, limits, &ext4::Journal::default()).await,
            (FileSystem::Xfs(one), Journal::Xfs(log)) => one.data_files_on(volume, limits, log).await,
            (FileSystem::Xfs(one), _) => one.data_files_on(volume, limits, &xfs::Log::default()).await,
        }
    }
}
