//! What an administrator or the host asks: at once where it is quick, else as a job that is looked at on every turn.

use super::Shard;
use super::volume::{Volume, VolumeState};
use crate::api::{Command, CommandFailure, Event, RequestError, VolumeOptions};
use crate::index::Index;
use crate::key::Key;
use crate::mutants;
use crate::store::{Purpose, Urgency};
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;
use core::ops::Range;
use types::{Mode, VOLUME_BYTES_MAX, VolumeId, VolumeIndex};

/// Slots a sweep through the index looks at in one turn, so that clients do not wait for it. In the small pools of the simulator's build a sweep
/// takes several turns too, so that it meets what others do meanwhile.
const SLOTS_A_TURN: u32 = if cfg!(feature = "mutants") { 32 } else { 4096 };

#[derive(Debug)]
enum Job {
    /// Until no block of the volume is dirty; `before` comes back if it is cancelled.
    LeaveWriteBack { token: u64, volume: VolumeIndex, before: VolumeOptions },
    /// Until runs begun before have ended (they may carry older versions), the sweep has passed over everything twice since (the first pass
    /// may have begun in the middle), and the runs of these passes are home.
    Destage { token: u64, volume: VolumeIndex, errors: u64, stage: DestageStage },
    /// Until nothing of the volume is in flight; then everything of it is forgotten.
    Detach { token: u64, volume: VolumeIndex, cursor: u64 },
    /// Until nothing of the volume is in flight, its device is flushed, and what its clients were told is durable.
    Release { token: u64, volume: VolumeIndex },
    /// Makes clean blocks void, some each turn.
    DropClean { token: Option<u64>, volume: VolumeIndex, cursor: u64, group: u64 },
    /// Makes blocks void that were written past the SSD, some each turn.
    VoidPast { token: u64, volume: VolumeIndex, past: VecDeque<Range<u64>>, group: u64 },
    /// Until nothing is in flight.
    Quiesce { token: u64 },
}

/// See [`Job::Destage`].
#[derive(Clone, Copy, Debug)]
enum DestageStage {
    /// Runs with lower numbers are to end first.
    Before(u32),
    /// The sweep is to have passed that often.
    Passes(u64),
    /// Runs with lower numbers are to end.
    Runs(u32),
}

/// Jobs under way.
#[derive(Default)]
pub struct Commands {
    jobs: Vec<Job>,
}

impl Commands {
    /// Makes the volume's clean blocks void; nobody asked, nobody is told.
    pub fn drop_clean_of(&mut self, index: VolumeIndex) {
        self.jobs.push(Job::DropClean { token: None, volume: index, cursor: 0, group: 0 });
    }

    /// Whether the volume's clean blocks are being made void: one that were appended again meanwhile could be missed.
    pub fn drops_clean_of(&self, index: VolumeIndex) -> bool {
        self.jobs.iter().any(|job| matches!(job, Job::DropClean { volume, .. } if *volume == index))
    }

