//! The log: a ring of segments that every cached block is appended to, in groups.
//!
//! Life of a record: [`Store::append`] puts it into the *building* group and gives it a slot at once; [`Store::pump`] turns the group
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

mod ahead;
mod building;
pub mod checkpoint;
mod completion;
mod evict;
pub mod inspect;
mod quiet;
pub mod recovery;
mod space;
mod write;

use super::{
    Appended, Begun, Capacity, Commits, Common, Evict, EvictTurn, Eviction, Facts, Gauges, InFlight, PackedPayload, Payload, Place, Placed,
    Progress, Purpose, Readers, Region, RegionId, Safety, Ssds, Store, StorePlace, Urgency,
};
use crate::index::{Index, Slot};
use crate::mutants;
use crate::outbox::Outbox;
use ahead::AheadState;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use building::{Building, Need};
use core::fmt;
use format::checkpoint::LogEnd;
use format::packed::{PACKED_ORDINAL, PAGE_UNITS};
use format::{Record, RecordKind};
use page::PagePool;
use quiet::Quiet;
use space::Space;
use types::{BLOCK_BYTES, VolumeId};

/// Groups being written at the same time. Two keep the SSD busy, the others hide the gap between a completion and the next
/// submission; with more, groups only get smaller, and each costs a header page.
const GROUPS_IN_FLIGHT_MAX: usize = 4;

/// The engine flushes by itself when this many pages of the log (16 MiB) are not durable, so that recovery after a power cut has
/// little to verify.
const UNFLUSHED_PAGES_MAX: u64 = 4096;

/// Segments kept free for what eviction appends: it needs at most one to take one back, and one is being filled.
const RESERVE_SEGMENTS: u64 = 3;

/// One in this many segments of the ring lies ahead of the tail and is soon to go: about as long as destage has to bring home what is dirty.
const AHEAD_ONE_IN: u64 = 8;

/// What the completion of one of its I/Os means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RingIo {
    /// The group of this number was written.
    Group(u64),
    /// The footer of this segment was written.
    Footer(u64),
    /// The SSD flushed: what was complete when it was issued is durable.
    Flush,
}

/// A place in the log: segment and page in it, in the order of writing.
type Position = (u64, u32);

struct Writing {
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
pub struct Ring {
    place: StorePlace,
    common: Common,
    space: Space,
    /// The group that takes records now.
    building: Option<Building>,
    /// Full groups waiting to be handed out, oldest first.
    closed: VecDeque<Building>,
    writing: VecDeque<Writing>,
    complete_tail: u64,
    unflushed_pages: u64,
    /// Where the newest complete group ends, and where the newest durable one does.
    complete_end: Position,
    durable_end: Position,
    /// The running flush: which group and which tail it makes durable, and where that group ends.
    flush: Option<(u64, u64, Position)>,
    head_first_group: u64,
    head_records: Vec<Record>,
    sealed: VecDeque<Sealed>,
    footers_in_flight: u32,
    ordinal_bits: u32,
    /// Packed records in closed groups of the head segment.
    head_packed: u32,
    written_pages: u64,
    /// The tail that the last group handed out says.
    last_written_tail: u64,
    /// Something could not be written for want of pages.
    short_of_pages: bool,
    /// The first segment of this life.
    begun_seq: u64,
    /// How the eviction of the present step reads: see [`Ring::evict`].
    careful: Option<bool>,
    ahead: AheadState,
    quiet: Quiet,
    /// The shard knows of the segments up to this one.
    begun_seen: u64,
    /// Segments before this one were named as next to go.
    aged_seq: u64,
}

impl Ring {
    /// A log that continues at `start`, in a fresh segment opened by the first append.
    pub fn new(place: StorePlace, start: LogEnd) -> Ring {
        let space = Space::new(&place.layout, start);
        let ordinal_bits = Slot::ordinal_bits(place.layout.pages_per_segment());
        let common = Common {
            commits: Commits::new(start.next_group - 1),
            in_flight: InFlight::default(),
            ssds: Ssds,
            readers: Readers::default(),
            eviction: Eviction::default(),
            quiescing: false,
        };
        Ring {
            place,
            common,
            building: None,
            closed: VecDeque::new(),
            writing: VecDeque::new(),
            complete_tail: start.tail_seq,
            unflushed_pages: 0,
            complete_end: (start.next_seq, 0),
            durable_end: (start.next_seq, 0),
            flush: None,
            head_first_group: start.next_group,
            head_records: Vec::new(),
            sealed: VecDeque::new(),
            footers_in_flight: 0,
            ordinal_bits,
            head_packed: 0,
            written_pages: 0,
            last_written_tail: start.tail_seq,
            short_of_pages: false,
            begun_seq: start.next_seq,
            careful: None,
            ahead: AheadState::default(),
            quiet: Quiet::new(start.next_group - 1),
            begun_seen: space.head_seq(),
            aged_seq: 0,
            space,
        }
    }

