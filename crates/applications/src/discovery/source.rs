//! Bytes of a volume and of files on it, within a limit.

use super::limits::READ_BYTES_MAX;
use crate::filesystems::{DataFile, Volume};
use crate::naming::{Catalogue, ROUNDS, Wanted};
use crate::recognise::pages;
use std::ops::Range;

const SECTOR_BYTES: u64 = 512;

/// A volume, with what may still be read of it.
pub(crate) struct Source<'a> {
    volume: &'a Volume,
    bytes_left: u64,
    /// Whether anything that was wanted could not be had.
    pub(super) failed: bool,
}

impl<'a> Source<'a> {
    pub(super) fn new(volume: &'a Volume, bytes_max: u64) -> Source<'a> {
        Source { volume, bytes_left: bytes_max, failed: false }
    }

    /// Bytes of the volume; both numbers are multiples of 512.
    pub(super) async fn read(&mut self, offset_bytes: u64, bytes: &mut [u8]) -> bool {
        let Some(left) = self.bytes_left.checked_sub(bytes.len() as u64) else {
            self.failed = true;
            return false;
        };
        self.bytes_left = left;
        let can = self.volume.read(offset_bytes, bytes).await;
        self.failed |= !can;
        can
    }

    /// A part of a file, [`READ_BYTES_MAX`] at most, that begins at a whole sector. Zeroes where
    /// nothing is written; `None` where it cannot be read, or ends before.
    pub(crate) async fn file(&mut self, file: &DataFile, range: Range<u64>) -> Option<Vec<u8>> {
        let end = range.end.min(file.bytes).min(range.start.checked_add(READ_BYTES_MAX)?);
        let len = end.checked_sub(range.start).filter(|len| *len > 0 && range.start.is_multiple_of(SECTOR_BYTES))?;
        let whole_end = range.start + len.next_multiple_of(SECTOR_BYTES);
        let mut bytes = vec![0; (whole_end - range.start) as usize];
        // Extents are in file order; only a damaged file system has some that overlap.
        let first = file.extents.partition_point(|extent| extent.file_offset <= range.start).saturating_sub(1);
        for extent in file.extents[first..].iter().take_while(|extent| extent.file_offset < whole_end).filter(|extent| extent.written) {
            let extent_end = extent.file_offset.saturating_add(extent.bytes);
            let (from, to) = (extent.file_offset.max(range.start), extent_end.min(whole_end));
            if from >= to {
                continue;
            }
            let offset = extent.volume_offset + (from - extent.file_offset);
            let part = &mut bytes[(from - range.start) as usize..(to - range.start) as usize];
            if !self.read(offset, part).await {
                return None;
            }
        }
        bytes.truncate(len as usize);
        Some(bytes)
    }
    /// Reads what a catalogue wants of files; whether there was a page of their engine.
    pub(crate) async fn read_names(&mut self, catalogue: &mut dyn Catalogue, files: &[&DataFile]) -> bool {
        let mut any = false;
        for round in 0..ROUNDS {
            for file in files {
                if let Some(wanted) = catalogue.wants_of(file).filter(|wanted| wanted.round == round) {
                    any |= self.feed(catalogue, file, &wanted).await;
                }
            }
        }
        any
    }

    /// Feeds a part of a file to a catalogue; whether there was a page of its engine.
    pub(crate) async fn feed(&mut self, catalogue: &mut dyn Catalogue, file: &DataFile, wanted: &Wanted) -> bool {
        let (mut at, mut any) = (wanted.range.start, false);
        while at < wanted.range.end {
            // What cannot be read leaves names out, and nothing else.
            let Some(bytes) = self.file(file, at..wanted.range.end).await else { break };
            for (offset, page) in pages(&bytes) {
                any |= page.engine == file.engine;
                catalogue.take(&page, &bytes[offset..], wanted.file_start_bytes + at + offset as u64);
            }
            at += bytes.len().next_multiple_of(512) as u64;
        }
        any
    }
}
