//! The doublewrite buffer of InnoDB where it lies in the system tablespace: MariaDB, and MySQL before
//! 8.0.20. It is written all the time and read after a crash only, so it is an object of its own.
//!
//! The page of the transaction system says where it lies, in two areas. Sources: `trx0sys.h` and
//! `fsp0types.h` of both servers.

use super::discover::page_bytes;
use crate::bytes::{be16, be32};
use crate::discovery::Source;
use crate::filesystems::{DataFile, FileExtent};
use std::ops::Range;

/// Bytes of the file's head that are read: one sector has its numbers.
const HEAD_BYTES: u64 = 512;
/// Types of pages: the head of a tablespace, and the transaction system, which is that page.
const HEADER: u16 = 8;
const SYSTEM: u16 = 7;
const SYSTEM_PAGE: u64 = 5;
/// Where its part about the buffer begins before the end of the page, and in it the number that says
/// that there is one and the first pages of the areas, twice.
const PART_BYTES: u64 = 200;
const MAGIC: u32 = 536_853_855;
const COPIES_AT: [usize; 2] = [10, 22];
/// An area is as large as what space is given out in: a mebibyte, or 64 of the larger pages.
const AREA_BYTES_MIN: u64 = 1 << 20;
const AREA_PAGES_MIN: u64 = 64;

/// Where the areas lie in the first file of the system tablespace; empty where it has none, or does
/// not say.
pub(super) async fn areas(source: &mut Source<'_>, file: &DataFile) -> Vec<Range<u64>> {
    told(source, file).await.unwrap_or_default()
}

async fn told(source: &mut Source<'_>, file: &DataFile) -> Option<Vec<Range<u64>>> {
    let head = source.file(file, 0..HEAD_BYTES).await?;
    if be16(&head, 24) != HEADER || be32(&head, 4) != 0 || be32(&head, 34) != 0 {
        return None;
    }
    let page_bytes = page_bytes(be32(&head, 54));
    let page = source.file(file, SYSTEM_PAGE * page_bytes..(SYSTEM_PAGE + 1) * page_bytes).await?;
    let part = page.get((page_bytes - PART_BYTES) as usize..)?;
    let copy = |at: usize| [be32(part, at), be32(part, at + 4), be32(part, at + 8)];
    let [one, other] = COPIES_AT.map(copy);
    if be16(&page, 24) != SYSTEM || u64::from(be32(&page, 4)) != SYSTEM_PAGE || one != other || one[0] != MAGIC {
        return None;
    }
    let area_bytes = AREA_BYTES_MIN.max(AREA_PAGES_MIN * page_bytes);
    let area = |number: u32| u64::from(number) * page_bytes..u64::from(number) * page_bytes + area_bytes;
    let mut areas = [area(one[1]), area(one[2])];
    areas.sort_unstable_by_key(|area| area.start);
    let [first, second] = &areas;
    let is_sane = first.start > SYSTEM_PAGE * page_bytes && first.end <= second.start && second.end <= file.bytes;
    is_sane.then(|| areas.to_vec())
}

/// What is left of a file without these areas, which are in order, at the same offsets; and a file
/// of the areas alone, one after the other.
pub(super) fn without(mut file: DataFile, areas: &[Range<u64>]) -> (DataFile, DataFile) {
    let mut taken = DataFile { path: file.path.clone(), engine: file.engine, inode: file.inode, bytes: 0, extents: Vec::new() };
    for area in areas {
        let mut left = Vec::with_capacity(file.extents.len() + 1);
        for extent in file.extents {
            left.extend(part(&extent, 0..area.start));
            let inside = part(&extent, area.clone());
            taken
                .extents
                .extend(inside.map(|inside| FileExtent { file_offset: taken.bytes + (inside.file_offset - area.start), ..inside }));
            left.extend(part(&extent, area.end..u64::MAX));
        }
        file.extents = left;
        taken.bytes += area.end - area.start;
    }
    (file, taken)
}

/// The part of an extent that lies in a range of the file.
fn part(extent: &FileExtent, range: Range<u64>) -> Option<FileExtent> {
    let (start, end) = (extent.file_offset.max(range.start), extent.file_offset.saturating_add(extent.bytes).min(range.end));
    let before = start - extent.file_offset;
    (start < end).then(|| FileExtent {
        file_offset: start,
        volume_offset: extent.volume_offset + before,
        bytes: end - start,
        written: extent.written,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Engine;

    #[test]
    fn areas_are_taken_out_of_extents() {
        let extent = |file_offset, volume_offset, bytes| FileExtent { file_offset, volume_offset, bytes, written: true };
        let file = DataFile {
            path: "ibdata1".to_owned(),
            engine: Engine::Innodb,
            inode: 12,
            bytes: 1000,
            extents: vec![extent(0, 5000, 150), extent(150, 9000, 300), extent(450, 7000, 550)],
        };
        let (left, taken) = without(file, &[100..200, 200..300]);
        assert_eq!(left.extents, [extent(0, 5000, 100), extent(300, 9150, 150), extent(450, 7000, 550)]);
        assert_eq!(taken.extents, [extent(0, 5100, 50), extent(50, 9000, 50), extent(100, 9050, 100)]);
        assert_eq!((left.bytes, taken.bytes), (1000, 200));
    }
}
