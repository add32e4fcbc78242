//! The SSD's part of the cache: where a block lies there, what is on its way, what survives a crash, and what has to give way.
//!
//! Blocks lie in [`slots`] (format version 4); earlier releases wrote a [`log`], which is read to become slots ([`upgrade`]). A store knows no volume, no
//! policy and no request; the shard knows nothing of it but what stands here and in the methods of [`Slots`].
//!
//! The words:
//! * a *slot* names a cached block on the SSD: a page, or a packed record ([`crate::index::Slot`]);
//! * a *group* is what becomes complete and durable together; groups are numbered in the order of writing ([`Commits`]);
//! * a *region*, or shelf, is a part of the SSD that is looked over as a whole when room is taken back ([`Region`]).
//!
//! Room is taken back in steps that the shard performs ([`Evict`]): it says of each block of a region whether it stays. What stays does so where it is;
//! packed records of slots that are nearly empty are read and appended again. The rest is given up, and forgotten when that is durable
//! ([`Progress::gone`]).

mod commits;
mod eviction;
mod in_flight;
pub mod log;
mod readers;
pub mod slots;
mod ssds;
pub mod upgrade;
mod waiters;

pub use commits::Commits;
pub use eviction::{Batch, Evict, EvictTurn, Eviction, Judge, Kept};
pub use in_flight::{InFlight, PackedPayload};
pub use log::{checkpoint, inspect, recovery};
pub use readers::Readers;
pub use slots::{Slots, SlotsIo};
pub use ssds::Ssds;

use crate::index::{Index, Slot};
use crate::stats::SlotGauges;
use alloc::vec::Vec;
use core::ops::Range;
use format::layout::Arrangement;
use format::slots::RingPlace;
use page::Page;
use types::{EXTENT_BLOCKS, ShardIndex};

/// Where a shard's part of the SSD is; fixed when the pool is formatted.
#[derive(Clone, Debug)]
pub struct StorePlace {
    /// The pool's.
    pub uuid: [u8; 16],
    /// The pool's running session: everything written bears its number.
    pub session: u64,
    /// Which shard's.
    pub shard: ShardIndex,
    /// The pool's geometry.
    pub layout: format::Layout,
    /// The page of the shard's part that its ring begins with.
    pub ring_first: u32,
}

impl StorePlace {
    /// Where the ring lies in the shard's part.
    pub fn ring(&self) -> RingPlace {
        RingPlace { first: self.ring_first, pages: self.layout.ring_pages }
    }

    /// Slots for blocks stored as pages.
    pub fn slots(&self) -> u32 {
        self.layout.slots_per_shard()
    }

    /// So many of them follow each other in a region.
    pub fn region_pages(&self) -> u32 {
        self.layout.pages_per_segment()
    }

    /// Where all I/O of the shard's store lies on the SSD.
    pub fn ground(&self) -> Ground {
        let format::Layout { segment_bytes, segments_per_shard, shards, arrangement, .. } = self.layout;
        let first_bytes = self.layout.segment_offset(self.shard, 0);
        let end_bytes = self.layout.segment_offset(self.shard, segments_per_shard - 1) + u64::from(segment_bytes);
        let turns = if arrangement == Arrangement::Interleaved { shards.into() } else { 1 };
        Ground { bytes: first_bytes..end_bytes, segment_bytes, turns }
    }
}

/// What of an SSD is a shard's: every so many-th segment of a range.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ground {
    bytes: Range<u64>,
    segment_bytes: u32,
    turns: u32,
}

impl Ground {
    /// Whether all of these bytes are.
    #[inline]
    pub fn has(&self, offset_bytes: u64, length_bytes: u64) -> bool {
        if offset_bytes < self.bytes.start || offset_bytes + length_bytes > self.bytes.end {
            return false;
        }
        if self.turns == 1 {
            return true;
        }
        let (segment_bytes, from) = (u64::from(self.segment_bytes), offset_bytes - self.bytes.start);
        let nth = (from >> self.segment_bytes.trailing_zeros()) as u32;
        nth.is_multiple_of(self.turns) && from % segment_bytes + length_bytes <= segment_bytes
    }
}

/// The largest unit that a volume may keep whole in a pool of this layout, in bytes; `None`: its shards are so small that not even the longest part
/// of a write finds room in one, and goes to the backing device.
pub fn atomic_bytes_max(layout: &format::Layout) -> Option<u32> {
    slots::ever_writes(layout, EXTENT_BLOCKS as u32).then_some(types::ATOMIC_BYTES_MAX)
}

