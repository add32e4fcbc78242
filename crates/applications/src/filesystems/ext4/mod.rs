//! ext4, read from the raw volume: superblock, journal, directories, and where the bytes of files
//! lie.
//!
//! Sources: `Documentation/filesystems/ext4/` of the Linux kernel. The crate `ext4-view` reads the
//! same file system, but does not say where on the device a file lies, which is all that is wanted
//! here. Not read: files without extents (made by ext2 and ext3), and directories that fit in their
//! inode.

mod directory;
mod extents;
mod journal;
mod reader;
mod superblock;

pub(crate) use journal::Journal;
pub(super) use reader::Reader;
pub use superblock::Refused;

use super::volume::drive;
use super::walk::{Tree, walk};
use super::{FileExtent, Found, Limits, ReadAt, Volume};
use crate::bytes::{le16, le32};
use superblock::Superblock;

/// The root directory's inode.
const ROOT: u32 = 2;
/// Bytes of the fields that are read of an inode.
const INODE_BYTES: usize = 128;
/// Types of files, the upper four bits of the mode.
const MODE_DIRECTORY: u16 = 4;
const MODE_REGULAR: u16 = 8;
/// Inode flags: a tree of extents; data inside the inode.
const FLAG_EXTENTS: u32 = 0x8_0000;
const FLAG_INLINE: u32 = 0x1000_0000;

/// An ext4 file system on a volume.
#[derive(Debug)]
pub struct Ext4 {
    superblock: Superblock,
}

/// What is read of an inode.
struct Inode {
    mode: u16,
    bytes: u64,
    flags: u32,
    /// The root of the tree of extents.
    tree: [u8; 60],
}

impl Ext4 {
    /// Looks for a file system that begins at `start` of the volume.
    ///
    /// # Errors
    ///
    /// Why there is none that can be read.
    pub fn open(read: &mut ReadAt, start: u64) -> Result<Ext4, Refused> {
        let volume = Volume::default();
        drive(read, &volume, Ext4::open_on(&volume, start))
    }

    /// [`Ext4::open`] on a volume that is read by asking.
    pub(crate) async fn open_on(volume: &Volume, start: u64) -> Result<Ext4, Refused> {
        Ok(Ext4 { superblock: Superblock::read(volume, start).await? })
    }

    /// The file system's UUID.
    #[must_use]
    pub fn uuid(&self) -> [u8; 16] {
        self.superblock.uuid
    }

    /// Where it ends on the volume, by its own word.
    pub(crate) fn end(&self) -> u64 {
        self.superblock.start + self.superblock.end()
    }

    /// Its block size.
    #[must_use]
    pub fn block_bytes(&self) -> u64 {
        self.superblock.block_bytes
    }

    /// Files of databases, with where they lie. Directories that usually hold them are looked into
    /// first.
    pub fn data_files(&self, read: &mut ReadAt, limits: &Limits) -> Found {
        let volume = Volume::default();
        drive(read, &volume, async {
            let mut journal = Journal::default();
            let journal_bytes = self.follow(&mut journal, &volume, limits.bytes).await;
            let rest = Limits { bytes: limits.bytes - journal_bytes, ..*limits };
            let mut found = self.data_files_on(&volume, &rest, &journal).await;
            found.bytes_read += journal_bytes;
            found
        })
    }

    /// Follows the journal from where it was left, reading `bytes_max` at most; how many it were.
    pub(crate) async fn follow(&self, journal: &mut Journal, volume: &Volume, bytes_max: u64) -> u64 {
        let limits = Limits { bytes: bytes_max, ..Limits::default() };
        let mut reader = Reader::new(&self.superblock, volume, &limits);
        journal.follow(&mut reader).await;
        bytes_max - reader.pieces.bytes_left
    }

    /// [`Ext4::data_files`] of a volume that is read by asking, and whose journal was followed.
    pub(crate) async fn data_files_on(&self, volume: &Volume, limits: &Limits, journal: &Journal) -> Found {
        let mut reader = Reader::new(&self.superblock, volume, limits);
        reader.journal = Some(journal);
        let mut found = walk(Tree::Ext4(reader), ROOT.into(), limits).await;
        found.complete &= !journal.is_behind();
        found
    }
}

impl Reader<'_> {
    /// Size and extents of a regular file.
    pub(super) async fn file(&mut self, number: u64) -> Option<(u64, Vec<FileExtent>)> {
        let inode = self.inode(u32::try_from(number).ok()?).await.filter(|inode| inode.mode == MODE_REGULAR)?;
        if inode.flags & FLAG_EXTENTS == 0 {
            return None;
        }
        let extents = extents::of(self, &inode).await;
        Some((inode.bytes, extents))
    }

    async fn inode(&mut self, number: u32) -> Option<Inode> {
        let (descriptor, place) = self.superblock.place_of_inode(number)?;
        let mut fields = [0; 64];
        let length = self.superblock.descriptor_bytes.min(64);
        if !self.bytes(descriptor, &mut fields[..length]).await {
            return None;
        }
        let high = if length == 64 { u64::from(le32(&fields, 0x28)) << 32 } else { 0 };
        let table = high | u64::from(le32(&fields, 8));
        let mut inode = [0; INODE_BYTES];
        let offset = table.checked_mul(self.superblock.block_bytes)?.checked_add(place)?;
        if !self.bytes(offset, &mut inode).await {
            return None;
        }
        let bytes = u64::from(le32(&inode, 0x6c)) << 32 | u64::from(le32(&inode, 4));
        let tree = inode[0x28..0x64].try_into().ok()?;
        // A deleted file keeps its inode until another takes it.
        (le16(&inode, 0x1a) != 0).then_some(Inode { mode: le16(&inode, 0) >> 12, bytes, flags: le32(&inode, 0x20), tree })
    }
}
