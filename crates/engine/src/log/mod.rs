//! The log: a ring of segments that every cached block is appended to, in groups.
//!
//! Life of a record: [`Log::append`] puts it into the *building* group and gives it a slot at once; [`Log::pump`] turns the group
//! into one write; when that write and all earlier ones have completed, the group is *complete* (a process crash cannot lose it) and
//! those who wait for it are told; after the next flush it is *durable* (a power cut cannot lose it).
//!
//! Segments are used in order of their sequence numbers; number `s` lies at physical place `(s - 1) % segments`. A full segment is
//! sealed with a footer once all its groups are complete. A segment is used anew only when a *durable* group says that the
//! tail has passed it, and nobody reads it any more.
//!
//! Invariants:
//! * `tail_durable <= tail <= head`, and `head - tail_durable < segments`: the head never overwrites what recovery may read.
//! * `complete` is the highest number such that all groups up to it are on the device; `durable <= complete`.
//! * A page of an incomplete group is kept in memory, and reads find it there.
//! * After a failed write or flush nothing more is written and nothing becomes complete or durable.

mod building;
mod completion;
mod payload;
mod space;
mod waiters;

pub use building::Urgency;
pub use completion::Progress;
pub use payload::{PackedAppended, PackedPayload, Placed};
pub use space::Space;

use crate::api::{IoKind, Target};
use crate::index::Slot;
use crate::key::Map;
use crate::mutants;
use crate::outbox::{Outbox, Span};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use building::{Building, Need};
use format::checkpoint::LogEnd;
use format::{FooterHead, GroupHead, Layout, Record, RecordKind};
use page::{Page, PagePool, PageVec};
use smallvec::smallvec;
use types::{BLOCK_BYTES, ShardIndex, VolumeId};
use waiters::Waiters;

/// Groups being written at the same time. Two keep the SSD busy, the others hide the gap between a completion and the next
/// submission; with more, groups only get smaller, and each costs a header page.
const GROUPS_IN_FLIGHT_MAX: usize = 4;

/// The engine flushes by itself when this many pages of the log (16 MiB) are not durable, so that recovery after a power cut has
/// little to verify.
const UNFLUSHED_PAGES_MAX: u64 = 4096;

/// What the completion of a log I/O means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogIo {
    /// The group of this number was written.
    Group(u64),
    /// The footer of this segment was written.
    Footer(u64),
    /// The SSD flushed: what was complete when it was issued is durable.
    Flush,
}

/// Identity and geometry of a shard's log; fixed when the pool is formatted.
#[derive(Clone, Debug)]
pub struct LogPlace {
    /// The pool's.
    pub uuid: [u8; 16],
    /// The pool's running session: everything written bears its number.
    pub session: u64,
    /// Which shard's.
    pub shard: ShardIndex,
    /// The pool's geometry.
    pub layout: Layout,
}

/// Where an appended record went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Appended {
    /// The slot of its payload, if it has one.
    pub slot: Option<Slot>,
    /// The group to wait for.
    pub group: u64,
}

/// A place in the log: segment and page in it, in the order of writing.
type Position = (u64, u32);

struct InFlight {
    group: u64,
    end: Position,
    tail_seq: u64,
    done: bool,
    slots: core::ops::Range<u32>,
    /// Its packed records, as ordinals in its segment.
    packed: core::ops::Range<u32>,
}

/// A segment that gets no more groups and waits for its footer.
struct Sealed {
    seq: u64,
    first_group: u64,
    last_group: u64,
    used_pages: u32,
    /// What its last group said.
    tail_seq: u64,
    records: Vec<Record>,
}