/// How soon a record must be on the SSD.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Urgency {
    /// A client waits for it to be complete: now.
    Commit,
    /// A client waits for it to be complete, and others write too: as soon as no other group is under way. It waits at most for the
    /// write that keeps the SSD busy anyway, never for more clients or for the backing device.
    Share,
    /// Somebody waits for it to be durable: as soon as no flush is running (it could not be durable earlier, and others join meanwhile).
    Durable,
    /// No client waits: at this time, unless a group goes earlier anyway.
    By(u64),
}

/// What stands beside a record.
pub enum Payload {
    /// Nothing: the record says it all.
    None,
    /// The block, as it is.
    Page(Page),
    /// The block in another form; its record says which.
    Packed(PackedPayload),
}

/// Where an appended record went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Appended {
    /// The slot of its payload, or of the packed record.
    pub slot: Option<Slot>,
    /// The group to wait for.
    pub group: u64,
}

/// The number of a region: later ones are higher, and none is used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RegionId(u64);

/// A region in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Region {
    /// Its number.
    pub id: RegionId,
    /// Its place among all regions, from 0.
    pub at: u32,
    first_slot: u32,
    slots: u32,
}

impl Region {
    /// Its plain slots.
    pub fn plain_slots(&self) -> Range<u32> {
        self.first_slot..self.first_slot + self.slots
    }

    /// The slots that can hold something, plain ones first.
    pub fn slots(&self, index: &Index) -> impl Iterator<Item = Slot> + use<> {
        let packed: Vec<Slot> = index.packed_in(self.plain_slots()).collect();
        self.plain_slots().map(Slot).chain(packed)
    }
}

/// What a crash may do to a page of the SSD.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Safety {
    /// It may be on its way, or not yet.
    Volatile,
    /// It was written, and all before it: the end of the process does not undo it.
    Complete,
    /// A power cut does not undo it either.
    Durable,
}

/// Where a slot lies. Reads of it keep the region from being used again ([`Readers`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The region.
    pub region: RegionId,
    /// The region's place among all.
    pub at: u32,
    /// The page of the region where it begins.
    pub page: u32,
    /// Where that page lies on the SSD, in bytes.
    pub offset_bytes: u64,
    /// How safe that page is.
    pub safety: Safety,
    /// It is not about to be given up: new blocks may rest on what is in it.
    pub stays: bool,
}

/// What room is wanted for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// One more record, whoever needs it.
    Any,
    /// A record that makes a block void: it may take some of the room that eviction needs, but not all. While eviction waits for the
    /// SSD, short groups of such records can fill regions.
    Void,
    /// A clean block, or what can wait: never the room that eviction and dirty data need.
    Clean,
    /// A client's write of so many blocks.
    Write {
        /// How many.
        blocks: u32,
    },
    /// The same, at some time.
    EverWrite {
        /// How many.
        blocks: u32,
    },
}

/// What there is in all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capacity {
    /// Regions.
    pub regions: u64,
    /// Pages of a region for blocks.
    pub region_pages: u32,
    /// Pages for blocks beside what is kept free.
    pub usable_pages: u64,
}

/// How full a store is, for people and their graphs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gauges {
    /// The region being filled.
    pub newest_region: u64,
    /// The oldest one in use.
    pub oldest_region: u64,
    /// Regions that could be filled now.
    pub free_regions: u64,
    /// Bytes written to the SSD since the start.
    pub written_bytes: u64,
    /// Slots, and the ring.
    pub slots: SlotGauges,
}

/// What a completed I/O of the store changed.
#[derive(Default, Debug)]
pub struct Progress {
    /// Waiters whose group is complete or durable now, as they asked; all waiters if the SSD failed.
    pub ready: Vec<u32>,
    /// Slots given up, durably: what they hold is to be forgotten, and the slots to be released.
    pub gone: Vec<Slot>,
    /// The SSD failed just now.
    pub failed: bool,
    /// It flushed.
    pub flushed: bool,
}

/// What the index knows of a slot, for a sweep that states it again.
pub trait Facts {
    /// What is in the plain slot; `None` if no block is.
    fn in_slot(&self, slot: Slot) -> Option<format::slots::Set>;

    /// Packed records that begin in these plain slots.
    fn packed_count(&self, slots: Range<u32>) -> u64;

    /// The first packed slot from this one on that begins in a plain slot, and what is in it.
    fn packed_in(&self, slot: u32, from: Slot) -> Option<(Slot, format::slots::Set)>;
}
