//! The SSD's part of the cache: where a block lies there, what is on its way, what survives a crash, and what has to give way.
//!
//! [`Store`] is the seam between the shard and a *layout*: how records and payloads lie on the SSD. There are two: the [`ring`] of segments
//! (format version 3), and [`slots`] (version 4). A layout knows no volume, no policy and no request; the shard knows nothing of a layout
//! but what stands here. It holds a [`Layout`], which names them all, and calls them without indirection.
//!
//! The words that all layouts share:
//! * a *slot* names a cached block on the SSD: a page, or a packed record ([`crate::index::Slot`]);
//! * a *group* is what becomes complete and durable together; groups are numbered in the order of writing ([`Commits`]);
//! * a *region* is a part of the SSD that is looked over as a whole when room is taken back ([`Region`]).
//!
//! Room is taken back in steps that the shard performs ([`Evict`]): it says of each block of a region whether it stays. What stays is read and
//! appended again, and the region given up as a whole ([`Progress::freed`]); or it stays where it is, and the rest is given up
//! ([`Progress::gone`]), where [`Store::keeps_in_place`]. What was given up durably is forgotten.

mod commits;
mod eviction;
mod in_flight;
mod layout;
mod readers;
pub mod ring;
pub mod slots;
mod ssds;
pub mod upgrade;
mod waiters;

pub use commits::Commits;
pub use eviction::{Batch, Evict, EvictTurn, Eviction, Judge, Kept};
pub use in_flight::{InFlight, PackedPayload, Placed};
pub use layout::{Layout, LayoutIo};
pub use readers::Readers;
pub use ring::{checkpoint, inspect, recovery};
pub use ssds::Ssds;

use crate::index::{Index, Slot};
use crate::outbox::Outbox;
use crate::stats::SlotGauges;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;
use format::Record;
use format::checkpoint::LogEnd;
use format::layout::Arrangement;
use format::slots::RingPlace;
use page::{Page, PagePool};
use types::{EXTENT_BLOCKS, ShardIndex, VolumeId};

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
    /// With slots: the page of the shard's part that its ring begins with. Else 0.
    pub ring_first: u32,
}

impl StorePlace {
    /// With slots: where the ring lies in the shard's part.
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
    let blocks = EXTENT_BLOCKS as u32;
    let has_room = if layout.has_slots() { slots::ever_writes(layout, blocks) } else { ring::ever_writes(layout, blocks) };
    has_room.then(|| layout.atomic_bytes_max())
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
        let packed: Vec<Slot> = match index.is_numbered_by_place() {
            true => index.packed_in(self.plain_slots()).collect(),
            false => (0..index.packed_len(self.at)).map(|ordinal| index.packed_slot(self.at, ordinal)).collect(),
        };
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
    /// Regions begun since that one was.
    pub age_regions: u32,
    /// How safe that page is.
    pub safety: Safety,
    /// The region belongs to what a start would find.
    pub is_live: bool,
    /// The region is not about to be given up: new blocks may rest on what is in it.
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
    /// Where blocks lie in slots.
    pub slots: Option<SlotGauges>,
}

/// A region was begun.
#[derive(Debug)]
pub struct Begun {
    /// The one before, which gets no more.
    pub full: Option<Region>,
    /// Those that are soon to be given up and were not named here before.
    pub next_to_go: Vec<Region>,
}

/// What a completed I/O of the store changed.
#[derive(Default, Debug)]
pub struct Progress {
    /// Waiters whose group is complete or durable now, as they asked; all waiters if the SSD failed.
    pub ready: Vec<u32>,
    /// Regions given up, durably: nothing there is found by a start any more.
    pub freed: Vec<Region>,
    /// Slots given up, durably, in place: what they hold is to be forgotten, and the slots to be released.
    pub gone: Vec<Slot>,
    /// The SSD failed just now.
    pub failed: bool,
    /// It flushed.
    pub flushed: bool,
}

/// What is alive in a region, if it was appended again.
#[derive(Clone, Copy, Default, Debug)]
pub struct Worth {
    /// Bytes of what is alive.
    pub live_bytes: u64,
    /// Of them, those of blocks that could be stored denser.
    pub loose_bytes: u64,
    /// Pages it would take if nothing is gained.
    pub pages: u64,
}

/// What working ahead of need finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ahead {
    /// Not now: something is on its way.
    Later,
    /// Nothing that pays.
    Nothing,
    /// This region may be next.
    Next(Region),
}

/// What the index knows of a slot, for a layout that states it again.
pub trait Facts {
    /// What is in the plain slot; `None` if no block is.
    fn in_slot(&self, slot: Slot) -> Option<format::slots::Set>;

    /// Packed records that begin in these plain slots.
    fn packed_count(&self, slots: Range<u32>) -> u64;

    /// The first packed slot from this one on that begins in a plain slot, and what is in it.
    fn packed_in(&self, slot: u32, from: Slot) -> Option<(Slot, format::slots::Set)>;
}

/// What all layouts keep alike.
pub struct Common {
    /// Groups, and who waits for them.
    pub commits: Commits,
    /// What is not on the SSD yet.
    pub in_flight: InFlight,
    /// Which SSD an I/O is for.
    pub ssds: Ssds,
    /// Who reads where.
    pub readers: Readers,
    /// What is being taken back.
    pub eviction: Eviction,
    /// The pool is being stopped: nothing is begun that can wait.
    pub quiescing: bool,
}

