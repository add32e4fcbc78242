//! The SSD cannot be written any more: what goes on, and what waits.
//!
//! 1. A write or flush of the store fails in one shard ([`Event::SsdFailed`]); the host tells all others ([`Shard::ssd_is_lost`]).
//!    From then on clean blocks on the SSD count as absent. Dirty ones are read, and checked, as long as that works, and go home.
//! 2. The host records that clean blocks on the SSD are void. Then what the store has not made durable may go home too: an older
//!    clean record below it is not believed by a later start.
//! 3. When no shard has dirty blocks of a volume any more ([`Event::NothingDirty`]), the host records that the SSD holds nothing of
//!    the volume, and the volume goes on past the SSD ([`Shard::ssd_is_forgotten`]).
//!
//! Until 3, a start that finds the SSD again serves what was dirty there. So nothing is written past it: requests that would do that
//! wait, and fail when for some time nothing has gone home. Or the volume goes on, and what is written past the SSD is recorded
//! ([`super::past`]).

use super::Shard;
use super::op::Phase;
use super::past::Past;
use crate::api::{Event, IoError, RequestError};
use crate::key::Key;
use crate::locks::OpId;
use crate::mutants;
use alloc::vec::Vec;
use types::{BypassReason, OnSsdLoss, SsdIndex, VolumeIndex};

/// Requests that would make the SSD stale wait this long for dirty blocks to go home. Drives and links that reset are back by then, and a device
/// that hangs has answered: the kernel gives each command 30 seconds, and tries again.
pub const PATIENCE_NS: u64 = 90_000_000_000;

/// A shard says at most this often that its dirty blocks go home.
pub const TELL_NS: u64 = 5_000_000_000;

/// See the module.
#[derive(Default)]
pub struct Loss {
    /// The SSD of which a write or flush failed, under this shard or another: it is final.
    failed: Option<SsdIndex>,
    /// The host has recorded that clean blocks on the SSD are void.
    pub recorded: bool,
    /// When the store failed, or a dirty block last went home since, in any shard as far as the host has said.
    progress_ns: u64,
    /// When this shard last said that its own go home.
    told_ns: u64,
    /// Requests that wait until the SSD is forgotten.
    waiting: Vec<OpId>,
    /// What was written past it.
    pub past: Past,
}

impl Loss {
    /// Whether the SSD is lost.
    #[inline]
    pub fn is_ssd_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// The SSD that is lost.
    pub fn failed_ssd(&self) -> Option<SsdIndex> {
        self.failed
    }

    /// When those who wait fail.
    pub fn deadline(&self) -> Option<u64> {
        (!self.waiting.is_empty()).then_some(self.progress_ns + PATIENCE_NS)
    }

    /// How many requests wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// It is worth waiting longer.
    pub fn made_progress(&mut self, now_ns: u64) {
        self.progress_ns = now_ns;
    }
}

impl Shard {
    /// A write or flush of the store failed.
    pub(super) fn ssd_failed(&mut self, ssd: SsdIndex, error: IoError) {
        self.out.event(Event::SsdFailed { ssd, no_space: error == IoError::NoSpace });
        self.begin_loss(ssd);
    }

    /// Another shard cannot write the SSD: this one does not use it any more either, so that nothing new depends on it. False if it was lost before.
    pub(super) fn ssd_is_lost(&mut self, ssd: SsdIndex) -> bool {
        if self.loss.is_ssd_failed() {
            return false;
        }
        let waiters = self.store.commits_mut().fail();
        self.ready.extend(waiters);
        self.begin_loss(ssd);
        true
    }

    /// Dirty blocks have gone home.
    pub(super) fn went_home(&mut self) {
        if self.loss.is_ssd_failed() {
            self.is_dirty_no_more();
        }
        self.wake_lost();
    }

    /// Less is dirty on the lost SSD than before: it is worth waiting, in all shards.
    pub(super) fn is_dirty_no_more(&mut self) {
        self.loss.made_progress(self.now_ns);
        if self.now_ns >= self.loss.told_ns + TELL_NS {
            self.loss.told_ns = self.now_ns;
            self.out.event(Event::GoingHome);
        }
    }

    /// The host says that it is worth waiting longer.
    pub(super) fn goes_home_elsewhere(&mut self) {
        if !mutants::active(mutants::DEAF_TO_OTHER_SHARDS) {
            self.loss.made_progress(self.now_ns);
        }
    }