    /// Whether something that was asked is not done yet.
    pub fn are_under_way(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// Whether a sweep through the index should go on although nothing happens.
    pub fn are_sweeping(&self, index: &Index) -> bool {
        self.jobs.iter().any(|job| match job {
            Job::Detach { cursor, .. } | Job::DropClean { cursor, .. } => index.next_slot(*cursor).is_some(),
            Job::VoidPast { past, .. } => !past.is_empty(),
            _ => false,
        })
    }
}

/// How a job stands.
enum Standing {
    Goes(Job),
    Ended(Option<u64>, Result<(), CommandFailure>),
}

impl Shard {
    pub(super) fn begin_command(&mut self, command: Command) {
        match command {
            Command::Attach { volume, id, size_bytes, options } => self.attach(volume, id, size_bytes, options, false),
            Command::Hold { volume, id, size_bytes } => self.attach(volume, id, size_bytes, VolumeOptions::default(), true),
            Command::Grow { volume, size_bytes } => self.grow(volume, size_bytes),
            Command::SetOptions { token, volume, options } => self.set_options(token, volume, options),
            Command::Destage { token, volume } => match self.volumes.get(volume) {
                Some(known) => {
                    let errors = known.stats.destage_errors;
                    let (_, next_run) = self.destager.passes(volume);
                    self.destager.bring_all(volume, true);
                    self.commands.jobs.push(Job::Destage { token, volume, errors, stage: DestageStage::Before(next_run) });
                }
                None => self.command_done(token, Err(CommandFailure::NoVolume)),
            },
            Command::Check { token, segment: at } => {
                if let Err(reason) = self.begin_scrub(token, at) {
                    self.command_done(token, Err(reason));
                }
            }
            Command::Cancel { token } => self.cancel(token),
            Command::Detach { token, volume } => self.begin_detach(token, volume),
            Command::Release { token, volume } => match self.volumes.get_mut(volume) {
                Some(known) if !known.state.is_held() => {
                    known.state.release();
                    self.fail_throttled_of(Some(volume));
                    self.commands.jobs.push(Job::Release { token, volume });
                }
                _ => self.command_done(token, Ok(())),
            },
            Command::DropClean { token, volume } => {
                self.drop_ram_of(volume);
                self.commands.jobs.push(Job::DropClean { token: Some(token), volume, cursor: 0, group: 0 });
            }
            Command::SetPolicies { volume, map } => self.set_policies(volume, map),
            Command::Cold { volume, blocks } => self.cool(volume, blocks),
            Command::SsdFailed { ssd } => {
                if self.ssd_is_lost(ssd) {
                    self.destage_store_moved();
                }
            }
            Command::DegradedRecorded => {
                self.loss.recorded = true;
                self.destage_store_moved();
                self.wake_lost();
            }
            Command::GoingHome => self.goes_home_elsewhere(),
            Command::SsdForgotten { volume } => self.ssd_is_forgotten(volume),
            Command::PastRecorded { token } => self.past_is_recorded(token),
            Command::VoidPast { token, volume, past } => {
                let past = if mutants::active(mutants::PAST_WRITES_NOT_VOID) { VecDeque::new() } else { past.into() };
                self.commands.jobs.push(Job::VoidPast { token, volume, past, group: 0 });
            }
            Command::BackingFailed { volume } => {
                if self.volumes.get(volume).is_some() {
                    self.backing_failed_now(volume);
                }
            }
            Command::Quiesce { token } => {
                self.quiescing = true;
                self.store.quiesce();
                self.scrub.stop(CommandFailure::Stopped);
                self.fail_throttled_of(None);
                self.flush_everything();
                self.commands.jobs.push(Job::Quiesce { token });
            }
        }
    }

    fn begin_detach(&mut self, token: u64, volume: VolumeIndex) {
        let Some(known) = self.volumes.get_mut(volume) else { return self.command_done(token, Ok(())) };
        known.state.detach();
        self.fail_throttled_of(Some(volume));
        self.drop_ram_of(volume);
        // Whoever asked before does not wait any more; its job must not outlive this one, and meet the next volume in that place.
        self.commands.jobs.retain(|job| !matches!(job, Job::Detach { volume: other, .. } if *other == volume));
        self.commands.jobs.push(Job::Detach { token, volume, cursor: 0 });
    }

    fn attach(&mut self, index: VolumeIndex, id: VolumeId, size_bytes: u64, options: VolumeOptions, held: bool) {
        assert!(size_bytes <= VOLUME_BYTES_MAX, "volume {} with {size_bytes} bytes is beyond 64 TiB", index.0);
        let mut volume = Volume::new(id, size_bytes, options, self.now_ns);
        volume.state = if held { VolumeState::Held } else { VolumeState::Serving };
        match self.volumes.get(index) {
            Some(before) => {
                assert!(before.state.is_held() && before.id == id, "volume {} is attached already", index.0);
                volume.cached_blocks = before.cached_blocks;
                volume.depends_like(before);
            }
            None => volume.cached_blocks = self.restored.remove(&index.0).unwrap_or(0),
        }
        self.volumes.put(index, volume);
        // The host has to say of this one too that the SSD holds nothing of it.
        self.loss.made_progress(self.now_ns);
    }

    /// The volume ends later from now on. Nothing is cached behind its old end: its last block, if that was cut short, is in the store with the
    /// sectors that it had, and never in RAM; what was being read of it remembers where it ended.
    fn grow(&mut self, index: VolumeIndex, size_bytes: u64) {
        assert!(size_bytes <= VOLUME_BYTES_MAX, "volume {} with {size_bytes} bytes is beyond 64 TiB", index.0);
        let is_deaf = mutants::active(mutants::GROWTH_IN_ONE_SHARD) && self.config.place.shard.0 > 0;
        if let Some(volume) = self.volumes.get_mut(index).filter(|_| !is_deaf) {
            // A growth that was given up may have reached this shard alone, and the next one is to less:
            // nothing behind what the host serves is ever asked for.
            volume.size_bytes = volume.size_bytes.max(size_bytes);
            volume.heat.grow(volume.size_bytes);
        }
    }

