//! The tree of a file's extents.

use super::{Inode, Reader};
use crate::bytes::{le16, le32};
use crate::filesystems::FileExtent;

const MAGIC: u16 = 0xf30a;
/// Levels that a tree of the largest file has at most.
const DEPTH_MAX: u16 = 5;
/// Bytes of a node's header, and of each entry.
const ENTRY_BYTES: usize = 12;
/// Longer lengths are those of space that is allocated and not written.
const LENGTH_MAX: u32 = 32768;

/// A node that is to be read: its block, and the level below its parent.
struct Below {
    block: u64,
    depth: u16,
}

/// The extents of a file in file order. What cannot be read, or is no tree, is left out, and the
/// reader has failed. Levels count down, so a tree of a hostile image ends; each node costs bytes
/// of the limit.
pub(super) async fn of(reader: &mut Reader<'_>, inode: &Inode) -> Vec<FileExtent> {
    let mut extents = Vec::new();
    let mut stack = Vec::new();
    let depth = le16(&inode.tree, 6);
    if depth > DEPTH_MAX || !node(reader, &inode.tree, depth, &mut extents, &mut stack) {
        reader.pieces.failed = true;
    }
    let mut bytes = vec![0; reader.superblock.block_bytes as usize];
    while let Some(Below { block, depth }) = stack.pop() {
        if reader.pieces.bytes_left == 0 || reader.pieces.extents_left == 0 {
            reader.pieces.failed = true;
            break;
        }
        let offset = block.checked_mul(reader.superblock.block_bytes);
        let read = match offset {
            Some(offset) => reader.bytes(offset, &mut bytes).await,
            None => false,
        };
        if !read || !node(reader, &bytes, depth, &mut extents, &mut stack) {
            reader.pieces.failed = true;
        }
    }
    extents.sort_unstable_by_key(|extent| extent.file_offset);
    extents
}

/// Takes in the entries of a node; whether it was one of that level.
fn node(reader: &mut Reader, bytes: &[u8], depth: u16, extents: &mut Vec<FileExtent>, stack: &mut Vec<Below>) -> bool {
    let count = usize::from(le16(bytes, 2)).min(bytes.len() / ENTRY_BYTES - 1);
    if le16(bytes, 0) != MAGIC || le16(bytes, 6) != depth {
        return false;
    }
    for entry in bytes.chunks_exact(ENTRY_BYTES).skip(1).take(count) {
        if depth > 0 {
            stack.push(Below { block: u64::from(le16(entry, 8)) << 32 | u64::from(le32(entry, 4)), depth: depth - 1 });
            continue;
        }
        let length = u32::from(le16(entry, 4));
        let (blocks, written) = if length > LENGTH_MAX { (length - LENGTH_MAX, false) } else { (length, true) };
        let start = u64::from(le16(entry, 6)) << 32 | u64::from(le32(entry, 8));
        let inside = start.checked_add(u64::from(blocks)).is_some_and(|end| end <= reader.superblock.blocks);
        if !inside || blocks == 0 || reader.pieces.extents_left == 0 {
            return false;
        }
        reader.pieces.extents_left -= 1;
        let block_bytes = reader.superblock.block_bytes;
        extents.push(FileExtent {
            file_offset: u64::from(le32(entry, 0)) * block_bytes,
            volume_offset: reader.superblock.start + start * block_bytes,
            bytes: u64::from(blocks) * block_bytes,
            written,
        });
    }
    true
}