/// See the module.
pub struct Log {
    place: LogPlace,
    space: Space,
    /// The group that takes records now.
    building: Option<Building>,
    /// Full groups waiting to be handed out, oldest first.
    closed: VecDeque<Building>,
    in_flight: VecDeque<InFlight>,
    next_group: u64,
    complete: u64,
    complete_tail: u64,
    durable: u64,
    unflushed_pages: u64,
    /// Where the newest complete group ends, and where the newest durable one does.
    complete_end: Position,
    durable_end: Position,
    /// The running flush: which group and which tail it makes durable, and where that group ends.
    flush: Option<(u64, u64, Position)>,
    flush_wanted: u64,
    head_first_group: u64,
    head_records: Vec<Record>,
    sealed: VecDeque<Sealed>,
    footers_in_flight: u32,
    pages: Map<Slot, Page>,
    /// Stored bytes of packed records appended again, whose group is not complete.
    bytes: Map<Slot, Vec<u8>>,
    /// Where packed payloads of closed groups lie, until somebody asks.
    placed: VecDeque<Placed>,
    ordinal_bits: u32,
    /// Packed records in closed groups of the head segment.
    head_packed: u32,
    waiters: Waiters,
    written_pages: u64,
    /// The tail that the last group handed out says.
    last_written_tail: u64,
    failed: bool,
    /// Something could not be written for want of pages.
    short_of_pages: bool,
}

impl Log {
    /// A log that continues at `start`, in a fresh segment opened by the first append.
    pub fn new(place: LogPlace, start: LogEnd) -> Log {
        let space = Space::new(&place.layout, start);
        let ordinal_bits = Slot::ordinal_bits(place.layout.pages_per_segment());
        Log {
            place,
            space,
            building: None,
            closed: VecDeque::new(),
            in_flight: VecDeque::new(),
            next_group: start.next_group,
            complete: start.next_group - 1,
            complete_tail: start.tail_seq,
            durable: start.next_group - 1,
            unflushed_pages: 0,
            complete_end: (start.next_seq, 0),
            durable_end: (start.next_seq, 0),
            flush: None,
            flush_wanted: 0,
            head_first_group: start.next_group,
            head_records: Vec::new(),
            sealed: VecDeque::new(),
            footers_in_flight: 0,
            pages: Map::default(),
            bytes: Map::default(),
            placed: VecDeque::new(),
            ordinal_bits,
            head_packed: 0,
            waiters: Waiters::default(),
            written_pages: 0,
            last_written_tail: start.tail_seq,
            failed: false,
            short_of_pages: false,
        }
    }

    /// The ring of segments.
    pub fn space(&self) -> &Space {
        &self.space
    }

    /// The ring of segments, to move the tail or pin readers.
    pub fn space_mut(&mut self) -> &mut Space {
        &mut self.space
    }

    /// Identity and geometry.
    pub fn place(&self) -> &LogPlace {
        &self.place
    }

    /// All groups up to this number are on the device.
    pub fn complete(&self) -> u64 {
        self.complete
    }

    /// All groups up to this number survive a power cut.
    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// The last number given to a group, handed out or not.
    pub fn last_group(&self) -> u64 {
        self.next_group - 1
    }

    /// Whether a write or flush failed.
    pub fn is_failed(&self) -> bool {
        self.failed
    }

    /// Bytes written to the SSD since the start: headers, payload and footers.
    pub fn written_bytes(&self) -> u64 {
        self.written_pages * BLOCK_BYTES
    }

    /// Pages kept because their group is not complete.
    pub fn pages_in_flight(&self) -> usize {
        self.pages.len()
    }

    /// Whether nothing is being written, flushed or waiting to be.
    pub fn is_idle(&self) -> bool {
        let written = self.building.is_none() && self.closed.is_empty() && self.in_flight.is_empty();
        self.failed || written && self.flush.is_none() && self.sealed.is_empty() && self.footers_in_flight == 0
    }

    /// The content of a slot whose group is not complete yet.
    pub fn page_in_flight(&self, slot: Slot) -> Option<&Page> {
        if self.pages.is_empty() { None } else { self.pages.get(&slot) }
    }

    /// The content of this slot is known to be bad: nobody is to take it from memory, where no checksum is looked at.
    pub fn hide_page_in_flight(&mut self, slot: Slot) {
        self.pages.remove(&slot);
    }

