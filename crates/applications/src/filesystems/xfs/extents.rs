//! The extents of a file: a list in its inode, or the leaves of a tree.

use super::Reader;
use super::inode::{Form, Inode};
use crate::bytes::{be16, be32, be64};
use crate::filesystems::FileExtent;

/// Bytes of an extent, and of a key with its pointer.
const RECORD_BYTES: usize = 16;
const KEY_BYTES: usize = 8;
/// Bytes of the head of a block of the tree, by version: in 5 it says whose it is.
const HEAD_BYTES: usize = 24;
const HEAD_BYTES_5: usize = 72;
const OWNER_AT: usize = 56;
const LSN_AT: usize = 32;
const UUID_AT: usize = 40;
const MAGIC: u32 = u32::from_be_bytes(*b"BMAP");
const MAGIC_5: u32 = u32::from_be_bytes(*b"BMA3");
/// Bytes of the head of the tree's root in the inode.
const ROOT_HEAD_BYTES: usize = 4;
/// Levels that a tree has at most, the root among them.
const LEVELS_MAX: u16 = 9;

/// A block of the tree that is to be read, and the level that it must have.
struct Below {
    block: u64,
    level: u16,
}

/// The extents of a file in file order, as far as they lie before `end`. What cannot be read, or is
/// no tree, is left out, and the pieces have failed. Levels count down, so a tree of a hostile
/// image ends; each block of it costs bytes of the limit.
pub(super) async fn of(reader: &mut Reader<'_>, inode: &Inode, end: u64) -> Vec<FileExtent> {
    let mut extents = Vec::new();
    match inode.form {
        Form::Local | Form::Other => {}
        Form::Extents(count) => {
            let records = usize::try_from(count).ok().and_then(|count| inode.content.get(..count.checked_mul(RECORD_BYTES)?));
            if !records.is_some_and(|records| take(reader, records, end, &mut extents)) {
                reader.pieces.failed = true;
            }
        }
        Form::Tree => tree(reader, inode, end, &mut extents).await,
    }
    extents.sort_unstable_by_key(|extent| extent.file_offset);
    extents
}

async fn tree(reader: &mut Reader<'_>, inode: &Inode, end: u64, extents: &mut Vec<FileExtent>) {
    let (level, count) = (be16(&inode.content, 0), be16(&inode.content, 2).into());
    let root = inode.content.get(ROOT_HEAD_BYTES..).unwrap_or_default();
    let mut stack = Vec::new();
    if !(1..LEVELS_MAX).contains(&level) || !push(root, level, count, &mut stack) {
        reader.pieces.failed = true;
        return;
    }
    let block_bytes = reader.superblock.block_bytes as usize;
    let (head_bytes, magic) = if reader.superblock.has_owners { (HEAD_BYTES_5, MAGIC_5) } else { (HEAD_BYTES, MAGIC) };
    let mut bytes = vec![0; block_bytes];
    while let Some(Below { block, level }) = stack.pop() {
        if reader.pieces.bytes_left == 0 || reader.pieces.extents_left == 0 {
            reader.pieces.failed = true;
            return;
        }
        let read = match reader.superblock.place_of_blocks(block, 1) {
            Some(place) => reader.block(&[place], &mut bytes, (LSN_AT, UUID_AT)).await,
            None => false,
        };
        let is_own = !reader.superblock.has_owners || be64(&bytes, OWNER_AT) == inode.number;
        let (head, rest) = bytes.split_at(head_bytes);
        let count = usize::from(be16(head, 6));
        let is_part = read
            && is_own
            && be32(head, 0) == magic
            && be16(head, 4) == level
            && match level {
                0 => rest.get(..count * RECORD_BYTES).is_some_and(|records| take(reader, records, end, extents)),
                _ => push(rest, level, count, &mut stack),
            };
        reader.pieces.failed |= !is_part;
    }
}

/// Puts aside what a block above the leaves points at; whether it has so much. Keys take the first
/// half of the space for both.
fn push(bytes: &[u8], level: u16, count: usize, stack: &mut Vec<Below>) -> bool {
    let most = bytes.len() / (2 * KEY_BYTES);
    let Some(pointers) = bytes.get(most * KEY_BYTES..).filter(|_| count <= most) else { return false };
    stack.extend(pointers.chunks_exact(KEY_BYTES).take(count).map(|pointer| Below { block: be64(pointer, 0), level: level - 1 }));
    true
}

/// Takes in extents; whether all of them lie in the file system.
fn take(reader: &mut Reader, records: &[u8], end: u64, extents: &mut Vec<FileExtent>) -> bool {
    let block_bytes = reader.superblock.block_bytes;
    for record in records.chunks_exact(RECORD_BYTES) {
        // From the top: 1 bit "not written", 54 of the offset, 52 of the block, 21 of the length.
        let (high, low) = (be64(record, 0), be64(record, 8));
        let (offset, length) = ((high << 1) >> 10, low & 0x1f_ffff);
        let block = (high & 0x1ff) << 43 | low >> 21;
        let Some(volume_offset) = reader.superblock.place_of_blocks(block, length).filter(|_| length > 0) else { return false };
        let Some(file_offset) = offset.checked_mul(block_bytes).filter(|at| at.checked_add(length * block_bytes).is_some()) else {
            return false;
        };
        if file_offset >= end {
            continue;
        }
        let Some(left) = reader.pieces.extents_left.checked_sub(1) else { return false };
        reader.pieces.extents_left = left;
        extents.push(FileExtent { file_offset, volume_offset, bytes: length * block_bytes, written: high >> 63 == 0 });
    }
    true
}
