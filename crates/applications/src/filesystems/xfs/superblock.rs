//! The superblock, and where it says that blocks and inodes are.

use super::log::Ring;
use crate::bytes::{be16, be32, be64, byte};
use crate::filesystems::Volume;

/// Bytes of the superblock that are read: the smallest sector, which holds all fields.
const BYTES: usize = 512;
const MAGIC: u32 = u32::from_be_bytes(*b"XFSB");
/// Versions, in the low four bits of the version number, and features in the others.
const VERSION_MASK: u16 = 0xf;
/// Version 4: directories of the second version, without which there are others; more features.
const DIRECTORIES_2: u16 = 0x2000;
const MORE_FEATURES: u16 = 0x8000;
/// Second word of features of version 4: types of files in directories.
const FEATURES_2_TYPES: u32 = 0x200;
/// Incompatible features of version 5: types of files in directories; inode chunks with holes; a
/// UUID of the metadata; timestamps to 2486; a repair is needed; counters of extents of 64 bits;
/// exchange of ranges; parent pointers; a directory of metadata. Others may mean that files lie
/// elsewhere: those of zoned storage do.
const KNOWN: u32 = 0x1ff;
const TYPES: u32 = 0x1;
const META_UUID: u32 = 0x4;
/// The unit of the log.
const SECTOR_BYTES: u64 = 512;

/// Why a file system cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// The volume could not be read there.
    #[error("the superblock cannot be read")]
    Unreadable,
    /// No superblock is there.
    #[error("there is no XFS file system")]
    Absent,
    /// Its numbers contradict each other.
    #[error("the superblock is damaged")]
    Damaged,
    /// It is of a version that is not known here, or so old that its directories are others.
    #[error("the file system has a version that is not supported (version number {version:#x})")]
    Version {
        /// `sb_versionnum`.
        version: u16,
    },
    /// It uses what is not known here.
    #[error("the file system uses features that are not supported (incompatible features {features:#x})")]
    Unsupported {
        /// The bits of `sb_features_incompat` that are not known.
        features: u32,
    },
}

/// What is needed of a superblock. All sizes have been checked to be sane.
#[derive(Debug)]
pub(super) struct Superblock {
    /// Where the file system begins on the volume.
    pub(super) start: u64,
    pub(super) block_bytes: u64,
    /// Blocks of the data section.
    pub(super) blocks: u64,
    pub(super) uuid: [u8; 16],
    /// The UUID that blocks of metadata have, which stays when the other is changed.
    pub(super) meta_uuid: [u8; 16],
    /// Where the log lies; `None` if that is on another device.
    pub(super) log: Option<Ring>,
    /// The inode of the root directory.
    pub(super) root: u64,
    /// Bytes of an inode.
    pub(super) inode_bytes: usize,
    /// Blocks of a block of a directory.
    pub(super) directory_blocks: u64,
    /// Whether blocks of metadata say whose they are: version 5.
    pub(super) has_owners: bool,
    /// Whether entries of directories have the type of their file.
    pub(super) has_types: bool,
    groups: u64,
    group_blocks: u64,
    /// Bits of a block's number in its group, and of an inode's number in its block.
    group_bits: u32,
    inode_bits: u32,
}

