//! From statements to I/Os: groups are closed with what the sweep has to say, handed out, and become complete and durable.

use super::group::{Building, Writing};
use super::{GROUPS_IN_FLIGHT_MAX, RING_RESERVE, Slots, SlotsIo, UNFLUSHED_ONE_IN, UNFLUSHED_PAGES_MAX};
use crate::api::WriteKind;
use crate::index::{BYTES_PER_NUMBER, Index, Slot};
use crate::mutants;
use crate::outbox::Outbox;
use crate::store::{Facts, Progress, Purpose, Urgency};
use alloc::vec::Vec;
use format::PAGE_BYTES;
use format::slots::statement::UNIT_BYTES;
use format::slots::{RingHead, STATEMENT_BYTES_MAX, Set, Statement};
use page::{PageMut, PagePool, PageVec};

/// How long nothing has been said when the store counts as quiet: then a last group says that all before it are durable, since after a power
/// cut a damaged group cannot be told from one that was never whole unless a later one says that it was flushed.
const QUIET_AFTER_NS: u64 = 1_000_000_000;

/// The sweep may owe so many slots before groups are made for it alone, where the ring has room.
const OWED_MAX: u64 = 248;

/// Slots that a page has room to state, whatever there is to say of them.
pub const SWEPT_A_PAGE: u64 = (STATEMENT_BYTES_MAX / (2 * UNIT_BYTES)) as u64;

/// See [`QUIET_AFTER_NS`].
pub struct Quiet {
    /// The last group, and since when it is.
    last_group: u64,
    since_ns: u64,
    /// The group that says so for all before it, and needs none itself.
    said_by: u64,
}

impl Quiet {
    /// A store that ends with this group, durably.
    pub fn new(last_group: u64) -> Quiet {
        Quiet { last_group, since_ns: 0, said_by: last_group }
    }
}

impl Slots {
    /// Adds a statement to the group in the making; gives its number.
    pub(super) fn say(&mut self, statement: Statement, urgency: Urgency) -> u64 {
        self.group_with_room(statement.bytes());
        let building = self.building.as_mut().expect("begun above");
        building.say(&statement);
        building.want(urgency);
        building.group
    }

    pub(super) fn begin_group(&mut self) {
        assert!(self.ring_room() > 0, "the ring is full");
        let group = self.commits.begin();
        let within = self.swept_to > 0 && !mutants::active(mutants::PART_OF_SLOT_PASSED);
        let page = self.rounds.begin(self.stated_units(), self.usable_pages().saturating_sub(RING_RESERVE), within);
        assert_eq!(group, page, "each group has a page of the ring");
        self.building = Some(Building::new(group));
    }

    /// The group gets no more.
    pub(super) fn close_building(&mut self) {
        self.close_bin();
        if let Some(mut building) = self.building.take() {
            self.rounds.advance();
            let unswept = mutants::active(mutants::TAIL_WITHOUT_SWEEP);
            building.tail = if unswept { building.group } else { self.rounds.tail().min(building.group) };
            self.closed.push_back(building);
        }
    }

    /// Fills what is left of the group in the making with what lives in the next slots. All that it says is true now: no later group has begun.
    fn sweep(&mut self, facts: &dyn Facts) {
        let ring = self.place.ring();
        // As far as the page has room, then; but once round is enough.
        let mut ahead = if self.is_late() { self.places.slots() - ring.pages } else { 0 };
        let Some(mut building) = self.building.take() else { return };
        while (self.rounds.owed() > 0 || ahead > 0) && building.room() >= 2 * UNIT_BYTES {
            let slot = ring.nth_slot(self.rounds.next());
            ahead = ahead.saturating_sub(1);
            if self.places.is_free(slot) {
                self.pass();
            } else if let Some(set) = facts.in_slot(Slot(slot)) {
                self.state(&mut building, Slot(slot), set);
                self.pass();
            } else if let Some((packed, set)) = facts.packed_in(slot, Slot(Index::slot_at(slot, 0).0 + self.swept_to)) {
                self.state(&mut building, packed, set);
                self.swept_to = Index::number_in_page(packed) + 1;
                self.rounds.pay(2);
                if self.swept_to == PAGE_BYTES as u32 / BYTES_PER_NUMBER {
                    self.pass();
                }
            } else {
                self.pass();
            }
        }
        self.building = Some(building);
    }

    fn pass(&mut self) {
        self.swept_to = 0;
        self.rounds.pass();
    }

    /// The ring becomes short, and nobody else is to fill it before the sweep has gone round.
    fn is_late(&self) -> bool {
        let used = self.rounds.head() + 1 - self.rounds.tail();
        let kept = self.sweep_pages() + RING_RESERVE + 2;
        self.packs.were_used() && self.rounds.behind() > 0 && used + kept >= self.usable_pages()
    }

