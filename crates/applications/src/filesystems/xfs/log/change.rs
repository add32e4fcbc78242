//! Items of transactions, and what they change of what is read here: inodes, and the blocks of
//! directories and of trees of extents.
//!
//! Of an inode the log has the core, and what lies in it of the file; of a buffer the parts of 128
//! bytes that are different. A buffer that is cancelled was freed: what was in the log of it before
//! is not to be used, since its place may have bytes of a file by now.

use crate::bytes::{be32, le16, le32, le64};
use crate::filesystems::xfs::superblock::Superblock;

/// Kinds of items.
const INODE: u16 = 0x123b;
const BUFFER: u16 = 0x123c;
/// What there is of an inode: what lies in it, extents, the root of a tree of extents.
const DATA: u32 = 0x2;
const EXTENTS: u32 = 0x4;
const ROOT: u32 = 0x8;
/// Bytes of the head of an inode's item, and where it has the number; shorter ones are of kernels of
/// 32 bits.
const INODE_HEAD_BYTES: usize = 56;
const NUMBER_AT: [usize; 2] = [16, 12];
/// Flags of buffers: inodes of which only the list of deleted ones is to be taken; a cancelled one.
/// What it is follows in the upper bits.
const INODES: u16 = 0x1;
const CANCEL: u16 = 0x2;
const KIND_SHIFT: u16 = 11;
/// Kinds of buffers that are taken: unknown (old kernels tell none), trees, new inodes, blocks of
/// directories.
const KINDS: [u16; 5] = [0, 4, 8, 10, 11];
const TREE: u16 = 4;
/// What trees of extents begin with, by version.
const EXTENT_TREES: [u32; 2] = [u32::from_be_bytes(*b"BMAP"), u32::from_be_bytes(*b"BMA3")];
/// Bytes of the head of a buffer's item before its bits.
const BUFFER_HEAD_BYTES: usize = 20;
/// What a bit stands for.
pub(super) const PART_BYTES: u64 = 128;
/// The unit of addresses in the log.
const SECTOR_BYTES: u64 = 512;
/// Bytes of a core, which is shorter in older versions, and of what else an inode may have.
pub(super) const CORE_BYTES: usize = 176;
const CORE_BYTES_MIN: usize = 96;
const FORK_BYTES_MAX: usize = 4096;

/// What the log has of an inode beside its core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ForkKind {
    Data,
    Extents,
    /// As memory has it, not the disk.
    Root,
}

/// The part of an inode that is of its file.
#[derive(Clone, Debug)]
pub(super) struct Fork {
    pub(super) kind: ForkKind,
    pub(super) bytes: Box<[u8]>,
}

/// What a transaction changes, by places on the volume.
#[derive(Clone, Debug)]
pub(super) enum Change {
    /// An inode; numbers of its core have the order of the machine.
    Inode { place: u64, core: Box<[u8]>, fork: Option<Fork> },
    /// Parts of a buffer, of which the place is a multiple of that of a part.
    Parts { place: u64, bytes: Box<[u8]> },
    /// What lies there is no metadata any more.
    Cancel { place: u64, end: u64 },
}

impl Change {
    /// Bytes that it holds.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Change::Inode { core, fork, .. } => core.len() + fork.as_ref().map_or(0, |fork| fork.bytes.len()),
            Change::Parts { bytes, .. } => bytes.len(),
            Change::Cancel { .. } => 0,
        }
    }
}

/// Whether an item with that head may change something that is read here.
pub(super) fn is_wanted(head: &[u8]) -> bool {
    let flags = le16(head, 4);
    match le16(head, 0) {
        INODE => true,
        BUFFER => flags & (INODES | CANCEL) == 0 && KINDS.contains(&(flags >> KIND_SHIFT)),
        _ => false,
    }
}

/// What an item with these regions changes; nothing if it makes no sense.
pub(super) fn of(regions: &[Vec<u8>], superblock: &Superblock, changes: &mut Vec<Change>) {
    let Some((head, rest)) = regions.split_first() else { return };
    match le16(head, 0) {
        INODE => changes.extend(inode(head, rest, superblock)),
        BUFFER => buffer(head, rest, superblock, changes),
        _ => {}
    }
}

fn inode(head: &[u8], rest: &[Vec<u8>], superblock: &Superblock) -> Option<Change> {
    let fields = le32(head, 4);
    let number = le64(head, NUMBER_AT[usize::from(head.len() < INODE_HEAD_BYTES)]);
    let place = superblock.place_of_inode(number)?;
    let core = rest.first().filter(|core| core.len() >= CORE_BYTES_MIN && le16(core, 0) == u16::from_be_bytes(*b"IN"))?;
    let kinds = [(DATA, ForkKind::Data), (EXTENTS, ForkKind::Extents), (ROOT, ForkKind::Root)];
    let kind = kinds.into_iter().find(|(field, _)| fields & field != 0).map(|(_, kind)| kind);
    let fork = match (kind, rest.get(1)) {
        (Some(kind), Some(bytes)) if bytes.len() <= FORK_BYTES_MAX => Some(Fork { kind, bytes: bytes.as_slice().into() }),
        (Some(_), _) => return None,
        (None, _) => None,
    };
    Some(Change::Inode { place, core: core[..core.len().min(CORE_BYTES)].into(), fork })
}

fn buffer(head: &[u8], rest: &[Vec<u8>], superblock: &Superblock, changes: &mut Vec<Change>) {
    let (flags, sectors, first) = (le16(head, 4), le16(head, 6), le64(head, 8));
    let (start, end) = (superblock.start, superblock.end());
    let Some(place) = first.checked_mul(SECTOR_BYTES).and_then(|at| at.checked_add(start)) else { return };
    let Some(to) = place.checked_add(u64::from(sectors) * SECTOR_BYTES).filter(|to| *to <= end) else { return };
    if flags & CANCEL != 0 {
        changes.push(Change::Cancel { place, end: to });
        return;
    }
    if !is_wanted(head) {
        return;
    }
    let bits = head.get(BUFFER_HEAD_BYTES..).unwrap_or_default();
    let parts = ((to - place) / PART_BYTES) as usize;
    let count = (le32(head, 16) as usize).saturating_mul(32).min(bits.len() * 8).min(parts);
    let is_set = |bit: usize| le32(bits, bit / 32 * 4) >> (bit % 32) & 1 != 0;
    let (mut bit, mut regions) = (0, rest.iter());
    while bit < count {
        if !is_set(bit) {
            bit += 1;
            continue;
        }
        let Some(region) = regions.next() else { return };
        // Bits in a row are of one region, or of several where memory was not in one piece. No more
        // are counted than it has parts: a small region for each of many bits would take long.
        let parts = region.len() / PART_BYTES as usize;
        let row = (bit..count).take(parts).take_while(|bit| is_set(*bit)).count();
        let bytes = &region[..row * PART_BYTES as usize];
        // Other trees tell of free space.
        if row == 0 || (bit == 0 && flags >> KIND_SHIFT == TREE && !EXTENT_TREES.contains(&be32(bytes, 0))) {
            return;
        }
        changes.push(Change::Parts { place: place + bit as u64 * PART_BYTES, bytes: bytes.into() });
        bit += row;
    }
}
