//! Blocks in slots: a block is written into any free page, and a small ring of pages says what is where ([`format::slots`]).
//!
//! Life of a block: [`Slots::append`] takes a free slot for it and adds a statement to the *building* group; [`Slots::pump`] turns the
//! group into a page of the ring and the writes of its slots, all at once; when those and all earlier groups are done, the group is
//! *complete*; after the next flush it is *durable*. The slot that the block had before is free again when the group that says so is
//! durable and nobody reads it any more ([`slots::places`]). So nothing that a start may find is ever written over.
//!
//! With each group the *sweep* states again what lives in the next slots ([`write`]), so that the ring's tail may pass older pages
//! ([`slots::rounds`]). When slots become few, the *hand* goes over shelves of them and gives up clean blocks that are not used ([`hand`]).
//! What is stored as a page is never moved. Packed payloads share slots ([`bins`]); where few of them are left, the hand moves those.
//!
//! Invariants:
//! * No write meets a slot that a map names which recovery may still choose: those of the durable group and of all behind it.
//! * A page of the ring is written over only when a durable group says that the tail has passed it.
//! * A group's statements are true at its end: what the sweep adds is said when the group is closed, and no later one has begun.
//! * After a failed write or flush nothing more is written and nothing becomes complete or durable.

mod bins;
mod found;
mod group;
mod hand;
mod held;
mod inspect;
pub mod recovery;
pub mod stop;
mod write;
mod young;

use super::{
    Appended, Capacity, Commits, Eviction, Gauges, InFlight, PackedPayload, Payload, Place, Purpose, Readers, Region, RegionId, Safety,
    Ssds, StorePlace, Urgency,
};
use crate::api::WriteKind;
use crate::index::{self, BYTES_PER_NUMBER, Index, Slot};
use crate::mutants;
use crate::stats::SlotGauges;
use ::slots::{Places, Rounds};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use bins::Packs;
pub(super) use bins::packed_records_max;
use core::fmt;
use format::checkpoint::LogEnd;
use format::slots::statement::Stored;
use format::slots::statement::UNIT_BYTES;
use format::slots::{STATEMENT_BYTES_MAX, Set, Statement};
use format::{Record, RecordKind};
use group::{Building, Writing};
use hand::Hand;
use types::BLOCK_BYTES;
use write::{Quiet, SWEPT_A_PAGE};
use young::Young;

/// Short statements that a page has room for. A long one may leave the last unit of a page empty.
const UNITS_A_PAGE: u64 = (STATEMENT_BYTES_MAX / UNIT_BYTES) as u64 - 1;

const _: () = assert!(BYTES_PER_NUMBER as usize == format::slots::statement::PLACE_BYTES);

/// Groups being written at the same time. Two keep the SSD busy, the others hide the gap between a completion and the next submission.
const GROUPS_IN_FLIGHT_MAX: usize = 4;

/// The engine flushes by itself when so many pages (16 MiB) are not durable, or a 64th of the slots: recovery after a power cut has little
/// to verify, and slots that were left become free.
const UNFLUSHED_PAGES_MAX: u32 = 4096;
const UNFLUSHED_ONE_IN: u32 = 64;

/// Blocks of which only some sectors are valid take twice the room in a page: they are at most one in so many, and those of the requests that
/// were under way when that many were reached.
const PARTIAL_ONE_IN: u32 = 16;
const PARTIAL_UNDER_WAY: u32 = 1024;

/// Pages of the ring that only a group may take which makes room, and those that only voids may.
const RING_RESERVE: u64 = 4;
const RING_RESERVE_OF_VOIDS: u64 = 2;

/// One in so many slots is kept free for what must be written, and so many more the hand keeps ahead of need.
const RESERVE_ONE_IN: u32 = 256;
const AHEAD_ONE_IN: u32 = 128;

/// Dirty blocks are called home so many shelves, of all, before the hand comes to them.
const HOME_AHEAD_ONE_IN: u32 = 8;

/// What the completion of one of its I/Os means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SlotsIo {
    /// The page of this group was written.
    Page(u64),
    /// A run of its slots was.
    Run(u64),
    /// The SSD flushed: what was complete when it was issued is durable.
    Flush,
}

