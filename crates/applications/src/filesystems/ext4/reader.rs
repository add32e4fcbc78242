//! Reading an ext4 file system: its blocks at their homes, with those of the journal laid over
//! them.

use super::Journal;
use super::superblock::Superblock;
use crate::filesystems::pieces::Pieces;
use crate::filesystems::{Limits, Volume};

/// A file system being read, with what is left of the limits.
pub(in crate::filesystems) struct Reader<'a> {
    pub(super) superblock: &'a Superblock,
    /// What is laid over the blocks at their homes.
    pub(super) journal: Option<&'a Journal>,
    pub(in crate::filesystems) pieces: Pieces<'a>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(superblock: &'a Superblock, volume: &'a Volume, limits: &Limits) -> Reader<'a> {
        // The sum was checked when the superblock was read.
        let pieces = Pieces::new(volume, superblock.start + superblock.end(), limits);
        Reader { superblock, journal: None, pieces }
    }

    /// Reads bytes at an offset in the file system, the newest that are committed; remembers that
    /// it could not.
    pub(super) async fn bytes(&mut self, offset: u64, bytes: &mut [u8]) -> bool {
        let can = self.try_bytes(offset, bytes).await.is_some();
        self.pieces.failed |= !can;
        can
    }

    async fn try_bytes(&mut self, offset: u64, bytes: &mut [u8]) -> Option<()> {
        let end = offset.checked_add(bytes.len() as u64).filter(|end| *end <= self.superblock.end())?;
        let Some(journal) = self.journal else { return self.pieces.read(self.superblock.start + offset, bytes).await };
        let block_bytes = self.superblock.block_bytes;
        let (mut at, mut rest) = (offset, bytes);
        while at < end {
            let (block, inside) = (at / block_bytes, at % block_bytes);
            let length = (block_bytes - inside).min(end - at);
            let (now, later) = rest.split_at_mut(length as usize);
            match journal.newest(self, block).await {
                Some(copy) => now.copy_from_slice(copy.get(inside as usize..(inside + length) as usize)?),
                None => self.pieces.read(self.superblock.start + at, now).await?,
            }
            (rest, at) = (later, at + length);
        }
        Some(())
    }
}
