//! What is committed in the log, laid over what is read at home. Each thing knows the place in the
//! log that it is of (its LSN), and in version 5 so does what lies at home: the newer one holds.

use super::change::{CORE_BYTES, Change, Fork, ForkKind, PART_BYTES};
use crate::bytes::{be16, be64, byte, le16};
use crate::filesystems::xfs::inode::{CONTENT_AT, CONTENT_AT_3, MAGIC};
use crate::filesystems::xfs::superblock::Superblock;
use std::collections::BTreeMap;

/// Memory that may be held, in bytes. A file system with more in its log is read at home.
pub(super) const BYTES_MAX: usize = 16 << 20;
/// What an inode or a part takes beside its bytes; nearly.
const EACH_BYTES: usize = 96;
/// Numbers of a core that are read here, as places and lengths; the others stay as they are.
const NUMBERS: [(usize, usize); 8] = [(0, 2), (2, 2), (24, 8), (56, 8), (76, 4), (90, 2), (120, 8), (152, 8)];
/// Where inodes of version 3 have the LSN and the UUID, and older ones how often they were written
/// home, which stops at the largest number and goes on from zero.
const LSN_AT: usize = 112;
const UUID_AT: usize = 160;
const WRITTEN_AT: usize = 30;
const WRITTEN_MAX: u16 = u16::MAX;
/// Bytes of the head of a root in memory, by version, and at home; of a key or a pointer.
const ROOT_HEAD_BYTES: [usize; 2] = [24, 72];
const ROOT_HEAD_BYTES_HOME: usize = 4;
const KEY_BYTES: usize = 8;

/// What is newer than its home.
#[derive(Clone, Default, Debug)]
pub(super) struct Overlay {
    inodes: BTreeMap<u64, Inode>,
    parts: BTreeMap<u64, Part>,
    bytes: usize,
}

#[derive(Clone, Debug)]
struct Inode {
    lsn: u64,
    core: Box<[u8]>,
    fork: Option<(u64, Fork)>,
}

#[derive(Clone, Debug)]
struct Part {
    lsn: u64,
    bytes: [u8; PART_BYTES as usize],
}

impl Inode {
    fn bytes(&self) -> usize {
        EACH_BYTES + self.core.len() + self.fork.as_ref().map_or(0, |(_, fork)| fork.bytes.len())
    }
}

const PART_HELD_BYTES: usize = EACH_BYTES + PART_BYTES as usize;

impl Overlay {
    /// Memory held, in bytes; nearly.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes in the changes of a transaction.
    pub(super) fn take(&mut self, lsn: u64, changes: Vec<Change>) {
        let mut cancelled = Vec::new();
        for change in changes {
            match change {
                Change::Inode { place, core, fork } => {
                    let before = self.remove_inode(place);
                    let kept = before.and_then(|before| before.fork);
                    let inode = Inode { lsn, core, fork: fork.map(|fork| (lsn, fork)).or(kept) };
                    self.bytes += inode.bytes();
                    self.inodes.insert(place, inode);
                }
                Change::Parts { place, bytes } => {
                    for (at, bytes) in (place..).step_by(PART_BYTES as usize).zip(bytes.chunks_exact(PART_BYTES as usize)) {
                        let Ok(bytes) = bytes.try_into() else { continue };
                        if self.parts.insert(at, Part { lsn, bytes }).is_none() {
                            self.bytes += PART_HELD_BYTES;
                        }
                    }
                }
                Change::Cancel { place, end } => cancelled.push((place, end)),
            }
        }
        // Whatever else the transaction has of them was before.
        for (place, end) in cancelled {
            let inodes: Vec<u64> = self.inodes.range(place..end).map(|(place, _)| *place).collect();
            inodes.into_iter().for_each(|place| drop(self.remove_inode(place)));
            let parts: Vec<u64> = self.parts.range(place..end).map(|(place, _)| *place).collect();
            for part in parts {
                self.parts.remove(&part);
                self.bytes -= PART_HELD_BYTES;
            }
        }
    }

    fn remove_inode(&mut self, place: u64) -> Option<Inode> {
        let inode = self.inodes.remove(&place)?;
        self.bytes -= inode.bytes();
        Some(inode)
    }

    /// All of it is at home.
    pub(super) fn clear(&mut self) {
        *self = Overlay::default();
    }

    /// Everything before that place of the log is at home.
    pub(super) fn forget_before(&mut self, lsn: u64) {
        self.inodes.retain(|_, inode| inode.lsn >= lsn);
        self.parts.retain(|_, part| part.lsn >= lsn);
        self.bytes = self.inodes.values().map(Inode::bytes).sum::<usize>() + self.parts.len() * PART_HELD_BYTES;
    }

