//! Is this a page of InnoDB, and which?

use super::{Form, Identity, checksum};
use crate::Engine;
use crate::bytes::{be16, be32, be64, is_zero};
use crate::page::{Certainty, Native, Page, PageKind, PageOwner};
use crate::recognise::Head;

/// `FIL_PAGE_INDEX`, a page of a B-tree.
pub const INDEX: u16 = 17855;
/// `FIL_PAGE_RTREE`, a page of a spatial index.
const RTREE: u16 = 17854;
/// `FIL_PAGE_SDI`, a page of the dictionary that each tablespace of MySQL 8 carries.
pub const SDI: u16 = 17853;
const UNDO: u16 = 2;
const INODE: u16 = 3;
const HEADER: u16 = 8;
const BLOB: u16 = 10;
/// MariaDB before `full_crc32`: page-compressed, and that encrypted too.
const OLD_PAGE_COMPRESSED: u16 = 34354;
const OLD_SEALED: u16 = 37401;

/// "No page" in links.
const NO_PAGE: u32 = u32::MAX;
/// The smallest LSN a server writes: the log begins with its headers.
const LSN_MIN: u64 = 8192;
/// More redo log than a server writes in its life; higher words are text or code.
const LSN_MAX: u64 = 1 << 52;
/// The page size without settings, assumed where the end was not seen.
const DEFAULT_BYTES: usize = 16384;
/// Page sizes by ascending size: the trailer of a smaller page cannot stand inside a larger one but
/// by chance, while pages changed together carry equal LSNs, so the larger ones would fit too.
const SIZES: [usize; 5] = [4096, 8192, 16384, 32768, 65536];
/// Sizes of `ROW_FORMAT=COMPRESSED`, most used first.
const COMPRESSED_SIZES: [usize; 5] = [8192, 4096, 2048, 1024, 16384];

/// Types that exist, but for 0 ("allocated"), which is too common a number and of no use.
fn kind_of(page_type: u16) -> Option<PageKind> {
    Some(match page_type {
        INDEX | RTREE => PageKind::Index,
        SDI => PageKind::Dictionary,
        UNDO => PageKind::Undo,
        INODE | 4 | 5 | HEADER | 9 => PageKind::Space,
        6 | 7 | 21 | 30..=32 => PageKind::Other,
        BLOB..=12 | 18 | 19 | 22..=29 => PageKind::Lob,
        14..=17 | OLD_PAGE_COMPRESSED | OLD_SEALED => PageKind::Sealed,
        0x8001..=0x8100 => PageKind::Sealed,
        _ => return None,
    })
}

/// Whether the first bytes leave it possible. Random data passes once in 10^6.
#[inline]
pub(crate) fn may_be(head: &Head) -> bool {
    let lsn = be64(head, 16);
    (LSN_MIN..LSN_MAX).contains(&lsn) && lsn as u32 != 0 && kind_of(be16(head, 24)).is_some()
}

/// The page at the start of `bytes`, after [`may_be`].
pub(crate) fn recognise(bytes: &[u8], head: &Head) -> Option<Page> {
    let page_type = be16(head, 24);
    let kind = kind_of(page_type)?;
    let number = be32(head, 4);
    // The first page of a space keeps versions where others keep links.
    let to_itself = number != 0 && (be32(head, 8) == number || be32(head, 12) == number);
    if number >= 1 << 31 || to_itself {
        return None;
    }
    if page_type & 0x8000 != 0 && kind == PageKind::Sealed && page_type <= 0x8100 {
        return page_compressed(bytes, head);
    }
    if matches!(page_type, 14..=17 | OLD_PAGE_COMPRESSED | OLD_SEALED) {
        return sealed(bytes, head);
    }
    let named = has_infimum(head, page_type);
    with_trailer(bytes, head, kind, named)
        .or_else(|| if named { by_head(bytes, head, kind) } else { None })
        .or_else(|| if named { None } else { without_trailer(bytes, head, kind) })
}