    /// Says again what is in a slot.
    fn state(&self, building: &mut Building, slot: Slot, mut set: Set) {
        if self.hand.is_going(slot.0) && !mutants::active(mutants::SWEEP_STATES_GOING) {
            return;
        }
        let group = self.young.group_of(set.slot).unwrap_or(0);
        set.settled = group <= self.commits.durable() || mutants::active(mutants::SWEEP_SETTLES_ALL);
        if set.settled || !mutants::active(mutants::SWEEP_LEAVES_OUT) {
            building.say(&Statement::Set(set));
        }
    }

    /// What a request expected and did not use is free again.
    pub(super) fn expected_is_over(&mut self) {
        while let Some(slot) = self.expected.pop() {
            self.places.give_back(slot);
        }
    }

    /// Hands out what is due.
    pub fn pump<C>(&mut self, now_ns: u64, pool: &PagePool, facts: &dyn Facts, out: &mut Outbox<C>, context: impl Fn(SlotsIo) -> C) {
        self.short_of_pages = false;
        if self.commits.is_failed() {
            return;
        }
        self.look_at_sweep(facts);
        let others = !self.closed.is_empty() || !self.writing.is_empty();
        let due = self.building.as_ref().is_some_and(|building| {
            let commit = building.commit || building.share && !others;
            let durable = building.durable || self.commits.is_wanted(building.group);
            commit || building.deadline_ns <= now_ns || durable && self.flush.is_none()
        });
        if due && self.closed.len() + self.writing.len() < GROUPS_IN_FLIGHT_MAX {
            self.sweep(facts);
            self.close_building();
        }
        self.pay_what_the_sweep_owes(facts);
        while self.writing.len() < GROUPS_IN_FLIGHT_MAX && !self.closed.is_empty() {
            let bins = || self.closed.front().expect("looked above").bins.iter().map(|bin| bin.to_pages(pool)).collect();
            let (Some(page), Some(bins)) = (pool.allocate(), bins()) else {
                self.short_of_pages = true;
                break;
            };
            let group = self.closed.pop_front().expect("looked above");
            self.write_group(group, page, bins, out, &context);
        }
        self.flush_if_wanted(out, &context);
    }

    /// Where groups are too full for the sweep, it gets groups of its own.
    fn pay_what_the_sweep_owes(&mut self, facts: &dyn Facts) {
        let most = if self.ring_room() < self.usable_pages() / 2 { 0 } else { OWED_MAX };
        while self.building.is_none()
            && (self.rounds.owed() > most || self.is_late())
            && self.ring_room() > 0
            && self.closed.len() < GROUPS_IN_FLIGHT_MAX
        {
            self.begin_group();
            self.sweep(facts);
            self.close_building();
            self.look_at_sweep(facts);
        }
    }

    fn write_group<C>(
        &mut self,
        mut building: Building,
        mut page: PageMut,
        bins: Vec<(u32, PageVec)>,
        out: &mut Outbox<C>,
        context: &impl Fn(SlotsIo) -> C,
    ) {
        let group = building.group;
        assert!(group < self.durable_tail + self.ring_pages(), "group {group} writes over a page that is needed");
        let head = RingHead {
            uuid: self.place.uuid,
            session: self.place.session,
            shard: self.place.shard,
            group,
            tail: building.tail,
            durable: self.commits.durable(),
            epoch: 0,
        };
        head.encode_said(building.said(), &mut page);
        let layout = &self.place.layout;
        let pages_of_segment = layout.pages_per_segment();
        let offset = |slot: u32| layout.page_offset(self.place.shard, slot / pages_of_segment, slot % pages_of_segment);
        let slots = building.payloads.iter().map(|(slot, ..)| *slot).collect::<Vec<u32>>();
        let mut runs = building.runs(pages_of_segment, self.apart);
        let in_bins: usize = bins.iter().map(|(_, pages)| pages.len()).sum();
        runs.extend(bins.into_iter().map(|(slot, pages)| (slot, pages, WriteKind::Packed)));
        let pages = (1 + slots.len() + in_bins) as u32;
        (self.written_pages, self.unflushed_pages) = (self.written_pages + u64::from(pages), self.unflushed_pages + pages);
        self.writing.push_back(Writing { group, tail: building.tail, left: 1 + runs.len(), slots, packed: building.packed });
        let place = self.place.ring().page_of(group);
        for (slot, pages, writes) in runs {
            self.ssds.write(out, offset(slot), pages, false, writes, context(SlotsIo::Run(group)));
        }
        let page = PageVec::from_iter([page.freeze()]);
        self.ssds.write(out, offset(place), page, false, WriteKind::Ring, context(SlotsIo::Page(group)));
    }