    fn set_options(&mut self, token: u64, index: VolumeIndex, options: VolumeOptions) {
        let Some(volume) = self.volumes.get_mut(index) else {
            return self.command_done(token, Err(CommandFailure::NoVolume));
        };
        let before = core::mem::replace(&mut volume.options, options);
        self.wake_lost();
        let volume = self.volumes.of(Key::new(index, 0));
        if volume.options.mode == Mode::WriteBack || mutants::active(mutants::MODE_LEFT_DIRTY) {
            self.command_done(token, Ok(()));
        } else {
            self.commands.jobs.push(Job::LeaveWriteBack { token, volume: index, before });
        }
    }

    fn cancel(&mut self, token: u64) {
        self.scrub.cancel(token);
        let jobs = core::mem::take(&mut self.commands.jobs);
        for job in jobs {
            match job {
                Job::LeaveWriteBack { token: other, volume, before } if other == token => {
                    self.volumes.of(Key::new(volume, 0)).options = before;
                    self.command_done(token, Err(CommandFailure::Cancelled));
                }
                Job::Destage { token: other, volume, .. } if other == token => {
                    self.destager.bring_all(volume, false);
                    self.command_done(token, Err(CommandFailure::Cancelled));
                }
                job => self.commands.jobs.push(job),
            }
        }
    }

    fn command_done(&mut self, token: u64, result: Result<(), CommandFailure>) {
        self.out.event(Event::CommandDone(token, result));
    }

    /// Looks at every job once.
    pub(super) fn check_commands(&mut self) {
        if self.scrub.is_under_way() {
            self.check_scrub();
        }
        if !self.commands.jobs.is_empty() {
            self.check_jobs();
        }
    }

    #[inline(never)]
    fn check_scrub(&mut self) {
        if let Some((token, result)) = self.scrub() {
            self.command_done(token, result);
        }
    }

    #[inline(never)]
    fn check_jobs(&mut self) {
        // Quiesce comes last: what the others still append, it waits for.
        let (last, jobs): (Vec<Job>, Vec<Job>) =
            core::mem::take(&mut self.commands.jobs).into_iter().partition(|job| matches!(job, Job::Quiesce { .. }));
        for job in jobs.into_iter().chain(last) {
            let appends = |job: &Job| matches!(job, Job::DropClean { .. } | Job::VoidPast { .. } | Job::Detach { .. });
            if matches!(job, Job::Quiesce { .. }) && self.commands.jobs.iter().any(appends) {
                self.commands.jobs.push(job);
                continue;
            }
            match self.check_job(job) {
                Standing::Goes(job) => self.commands.jobs.push(job),
                Standing::Ended(token, result) => {
                    if let Some(token) = token {
                        self.command_done(token, result);
                    }
                }
            }
        }
    }

    fn check_job(&mut self, job: Job) -> Standing {
        match job {
            Job::LeaveWriteBack { token, volume, before } => self.check_leaving(token, volume, before),
            Job::Destage { token, volume, errors, stage } => self.check_destage(token, volume, errors, stage),
            Job::Detach { token, volume, cursor } => self.check_detach(token, volume, cursor),
            Job::Release { token, volume } => self.check_release(token, volume),
            Job::DropClean { token, volume, cursor, group } => self.check_drop_clean(token, volume, cursor, group),
            Job::VoidPast { token, volume, past, group } => self.check_void_past(token, volume, past, group),
            Job::Quiesce { token } => {
                // What was appended since, such as notes of blocks that came home, goes out too.
                let last = self.store.commits().last();
                self.store.commits_mut().want_durable(last);
                self.abandon_waiting_runs();
                let durable = self.loss.is_ssd_failed() || self.store.commits().durable() == last;
                let io_is_over = self.out.in_flight() == 0 && self.awaited.is_empty() && self.store.is_idle();
                let still = io_is_over && self.requests() == 0 && self.store.eviction().is_idle();
                if still && durable { Standing::Ended(Some(token), Ok(())) } else { Standing::Goes(Job::Quiesce { token }) }
            }
        }
    }