/// A page whose last words repeat the low word of its LSN.
fn with_trailer(bytes: &[u8], head: &Head, kind: PageKind, named: bool) -> Option<Page> {
    let low = be64(head, 16) as u32;
    for size in SIZES {
        let page = bytes.get(..size)?;
        if be32(page, size - 8) == low {
            // A key version: the body is sealed, and only the checksum can prove the page.
            let encrypted = be32(head, 0) != 0;
            let likely = !encrypted && (named || fits_type(head, size));
            if likely || checksum::full_crc32(page) {
                let certainty = if likely { Certainty::Likely } else { Certainty::Verified };
                return Some(page_of(head, kind, size, Form::FullCrc32, encrypted, certainty));
            }
        }
        if be32(page, size - 4) == low {
            // The checksum stands at both ends. Tables of small numbers repeat their words too, but
            // have no zeroes after the type, where only the first page of a space keeps anything.
            let alike = be32(head, 0) == be32(page, size - 8) && (be32(head, 4) == 0 || is_zero(head, 26, 34));
            if named || alike {
                return Some(page_of(head, kind, size, Form::BothEnds, false, Certainty::Likely));
            }
        }
    }
    None
}

/// An index page whose end is not among the bytes, or is not its own.
fn by_head(bytes: &[u8], head: &Head, kind: PageKind) -> Option<Page> {
    // Enough bytes for a page of the usual size, but its trailer is another page's: torn, or not of
    // this place.
    let torn = bytes.len() >= DEFAULT_BYTES;
    let certainty = if torn { Certainty::Suspect } else { Certainty::Likely };
    let mut page = page_of(head, kind, DEFAULT_BYTES, Form::FullCrc32, false, certainty);
    page.whole = false;
    if let Native::Innodb(identity) = &mut page.native {
        identity.space_covered = false;
    }
    Some(page)
}

/// `ROW_FORMAT=COMPRESSED`, and pages whose encryption covers the trailer: the checksum alone
/// tells.
fn without_trailer(bytes: &[u8], head: &Head, kind: PageKind) -> Option<Page> {
    if be32(head, 0) == 0 {
        return None;
    }
    if fits_compressed(head) {
        for size in COMPRESSED_SIZES {
            if bytes.get(..size).is_some_and(checksum::compressed) {
                return Some(page_of(head, kind, size, Form::Compressed, false, Certainty::Verified));
            }
        }
    }
    // The first word is the version of a key, of which a server has few.
    if be32(head, 0) >= 1 << 16 {
        return None;
    }
    for size in [16384, 4096, 8192, 32768, 65536] {
        if bytes.get(..size).is_some_and(checksum::full_crc32) {
            return Some(page_of(head, kind, size, Form::FullCrc32, true, Certainty::Verified));
        }
    }
    None
}

/// MariaDB `page_compressed`: the type says the length in units of 256 bytes, its last word is the
/// checksum.
fn page_compressed(bytes: &[u8], head: &Head) -> Option<Page> {
    let length = usize::from(be16(head, 24) & 0x7fff) * 256;
    if !checksum::full_crc32(bytes.get(..length)?) {
        return None;
    }
    // The page size is not in the page: the default, or the next that the length fits in.
    let size = length.next_power_of_two().max(DEFAULT_BYTES);
    let encrypted = be32(head, 0) != 0;
    let mut page = page_of(head, PageKind::Sealed, size, Form::PageCompressed, encrypted, Certainty::Verified);
    // What is left of the page is a hole in the file, which no block of the device backs.
    page.stored_bytes = length.next_multiple_of(4096) as u32;
    Some(page)
}

/// What other versions compress or encrypt. Built from descriptions; no sample was at hand, and no
/// checksum is left to look at, so it is never more than a suspicion.
fn sealed(bytes: &[u8], head: &Head) -> Option<Page> {
    let fits = match be16(head, 24) {
        // MySQL `COMPRESSION=`: version, algorithm, type before, size before, size now.
        14 | 16 => {
            let (before, now) = (be16(head, 30), be16(head, 32));
            matches!(head[26], 1 | 2) && matches!(head[27], 1 | 2) && kind_of(be16(head, 28)).is_some() && 0 < now && now < before
        }
        // MySQL encrypted pages keep the space id, and the type before; about it stand zeroes.
        15 | 17 => be32(head, 34) < 1 << 31 && kind_of(be16(head, 28)).is_some() && is_zero(head, 26, 28) && is_zero(head, 30, 34),
        // MariaDB 10.1 to 10.4 computes no checksum over these.
        _ => be32(head, 0) == 0xdead_beef,
    };
    if !fits || bytes.len() < 4096 {
        return None;
    }
    let mut page = page_of(head, PageKind::Sealed, DEFAULT_BYTES, Form::Sealed, be16(head, 24) != 14, Certainty::Suspect);
    page.whole = bytes.len() >= DEFAULT_BYTES;
    page.stored_bytes = 4096;
    Some(page)
}