    fn flush_if_wanted<C>(&mut self, out: &mut Outbox<C>, context: &impl Fn(SlotsIo) -> C) {
        if self.flush.is_some() {
            return;
        }
        let (commits, complete) = (&self.commits, self.commits.complete());
        let most = UNFLUSHED_PAGES_MAX.min(self.places.slots() / UNFLUSHED_ONE_IN);
        let ring_is_short =
            self.ring_room() < self.usable_pages() / 4 || self.packs.were_used() && self.ring_room_for_others() <= RING_RESERVE + 2;
        let by_itself = (self.unflushed_pages > most || ring_is_short) && commits.durable() < complete;
        if by_itself || commits.next_wanted().is_some_and(|group| group <= complete) {
            self.flush = Some((complete, self.complete_tail));
            self.unflushed_pages = 0;
            self.ssds.flush(out, context(SlotsIo::Flush));
        }
    }

    /// An I/O has completed, or failed: that is final, nothing more is written.
    pub fn completed(&mut self, io: SlotsIo, ok: bool) -> Progress {
        let mut progress = Progress { flushed: io == SlotsIo::Flush, ..Progress::default() };
        if self.commits.is_failed() {
            return progress;
        }
        if !ok && mutants::active(mutants::FAILED_FLUSH_RETRIED) && io == SlotsIo::Flush {
            self.flush = None;
            return progress;
        }
        if !ok && !mutants::active(mutants::FAILED_STORE_WRITE_DONE) {
            return Progress { ready: self.commits.fail(), failed: true, ..progress };
        }
        match io {
            SlotsIo::Page(group) => self.written(group, true, &mut progress),
            SlotsIo::Run(group) => self.written(group, false, &mut progress),
            SlotsIo::Flush => self.flushed(&mut progress),
        }
        progress
    }

    fn written(&mut self, group: u64, is_page: bool, progress: &mut Progress) {
        let all = is_page && mutants::active(mutants::COMPLETE_WITHOUT_PAYLOAD);
        let writing = self.writing.iter_mut().find(|writing| writing.group == group);
        let Some(writing) = writing else {
            assert!(mutants::active(mutants::COMPLETE_WITHOUT_PAYLOAD), "group {group} is in flight");
            return;
        };
        writing.left = if all { 0 } else { writing.left.saturating_sub(1) };
        while let Some(writing) = self.writing.pop_front_if(|writing| writing.left == 0) {
            self.commits.completed(writing.group);
            self.complete_tail = writing.tail;
            self.in_flight.landed(writing.slots.into_iter().map(Slot), writing.packed.into_iter());
        }
        self.commits.take_complete(&mut progress.ready);
    }

    fn flushed(&mut self, progress: &mut Progress) {
        let (group, tail) = self.flush.take().expect("a flush was running");
        self.commits.flushed(group);
        self.commits.take_durable(&mut progress.ready);
        self.durable_tail = self.durable_tail.max(tail);
        self.young.durable(group);
        self.forget_gone(progress);
        // Who reads from now on cannot read what was left before.
        self.epoch += 1;
        self.settle();
    }

    /// When [`Slots::end_quietly`] should look again if nothing happens.
    pub(super) fn quiet_deadline(&self) -> Option<u64> {
        if self.quiescing && mutants::active(mutants::LAST_WORD_UNSAID) {
            return None;
        }
        let quiet = &self.quiet;
        let at_rest = self.has_written_all() && !self.commits.is_failed();
        let at_ns = if self.quiescing { 0 } else { quiet.since_ns + QUIET_AFTER_NS };
        (quiet.said_by < quiet.last_group && at_rest).then_some(at_ns)
    }

    /// Whether it has to be said yet, before a stop, that all is durable: else a start would take a last group that the SSD has damaged for one
    /// that was never whole.
    pub(super) fn owes_last_word(&self) -> bool {
        let is_said = self.quiet.said_by >= self.commits.last();
        self.quiescing && !self.commits.is_failed() && !is_said && !mutants::active(mutants::LAST_WORD_UNSAID)
    }

    /// Looks whether the store is quiet now; at the end of each turn.
    pub(super) fn end_quietly(&mut self, now_ns: u64) {
        let last_group = self.commits.last();
        if self.quiet.last_group != last_group {
            (self.quiet.last_group, self.quiet.since_ns) = (last_group, now_ns);
        }
        if self.quiet_deadline().is_none_or(|at_ns| at_ns > now_ns) {
            return;
        }
        if self.commits.durable() < last_group {
            self.commits.want_durable(last_group);
        } else if self.has_room(Purpose::Void) && self.ring_room() > RING_RESERVE {
            self.begin_group();
            let building = self.building.as_mut().expect("just begun");
            building.want(Urgency::Durable);
            (self.quiet.said_by, self.quiet.last_group) = (building.group, building.group);
            self.commits.want_durable(building.group);
        } else {
            self.quiet.said_by = last_group;
        }
    }
}