    fn check_leaving(&mut self, token: u64, index: VolumeIndex, before: VolumeOptions) -> Standing {
        let Some(volume) = self.volumes.get(index) else { return Standing::Ended(Some(token), Err(CommandFailure::VolumeGone)) };
        if self.quiescing {
            return Standing::Ended(Some(token), Err(CommandFailure::StoppedInChange));
        }
        if volume.backing.failed {
            return Standing::Ended(Some(token), Err(CommandFailure::BackingFailed));
        }
        // Writes that took the way into the store before the change may still be appending.
        let logging = self.ops.iter().any(|op| op.request.volume == index && op.blocks > 0 && op.is_store_write());
        let (dirty, busy) = (self.dirty.blocks_of(index), self.destager.is_busy(index));
        let unreadable = self.destager.unreadable_blocks(index);
        if dirty == 0 && !busy && !logging {
            match self.notes_are_durable(index) {
                true => Standing::Ended(Some(token), Ok(())),
                false => Standing::Goes(Job::LeaveWriteBack { token, volume: index, before }),
            }
        } else if unreadable > 0 && dirty == unreadable && !busy && !logging {
            Standing::Ended(Some(token), Err(CommandFailure::Unreadable(unreadable)))
        } else {
            Standing::Goes(Job::LeaveWriteBack { token, volume: index, before })
        }
    }

    fn check_destage(&mut self, token: u64, index: VolumeIndex, errors: u64, mut stage: DestageStage) -> Standing {
        let Some(volume) = self.volumes.get(index) else { return Standing::Ended(Some(token), Err(CommandFailure::VolumeGone)) };
        let clean = self.dirty.blocks_of(index) == 0 && !self.destager.is_busy(index);
        let (passes, next_run) = self.destager.passes(index);
        match stage {
            DestageStage::Before(run) if self.destager.ended_before(index, run) => stage = DestageStage::Passes(passes + 2),
            DestageStage::Passes(wanted) if passes >= wanted => stage = DestageStage::Runs(next_run),
            _ => {}
        }
        let swept = matches!(stage, DestageStage::Runs(run) if self.destager.ended_before(index, run));
        let result = match () {
            () if (swept || clean) && self.destager.unreadable_blocks(index) > 0 => {
                Err(CommandFailure::Unreadable(self.destager.unreadable_blocks(index)))
            }
            () if clean => Ok(()),
            // Runs that ended badly were swept over too.
            () if swept && volume.stats.destage_errors == errors && !volume.backing.failed => Ok(()),
            () if volume.backing.failed => Err(CommandFailure::BackingFailed),
            () if volume.state.is_held() => Err(CommandFailure::BackingAbsent),
            () if volume.stats.destage_errors > errors => Err(CommandFailure::WriteRefused),
            () if self.quiescing => Err(CommandFailure::StoppedInDestage),
            () => return Standing::Goes(Job::Destage { token, volume: index, errors, stage }),
        };
        self.destager.bring_all(index, false);
        Standing::Ended(Some(token), result)
    }

    fn check_detach(&mut self, token: u64, index: VolumeIndex, mut cursor: u64) -> Standing {
        let quick = self.volumes.get(index).is_some_and(|volume| volume.quick_reads > 0);
        let busy = quick || self.scrub.is_reading() || self.ops.iter().any(|op| op.request.volume == index) || self.destager.is_busy(index);
        let flushing = self.volumes.get(index).is_some_and(|volume| volume.backing.flushing.is_some());
        if busy || flushing {
            return Standing::Goes(Job::Detach { token, volume: index, cursor });
        }
        for _ in 0..SLOTS_A_TURN {
            let Some((at, slot)) = self.index.next_slot(cursor) else { break };
            if let Some(key) = self.index.key_of(slot).filter(|key| key.volume() == index) {
                if !self.store.may_let_go() {
                    return Standing::Goes(Job::Detach { token, volume: index, cursor });
                }
                self.forget(key);
                self.store.let_go(slot);
            }
            cursor = at + 1;
        }
        if self.index.next_slot(cursor).is_some() {
            return Standing::Goes(Job::Detach { token, volume: index, cursor });
        }
        // What eviction had to append again meanwhile may stand where the sweep had been.
        if self.volumes.get(index).is_some_and(|volume| volume.cached_blocks > 0) {
            return Standing::Goes(Job::Detach { token, volume: index, cursor: 0 });
        }
        self.drop_ram_of(index);
        self.destage_forget(index);
        self.packer.forget_volume(index);
        self.trail.forget_volume(index);
        self.unsettled.retain(|key, _| key.volume() != index);
        self.volumes.remove(index);
        Standing::Ended(Some(token), Ok(()))
    }

