//! One volume by itself: started, stopped, its cache dropped, while its pool and all other volumes go on.
//!
//! Durable steps, and what a start does after a crash behind each:
//!
//! | stop | after a crash here, the start |
//! |---|---|
//! | 0. exports go, the backing device is let go | brings it up, as after any crash |
//! | 1. save it as stopped, with the identity of its device | leaves it stopped |
//!
//! | start | after a crash here, the start |
//! |---|---|
//! | 1. save it as not stopped and, once its device was judged, what that means | brings it up |

use super::{LiveVolume, Manager, Trouble};
use api::error::ControlError;
use api::human;
use api::names::Named;
use api::{Health, Severity};
use datapath::Withdrawal;
use records::state::{VolumePhase, VolumeRecord};

impl Manager {
    /// Starts a volume that does not run; one that lost its backing device, or was left alone with it, is brought down first.
    pub(super) fn volume_start(&self, name: &str) -> Result<String, ControlError> {
        self.volume_record(name)?;
        let claim = self.claim(&[(Named::Volume, name)], "its start");
        // A long job has it. Whoever wants it to run has what they want.
        if claim.is_err() && self.runs_whole(name) {
            return Ok("it is already running".into());
        }
        let _claim = claim?;
        let record = self.volume_record(name)?;
        let live = self.memory().volumes.get(name).cloned();
        if live.is_some_and(|live| live.attached && matches!(live.health, Health::Running | Health::Degraded)) {
            self.export_missing(&record)?;
            return Ok("it is already running".into());
        }
        if record.phase != VolumePhase::Ready {
            return Err(ControlError::Claimed { named: "volume", name: name.into(), doing: "its removal" });
        }
        if self.volume_attached(name) {
            self.check_not_deleted(&record)?;
        }
        if record.stopped {
            self.change(|state| {
                if let Some(volume) = state.volume_mut(name) {
                    volume.stopped = false;
                }
            })?;
        }
        let started = self.start_alone(&record).and_then(|()| self.volume_record(name));
        match started {
            Ok(record) => {
                self.events().note(Severity::Info, name, "the volume is started");
                let lacking = self.lacking(name).into_values().map(|trouble| format!("; {}", trouble.problem)).collect::<String>();
                Ok(format!("running over {}{lacking}", record.backing))
            }
            Err(error) => {
                self.fail_volume(&record, &error);
                Err(error)
            }
        }
    }

    /// Whether a volume is served, with all of its exports.
    fn runs_whole(&self, name: &str) -> bool {
        let memory = self.memory();
        let whole = |live: &LiveVolume| live.attached && live.health == Health::Running && live.lacking.is_empty();
        memory.volumes.get(name).is_some_and(whole)
    }

    /// Brings up a volume that is claimed, by the same steps as at the daemon's start.
    pub(super) fn start_alone(&self, volume: &VolumeRecord) -> Result<(), ControlError> {
        let name = &volume.name;
        let pool = self.running_pool(&volume.pool);
        if matches!(pool, Err(ControlError::Claimed { .. } | ControlError::AtWork { .. } | ControlError::Unknown { .. })) {
            return pool.map(drop);
        }
        if self.volume_attached(name) {
            // Of a device that leads here, nobody must notice.
            if volume.attachment.is_some() {
                self.data().mapped().lead_past(&self.volume_record(name)?)?;
            }
            // Its device went away or failed. Who has it mounted has lost it already.
            self.abandon_exports(volume, Withdrawal::Forced);
            self.let_go(volume)?;
        }
        let judged = self.judge_all(std::slice::from_ref(volume));
        self.save_before_first_io(&judged)?;
        let fresh = self.volume_record(name)?;
        if fresh.id != volume.id && pool.is_ok() {
            self.data().forget(volume)?;
        }
        match pool {
            Ok(_) => {
                self.save_that_they_are_used(&judged)?;
                self.try_in_pool(&self.volume_record(name)?, &judged)
            }
            Err(error) => self.try_without_pool(&fresh, &judged, &error),
        }
    }

    /// Detaches a volume; what is cached of it stays. Gives why its device may lack what was acknowledged.
    pub(super) fn let_go(&self, volume: &VolumeRecord) -> Result<Option<String>, ControlError> {
        let pool_runs = self.memory().pools.get(&volume.pool).is_some_and(|pool| pool.health == Health::Running);
        if pool_runs {
            // The next start must know what is dirty now, and not what was when the pool started. From here on that only gets less.
            let dirty_bytes = self.data().dirty_bytes(&volume.name).unwrap_or(u64::MAX);
            self.set_live_pool(&volume.pool, |pool| {
                pool.dirty_bytes.insert(volume.id, dirty_bytes);
            });
        }
        let unflushed = self.data().release(volume)?;
        self.set_live_volume(&volume.name, |live| live.attached = false);
        Ok(unflushed)
    }

