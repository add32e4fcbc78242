//! The hand: it goes over the shelves, and clean blocks that are not used any more are given up where they are.
//!
//! In three steps, so that a crash at any point finds every block: (1) the shard says which blocks of a shelf go; (2) a group says so,
//! and becomes durable; (3) only then do their entries leave the index and their slots become free. Between (2) and (3) they are served as
//! before, but the sweep does not state them again.
//!
//! There are two hands: one for the main part of the cache, which comes to each shelf, and one for the epoch of the small part that is judged
//! next, which comes to the shelves that have blocks of it ([`crate::policy`]).

use super::{AHEAD_ONE_IN, Slots};
use crate::index::{Index, Slot};
use crate::key::Set;
use crate::mutants;
use crate::store::{Evict, EvictTurn, Judge, Progress, RegionId, Urgency};
use ::slots::SHELF_SLOTS;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use format::slots::Statement;

/// From so many slots of a shelf on, one statement for all of them is shorter.
const GONE_TOGETHER_MIN: usize = 6;

/// The hand goes round so often without a gain before it takes what is used, too: a block's heat is less with each round.
const PATIENT_ROUNDS: u32 = 4;

/// The hand comes to so many shelves at most before the shard hears of them.
const BEGUN_MAX: usize = 16;

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
    /// Shelves that gave nothing, one behind the other.
    fruitless: u32,
    /// The same two of the hand that judges the small part.
    next_of_small: u32,
    fruitless_of_small: u32,
}

impl Hand {
    /// The first shelf is this one.
    pub fn new(next: u32) -> Hand {
        Hand {
            next,
            begun: Vec::new(),
            going: VecDeque::new(),
            going_slots: Set::default(),
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
        self.going_slots.remove(&slot);
    }

    /// Blocks have become clean, or older: it may be worth looking again.
    pub fn something_changed(&mut self) {
        self.fruitless = 0;
        // At a shelf, not at all of them: where nearly all that is new is dirty, each write would have them all judged.
        self.fruitless_of_small = self.fruitless_of_small.saturating_sub(1);
    }

    /// Whether the hand has come to so many shelves that the shard is to hear of them now.
    pub fn is_far(&self) -> bool {
        self.begun.len() >= BEGUN_MAX
    }

    /// The shelves that the hand has come to since this was asked last.
    pub fn take_begun(&mut self) -> Vec<u32> {
        core::mem::take(&mut self.begun)
    }
}

impl Slots {
    /// Slots that are free, or will be without more being given up.
    fn free_soon(&self) -> u32 {
        self.places.free() + self.places.leaving() + self.hand.going_slots.len() as u32
    }

    /// Below so many the hand goes on.
    fn wanted_free(&self, turn: &EvictTurn) -> u32 {
        let ahead = 2 * self.reserve() + self.places.slots() / AHEAD_ONE_IN;
        ahead.max(turn.wanted_blocks.map_or(0, |blocks| blocks + self.reserve()))
    }

    /// See [`Store::evict`].
    pub(super) fn go_on(&mut self, turn: &EvictTurn, index: &Index) -> Evict {
        if self.common.eviction.is_stopped() {
            return Evict::Rest;
        }
        if self.common.eviction.region().is_some() {
            // What was judged is given up at once: a slot that was left meanwhile could be another block's.
            let gone = self.common.eviction.take_gone();
            self.common.eviction.end();
            if self.has_ring_room_to_evict() {
                self.give_up(gone);
            }
        }
        self.hurry_what_leaves(turn);
        let shelves = self.place.layout.segments_per_shard;
        if self.common.quiescing
            || self.free_soon() >= self.wanted_free(turn)
            || self.hand.fruitless >= (PATIENT_ROUNDS + 1) * shelves
            || !self.has_ring_room_to_evict()
        {
            return Evict::Rest;
        }
        if let Some(part) = turn.part.filter(|part| *part != 0)
            && let Some(at) = self.next_of_small(part, index)
        {
            self.common.eviction.begin(RegionId(u64::from(at)), false);
            let region = self.region_at(at);
            return Evict::Judge(Judge { region, part: Some(part), keeps_all: false, clean_bytes_max: u64::MAX });
        }
        let at = self.hand.next;
        self.hand.next = self.shelf_behind(at);
        self.hand.begun.push(at);
        // What is used is spared for some rounds, and then no more: whoever waits for room gets it.
        let is_patient = self.hand.fruitless < PATIENT_ROUNDS * shelves;
        let (clean_bytes_max, part) = if is_patient { (u64::MAX, turn.part.map(|_| 0)) } else { (0, None) };
        self.hand.fruitless += 1;
        self.common.eviction.begin(RegionId(u64::from(at)), false);
        Evict::Judge(Judge { region: self.region_at(at), part, keeps_all: false, clean_bytes_max })
    }

    fn shelf_behind(&self, at: u32) -> u32 {
        let layout = &self.place.layout;
        if at + 1 < layout.segments_per_shard { at + 1 } else { layout.ring_pages / layout.pages_per_segment() }
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
        let last = self.common.commits.last();
        if is_low && self.common.commits.durable() < last && self.free_soon() > self.places.free() {
            self.common.commits.want_durable(last);
        }
    }

    fn has_ring_room_to_evict(&self) -> bool {
        self.ring_room_for_others() > 1
    }

    /// A group says that these slots go.
    fn give_up(&mut self, gone: Vec<Slot>) {
        if gone.is_empty() {
            return;
        }
        (self.hand.fruitless, self.hand.fruitless_of_small) = (0, 0);
        let mut slots: Vec<u32> = gone.iter().map(|slot| slot.0).collect();
        slots.sort_unstable();
        let mut last = 0;
        for of_shelf in slots.chunk_by(|one, other| one / SHELF_SLOTS == other / SHELF_SLOTS) {
            if of_shelf.len() >= GONE_TOGETHER_MIN {
                let mut bits = [0; SHELF_SLOTS as usize / 64];
                for slot in of_shelf {
                    bits[(slot % SHELF_SLOTS / 64) as usize] |= 1 << (slot % 64);
                }
                last = self.say(Statement::GoneOfShelf { shelf: of_shelf[0] / SHELF_SLOTS, slots: bits }, Urgency::By(0));
            } else {
                for slot in of_shelf {
                    last = self.say(Statement::Gone { slot: *slot, checksum: 0 }, Urgency::By(0));
                }
            }
        }
        self.hand.going_slots.extend(&slots);
        self.hand.going.push_back((last, slots));
    }

    /// What is durable now may leave the index.
    pub(super) fn forget_gone(&mut self, progress: &mut Progress) {
        let durable = self.common.commits.durable();
        while let Some((_, slots)) =
            self.hand.going.pop_front_if(|(group, _)| *group <= durable || mutants::active(mutants::GONE_LEAVES_EARLY))
        {
            // What was written over, or made void, since then was left already.
            let still = slots.into_iter().filter(|slot| self.hand.going_slots.remove(slot));
            progress.gone.extend(still.map(Slot));
        }
    }
}