/// See the module.
pub struct Slots {
    place: StorePlace,
    /// Groups, and who waits for them.
    commits: Commits,
    /// What is not on the SSD yet.
    in_flight: InFlight,
    /// Which SSD an I/O is for.
    ssds: Ssds,
    /// Who reads where.
    readers: Readers,
    /// What is being taken back.
    eviction: Eviction,
    /// The pool is being stopped: nothing is begun that can wait.
    quiescing: bool,
    places: Places,
    rounds: Rounds,
    young: Young,
    packs: Box<Packs>,
    /// The sweep has said of the slot that is next what lies before this packed slot.
    swept_to: u32,
    /// Slots taken for a request whose blocks are appended now, the next one last.
    expected: Vec<u32>,
    /// The group that takes statements now.
    building: Option<Building>,
    /// Full groups waiting to be handed out, oldest first.
    closed: VecDeque<Building>,
    writing: VecDeque<Writing>,
    /// The tail that the newest complete group names, and the newest durable one.
    complete_tail: u64,
    durable_tail: u64,
    /// The running flush: which group and which tail it makes durable.
    flush: Option<(u64, u64)>,
    unflushed_pages: u32,
    written_pages: u64,
    /// Who reads now is counted under this number; it grows with each flush.
    epoch: u64,
    hand: Box<Hand>,
    quiet: Quiet,
    /// What the SSD has streams for is not written at once.
    apart: bool,
    /// Something could not be written for want of pages.
    short_of_pages: bool,
}

impl Slots {
    /// A store that continues at `start`, with what is in `index`.
    pub fn new(place: StorePlace, start: LogEnd, index: &Index) -> Slots {
        let layout = &place.layout;
        let (slots, ring) = (layout.slots_per_shard(), place.ring());
        let (first, last) = (start.tail_seq, start.next_group - 1);
        let (packs, packed) = Packs::found(index, slots);
        let is_packed = |slot: u32| packed.get((slot / u64::BITS) as usize).is_some_and(|word| word >> (slot % u64::BITS) & 1 != 0);
        let is_used = |slot: u32| ring.contains(slot) || index.key_of(Slot(slot)).is_some() || is_packed(slot);
        Slots {
            places: Places::new(slots, is_used),
            rounds: Rounds::new(slots - ring.pages, first, last),
            young: Young::new(slots),
            packs: Box::new(packs),
            swept_to: 0,
            expected: Vec::new(),
            building: None,
            closed: VecDeque::new(),
            writing: VecDeque::new(),
            complete_tail: first,
            durable_tail: first,
            flush: None,
            unflushed_pages: 0,
            written_pages: 0,
            epoch: 1,
            hand: Box::new(Hand::new(hand::shelf_from(0, layout, ring))),
            quiet: Quiet::new(start.next_group - 1),
            apart: false,
            short_of_pages: false,
            commits: Commits::new(start.next_group - 1),
            in_flight: InFlight::default(),
            ssds: Ssds,
            readers: Readers::default(),
            eviction: Eviction::default(),
            quiescing: false,
            place,
        }
    }

    /// How far what was written is safe.
    #[inline]
    pub fn commits(&self) -> &Commits {
        &self.commits
    }

    /// The same, to wait for it.
    #[inline]
    pub fn commits_mut(&mut self) -> &mut Commits {
        &mut self.commits
    }

    /// What is not on the SSD yet.
    #[inline]
    pub fn in_flight(&self) -> &InFlight {
        &self.in_flight
    }

    /// Which SSD an I/O is for.
    #[inline]
    pub fn ssds(&self) -> &Ssds {
        &self.ssds
    }

    /// Who reads where.
    #[inline]
    pub fn readers(&mut self) -> &mut Readers {
        &mut self.readers
    }

    /// What is being taken back.
    pub fn eviction(&self) -> &Eviction {
        &self.eviction
    }

    /// The same, to go on with it.
    pub fn eviction_mut(&mut self) -> &mut Eviction {
        &mut self.eviction
    }

    /// The pool is being stopped: from now on nothing is begun that can wait.
    pub fn quiesce(&mut self) {
        self.quiescing = true;
    }

    /// See [`crate::shard::Shard::keep_writes_apart`].
    pub fn keep_apart(&mut self) {
        self.apart = true;
    }

    fn ring_pages(&self) -> u64 {
        u64::from(self.place.layout.ring_pages)
    }