    fn check_release(&mut self, token: u64, index: VolumeIndex) -> Standing {
        let goes = Standing::Goes(Job::Release { token, volume: index });
        let Some(volume) = self.volumes.get(index) else { return Standing::Ended(Some(token), Ok(())) };
        let asked = volume.quick_reads > 0 || self.ops.iter().any(|op| op.request.volume == index);
        // After a failed flush the clean blocks are being made void: one that was missed would be believed by the next `Attach`.
        if asked || self.destager.is_busy(index) || volume.backing.flushing.is_some() || self.commands.drops_clean_of(index) {
            return goes;
        }
        if volume.backing.written > volume.backing.flushed && !volume.backing.failed {
            self.flush_backing(index);
            return goes;
        }
        // The next life of the volume does not know on which groups its clients' flushes rest.
        let group = volume.stored_group.max(volume.note_group);
        if group > self.store.commits().durable() && !self.loss.is_ssd_failed() {
            self.store.commits_mut().want_durable(group);
            return goes;
        }
        assert!(volume.backing.client_in_flight == 0, "nothing of volume {} is under way", index.0);
        self.drop_ram_of(index);
        self.destager.rests(index);
        self.trail.forget_volume(index);
        let before = self.volumes.get(index).expect("looked at above");
        assert!(before.backing.waiters.is_empty(), "no operation waits for volume {}", index.0);
        assert!(before.ram_blocks == 0, "{} blocks of volume {} in RAM", before.ram_blocks, index.0);
        let mut held = Volume::new(before.id, before.size_bytes, VolumeOptions::default(), self.now_ns);
        (held.state, held.cached_blocks) = (VolumeState::Held, before.cached_blocks);
        held.depends_like(before);
        let before = self.volumes.put(index, held).expect("looked at above");
        Standing::Ended(Some(token), if before.backing.failed { Err(CommandFailure::FlushFailed) } else { Ok(()) })
    }

    fn check_drop_clean(&mut self, token: Option<u64>, index: VolumeIndex, mut cursor: u64, mut group: u64) -> Standing {
        if self.loss.is_ssd_failed() {
            return Standing::Ended(token, Err(CommandFailure::SsdFailed));
        }
        if self.volumes.get(index).is_none() {
            return Standing::Ended(token, Ok(()));
        }
        for _ in 0..SLOTS_A_TURN {
            let Some((at, slot)) = self.index.next_slot(cursor) else { break };
            if let Some(key) = self.index.key_of(slot).filter(|key| key.volume() == index && !self.dirty.contains(*key)) {
                if !self.store.has_room(Purpose::Clean) {
                    return Standing::Goes(Job::DropClean { token, volume: index, cursor, group });
                }
                group = self.store_void(key, Urgency::By(self.now_ns));
                self.unsettled.insert(key, group);
            }
            cursor = at + 1;
        }
        if self.index.next_slot(cursor).is_some() || group > self.store.commits().durable() {
            self.store.commits_mut().want_durable(group);
            return Standing::Goes(Job::DropClean { token, volume: index, cursor, group });
        }
        Standing::Ended(token, Ok(()))
    }

    fn check_void_past(&mut self, token: u64, index: VolumeIndex, mut past: VecDeque<Range<u64>>, mut group: u64) -> Standing {
        if self.loss.is_ssd_failed() {
            return Standing::Ended(Some(token), Err(CommandFailure::SsdFailed));
        }
        let done = self.volumes.get(index).is_none() || self.void_past(index, &mut past, &mut group);
        if !done || group > self.store.commits().durable() {
            self.store.commits_mut().want_durable(group);
            return Standing::Goes(Job::VoidPast { token, volume: index, past, group });
        }
        Standing::Ended(Some(token), Ok(()))
    }

    fn drop_ram_of(&mut self, index: VolumeIndex) {
        let mut keys: Vec<Key> = self.ram.keys().filter(|key| key.volume() == index).collect();
        keys.sort_unstable();
        for key in keys {
            self.drop_from_ram(key);
        }
    }

    /// Writes into the store that wait for room would wait for ever.
    fn fail_throttled_of(&mut self, index: Option<VolumeIndex>) {
        for id in self.throttle.take(index) {
            self.fail(id, RequestError::Shutdown);
        }
    }

    /// A clean stop leaves nothing volatile behind: the store's last group and every backing device are flushed.
    fn flush_everything(&mut self) {
        let last = self.store.commits().last();
        self.store.commits_mut().want_durable(last);
        for at in 0..self.volumes.attached().len() {
            let index = self.volumes.attached()[at];
            let volume = self.volumes.of(Key::new(index, 0));
            if volume.backing.written > volume.backing.flushed && !volume.state.is_held() {
                self.flush_backing(index);
            }
        }
    }

    /// For [`Shard::describe`].
    pub(super) fn describe_commands(&self, text: &mut String) {
        for job in &self.commands.jobs {
            let _ = writeln!(text, "job: {job:?}");
        }
    }
}
