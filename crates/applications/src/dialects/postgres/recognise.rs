//! Is this a page of a PostgreSQL relation, and of what kind?

use super::{Identity, Method, checksum};
use crate::Engine;
use crate::bytes::{byte, is_zero, le16, le32};
use crate::page::{Certainty, Native, Page, PageKind, PageOwner};
use crate::recognise::Head;
use format::checksum::crc32c;

/// Bytes before the line pointers.
const HEADER_BYTES: usize = 24;
/// The layout version since PostgreSQL 8.3.
const LAYOUT: u8 = 4;
/// Line pointers in use that are looked at, of the first ones: enough that no foreign page has
/// passed.
const POINTERS: usize = 8;
/// Tuples that are asked for their block.
const TUPLES: usize = 5;
/// Columns that a tuple can have (`MaxTupleAttributeNumber`).
const ATTRIBUTES_MAX: u16 = 1664;
/// "No page" in links of all index methods but the B-tree, where it is 0.
const NO_PAGE: u32 = u32::MAX;

/// The fields of a page header.
struct Header {
    lower: usize,
    upper: usize,
    special: usize,
    size: usize,
    lsn: u64,
}

/// Whether the first bytes leave it possible: the word of page size and layout version.
#[inline]
pub(crate) fn may_be(head: &Head) -> bool {
    head[18] == LAYOUT && head[19].is_power_of_two() && head[19] >= 4 && le16(head, 10) <= 7
}

/// The page at the start of `bytes`, after [`may_be`].
pub(crate) fn recognise(bytes: &[u8], head: &Head) -> Option<Page> {
    let place = |at| usize::from(le16(head, at));
    let header = Header {
        lower: place(12),
        upper: place(14),
        special: place(16),
        size: usize::from(head[19]) << 8,
        lsn: u64::from(le32(head, 0)) << 32 | u64::from(le32(head, 4)),
    };
    let Header { lower, upper, special, size, .. } = header;
    if lower < HEADER_BYTES || upper < lower || special < upper || size < special || special % 8 != 0 {
        return None;
    }
    let seen = &bytes[..bytes.len().min(size)];
    let whole = seen.len() == size;
    let pointers = pointers_fit(seen, &header);
    let method = match size - special {
        0 => without_special(seen, &header, pointers)?,
        4..=64 if !whole => (pointers || is_meta(head)).then_some(Method::SomeIndex)?,
        8 => by_eight(seen, special, pointers, head)?,
        16 => by_sixteen(seen, special, pointers, head)?,
        _ => return None,
    };
    let mut identity = Identity {
        method,
        lsn: header.lsn,
        block_by_tuples: None,
        blocks_by_checksum: [None; 2],
        attributes: None,
        prev: None,
        next: None,
        level: None,
    };
    let mut certainty = Certainty::Likely;
    match method {
        Method::Heap | Method::Sequence if !tuples(seen, &header, &mut identity) => certainty = Certainty::Suspect,
        Method::Btree if pointers => {
            let link = |at| Some(le32(seen, at)).filter(|block| *block != 0 && *block != NO_PAGE);
            (identity.prev, identity.next) = (link(special), link(special + 4));
            identity.level = Some(le32(seen, special + 8));
        }
        _ => {}
    }
    let kind = match method {
        Method::Heap => PageKind::Table,
        Method::Sequence => PageKind::Other,
        Method::FreeSpaceMap | Method::VisibilityMap => PageKind::Space,
        _ => PageKind::Index,
    };
    let number = identity.block_by_tuples;
    let (prev, next, is_leaf) = match (kind, identity.level) {
        (PageKind::Index, Some(level)) => (identity.prev, identity.next, level == 0),
        // A heap is read in the order of its blocks.
        (PageKind::Table, _) => (number.and_then(|number| number.checked_sub(1)), None, true),
        _ => (None, None, false),
    };
    Some(Page {
        whole,
        number,
        owner: PageOwner::Unnamed,
        prev,
        next,
        level: u16::try_from(identity.level.unwrap_or(0)).unwrap_or(u16::MAX),
        is_leaf,
        native: Native::Postgres(identity),
        ..Page::new(Engine::Postgres, certainty, kind, size as u32)
    })
}

/// Pages without special space: heaps and the two maps.
fn without_special(seen: &[u8], header: &Header, pointers: bool) -> Option<Method> {
    if header.lower > HEADER_BYTES {
        return pointers.then_some(Method::Heap);
    }
    // Both maps fill what the header calls a hole. An empty page of a heap looks the same, but for
    // its zeroes.
    if header.upper != header.size || le32(seen, 20) != 0 || is_zero(seen, HEADER_BYTES, seen.len()) {
        return None;
    }
    // The map is a tree of which each byte is the larger of its two children, after a word with the
    // next slot.
    let node = |index: usize| byte(seen, HEADER_BYTES + 4 + index);
    let is_tree = node(0) > 0 && (0..15).all(|index| node(index) == node(2 * index + 1).max(node(2 * index + 2)));
    if is_tree {
        return Some(Method::FreeSpaceMap);
    }
    // Each change of a visibility map is logged.
    (header.lsn != 0).then_some(Method::VisibilityMap)
}