    /// Pages of the ring that may be in use: behind them a start must be able to state everything.
    fn usable_pages(&self) -> u64 {
        usable_pages(&self.place.layout, self.stated_units())
    }

    /// Groups that may still begin before a page of the ring would be written over that is needed.
    fn ring_room(&self) -> u64 {
        (self.durable_tail + self.usable_pages()).saturating_sub(self.commits.last() + 1)
    }

    /// Of them, those that the sweep does not need to make up for what it owes.
    fn ring_room_for_others(&self) -> u64 {
        self.ring_room().saturating_sub(self.rounds.owed().div_ceil(SWEPT_A_PAGE).max(self.sweep_pages()))
    }

    /// Slots kept for what must be written.
    fn reserve(&self) -> u32 {
        (self.places.slots() / RESERVE_ONE_IN).max(8)
    }

    /// Nothing current is in the slot any more, as the group says. Of a packed one the index says what that means for what lies beside it.
    fn leave(&mut self, slot: Slot, group: u64) {
        self.hand.left(slot.0);
        if !slot.is_packed() {
            self.places.leave(slot.0, group, self.epoch);
        }
    }

    /// Slots that were left become free, if nothing hinders it any more.
    fn settle(&mut self) {
        let oldest = self.readers.oldest().map_or(u64::MAX, |region| region.0);
        let early = mutants::active(mutants::SLOT_REUSED_EARLY);
        let oldest = if mutants::active(mutants::SLOT_REUSED_WHILE_READ) { u64::MAX } else { oldest };
        self.places.settle(if early { u64::MAX } else { self.commits.durable() }, oldest);
    }

    /// A slot for one block.
    fn slot_for_one(&mut self) -> u32 {
        if let Some(slot) = self.expected.pop() {
            return slot;
        }
        let mut taken = None;
        self.places.take(1, |run| taken = Some(run.first));
        taken.or_else(|| self.spare_of_bin()).expect("there is room")
    }

    /// The group that takes statements, with so much room; gives its number.
    fn group_with_room(&mut self, bytes: usize) -> u64 {
        if self.building.as_ref().is_some_and(|building| building.room() < bytes) {
            self.close_building();
        }
        if self.building.is_none() {
            self.begin_group();
        }
        self.building.as_ref().expect("begun above").group
    }

    fn append_packed(&mut self, record: &Record, old: Option<Slot>, payload: PackedPayload, urgency: Urgency) -> (Slot, u64) {
        let group = self.group_with_room(2 * UNIT_BYTES);
        let slot = match bins::page_of(&payload) {
            Some(page) if record.has_page_payload() => self.lay_page(page, written_as(record.kind), group),
            _ => self.lay(&payload, group),
        };
        let (place, unit) = stated_place(slot);
        let packed = record.packed.expect("how a packed record is stored");
        let stored =
            Stored { encoding: packed.encoding, object: packed.object, bytes: packed.bytes, unit: unit.expect("a packed slot has one") };
        let set = Set {
            volume: record.volume,
            block: record.block,
            mask: u8::MAX,
            dirty: matches!(record.kind, RecordKind::DataDirty | RecordKind::DataLost),
            settled: false,
            lost: record.kind == RecordKind::DataLost,
            vital: packed.vital,
            checksum: record.checksum,
            slot: place,
            old: old.map(|old| stated_place(old).0).filter(|_| !mutants::active(mutants::OLD_SLOT_FORGOTTEN)),
            stored: Some(stored),
        };
        let said_in = self.say(Statement::Set(set), urgency);
        assert_eq!(said_in, group, "it says what lies in its slots");
        self.building.as_mut().expect("it takes statements").packed.push(slot);
        self.in_flight.add_packed(slot, payload);
        (slot, group)
    }

    /// Nothing is to be written or flushed, or ever will be.
    fn has_written_all(&self) -> bool {
        let written = self.building.is_none() && self.closed.is_empty() && self.writing.is_empty();
        self.commits.is_failed() || written && self.flush.is_none()
    }

    fn region_at(&self, at: u32) -> Region {
        let pages = self.place.layout.pages_per_segment();
        Region { id: RegionId(self.epoch), at, first_slot: at * pages, slots: pages }
    }
}

/// Whether a write of so many blocks may ever find room: it may take a quarter of the slots.
pub(super) fn ever_writes(layout: &format::Layout, blocks: u32) -> bool {
    blocks <= (layout.slots_per_shard() / 4).max(1)
}

