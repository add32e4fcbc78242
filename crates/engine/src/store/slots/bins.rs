//! Packed payloads: side by side in slots that are taken for them, those of one group in *bins* of their own.
//!
//! A payload begins at a multiple of [`BYTES_PER_NUMBER`] and may end in the slot behind. Its packed slot is numbered by that place, so
//! place and slot say the same ([`Index::page_of`]). What has no payload has a place all the same: it is what statements know it by.
//!
//! A slot of a bin leaves when nothing in it is alive, which the index knows. A statement says so of the slot as a whole, so that a start
//! never sees what lay there beside what is written later. Where a bin is half dead, the hand moves what is alive
//! ([`super::hand`]).

use super::Slots;
use crate::api::WriteKind;
use crate::index::{BYTES_PER_NUMBER, Index, Slot};
use crate::mutants;
use crate::store::{Facts, PackedPayload, Purpose, Urgency};
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;
use format::Layout;
use format::slots::Statement;
use page::{Page, PagePool, PageVec};
use types::BLOCK_BYTES;

/// Slots taken at once for the payloads of a group.
const TAKEN_SLOTS: u32 = 8;
/// What makes room waits so long for a group that is written anyway.
const EMPTIED_HOLD_NS: u64 = 5_000_000;
/// What a sweep has to say fits so often into the ring: what a start states behind all that is there, a round that goes on, one that is over and
/// that the tail rests on, and as much for clients.
const ROUNDS_IN_RING: u64 = 4;

/// Pages beside what the sweep has to say: for what comes into slots ahead of it in one turn.
const MARGIN_PAGES: u64 = 4;

/// Slots side by side, and what is laid into them.
pub struct Bin {
    first: u32,
    slots: u32,
    /// From the begin of the first slot on.
    bytes: Vec<u8>,
}

impl Bin {
    /// Slots that are used.
    fn used(&self) -> u32 {
        self.bytes.len().div_ceil(BLOCK_BYTES as usize) as u32
    }

    fn pages_in_use(&self) -> core::ops::Range<u32> {
        self.first..self.first + self.used()
    }

    /// Lays a payload behind the last one, if there is room; gives its slot.
    fn lay(&mut self, payload: &[u8]) -> Option<Slot> {
        let length = payload.len().max(1).next_multiple_of(BYTES_PER_NUMBER as usize);
        let at = self.bytes.len();
        if at + length > self.slots as usize * BLOCK_BYTES as usize {
            return None;
        }
        self.bytes.extend_from_slice(payload);
        let shared =
            if mutants::active(mutants::PAYLOADS_OVERLAP) && length > BYTES_PER_NUMBER as usize { BYTES_PER_NUMBER as usize } else { 0 };
        self.bytes.resize(at + length - shared, 0);
        Some(Index::slot_at(self.first, at as u32))
    }

    /// Copies what is in it to pages, one for each slot that is used. `None` if there are not so many.
    pub fn to_pages(&self, pool: &PagePool) -> Option<(u32, PageVec)> {
        let pages = self.bytes.chunks(BLOCK_BYTES as usize).map(|bytes| {
            let mut page = pool.allocate()?;
            page[..bytes.len()].copy_from_slice(bytes);
            page[bytes.len()..].fill(0);
            Some(page.freeze())
        });
        Some((self.first, pages.collect::<Option<PageVec>>()?))
    }
}

/// What there is of packed records.
#[derive(Default)]
pub struct Packs {
    /// Records that are alive.
    pub records: u64,
    /// Slots that hold them.
    pub slots: u64,
    /// There ever were any.
    were_used: bool,
    /// Pages of the ring that are kept for the sweep.
    sweep_pages: u64,
    /// Slots in which nothing is alive any more, as has to be said yet.
    emptied: BTreeSet<u32>,
    /// Slots of bins that get no more: whether anything in them is alive was not asked since.
    unasked: Vec<u32>,
}

impl core::fmt::Display for Packs {
    fn fmt(&self, text: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Packs { records, slots, sweep_pages, emptied, unasked, .. } = self;
        let (emptied, unasked) = (emptied.len(), unasked.len());
        write!(text, "{records} records in {slots} slots, {emptied} emptied, {unasked} to be asked, {sweep_pages} pages kept for the sweep")
    }
}

