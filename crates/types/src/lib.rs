//! Units, identifiers and the few enums that every floor of the house shares.
//!
//! Invariants: no dependencies, no allocation, no I/O. A number whose unit is not in its name has it in its type.
#![no_std]
#![forbid(unsafe_code)]

mod treatment;

pub use treatment::{Admit, ObjectWrites, OnScan, Treatment};

/// Unit of client requests, in bytes. Everything a client may address is a multiple of it.
pub const SECTOR_BYTES: u64 = 512;
/// Unit of caching, in bytes.
pub const BLOCK_BYTES: u64 = 4096;
/// Sectors in a block.
pub const BLOCK_SECTORS: u64 = BLOCK_BYTES / SECTOR_BYTES;
/// The largest unit that a volume may keep whole (`--atomic`), in bytes.
pub const ATOMIC_BYTES_MAX: u32 = 64 << 10;
/// A volume's address space is dealt to shards in pieces of this many bytes.
pub const EXTENT_BYTES: u64 = 1 << 20;
/// Blocks in an extent.
pub const EXTENT_BLOCKS: u64 = EXTENT_BYTES / BLOCK_BYTES;
/// Sectors in an extent.
pub const EXTENT_SECTORS: u64 = EXTENT_BYTES / SECTOR_BYTES;
/// Volumes one pool can hold at a time: the volume part of an index key has 10 bits.
pub const VOLUMES_MAX: usize = 1 << 10;
/// Largest volume, in blocks (64 TiB): the block part of an index key has 34 bits.
pub const VOLUME_BLOCKS_MAX: u64 = 1 << 34;
/// The same in bytes. Whoever takes in the size of a volume or of a backing device refuses a larger one: a block beyond it
/// would get the index key of another block.
pub const VOLUME_BYTES_MAX: u64 = VOLUME_BLOCKS_MAX * BLOCK_BYTES;
/// The same in sectors.
pub const VOLUME_SECTORS_MAX: u64 = VOLUME_BLOCKS_MAX * BLOCK_SECTORS;

const _: () = assert!(BLOCK_BYTES == BLOCK_SECTORS * SECTOR_BYTES && EXTENT_BYTES.is_multiple_of(BLOCK_BYTES));

/// A number with its noun, as people write it: "1 problem", "2 problems". The noun is regular: its plural ends in "s".
#[must_use]
pub const fn counted(count: u64, noun: &str) -> Counted<'_> {
    Counted { count, noun }
}

/// What [`counted`] gives; writes itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counted<'a> {
    count: u64,
    noun: &'a str,
}

impl core::fmt::Display for Counted<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} {}{}", self.count, self.noun, if self.count == 1 { "" } else { "s" })
    }
}

/// A volume's place in its pool's table while it is attached; reused after the volume is gone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VolumeIndex(pub u16);

/// A volume's number in the log; never used twice in a pool, so a record of a removed volume can never be taken for
/// one of a later volume.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VolumeId(pub u32);

/// An SSD's place among those of its pool. A pool has one, [`SsdIndex::FIRST`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SsdIndex(pub u8);

impl SsdIndex {
    /// The first SSD of every pool.
    pub const FIRST: SsdIndex = SsdIndex(0);
}

/// A shard's place in its pool; fixed when the pool is formatted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ShardIndex(pub u16);

/// What an acknowledged write means and where it goes (DESIGN.md, C4).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// An acknowledged write is on the backing device; the cache follows.
    #[default]
    WriteThrough,
    /// As write-through, and a write does not occupy the cache.
    WriteAround,
    /// An acknowledged write is in the log on the SSD; destage brings it to the backing device.
    WriteBack,
    /// The cache is watched and kept coherent, never served from (except for dirty blocks not yet at home).
    PassThrough,
}

impl Mode {
    /// The word used on the command line, in JSON and in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::WriteThrough => "write-through",
            Mode::WriteAround => "write-around",
            Mode::WriteBack => "write-back",
            Mode::PassThrough => "pass-through",
        }
    }

    /// The mode of that name; `None` if there is none.
    pub fn from_name(name: &str) -> Option<Mode> {
        [Mode::WriteThrough, Mode::WriteAround, Mode::WriteBack, Mode::PassThrough].into_iter().find(|m| m.name() == name)
    }
}

/// When a block that was read or written may enter the SSD.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Admission {
    /// When it leaves RAM.
    Always,
    /// When it leaves RAM and was used again, or comes back soon after it was forgotten; or before it is judged, where there is room, or RAM
    /// is smaller than the small part of the cache.
    #[default]
    SecondTouch,
}

impl Admission {
    /// The word used on the command line, in JSON and in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Admission::Always => "always",
            Admission::SecondTouch => "second-touch",
        }
    }
}

/// What a volume's writes do when the SSD is lost with dirty data of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnSsdLoss {
    /// They wait for the SSD, or for the data to go home, and fail after a time: the data on the SSD stays the newest.
    #[default]
    Stop,
    /// They go on, to the backing device. What is written past the SSD is recorded, so that the rest is served when the SSD is back.
    Continue,
}

