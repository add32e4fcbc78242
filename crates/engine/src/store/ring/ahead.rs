//! Taking back the oldest segments ahead of need, to store what is in them denser: which are worth it, and when it stops to pay.
//!
//! What it costs is bounded. A segment that was written by it is not taken back by it again, so that idling rewrites at most what others have
//! written, once. It goes from the tail while blocks that can become denser make up half of the bytes there, and rests when the last
//! segments shrank by less than [`GAIN_PERCENT_MIN`] until an eighth of the ring has been written anew.

use super::{RESERVE_SEGMENTS, Ring};
use crate::store::{Ahead, EvictTurn, Judge, Region, RegionId, WorkAhead, Worth};
use alloc::collections::VecDeque;
use types::BLOCK_BYTES;

/// The log counts as full with one in this many segments more free than eviction keeps, and one: a large write may have made room for more.
const FULL_ONE_IN: u64 = 32;
/// Segments at the tail that are looked at together: one in which little is to be gained is carried along if those behind it make up for it.
const AHEAD_SEGMENTS: u64 = 4;
/// Segments' worth of rewritten bytes by which the gain is judged.
const JUDGED_SEGMENTS: u64 = 4;
/// Of the rewritten bytes so many in a hundred must be gained, or it is not worth the writing.
const GAIN_PERCENT_MIN: u64 = 8;
/// One in this many segments of the ring must be written anew before it is tried again where it gained too little.
const REST_ONE_IN: u64 = 8;

/// See the module.
#[derive(Default)]
pub struct AheadState {
    /// The segments written by it, as ranges that end before their second number; oldest first.
    written: VecDeque<(u64, u64)>,
    /// Nothing is begun before the log has come to this segment.
    rest_until_seq: u64,
    /// Where the head was when work on the segment being taken back was begun or taken up again; `None` while nothing is written by it.
    since_seq: Option<u64>,
    /// Bytes alive in that segment, and what was saved in all before it.
    begun_bytes: u64,
    saved_before: u64,
    /// Bytes rewritten and gained lately.
    rewritten_bytes: u64,
    gained_bytes: u64,
}

impl AheadState {
    fn has_written(&self, seq: u64) -> bool {
        self.written.iter().any(|(first, end)| (*first..*end).contains(&seq))
    }

    fn note_written(&mut self, first: u64, end: u64, tail_seq: u64) {
        while self.written.front().is_some_and(|range| range.1 <= tail_seq) {
            self.written.pop_front();
        }
        match self.written.back_mut().filter(|range| first <= range.1) {
            Some(range) => range.1 = range.1.max(end),
            None => self.written.push_back((first, end)),
        }
    }
}

impl Ring {
    /// Whether, of the segments from this one on, so much could be made denser that the rewriting pays.
    fn is_worth_it(&self, seq: u64, worth: impl Fn(Region) -> Worth) -> bool {
        let (mut live_bytes, mut loose_bytes) = (0, 0);
        for seq in (seq..self.space.head_seq()).take(AHEAD_SEGMENTS as usize) {
            if self.ahead.has_written(seq) {
                return false;
            }
            let worth = worth(self.region_of(seq));
            (live_bytes, loose_bytes) = (live_bytes + worth.live_bytes, loose_bytes + worth.loose_bytes);
            if loose_bytes > 0 && loose_bytes * 2 >= live_bytes {
                return true;
            }
        }
        false
    }

    /// A segment was taken back by it. False if the last ones gained so little that it rests.
    pub(super) fn ended_ahead(&mut self, turn: &EvictTurn) -> bool {
        self.pause_ahead();
        let space = &self.space;
        let judged_bytes = JUDGED_SEGMENTS * u64::from(space.data_pages()) * BLOCK_BYTES;
        let rest_until_seq = space.head_seq() + (space.segments() / REST_ONE_IN).max(1);
        let ahead = &mut self.ahead;
        ahead.rewritten_bytes += ahead.begun_bytes;
        ahead.gained_bytes += turn.saved_bytes - ahead.saved_before;
        if ahead.rewritten_bytes < judged_bytes {
            return true;
        }
        if ahead.gained_bytes * 100 < ahead.rewritten_bytes * GAIN_PERCENT_MIN {
            (ahead.rewritten_bytes, ahead.gained_bytes) = (0, 0);
            ahead.rest_until_seq = rest_until_seq;
            return false;
        }
        ahead.rewritten_bytes /= 2;
        ahead.gained_bytes /= 2;
        true
    }
}

impl WorkAhead for Ring {
    fn look_ahead(&self, turn: &EvictTurn, under_way: bool, worth: impl Fn(Region) -> Worth) -> Ahead {
        let space = &self.space;
        let (seq, head_seq, free) = (space.tail_seq(), space.head_seq(), space.free_segments());
        if space.tail_durable() < seq || seq < head_seq && !self.is_segment_complete(seq) {
            return Ahead::Later;
        }
        let is_full = free <= self.evict_below(turn) + 1 + space.segments() / FULL_ONE_IN || under_way;
        let may_begin = is_full && head_seq >= self.ahead.rest_until_seq && free > RESERVE_SEGMENTS;
        if may_begin && self.is_worth_it(seq, worth) { Ahead::Next(self.region_of(seq)) } else { Ahead::Nothing }
    }

    fn begin_ahead(&mut self, turn: &EvictTurn, worth: Worth) -> Option<Judge> {
        let space = &self.space;
        // Even if nothing is gained there must not be less room in the end: then something would have to be forgotten.
        let opened = worth.pages.saturating_sub(u64::from(space.pages_left(0))).div_ceil(u64::from(space.data_pages()));
        if space.free_segments() + 1 < self.evict_below(turn) + opened {
            return None;
        }
        let seq = space.tail_seq();
        self.ahead.since_seq = Some(space.head_seq());
        (self.ahead.begun_bytes, self.ahead.saved_before) = (worth.live_bytes, turn.saved_bytes);
        self.common.eviction.begin(RegionId(seq), true);
        Some(self.judge(seq, true))
    }

    fn resume_ahead(&mut self) {
        self.ahead.since_seq.get_or_insert(self.space.head_seq());
    }

    fn pause_ahead(&mut self) {
        if let Some(first_seq) = self.ahead.since_seq.take() {
            self.ahead.note_written(first_seq, self.space.head_seq() + 1, self.space.tail_durable());
        }
    }

    fn works_ahead(&self) -> bool {
        self.ahead.since_seq.is_some()
    }
}
