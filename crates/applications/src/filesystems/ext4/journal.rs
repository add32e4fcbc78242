//! The journal: blocks of metadata that are committed and not yet written where they belong.
//!
//! A file system in use leaves directories and inodes in its journal for half a minute and longer:
//! beside a busy database the home blocks of a fresh directory may be minutes old. So the committed
//! blocks are laid over their homes, as a mount after a crash would do, in memory only.
//!
//! The journal goes on while it is read. The number of a transaction tells whether a block is still
//! of the round that is followed, checksums tell whether a copy is still the one that was meant, and
//! at the end the journal's superblock tells whether its tail has passed what was followed.
//!
//! Source: `Documentation/filesystems/ext4/journal.rst` of the Linux kernel. Not read: fast commits,
//! and a journal on another device.

use super::{MODE_REGULAR, Reader, extents};
use crate::bytes::{be16, be32, be64};
use crate::filesystems::FileExtent;
use format::checksum::crc32c;
use std::collections::HashMap;

const MAGIC: u32 = 0xc03b_3998;
/// Kinds of blocks.
const DESCRIPTOR: u32 = 1;
const COMMIT: u32 = 2;
const SUPERBLOCK: u32 = 4;
const REVOKE: u32 = 5;
/// Bytes of a block's header: magic, kind, number of the transaction.
const HEADER_BYTES: usize = 12;
/// Incompatible features: 64-bit numbers of blocks; checksums of the second and third version; an
/// area of fast commits at the end.
const SIXTY_FOUR: u32 = 0x2;
const CHECKSUMS_2: u32 = 0x8;
const CHECKSUMS_3: u32 = 0x10;
const FAST_COMMITS: u32 = 0x20;
/// All that change nothing else: revoked blocks, commits that do not wait.
const KNOWN: u32 = 0x1 | SIXTY_FOUR | 0x4 | CHECKSUMS_2 | CHECKSUMS_3 | FAST_COMMITS;
/// Fast commits take as many blocks unless the superblock says otherwise.
const FAST_COMMIT_BLOCKS: u32 = 256;
/// Flags of a tag: no UUID follows; it is the last of its descriptor. That a copy lacks the magic number
/// its block begins with need not be known: nothing that is read here begins like that.
const SAME_UUID: u32 = 2;
const LAST: u32 = 8;
/// What is read at once: most of a busy journal is headers and the few blocks between them.
const WINDOW_BYTES: u64 = 256 << 10;
/// What is left of a limit for a last look at the tail.
const TAIL_BYTES: u64 = 256 << 10;
/// Blocks that a journal may hold for others, 40 bytes each: 5 MiB at most. A file system with more
/// in its journal is read at home.
const COPIES_MAX: usize = 1 << 16;

/// A block's newest committed copy.
#[derive(Clone, Copy, Debug)]
struct Copy {
    /// The number of its transaction.
    sequence: u32,
    /// Where it lies in the journal.
    block: u32,
    checksum: u32,
}

/// What a journal holds that is newer than the blocks' homes, as far as it was followed.
#[derive(Clone, Default, Debug)]
pub(crate) struct Journal {
    followed: Option<Followed>,
}

/// How far a journal was followed.
#[derive(Clone, Debug)]
struct Followed {
    log: Log,
    /// The next transaction, and the block of the journal that it will begin at.
    sequence: u32,
    block: u32,
    newest: HashMap<u64, Copy>,
    /// Whether the last commit was reached; before that no copy may be used, since a home may be
    /// newer than a copy in the middle.
    is_current: bool,
}

/// What the superblock of a journal says, and where its blocks lie.
#[derive(Clone, Debug)]
struct Log {
    uuid: [u8; 16],
    features: u32,
    /// The blocks that transactions go around in.
    first: u32,
    end: u32,
    extents: Vec<FileExtent>,
}

/// Where the oldest transaction is that a recovery would begin with.
struct Tail {
    sequence: u32,
    block: u32,
}

