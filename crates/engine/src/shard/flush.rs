//! Flush: what was acknowledged before becomes durable, on the SSD and on the backing device.
//!
//! A client's flush makes the store durable. It waits for the backing device only for what clients wrote there past the store since its last flush
//! ([`super::volume::Backing::owed`]). What destage has written and not flushed is still dirty: its records are durable in the store, a start would
//! believe them, and they become clean only by destage's own flush. So a commit costs what the SSD costs, also where the disk's write cache is on
//! and full of what destage brought home.

use super::Shard;
use super::op::{Op, Phase};
use crate::api::{Outcome, Request};
use crate::key::Key;
use crate::locks::OpId;
use crate::mutants;
use alloc::vec::Vec;
use page::PageVec;
use types::VolumeIndex;

impl Shard {
    /// A flush arrives. It covers exactly what was acknowledged before; what is in flight may or may not become durable.
    pub(super) fn begin_flush(&mut self, request: Request) {
        let now_ns = self.now_ns;
        let volume = self.volumes.of(Key::new(request.volume, 0));
        volume.awaited.flushed(now_ns);
        let (index, mut group, written) = (request.volume, volume.stored_group, volume.backing.owed);
        if mutants::active(mutants::FLUSH_MISSES_LAST_WRITE) {
            group = group.saturating_sub(1);
        }
        let written = if mutants::active(mutants::FLUSH_WAITS_FOR_DESTAGE) { volume.backing.written } else { written };
        let mut op = Op::new(Request { start_sector: 0, sectors: 0, ..request });
        op.phase = Phase::Flushing;
        op.blocks = 0;
        op.group = group;
        let id = self.ops.add(op);
        let stored = self.store.commits_mut().wait_durable(group, id);
        let backing = self.wait_backing_flushed(index, written, id);
        let op = self.ops.get_mut(id);
        op.pending = u32::from(stored) + u32::from(backing);
        op.missed = backing;
        if op.pending == 0 {
            op.pending = 1;
            self.ready.push_back(id);
        }
    }

    /// One of the two devices is done, or failed.
    pub(super) fn advance_flush(&mut self, id: OpId) {
        let op = self.ops.get_mut(id);
        op.pending -= 1;
        if op.pending > 0 {
            return;
        }
        let (group, index) = (op.group, op.request.volume);
        // A failure after the fact does not undo durability, but a device whose flush failed is not believed about anything.
        let backing_failed = self.volumes.get(index).is_none_or(|volume| volume.backing.failed);
        let stored = self.store.commits().durable() >= group;
        let is_past = self.volumes.is_past_ssd(index);
        if backing_failed {
            self.fail(id, crate::api::RequestError::Io);
        } else if stored || is_past {
            // With the store lost and nothing dirty, all that was acknowledged is on the backing device, which has flushed.
            let outcome = if self.ops.get(id).missed { Outcome::BackingFlush } else { Outcome::Other };
            self.finish(id, Ok(()), PageVec::new(), outcome);
        } else if self.continues_past_ssd(index) {
            match self.record_unstored(id, index) {
                None => self.finish(id, Ok(()), PageVec::new(), Outcome::Other),
                Some(0) => {
                    self.ops.get_mut(id).pending = 1;
                    self.wait_for_loss(id);
                }
                Some(answers) => self.ops.get_mut(id).pending = answers,
            }
        } else {
            // Before that is recorded, a restart would still believe the store, whose records may be older than the backing device.
            self.ops.get_mut(id).pending = 1;
            self.wait_for_loss(id);
        }
    }

    /// The backing device has flushed, or failed to: final.
    pub(super) fn backing_flushed(&mut self, index: VolumeIndex, ok: bool) {
        let backing = &mut self.volumes.of(Key::new(index, 0)).backing;
        let covered = backing.flushing.take().expect("a flush was running");
        let mut woken: Vec<OpId> = Vec::new();
        if !ok && mutants::active(mutants::FAILED_FLUSH_RETRIED) {
            self.flush_backing(index);
            return;
        }
        if ok && !backing.failed {
            backing.writes_are_durable(covered);
            let flushed = backing.flushed;
            backing.waiters.retain(|waiter| {
                let done = waiter.written <= flushed;
                woken.extend(done.then_some(waiter.op));
                !done
            });
            if !backing.waiters.is_empty() {
                self.flush_backing(index);
            }
        } else {
            woken.extend(backing.waiters.drain(..).map(|waiter| waiter.op));
            self.backing_failed_now(index);
        }
        self.ready.extend(woken);
        self.destage_flushed(index);
    }
}