    /// Whether all groups of a segment before the head are on the device: only then can its records be read there.
    pub fn is_segment_complete(&self, seq: u64) -> bool {
        let oldest = self.in_flight.front().map(|group| group.end.0).or_else(|| self.closed.front().map(|group| group.seq));
        oldest.or_else(|| self.building.as_ref().map(|group| group.seq)).is_none_or(|oldest| oldest > seq)
    }

    /// Whether this page of a segment has been written, as all before it: what is behind may be just on its way.
    pub fn is_page_complete(&self, seq: u64, page: u32) -> bool {
        (seq, page) < self.complete_end
    }

    /// Whether what is on this page of a segment survives a power cut.
    pub fn is_page_durable(&self, seq: u64, page: u32) -> bool {
        (seq, page) < self.durable_end
    }

    /// Where a slot lies on the SSD, in bytes.
    pub fn offset_bytes(&self, slot: Slot) -> u64 {
        let pages = self.place.layout.pages_per_segment();
        self.place.layout.page_offset(self.place.shard, slot.0 / pages, slot.0 % pages)
    }

    /// The slots of a segment that can hold payload.
    pub fn slots_of(&self, seq: u64) -> core::ops::Range<u32> {
        let first = self.space.physical(seq) * self.place.layout.pages_per_segment();
        first..first + self.space.data_pages()
    }

    /// The slot of a page of a segment.
    pub fn slot_at(&self, seq: u64, page_in_segment: u32) -> Slot {
        Slot(self.space.physical(seq) * self.place.layout.pages_per_segment() + page_in_segment)
    }

    /// Whether a record can be appended now; while false, it can after segments became free.
    pub fn has_room(&self) -> bool {
        let in_building = self.building.as_ref().is_some_and(|building| building.fits_any(&self.space));
        !self.failed && (in_building || self.head_has_room() || self.space.can_open_next())
    }

    fn head_has_room(&self) -> bool {
        let (pages, records) = self.building.as_ref().map_or((0, 0), |b| (b.pages_used(), b.records.len() as u32));
        self.space.records_left() > records && self.space.pages_left(records + 1) >= pages + 2
    }

    /// Appends a record, with its payload if it has one. The index must point to the slot from now on: the log does not know what is
    /// current.
    ///
    /// # Panics
    /// If [`Log::has_room`] is false.
    pub fn append(&mut self, record: Record, page: Option<Page>, urgency: Urgency) -> Appended {
        assert!(self.has_room(), "the log is full");
        if self
            .building
            .as_ref()
            .is_some_and(|building| !building.fits(if page.is_some() { Need::PAGE } else { Need::RECORD }, &self.space))
        {
            self.close_building();
        }
        if self.building.is_none() {
            self.begin_group();
        }
        let building = self.building.as_mut().expect("begun above");
        let group = building.group;
        let page_in_segment = building.next_page();
        let record = Record { slot_page: if page.is_some() { page_in_segment } else { 0 }, ..record };
        building.push(record, page.clone(), urgency);
        let seq = building.seq;
        let slot = page.map(|page| {
            let slot = self.slot_at(seq, page_in_segment);
            self.pages.insert(slot, page);
            slot
        });
        Appended { slot, group }
    }

    /// Appends a packed record with its payload, as [`Log::append`] does a plain one.
    ///
    /// # Panics
    /// If [`Log::has_room`] is false.
    pub fn append_packed(&mut self, record: Record, payload: PackedPayload, urgency: Urgency) -> PackedAppended {
        assert!(self.has_room(), "the log is full");
        let units = payload.bytes.len().next_multiple_of(format::packed::PLACE_UNIT_BYTES as usize);
        let need = Need::packed(u32::from(record.has_page_payload()), units as u32);
        if self.building.as_ref().is_some_and(|building| !building.fits(need, &self.space)) {
            self.close_building();
        }
        if self.building.is_none() {
            self.begin_group();
        }
        let building = self.building.as_mut().expect("begun above");
        let ordinal = building.push_packed(record, &payload, urgency);
        let (group, seq) = (building.group, building.seq);
        let physical = self.space.physical(seq);
        let slot = Slot::packed(physical, ordinal, self.ordinal_bits);
        match payload.page {
            Some(page) => drop(self.pages.insert(slot, page)),
            None if !payload.bytes.is_empty() => drop(self.bytes.insert(slot, payload.bytes)),
            None => {}
        }
        PackedAppended { physical, ordinal, group }
    }

