//! Entries of a directory: in its inode, or in blocks, of which those with the index are passed
//! over.

use super::inode::{Form, Inode};
use super::{Reader, extents};
use crate::bytes::{be16, be32, be64, byte};
use crate::filesystems::walk::{Entry, Names};

/// Bytes of a directory that are read at most: some two million names. The index begins at 32 GiB.
const BYTES_MAX: u64 = 64 << 20;
/// Types in entries. Without types every file is looked at.
const REGULAR: u8 = 1;
const DIRECTORY: u8 = 2;
/// Heads of blocks, by version: a directory of one block, which has its index at its end, and
/// blocks of a larger one.
const ONE: u32 = u32::from_be_bytes(*b"XD2B");
const ONE_5: u32 = u32::from_be_bytes(*b"XDB3");
const DATA: u32 = u32::from_be_bytes(*b"XD2D");
const DATA_5: u32 = u32::from_be_bytes(*b"XDD3");
/// Bytes of these heads. In version 5 they say whose the block is.
const HEAD_BYTES: usize = 16;
const HEAD_BYTES_5: usize = 64;
const OWNER_AT: usize = 40;
const LSN_AT: usize = 16;
const UUID_AT: usize = 24;
/// Bytes of the end of the only block, and of an entry of the index before it.
const TAIL_BYTES: usize = 8;
const INDEX_BYTES: usize = 8;
/// What an unused part begins with.
const UNUSED: u16 = 0xffff;

/// A name before it is known what it is of.
struct Named {
    inode: u64,
    name: String,
    /// 0: not known.
    kind: u8,
}

/// The names of a directory, and which of them are held.
struct Found<'a, 'b> {
    names: Vec<Named>,
    held: &'a mut Names<'b>,
}

impl Found<'_, '_> {
    /// Keeps a name that is text, of a file or a directory.
    fn put(&mut self, inode: u64, name: &[u8], kind: u8) {
        let wanted = matches!(kind, 0 | REGULAR | DIRECTORY);
        let name = Some(name).filter(|_| wanted).and_then(|name| std::str::from_utf8(name).ok());
        let name = name.filter(|name| !matches!(*name, "." | ".."));
        if let Some(name) = name.filter(|name| self.held.takes(name, kind == REGULAR)) {
            self.names.push(Named { inode, name: name.to_owned(), kind });
        }
    }
}

impl Reader<'_> {
    /// The regular files and directories in a directory whose names are to be held; empty if it is
    /// none.
    pub(in crate::filesystems) async fn directory(&mut self, number: u64, held: &mut Names<'_>) -> Vec<Entry> {
        let Some(inode) = self.inode(number).await.filter(|inode| inode.is_directory) else {
            self.pieces.failed = true;
            return Vec::new();
        };
        let mut named = Found { names: Vec::new(), held };
        let is_whole = match inode.form {
            Form::Local => local(&inode.content, self.superblock.has_types, &mut named),
            _ => self.blocks(&inode, &mut named).await,
        };
        self.pieces.failed |= !is_whole;
        let mut entries = Vec::new();
        for Named { inode, name, kind } in named.names {
            let is_directory = match kind {
                REGULAR | DIRECTORY => kind == DIRECTORY,
                0 => match self.inode(inode).await {
                    Some(inode) if inode.is_directory || inode.is_file => inode.is_directory,
                    Some(_) => continue,
                    None => {
                        self.pieces.failed = true;
                        continue;
                    }
                },
                _ => continue,
            };
            entries.push(Entry { inode, name, is_directory });
        }
        entries
    }

    /// The names in the blocks of a directory; whether all could be read.
    async fn blocks(&mut self, inode: &Inode, names: &mut Found<'_, '_>) -> bool {
        let block_bytes = self.superblock.block_bytes;
        let directory_bytes = block_bytes * self.superblock.directory_blocks;
        let end = inode.bytes.min(BYTES_MAX);
        let mut block = vec![0; directory_bytes as usize];
        // The parts of a block may lie in several extents.
        let (mut places, mut is_whole) = (Vec::new(), end == inode.bytes);
        for extent in extents::of(self, inode, end).await {
            for at in (0..extent.bytes).step_by(block_bytes as usize) {
                let place = extent.file_offset + at;
                if place >= end {
                    break;
                }
                let inside = place % directory_bytes;
                if inside == 0 {
                    places.clear();
                }
                if inside != places.len() as u64 * block_bytes {
                    is_whole = false;
                    continue;
                }
                places.push(extent.volume_offset + at);
                if places.len() as u64 == self.superblock.directory_blocks {
                    if !self.block(&places, &mut block, (LSN_AT, UUID_AT)).await {
                        return false;
                    }
                    is_whole &= self.names(inode, &block, names);
                    if names.held.is_full {
                        return false;
                    }
                }
            }
        }
        is_whole
    }

    /// The names in a block; whether it is one of that directory, and whole.
    fn names(&self, inode: &Inode, block: &[u8], names: &mut Found<'_, '_>) -> bool {
        let (magic, has_owners) = (be32(block, 0), self.superblock.has_owners);
        let (one, data, head) = if has_owners { (ONE_5, DATA_5, HEAD_BYTES_5) } else { (ONE, DATA, HEAD_BYTES) };
        if (magic != one && magic != data) || (has_owners && be64(block, OWNER_AT) != inode.number) {
            return false;
        }
        let mut end = block.len();
        if magic == one {
            let index = (be32(block, end - TAIL_BYTES) as usize).saturating_mul(INDEX_BYTES);
            let Some(before) = (end - TAIL_BYTES).checked_sub(index).filter(|before| *before >= head) else { return false };
            end = before;
        }
        used(&block[head..end], self.superblock.has_types, names)
    }
}

/// The names among entries and unused parts; whether these fill the bytes.
fn used(bytes: &[u8], has_types: bool, names: &mut Found<'_, '_>) -> bool {
    let mut at = 0;
    while at < bytes.len() {
        if be16(bytes, at) == UNUSED {
            let length = usize::from(be16(bytes, at + 2));
            if length == 0 || length % 8 != 0 {
                return false;
            }
            at += length;
            continue;
        }
        let name_length = usize::from(byte(bytes, at + 8));
        let name_end = at + 9 + name_length;
        let Some(name) = bytes.get(at + 9..name_end).filter(|name| !name.is_empty()) else { return false };
        names.put(be64(bytes, at), name, if has_types { byte(bytes, name_end) } else { 0 });
        // The entry's own place follows, at the end of the last eight bytes.
        at += (9 + name_length + usize::from(has_types) + 2).next_multiple_of(8);
    }
    at == bytes.len()
}

/// The names in an inode; whether there are as many as it says.
fn local(bytes: &[u8], has_types: bool, names: &mut Found<'_, '_>) -> bool {
    let (count, is_wide) = (byte(bytes, 0), byte(bytes, 1) > 0);
    let number_bytes = if is_wide { 8 } else { 4 };
    let mut at = 2 + number_bytes;
    for _ in 0..count {
        let name_length = usize::from(byte(bytes, at));
        let name_end = at + 3 + name_length;
        let number_at = name_end + usize::from(has_types);
        let Some(name) = bytes.get(at + 3..name_end).filter(|_| number_at + number_bytes <= bytes.len()) else { return false };
        let inode = if is_wide { be64(bytes, number_at) } else { be32(bytes, number_at).into() };
        names.put(inode, name, if has_types { byte(bytes, name_end) } else { 0 });
        at = number_at + number_bytes;
    }
    true
}