/// A tag of a descriptor: a copy, and its home.
struct Tag {
    home: u64,
    checksum: u32,
}

/// Whether a transaction is older than another; numbers go around.
fn is_before(one: u32, other: u32) -> bool {
    (one.wrapping_sub(other) as i32) < 0
}

impl Journal {
    /// Memory held, in bytes; nearly.
    pub(crate) fn bytes(&self) -> usize {
        self.followed.as_ref().map_or(0, |followed| followed.newest.capacity() * 40 + followed.log.extents.len() * 32)
    }

    /// Whether there is more of it to follow before it can be used.
    pub(crate) fn is_behind(&self) -> bool {
        self.followed.as_ref().is_some_and(|followed| !followed.is_current)
    }

    /// Follows the journal from where it was left, or from its tail, as far as the reader's limit goes.
    /// If that does not reach the last commit, it is gone on with another time, and until then the
    /// homes are read as they are.
    pub(super) async fn follow(&mut self, reader: &mut Reader<'_>) {
        let before = self.followed.take();
        if reader.superblock.journal.is_none() {
            return;
        }
        let Some((log, Some(tail))) = log(reader).await else { return };
        let mut followed = match before {
            Some(before) if before.goes_on(&log, &tail) => Followed { log, ..before },
            _ => Followed { sequence: tail.sequence, block: tail.block, newest: HashMap::new(), log, is_current: false },
        };
        followed.is_current = followed.commits(reader).await;
        // The tail may have passed what was read, and others been written there.
        match log_again(reader, &followed).await {
            Some(tail) if !is_before(followed.sequence, tail.sequence) => {
                followed.newest.retain(|_, copy| !is_before(copy.sequence, tail.sequence));
                self.followed = Some(followed);
            }
            _ => reader.pieces.failed = true,
        }
    }

    /// The newest committed content of a block of the file system; `None` if it is at its home.
    pub(super) async fn newest(&self, reader: &mut Reader<'_>, home: u64) -> Option<Vec<u8>> {
        let followed = self.followed.as_ref().filter(|followed| followed.is_current)?;
        let copy = followed.newest.get(&home)?;
        let mut bytes = vec![0; reader.superblock.block_bytes as usize];
        let (place, _) = followed.log.volume_offset(copy.block, reader.superblock.block_bytes)?;
        if reader.pieces.read(place, &mut bytes).await.is_none() || !followed.log.is_meant(copy, &bytes) {
            return None;
        }
        Some(bytes)
    }
}

/// The journal's superblock; no tail where the journal is empty. `None` where it is none that can be
/// followed, and the reader has failed.
async fn log(reader: &mut Reader<'_>) -> Option<(Log, Option<Tail>)> {
    let number = reader.superblock.journal?;
    let failed = std::mem::replace(&mut reader.pieces.failed, true);
    let inode = reader.inode(number).await.filter(|inode| inode.mode == MODE_REGULAR && inode.flags & super::FLAG_EXTENTS != 0)?;
    let extents = extents::of(reader, &inode).await;
    let block_bytes = reader.superblock.block_bytes;
    let mut bytes = vec![0; 1024];
    let place = extents.first().filter(|extent| extent.file_offset == 0)?.volume_offset;
    reader.pieces.read(place, &mut bytes).await?;
    let (end, features) = (be32(&bytes, 0x10), be32(&bytes, 0x28));
    let fast = match (features & FAST_COMMITS != 0, be32(&bytes, 0x54)) {
        (false, _) => 0,
        (true, 0) => FAST_COMMIT_BLOCKS,
        (true, blocks) => blocks,
    };
    let end = end.checked_sub(fast)?;
    let log = Log { uuid: bytes[0x30..0x40].try_into().ok()?, features, first: be32(&bytes, 0x14), end, extents };
    let is_sane = be32(&bytes, 0) == MAGIC
        && be32(&bytes, 4) == SUPERBLOCK
        && features & !KNOWN == 0
        && u64::from(be32(&bytes, 0xc)) == block_bytes
        && 0 < log.first
        && log.first < log.end
        && u64::from(log.end) * block_bytes <= inode.bytes;
    let block = be32(&bytes, 0x1c);
    if !is_sane || (block != 0 && !(log.first..log.end).contains(&block)) {
        return None;
    }
    reader.pieces.failed = failed;
    Some((log, (block != 0).then(|| Tail { sequence: be32(&bytes, 0x18), block })))
}

