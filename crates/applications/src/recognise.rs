//! From the first bytes of a request to the page they begin.
//!
//! Two depths. [`recognise`] is for every block that goes by: it looks at a few words, and computes
//! a checksum only where those words are a weak proof. [`verify`] computes the checksum in any
//! case. A page that was damaged in its body is `Likely` to the first and `Suspect` to the second.

use crate::Engine;
use crate::page::Page;

/// The bytes that the first tests look at; fewer are never recognised as a page.
pub(crate) const HEAD_BYTES: usize = 128;
/// Where the next page may begin after bytes that were not recognised: the smallest common
/// alignment of pages on a device.
pub const STEP_BYTES: usize = 4096;

/// The first bytes of what may be a page.
pub(crate) type Head = [u8; HEAD_BYTES];

/// The page that begins with the first of `bytes`, at the depth described above. Bytes after the
/// page are not looked at. Where the page goes on after the last of the bytes, its head alone is
/// judged: 4 KiB suffice for index pages of InnoDB and for all of PostgreSQL. Any bytes of any
/// length may come in.
#[must_use]
pub fn recognise(bytes: &[u8]) -> Option<Page> {
    let head: &Head = bytes.first_chunk()?;
    let page = Engine::ALL.iter().find_map(|engine| engine.dialect().page(bytes, head));
    page.or_else(|| Engine::ALL.iter().find_map(|engine| engine.dialect().rare_page(bytes, head)))
}

/// The same page with its checksum looked at. `bytes` are those that it was recognised in.
///
/// `Verified` if the checksum fits, `Suspect` if not; unchanged where the page carries none, or not
/// all of it is here. PostgreSQL's checksum includes the block number, which the page does not
/// carry: it verifies a page together with the tuples' own word for their block, and leaves an
/// index page `Likely` (see [`crate::postgres::holds`] for one whose place is known).
#[must_use]
pub fn verify(mut page: Page, bytes: &[u8]) -> Page {
    if page.whole {
        page.engine.dialect().verify(&mut page, bytes);
    }
    page
}

/// [`recognise`] and [`verify`] in one.
#[must_use]
pub fn examine(bytes: &[u8]) -> Option<Page> {
    recognise(bytes).map(|page| verify(page, bytes))
}

/// The pages in a request's bytes with their offsets: tried at its start, then after each page, or
/// 4 KiB on where there was none.
pub fn pages(bytes: &[u8]) -> impl Iterator<Item = (usize, Page)> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        while let Some(rest) = bytes.get(at..).filter(|rest| rest.len() >= HEAD_BYTES) {
            let here = at;
            if let Some(page) = recognise(rest) {
                at += (page.stored_bytes as usize).max(512);
                return Some((here, page));
            }
            at += STEP_BYTES;
        }
        None
    })
}
