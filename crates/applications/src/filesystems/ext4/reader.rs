//! Reading a file system within limits, in aligned pieces of which the last ones are kept: inodes
//! of neighbouring files lie in one.

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
    pub(super) bytes_left: u64,
    pub(super) extents_left: usize,
    /// Whether anything was left out.
    pub(super) failed: bool,
    kept: Vec<Option<(u64, Box<[u8]>)>>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(superblock: &'a Superblock, volume: &'a Volume, limits: &Limits) -> Reader<'a> {
        let kept = (0..PIECES).map(|_| None).collect();
        Reader { superblock, volume, bytes_left: limits.bytes, extents_left: limits.extents, failed: false, kept }
    }

    /// Reads bytes at an offset in the file system; remembers that it could not.
    pub(super) async fn bytes(&mut self, offset: u64, bytes: &mut [u8]) -> bool {
        let can = self.try_bytes(offset, bytes).await.is_some();
        self.failed |= !can;
        can
    }

    async fn try_bytes(&mut self, offset: u64, bytes: &mut [u8]) -> Option<()> {
        let end = offset.checked_add(bytes.len() as u64).filter(|end| *end <= self.superblock.end())?;
        // The sum was checked for the end of the file system when the superblock was read.
        let (mut at, end) = (self.superblock.start + offset, self.superblock.start + end);
        let mut rest = bytes;
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
}