    /// Where the payload of a packed record lies whose group was closed since this was asked last.
    pub fn next_placed(&mut self) -> Option<Placed> {
        self.placed.pop_front()
    }

    /// The stored bytes of a packed record that was appended again and whose group is not complete yet.
    pub fn bytes_in_flight(&self, slot: Slot) -> Option<&[u8]> {
        if self.bytes.is_empty() { None } else { self.bytes.get(&slot).map(Vec::as_slice) }
    }

    /// Where a page of a segment lies on the SSD, in bytes.
    pub fn page_offset_bytes(&self, seq: u64, page: u32) -> u64 {
        self.place.layout.page_offset(self.place.shard, self.space.physical(seq), page)
    }

    /// The page of its segment that a plain slot is.
    pub fn page_of(&self, slot: Slot) -> u32 {
        slot.0 % self.place.layout.pages_per_segment()
    }

    /// The physical segment of a plain slot.
    pub fn physical_of_page(&self, slot: Slot) -> u32 {
        slot.0 / self.place.layout.pages_per_segment()
    }

    /// Makes sure that a group carries the present tail to the device, and soon; gives its number.
    pub fn publish_tail(&mut self) -> Option<u64> {
        if self.building.is_none() {
            if !self.has_room() {
                return None;
            }
            self.begin_group();
        }
        let building = self.building.as_mut().expect("begun above");
        if building.records.is_empty() {
            // A group has at least one record; a note that names no record there ever was says nothing.
            let kind = RecordKind::CleanNote { of_seq: 0, of_ordinal: 0 };
            building.records.push(Record { kind, volume: VolumeId(0), block: 0, mask: 0, checksum: 0, slot_page: 0, packed: None });
        }
        building.want(Urgency::Durable);
        let group = building.group;
        self.want_durable(group);
        Some(group)
    }

    fn begin_group(&mut self) {
        if !self.head_has_room() {
            self.seal_head();
            self.space.open_next();
            self.head_first_group = self.next_group;
            self.head_packed = 0;
        }
        let space = &self.space;
        self.building = Some(Building::new(self.next_group, space.head_seq(), space.head_page(), self.head_packed));
        self.next_group += 1;
    }

    fn close_building(&mut self) {
        if let Some(mut building) = self.building.take() {
            building.tail_seq = self.space.tail_seq().min(building.seq);
            if building.packed_records > 0 {
                if mutants::active(63) {
                    self.note_places(&building);
                }
                building.place_packed();
                if !mutants::active(63) {
                    self.note_places(&building);
                }
                self.head_packed += building.packed_records;
            }
            self.space.take(building.pages_used(), building.records.len() as u32);
            self.head_records.extend_from_slice(&building.records);
            self.closed.push_back(building);
        }
    }

    fn note_places(&mut self, building: &Building) {
        let physical = self.space.physical(building.seq);
        let packed = building.records.iter().filter_map(|record| record.packed.as_ref());
        for (ordinal, packed) in (building.first_ordinal..).zip(packed) {
            // What has no payload counts as standing in its header.
            let place = if packed.place > 0 { packed.place } else { building.first_page * format::packed::PAGE_UNITS };
            self.placed.push_back(Placed { physical, ordinal, place });
        }
    }

    /// The head segment gets no more groups. Its footer says that all of it is durable, so it follows a flush.
    fn seal_head(&mut self) {
        if self.head_first_group < self.next_group {
            self.want_durable(self.next_group - 1);
            // The place is not used anew before its footer is written: a late footer would lie over the new segment's own.
            self.space.pin(self.space.head_seq());
            self.sealed.push_back(Sealed {
                seq: self.space.head_seq(),
                first_group: self.head_first_group,
                last_group: self.next_group - 1,
                used_pages: self.space.head_page(),
                tail_seq: self.last_written_tail,
                records: core::mem::take(&mut self.head_records),
            });
        }
    }

