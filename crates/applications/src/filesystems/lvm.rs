//! Logical volumes of LVM on a raw volume: which there are, and where their bytes lie.
//!
//! Followed are those of one stripe that lie on this physical volume from end to end, however often
//! they were extended. Of a group with several physical volumes each may be a volume of its own here.

use super::{FileExtent, Volume};
use device::lvm::{Logical, Run, layout, logical_volumes};
use std::ops::Range;
use std::sync::Arc;

/// Bytes of a text that are read: the area that LVM makes has 1 MiB.
const TEXT_BYTES_MAX: u64 = 4 << 20;
/// Areas for metadata that are looked at.
const AREAS_MAX: usize = 2;
const SECTOR_BYTES: u64 = 512;
/// Bytes asked for at once.
const READ_BYTES_MAX: usize = 256 << 10;

/// Where the bytes of a logical volume lie on the volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Runs(Vec<Run>);

impl Runs {
    /// `None` if they lie outside of those bytes of the volume, or are no runs in order.
    fn within(runs: Vec<Run>, bytes: &Range<u64>) -> Option<Runs> {
        let mut moved = Vec::with_capacity(runs.len());
        let mut expected = 0;
        for run in runs {
            let physical_bytes = bytes.start.checked_add(run.physical_bytes)?;
            let end = physical_bytes.checked_add(run.bytes)?;
            if end > bytes.end
                || run.logical_bytes != expected
                || run.bytes == 0
                || !(physical_bytes | run.bytes).is_multiple_of(SECTOR_BYTES)
            {
                return None;
            }
            expected = run.logical_bytes.checked_add(run.bytes)?;
            moved.push(Run { physical_bytes, ..run });
        }
        (!moved.is_empty()).then_some(Runs(moved))
    }

    /// Where a byte lies, and how many from it on lie in one piece.
    pub(super) fn find(&self, logical: u64) -> Option<(u64, u64)> {
        let index = self.0.partition_point(|run| run.logical_bytes + run.bytes <= logical);
        let run = self.0.get(index).filter(|run| run.logical_bytes <= logical)?;
        let inside = logical - run.logical_bytes;
        Some((run.physical_bytes + inside, run.bytes - inside))
    }

    /// The first byte on the volume.
    pub(crate) fn start(&self) -> u64 {
        self.0.first().map_or(0, |run| run.physical_bytes)
    }

    /// Bytes of the logical volume.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.iter().map(|run| run.bytes).sum()
    }

    /// What it takes of the volume.
    pub(crate) fn places(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.0.iter().map(|run| run.physical_bytes..run.physical_bytes + run.bytes)
    }

    /// Extents in the logical volume as extents on the volume, `most` at most; whether those are all.
    pub(crate) fn moved(&self, extents: &[FileExtent], most: usize) -> (Vec<FileExtent>, bool) {
        let mut moved = Vec::with_capacity(extents.len());
        for extent in extents {
            let mut done = 0;
            while done < extent.bytes {
                let Some((physical, left)) = extent.volume_offset.checked_add(done).and_then(|at| self.find(at)) else {
                    return (moved, false);
                };
                if moved.len() >= most {
                    return (moved, false);
                }
                let bytes = left.min(extent.bytes - done);
                moved.push(FileExtent { file_offset: extent.file_offset.saturating_add(done), volume_offset: physical, bytes, ..*extent });
                done += bytes;
            }
        }
        (moved, true)
    }
}

/// What LVM has on a part of the volume.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Group {
    /// The logical volumes that can be followed.
    pub(crate) followed: Vec<Arc<Runs>>,
    /// Whether there are others.
    pub(crate) others: bool,
}

/// The logical volumes on the physical volume that takes these bytes of the volume; `None` if there is
/// none, or what it says makes no sense.
pub(crate) async fn group(volume: &Volume, bytes: &Range<u64>) -> Option<Group> {
    let head = read(volume, bytes, 0, layout::HEAD_BYTES).await?;
    let header = layout::header(&head).ok()??;
    for (area, area_bytes) in header.areas.into_iter().take(AREAS_MAX) {
        let Some(text) = text(volume, bytes, area, area_bytes).await else { continue };
        // What cannot be understood is not taken for a group without volumes.
        return logical_volumes(&text, &header.id).map(|volumes| of(volumes, bytes));
    }
    None
}

