//! Reading a file system within limits, in aligned pieces of which the last ones are kept: inodes
//! of neighbouring files lie in one.

use super::{Limits, Volume};

/// The piece that is read at once, aligned on the volume.
const PIECE_BYTES: u64 = 4096;
/// Pieces that are kept, each in the place that its number says.
const PIECES: usize = 64;
/// Bytes that may be looked at for each byte of the limit. A sound file system stays below one;
/// one whose metadata leads around in a circle of kept pieces would never reach the limit.
const LOOKS: u64 = 4;

/// A file system's bytes, with what is left of the limits.
pub(super) struct Pieces<'a> {
    volume: &'a Volume,
    /// Where the file system ends on the volume.
    end: u64,
    pub(super) bytes_left: u64,
    pub(super) extents_left: usize,
    /// Whether anything was left out.
    pub(super) failed: bool,
    looks_left: u64,
    kept: Vec<Option<(u64, Box<[u8]>)>>,
}

impl<'a> Pieces<'a> {
    pub(super) fn new(volume: &'a Volume, end: u64, limits: &Limits) -> Pieces<'a> {
        let kept = (0..PIECES).map(|_| None).collect();
        let looks_left = limits.bytes.saturating_mul(LOOKS);
        Pieces { volume, end, bytes_left: limits.bytes, extents_left: limits.extents, failed: false, looks_left, kept }
    }

    /// Reads bytes at an offset in the volume, as they lie there; `None` if they lie outside,
    /// cannot be read, or no more may be.
    pub(super) async fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Option<()> {
        let end = offset.checked_add(bytes.len() as u64).filter(|end| *end <= self.end)?;
        let Some(left) = self.looks_left.checked_sub(bytes.len() as u64) else {
            self.bytes_left = 0;
            return None;
        };
        self.looks_left = left;
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
            let length = (self.end - at).min(PIECE_BYTES);
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