    /// `waiter` is to be named in [`Progress::ready`] when the group is complete. False if it is already.
    pub fn wait_complete(&mut self, group: u64, waiter: u32) -> bool {
        if group <= self.complete || self.failed {
            return false;
        }
        self.waiters.add_complete(group, waiter);
        true
    }

    /// `waiter` is to be named in [`Progress::ready`] when the group is durable. False if it is already.
    pub fn wait_durable(&mut self, group: u64, waiter: u32) -> bool {
        if group <= self.durable || self.failed {
            return false;
        }
        self.waiters.add_durable(group, waiter);
        self.want_durable(group);
        true
    }

    /// The group is to be durable soon; nobody in particular waits.
    pub fn want_durable(&mut self, group: u64) {
        self.flush_wanted = self.flush_wanted.max(group);
        if let Some(building) = self.building.as_mut().filter(|building| building.group <= group) {
            building.want(Urgency::Durable);
        }
    }

    /// When [`Log::pump`] has something to do that it has not now.
    pub fn next_deadline(&self) -> Option<u64> {
        // As in `pump`: a deadline that nothing follows would be asked for again and again.
        let room = self.closed.len() + self.in_flight.len() < GROUPS_IN_FLIGHT_MAX && !self.failed;
        self.building.as_ref().filter(|_| room).map(|building| building.deadline_ns).filter(|time| *time != u64::MAX)
    }

    /// Whether the last [`Log::pump`] lacked pages: nobody tells when there are some.
    pub fn is_short_of_pages(&self) -> bool {
        self.short_of_pages
    }

    /// Hands out what is due: groups, footers, a flush. Call at the end of each turn.
    pub fn pump<C>(&mut self, now_ns: u64, pool: &PagePool, out: &mut Outbox<C>, context: impl Fn(LogIo) -> C) {
        self.short_of_pages = false;
        if self.failed {
            return;
        }
        // Packed blocks are so small that a header page each would be most of what is written: they join while a group is under way, which
        // costs them less time than writing it takes.
        let due = self.building.as_ref().is_some_and(|building| {
            let alone = self.closed.is_empty() && self.in_flight.is_empty();
            let commit = building.commit && (alone || !building.is_small()) || building.share && alone;
            commit || building.deadline_ns <= now_ns || building.durable && self.flush.is_none()
        });
        if due && self.closed.len() + self.in_flight.len() < GROUPS_IN_FLIGHT_MAX {
            self.close_building();
        }
        while self.in_flight.len() < GROUPS_IN_FLIGHT_MAX {
            if self.closed.is_empty() {
                break;
            }
            let packed = self.closed.front().map_or(&[][..], Building::packed_behind_pages);
            let (Some(header), Some(packed)) = (pool.allocate(), payload::pages_of(packed, pool)) else {
                self.short_of_pages = true;
                break;
            };
            let group = self.closed.pop_front().expect("looked above");
            self.write_group(group, header, packed, out, &context);
        }
        while self.sealed.front().is_some_and(|sealed| sealed.last_group <= self.durable) {
            if !self.write_footer(pool, out, &context) {
                self.short_of_pages = true;
                break;
            }
        }
        let unflushed = self.unflushed_pages > UNFLUSHED_PAGES_MAX;
        // The lowest group that someone wants durable; waiting for higher ones first would make the lower ones wait too.
        let wanted = [self.waiters.first_durable(), Some(self.flush_wanted)].into_iter().flatten().filter(|g| *g > self.durable).min();
        let wanted = wanted.is_some_and(|group| group <= self.complete) || unflushed && self.durable < self.complete;
        if wanted && self.flush.is_none() {
            self.flush = Some((self.complete, self.complete_tail, self.complete_end));
            self.unflushed_pages = 0;
            let span = Span { target: Target::Ssd, offset_bytes: 0, length_bytes: 0, background: false };
            out.io(span, IoKind::Flush, context(LogIo::Flush));
        }
    }