/// The tail now; the next transaction where all others are at home.
async fn log_again(reader: &mut Reader<'_>, followed: &Followed) -> Option<Tail> {
    reader.pieces.forget();
    let (_, tail) = log(reader).await?;
    Some(tail.unwrap_or(Tail { sequence: followed.sequence, block: followed.block }))
}

impl Followed {
    /// Whether this is the journal that was followed, and what comes next was not yet overwritten.
    fn goes_on(&self, log: &Log, tail: &Tail) -> bool {
        self.log.uuid == log.uuid
            && (self.log.first, self.log.end) == (log.first, log.end)
            && (is_before(tail.sequence, self.sequence) || (tail.sequence, tail.block) == (self.sequence, self.block))
    }

    /// Takes in transactions; whether the last one was reached.
    async fn commits(&mut self, reader: &mut Reader<'_>) -> bool {
        let (mut window, mut at) = (Window::default(), self.block);
        let (mut tags, mut revoked): (Vec<(Tag, u32)>, Vec<u64>) = (Vec::new(), Vec::new());
        // Once around is all there can be.
        let mut left = self.log.end - self.log.first;
        loop {
            let Some(block) = window.block(reader, &self.log, at).await else { return false };
            if be32(block, 0) != MAGIC || be32(block, 8) != self.sequence || !self.log.is_whole(block) {
                return true;
            }
            let mut blocks = 1;
            match be32(block, 4) {
                DESCRIPTOR => {
                    for tag in self.log.tags(block) {
                        tags.push((tag, self.log.after(at, blocks)));
                        blocks += 1;
                    }
                }
                REVOKE => revoked.extend(self.log.revoked(block)),
                COMMIT => {
                    let sequence = self.sequence;
                    for (Tag { home, checksum }, block) in tags.drain(..) {
                        self.newest.insert(home, Copy { sequence, block, checksum });
                    }
                    // A block that is revoked and written again in one transaction is not revoked.
                    for home in revoked.drain(..) {
                        self.newest.remove(&home);
                    }
                    self.sequence = sequence.wrapping_add(1);
                    self.block = self.log.after(at, 1);
                }
                _ => return true,
            }
            if blocks > left || self.newest.len() + tags.len() + revoked.len() > COPIES_MAX {
                return false;
            }
            left -= blocks;
            at = self.log.after(at, blocks);
        }
    }
}

impl Log {
    fn has_checksums(&self) -> bool {
        self.features & (CHECKSUMS_2 | CHECKSUMS_3) != 0
    }

    /// The block that comes `count` after another; less than once around.
    fn after(&self, block: u32, count: u32) -> u32 {
        let round = u64::from(self.end - self.first);
        let inside = u64::from(block - self.first) + u64::from(count);
        self.first + (inside % round) as u32
    }

    /// Where a block of the journal begins on the volume.
    fn volume_offset(&self, block: u32, block_bytes: u64) -> Option<(u64, u64)> {
        let at = u64::from(block) * block_bytes;
        let index = self.extents.partition_point(|extent| extent.file_offset <= at).checked_sub(1)?;
        let extent = &self.extents[index];
        let inside = at - extent.file_offset;
        let left = extent.bytes.checked_sub(inside).filter(|left| *left >= block_bytes)?;
        Some((extent.volume_offset + inside, left))
    }

    fn sum(&self, parts: &[&[u8]]) -> u32 {
        let all = [&[&self.uuid[..]], parts].concat().concat();
        // The kernel's sum has no final inversion.
        !crc32c(&all)
    }