    /// Stops a volume, if nobody uses it. It stays so over restarts of the daemon. With `give_up`, a backing device that does not answer is
    /// given up; without, the volume runs on then. With `force`, also if its backing file was deleted, and what it holds is lost by that.
    pub(super) fn volume_stop(&self, name: &str, give_up: bool, force: bool) -> Result<String, ControlError> {
        let _claim = self.claim(&[(Named::Volume, name)], "its stop")?;
        let record = self.volume_record(name)?;
        if record.phase != VolumePhase::Ready {
            return Err(ControlError::Claimed { named: "volume", name: name.into(), doing: "its removal" });
        }
        if record.stopped {
            return Ok("it is already stopped".into());
        }
        if !self.volume_attached(name) {
            return self.keep_stopped(&record);
        }
        let or_give_up = |error| or(error, &format!("give it up with `hearth volume stop {name} --give-up`: what waits for it fails then"));
        let gives_up = self.give_up_if_silent(&record, give_up).map_err(or_give_up)?;
        if !force {
            self.check_not_deleted(&record)?;
            self.check_dirty_is_kept(&record)?;
        }
        let lost = self.unexport_all(&record).map_err(or_give_up)?;
        // What its path leads to by now is not what was served.
        let strayed = self.data().backing_strayed(name);
        // Nothing is written any more, so what is dirty can only get less. Where not all of the pool answers nothing is known.
        let dirty_bytes = self.data().dirty_bytes(name).ok();
        let unflushed = match self.let_go(&record).map_err(or_give_up) {
            Ok(unflushed) => unflushed.or(lost),
            Err(error) => {
                let trouble = Trouble { problem: format!("its stop was interrupted: {error}"), remedy: error.remedy() };
                self.set_live_volume(name, |live| (live.health, live.trouble) = (Health::Failed, Some(trouble)));
                return Err(error);
            }
        };
        // One that was given up would be waited for, and may still change by what was in flight.
        let seen = if gives_up || unflushed.is_some() { None } else { self.data().examine_backing(&record.backing).ok() };
        let seen = seen.filter(|facts| facts.in_use.is_none() && strayed.is_none());
        self.change(|state| {
            if let Some(volume) = state.volume_mut(name) {
                volume.stopped = true;
                if let Some(facts) = seen {
                    (volume.identity, volume.stopped_clean) = (facts.identity, true);
                }
                volume.may_have_dirty &= dirty_bytes != Some(0) || !volume.stopped_clean;
            }
        })?;
        self.set_live_volume(name, |live| *live = LiveVolume::new(Health::Stopped));
        self.events().note(Severity::Info, name, "the volume is stopped");
        let keeps_cache = self.running_pool(&record.pool).is_ok();
        if let Some(file) = strayed {
            return Ok(match file.is_deleted {
                true => format!("its backing file {} was deleted before, and is gone", record.backing),
                false => {
                    format!("its backing file is free, but {} does not lead to it: move it back before the volume starts", record.backing)
                }
            });
        }
        if let Some(unflushed) = unflushed {
            let backing = &record.backing;
            self.events().note(Severity::Error, name, format!("{backing} may lack what was written last: {unflushed}"));
            let kept = match dirty_bytes {
                Some(0) => String::new(),
                Some(bytes) => format!("; {} of dirty data stay on the SSD", human::bytes(bytes)),
                None => "; dirty data stays on the SSD".into(),
            };
            return Ok(format!("stopped, but {backing} may lack what was written last: {unflushed}{kept}"));
        }
        Ok(complete_or_not(&record.backing, dirty_bytes, keeps_cache))
    }

    /// Marks a volume that does not run as stopped.
    fn keep_stopped(&self, record: &VolumeRecord) -> Result<String, ControlError> {
        self.change(|state| {
            if let Some(volume) = state.volume_mut(&record.name) {
                volume.stopped = true;
            }
        })?;
        self.show_stopped(record);
        self.events().note(Severity::Info, &record.name, "the volume was not running and is now stopped: it no longer starts by itself");
        Ok("it was not running, and no longer starts by itself".into())
    }

    /// Drops what is cached clean of a running volume. Tells how much.
    pub(super) fn volume_drop_cache(&self, name: &str) -> Result<String, ControlError> {
        let _claim = self.claim(&[(Named::Volume, name)], "the drop of its cache")?;
        let record = self.running_volume(name)?;
        let told = self.drop_cache(&record)?;
        self.events().note(Severity::Info, name, &told);
        Ok(told)
    }

    pub(super) fn drop_cache(&self, volume: &VolumeRecord) -> Result<String, ControlError> {
        let before = self.data().volume_stats(&volume.name);
        self.data().drop_clean(volume)?;
        let dirty = self.data().volume_stats(&volume.name).dirty_bytes.unwrap_or(0);
        let clean = human::bytes(before.cached_bytes.saturating_sub(dirty));
        let kept = if dirty > 0 { format!("; {} of dirty data is kept", human::bytes(dirty)) } else { String::new() };
        Ok(format!("{clean} of clean cache on the SSD and the cache in RAM were dropped{kept}"))
    }
}

/// What its stop leaves on the backing device, for people. `dirty_bytes`: what of the volume stays on the SSD, if known.
fn complete_or_not(backing: &str, dirty_bytes: Option<u64>, keeps_cache: bool) -> String {
    match dirty_bytes {
        Some(0) if !keeps_cache => format!("{backing} is complete and free"),
        Some(0) => format!("{backing} is complete and free; its cache is kept"),
        Some(bytes) => format!("{backing} is free but not complete: {} of dirty data stay on the SSD", human::bytes(bytes)),
        None => format!("{backing} is free but may not be complete: dirty data stays on the SSD"),
    }
}

/// The same error of something that takes too long or fails, with what else can be done about it.
pub(super) fn or(error: ControlError, remedy: &str) -> ControlError {
    let with = |before: String| if before.is_empty() { format!("or {remedy}") } else { format!("{before}; or {remedy}") };
    match error {
        ControlError::DataPath(problem, before) => ControlError::DataPath(problem, with(before)),
        ControlError::Below { source, remedy } => ControlError::Below { source, remedy: with(remedy) },
        ControlError::Device { path, problem, remedy, kind } => ControlError::Device { path, problem, remedy: with(remedy), kind },
        other => other,
    }
}
