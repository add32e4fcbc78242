//! Reading a file system within limits, in aligned pieces of which the last ones are kept: inodes
//! of neighbouring files lie in one.

use super::Journal;
use super::superblock::Superblock;
use crate::filesystems::{Limits, Volume};

/// The piece that is read at once, aligned on the volume.
const PIECE_BYTES: u64 = 4096;
/// Pieces that are kept, each in the place that its number says.
const PIECES: usize = 64;

/// A file system being read, with what is left of the limits.
pub(super) struct Reader<'a> {
    pub(super) superblock: &'a Superblock,
    volume: &'a Volume,
    /// What is laid over the blocks at their homes.
    pub(super) journal: Option<&'a Journal>,
    pub(super) bytes_left: u64,
    pub(super) extents_left: usize,
    /// Whether anything was left out.
    pub(super) failed: bool,
    kept: Vec<Option<(u64, Box<[u8]>)>>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(superblock: &'a Superblock, volume: &'a Volume, limits: &Limits) -> Reader<'a> {
        let kept = (0..PIECES).map(|_| None).collect();
        Reader { superblock, volume, journal: None, bytes_left: limits.bytes, extents_left: limits.extents, failed: false, kept }
    }

    /// Reads bytes at an offset in the file system, the newest that are committed; remembers that it
    /// could not.
    pub(super) async fn bytes(&mut self, offset: u64, bytes: &mut [u8]) -> bool {
        let can = self.try_bytes(offset, bytes).await.is_some();
        self.failed |= !can;
        can
    }

    async fn try_bytes(&mut self, offset: u64, bytes: &mut [u8]) -> Option<()> {
        let end = offset.checked_add(bytes.len() as u64).filter(|end| *end <= self.superblock.end())?;
        let Some(journal) = self.journal else { return self.home(self.superblock.start + offset, bytes).await };
        let block_bytes = self.superblock.block_bytes;
        let (mut at, mut rest) = (offset, bytes);
        while at < end {
            let (block, inside) = (at / block_bytes, at % block_bytes);
            let length = (block_bytes - inside).min(end - at);
            let (now, later) = rest.split_at_mut(length as usize);
            match journal.newest(self, block).await {
                Some(copy) => now.copy_from_slice(copy.get(inside as usize..(inside + length) as usize)?),
                None => self.home(self.superblock.start + at, now).await?,
            }
            (rest, at) = (later, at + length);
        }
        Some(())
    }

    /// Reads bytes at an offset in the volume, as they lie there.
    pub(super) async fn home(&mut self, offset: u64, bytes: &mut [u8]) -> Option<()> {
        // The sum was checked for the end of the file system when the superblock was read.
        let end = offset.checked_add(bytes.len() as u64).filter(|end| *end <= self.superblock.start + self.superblock.end())?;
        let (mut at, mut rest) = (offset, bytes);
        while at < end {
            let (number, inside) = (at / PIECE_BYTES, at % PIECE_BYTES);
            let length = (PIECE_BYTES - inside).min(end - at) as usize;
            let piece = self.piece(number).await?;
            let (now, later) = rest.split_at_mut(length);
            now.copy_from_slice(piece.get(inside as usize..inside as usize + length)?);
            (rest, at) = (later, at + length as u64);
        }
        Some(())
    }

    /// Reads many bytes at an offset in the volume, both multiples of 512, of which none are kept.
    pub(super) async fn straight(&mut self, offset: u64, bytes: &mut [u8]) -> Option<()> {
        self.bytes_left = self.bytes_left.checked_sub(bytes.len() as u64)?;
        self.volume.read(offset, bytes).await.then_some(())
    }

    /// A piece of the volume, shorter where the file system ends in it.
    async fn piece(&mut self, number: u64) -> Option<&[u8]> {
        let slot = (number % PIECES as u64) as usize;
        if self.kept[slot].as_ref().is_none_or(|(kept, _)| *kept != number) {
            let at = number * PIECE_BYTES;
            let length = (self.superblock.start + self.superblock.end() - at).min(PIECE_BYTES);
            if length > self.bytes_left {
                self.bytes_left = 0;
                return None;
            }
            let mut bytes = vec![0; length as usize].into_boxed_slice();
            self.bytes_left -= length;
            if !self.volume.read(at, &mut bytes).await {
                return None;
            }
            self.kept[slot] = Some((number, bytes));
        }
        self.kept[slot].as_ref().map(|(_, bytes)| &**bytes)
    }

    /// Forgets the pieces that are kept, so that they are read again.
    pub(super) fn forget(&mut self) {
        self.kept.iter_mut().for_each(|kept| *kept = None);
    }
}
