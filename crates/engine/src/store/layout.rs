//! All layouts there are. What is asked of one is answered by the one that the pool was formatted with; a new one is one more arm.

use super::ring::{Ring, RingIo};
use super::slots::{Slots, SlotsIo};
use super::{
    Ahead, Appended, Begun, Capacity, Commits, Common, Evict, EvictTurn, Eviction, Facts, Gauges, InFlight, Judge, Payload, Place,
    Progress, Purpose, Readers, Region, Ssds, Store, StorePlace, Urgency, WorkAhead, Worth,
};
use crate::index::{Index, Slot};
use crate::outbox::Outbox;
use core::fmt;
use format::Record;
use format::checkpoint::LogEnd;
use page::PagePool;
use types::VolumeId;

/// See the module.
pub enum Layout {
    /// A ring of segments, written in order.
    Ring(Ring),
    /// Slots, and a ring of statements about them.
    Slots(Slots),
}

/// What a completion is known by.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum LayoutIo {
    /// Of the ring.
    Ring(RingIo),
    /// Of the slots.
    Slots(SlotsIo),
}

macro_rules! each {
    ($layout:expr, $store:ident => $answer:expr) => {
        match $layout {
            Layout::Ring($store) => $answer,
            Layout::Slots($store) => $answer,
        }
    };
}

impl Layout {
    /// The layout that a pool was formatted with, continued where its last session ended, with what is in `index`.
    pub fn new(place: StorePlace, start: LogEnd, index: &Index) -> Layout {
        if place.layout.has_slots() { Layout::Slots(Slots::new(place, start, index)) } else { Layout::Ring(Ring::new(place, start)) }
    }

    /// See [`crate::shard::Shard::keep_writes_apart`].
    pub fn keep_apart(&mut self) {
        if let Layout::Slots(slots) = self {
            slots.keep_apart();
        }
    }

    /// How far what was written is safe.
    #[inline]
    pub fn commits(&self) -> &Commits {
        &self.common().commits
    }

    /// The same, to wait for it.
    #[inline]
    pub fn commits_mut(&mut self) -> &mut Commits {
        &mut self.common_mut().commits
    }

    /// What is not on the SSD yet.
    #[inline]
    pub fn in_flight(&self) -> &InFlight {
        &self.common().in_flight
    }

    /// The same, to change it.
    pub fn in_flight_mut(&mut self) -> &mut InFlight {
        &mut self.common_mut().in_flight
    }

    /// Which SSD an I/O is for.
    #[inline]
    pub fn ssds(&self) -> &Ssds {
        &self.common().ssds
    }

    /// Who reads where.
    #[inline]
    pub fn readers(&mut self) -> &mut Readers {
        &mut self.common_mut().readers
    }

    /// What is being taken back.
    pub fn eviction(&self) -> &Eviction {
        &self.common().eviction
    }

    /// The same, to go on with it.
    pub fn eviction_mut(&mut self) -> &mut Eviction {
        &mut self.common_mut().eviction
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        each!(self, store => store.fmt(text))
    }
}

impl Store for Layout {
    type Io = LayoutIo;

    #[inline]
    fn common(&self) -> &Common {
        each!(self, store => store.common())
    }

    #[inline]
    fn common_mut(&mut self) -> &mut Common {
        each!(self, store => store.common_mut())
    }

    #[inline]
    fn keeps_in_place(&self) -> bool {
        each!(self, store => store.keeps_in_place())
    }

    fn expect(&mut self, pages: u32) {
        each!(self, store => store.expect(pages));
    }

    fn keep_together(&mut self, records: u32) {
        each!(self, store => store.keep_together(records));
    }

    fn append(&mut self, record: Record, old: Option<Slot>, payload: Payload, urgency: Urgency) -> Appended {
        each!(self, store => store.append(record, old, payload, urgency))
    }

