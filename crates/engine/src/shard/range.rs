//! Range requests: a discard or write-zeroes over whole extents, many at a time. The front takes all shards through it step by step
//! ([`RangeStep`]); here is what one shard does.
//!
//! The order of steps is that of [`super::write_backing`], for all blocks of the range that lie in this shard:
//! 1. *Hold.* The range is locked. Destage begins nothing in it any more, and what it has under way there ends. Clean cached versions are
//!    made void: RAM at once, the store by `Invalidate` records that are durable before the answer. The records of dirty versions are durable too.
//! 2. *Write*, in one shard, when all hold the range: one I/O to the backing device; durable if any shard has dirty blocks in the range.
//! 3. *Settle*, if there are dirty blocks in the range, in any shard: the dirty versions of what was written are made void.
//! 4. *Release.* The range is unlocked. Dirty versions of what was not written stay the newest.
//!
//! If the SSD is lost before a shard has settled, what was dirty goes home, over what was written: the steps begin anew. All shards hold the
//! range meanwhile, so that nobody sees the range written, and writes to it, before it is written for the last time.
//!
//! So a crash finds each block old or new, as with any write.
//!
//! What it costs is what is cached and dirty in the range: extents without cached blocks are passed by ([`crate::presence`]). Blocks are made
//! void in slices, so that clients wait for some tens of microseconds at most.

use super::op::{Op, Phase};
use super::{Context, Shard};
use crate::api::{IoError, IoKind, Op as OpKind, Outcome, RangeReply, RangeStep, RangeWrite, Reply, Request, RequestError, Target};
use crate::key::{ExtentKey, Key};
use crate::locks::OpId;
use crate::mutants;
use crate::outbox::Span;
use crate::presence::Found;
use crate::store::{Purpose, Urgency};
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;
use core::ops::Range;
use page::PageVec;
use types::{BLOCK_SECTORS, EXTENT_BLOCKS, EXTENT_SECTORS, SECTOR_BYTES};

/// Steps of a slice; a step is about ten nanoseconds. In the simulator's build a range takes several slices even in its small pools.
pub(super) const SLICE_STEPS: u32 = if cfg!(feature = "mutants") { 600 } else { 4096 };

/// From the begin of a slice to that of the next: clients get the time between.
const SLICE_EVERY_NS: u64 = 100_000;

/// Steps that it takes to look for a block in index and RAM.
const STEPS_A_LOOK: u32 = 2;

/// Steps that it takes to make a block void.
const STEPS_A_BLOCK: u32 = 100;

/// Invalidate records that nobody waited for are looked at one by one up to this count; of more, all are waited for.
const UNSETTLED_LOOKS_MAX: usize = 4096;

/// A range that is locked here.
struct HeldRange {
    op: OpId,
    range: Range<Key>,
    /// Blocks before this one have been looked at in the present step.
    from: Key,
    /// The write was done: dirty versions are to go.
    written: bool,
    /// The present step only settles.
    settles: bool,
    /// The SSD was lost since it was held: destage is not held back in it any more.
    spoilt: bool,
    /// It is recorded that the lost SSD holds nothing of it.
    recorded: bool,
}

/// Range requests of the shard.
#[derive(Default)]
pub struct Ranges {
    held: Vec<HeldRange>,
    /// They go on in the next slice, in order.
    paused: VecDeque<OpId>,
    slice_ends_ns: u64,
    steps_left: u32,
}

impl Ranges {
    /// Whether destage has to leave the block alone.
    #[inline]
    pub fn covers(&self, key: Key) -> bool {
        !self.held.is_empty() && self.held.iter().any(|held| !held.spoilt && held.range.contains(&key))
    }

    /// The SSD was lost: what is dirty in the ranges goes home first.
    pub fn are_spoilt(&mut self) {
        self.held.iter_mut().for_each(|held| held.spoilt = true);
    }

    /// It is recorded that the lost SSD holds nothing of the request's range, if it has one.
    pub fn is_recorded(&mut self, id: OpId) {
        self.held.iter_mut().filter(|held| held.op == id).for_each(|held| held.recorded = true);
    }

    /// When the next slice begins, if one is wanted.
    pub fn deadline(&self) -> Option<u64> {
        (!self.paused.is_empty()).then_some(self.slice_ends_ns)
    }

    /// The request holds no range any more.
    pub fn leave(&mut self, id: OpId) {
        self.held.retain(|held| held.op != id);
    }