/// The seam; see the module. The state that layouts share is behind [`Store::common`].
pub trait Store: fmt::Display {
    /// What completions of its I/Os are known by.
    type Io: Copy + PartialEq + fmt::Debug;

    /// Groups, waiters, readers, and what is in flight.
    fn common(&self) -> &Common;

    /// The same, to change it.
    fn common_mut(&mut self) -> &mut Common;

    /// Whether what stays when room is taken back stays where it is. Else it is appended again.
    fn keeps_in_place(&self) -> bool;

    /// So many pages are appended next, for one request, if they are appended in this turn: they should lie side by side.
    fn expect(&mut self, pages: u32);

    /// The next so many records, each with a page or less beside it, go into one group.
    ///
    /// # Panics
    /// Without room for [`Purpose::Write`] of so many blocks, or if more is asked for than
    /// [`Layout::atomic_bytes_max`](Layout::atomic_bytes_max) allows.
    fn keep_together(&mut self, records: u32);

    /// Appends a record, with what stands beside it; `old`: the slot of the block's version until now. The index must point to the slot
    /// from now on: the store does not know what is current.
    ///
    /// # Panics
    /// Without room for [`Purpose::Any`].
    fn append(&mut self, record: Record, old: Option<Slot>, payload: Payload, urgency: Urgency) -> Appended;

    /// Appends that the block in this slot, whose record has that checksum, has come home; gives the group.
    ///
    /// # Panics
    /// As [`Store::append`].
    fn note_home(&mut self, volume: VolumeId, block: u64, slot: Slot, checksum: u32, urgency: Urgency) -> u64;

    /// Whether another packed record may be appended. What is moved may in any case.
    fn may_pack(&self) -> bool;

    /// Where packed slots are numbered by place: one that was appended holds nothing any more.
    fn ended(&mut self, slot: Slot);

    /// Where packed slots are numbered by place: plain slots of which to ask once more whether they hold anything packed.
    fn unasked(&mut self) -> Vec<u32>;

    /// A plain slot in which packed records were appended holds none any more.
    fn emptied(&mut self, slot: u32);

    /// A slot of [`Progress::gone`] has left the index.
    fn release(&mut self, slot: Slot);

    /// Whether [`Store::let_go`] may be called now; while not, it may be after groups were written.
    fn may_let_go(&self) -> bool;

    /// A slot has left the index without a record: nobody will ask for its block again.
    fn let_go(&mut self, slot: Slot);

    /// Where a slot lies. Of a packed record with the place that it was given in its region, in units of 16 bytes.
    fn place(&self, slot: Slot, packed_at: Option<u32>) -> Place;

    /// The region in use at that place among all, if there is one.
    fn region(&self, at: u32) -> Option<Region>;

    /// Whether there is room now; while there is not, there can be after regions were given up.
    fn has_room(&self, purpose: Purpose) -> bool;

    /// What there is in all.
    fn capacity(&self) -> Capacity;

    /// The next step of taking room back, of those that are needed now.
    fn evict(&mut self, turn: &EvictTurn, index: &Index, pool: &PagePool) -> Evict;

    /// Ends a turn, in which everything that can proceed did. Gives regions that were begun, one at a time, until there is none.
    fn end_turn(&mut self, now_ns: u64) -> Option<Begun>;

    /// Hands out what is due.
    fn pump<C>(&mut self, now_ns: u64, pool: &PagePool, facts: &dyn Facts, out: &mut Outbox<C>, context: impl Fn(Self::Io) -> C);

    /// An I/O has completed, or failed: that is final, nothing more is written.
    fn completed(&mut self, io: Self::Io, ok: bool) -> Progress;

    /// When to call [`Store::pump`] or [`Store::end_turn`] if nothing happens.
    fn deadline(&self) -> Option<u64>;

    /// Whether the last [`Store::pump`] lacked pages: nobody tells when there are some.
    fn is_short_of_pages(&self) -> bool;

    /// Whether nothing is being written, flushed or waiting to be.
    fn is_idle(&self) -> bool;

    /// Where it would continue after a stop. Only when idle.
    fn end(&self) -> LogEnd;

    /// How full it is.
    fn gauges(&self) -> Gauges;
}

/// Taking regions back ahead of need, to store what is in them denser. A layout that never does answers [`Ahead::Nothing`].
pub trait WorkAhead {
    /// Whether a region is worth it; `under_way`: the one before was.
    fn look_ahead(&self, turn: &EvictTurn, under_way: bool, worth: impl Fn(Region) -> Worth) -> Ahead;

    /// Begins with the region that was next, if there would be room even if nothing is gained. It is to be judged at once.
    fn begin_ahead(&mut self, turn: &EvictTurn, worth: Worth) -> Option<Judge>;

    /// Work goes on where it paused: what is appended from now on is not worth it again.
    fn resume_ahead(&mut self);

    /// Work pauses, or ends.
    fn pause_ahead(&mut self);

    /// Whether what is appended now is appended by it.
    fn works_ahead(&self) -> bool;
}