    fn write_group<C>(
        &mut self,
        group: Building,
        mut header: page::PageMut,
        packed: PageVec,
        out: &mut Outbox<C>,
        context: &impl Fn(LogIo) -> C,
    ) {
        let head = GroupHead {
            uuid: self.place.uuid,
            session: self.place.session,
            shard: self.place.shard,
            segment_seq: group.seq,
            group: group.group,
            tail_seq: group.tail_seq,
            durable_group: self.durable,
            page: group.first_page,
        };
        head.encode(&group.records, group.packed_in_header(), &mut header);
        if let Some(sealed) = self.sealed.iter_mut().find(|sealed| sealed.last_group == group.group) {
            sealed.tail_seq = head.tail_seq;
        }
        self.last_written_tail = head.tail_seq;
        let is_next = group.group > self.durable && group.tail_seq <= group.seq;
        assert!(is_next && self.space.is_live(group.seq), "group {} is the next, in segment {}", group.group, group.seq);
        assert!(self.in_flight.back().is_none_or(|before| before.group < group.group), "groups are written in order");
        let first = self.slot_at(group.seq, group.first_page);
        let mut pages: PageVec = smallvec![header.freeze()];
        pages.extend(group.pages);
        pages.extend(packed);
        let count = pages.len() as u32;
        assert!(group.first_page + count <= self.place.layout.pages_per_segment(), "group {} ends in its segment", group.group);
        self.in_flight.push_back(InFlight {
            group: group.group,
            end: (group.seq, group.first_page + count),
            tail_seq: head.tail_seq,
            done: false,
            slots: first.0 + 1..first.0 + count,
            packed: group.first_ordinal..group.first_ordinal + group.packed_records,
        });
        self.written_pages += u64::from(count);
        self.unflushed_pages += u64::from(count);
        let span = Span {
            target: Target::Ssd,
            offset_bytes: self.offset_bytes(first),
            length_bytes: u64::from(count) * BLOCK_BYTES,
            background: false,
        };
        out.io(span, IoKind::Write { pages, fua: false }, context(LogIo::Group(group.group)));
    }

    fn write_footer<C>(&mut self, pool: &PagePool, out: &mut Outbox<C>, context: &impl Fn(LogIo) -> C) -> bool {
        let sealed = self.sealed.front().expect("the caller looked");
        let head = FooterHead {
            uuid: self.place.uuid,
            session: self.place.session,
            shard: self.place.shard,
            segment_seq: sealed.seq,
            first_group: sealed.first_group,
            last_group: sealed.last_group,
            tail_seq: sealed.tail_seq,
            durable_group: self.durable,
            resume_seq: 0,
            resume_group: 0,
            used_pages: sealed.used_pages,
        };
        let layout = &self.place.layout;
        let most = if mutants::active(65) { format::footer::footer_records_max(layout.footer_pages()) as usize } else { usize::MAX };
        let records = &sealed.records[..sealed.records.len().min(most)];
        let bytes = head.encode(layout, records);
        let physical = self.space.physical(sealed.seq);
        let offset_bytes = layout.footer_write_offset(self.place.shard, physical, records.len() as u32);
        let count = bytes.len() / BLOCK_BYTES as usize;
        let Some(mut pages) = (0..count).map(|_| pool.allocate()).collect::<Option<Vec<_>>>() else { return false };
        let sealed = self.sealed.pop_front().expect("looked above");
        for (page, chunk) in pages.iter_mut().zip(bytes.chunks_exact(BLOCK_BYTES as usize)) {
            page.copy_from_slice(chunk);
        }
        self.written_pages += count as u64;
        self.unflushed_pages += count as u64;
        self.footers_in_flight += 1;
        let span = Span { target: Target::Ssd, offset_bytes, length_bytes: count as u64 * BLOCK_BYTES, background: true };
        let pages = pages.into_iter().map(page::PageMut::freeze).collect();
        out.io(span, IoKind::Write { pages, fua: false }, context(LogIo::Footer(sealed.seq)));
        true
    }
}