    fn of(&mut self, id: OpId) -> &mut HeldRange {
        self.held.iter_mut().find(|held| held.op == id).expect("the request holds its range")
    }

    /// Takes steps of the present slice. False when there are none left: the request goes on in the next.
    fn may_go_on(&mut self, now_ns: u64, id: OpId, steps: u32) -> bool {
        if now_ns >= self.slice_ends_ns {
            (self.slice_ends_ns, self.steps_left) = (now_ns + SLICE_EVERY_NS, SLICE_STEPS);
        }
        let goes_on = self.steps_left > 0;
        self.steps_left = self.steps_left.saturating_sub(steps);
        if !goes_on {
            self.paused.push_back(id);
        }
        goes_on
    }
}

/// The blocks of a range request.
pub(super) fn keys_of(request: &Request) -> Range<Key> {
    let first = Key::new(request.volume, request.start_sector / BLOCK_SECTORS);
    first..Key(first.0 + u64::from(request.sectors) / BLOCK_SECTORS)
}

fn extents_of(range: &Range<Key>) -> Range<ExtentKey> {
    range.start.extent()..range.end.extent()
}

impl Shard {
    /// Whether a range request may begin: as [`Shard::refuse`], of whole extents.
    pub(super) fn refuse_range(request: &Request, volume_sectors: u64) -> Result<(), RequestError> {
        let end = request.start_sector.checked_add(u64::from(request.sectors)).ok_or(RequestError::Invalid)?;
        let whole = (request.start_sector | end).is_multiple_of(EXTENT_SECTORS);
        let zeroes = matches!(request.op, OpKind::Discard | OpKind::PunchHole | OpKind::WriteZeroes);
        let valid = request.sectors > 0 && end <= volume_sectors && whole && zeroes && request.pages.is_empty();
        if valid { Ok(()) } else { Err(RequestError::Invalid) }
    }

    /// The next step of a range request.
    pub(super) fn begin_range_step(&mut self, request: Request, step: RangeStep) {
        let range = keys_of(&request);
        if step == RangeStep::Hold {
            let id = self.ops.add(Op::of_range(request, range.start));
            if self.locks.acquire_range(id, range) {
                self.ready.push_back(id);
            }
            return;
        }
        // It holds the range alone, so the range says which it is.
        let held = self.ranges.held.iter_mut().find(|held| held.range == range).expect("the front goes on with what is held");
        let id = held.op;
        held.from = range.start;
        assert_eq!(self.ops.get(id).phase, Phase::RangeHeld, "the step before is over");
        self.ops.get_mut(id).request = request;
        match step {
            RangeStep::Hold => unreachable!("seen above"),
            RangeStep::HoldAgain => {
                self.ops.get_mut(id).phase = Phase::Start;
                self.ready.push_back(id);
            }
            RangeStep::Write { over_dirty } => self.write_range(id, over_dirty),
            RangeStep::Settle(write) => self.begin_release(id, write, true),
            RangeStep::Release(write) => self.begin_release(id, write, false),
        }
    }

    /// A request that waited for the next slice goes on if it has come.
    pub(super) fn begin_slice(&mut self) {
        if self.ranges.deadline().is_some_and(|time_ns| time_ns <= self.now_ns) {
            self.ready.extend(self.ranges.paused.drain(..));
        }
    }

    /// Step 1: the range is locked.
    pub(super) fn hold_range(&mut self, id: OpId) {
        let index = self.ops.get(id).request.volume;
        if self.volumes.get(index).is_none_or(|volume| volume.backing.failed) {
            self.fail(id, RequestError::Io);
            return;
        }
        if self.loss.is_ssd_failed() && !self.may_write_past(id) {
            return;
        }
        let range = keys_of(&self.ops.get(id).request);
        match self.ranges.held.iter_mut().find(|held| held.op == id) {
            Some(held) => {
                if core::mem::take(&mut held.spoilt) && !mutants::active(mutants::SPOILT_RANGE_NOT_SEARCHED) {
                    // Dirty blocks that were passed by may have come home since, and RAM would keep them: look anew.
                    held.from = held.range.start;
                }
            }
            None => {
                let from = range.start;
                let held = HeldRange { op: id, range: range.clone(), from, written: false, settles: false, spoilt: false, recorded: false };
                self.ranges.held.push(held);
            }
        }
        if let Some(key) = self.destager.on_the_way_in(&range) {
            self.destager.wait(key, id);
            return;
        }
        // What destage has written there and not yet flushed is written over too: should this write fail, it must go home again.
        self.destager.overtaken_in(&range);
        if !self.void_clean(id) {
            return;
        }
        let mut group = self.ops.get(id).group.max(self.unsettled_in(&range));
        if self.dirty_extent_in(&range).is_some() && !mutants::active(mutants::DIRTY_BELOW_NOT_DURABLE) {
            // Their records must be durable before the backing device changes: see `make_void`.
            group = self.store.commits().last();
        }
        if self.loss.is_ssd_failed() {
            // It makes nothing durable any more, and nobody will believe it.
            group = 0;
        }
        let op = self.ops.get_mut(id);
        (op.phase, op.group) = (Phase::RangeVoid, group);
        if mutants::active(mutants::WRITTEN_BEFORE_VOID) || !self.store.commits_mut().wait_durable(group, id) {
            self.ready.push_back(id);
        }
    }

