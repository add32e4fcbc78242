//! How far a discovery goes. At the 2 MiB/s that are left beside clients the bytes below take seven
//! minutes, of which names come first; a host of a thousand tables is through within one.

use crate::filesystems;

/// Bytes of directories, inodes and trees of extents: 4 KiB for each directory and for 16 files (8
/// on XFS).
const SEARCH_BYTES_MAX: u64 = 256 << 20;
/// Bytes of journals in a look at a volume that was looked at before: two minutes of a busy journal
/// of 1 GiB, whose tail is a quarter of it behind at most.
pub(super) const JOURNAL_BYTES_MAX: u64 = 128 << 20;
/// The same in the first look. It is enough for a fresh file system; an old one has nearly all it
/// names at its home, and that shall not wait for the journal.
pub(super) const JOURNAL_BYTES_FIRST: u64 = 16 << 20;
/// Memory for what is held of journals from one look to the next: two file systems with as much as
/// is held of one, or hundreds as they are. What does not fit is read again in each look.
pub(super) const JOURNALS_HELD_BYTES_MAX: usize = 64 << 20;
/// Bytes of dictionaries and of the first pages of files: 20 KiB for each file of InnoDB, 64 KiB of
/// those of MySQL 8, some 15 MiB for each database of PostgreSQL with a few thousand relations.
pub(super) const NAMES_BYTES_MAX: u64 = 512 << 20;
/// Looks at places without a known file system, over all of the volume.
pub(super) const LOOKS_MAX: u64 = 1024;
/// Bytes of a look: four of the usual pages of InnoDB, so one is whole wherever they begin.
pub(super) const LOOK_BYTES: u64 = 64 << 10;
/// How near looks are at most; in a small region more of them tell nothing new.
pub(super) const LOOK_STEP_BYTES_MIN: u64 = 4 << 20;
/// Looks after which it is seen again what the region begins with.
pub(super) const LOOKS_BETWEEN: u64 = 64;
/// Times that this is read at most, and the bytes: the start, up to 32 sectors of partition tables, and the first bytes of XFS and ext4.
const STARTS_BYTES_MAX: u64 = (LOOKS_MAX / LOOKS_BETWEEN + 2 * REGIONS_MAX) * (SIGNS_BYTES + (128 << 10));
/// What a region without a known file system is told by: it must hold the superblock of btrfs.
pub(super) const SIGNS_BYTES: u64 = 68 << 10;
/// Regions: the start, four partitions and 128 more.
pub(super) const REGIONS_MAX: u64 = 133;

/// Bytes that are read of a volume at most.
pub const BYTES_MAX: u64 = SEARCH_BYTES_MAX
    + JOURNAL_BYTES_MAX
    + NAMES_BYTES_MAX
    + LOOKS_MAX * LOOK_BYTES
    + STARTS_BYTES_MAX
    + REGIONS_MAX * (SIGNS_BYTES + 1024)
    + (1 << 20);

/// Objects at most, some 300 bytes each: 20 MiB.
pub const OBJECTS_MAX: usize = 1 << 16;

/// Bytes of all names of objects and of their databases: 256 for each, several times what is usual.
pub(super) const TEXT_BYTES_MAX: usize = 16 << 20;

/// Bytes asked for at once: an eighth of a second of the rate, and whole pages of every size.
pub(super) const READ_BYTES_MAX: u64 = 256 << 10;

/// Limits of the search of all file systems of a volume: extents as many as a map holds (32 bytes
/// each: 8 MiB), and files whose paths take 4 MiB.
pub(super) const SEARCH: filesystems::Limits =
    filesystems::Limits { bytes: SEARCH_BYTES_MAX, directories: 100_000, files: 20_000, extents: 1 << 18 };
