//! The end of a request: its reply, what is remembered of it, and its blocks given back.

use super::Shard;
use super::op::Op;
use super::range::keys_of;
use crate::api::{Origin, Outcome, RangeStep, Reply, Request, RequestError};
use crate::front::home_of;
use crate::key::{ExtentKey, Key};
use crate::locks::OpId;
use crate::trail::Trail;
use page::PageVec;
use types::{BypassReason, VolumeIndex};

/// Takes note of a request that has an extent, once.
fn note(trail: &mut Trail, now_ns: u64, op: &mut Op, outcome: Outcome) {
    if op.blocks > 0 && !core::mem::replace(&mut op.noted, true) && op.request.origin != Origin::Look {
        trail.note(now_ns, op.happened(outcome));
    }
}

impl Shard {
    /// The trail learns of a request that is about to be answered. Before what it brought enters the cache, which may have to turn it away.
    pub(super) fn note(&mut self, id: OpId, outcome: Outcome) {
        note(&mut self.trail, self.now_ns, self.ops.get_mut(id), outcome);
    }

    /// Replies and gives the blocks back.
    pub(super) fn finish(&mut self, id: OpId, result: Result<(), RequestError>, pages: PageVec, outcome: Outcome) {
        self.finish_as(id, Reply { id: self.ops.get(id).request.id, result, pages, outcome, range: None });
    }

    pub(super) fn finish_as(&mut self, id: OpId, reply: Reply) {
        let mut op = self.ops.remove(id);
        note(&mut self.trail, self.now_ns, &mut op, reply.outcome);
        for key in &op.shielded {
            self.shielded.remove(key);
            self.destager.may_look_at(*key);
        }
        self.unlock(id, &op);
        if op.request.range.is_some() {
            self.leave_range(id, &op.request);
        }
        self.out.reply(reply);
    }

    pub(super) fn fail(&mut self, id: OpId, error: RequestError) {
        self.finish(id, Err(error), PageVec::new(), Outcome::Other);
    }

    pub(super) fn wake_starved(&mut self) {
        if !self.starved.is_empty() {
            self.packer.give_back_pages();
            self.edge_pages.give_back();
            self.ready.append(&mut self.starved);
        }
    }

    /// Requests in the shard.
    pub(super) fn requests(&self) -> usize {
        self.ops.len() + self.quick_reads as usize
    }

    /// Whether `Quiesce` is complete: nothing in flight, nothing to come.
    pub fn is_quiesced(&self) -> bool {
        self.quiescing && self.out.in_flight() == 0 && self.awaited.is_empty() && self.requests() == 0 && self.store.is_idle()
    }

    /// A request goes around the cache, or has to wait. Counted is what clients ask for.
    pub(super) fn turn_away(&mut self, id: OpId, reason: BypassReason) {
        let op = self.ops.get_mut(id);
        op.reason = Some(reason);
        let (key, own) = (op.first, op.request.origin.is_own());
        if !own {
            self.volumes.of(key).stats.turn_away(reason);
        }
    }

    /// A block that a request brought does not get a place on the SSD.
    pub(super) fn turn_away_block(&mut self, key: Key, reason: BypassReason) {
        self.volumes.of(key).stats.turn_away(reason);
        self.trail.turned_away(key, reason);
    }

    /// A range request ends here, well or not: others may use its range.
    pub(super) fn leave_range(&mut self, id: OpId, request: &Request) {
        let range = keys_of(request);
        self.ranges.leave(id);
        let mut from = range.start.extent();
        while let Some((extent, _)) = self.dirty.next_extent(from.volume(), from).filter(|(extent, _)| *extent < range.end.extent()) {
            self.destager.may_look_at(extent.key(0));
            from = ExtentKey(extent.0 + 1);
        }
        if !matches!(request.range, Some(RangeStep::Hold | RangeStep::HoldAgain)) && self.is_home_of_ranges(request.volume) {
            self.trail.note_range(self.now_ns, range, request.op, Outcome::Other);
        }
        self.locks.release_range(id, &mut self.ready);
    }

    /// Whether this shard does for a volume's range requests what only one must do.
    pub(super) fn is_home_of_ranges(&self, index: VolumeIndex) -> bool {
        let place = &self.config.place;
        self.volumes.get(index).is_some_and(|volume| home_of(volume.id, place.layout.shards) == place.shard)
    }
}
