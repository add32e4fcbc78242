//! The hand: it goes over the shelves, and clean blocks that are not used any more are given up where they are.
//!
//! In three steps, so that a crash at any point finds every block: (1) the shard says which blocks of a shelf go; (2) a group says so,
//! and becomes durable; (3) only then do their entries leave the index and their slots become free. Between (2) and (3) they are served as
//! before, but the sweep does not state them again.
//!
//! There are two hands: one for the main part of the cache, which comes to each shelf, and one for the epoch of the small part that is judged
//! next, which comes to the shelves that have blocks of it ([`crate::policy`]).

use super::{AHEAD_ONE_IN, Slots, stated_place};
use crate::index::{BYTES_PER_NUMBER, Index, Slot};
use crate::key::Set;
use crate::mutants;
use crate::store::{Evict, EvictTurn, Judge, Progress, Purpose, RegionId, Urgency};
use ::slots::SHELF_SLOTS;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use format::Layout;
use format::slots::{RingPlace, Statement};
use page::PagePool;
use types::BLOCK_BYTES;

/// From so many slots of a shelf on, one statement for all of them is shorter.
const GONE_TOGETHER_MIN: usize = 6;

/// The hand goes round so often without a gain before it takes what is used, too: a block's heat is less with each round.
const PATIENT_ROUNDS: u32 = 4;

/// Packed payloads are moved when one in so many bytes of their slots is of no use, and only out of slots of which no more bytes are alive.
const WASTED_ONE_IN: u64 = 5;
const MOVED_BELOW_BYTES: u32 = 3072;
/// Pages read at once to be moved, and such reads at the same time.
const MOVE_PAGES_MAX: u32 = 64;
const MOVES_IN_FLIGHT_MAX: u32 = 2;

/// See the module.
pub struct Hand {
    /// The shelf that is next.
    next: u32,
    /// Shelves that were begun and that the shard was not told of.
    begun: Vec<u32>,
    /// Groups that say that slots go, and these slots.
    going: VecDeque<(u64, Vec<u32>)>,
    /// All slots that go.
    going_slots: Set<u32>,
    /// Packed ones among them.
    going_packed: u32,
    /// Shelves that gave nothing, one behind the other.
    fruitless: u32,
    /// The same two of the hand that judges the small part.
    next_of_small: u32,
    fruitless_of_small: u32,
}

impl core::fmt::Display for Hand {
    fn fmt(&self, text: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Hand { next, going_slots, going_packed, fruitless, fruitless_of_small, .. } = self;
        let going = going_slots.len();
        write!(text, "at {next}, {going} going, {going_packed} of them packed, fruitless {fruitless}, {fruitless_of_small}")
    }
}

impl Hand {
    /// The first shelf is this one.
    pub fn new(next: u32) -> Hand {
        Hand {
            next,
            begun: Vec::new(),
            going: VecDeque::new(),
            going_slots: Set::default(),
            going_packed: 0,
            fruitless: 0,
            next_of_small: next,
            fruitless_of_small: 0,
        }
    }

    /// The sweep leaves the slot out.
    pub fn is_going(&self, slot: u32) -> bool {
        self.going_slots.contains(&slot)
    }

    /// Nothing current is in the slot any more.
    pub fn left(&mut self, slot: u32) {
        self.take_going(slot);
    }

    fn take_going(&mut self, slot: u32) -> bool {
        let was_going = self.going_slots.remove(&slot);
        self.going_packed -= u32::from(was_going && Slot(slot).is_packed());
        was_going
    }

    /// Blocks have become clean, or older: it may be worth looking again.
    pub fn something_changed(&mut self) {
        self.fruitless = 0;
        // At a shelf, not at all of them: where nearly all that is new is dirty, each write would have them all judged.
        self.fruitless_of_small = self.fruitless_of_small.saturating_sub(1);
    }

    /// The shelves that the hand has come to since this was asked last.
    pub fn take_begun(&mut self) -> Vec<u32> {
        core::mem::take(&mut self.begun)
    }
}

/// The first shelf from this one on, and from the first one on behind the last, that has slots beside the ring.
pub fn shelf_from(at: u32, layout: &Layout, ring: RingPlace) -> u32 {
    let (shelves, pages) = (layout.segments_per_shard, layout.pages_per_segment());
    let mut all = (at..shelves).chain(0..at);
    all.find(|at| !ring.contains_all(at * pages, pages)).expect("the ring is at most half of the shard's part")
}