    fn region_of(&self, seq: u64) -> Region {
        let at = self.space.physical(seq);
        Region { id: RegionId(seq), at, first_slot: at * self.place.layout.pages_per_segment(), slots: self.space.data_pages() }
    }

    /// Whether all groups of a segment before the head are on the device: only then can its records be read there.
    fn is_segment_complete(&self, seq: u64) -> bool {
        let oldest = self.writing.front().map(|group| group.end.0).or_else(|| self.closed.front().map(|group| group.seq));
        oldest.or_else(|| self.building.as_ref().map(|group| group.seq)).is_none_or(|oldest| oldest > seq)
    }

    /// The slot of a page of a segment.
    fn slot_at(&self, seq: u64, page_in_segment: u32) -> Slot {
        Slot(self.space.physical(seq) * self.place.layout.pages_per_segment() + page_in_segment)
    }

    /// Where a page of a segment lies on the SSD, in bytes.
    fn page_offset_bytes(&self, seq: u64, page: u32) -> u64 {
        self.place.layout.page_offset(self.place.shard, self.space.physical(seq), page)
    }

    /// Physical segment, and which of its records a slot is.
    fn parts_of(&self, slot: Slot) -> (u32, u32) {
        let pages = self.place.layout.pages_per_segment();
        if slot.is_packed() { slot.packed_place(self.ordinal_bits) } else { (slot.0 / pages, slot.0 % pages) }
    }

    /// Free segments there must be for a write of that many blocks, the reserve included.
    fn segments_needed(&self, blocks: u32) -> u64 {
        // Headers: at worst one for each block, when each goes alone.
        RESERVE_SEGMENTS + u64::from(blocks * 2).div_ceil(u64::from(self.space.data_pages()))
    }

    fn can_append(&self) -> bool {
        let in_building = self.building.as_ref().is_some_and(|building| building.fits_any(&self.space));
        !self.common.commits.is_failed() && (in_building || self.head_has_room() || self.space.can_open_next(&self.common.readers))
    }

    fn head_has_room(&self) -> bool {
        let (pages, records) = self.building.as_ref().map_or((0, 0), |b| (b.pages_used(), b.records.len() as u32));
        self.space.records_left() > records && self.space.pages_left(records + 1) >= pages + 2
    }