    /// Lays what is newer than `home_lsn` over bytes that were read at a place of the volume.
    pub(super) fn lay(&self, place: u64, bytes: &mut [u8], home_lsn: u64) {
        let end = place.saturating_add(bytes.len() as u64);
        for (at, part) in self.parts.range(place..end).filter(|(_, part)| part.lsn >= home_lsn) {
            let inside = (at - place) as usize;
            if let Some(to) = bytes.get_mut(inside..inside + PART_BYTES as usize) {
                to.copy_from_slice(&part.bytes);
            }
        }
    }

    /// Lays what is newer over an inode.
    pub(super) fn lay_inode(&self, superblock: &Superblock, place: u64, bytes: &mut [u8]) {
        let has_lsn = be16(bytes, 0) == MAGIC && byte(bytes, 4) == 3 && bytes.get(UUID_AT..UUID_AT + 16) == Some(&superblock.meta_uuid);
        let home_lsn = if has_lsn { told(be64(bytes, LSN_AT)) } else { 0 };
        let Some(inode) = self.inodes.get(&place).filter(|inode| inode.lsn >= home_lsn) else { return };
        let written = be16(bytes, WRITTEN_AT);
        let written_then = le16(&inode.core, WRITTEN_AT);
        let went_around = written == WRITTEN_MAX && written_then < WRITTEN_MAX / 2;
        if byte(&inode.core, 4) < 3 && be16(bytes, 0) == MAGIC && written_then < written && !went_around {
            return;
        }
        // Kernels that log a new inode as a part of its buffer.
        self.lay(place, bytes, home_lsn);
        let is_3 = byte(&inode.core, 4) == 3;
        let core_bytes = if is_3 { CORE_BYTES } else { CONTENT_AT };
        let length = inode.core.len().min(core_bytes);
        let Some(core) = bytes.get_mut(..length) else { return };
        core.copy_from_slice(&inode.core[..length]);
        for (at, length) in NUMBERS {
            if let Some(number) = core.get_mut(at..at + length) {
                number.reverse();
            }
        }
        let Some((_, fork)) = inode.fork.as_ref().filter(|(lsn, _)| *lsn >= home_lsn) else { return };
        let content_at = if is_3 { CONTENT_AT_3 } else { CONTENT_AT };
        let content_end = match usize::from(byte(bytes, 82)) {
            0 => bytes.len(),
            attributes => content_at + attributes * 8,
        };
        let form = byte(bytes, 5);
        let Some(content) = bytes.get_mut(content_at..content_end) else { return };
        match (fork.kind, form) {
            (ForkKind::Data, 1) | (ForkKind::Extents, 2) => {
                let length = fork.bytes.len().min(content.len());
                content[..length].copy_from_slice(&fork.bytes[..length]);
            }
            (ForkKind::Root, 3) => lay_root(&fork.bytes, ROOT_HEAD_BYTES[usize::from(superblock.has_owners)], content),
            // It has another form by now, and is empty in that.
            _ => {}
        }
    }
}

/// An LSN that something at home has; none where it is zero or all ones.
fn told(lsn: u64) -> u64 {
    if lsn == u64::MAX { 0 } else { lsn }
}

/// The LSN of a block of version 5 that has it at a place, with the UUID behind it at another; 0
/// where it is of another file system.
pub(super) fn lsn_of(superblock: &Superblock, block: &[u8], lsn_at: usize, uuid_at: usize) -> u64 {
    let is_own = block.get(uuid_at..uuid_at + 16) == Some(&superblock.meta_uuid);
    if is_own { told(be64(block, lsn_at)) } else { 0 }
}

/// Puts a root as memory has it, where keys and pointers have as much space as it was given, where
/// the one at home belongs, where they share what the inode has. Zeroes, which are no tree, if it
/// is shorter than it says: the checksum of a record tells nothing of who wrote it.
fn lay_root(root: &[u8], head_bytes: usize, content: &mut [u8]) {
    let count = usize::from(be16(root, 6));
    let space = root.len().saturating_sub(head_bytes) / (2 * KEY_BYTES);
    let space_home = content.len().saturating_sub(ROOT_HEAD_BYTES_HOME) / (2 * KEY_BYTES);
    let has_heads = root.len() >= head_bytes && content.len() >= ROOT_HEAD_BYTES_HOME;
    if !has_heads || count > space || count > space_home {
        content.fill(0);
        return;
    }
    content[..ROOT_HEAD_BYTES_HOME].copy_from_slice(&root[4..8]);
    let length = count * KEY_BYTES;
    for (from, to) in [(head_bytes, ROOT_HEAD_BYTES_HOME), (head_bytes + space * KEY_BYTES, ROOT_HEAD_BYTES_HOME + space_home * KEY_BYTES)]
    {
        content[to..to + length].copy_from_slice(&root[from..from + length]);
    }
}