/// The two system records of an index page, of either record format.
fn has_infimum(head: &Head, page_type: u16) -> bool {
    matches!(page_type, INDEX | RTREE | SDI)
        && ((head[99..107] == *b"infimum\0" && head[112..120] == *b"supremum")
            || (head[101..109] == *b"infimum\0" && head[116..124] == *b"supremum"))
}

/// Whether a page of a type that is common and has no such signature looks as its type says.
fn fits_type(head: &Head, size: usize) -> bool {
    let number = be32(head, 4);
    // Only the first page of the system space keeps anything in the eight bytes after the type.
    let nothing_after_type = is_zero(head, 26, 34);
    match be16(head, 24) {
        BLOB => {
            let (length, next) = (be32(head, 38) as usize, be32(head, 42));
            nothing_after_type && 0 < length && length <= size - 54 && next != number && (next == NO_PAGE || next < 1 << 31)
        }
        UNDO => {
            let (kind, start, free) = (be16(head, 38), usize::from(be16(head, 40)), usize::from(be16(head, 42)));
            nothing_after_type && kind <= 2 && 56 <= start && start <= free && free <= size - 8
        }
        HEADER => number == 0 && be32(head, 34) == be32(head, 38) && be32(head, 46) > 0,
        _ => false,
    }
}

/// Whether the words after the header may be those of a `ROW_FORMAT=COMPRESSED` page.
fn fits_compressed(head: &Head) -> bool {
    let space = be32(head, 34);
    let depth = be16(head, 64);
    space < 1 << 31 && (!matches!(be16(head, 24), INDEX | RTREE) || depth < 64)
}

/// Puts together what the head says.
fn page_of(head: &Head, kind: PageKind, size: usize, form: Form, encrypted: bool, certainty: Certainty) -> Page {
    let page_type = be16(head, 24);
    let clear = !encrypted && !matches!(form, Form::PageCompressed | Form::Sealed);
    let tree = matches!(page_type, INDEX | RTREE | SDI) || form == Form::PageCompressed;
    let link = |at| Some(be32(head, at)).filter(|page| tree && *page != NO_PAGE);
    // Page-compressed pages may be of any type: links of those that are in no tree are no links.
    let (prev, next) = (link(8), link(12));
    let space = (clear || page_type == 15).then(|| be32(head, 34));
    let in_index = clear && matches!(page_type, INDEX | RTREE | SDI);
    let identity = Identity {
        page_type,
        page: be32(head, 4),
        prev,
        next,
        lsn: be64(head, 16),
        space,
        space_covered: matches!(form, Form::FullCrc32 | Form::Compressed),
        index: in_index.then(|| be64(head, 66)),
        level: in_index.then(|| be16(head, 64)),
        form,
        encrypted,
    };
    // Index ids are unique in a server, space ids too, and both together tell servers apart better than one.
    let owner = space.map(|space| u64::from(space) << 32 | identity.index.unwrap_or(0) & 0xffff_ffff);
    Page {
        number: Some(identity.page),
        owner: owner.map_or(PageOwner::Unnamed, PageOwner::Named),
        prev,
        next,
        level: identity.level.unwrap_or(0),
        is_leaf: identity.level == Some(0),
        native: Native::Innodb(identity),
        ..Page::new(Engine::Innodb, certainty, kind, size as u32)
    }
}

/// How sure it is once the checksum was computed.
pub(crate) fn certainty(identity: &Identity, page: &Page, bytes: &[u8]) -> Certainty {
    if page.certainty != Certainty::Likely {
        return page.certainty;
    }
    let Some(whole) = bytes.get(..page.size_bytes as usize) else { return page.certainty };
    let fits = match identity.form {
        Form::FullCrc32 => Some(checksum::full_crc32(whole)),
        Form::BothEnds => checksum::both_ends(whole),
        Form::Compressed => Some(checksum::compressed(whole)),
        Form::PageCompressed | Form::Sealed => None,
    };
    match fits {
        Some(true) => Certainty::Verified,
        Some(false) => Certainty::Suspect,
        None => Certainty::Likely,
    }
}