    /// Those that will be the tail some segments later, and were not named yet.
    fn next_to_go(&mut self) -> Vec<Region> {
        let space = &self.space;
        let ahead = (space.segments() / AHEAD_ONE_IN).max(1);
        let end_seq = (space.tail_seq() + ahead + 1).min(space.head_seq());
        // While the ring is not nearly full, its tail is in no danger.
        let is_near = space.live_segments() + ahead + RESERVE_SEGMENTS >= space.segments();
        if !is_near {
            return Vec::new();
        }
        let first_seq = space.tail_seq().max(self.aged_seq);
        self.aged_seq = end_seq.max(self.aged_seq);
        (first_seq..end_seq).map(|seq| self.region_of(seq)).collect()
    }
}

/// Whether a write of so many blocks may ever find room: it may take a quarter of what the ring has beside its reserve.
pub(super) fn ever_writes(layout: &format::Layout, blocks: u32) -> bool {
    let segments = u64::from(blocks * 2).div_ceil(u64::from(layout.group_pages()));
    segments <= (u64::from(layout.segments_per_shard).saturating_sub(RESERVE_SEGMENTS + 1) / 4).max(1)
}

impl fmt::Display for Ring {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (space, commits) = (&self.space, &self.common.commits);
        write!(
            text,
            "log: tail {} (durable {}), head {} page {}, {} of {} segments free, groups complete {} durable {} last {}{}",
            space.tail_seq(),
            space.tail_durable(),
            space.head_seq(),
            space.head_page(),
            space.free_segments(),
            space.segments(),
            commits.complete(),
            commits.durable(),
            commits.last(),
            if commits.is_failed() { ", FAILED" } else { "" },
        )
    }
}

impl Store for Ring {
    type Io = RingIo;

    #[inline]
    fn common(&self) -> &Common {
        &self.common
    }

    #[inline]
    fn common_mut(&mut self) -> &mut Common {
        &mut self.common
    }

    fn keeps_in_place(&self) -> bool {
        false
    }

    /// What is appended lies side by side anyway.
    fn expect(&mut self, _pages: u32) {}

    fn keep_together(&mut self, records: u32) {
        self.make_room_for(Need::pages(records));
    }

    fn append(&mut self, record: Record, _old: Option<Slot>, payload: Payload, urgency: Urgency) -> Appended {
        match payload {
            Payload::None => self.append_plain(record, None, urgency),
            Payload::Page(page) => self.append_plain(record, Some(page), urgency),
            Payload::Packed(payload) => self.append_packed(record, payload, urgency),
        }
    }

    fn may_pack(&self) -> bool {
        true
    }

    fn ended(&mut self, _slot: Slot) {
        unreachable!("packed slots have numbers of their own")
    }

    fn unasked(&mut self) -> alloc::vec::Vec<u32> {
        alloc::vec::Vec::new()
    }

    fn emptied(&mut self, _slot: u32) {
        unreachable!("packed slots have numbers of their own")
    }

    fn release(&mut self, slot: Slot) {
        unreachable!("{slot:?} goes with its region")
    }

    fn may_let_go(&self) -> bool {
        true
    }

    /// It goes with its region.
    fn let_go(&mut self, _slot: Slot) {}

    fn note_home(&mut self, volume: VolumeId, block: u64, slot: Slot, _checksum: u32, urgency: Urgency) -> u64 {
        let (physical, number) = self.parts_of(slot);
        let of_ordinal = match slot.is_packed() {
            true => PACKED_ORDINAL | if mutants::active(mutants::NOTE_NAMES_RECORD_BEFORE) { number.saturating_sub(1) } else { number },
            false => number,
        };
        let kind = RecordKind::CleanNote { of_seq: self.space.seq_at(physical), of_ordinal };
        let record = Record { kind, volume, block, mask: 0, checksum: 0, slot_page: 0, packed: None };
        self.append_plain(record, None, urgency).group
    }

    #[inline]
    fn place(&self, slot: Slot, packed_at: Option<u32>) -> Place {
        let (at, number) = self.parts_of(slot);
        let page = if slot.is_packed() { packed_at.unwrap_or(0) / PAGE_UNITS } else { number };
        let seq = self.space.seq_at(at);
        let safety = match () {
            () if (seq, page) < self.durable_end => Safety::Durable,
            () if (seq, page) < self.complete_end => Safety::Complete,
            () => Safety::Volatile,
        };
        // What is in older segments has been judged and is about to go.
        let judged = self.common.eviction.region().map_or(self.space.tail_seq(), |region| region.0 + 1);
        Place {
            region: RegionId(seq),
            at,
            page,
            offset_bytes: self.place.layout.page_offset(self.place.shard, at, page),
            age_regions: self.space.head_seq().saturating_sub(seq) as u32,
            safety,
            is_live: self.space.is_live(seq),
            stays: seq >= judged || mutants::active(mutants::RESTS_ON_LEAVING_BASE),
        }
    }