    fn note_home(&mut self, volume: VolumeId, block: u64, slot: Slot, checksum: u32, urgency: Urgency) -> u64 {
        each!(self, store => store.note_home(volume, block, slot, checksum, urgency))
    }

    fn may_pack(&self) -> bool {
        each!(self, store => store.may_pack())
    }

    fn ended(&mut self, slot: Slot) {
        each!(self, store => store.ended(slot));
    }

    fn unasked(&mut self) -> alloc::vec::Vec<u32> {
        each!(self, store => store.unasked())
    }

    fn emptied(&mut self, slot: u32) {
        each!(self, store => store.emptied(slot));
    }

    fn release(&mut self, slot: Slot) {
        each!(self, store => store.release(slot));
    }

    fn may_let_go(&self) -> bool {
        each!(self, store => store.may_let_go())
    }

    fn let_go(&mut self, slot: Slot) {
        each!(self, store => store.let_go(slot));
    }

    #[inline]
    fn place(&self, slot: Slot, packed_at: Option<u32>) -> Place {
        each!(self, store => store.place(slot, packed_at))
    }

    fn region(&self, at: u32) -> Option<Region> {
        each!(self, store => store.region(at))
    }

    fn has_room(&self, purpose: Purpose) -> bool {
        each!(self, store => store.has_room(purpose))
    }

    fn capacity(&self) -> Capacity {
        each!(self, store => store.capacity())
    }

    fn evict(&mut self, turn: &EvictTurn, index: &Index, pool: &PagePool) -> Evict {
        each!(self, store => store.evict(turn, index, pool))
    }

    #[inline]
    fn end_turn(&mut self, now_ns: u64) -> Option<Begun> {
        each!(self, store => store.end_turn(now_ns))
    }

    fn pump<C>(&mut self, now_ns: u64, pool: &PagePool, facts: &dyn Facts, out: &mut Outbox<C>, context: impl Fn(LayoutIo) -> C) {
        match self {
            Layout::Ring(ring) => ring.pump(now_ns, pool, facts, out, |io| context(LayoutIo::Ring(io))),
            Layout::Slots(slots) => slots.pump(now_ns, pool, facts, out, |io| context(LayoutIo::Slots(io))),
        }
    }

    fn completed(&mut self, io: LayoutIo, ok: bool) -> Progress {
        match (self, io) {
            (Layout::Ring(ring), LayoutIo::Ring(io)) => ring.completed(io, ok),
            (Layout::Slots(slots), LayoutIo::Slots(io)) => slots.completed(io, ok),
            (Layout::Ring(_), LayoutIo::Slots(_)) | (Layout::Slots(_), LayoutIo::Ring(_)) => unreachable!("an I/O of another layout"),
        }
    }

    fn deadline(&self) -> Option<u64> {
        each!(self, store => store.deadline())
    }

    fn is_short_of_pages(&self) -> bool {
        each!(self, store => store.is_short_of_pages())
    }

    fn is_idle(&self) -> bool {
        each!(self, store => store.is_idle())
    }

    fn end(&self) -> LogEnd {
        each!(self, store => store.end())
    }

    fn gauges(&self) -> Gauges {
        each!(self, store => store.gauges())
    }
}

impl WorkAhead for Layout {
    fn look_ahead(&self, turn: &EvictTurn, under_way: bool, worth: impl Fn(Region) -> Worth) -> Ahead {
        each!(self, store => store.look_ahead(turn, under_way, worth))
    }

    fn begin_ahead(&mut self, turn: &EvictTurn, worth: Worth) -> Option<Judge> {
        each!(self, store => store.begin_ahead(turn, worth))
    }

    fn resume_ahead(&mut self) {
        each!(self, store => store.resume_ahead());
    }

    fn pause_ahead(&mut self) {
        each!(self, store => store.pause_ahead());
    }

    fn works_ahead(&self) -> bool {
        each!(self, store => store.works_ahead())
    }
}
