//! The bytes on the SSD.
//!
//! Encoding and decoding only: no I/O, no clock, no policy. Everything stored is little-endian, has a version, and stands
//! under a CRC-32C; padding is explicit and zero. `docs/internals/on-disk-format.md` says the same in words and drawings.
//!
//! Rooms: [`layout`] where things lie; [`checksum`] what guards them; [`superblock`] the root; [`record`] and [`group`]
//! what the log is made of; [`packed`] what blocks can be stored as; [`footer`] the summary at the end of a full segment; [`checkpoint`] the index as a clean stop
//! leaves it; [`slots`] the layout of version 4; [`disks`] what lies beside the log; [`records`] what management keeps about the pool.
//!
//! Invariants: a decoder never panics, whatever the bytes; what it accepts, the encoder could have written; identity
//! (pool, shard, position, session) is checked by whoever reads, because only they know what they asked for.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

mod bytes;
pub mod checkpoint;
pub mod checksum;
pub mod disks;
pub mod footer;
pub mod group;
pub mod layout;
pub mod packed;
pub mod record;
pub mod records;
pub mod slots;
pub mod superblock;

pub use checksum::{PayloadOwner, block_checksum, object_checksum, open_packed, payload_checksum, seal_packed};
pub use footer::{Footer, FooterHead};
pub use group::GroupHead;
pub use layout::{Arrangement, Layout, LayoutError};
pub use packed::{Encoding, Packed};
pub use record::{Record, RecordKind};
pub use superblock::{LogStart, Superblock, VolumeRecord};

/// Version of everything that is written. A reader refuses higher ones and knows all before.
///
/// 2: packed payloads begin in the header page of their group where no pages follow it. 3: checksums of
/// payloads are stored masked ([`checksum`]).
pub const FORMAT_VERSION: u32 = 3;
/// The newest version of a pool that this release reads: blocks in slots.
pub const NEWEST_VERSION: u32 = slots::SLOTS_VERSION;
/// The unit of every stored structure and of I/O to the SSD, in bytes.
pub const PAGE_BYTES: usize = types::BLOCK_BYTES as usize;
/// Records that fit a group's header page.
pub const GROUP_RECORDS_MAX: usize = 120;

/// Sequence numbers, group numbers and sessions in the log stay below this, and in what sums it up (superblock, checkpoint) below its
/// double: no writer counts so far, and a reader can add to them without care.
pub const COUNT_MAX: u64 = 1 << 62;

/// Whether what bears that version can be read.
pub(crate) const fn is_read(version: u32) -> bool {
    version >= 1 && version <= FORMAT_VERSION
}

/// Why stored bytes were not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DecodeError {
    /// The magic number is another: nothing of this kind was ever written here.
    #[error("no such structure here")]
    Magic,
    /// The checksum does not match: torn, rotten or foreign.
    #[error("the checksum does not match")]
    Checksum,
    /// Written by a newer release.
    #[error("format version {found} is newer than the newest that this release reads there")]
    Version {
        /// The version found.
        found: u32,
    },
    /// The checksum matches but a field has a value no writer gives it.
    #[error("the field {field} has an impossible value")]
    Field {
        /// Which field.
        field: &'static str,
    },
}