/// Pages with eight bytes of special space.
fn by_eight(seen: &[u8], special: usize, pointers: bool, head: &Head) -> Option<Method> {
    if le32(seen, special) == 0x1717 && le32(seen, special + 4) == 0 {
        return pointers.then_some(Method::Sequence);
    }
    match le16(seen, special + 6) {
        0xff82 => Some(Method::SpGist),
        0xf091..=0xf093 => Some(Method::Brin),
        // Flags of GIN: those of data (1), lists (4) and meta pages (8) say that no line pointers
        // are there.
        flags if flags <= 0x1ff => {
            let other_content = flags & 0b1101 != 0 && le16(head, 10) == 0;
            (pointers || other_content).then_some(Method::Gin)
        }
        _ => None,
    }
}

/// Pages with sixteen bytes of special space.
fn by_sixteen(seen: &[u8], special: usize, pointers: bool, head: &Head) -> Option<Method> {
    match le16(seen, special + 14) {
        0xff80 => Some(Method::Hash),
        0xff81 => pointers.then_some(Method::Gist),
        0..=0xff7f => (pointers || is_meta(head)).then_some(Method::Btree),
        _ => None,
    }
}

/// Whether the page begins with the magic number of the first page of an index.
fn is_meta(head: &Head) -> bool {
    matches!(le32(head, HEADER_BYTES), 0x0005_3162 | 0x0644_0640 | 0xba0b_abee | 0xa810_9cfa | 0x0010_9cfa)
}

/// Whether the first line pointers point at what may be there, at least one of them at a tuple or a
/// dead one's place.
fn pointers_fit(seen: &[u8], header: &Header) -> bool {
    let area = header.lower - HEADER_BYTES;
    let count = area / 4;
    if count == 0 || !area.is_multiple_of(4) {
        return false;
    }
    let mut used = 0;
    for at in (HEADER_BYTES..header.lower).step_by(4) {
        let (offset, flags, length) = pointer(seen, at);
        let inside = header.upper <= offset && offset + length <= header.special && offset % 8 == 0;
        let fits = match flags {
            0 => offset == 0 && length == 0,
            1 => length > 0 && inside,
            2 => length == 0 && 0 < offset && offset <= count,
            _ => length == 0 || inside,
        };
        if !fits {
            return false;
        }
        used += usize::from(flags != 0);
        if used == POINTERS {
            break;
        }
    }
    used > 0
}

/// A line pointer: offset, flags (0 unused, 1 normal, 2 redirected, 3 dead), length.
pub(crate) fn pointer(page: &[u8], at: usize) -> (usize, u8, usize) {
    let word = le32(page, at);
    ((word & 0x7fff) as usize, (word >> 15 & 3) as u8, (word >> 17) as usize)
}

/// What the first tuples of a heap say: their block by majority, and the attributes of the first.
/// Whether all of them have the header of a tuple.
fn tuples(seen: &[u8], header: &Header, identity: &mut Identity) -> bool {
    let mut blocks = [0u32; TUPLES];
    let mut count = 0;
    for at in (HEADER_BYTES..header.lower).step_by(4) {
        let (offset, flags, length) = pointer(seen, at);
        let Some(tuple) = seen.get(offset..offset + length).filter(|tuple| flags == 1 && tuple.len() >= HEADER_BYTES) else {
            continue;
        };
        let (attributes, data) = (le16(tuple, 18) & 0x7ff, usize::from(tuple[22]));
        if attributes > ATTRIBUTES_MAX || data < HEADER_BYTES || data > length || data % 8 != 0 {
            return false;
        }
        blocks[count] = u32::from(le16(tuple, 12)) << 16 | u32::from(le16(tuple, 14));
        if count == 0 {
            identity.attributes = Some(attributes);
        }
        count += 1;
        if count == TUPLES {
            break;
        }
    }
    // The block that more than half of them name, if there is one, is the last that outvotes the
    // others.
    let blocks = &blocks[..count];
    let last = blocks.iter().fold((0, 0u32), |(leader, lead), block| match (lead, *block == leader) {
        (0, _) => (*block, 1),
        (_, true) => (leader, lead + 1),
        (_, false) => (leader, lead - 1),
    });
    let votes = blocks.iter().filter(|block| **block == last.0).count();
    identity.block_by_tuples = (2 * votes > count).then_some(last.0);
    true
}

/// How sure it is once the checksum was computed; fills in what block numbers it fits.
pub(crate) fn certainty(identity: &mut Identity, size_bytes: u32, before: Certainty, bytes: &[u8]) -> Certainty {
    let Some(page) = bytes.get(..size_bytes as usize) else { return before };
    let sum = checksum::Sum::of(page);
    identity.blocks_by_checksum = sum.candidates();
    match identity.block_by_tuples.map(|block| sum.holds(block)) {
        Some(Some(true)) if before == Certainty::Likely => Certainty::Verified,
        Some(Some(false)) => Certainty::Suspect,
        _ => before,
    }
}

/// `pg_filenode.map`: which file a mapped relation lives in. 512 bytes, 524 since PostgreSQL 16.
pub(crate) fn filenode_map(bytes: &[u8], head: &Head) -> Option<Page> {
    const MAGIC: u32 = 0x0059_2717;
    if le32(head, 0) != MAGIC {
        return None;
    }
    let fits = |end: usize| bytes.get(..end).is_some_and(|map| crc32c(map) == le32(bytes, end));
    let page = Page::new(Engine::Postgres, Certainty::Verified, PageKind::Dictionary, 4096);
    (fits(504) || fits(520)).then_some(Page { native: Native::FilenodeMap, ..page })
}