    /// Makes what is cached of the range and clean void. False if it goes on later.
    fn void_clean(&mut self, id: OpId) -> bool {
        loop {
            let HeldRange { range, from, .. } = self.ranges.of(id);
            let (from, end) = (*from, range.end);
            if from == end {
                return true;
            }
            let extent = match from.0 % EXTENT_BLOCKS {
                0 => match self.presence.next_extent(from.extent()..end.extent(), SLICE_STEPS) {
                    Found::Extent(extent) => extent,
                    Found::NoneBefore(next) => {
                        self.ranges.of(id).from = next.key(0);
                        if !self.ranges.may_go_on(self.now_ns, id, regions_between(from.extent(), next)) {
                            return false;
                        }
                        continue;
                    }
                },
                _ => from.extent(),
            };
            let dirty =
                self.dirty.next_extent(extent.volume(), extent).filter(|(found, _)| *found == extent).map(|(_, dirty)| dirty.clone());
            for key in (from.max(extent.key(0)).0..extent.key(0).0 + EXTENT_BLOCKS).map(Key) {
                let is_dirty = dirty.as_ref().is_some_and(|dirty| dirty.contains((key.0 % EXTENT_BLOCKS) as usize));
                if !is_dirty && !self.void_clean_block(id, key) {
                    self.ranges.of(id).from = key;
                    return false;
                }
            }
            if dirty.is_none() && !self.loss.is_ssd_failed() {
                self.presence.is_empty_now(extent);
            }
            self.ranges.of(id).from = Key(extent.key(0).0 + EXTENT_BLOCKS);
        }
    }

    /// False if it waits, for the next slice or for room in the store.
    fn void_clean_block(&mut self, id: OpId, key: Key) -> bool {
        let on_ssd = self.index.get(key).is_some();
        let in_ram = self.ram.get(key).is_some();
        let steps = if on_ssd || in_ram { STEPS_A_BLOCK } else { STEPS_A_LOOK };
        if !self.ranges.may_go_on(self.now_ns, id, steps) {
            return false;
        }
        if on_ssd && !self.loss.is_ssd_failed() {
            // Of so many records none may take the room that eviction needs to make more.
            if !self.store.has_room(Purpose::Clean) {
                self.starved.push_back(id);
                return false;
            }
            let group = self.store_void(key, Urgency::Durable);
            self.unsettled.insert(key, group);
            self.ops.get_mut(id).group = group;
        }
        self.drop_from_ram(key);
        true
    }

    /// The newest group with an `Invalidate` record of the range that nobody waited for; 0 if there is none.
    fn unsettled_in(&self, range: &Range<Key>) -> u64 {
        if self.unsettled.len() > UNSETTLED_LOOKS_MAX {
            return self.store.commits().last();
        }
        self.unsettled.iter().filter(|(key, _)| range.contains(key)).map(|(_, group)| *group).max().unwrap_or(0)
    }

    /// The first extent of the range with dirty blocks.
    fn dirty_extent_in(&self, range: &Range<Key>) -> Option<ExtentKey> {
        let extents = extents_of(range);
        let (extent, _) = self.dirty.next_extent(extents.start.volume(), extents.start)?;
        (extent < extents.end).then_some(extent)
    }

