//! Writes (zeroes, discards) to the backing device, with the cache kept coherent through any crash.
//!
//! Order of steps, for the blocks the request touches:
//! 1. No destage of them is on its way to the backing device any more; dirty blocks that are covered only in part are brought home first.
//! 2. Clean cached versions are made void: RAM at once, the store by `Invalidate` records that are *durable* before step 3. A crash
//!    from here on finds them uncached and reads the backing device.
//! 3. The backing device is written, with the client's FUA; over dirty blocks always with FUA, since step 4 relies on it.
//! 4. Dirty versions that the request covers whole are made void *after* step 3: until the backing device has the new data, the
//!    store holds the only copy of the acknowledged old data. A crash between 3 and 4 finds the old version dirty: the write, not
//!    acknowledged yet, is lost as a whole. The records are complete (durable for FUA) before the acknowledgement.
//! 5. Write-through: the new data may enter RAM, and from there the SSD.

use super::route::{Case, Way, way};
use super::{Context, Phase, Shard};
use crate::api::{IoError, IoKind, Op as OpKind, Outcome, RequestError, Target};
use crate::key::Key;
use crate::locks::OpId;
use crate::mutants;
use crate::outbox::Span;
use crate::policy::Heat;
use crate::store::{Purpose, Urgency};
use alloc::vec::Vec;
use page::PageVec;
use types::{BypassReason, Mode, SECTOR_BYTES};

impl Shard {
    /// A write has its blocks: choose its way.
    pub(super) fn begin_write(&mut self, id: OpId) {
        let op = self.ops.get(id);
        let volume = self.volumes.get(op.request.volume).expect("a request's volume is attached");
        let keeps_whole = op.request.op == OpKind::Write && volume.options.atomic_blocks().is_some();
        // No policy of an object gives up what was promised of the volume.
        let mode = if keeps_whole { Mode::WriteBack } else { self.volumes.mode_of_write(op.first) };
        let degraded = self.loss.is_ssd_failed();
        let too_large_for_store = mode == Mode::WriteBack && !self.fits_store(op.blocks);
        let crowded = op.request.in_burst && !keeps_whole && mode == Mode::WriteBack && self.is_crowded(op.request.volume);
        let bypass = op.request.bypass.or(crowded.then_some(BypassReason::NoSpace));
        let case = Case { mode, op: op.request.op, bypass, degraded, too_large_for_store };
        if volume.backing.failed {
            self.fail(id, RequestError::Io);
            return;
        }
        let reason = match (way(case), mode) {
            (Way::Store, _) => return self.begin_store_write(id),
            _ if crowded => case.bypass,
            _ if case.bypass.is_some() => None,
            _ if degraded => Some(BypassReason::Degraded),
            _ if too_large_for_store => Some(BypassReason::NoSpace),
            (_, Mode::WriteAround) => Some(BypassReason::WriteAround),
            (_, Mode::PassThrough) => Some(BypassReason::PassThrough),
            _ => None,
        };
        if let Some(reason) = reason {
            self.turn_away(id, reason);
        }
        self.ops.get_mut(id).phase = Phase::Draining;
        self.drain_for_backing_write(id);
    }

    /// Steps 1 and 2.
    pub(super) fn drain_for_backing_write(&mut self, id: OpId) {
        let first = self.ops.get(id).first;
        if self.volumes.of(first).backing.failed {
            // It failed while this waited: nothing can be brought home or written there any more.
            self.fail(id, RequestError::Io);
            return;
        }
        if self.loss.is_ssd_failed() && !self.may_write_past(id) {
            return;
        }
        let op = self.ops.get(id);
        let keys: Vec<Key> = (0..op.blocks as usize).map(|index| op.key(index)).collect();
        for (index, key) in keys.iter().enumerate() {
            let half_dirty = self.ops.get(id).mask(index) != u8::MAX && self.dirty.contains(*key);
            if half_dirty {
                self.destager.demand(*key);
            }
            if half_dirty || self.destager.is_on_its_way(*key) {
                self.destager.wait(*key, id);
                return;
            }
        }
        let cached = keys.iter().any(|key| self.index.get(*key).is_some());
        if cached && !self.loss.is_ssd_failed() && !self.store.has_room(Purpose::Void) {
            self.starved.push_back(id);
            return;
        }
        self.make_void(id, &keys);
    }