impl Slots {
    /// Slots that are free, or will be without more being given up.
    fn free_soon(&self) -> u32 {
        let of_packed = self.packs.slots_of(self.hand.going_packed);
        let going = self.hand.going_slots.len() as u32 - self.hand.going_packed + of_packed;
        self.places.free() + self.places.leaving() + self.emptied_count() + going
    }

    /// Below so many the hand goes on.
    fn wanted_free(&self, turn: &EvictTurn) -> u32 {
        let ahead = 2 * self.reserve() + self.places.slots() / AHEAD_ONE_IN;
        ahead.max(turn.wanted_blocks.map_or(0, |blocks| blocks + self.reserve()))
    }

    /// The next step of taking room back, of those that are needed now.
    pub fn evict(&mut self, turn: &EvictTurn, index: &Index, pool: &PagePool) -> Evict {
        if self.eviction.is_stopped() {
            return Evict::Rest;
        }
        if self.eviction.region().is_some() {
            // What was judged is given up at once: a slot that was left meanwhile could be another block's.
            let gone = self.eviction.take_gone();
            if self.has_ring_room_to_evict() {
                self.give_up(gone);
            }
            if self.eviction.waits() || !self.eviction.is_read() {
                return self.move_on(index, pool);
            }
            self.eviction.end();
        }
        self.hurry_what_leaves(turn);
        let shelves = self.place.layout.segments_per_shard;
        if self.quiescing
            || self.free_soon() >= self.wanted_free(turn)
            || self.hand.fruitless >= (PATIENT_ROUNDS + 1) * shelves
            || !self.has_ring_room_to_evict()
        {
            return Evict::Rest;
        }
        if turn.part != 0
            && let Some(at) = self.next_of_small(turn.part, index)
        {
            self.eviction.begin(RegionId(u64::from(at)));
            let region = self.region_at(at);
            return Evict::Judge(Judge { region, part: Some(turn.part), clean_bytes_max: u64::MAX, moves_below_bytes: 0 });
        }
        let at = self.hand.next;
        self.hand.next = self.shelf_behind(at);
        self.hand.begun.push(at);
        // What is used is spared for some rounds, and then no more: whoever waits for room gets it.
        let is_patient = self.hand.fruitless < PATIENT_ROUNDS * shelves;
        let (clean_bytes_max, part) = if is_patient { (u64::MAX, Some(0)) } else { (0, None) };
        self.hand.fruitless += 1;
        self.eviction.begin(RegionId(u64::from(at)));
        let moves_below_bytes = self.moves_below_bytes(index);
        Evict::Judge(Judge { region: self.region_at(at), part, clean_bytes_max, moves_below_bytes })
    }

    /// Packed payloads are moved out of slots with fewer bytes of them alive, where slots have much room in all that nothing uses.
    fn moves_below_bytes(&self, index: &Index) -> u32 {
        let in_bins = self.packs.slots * BLOCK_BYTES;
        // Half a number is lost behind a payload.
        let beside = 2 * format::record::RECORD_BYTES as u64 - u64::from(BYTES_PER_NUMBER) / 2;
        let wasted = in_bins.saturating_sub(index.census().stored_bytes.saturating_sub(self.packs.records * beside));
        if wasted * WASTED_ONE_IN <= in_bins || !self.may_move() { 0 } else { MOVED_BELOW_BYTES }
    }

    /// Whether there is room for what is moved before its slots are free.
    fn may_move(&self) -> bool {
        self.has_room(Purpose::Void) && self.places.free() > self.reserve() / 2
    }

    /// Reads the next of what is moved.
    fn move_on(&mut self, index: &Index, pool: &PagePool) -> Evict {
        let (young, complete) = (&self.young, self.commits.complete());
        // What has gone since is no more there to be read; what came into its place may be on its way yet.
        let is_there = |slot: Slot| {
            let is_young = young.group_of(Index::page_of(slot)).is_some_and(|group| group > complete);
            (!is_young || mutants::active(mutants::MOVED_BEFORE_IT_IS_THERE)) && (index.key_of(slot).is_some() || index.is_orphan(slot))
        };
        let may_move = self.may_move();
        self.eviction.retain(|kept| may_move && is_there(kept.slot));
        if self.eviction.reading() >= MOVES_IN_FLIGHT_MAX || !self.eviction.waits() {
            return Evict::Rest;
        }
        let region_slots = self.place.layout.pages_per_segment();
        let at = self.eviction.region().expect("a shelf was judged").0 as u32;
        let Some((mut batch, pages)) = self.eviction.next_batch(MOVE_PAGES_MAX, pool) else { return Evict::NoPages };
        batch.region = RegionId(self.epoch);
        self.readers.begin(batch.region);
        assert!(batch.first_page < region_slots, "pages of a shelf");
        let offset = self.place.layout.page_offset(self.place.shard, at, batch.first_page);
        let span = self.ssds.read_span(offset, pages.len(), true);
        Evict::Read(batch, span, pages)
    }