    /// The range is void, durably: the front hears that it is held.
    pub(super) fn range_is_void(&mut self, id: OpId) {
        let op = self.ops.get_mut(id);
        if op.group > self.store.commits().durable() && !mutants::active(mutants::WRITTEN_BEFORE_VOID) {
            // The SSD failed under the records: go on without it once the host has written that down.
            op.phase = Phase::Start;
            let held = self.ranges.of(id);
            held.from = held.range.start;
            self.ready.push_back(id);
            return;
        }
        op.phase = Phase::RangeHeld;
        op.group = 0;
        let range = keys_of(&self.ops.get(id).request);
        let over_dirty = self.dirty_extent_in(&range).is_some();
        self.answer_range(id, Ok(()), RangeReply::Held { over_dirty });
    }

    fn answer_range(&mut self, id: OpId, result: Result<(), RequestError>, range: RangeReply) {
        let id = self.ops.get(id).request.id;
        self.out.reply(Reply { id, result, pages: PageVec::new(), outcome: Outcome::Other, range: Some(range) });
    }

    /// Step 2, in one shard.
    fn write_range(&mut self, id: OpId, over_dirty: bool) {
        let Request { volume: index, op, fua, start_sector, sectors, .. } = self.ops.get(id).request;
        let volume = self.volumes.of(Key::new(index, 0));
        if volume.backing.failed {
            self.answer_range(id, Err(RequestError::Io), RangeReply::Written(RangeWrite::Untouched));
            return;
        }
        let span = Span {
            target: Target::Backing(index),
            offset_bytes: start_sector * SECTOR_BYTES,
            length_bytes: u64::from(sectors) * SECTOR_BYTES,
            background: false,
        };
        volume.backing.client_in_flight += 1;
        let fua = (fua || over_dirty && !mutants::active(mutants::OVER_DIRTY_NOT_DURABLE)) && !mutants::active(mutants::FUA_IGNORED);
        // A discard has no FUA: zeroes, which it allows, do.
        let (kind, durable) = match op {
            OpKind::Discard if !over_dirty => (IoKind::Discard, false),
            _ => (IoKind::WriteZeroes { fua, hole: op != OpKind::WriteZeroes }, fua),
        };
        volume.stats.count_backing_write(&kind, span.length_bytes);
        self.out.io(span, kind, Context::RangeWrite { op: id, durable });
    }

    /// The backing device has answered.
    pub(super) fn range_written(&mut self, id: OpId, durable: bool, result: Result<(), IoError>) {
        let now_ns = self.now_ns;
        let Request { volume: index, op, .. } = self.ops.get(id).request;
        let backing = &mut self.volumes.of(Key::new(index, 0)).backing;
        backing.client_in_flight -= 1;
        backing.client_last_ns = now_ns;
        let result = if mutants::active(mutants::FAILED_CLIENT_WRITE_DONE) { Ok(()) } else { result };
        let (write, result) = match result {
            Ok(()) => (RangeWrite::Done { durable }, Ok(())),
            // A device that cannot deallocate leaves the data as it is, which a discard allows.
            Err(IoError::Unsupported) if op == OpKind::Discard => (RangeWrite::Untouched, Ok(())),
            Err(IoError::NoSpace) => (RangeWrite::Failed, Err(RequestError::NoSpace)),
            Err(IoError::Failed | IoError::Unsupported) => (RangeWrite::Failed, Err(RequestError::Io)),
        };
        self.answer_range(id, result, RangeReply::Written(write));
    }

    /// Steps 3 and 4.
    fn begin_release(&mut self, id: OpId, write: RangeWrite, settles: bool) {
        let held = self.ranges.of(id);
        held.written = matches!(write, RangeWrite::Done { .. });
        held.settles = settles;
        let extents = extents_of(&held.range);
        let backing = &mut self.volumes.of(extents.start.key(0)).backing;
        match write {
            RangeWrite::Done { durable } => backing.note_range_write(extents, durable),
            RangeWrite::Failed => backing.note_range_write(extents, false),
            RangeWrite::Untouched => {}
        }
        self.ops.get_mut(id).phase = Phase::RangeReleasing;
        self.release_range(id);
    }

    /// Makes dirty versions void if the range was written.
    pub(super) fn release_range(&mut self, id: OpId) {
        let held = self.ranges.of(id);
        let (written, recorded, range) = (held.written, held.recorded, held.range.clone());
        if held.settles && held.spoilt {
            return self.answer_settled(id, Ok(()), RangeReply::Again);
        }
        let is_settled = held.settles || !written || self.dirty_extent_in(&range).is_none();
        assert!(is_settled, "what is written over dirty blocks is settled before it is released");
        let op = self.ops.get(id);
        if written && op.past_ssd && !recorded && !self.volumes.is_past_ssd(op.request.volume) {
            return self.record_range(id, &range);
        }
        if written && !self.void_dirty(id) {
            return;
        }
        let op = self.ops.get_mut(id);
        op.phase = Phase::RangeSettled;
        let (group, fua) = (op.group, op.request.fua);
        let waits = if fua { self.store.commits_mut().wait_durable(group, id) } else { self.store.commits_mut().wait_complete(group, id) };
        if !waits {
            self.ready.push_back(id);
        }
    }