    fn make_void(&mut self, id: OpId, keys: &[Key]) {
        let mut group = 0;
        for (index, key) in keys.iter().enumerate() {
            if self.dirty.contains(*key) {
                // Stays readable in the store until the backing device has the new data; and no destage may carry the old data
                // there meanwhile.
                if !mutants::active(mutants::DESTAGE_OVER_CLIENT_WRITE) {
                    self.shielded.insert(*key);
                }
                // What destage has written there and not yet flushed is written over too: should this write fail, it must go home again.
                self.destager.overtaken(*key);
                let op = self.ops.get_mut(id);
                op.over_dirty.push(*key);
                op.shielded.push(*key);
                // Its record must be durable before the backing device changes: else a crash could bring back an older clean record of
                // the block, over a backing device that is newer.
                if !self.loss.is_ssd_failed() && !mutants::active(mutants::DIRTY_BELOW_NOT_DURABLE) {
                    let last = self.store.commits().last();
                    self.store.commits_mut().want_durable(last);
                    group = group.max(last);
                }
                continue;
            }
            let request = &self.ops.get(id).request;
            let stays = mutants::active(mutants::HIT_ONLY_SERVES_VOID)
                && matches!(request.bypass, Some(BypassReason::Stream | BypassReason::Policy));
            let in_ram = !stays && self.drop_from_ram(*key);
            let on_ssd = self.index.get(*key).is_some();
            if in_ram || on_ssd {
                self.ops.get_mut(id).was_cached[index / 64] |= 1 << (index % 64);
            }
            if on_ssd && !self.loss.is_ssd_failed() {
                if !self.store.has_room(Purpose::Void) {
                    // Half way: what is void stays void, the rest follows when there is room.
                    self.starved.push_back(id);
                    return;
                }
                if !in_ram && let Some(slot) = self.index.get(*key) {
                    self.policy.left_for_overwrite(key.0, Heat::from_bits(self.index.meta(slot).frequency));
                }
                let made = self.store_void(*key, Urgency::Durable);
                self.unsettled.insert(*key, made);
            }
            // A failed store makes nothing durable any more, and after `may_write_past` it is not believed: no wait then.
            if !self.loss.is_ssd_failed() {
                group = group.max(self.unsettled.get(key).copied().unwrap_or(0));
            }
        }
        let op = self.ops.get_mut(id);
        op.phase = Phase::Invalidated;
        op.group = group;
        if mutants::active(mutants::WRITTEN_BEFORE_VOID) || !self.store.commits_mut().wait_durable(group, id) {
            self.ready.push_back(id);
        }
    }

    /// Step 3.
    pub(super) fn issue_backing_write(&mut self, id: OpId) {
        let op = self.ops.get(id);
        if op.group > self.store.commits().durable() && !mutants::active(mutants::WRITTEN_BEFORE_VOID) {
            // The SSD failed under the `Invalidate` records.
            return self.go_past_ssd(id);
        }
        let op = self.ops.get(id);
        let request = &op.request;
        // Over a dirty block the new data must be durable before step 4 voids the only durable version there is.
        let over_dirty = !op.over_dirty.is_empty();
        let fua =
            (request.fua || over_dirty && !mutants::active(mutants::OVER_DIRTY_NOT_DURABLE)) && !mutants::active(mutants::FUA_IGNORED);
        let span = Span {
            target: Target::Backing(request.volume),
            offset_bytes: request.start_sector * SECTOR_BYTES,
            length_bytes: u64::from(request.sectors) * SECTOR_BYTES,
            background: false,
        };
        let kind = match request.op {
            OpKind::Write => IoKind::Write { pages: request.pages.clone(), fua },
            OpKind::WriteZeroes => IoKind::WriteZeroes { fua, hole: false },
            OpKind::PunchHole => IoKind::WriteZeroes { fua, hole: true },
            // A discard has no FUA: zeroes, which it allows, do.
            OpKind::Discard if over_dirty => IoKind::WriteZeroes { fua, hole: true },
            OpKind::Discard => IoKind::Discard,
            OpKind::Read | OpKind::Flush => unreachable!("only writes come here"),
        };
        let key = self.ops.get(id).first;
        let volume = self.volumes.of(key);
        volume.stats.count_backing_write(&kind, span.length_bytes);
        volume.backing.client_began();
        self.out.io(span, kind, Context::ClientWrite(id));
    }

    /// The backing device has answered.
    pub(super) fn client_write_done(&mut self, id: OpId, result: Result<(), IoError>) {
        let now_ns = self.now_ns;
        let op = self.ops.get(id);
        let key = op.first;
        let fua = !op.over_dirty.is_empty() || op.request.fua && op.request.op != OpKind::Discard;
        let backing = &mut self.volumes.of(key).backing;
        backing.client_ended(now_ns, None);
        backing.note_client_write(key.extent(), fua && result.is_ok());
        let op = self.ops.get_mut(id);
        op.phase = Phase::BackingWritten;
        let result = if mutants::active(mutants::FAILED_CLIENT_WRITE_DONE) { Ok(()) } else { result };
        op.error = match (result, op.request.op) {
            // A device that cannot deallocate leaves the data as it is, which a discard allows.
            (Ok(()), _) | (Err(IoError::Unsupported), OpKind::Discard) => None,
            (Err(IoError::NoSpace), _) => Some(RequestError::NoSpace),
            (Err(IoError::Failed | IoError::Unsupported), _) => Some(RequestError::Io),
        };
        if result == Err(IoError::Unsupported) {
            // Nothing was changed: dirty versions stay the newest.
            op.over_dirty.clear();
        }
        self.ready.push_back(id);
    }

