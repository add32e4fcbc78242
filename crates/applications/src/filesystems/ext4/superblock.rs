//! The superblock, and where it says that things are.

use crate::bytes::{le16, le32};
use crate::filesystems::Volume;
use format::checksum::crc32c;

/// Where the superblock lies in the file system, and its length.
const AT: u64 = 1024;
const BYTES: usize = 1024;
const MAGIC: u16 = 0xef53;
/// Incompatible features that change nothing for a reader, or are followed here: file types,
/// journal to be replayed, `meta_bg`, extents, 64 bit, multiple mount protection, `flex_bg`, values
/// in inodes, checksum seed, large directories, inline data, encryption, case folding.
const KNOWN: u32 = 0x2 | 0x4 | 0x10 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x2000 | 0x4000 | 0x8000 | 0x1_0000 | 0x2_0000;
const RECOVER: u32 = 0x4;
const META_BG: u32 = 0x10;
const SIXTY_FOUR: u32 = 0x80;
/// Compatible: there is a journal.
const JOURNAL: u32 = 0x4;
/// Read-only compatible: superblock copies in few groups; checksums of metadata.
const SPARSE_SUPER: u32 = 0x1;
const CHECKSUMS: u32 = 0x400;

/// Why a file system cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// The volume could not be read there.
    #[error("the superblock cannot be read")]
    Unreadable,
    /// No superblock is there.
    #[error("there is no ext4 file system")]
    Absent,
    /// Its numbers contradict each other, or its checksum does not fit.
    #[error("the superblock is damaged")]
    Damaged,
    /// It uses what is not known here.
    #[error("the file system uses features that are not supported (incompatible features {features:#x})")]
    Unsupported {
        /// The bits of `s_feature_incompat` that are not known.
        features: u32,
    },
}

/// What is needed of a superblock. All sizes have been checked to be sane.
#[derive(Debug)]
pub(super) struct Superblock {
    /// Where the file system begins on the volume.
    pub(super) start: u64,
    pub(super) block_bytes: u64,
    pub(super) blocks: u64,
    pub(super) descriptor_bytes: usize,
    pub(super) uuid: [u8; 16],
    /// The inode of the journal, if there may be anything in it: the file system is in use, or was
    /// not unmounted.
    pub(super) journal: Option<u32>,
    inodes: u32,
    inodes_per_group: u32,
    inode_bytes: u64,
    blocks_per_group: u64,
    first_block: u64,
    /// Groups of descriptor blocks from this on lie with their groups; `None` without the feature.
    first_meta_group: Option<u64>,
    sparse: bool,
}

impl Superblock {
    pub(super) async fn read(volume: &Volume, start: u64) -> Result<Superblock, Refused> {
        let mut bytes = [0; BYTES];
        let at = start.checked_add(AT).ok_or(Refused::Unreadable)?;
        if !volume.read(at, &mut bytes).await {
            return Err(Refused::Unreadable);
        }
        if le16(&bytes, 0x38) != MAGIC {
            return Err(Refused::Absent);
        }
        let (incompatible, read_only) = (le32(&bytes, 0x60), le32(&bytes, 0x64));
        if incompatible & !KNOWN != 0 {
            return Err(Refused::Unsupported { features: incompatible & !KNOWN });
        }
        // Its CRC has no final inversion.
        if read_only & CHECKSUMS != 0 && !crc32c(&bytes[..0x3fc]) != le32(&bytes, 0x3fc) {
            return Err(Refused::Damaged);
        }
        let wide = incompatible & SIXTY_FOUR != 0;
        let has_journal = le32(&bytes, 0x5c) & JOURNAL != 0 && incompatible & RECOVER != 0;
        let (log, revision) = (le32(&bytes, 0x18), le32(&bytes, 0x4c));
        let high = if wide { u64::from(le32(&bytes, 0x150)) << 32 } else { 0 };
        let superblock = Superblock {
            start,
            block_bytes: 1024u64.checked_shl(log.min(63)).unwrap_or(0),
            blocks: high | u64::from(le32(&bytes, 4)),
            descriptor_bytes: if wide { usize::from(le16(&bytes, 0xfe)) } else { 32 },
            uuid: bytes[0x68..0x78].try_into().unwrap_or_default(),
            journal: Some(le32(&bytes, 0xe0)).filter(|number| has_journal && *number != 0),
            inodes: le32(&bytes, 0),
            inodes_per_group: le32(&bytes, 0x28),
            inode_bytes: if revision == 0 { 128 } else { u64::from(le16(&bytes, 0x58)) },
            blocks_per_group: u64::from(le32(&bytes, 0x20)),
            first_block: u64::from(le32(&bytes, 0x14)),
            first_meta_group: (incompatible & META_BG != 0).then(|| u64::from(le32(&bytes, 0x104))),
            sparse: read_only & SPARSE_SUPER != 0,
        };
        superblock.is_sane().then_some(superblock).ok_or(Refused::Damaged)
    }

    fn is_sane(&self) -> bool {
        let block = self.block_bytes;
        (1024..=65536).contains(&block)
            && self.inode_bytes.is_power_of_two()
            && (128..=block).contains(&self.inode_bytes)
            && (32..=1024).contains(&self.descriptor_bytes)
            && self.descriptor_bytes.is_power_of_two()
            && self.inodes_per_group > 0
            && self.blocks_per_group > 0
            && self.first_block <= 1
            && self.blocks.checked_mul(block).and_then(|bytes| bytes.checked_add(self.start)).is_some()
    }

    /// The file system's length in bytes.
    pub(super) fn end(&self) -> u64 {
        self.blocks * self.block_bytes
    }

    /// Where the descriptor of an inode's group lies, and the inode's place in the group's table;
    /// `None` for a number that no inode has.
    pub(super) fn place_of_inode(&self, number: u32) -> Option<(u64, u64)> {
        let index = number.checked_sub(1).filter(|_| number <= self.inodes)?;
        let (group, place) = (u64::from(index / self.inodes_per_group), u64::from(index % self.inodes_per_group));
        let in_block = self.block_bytes / self.descriptor_bytes as u64;
        let (block, slot) = (group / in_block, group % in_block);
        let at = match self.first_meta_group {
            Some(first) if block >= first => {
                let leader = block * in_block;
                self.first_block + leader * self.blocks_per_group + u64::from(self.has_copy(leader))
            }
            _ => self.first_block + 1 + block,
        };
        let descriptor = at.checked_mul(self.block_bytes)?.checked_add(slot * self.descriptor_bytes as u64)?;
        Some((descriptor, place * self.inode_bytes))
    }

    /// Whether a group begins with a copy of the superblock.
    fn has_copy(&self, group: u64) -> bool {
        let power_of = |base: u64| {
            std::iter::successors(Some(base), |power| power.checked_mul(base))
                .take_while(|power| *power <= group)
                .any(|power| power == group)
        };
        !self.sparse || group <= 1 || [3, 5, 7].into_iter().any(power_of)
    }
}