    fn region(&self, at: u32) -> Option<Region> {
        if u64::from(at) >= self.space.segments() {
            return None;
        }
        let seq = self.space.seq_at(at);
        (seq > 0 && self.space.physical(seq) == at).then(|| self.region_of(seq))
    }

    fn has_room(&self, purpose: Purpose) -> bool {
        let space = &self.space;
        match purpose {
            Purpose::Any => self.can_append(),
            Purpose::Void => {
                let least = if mutants::active(mutants::VOIDS_TAKE_RESERVE) { 0 } else { RESERVE_SEGMENTS - 1 };
                self.can_append() && space.free_segments() >= least
            }
            Purpose::Clean => self.can_append() && space.free_segments() > RESERVE_SEGMENTS,
            Purpose::Write { blocks } => {
                let needed = self.segments_needed(blocks);
                let opens = |readers| space.openable_segments(readers) >= needed - RESERVE_SEGMENTS;
                self.can_append() && space.free_segments() >= needed && opens(&self.common.readers)
            }
            Purpose::EverWrite { blocks } => ever_writes(&self.place.layout, blocks),
        }
    }

    fn capacity(&self) -> Capacity {
        let (regions, region_pages) = (self.space.segments(), self.space.data_pages());
        Capacity { regions, region_pages, usable_pages: regions.saturating_sub(RESERVE_SEGMENTS + 1) * u64::from(region_pages) }
    }

    fn evict(&mut self, turn: &EvictTurn, index: &Index, pool: &PagePool) -> Evict {
        self.evict_step(turn, index, pool)
    }

    #[inline]
    fn end_turn(&mut self, now_ns: u64) -> Option<Begun> {
        self.end_quietly(now_ns);
        if self.begun_seen == self.space.head_seq() {
            return None;
        }
        // Before the tail there is none: at the start of an empty log the segment before the head's first was never written, or is lost.
        let full = (self.begun_seen >= self.space.tail_durable()).then(|| self.region_of(self.begun_seen));
        self.begun_seen += 1;
        Some(Begun { full, next_to_go: self.next_to_go() })
    }

    fn pump<C>(&mut self, now_ns: u64, pool: &PagePool, _facts: &dyn Facts, out: &mut Outbox<C>, context: impl Fn(RingIo) -> C) {
        self.hand_out(now_ns, pool, out, context);
    }

    fn completed(&mut self, io: RingIo, ok: bool) -> Progress {
        self.has_completed(io, ok)
    }

    fn deadline(&self) -> Option<u64> {
        // As in `pump`: a deadline that nothing follows would be asked for again and again.
        let room = self.closed.len() + self.writing.len() < GROUPS_IN_FLIGHT_MAX && !self.common.commits.is_failed();
        let group = self.building.as_ref().filter(|_| room).map(|building| building.deadline_ns).filter(|time| *time != u64::MAX);
        [group, self.quiet_deadline()].into_iter().flatten().min()
    }

    fn is_short_of_pages(&self) -> bool {
        self.short_of_pages
    }

    fn is_idle(&self) -> bool {
        let written = self.building.is_none() && self.closed.is_empty() && self.writing.is_empty();
        self.common.commits.is_failed() || written && self.flush.is_none() && self.sealed.is_empty() && self.footers_in_flight == 0
    }

    fn end(&self) -> LogEnd {
        let space = &self.space;
        LogEnd { next_seq: space.head_seq() + 1, next_group: self.common.commits.last() + 1, tail_seq: space.tail_durable() }
    }

    fn gauges(&self) -> Gauges {
        Gauges {
            newest_region: self.space.head_seq(),
            oldest_region: self.space.tail_seq(),
            free_regions: self.space.free_segments(),
            written_bytes: self.written_pages * BLOCK_BYTES,
            slots: None,
        }
    }
}
