//! SQLite: the file's first page, pages of its B-trees, and the head of its WAL. Big endian.
//!
//! Pages of B-trees have no signature: one foreign block in 500,000 looks the same, and pages of
//! long values have no header at all. So all but the two magic heads are `Suspect`: hints for a
//! file map.

use super::{Dialect, Engine, Facts};
use crate::bytes::{be16, be32, byte};
use crate::page::{Certainty, Native, Page, PageKind};
use crate::recognise::Head;

/// See [`Engine::Sqlite`].
pub(super) struct Sqlite;

impl Dialect for Sqlite {
    fn facts(&self) -> &'static Facts {
        const { &Facts::of_pages("SQLite", "sqlite") }
    }

    fn page(&self, _: &[u8], _: &Head) -> Option<Page> {
        None
    }

    fn rare_page(&self, bytes: &[u8], head: &Head) -> Option<Page> {
        recognise(bytes, head)
    }

    fn verify(&self, _: &mut Page, _: &[u8]) {
        // It has no checksums.
    }
}

/// The page size since 2016, assumed for pages that do not say.
const DEFAULT_BYTES: usize = 4096;
/// Cells that a page must have to be believed.
const CELLS_MIN: usize = 4;

/// The page at the start of `bytes`.
#[inline]
fn recognise(bytes: &[u8], head: &Head) -> Option<Page> {
    if head[..16] == *b"SQLite format 3\0" {
        let size = if be16(head, 16) == 1 { 65536 } else { u32::from(be16(head, 16)) };
        let fits = size.is_power_of_two() && size >= 512 && matches!(head[18], 1 | 2) && matches!(head[19], 1 | 2);
        return fits.then(|| page(Certainty::Likely, PageKind::Space, size, Native::Sqlite(0)));
    }
    if matches!(be32(head, 0), 0x377f_0682 | 0x377f_0683) {
        let fits = be32(head, 4) == 3_007_000 && be32(head, 8).is_power_of_two();
        return fits.then(|| page(Certainty::Likely, PageKind::Log, DEFAULT_BYTES as u32, Native::SqliteWal));
    }
    let kind = match head[0] {
        2 | 10 => PageKind::Index,
        5 | 13 => PageKind::Table,
        _ => return None,
    };
    is_tree(bytes.get(..DEFAULT_BYTES)?, head).then(|| page(Certainty::Suspect, kind, DEFAULT_BYTES as u32, Native::Sqlite(head[0])))
}

/// Whether all cells lie in the content area, and the area begins with one.
fn is_tree(bytes: &[u8], head: &Head) -> bool {
    let (free, cells, start) = (be16(head, 1), usize::from(be16(head, 3)), usize::from(be16(head, 5)));
    let pointers = if head[0] < 8 { 12 } else { 8 };
    let pointers_end = pointers + 2 * cells;
    if cells < CELLS_MIN || start < pointers_end || start >= bytes.len() || byte(bytes, 7) > 60 {
        return false;
    }
    let mut smallest = usize::MAX;
    for at in (pointers..pointers_end).step_by(2) {
        let cell = usize::from(be16(bytes, at));
        if cell < start || cell >= bytes.len() {
            return false;
        }
        smallest = smallest.min(cell);
    }
    smallest == start || free != 0
}

fn page(certainty: Certainty, kind: PageKind, size_bytes: u32, native: Native) -> Page {
    Page { native, ..Page::new(Engine::Sqlite, certainty, kind, size_bytes) }
}