/// Pages of the ring that may be in use at once, where a start has to state so much beside partial blocks.
fn usable_pages(layout: &format::Layout, stated_units: u64) -> u64 {
    let stated = (stated_units + partial_units(layout)).div_ceil(UNITS_A_PAGE) + 1;
    u64::from(layout.ring_pages).saturating_sub(stated)
}

/// What blocks of which only some sectors are valid take in statements beyond those of others.
fn partial_units(layout: &format::Layout) -> u64 {
    u64::from(layout.slots_per_shard() / PARTIAL_ONE_IN + PARTIAL_UNDER_WAY)
}

/// What a page is to the SSD that holds the content of such a record. What others rest on stays as clean blocks do.
fn written_as(kind: RecordKind) -> WriteKind {
    match kind {
        RecordKind::DataDirty | RecordKind::DataLost => WriteKind::Clients,
        _ => WriteKind::Fills,
    }
}

/// What a statement says, as the index has it: the slot, and how a packed record is stored.
pub fn in_index(set: &Set) -> (Slot, Option<index::Stored>) {
    let Some(stored) = set.stored else { return (Slot(set.slot), None) };
    let slot = Index::slot_at(set.slot, u32::from(stored.unit) * UNIT_BYTES as u32);
    // The index knows the place by the slot.
    let Stored { encoding, object, bytes, .. } = stored;
    (slot, Some(index::Stored { encoding, place: 0, bytes, object }))
}

/// The place of a packed slot, as statements say it: the slot that it begins in, and where.
fn stated_place(slot: Slot) -> (u32, Option<u8>) {
    if !slot.is_packed() {
        return (slot.0, None);
    }
    let units = BYTES_PER_NUMBER / UNIT_BYTES as u32;
    (Index::page_of(slot), Some((Index::number_in_page(slot) * units) as u8))
}

impl fmt::Display for Slots {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        let commits = &self.commits;
        write!(
            text,
            "slots: {} free, {} leaving of {}; packed: {}; hand: {}; ring: tail {} (durable {}), head {}, {} pages, sweep owes {}; groups complete {} durable {} last {}{}",
            self.places.free(),
            self.places.leaving(),
            self.places.slots(),
            self.packs,
            self.hand,
            self.rounds.tail(),
            self.durable_tail,
            self.rounds.head(),
            self.ring_pages(),
            self.rounds.owed(),
            commits.complete(),
            commits.durable(),
            commits.last(),
            if commits.is_failed() { ", FAILED" } else { "" },
        )
    }
}

impl Slots {
    /// So many pages are appended next, for one request, if they are appended in this turn: they should lie side by side.
    pub fn expect(&mut self, pages: u32) {
        self.expected_is_over();
        let expected = &mut self.expected;
        if pages > 1 && self.places.take(pages, |run| expected.extend(run.first..run.first + run.count)) {
            self.expected.reverse();
        }
    }

    /// The next so many records, each with a page or less beside it, go into one group.
    ///
    /// # Panics
    /// Without room for [`Purpose::Write`] of so many blocks, or if more is asked for than
    /// [`atomic_bytes_max`](crate::store::atomic_bytes_max) allows.
    pub fn keep_together(&mut self, records: u32) {
        let bytes = records as usize * 2 * UNIT_BYTES;
        assert!(bytes <= STATEMENT_BYTES_MAX, "{records} records fit a group");
        if self.building.as_ref().is_some_and(|building| building.room() < bytes) {
            self.close_building();
        }
    }

