//! Inodes.

use super::Reader;
use crate::bytes::{be16, be32, be64, byte};

pub(super) const MAGIC: u16 = u16::from_be_bytes(*b"IN");
/// Types of files, the upper four bits of the mode.
const MODE_DIRECTORY: u16 = 4;
const MODE_REGULAR: u16 = 8;
/// Where the content begins that lies in the inode, by version.
pub(super) const CONTENT_AT: usize = 100;
pub(super) const CONTENT_AT_3: usize = 176;
/// Flags: the file lies in the realtime section; counters of extents have 64 bits.
const REALTIME: u16 = 0x1;
const WIDE_COUNTERS: u64 = 0x10;

/// What an inode holds of its file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// The entries of a small directory.
    Local,
    /// All extents, so many.
    Extents(u64),
    /// The root of a tree of extents.
    Tree,
    /// Nothing that is read here: a device, say.
    Other,
}

/// What is read of an inode.
pub(super) struct Inode {
    pub(super) number: u64,
    pub(super) is_directory: bool,
    /// Whether it is a regular file of the data section.
    pub(super) is_file: bool,
    pub(super) bytes: u64,
    pub(super) form: Form,
    /// The part of the inode that is of the file, without that of its attributes.
    pub(super) content: Vec<u8>,
}

impl Reader<'_> {
    /// An inode; `None` if it is none, is free, or cannot be read.
    pub(super) async fn inode(&mut self, number: u64) -> Option<Inode> {
        let place = self.superblock.place_of_inode(number)?;
        let mut bytes = vec![0; self.superblock.inode_bytes];
        if self.pieces.read(place, &mut bytes).await.is_none() {
            self.pieces.failed = true;
            return None;
        }
        if let Some(log) = self.log {
            log.lay_inode(self.superblock, place, &mut bytes);
        }
        of(number, &bytes)
    }
}

fn of(number: u64, bytes: &[u8]) -> Option<Inode> {
    let (mode, version) = (be16(bytes, 2), byte(bytes, 4));
    if be16(bytes, 0) != MAGIC || mode == 0 {
        return None;
    }
    let at = match version {
        1 | 2 => CONTENT_AT,
        // An inode of version 3 knows its own number.
        3 if be64(bytes, 152) == number => CONTENT_AT_3,
        _ => return None,
    };
    let is_wide = version == 3 && be64(bytes, 120) & WIDE_COUNTERS != 0;
    let count = if is_wide { be64(bytes, 24) } else { be32(bytes, 76).into() };
    let form = match byte(bytes, 5) {
        1 => Form::Local,
        2 => Form::Extents(count),
        3 => Form::Tree,
        _ => Form::Other,
    };
    let end = match usize::from(byte(bytes, 82)) {
        0 => bytes.len(),
        attributes => at + attributes * 8,
    };
    let content = bytes.get(at..end)?.to_vec();
    let is_file = mode >> 12 == MODE_REGULAR && be16(bytes, 90) & REALTIME == 0;
    Some(Inode { number, is_directory: mode >> 12 == MODE_DIRECTORY, is_file, bytes: be64(bytes, 56), form, content })
}