impl OnSsdLoss {
    /// The word used on the command line, in JSON and in messages.
    pub const fn name(self) -> &'static str {
        match self {
            OnSsdLoss::Stop => "stop",
            OnSsdLoss::Continue => "continue",
        }
    }
}

/// How much a pool makes of what its blocks contain.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Content {
    /// Blocks are stored as they are.
    Off,
    /// Zeroes, duplicates, deltas to earlier versions and to near copies, LZ4: a few microseconds a block.
    Fast,
    /// As fast, and zstd and similar content where they pay.
    Dense,
    /// As fast to begin with; each step is opened and closed by what it saves.
    #[default]
    Auto,
}

impl Content {
    /// All of them.
    pub const ALL: [Content; 4] = [Content::Off, Content::Fast, Content::Dense, Content::Auto];

    /// The word used on the command line, in JSON and in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Content::Off => "off",
            Content::Fast => "fast",
            Content::Dense => "dense",
            Content::Auto => "auto",
        }
    }

    /// The level of that name; `None` if there is none.
    pub fn from_name(name: &str) -> Option<Content> {
        Content::ALL.into_iter().find(|level| level.name() == name)
    }
}

/// An application's object (a table, an index, a log), numbered by the part that found it. 0 is nobody's: unknown.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ObjectId(pub u32);

/// What a stream of requests is for. A class decides about speed only, never about what is answered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
pub enum StreamClass {
    /// What the users of an application wait for, and all that is not known to be something else.
    #[default]
    Application,
    /// A reader that passes over an object once, in order: a table scan, read-ahead, a file copy.
    Scan,
    /// A scan that passes over whole objects one after the other, or a session known as a backup.
    Backup,
    /// Writes that continue or rewrite their own tail and are hardly read: redo, WAL, binlog.
    Log,
    /// A replica's session.
    Replication,
    /// Vacuum, purge, index builds and their like, known by process or session only.
    Maintenance,
}

impl StreamClass {
    /// All of them, in the order of their numbers.
    pub const ALL: [StreamClass; 6] = [
        StreamClass::Application,
        StreamClass::Scan,
        StreamClass::Backup,
        StreamClass::Log,
        StreamClass::Replication,
        StreamClass::Maintenance,
    ];

    /// The word used on the command line, in JSON and in messages.
    pub const fn name(self) -> &'static str {
        match self {
            StreamClass::Application => "application",
            StreamClass::Scan => "scan",
            StreamClass::Backup => "backup",
            StreamClass::Log => "log",
            StreamClass::Replication => "replication",
            StreamClass::Maintenance => "maintenance",
        }
    }

    /// The class of that name; `None` if there is none.
    pub fn from_name(name: &str) -> Option<StreamClass> {
        StreamClass::ALL.into_iter().find(|class| class.name() == name)
    }
}

/// Why a request (or part of one) went around the cache, or had to wait to get in. Each has a counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum BypassReason {
    /// Larger than the volume's `max-io-size`.
    Size,
    /// Part of a sequential stream past the volume's `sequential-cutoff`.
    Sequential,
    /// The volume is in pass-through mode.
    PassThrough,
    /// A write in write-around mode.
    WriteAround,
    /// A block that has not proven re-use: it got no place on the SSD, and was noted in the ghost queue.
    FirstTouch,
    /// The volume's or the pool's limit of dirty data is reached: a write waited until something had gone home.
    DirtyLimit,
    /// The log has no room right now: a write waited or went around, a clean block was not admitted.
    NoSpace,
    /// The SSD failed and the volume runs on the backing device alone.
    Degraded,
    /// The policy of an object says so.
    Policy,
    /// Part of a stream that passes over its objects once, such as a backup or a scan.
    Stream,
}

impl BypassReason {
    /// All reasons, in the order of their counters.
    pub const ALL: [BypassReason; 10] = [
        BypassReason::Size,
        BypassReason::Sequential,
        BypassReason::PassThrough,
        BypassReason::WriteAround,
        BypassReason::FirstTouch,
        BypassReason::DirtyLimit,
        BypassReason::NoSpace,
        BypassReason::Degraded,
        BypassReason::Policy,
        BypassReason::Stream,
    ];

    /// The name in JSON and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            BypassReason::Size => "size",
            BypassReason::Sequential => "sequential",
            BypassReason::PassThrough => "pass_through",
            BypassReason::WriteAround => "write_around",
            BypassReason::FirstTouch => "first_touch",
            BypassReason::DirtyLimit => "dirty_limit",
            BypassReason::NoSpace => "no_space",
            BypassReason::Degraded => "degraded",
            BypassReason::Policy => "policy",
            BypassReason::Stream => "stream",
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::counted;
    use std::string::ToString;

    #[test]
    fn one_is_no_plural() {
        let said = [0, 1, 2].map(|count| counted(count, "problem").to_string());
        assert_eq!(said, ["0 problems", "1 problem", "2 problems"]);
    }
}