fn of(volumes: Vec<Logical>, bytes: &Range<u64>) -> Group {
    let mut group = Group::default();
    for volume in volumes {
        match volume.runs.and_then(|runs| Runs::within(runs, bytes)) {
            Some(runs) => group.followed.push(Arc::new(runs)),
            None => group.others = true,
        }
    }
    group
}

async fn text(volume: &Volume, bytes: &Range<u64>, area: u64, area_bytes: u64) -> Option<String> {
    let header = read(volume, bytes, area, layout::AREA_HEADER_BYTES).await?;
    let place = layout::place_of_text(&header, area_bytes).ok()??;
    if place.length_bytes() > TEXT_BYTES_MAX {
        return None;
    }
    let mut text = Vec::new();
    for (at, len) in place.parts() {
        text.extend(read(volume, bytes, area.checked_add(at)?, len).await?);
    }
    place.text(&text).ok()
}

/// Bytes of the physical volume, which may begin and end within sectors.
async fn read(volume: &Volume, within: &Range<u64>, at: u64, len: u64) -> Option<Vec<u8>> {
    let start = within.start.checked_add(at)?;
    let end = start.checked_add(len).filter(|end| *end <= within.end)?;
    let whole = start / SECTOR_BYTES * SECTOR_BYTES..end.next_multiple_of(SECTOR_BYTES);
    let mut bytes = vec![0; (whole.end - whole.start) as usize];
    for (nth, piece) in bytes.chunks_mut(READ_BYTES_MAX).enumerate() {
        if !volume.read(whole.start + (nth * READ_BYTES_MAX) as u64, piece).await {
            return None;
        }
    }
    let inside = (start - whole.start) as usize;
    Some(bytes.get(inside..inside + len as usize)?.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs() -> Runs {
        let run = |logical_bytes, physical_bytes, bytes| Run { logical_bytes, physical_bytes, bytes };
        Runs::within(vec![run(0, 8192, 4096), run(4096, 65_536, 8192), run(12_288, 4096, 4096)], &(1 << 20..2 << 20)).expect("in order")
    }

    #[test]
    fn bytes_are_found_where_they_lie() {
        let (base, runs) = (1 << 20, runs());
        assert_eq!(runs.find(0), Some((base + 8192, 4096)));
        assert_eq!(runs.find(5000), Some((base + 65_536 + 904, 8192 - 904)));
        assert_eq!(runs.find(16_383), Some((base + 8191, 1)));
        assert_eq!((runs.find(16_384), runs.bytes(), runs.start()), (None, 16_384, base + 8192));
        let extent = FileExtent { file_offset: 100, volume_offset: 2048, bytes: 11_000, written: true };
        let (moved, all) = runs.moved(&[extent], 10);
        let told: Vec<_> = moved.iter().map(|one| (one.file_offset, one.volume_offset - base, one.bytes)).collect();
        assert_eq!((told, all), (vec![(100, 10_240, 2048), (2148, 65_536, 8192), (10_340, 4096, 760)], true));
        assert_eq!(runs.moved(&[extent], 2).0.len(), 2);
        assert!(!runs.moved(&[FileExtent { bytes: 1 << 40, ..extent }], 10).1, "it ends before");
        assert!(!runs.moved(&[FileExtent { volume_offset: u64::MAX, bytes: 2, ..extent }], 10).1);
    }

    #[test]
    fn runs_that_leave_the_volume_or_overlap_are_none() {
        let run = |logical_bytes, physical_bytes, bytes| Run { logical_bytes, physical_bytes, bytes };
        let within = |runs: &[Run]| Runs::within(runs.to_vec(), &(4096..1 << 20)).is_some();
        assert!(within(&[run(0, 0, 4096)]));
        assert!(!within(&[]) && !within(&[run(0, 0, 1 << 20)]) && !within(&[run(512, 0, 4096)]) && !within(&[run(0, 0, 100)]));
        assert!(!within(&[run(0, u64::MAX - 511, 512)]) && !within(&[run(0, 0, 4096), run(0, 8192, 4096)]));
    }
}