    /// Whether the checksum of a header's block fits, where there are any.
    fn is_whole(&self, block: &[u8]) -> bool {
        if !self.has_checksums() {
            return true;
        }
        let at = if be32(block, 4) == COMMIT { HEADER_BYTES + 4 } else { block.len() - 4 };
        self.sum(&[&block[..at], &[0; 4], &block[at + 4..]]) == be32(block, at)
    }

    /// Whether a copy is still the one that was meant.
    fn is_meant(&self, copy: &Copy, bytes: &[u8]) -> bool {
        let sum = self.sum(&[&copy.sequence.to_be_bytes(), bytes]);
        match (self.features & CHECKSUMS_3 != 0, self.features & CHECKSUMS_2 != 0) {
            (true, _) => sum == copy.checksum,
            (false, true) => sum & 0xffff == copy.checksum,
            (false, false) => true,
        }
    }

    /// The tags of a descriptor, in the order of the copies behind it.
    fn tags(&self, block: &[u8]) -> Vec<Tag> {
        let wide = self.features & SIXTY_FOUR != 0;
        let third = self.features & CHECKSUMS_3 != 0;
        let tag_bytes = match (third, self.features & CHECKSUMS_2 != 0) {
            (true, _) => 16,
            (false, second) => 8 + if wide { 4 } else { 0 } + if second { 2 } else { 0 },
        };
        let end = block.len() - if self.has_checksums() { 4 } else { 0 };
        let (mut at, mut tags) = (HEADER_BYTES, Vec::new());
        while at + tag_bytes <= end {
            let (flags, checksum) =
                if third { (be32(block, at + 4), be32(block, at + 12)) } else { (be16(block, at + 6).into(), be16(block, at + 4).into()) };
            let high = if wide { be32(block, at + 8) } else { 0 };
            let home = u64::from(high) << 32 | u64::from(be32(block, at));
            tags.push(Tag { home, checksum });
            at += tag_bytes + if flags & SAME_UUID == 0 { 16 } else { 0 };
            if flags & LAST != 0 {
                break;
            }
        }
        tags
    }

    /// The blocks that a block of revocations names.
    fn revoked(&self, block: &[u8]) -> Vec<u64> {
        let end = (be32(block, HEADER_BYTES) as usize).min(block.len() - if self.has_checksums() { 4 } else { 0 });
        let wide = self.features & SIXTY_FOUR != 0;
        let numbers = block.get(HEADER_BYTES + 4..end).unwrap_or_default();
        if wide {
            numbers.chunks_exact(8).map(|number| be64(number, 0)).collect()
        } else {
            numbers.chunks_exact(4).map(|number| be32(number, 0).into()).collect()
        }
    }
}

/// A stretch of the journal that was read at once.
#[derive(Default)]
struct Window {
    first: u32,
    bytes: Vec<u8>,
}

impl Window {
    /// A block of the journal; `None` if it cannot be read, or no more may be.
    async fn block(&mut self, reader: &mut Reader<'_>, log: &Log, number: u32) -> Option<&[u8]> {
        let block_bytes = reader.superblock.block_bytes;
        let is_inside = |window: &Window| {
            let at = u64::from(number.checked_sub(window.first)?) * block_bytes;
            (at + block_bytes <= window.bytes.len() as u64).then_some(at as usize)
        };
        if is_inside(self).is_none() {
            let (place, left) = log.volume_offset(number, block_bytes)?;
            let len = WINDOW_BYTES.min(left).min(u64::from(log.end - number) * block_bytes).max(block_bytes);
            if reader.pieces.bytes_left < len + TAIL_BYTES {
                return None;
            }
            self.bytes.resize(len as usize, 0);
            self.first = number;
            if reader.pieces.straight(place, &mut self.bytes).await.is_none() {
                self.bytes.clear();
                return None;
            }
        }
        let at = is_inside(self)?;
        self.bytes.get(at..at + block_bytes as usize)
    }
}