    /// Appends a record, with what stands beside it; `old`: the slot of the block's version until now. The index must point to the slot
    /// from now on: the store does not know what is current.
    ///
    /// # Panics
    /// Without room for [`Purpose::Any`].
    pub fn append(&mut self, record: Record, old: Option<Slot>, payload: Payload, urgency: Urgency) -> Appended {
        let group;
        let mut slot = None;
        match payload {
            Payload::Page(page) => {
                let taken = self.slot_for_one();
                let Record { kind, volume, block, mask, checksum, .. } = record;
                let set = Set {
                    volume,
                    block,
                    mask,
                    dirty: kind != RecordKind::DataClean,
                    settled: false,
                    lost: false,
                    vital: false,
                    checksum,
                    slot: taken,
                    old: old.map(|old| stated_place(old).0).filter(|_| !mutants::active(mutants::OLD_SLOT_FORGOTTEN)),
                    stored: None,
                };
                group = self.say(Statement::Set(set), urgency);
                self.building.as_mut().expect("it takes statements").payloads.push((taken, page.clone(), written_as(kind)));
                self.young.add(taken, group);
                self.in_flight.add(Slot(taken), page);
                slot = Some(Slot(taken));
            }
            Payload::None => {
                assert_eq!(record.kind, RecordKind::Invalidate, "a record without payload");
                let (slot, unit) = stated_place(old.expect("a block that is made void is in a slot"));
                group = self.say(Statement::Gone { slot, unit, checksum: record.checksum }, urgency);
            }
            Payload::Packed(payload) => {
                let laid;
                (laid, group) = self.append_packed(&record, old, payload, urgency);
                slot = Some(laid);
            }
        }
        if let Some(old) = old {
            self.leave(old, group);
        }
        self.hand.something_changed();
        Appended { slot, group }
    }

    /// Appends that the block in this slot, whose record has that checksum, has come home; gives the group.
    ///
    /// # Panics
    /// As [`Slots::append`].
    pub fn note_home(&mut self, slot: Slot, checksum: u32, urgency: Urgency) -> u64 {
        self.hand.something_changed();
        let (slot, unit) = stated_place(slot);
        self.say(Statement::Home { slot, unit, checksum }, urgency)
    }

    /// Where a slot lies. Of a packed record with the place that it was given in its region, in units of 16 bytes.
    #[inline]
    pub fn place(&self, slot: Slot) -> Place {
        let pages = self.place.layout.pages_per_segment();
        let stays = !slot.is_packed() || !self.hand.is_going(slot.0) || mutants::active(mutants::RESTS_ON_LEAVING_BASE);
        let slot = if slot.is_packed() { Index::page_of(slot) } else { slot.0 };
        let (at, page) = (slot / pages, slot % pages);
        let safety = match self.young.group_of(slot) {
            None => Safety::Durable,
            Some(group) if group <= self.commits.durable() => Safety::Durable,
            Some(group) if group <= self.commits.complete() => Safety::Complete,
            Some(_) => Safety::Volatile,
        };
        Place {
            region: RegionId(self.epoch),
            at,
            page,
            offset_bytes: self.place.layout.page_offset(self.place.shard, at, page),
            safety,
            stays,
        }
    }

    /// The region in use at that place among all, if there is one.
    pub fn region(&self, at: u32) -> Option<Region> {
        (at < self.place.layout.segments_per_shard).then(|| self.region_at(at))
    }

    /// Whether there is room now; while there is not, there can be after regions were given up.
    pub fn has_room(&self, purpose: Purpose) -> bool {
        let (free, ring) = (self.places.free(), self.ring_room_for_others());
        !self.commits.is_failed()
            && match purpose {
                Purpose::Any => ring > 0 && free > 0,
                Purpose::Void => ring > if mutants::active(mutants::VOIDS_TAKE_RESERVE) { 0 } else { RING_RESERVE_OF_VOIDS },
                Purpose::Clean => ring > RING_RESERVE && free > self.reserve() * 2,
                Purpose::Write { blocks } => ring > RING_RESERVE && free >= self.reserve() + blocks,
                Purpose::EverWrite { blocks } => ever_writes(&self.place.layout, blocks),
            }
    }

    /// What there is in all.
    pub fn capacity(&self) -> Capacity {
        let layout = &self.place.layout;
        let usable = self.places.slots() - layout.ring_pages - self.reserve() - self.places.slots() / AHEAD_ONE_IN;
        Capacity { regions: layout.segments_per_shard.into(), region_pages: layout.pages_per_segment(), usable_pages: usable.into() }
    }

    /// Ends a turn, in which everything that can proceed did. Gives shelves to which the hand will come soon: what is dirty there is to be brought home
    /// before.
    #[inline]
    pub fn end_turn(&mut self, now_ns: u64) -> Vec<Region> {
        self.expected_is_over();
        self.say_what_is_emptied(now_ns);
        self.end_quietly(now_ns);
        let shelves = self.place.layout.segments_per_shard;
        let begun = self.hand.take_begun();
        begun.into_iter().map(|at| self.region_at((at + shelves / HOME_AHEAD_ONE_IN) % shelves)).collect()
    }