    /// False if it goes on later, or failed.
    fn void_dirty(&mut self, id: OpId) -> bool {
        let range = self.ranges.of(id).range.clone();
        // As in `settle_backing_write`: a flush that follows covers these records; FUA waits for them here.
        let urgency = if self.ops.get(id).request.fua { Urgency::Durable } else { Urgency::Commit };
        while let Some(extent) = self.dirty_extent_in(&range) {
            let (_, dirty) = self.dirty.next_extent(extent.volume(), extent).expect("just found");
            let keys: Vec<Key> = dirty.iter().map(|index| extent.key(index)).collect();
            for key in keys {
                if !self.ranges.may_go_on(self.now_ns, id, STEPS_A_BLOCK) {
                    return false;
                }
                if self.loss.is_ssd_failed() {
                    assert!(self.ops.get(id).past_ssd, "what is written past the SSD is recorded");
                    self.forget_past(key);
                    continue;
                }
                if !self.store.has_room(Purpose::Clean) {
                    self.starved.push_back(id);
                    return false;
                }
                self.drop_from_ram(key);
                let group = self.store_void(key, urgency);
                self.unsettled.insert(key, group);
                self.ops.get_mut(id).group = group;
                // As good as a note that the block came home, and whoever leaves write-back waits for it alike.
                let volume = self.volumes.of(key);
                volume.note_group = volume.note_group.max(group);
            }
            if !self.loss.is_ssd_failed() {
                self.presence.is_empty_now(extent);
            }
        }
        true
    }

    /// A step ends that leaves the range held.
    fn answer_settled(&mut self, id: OpId, result: Result<(), RequestError>, reply: RangeReply) {
        self.ops.get_mut(id).phase = Phase::RangeHeld;
        self.answer_range(id, result, reply);
    }

    /// The records are as safe as the client asked: the range is settled, or free.
    pub(super) fn finish_range(&mut self, id: OpId) {
        let op = self.ops.get(id);
        let (group, fua, kind, index) = (op.group, op.request.fua, op.request.op, op.request.volume);
        let safe = if fua { self.store.commits().durable() >= group } else { self.store.commits().complete() >= group };
        if !safe {
            // The SSD failed under the records: old versions could come back after a restart.
            return self.answer_settled(id, Ok(()), RangeReply::Again);
        }
        let settles = self.ranges.of(id).settles;
        if fua && kind == OpKind::Discard && self.ranges.of(id).written && self.is_home_of_ranges(index) {
            // Devices have no FUA for deallocation: flush instead.
            let owed = self.volumes.of(Key::new(index, 0)).backing.owed;
            if self.wait_backing_flushed(index, owed, id) {
                return;
            }
            if self.volumes.of(Key::new(index, 0)).backing.failed {
                match settles {
                    true => self.answer_settled(id, Err(RequestError::Io), RangeReply::Settled),
                    false => self.fail(id, RequestError::Io),
                }
                return;
            }
        }
        let volume = self.volumes.of(Key::new(index, 0));
        volume.stored_group = volume.stored_group.max(group);
        if settles {
            self.ops.get_mut(id).group = 0;
            return self.answer_settled(id, Ok(()), RangeReply::Settled);
        }
        self.finish(id, Ok(()), PageVec::new(), Outcome::Other);
    }

    /// For [`Shard::describe`].
    pub(super) fn describe_ranges(&self, text: &mut String) {
        for HeldRange { op, range, from, written, spoilt, .. } in &self.ranges.held {
            let (start, end, from) = (range.start.block(), range.end.0 - range.start.0 + range.start.block(), from.block());
            let phase = self.ops.get(*op).phase;
            let _ = writeln!(
                text,
                "range: blocks {start}..{end} of volume {}, {phase:?} at {from}, {written} {spoilt}",
                range.start.volume().0
            );
        }
    }
}

/// Steps that it took to find nothing from the one extent to before the other.
fn regions_between(from: ExtentKey, to: ExtentKey) -> u32 {
    ((to.0 - from.0) / u64::from(u64::BITS) + 1) as u32
}