impl Superblock {
    pub(super) async fn read(volume: &Volume, start: u64) -> Result<Superblock, Refused> {
        let mut bytes = [0; BYTES];
        if !volume.read(start, &mut bytes).await {
            return Err(Refused::Unreadable);
        }
        if be32(&bytes, 0) != MAGIC {
            return Err(Refused::Absent);
        }
        let version = be16(&bytes, 100);
        let has_types = match version & VERSION_MASK {
            4 if version & DIRECTORIES_2 != 0 => version & MORE_FEATURES != 0 && be32(&bytes, 200) & FEATURES_2_TYPES != 0,
            5 => be32(&bytes, 216) & TYPES != 0,
            _ => return Err(Refused::Version { version }),
        };
        let has_owners = version & VERSION_MASK == 5;
        let unknown = be32(&bytes, 216) & !KNOWN;
        if has_owners && unknown != 0 {
            return Err(Refused::Unsupported { features: unknown });
        }
        let log = |at: usize| u32::from(byte(&bytes, at)).min(63);
        let uuid_at = |at: usize| bytes[at..at + 16].try_into().unwrap_or_default();
        let has_meta_uuid = has_owners && be32(&bytes, 216) & META_UUID != 0;
        let mut superblock = Superblock {
            start,
            block_bytes: be32(&bytes, 4).into(),
            blocks: be64(&bytes, 8),
            uuid: uuid_at(32),
            meta_uuid: uuid_at(if has_meta_uuid { 248 } else { 32 }),
            log: None,
            root: be64(&bytes, 56),
            inode_bytes: be16(&bytes, 104).into(),
            directory_blocks: 1 << log(192),
            has_owners,
            has_types,
            groups: be32(&bytes, 88).into(),
            group_blocks: be32(&bytes, 84).into(),
            group_bits: log(124),
            inode_bits: log(123),
        };
        // The last byte is set while a file system is made.
        let agrees = 1 << log(120) == superblock.block_bytes && 1 << log(122) == superblock.inode_bytes && byte(&bytes, 126) == 0;
        if !agrees || !superblock.is_sane() {
            return Err(Refused::Damaged);
        }
        superblock.log = superblock.ring(be64(&bytes, 48), be32(&bytes, 96).into());
        Ok(superblock)
    }

    fn is_sane(&self) -> bool {
        let block = self.block_bytes;
        let inodes = block / self.inode_bytes.max(1) as u64;
        (512..=65536).contains(&block)
            && (256..=2048).contains(&self.inode_bytes)
            && inodes == 1 << self.inode_bits
            && self.directory_blocks.saturating_mul(block) <= 65536
            && self.group_blocks > 0
            && self.group_bits <= 32
            && self.group_blocks <= 1 << self.group_bits
            && (1 << self.group_bits) < 2 * self.group_blocks
            && self.groups > 0
            && (self.groups - 1) * self.group_blocks < self.blocks
            && self.blocks <= self.groups * self.group_blocks
            && self.blocks.checked_mul(block).and_then(|bytes| bytes.checked_add(self.start)).is_some()
            && self.place_of_inode(self.root).is_some()
    }

    /// Where a log of so many blocks lies, if it lies on the volume.
    fn ring(&self, number: u64, count: u64) -> Option<Ring> {
        let start = self.place_of_blocks(number, count).filter(|_| number > 0 && count > 0)?;
        Some(Ring { start, blocks: u32::try_from(count * self.block_bytes / SECTOR_BYTES).ok()? })
    }

    /// Where the file system ends on the volume.
    pub(super) fn end(&self) -> u64 {
        self.start + self.blocks * self.block_bytes
    }

    /// Where a run of blocks begins on the volume, by a number that has the group in its upper
    /// bits; `None` if they do not all lie in one group.
    pub(super) fn place_of_blocks(&self, number: u64, count: u64) -> Option<u64> {
        let (group, block) = (number >> self.group_bits, number & ((1 << self.group_bits) - 1));
        let fits = group < self.groups && block.checked_add(count)? <= self.group_blocks;
        let first = (group.checked_mul(self.group_blocks)?).checked_add(block).filter(|first| fits && first + count <= self.blocks)?;
        Some(self.start + first * self.block_bytes)
    }

    /// Where an inode lies on the volume; `None` for a number that no inode has.
    pub(super) fn place_of_inode(&self, number: u64) -> Option<u64> {
        let slot = number & ((1 << self.inode_bits) - 1);
        let block = self.place_of_blocks(number >> self.inode_bits, 1)?;
        Some(block + slot * self.inode_bytes as u64)
    }
}