impl Packs {
    /// What a start has found, and in which of so many slots: one bit each.
    pub fn found(index: &Index, slots: u32) -> (Packs, Vec<u64>) {
        if !index.is_wide() {
            return (Packs::default(), Vec::new());
        }
        let (mut records, mut map) = (0, vec![0_u64; slots.div_ceil(u64::BITS) as usize]);
        for slot in index.packed_in(0..slots) {
            records += 1;
            for page in Index::page_of(slot)..Index::page_behind_of(slot, index.stored(slot).bytes) {
                map[(page / u64::BITS) as usize] |= 1 << (page % u64::BITS);
            }
        }
        let slots = map.iter().map(|word| u64::from(word.count_ones())).sum();
        (Packs { records, slots, were_used: true, ..Packs::default() }, map)
    }

    /// Slots that so many records are likely to take.
    pub fn slots_of(&self, records: u32) -> u32 {
        (u64::from(records) * self.slots / self.records.max(1)) as u32
    }

    /// Whether there ever were any: then the sweep may be behind what it owes, although it has said all that.
    pub fn were_used(&self) -> bool {
        self.were_used
    }
}

impl Slots {
    /// Lays a page down in the building group as the payload of a packed record; gives its slot.
    pub(super) fn lay_page(&mut self, page: Page, writes: WriteKind, group: u64) -> Slot {
        let taken = self.slot_for_one();
        self.building.as_mut().expect("a group is being built").payloads.push((taken, page, writes));
        self.young.add(taken, group);
        self.packs.records += 1;
        self.packs.were_used = true;
        self.packs.slots += 1;
        Index::slot_at(taken, 0)
    }

    /// A slot that the open bin has taken and does not use.
    pub(super) fn spare_of_bin(&mut self) -> Option<u32> {
        let bin = self.building.as_mut()?.bins.last_mut()?;
        (bin.used() < bin.slots).then(|| {
            bin.slots -= 1;
            bin.first + bin.slots
        })
    }

    /// Lays a payload down in the building group, for which there is room; gives its slot.
    pub(super) fn lay(&mut self, payload: &PackedPayload, group: u64) -> Slot {
        self.expected_is_over();
        self.packs.records += 1;
        self.packs.were_used = true;
        let building = self.building.as_mut().expect("a group is being built");
        let laid = building.bins.last_mut().and_then(|bin| bin.lay(&payload.bytes));
        let slot = laid.unwrap_or_else(|| {
            self.close_bin();
            let bin = self.take_bin();
            let bins = &mut self.building.as_mut().expect("a group is being built").bins;
            bins.push(bin);
            bins.last_mut().and_then(|bin| bin.lay(&payload.bytes)).expect("a slot has room for any payload")
        });
        for page in Index::page_of(slot)..Index::page_behind_of(slot, payload.bytes.len() as u16) {
            if self.young.group_of(page) != Some(group) {
                self.young.add(page, group);
                self.packs.slots += 1;
            }
        }
        slot
    }

    /// Slots for a bin: of one region, side by side.
    fn take_bin(&mut self) -> Bin {
        let region_slots = self.place.layout.pages_per_segment();
        let (mut bin, mut rest) = (None, Vec::new());
        let wanted = TAKEN_SLOTS.min(self.places.free());
        assert!(wanted > 0 && self.places.take(wanted, |run| rest.push(run)), "there is room");
        let mut back = Vec::new();
        for run in rest {
            let of_region = (region_slots - run.first % region_slots).min(run.count);
            let count = if bin.is_none() { of_region } else { 0 };
            if count > 0 {
                bin = Some(Bin { first: run.first, slots: count, bytes: Vec::new() });
            }
            back.extend(run.first + count..run.first + run.count);
        }
        back.into_iter().for_each(|slot| self.places.give_back(slot));
        bin.expect("a run has a slot")
    }

    /// The bin that is being filled gets no more: what it does not use is free again.
    pub(super) fn close_bin(&mut self) {
        let Some(bin) = self.building.as_mut().and_then(|building| building.bins.last_mut()) else { return };
        let (used, slots) = (bin.used(), core::mem::replace(&mut bin.slots, 0));
        if slots == 0 {
            return;
        }
        let (first, in_use) = (bin.first, bin.pages_in_use());
        (first + used..first + slots).for_each(|slot| self.places.give_back(slot));
        self.packs.unasked.extend(in_use);
    }

    /// Where packed slots are numbered by place: one that was appended holds nothing any more.
    pub fn ended(&mut self, slot: Slot) {
        self.hand.left(slot.0);
        self.packs.records -= 1;
    }

