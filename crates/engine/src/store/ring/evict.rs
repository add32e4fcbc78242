//! Taking back the oldest segment: the tail goes on when all that is kept of it has been appended again at the head.

use super::{RESERVE_SEGMENTS, Ring};
use crate::index::Index;
use crate::store::{Evict, EvictTurn, Judge, RegionId, WorkAhead};
use page::PagePool;
use types::BLOCK_BYTES;

/// Pages read at once for appending again: one read of up to 256 KiB.
const BATCH_PAGES_MAX: u32 = 64;
/// Such reads at the same time.
const BATCHES_IN_FLIGHT_MAX: u32 = 4;
/// The same ahead of need, one at a time: a request that comes meanwhile waits until what was read is stored anew, about a millisecond.
const BATCH_PAGES_AHEAD: u32 = 16;

impl Ring {
    /// Free segments below which eviction begins.
    pub(super) fn evict_below(&self, turn: &EvictTurn) -> u64 {
        let margin = RESERVE_SEGMENTS + 1 + self.space.segments() / 64;
        // Whoever waits for room must get it, however much it wants.
        margin.max(turn.wanted_blocks.map_or(0, |blocks| self.segments_needed(blocks)))
    }

    /// Whether there are too few free segments. What is only waiting for its tail to become durable counts as free: no need to take back more.
    fn must_evict(&self, turn: &EvictTurn) -> bool {
        let space = &self.space;
        space.free_segments() + (space.tail_seq() - space.tail_durable()) < self.evict_below(turn)
    }

    pub(super) fn judge(&self, seq: u64, keeps_all: bool) -> Judge {
        let most_bytes = u64::from(self.space.data_pages()) * BLOCK_BYTES * 3 / 4;
        let clean_bytes_max = if self.space.free_segments() >= RESERVE_SEGMENTS { most_bytes } else { 0 };
        Judge { region: self.region_of(seq), part: None, keeps_all, clean_bytes_max, moves_below_bytes: 0 }
    }

    /// See [`crate::store::Store::evict`].
    pub(super) fn evict_step(&mut self, turn: &EvictTurn, index: &Index, pool: &PagePool) -> Evict {
        if self.common.eviction.is_stopped() {
            return Evict::Rest;
        }
        if self.common.eviction.region().is_none() {
            return self.begin_evicting(turn).map_or(Evict::Rest, Evict::Judge);
        }
        let is_ahead = self.common.eviction.is_ahead();
        let careful = match self.careful {
            Some(careful) => careful,
            None => {
                let must = self.must_evict(turn);
                if is_ahead && self.common.quiescing && !must {
                    // A stop does not wait for it.
                    self.pause_ahead();
                    self.common.eviction.give_up();
                    return Evict::Rest;
                }
                // As long as one look at what is to be read goes on.
                *self.careful.insert(is_ahead && !must)
            }
        };
        let (batches_max, pages_max) = if careful { (1, BATCH_PAGES_AHEAD) } else { (BATCHES_IN_FLIGHT_MAX, BATCH_PAGES_MAX) };
        if self.common.eviction.reading() < batches_max && self.common.eviction.waits() {
            match turn.goes_on_ahead.filter(|_| careful) {
                None if careful => return Evict::AskAhead,
                Some(false) => {}
                _ => return self.read_batch(pages_max, pool),
            }
        }
        self.careful = None;
        if !self.common.eviction.is_read() || !self.can_append() {
            return Evict::Rest;
        }
        self.retire(turn, index)
    }

    fn begin_evicting(&mut self, turn: &EvictTurn) -> Option<Judge> {
        let seq = self.space.tail_seq();
        if !self.must_evict(turn) || seq >= self.space.head_seq() || self.common.quiescing {
            return None;
        }
        // In a tiny ring the tail can still be on its way to the device; the completion comes back here.
        if !self.is_segment_complete(seq) {
            return None;
        }
        self.common.eviction.begin(RegionId(seq), false);
        Some(self.judge(seq, false))
    }

    fn read_batch(&mut self, pages_max: u32, pool: &PagePool) -> Evict {
        let Some((batch, pages)) = self.common.eviction.next_batch(pages_max, true, pool) else {
            self.careful = None;
            return Evict::NoPages;
        };
        self.common.readers.begin(batch.region);
        let offset_bytes = self.page_offset_bytes(batch.region.0, batch.first_page);
        let span = self.common.ssds.read_span(offset_bytes, pages.len(), true);
        Evict::Read(batch, span, pages)
    }

    /// Everything to be kept of the segment is appended: publish the new tail.
    #[inline(never)]
    fn retire(&mut self, turn: &EvictTurn, index: &Index) -> Evict {
        let (region, was_ahead) = self.common.eviction.end();
        assert_eq!(region.0, self.space.tail_seq(), "segments are taken back in order");
        self.space.retire_tail();
        self.publish_tail().expect("there is room for a record");
        // Of what an earlier life left, the tail never rests on a segment with nothing in it: recovery may have found it unreadable, and what marks
        // such a hole has just been passed. The next start might read it, and believe what is long void. (The group that says where the tail is
        // has been begun, in a segment of this life; it takes the tail along when it is closed.)
        while self.space.tail_seq() < self.begun_seq && self.is_empty(self.space.tail_seq(), index) {
            self.space.retire_tail();
        }
        match was_ahead {
            true => Evict::EndedAhead { pays: self.ended_ahead(turn) },
            // One region was taken back; perhaps the next must be, too.
            false => self.begin_evicting(turn).map_or(Evict::Rest, Evict::Judge),
        }
    }

    /// Whether nothing in a segment is of use.
    fn is_empty(&self, seq: u64, index: &Index) -> bool {
        self.region_of(seq).slots(index).all(|slot| index.key_of(slot).is_none() && !(slot.is_packed() && index.is_object(slot)))
    }
}