    fn begin_loss(&mut self, ssd: SsdIndex) {
        self.loss.failed = Some(ssd);
        self.store.eviction_mut().stop();
        self.loss.made_progress(self.now_ns);
        self.ranges.are_spoilt();
        // Ranges held back what is dirty in them.
        self.destager.may_look_at_all(&self.dirty);
        self.note_unstored();
        // What waits for room in the store will get none: it takes another way.
        self.ready.extend(self.starved.drain(..));
    }

    /// The host has recorded that the SSD holds nothing of the volume: it goes on past the SSD.
    pub(super) fn ssd_is_forgotten(&mut self, index: VolumeIndex) {
        // The word may have been asked for in an earlier life of the pool.
        let holds = self.loss.is_ssd_failed() && self.dirty.blocks_of(index) == 0;
        if let Some(volume) = self.volumes.get_mut(index).filter(|_| holds) {
            volume.bond.is_forgotten();
            self.wake_lost();
        }
    }

    /// Those who wait look again.
    pub(super) fn wake_lost(&mut self) {
        self.ready.append(&mut self.loss.waiting.drain(..).collect());
    }

    /// Ends each turn once the store has failed: tells of volumes that need the SSD no more.
    pub(super) fn check_loss(&mut self) {
        for at in 0..self.volumes.attached().len() {
            let index = self.volumes.attached()[at];
            let nothing = self.dirty.blocks_of(index) == 0;
            let volume = self.volumes.get_mut(index).expect("attached");
            if nothing && volume.bond.tell_nothing_dirty() {
                self.out.event(Event::NothingDirty(index));
            }
        }
    }

    /// Time passes: whoever has waited long enough hears that it was in vain.
    pub(super) fn give_up_waiting(&mut self) {
        if self.loss.deadline().is_some_and(|time_ns| time_ns <= self.now_ns) {
            for id in core::mem::take(&mut self.loss.waiting) {
                self.fail(id, RequestError::Io);
            }
        }
    }

    /// Whether a request may go to the backing device although the store is lost. If not, it has been failed or set to wait.
    pub(super) fn may_write_past(&mut self, id: OpId) -> bool {
        if mutants::active(mutants::WRITES_PAST_UNRECORDED) {
            return true;
        }
        let index = self.ops.get(id).request.volume;
        let continues = !self.volumes.is_past_ssd(index) && self.continues_past_ssd(index);
        self.ops.get_mut(id).past_ssd = continues;
        let may = continues || self.volumes.is_past_ssd(index);
        if !may {
            self.wait_for_loss(id);
        }
        may
    }

    /// The request waits until the SSD is forgotten, if that may still come.
    pub(super) fn wait_for_loss(&mut self, id: OpId) {
        if self.now_ns >= self.loss.progress_ns + PATIENCE_NS {
            self.fail(id, RequestError::Io);
        } else {
            self.loss.waiting.push(id);
        }
    }

    /// The SSD failed under the request: it begins anew, on its way to the backing device.
    pub(super) fn go_past_ssd(&mut self, id: OpId) {
        assert!(self.loss.is_ssd_failed(), "the SSD was lost");
        let op = self.ops.get_mut(id);
        assert_eq!(op.pending, 0, "nothing is under way for it");
        (op.phase, op.group) = (Phase::Draining, 0);
        op.over_dirty.clear();
        op.edges.clear();
        for key in core::mem::take(&mut op.shielded) {
            self.shielded.remove(&key);
            self.destager.may_look_at(key);
        }
        if self.ops.get(id).reason.is_none() {
            self.turn_away(id, BypassReason::Degraded);
        }
        self.ready.push_back(id);
    }

    /// Whether the volume goes on although the lost SSD holds some of it.
    pub(super) fn continues_past_ssd(&self, index: VolumeIndex) -> bool {
        self.loss.recorded && self.volumes.get(index).is_some_and(|volume| volume.options.on_ssd_loss == OnSsdLoss::Continue)
    }

    /// The store has failed: what of it is acknowledged and not durable.
    fn note_unstored(&mut self) {
        let is_unstored = |key: &Key| self.index.get(*key).is_none_or(|slot| !self.is_durable(slot));
        let dirty = self.dirty.iter().filter(is_unstored);
        let durable = self.store.commits().durable();
        let voided = self.unsettled.iter().filter(|(_, group)| **group > durable).map(|(key, _)| *key);
        let unstored = dirty.chain(voided).collect();
        self.loss.past.note_unstored(unstored);
    }
}
