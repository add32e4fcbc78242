//! Oracle Database: blocks of data files, 2 to 32 KiB, of hosts with little-endian numbers.
//!
//! Built from published block dumps; no data file with a fitting licence was at hand. The last word
//! of a block repeats three of its fields, which is what recognises it.

use super::{Dialect, Engine, Facts};
use crate::bytes::{le16, le32, le64};
use crate::page::{Certainty, Native, Page, PageKind, PageOwner};
use crate::recognise::Head;

/// See [`Engine::Oracle`].
pub(super) struct Oracle;

impl Dialect for Oracle {
    fn facts(&self) -> &'static Facts {
        const { &Facts::of_pages("Oracle", "oracle") }
    }

    fn page(&self, bytes: &[u8], head: &Head) -> Option<Page> {
        if may_be(head) { recognise(bytes, head) } else { None }
    }

    fn rare_page(&self, _: &[u8], _: &Head) -> Option<Page> {
        None
    }

    fn verify(&self, _: &mut Page, _: &[u8]) {
        // That was done when it was recognised.
    }
}

/// Flag: the block carries a checksum.
const CHECKSUM: u8 = 4;

/// What a block says about itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// 6 is a table's or an index's block, 2 undo, 11 the file header.
    pub block_type: u8,
    /// Relative address: file in the upper 10 bits, block in the lower 22; all 32 are the block in
    /// a bigfile tablespace.
    pub rdba: u32,
    /// `data_object_id` of `DBA_OBJECTS`, in blocks of type 6.
    pub data_object: Option<u32>,
    /// System change number of the last change.
    pub scn: u64,
}

impl Identity {
    /// The block in its file, taking the tablespace as one of small files.
    #[must_use]
    pub const fn block(&self) -> u32 {
        self.rdba & 0x3f_ffff
    }

    /// The relative file number, taking the tablespace as one of small files.
    #[must_use]
    pub const fn file(&self) -> u32 {
        self.rdba >> 22
    }
}

/// Whether the first bytes leave it possible: format, type and flags.
#[inline]
fn may_be(head: &Head) -> bool {
    let format_fits = matches!(head[1], 0x62 | 0x82 | 0xa2 | 0xc2 | 0xe2);
    format_fits && matches!(head[0], 1..=6 | 0x0b | 0x0e..=0x10 | 0x17 | 0x1b..=0x29) && head[15] & 0xe0 == 0
}

/// The block at the start of `bytes`, after [`may_be`].
fn recognise(bytes: &[u8], head: &Head) -> Option<Page> {
    let size = 256usize << (head[1] >> 5);
    let block = bytes.get(..size)?;
    let (scn, sequence) = (le32(head, 8), head[14]);
    let tail = (scn & 0xffff) << 16 | u32::from(head[0]) << 8 | u32::from(sequence);
    let identity = Identity {
        block_type: head[0],
        rdba: le32(head, 4),
        data_object: (head[0] == 6).then(|| le32(head, 24)),
        scn: u64::from(le16(head, 12)) << 32 | u64::from(scn),
    };
    if le32(block, size - 4) != tail || scn == 0 || sequence == 0 || identity.block() == 0 {
        return None;
    }
    // With its checksum a block folds to zero by exclusive or of its 16-bit words.
    let certainty = if head[15] & CHECKSUM != 0 && folds_to_zero(block) { Certainty::Verified } else { Certainty::Suspect };
    let kind = match (head[0], head[20]) {
        (6, 2) => PageKind::Index,
        (6, _) => PageKind::Table,
        (1..=5 | 0x0e | 0x0f, _) => PageKind::Undo,
        (0x1b | 0x28 | 0x29, _) => PageKind::Lob,
        _ => PageKind::Space,
    };
    // Blocks of a segment do not name each other; they are read in the order of their extents.
    let owner = identity.data_object.map(|object| u64::from(object) << 32 | u64::from(identity.file()));
    Some(Page {
        number: Some(identity.block()),
        owner: owner.map_or(PageOwner::None, PageOwner::Named),
        prev: identity.block().checked_sub(1),
        is_leaf: true,
        native: Native::Oracle(identity),
        ..Page::new(Engine::Oracle, certainty, kind, size as u32)
    })
}

fn folds_to_zero(block: &[u8]) -> bool {
    let folded = block.chunks_exact(8).fold(0, |folded, words| folded ^ le64(words, 0));
    let halves = folded ^ (folded >> 32);
    (halves ^ (halves >> 16)) & 0xffff == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recognise;

    /// A block of a table as a published dump prints its fields.
    fn block() -> Vec<u8> {
        let mut block = vec![0; 8192];
        block[..2].copy_from_slice(&[6, 0xa2]);
        block[4..8].copy_from_slice(&0x0100_0193u32.to_le_bytes());
        block[8..12].copy_from_slice(&0x001a_2b3cu32.to_le_bytes());
        block[14] = 1;
        block[15] = CHECKSUM;
        block[20] = 1;
        block[24..28].copy_from_slice(&73_201u32.to_le_bytes());
        block[200..4000].fill(0x35);
        block[8188..].copy_from_slice(&0x2b3c_0601u32.to_le_bytes());
        let sum = block.chunks_exact(2).fold(0, |folded, word| folded ^ le16(word, 0));
        block[16..18].copy_from_slice(&sum.to_le_bytes());
        block
    }

    #[test]
    fn a_block_with_checksum_is_verified() {
        let page = recognise(&block()).expect("a block");
        let Native::Oracle(identity) = page.native else { panic!("{page:?}") };
        assert_eq!((page.certainty, page.kind, page.size_bytes), (Certainty::Verified, PageKind::Table, 8192));
        assert_eq!((identity.file(), identity.block(), identity.data_object), (4, 0x193, Some(73_201)));
    }

    #[test]
    fn a_flipped_bit_is_never_verified() {
        let good = block();
        for bit in 0..8192 * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let found = recognise(&bad);
            assert!(found.is_none_or(|page| page.certainty == Certainty::Suspect), "bit {bit}: {found:?}");
        }
    }
}