    /// A slot of [`Progress::gone`] has left the index.
    pub fn release(&mut self, slot: Slot) {
        if !slot.is_packed() {
            self.places.leave_durably(slot.0, self.epoch);
            self.settle();
        }
    }

    /// Whether [`Slots::let_go`] may be called now; while not, it may be after groups were written.
    pub fn may_let_go(&self) -> bool {
        self.commits.is_failed() || self.has_room(Purpose::Void)
    }

    /// A slot has left the index without a record: nobody will ask for its block again.
    pub fn let_go(&mut self, slot: Slot) {
        if !self.commits.is_failed() {
            let (place, unit) = stated_place(slot);
            let group = self.say(Statement::Gone { slot: place, unit, checksum: 0 }, Urgency::By(0));
            self.leave(slot, group);
        }
    }

    /// When to call [`Slots::pump`] or [`Slots::end_turn`] if nothing happens.
    pub fn deadline(&self) -> Option<u64> {
        let room = self.closed.len() + self.writing.len() < GROUPS_IN_FLIGHT_MAX && !self.commits.is_failed();
        let group = self.building.as_ref().filter(|_| room).map(|building| building.deadline_ns).filter(|time| *time != u64::MAX);
        [group, self.quiet_deadline()].into_iter().flatten().min()
    }

    /// Whether something is begun that becomes due by itself, or waits for pages.
    pub fn has_begun(&self) -> bool {
        self.building.is_some() || !self.closed.is_empty()
    }

    /// Whether the last [`Slots::pump`] lacked pages: nobody tells when there are some.
    pub fn is_short_of_pages(&self) -> bool {
        self.short_of_pages
    }

    /// Whether nothing is being written, flushed or waiting to be.
    pub fn is_idle(&self) -> bool {
        self.has_written_all() && !self.owes_last_word()
    }

    /// Where it would continue after a stop. Only when idle.
    pub fn end(&self) -> LogEnd {
        LogEnd { next_seq: self.commits.last() + 1, next_group: self.commits.last() + 1, tail_seq: self.rounds.tail() }
    }

    /// How full it is.
    pub fn gauges(&self) -> Gauges {
        Gauges {
            newest_region: self.rounds.head(),
            oldest_region: self.rounds.tail(),
            free_regions: u64::from(self.places.free() / self.place.layout.pages_per_segment()),
            written_bytes: self.written_pages * BLOCK_BYTES,
            slots: SlotGauges {
                slots: u64::from(self.places.slots() - self.place.layout.ring_pages),
                free: u64::from(self.places.free()),
                leaving: u64::from(self.places.leaving()),
                free_runs: self.places.free_runs(),
                packed: self.packs.slots,
                packed_records: self.packs.records,
                packed_bytes: 0,
                ring_pages: self.ring_pages(),
                ring_used_pages: (self.commits.last() + 1).saturating_sub(self.durable_tail).min(self.ring_pages()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::Layout;

    /// Behind all pages that may be in use, a start has room to state everything: as many long statements as there can be, each of which may
    /// leave a unit of its page empty.
    #[test]
    fn a_start_has_room_in_every_ring() {
        for (ssd_bytes, shards) in [(3_u64 << 20, 1), (64 << 20, 1), (1 << 30, 2), (100 << 30, 2), (1 << 40, 8)] {
            let layout = Layout::plan_default(ssd_bytes, shards).expect("fits").with_slots();
            layout.check().expect("sound");
            let slots = u64::from(layout.slots_per_shard() - layout.ring_pages);
            let long = (u64::from(layout.slots_per_shard()) / 16).min(slots);
            let a_page = (STATEMENT_BYTES_MAX / UNIT_BYTES) as u64;
            let pages = (slots - long + 2 * long).div_ceil(a_page - 1);
            assert!(usable_pages(&layout, slots) + pages <= u64::from(layout.ring_pages), "{layout:?}");
            assert!(usable_pages(&layout, slots) >= u64::from(layout.ring_pages) / 2, "{layout:?}");
            let shorter = Layout { ring_pages: layout.ring_pages - 1, ..layout };
            assert!(shorter.check().is_err(), "{shorter:?}");
        }
    }
}