    /// Where packed slots are numbered by place: plain slots of which to ask once more whether they hold anything packed.
    pub fn unasked(&mut self) -> Vec<u32> {
        core::mem::take(&mut self.packs.unasked)
    }

    /// A plain slot in which packed records were appended holds none any more.
    pub fn emptied(&mut self, slot: u32) {
        let is_open = |bin: &Bin| bin.slots > 0 && bin.pages_in_use().contains(&slot);
        let in_open_bin = self.building.as_ref().and_then(|building| building.bins.last()).is_some_and(is_open);
        if !in_open_bin {
            self.packs.emptied.insert(slot);
        }
    }

    /// Says of slots in which nothing is alive any more that it is so, as far as there is room to.
    pub(super) fn say_what_is_emptied(&mut self, now_ns: u64) {
        while !self.packs.emptied.is_empty() && !self.commits.is_failed() && self.has_room(Purpose::Void) {
            let slot = self.packs.emptied.pop_first().expect("there is one");
            let group = self.say(Statement::Gone { slot, unit: None, checksum: 0 }, Urgency::By(now_ns + EMPTIED_HOLD_NS));
            self.packs.slots -= 1;
            self.places.leave(slot, group, self.epoch);
        }
    }

    /// Packed records there are.
    pub fn packed_records(&self) -> u64 {
        self.packs.records
    }

    /// Slots that leave as soon as it is said.
    pub(super) fn emptied_count(&self) -> u32 {
        self.packs.emptied.len() as u32
    }

    /// What a sweep of all slots has to say at most, in units of a short statement.
    pub(super) fn stated_units(&self) -> u64 {
        let slots = u64::from(self.places.slots() - self.place.layout.ring_pages);
        slots.saturating_sub(self.packs.slots) + 2 * self.packs.records
    }

    /// Looks how many pages of the ring the sweep wants before the tail can pass another one: where packed records come and go, a round may
    /// have more to say than when it began.
    pub(super) fn look_at_sweep(&mut self, facts: &dyn Facts) {
        if !self.packs.were_used() {
            self.packs.sweep_pages = 0;
            return;
        }
        let of_round = self.stated_units().div_ceil(super::UNITS_A_PAGE) + MARGIN_PAGES;
        // What is exact takes time, and matters only where the ring becomes short.
        if self.ring_room() > of_round + 2 * super::RING_RESERVE {
            self.packs.sweep_pages = of_round;
            return;
        }
        let (slots, behind) = (self.places.slots(), self.rounds.behind());
        // Nothing is packed in the ring's pages.
        let (ring, first) = (self.place.ring(), self.rounds.next());
        let (all, end) = (slots - ring.pages, first + behind);
        let packed = facts.packed_count(ring.nth_slot(first)..ring.nth_slot(end.min(all)).min(slots))
            + if end > all { facts.packed_count(0..ring.nth_slot(end - all).min(slots)) } else { 0 };
        self.packs.sweep_pages = (u64::from(behind) + 2 * packed).div_ceil(super::UNITS_A_PAGE) + MARGIN_PAGES;
    }

    /// See [`Slots::look_at_sweep`].
    pub(super) fn sweep_pages(&self) -> u64 {
        self.packs.sweep_pages
    }

    /// Whether more may be packed: the sweep must get round before the ring is full, and a start must be able to state everything.
    pub fn may_pack(&self) -> bool {
        self.stated_units() < stated_units_max(&self.place.layout)
    }
}

/// What there may be to say of all slots, in units of a short statement, for more to be packed.
fn stated_units_max(layout: &Layout) -> u64 {
    let beside = super::partial_units(layout).div_ceil(super::UNITS_A_PAGE) + 2 * super::RING_RESERVE;
    u64::from(layout.ring_pages).saturating_sub(beside) / ROUNDS_IN_RING * super::UNITS_A_PAGE
}

/// Packed records that there may be, whatever is in the other slots.
pub fn packed_records_max(layout: &Layout) -> u64 {
    let slots = u64::from(layout.slots_per_shard() - layout.ring_pages);
    stated_units_max(layout).saturating_sub(slots) / 2
}

/// A page for a packed record that is stored as it is.
pub(super) fn page_of(payload: &PackedPayload) -> Option<Page> {
    if payload.bytes.is_empty() { payload.page.clone() } else { None }
}