    fn shelf_behind(&self, at: u32) -> u32 {
        let layout = &self.place.layout;
        shelf_from((at + 1) % layout.segments_per_shard, layout, self.place.ring())
    }

    /// The next shelf with blocks of this part of the cache; `None` if there is none, or the last ones, as many as there are, gave nothing.
    fn next_of_small(&mut self, part: u8, index: &Index) -> Option<u32> {
        let layout = &self.place.layout;
        let (pages, shelves) = (layout.pages_per_segment(), layout.segments_per_shard);
        if self.hand.fruitless_of_small >= shelves {
            return None;
        }
        let from = self.hand.next_of_small * pages;
        let slot = index.first_of_part(part, from..shelves * pages).or_else(|| index.first_of_part(part, 0..from))?;
        let at = slot / pages;
        self.hand.next_of_small = self.shelf_behind(at);
        self.hand.fruitless_of_small += 1;
        Some(at)
    }

    /// Whoever waits for slots that are only on their way wants the groups that free them durable.
    fn hurry_what_leaves(&mut self, turn: &EvictTurn) {
        if self.places.leaving() > 0 {
            self.settle();
        }
        let waits = turn.wanted_blocks.is_some_and(|blocks| self.places.free() < blocks + self.reserve());
        // Before clean blocks are turned away for want of room: they alone would never make anything durable.
        let is_low = waits || self.places.free() <= 2 * self.reserve() + self.places.slots() / (2 * AHEAD_ONE_IN);
        let last = self.commits.last();
        if is_low && self.commits.durable() < last && self.free_soon() > self.places.free() {
            self.commits.want_durable(last);
        }
    }

    fn has_ring_room_to_evict(&self) -> bool {
        self.ring_room_for_others() > 1
    }

    /// A group says that these slots go.
    fn give_up(&mut self, gone: Vec<Slot>) {
        if gone.iter().all(|slot| self.hand.is_going(slot.0)) {
            return;
        }
        (self.hand.fruitless, self.hand.fruitless_of_small) = (0, 0);
        let mut slots: Vec<u32> = gone.iter().map(|slot| slot.0).filter(|slot| !self.hand.is_going(*slot)).collect();
        slots.sort_unstable();
        let mut last = 0;
        for of_shelf in slots.chunk_by(|one, other| one / SHELF_SLOTS == other / SHELF_SLOTS) {
            if of_shelf.len() >= GONE_TOGETHER_MIN && !Slot(of_shelf[0]).is_packed() {
                let mut bits = [0; SHELF_SLOTS as usize / 64];
                for slot in of_shelf {
                    bits[(slot % SHELF_SLOTS / 64) as usize] |= 1 << (slot % 64);
                }
                last = self.say(Statement::GoneOfShelf { shelf: of_shelf[0] / SHELF_SLOTS, slots: bits }, Urgency::By(0));
            } else {
                for slot in of_shelf {
                    let (slot, unit) = stated_place(Slot(*slot));
                    last = self.say(Statement::Gone { slot, unit, checksum: 0 }, Urgency::By(0));
                }
            }
        }
        self.hand.going_slots.extend(&slots);
        self.hand.going_packed += slots.iter().filter(|slot| Slot(**slot).is_packed()).count() as u32;
        self.hand.going.push_back((last, slots));
    }

    /// What is durable now may leave the index.
    pub(super) fn forget_gone(&mut self, progress: &mut Progress) {
        let durable = self.commits.durable();
        while let Some((_, slots)) =
            self.hand.going.pop_front_if(|(group, _)| *group <= durable || mutants::active(mutants::GONE_LEAVES_EARLY))
        {
            // What was written over, or made void, since then was left already.
            let hand = &mut self.hand;
            progress.gone.extend(slots.into_iter().filter(|slot| hand.take_going(*slot)).map(Slot));
        }
    }
}
