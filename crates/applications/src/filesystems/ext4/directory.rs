//! Entries of a directory.

use super::{FLAG_EXTENTS, FLAG_INLINE, MODE_DIRECTORY, Reader, extents};
use crate::bytes::{byte, le16, le32};
use crate::filesystems::walk::{Entry, Names};

/// Bytes of a directory that are read at most: some two million names.
const BYTES_MAX: u64 = 64 << 20;
/// Types in entries.
const REGULAR: u8 = 1;
const DIRECTORY: u8 = 2;

impl Reader<'_> {
    /// The regular files and directories in a directory whose names are to be held; empty if it is
    /// none.
    pub(in crate::filesystems) async fn directory(&mut self, number: u64, names: &mut Names<'_>) -> Vec<Entry> {
        let mut entries = Vec::new();
        let number = u32::try_from(number).unwrap_or(0);
        let Some(inode) = self.inode(number).await.filter(|inode| inode.mode == MODE_DIRECTORY) else {
            self.pieces.failed = true;
            return entries;
        };
        if inode.flags & FLAG_EXTENTS == 0 || inode.flags & FLAG_INLINE != 0 {
            self.pieces.failed = true;
            return entries;
        }
        let block_bytes = self.superblock.block_bytes;
        let mut block = vec![0; block_bytes as usize];
        let mut left = inode.bytes.min(BYTES_MAX);
        for extent in extents::of(self, &inode).await {
            for at in (0..extent.bytes).step_by(block_bytes as usize) {
                if left == 0 || names.is_full {
                    return entries;
                }
                left = left.saturating_sub(block_bytes);
                let offset = extent.volume_offset - self.superblock.start + at;
                if !self.bytes(offset, &mut block).await {
                    return entries;
                }
                entries_of(&block, names, &mut entries);
            }
        }
        entries
    }
}

/// The entries of a block. Blocks of the index of a large directory look as if they had one unused
/// entry.
fn entries_of(block: &[u8], names: &mut Names<'_>, entries: &mut Vec<Entry>) {
    let mut at = 0;
    while at + 8 <= block.len() {
        let (inode, length, name_length) = (le32(block, at), usize::from(le16(block, at + 4)), usize::from(byte(block, at + 6)));
        let kind = byte(block, at + 7);
        // A length of a whole 64 KiB block does not fit in the field.
        let length = if length == 0 || length == 65535 { block.len() - at } else { length };
        if length < 8 || length > block.len() - at {
            return;
        }
        let name = block.get(at + 8..at + 8 + name_length).filter(|_| name_length > 0 && name_length + 8 <= length);
        let wanted = inode != 0 && matches!(kind, REGULAR | DIRECTORY);
        let name = name.filter(|_| wanted).and_then(|name| std::str::from_utf8(name).ok());
        let name = name.filter(|name| !matches!(*name, "." | ".."));
        if let Some(name) = name.filter(|name| names.takes(name, kind == REGULAR)) {
            entries.push(Entry { inode: inode.into(), name: name.to_owned(), is_directory: kind == DIRECTORY });
        }
        at += length;
    }
}