    /// Step 4.
    pub(super) fn settle_backing_write(&mut self, id: OpId) {
        let op = self.ops.get(id);
        if let Some(error) = op.error {
            // The backing device may have any mix of old and new; dirty versions stay and win, which is the old.
            self.fail(id, error);
            return;
        }
        if !op.over_dirty.is_empty() && !self.loss.is_ssd_failed() && !self.store.has_room(Purpose::Void) {
            self.starved.push_back(id);
            return;
        }
        let keys = core::mem::take(&mut self.ops.get_mut(id).over_dirty);
        let op = self.ops.get(id);
        let (past_ssd, blocks) =
            (op.past_ssd && !self.volumes.is_past_ssd(op.request.volume), op.first..Key(op.first.0 + u64::from(op.blocks)));
        if past_ssd && !self.is_recorded(id, blocks) {
            self.ops.get_mut(id).over_dirty = keys;
            return;
        }
        if self.loss.is_ssd_failed() && !past_ssd && !keys.is_empty() {
            // The old version could come back after a restart. It goes home now, and this write follows it.
            return self.go_past_ssd(id);
        }
        // A discard must be durable like a write if the next flush is to cover it; FUA waits for the flush here.
        let fua = self.ops.get(id).request.fua;
        let urgency = if fua { Urgency::Durable } else { Urgency::Commit };
        let mut group = 0;
        let mut keys = keys.into_iter();
        for key in keys.by_ref() {
            if past_ssd {
                self.forget_past(key);
            } else if self.dirty.contains(key) {
                if !self.store.has_room(Purpose::Void) {
                    self.ops.get_mut(id).over_dirty = core::iter::once(key).chain(keys).collect();
                    self.starved.push_back(id);
                    return;
                }
                self.drop_from_ram(key);
                group = self.store_void(key, urgency);
                self.unsettled.insert(key, group);
                // As good as a note that the block came home, and whoever leaves write-back waits for it alike.
                let volume = self.volumes.of(key);
                volume.note_group = volume.note_group.max(group);
            }
        }
        let op = self.ops.get_mut(id);
        op.phase = Phase::Settled;
        op.group = op.group.max(group);
        let group = op.group;
        let waits = if fua { self.store.commits_mut().wait_durable(group, id) } else { self.store.commits_mut().wait_complete(group, id) };
        if !waits {
            self.ready.push_back(id);
        }
    }

    /// Step 5, and the acknowledgement.
    pub(super) fn finish_backing_write(&mut self, id: OpId) {
        let op = self.ops.get(id);
        let (group, fua, key) = (op.group, op.request.fua, op.first);
        let safe = if fua { self.store.commits().durable() >= group } else { self.store.commits().complete() >= group };
        if !safe {
            return self.go_past_ssd(id);
        }
        if fua && op.request.op == OpKind::Discard {
            // Devices have no FUA for deallocation: flush instead.
            let owed = self.volumes.of(key).backing.owed;
            if self.wait_backing_flushed(key.volume(), owed, id) {
                return;
            }
            if self.volumes.of(key).backing.failed {
                self.fail(id, RequestError::Io);
                return;
            }
        }
        let volume = self.volumes.of(key);
        volume.stored_group = volume.stored_group.max(group);
        let op = self.ops.get(id);
        let around =
            op.request.bypass.is_some() || op.request.in_burst && op.reason == Some(BypassReason::NoSpace) || self.loss.is_ssd_failed();
        let outcome = match op.request.op {
            OpKind::Write if !around => Outcome::WriteThrough,
            OpKind::Write => Outcome::Bypass,
            _ => Outcome::Other,
        };
        self.note(id, outcome);
        self.refill(id);
        self.finish(id, Ok(()), PageVec::new(), outcome);
    }

    /// Write-through data enters RAM where the policy wants it, or where it replaces a cached version.
    fn refill(&mut self, id: OpId) {
        let op = self.ops.get(id);
        let volume = self.volumes.get(op.request.volume).expect("a request's volume is attached");
        let through =
            self.volumes.mode_of_write(op.first) == Mode::WriteThrough && op.request.op == OpKind::Write && op.request.bypass.is_none();
        if !through || self.loss.is_ssd_failed() || volume.backing.failed || volume.state.is_detaching() {
            return;
        }
        let blocks = op.blocks;
        for index in 0..blocks as usize {
            let op = self.ops.get(id);
            let key = op.key(index);
            if op.mask(index) != u8::MAX {
                continue;
            }
            let page = op.request.pages[index].clone();
            let was_cached = op.was_cached[index / 64] >> (index % 64) & 1 == 1;
            let advice = self.touch(key, true, blocks, false);
            match advice.enter {
                Some(arrival) if was_cached => self.ram_insert(key, page, arrival.as_proven()),
                Some(arrival) => self.ram_insert(key, page, arrival),
                None => self.turn_away_block(key, BypassReason::FirstTouch),
            }
        }
    }
}
