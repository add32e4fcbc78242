//! The begin of the room for disks moves: the cache is made anew in what is left of the SSD, empty.

use super::super::Manager;
use super::super::claims::{Claim, WholePool};
use api::error::{ControlError, Kind};
use api::human;
use api::{JobView, PoolReplace, Severity};
use records::jobs::{Job, Work};
use records::state::{OnBlankSsd, PoolPhase, PoolRecord, Span, VolumePhase, VolumeRecord};
use uuid::Uuid;

impl Manager {
    /// Moves the begin of the room for disks (`None`: there is none any more), with an empty cache in what is left; then does what was asked for.
    /// `claim` is of the pool and of what else this will need.
    pub(super) fn move_room(
        &self,
        claim: Claim,
        pool: &PoolRecord,
        room: Option<Span>,
        then: impl FnOnce() -> Result<(), ControlError> + Send + 'static,
    ) -> Result<JobView, ControlError> {
        let name = &pool.name;
        let doing = "a change of what its cache has of the SSD";
        let WholePool { claim, record: old, volumes, disks } = self.claim_rest_of_pool(claim, name, doing)?;
        if let Some(volume) = volumes.iter().find(|v| v.phase != VolumePhase::Ready) {
            return Err(ControlError::Claimed { named: "volume", name: volume.name.clone(), doing: "its removal" });
        }
        if let Some(volume) = volumes.iter().find(|v| v.may_have_dirty && !self.volume_attached(&v.name)) {
            return Err(ControlError::DirtyData {
                name: volume.name.clone(),
                dirty: "an unknown amount".into(),
                why: format!(", perhaps, on {}, and is not running", old.ssd),
                remedy: format!("start it with `hearth volume start {}`, so that its dirty data can go home, then try again", volume.name),
            });
        }
        let waits = |volume: &&VolumeRecord| !self.all_can_wait(volume);
        volumes.iter().chain(&disks).filter(waits).try_for_each(|volume| self.check_unused(volume))?;
        let manager = self.clone();
        self.run_job(Work::DiskRoom, (name, old.uuid), claim, move |job| {
            manager.make_cache_anew(&old, room, &volumes, job)?;
            then()
        })
    }

    fn make_cache_anew(&self, old: &PoolRecord, room: Option<Span>, volumes: &[VolumeRecord], job: &Job) -> Result<(), ControlError> {
        let name = &old.name;
        self.check_table(old)?;
        let uuid = Uuid::new_v4();
        let served: Vec<VolumeRecord> =
            volumes.iter().cloned().chain(self.disk_volumes(name)).filter(|volume| self.volume_attached(&volume.name)).collect();
        let replace = PoolReplace { ssd: old.ssd.clone(), size_bytes: old.size_bytes, force: true, drop_dirty: false };
        let bring_home = || self.bring_home(old, volumes, &replace, job).map_err(nothing_was_changed);
        bring_home()?;
        let calm = volumes.iter().try_for_each(|volume| self.suspend_all(volume)).and_then(|()| self.suspend_disks(name));
        // Once more: clients could write until now.
        // The table may still have what a removal that was cut short has left; no cache is made over what it lists.
        let disks = self.memory().state.disks_of(name);
        let calm = calm.and_then(|()| volumes.iter().try_for_each(|volume| self.data().check_quiet(volume)));
        let calm = calm.and_then(|()| bring_home()).and_then(|()| self.data().write_disks(old, &disks));
        let calm = calm.and_then(|()| self.detach_all(volumes));
        if let Err(error) = calm {
            volumes.iter().for_each(|volume| self.serve_again(volume));
            self.serve_disks(name);
            return Err(error);
        }
        self.stop_quietly(name);
        let saved = self.change(|state| {
            if let Some(pool) = state.pool_mut(name) {
                pool.phase = PoolPhase::Reformatting { former: pool.uuid };
                (pool.uuid, pool.session, pool.degraded, pool.disk_room) = (uuid, 0, None, room);
            }
            for volume in state.volumes.iter_mut().filter(|volume| volume.pool == *name) {
                (volume.cache_stale, volume.may_have_dirty, volume.stopped_clean) = (true, false, false);
                volume.past.clear();
            }
        });
        // With the new room or, if that could not be saved, as it was.
        let wanted: Vec<VolumeRecord> = self.memory().state.volumes_of(name).filter(|v| !v.rests()).cloned().collect();
        let judged = self.judge_all(&wanted);
        let saved = saved.and(self.save_before_first_io(&judged));
        self.start_one_pool(&self.pool_record(name)?, &judged);
        saved?;
        self.running_pool(name)?;
        let has = self.memory().pools.get(name).map_or(0, |live| live.size_bytes);
        let told = format!("its cache has {} of the SSD now, and is empty", human::bytes(has));
        self.events().note(Severity::Info, name, told);
        self.check_served_again(&served)
    }

    /// What was served before has to be so again: a job that leaves a volume behind has failed.
    pub(in crate::manager) fn check_served_again(&self, before: &[VolumeRecord]) -> Result<(), ControlError> {
        let Some(left) = before.iter().find(|volume| !self.volume_attached(&volume.name)) else { return Ok(()) };
        let live = self.memory().volumes.get(&left.name).cloned();
        let comes_by_itself = live.as_ref().is_some_and(|live| live.waits) || self.disk_record(&left.name).is_ok();
        let start = if comes_by_itself {
            "it is tried again by itself".to_string()
        } else {
            format!("then start it with `hearth volume start {}`", left.name)
        };
        let trouble = live.and_then(|live| live.trouble);
        let (reason, remedy) = trouble.map_or((String::new(), start.clone()), |trouble| {
            let said = if trouble.remedy.is_empty() { start } else { format!("{}; {start}", trouble.remedy) };
            (format!(": {}", trouble.problem), said)
        });
        let problem = format!("the pool is running as asked for, but \"{}\" is not served{reason}", left.name);
        Err(ControlError::DataPath(problem, remedy))
    }

    /// Step 3 of a move of the room, also for a start that finds it half done. The pool is not running.
    ///
    /// Gives the pool with its SSD where that is now.
    pub(in crate::manager) fn reformat(&self, pool: &PoolRecord, former: Uuid) -> Result<PoolRecord, ControlError> {
        let carries_it = |ssd: &str| {
            let carries = self.data().examine_ssd(ssd).map(|facts| facts.pool);
            carries.map(|uuid| uuid == Some(former) || uuid == Some(pool.uuid))
        };
        let is_there = carries_it(&pool.ssd).unwrap_or(false);
        // It may have another name now. Other devices are not asked without need: one of them may be our own, whose users wait.
        let find = || self.data().find_ssd(pool.uuid).or_else(|| self.data().find_ssd(former));
        let found = if is_there { None } else { find() };
        let pool = &PoolRecord { ssd: found.unwrap_or_else(|| pool.ssd.clone()), ..pool.clone() };
        let is_begun = pool.on_blank_ssd == OnBlankSsd::Make && self.memory().state.disks_of(&pool.name).is_empty();
        if !(carries_it(&pool.ssd)? || is_begun && self.has_blank_ssd(pool)) {
            let remedy = format!("make its cache anew with `hearth pool replace {} --ssd {} --force`: its disks stay", pool.name, pool.ssd);
            let problem = "its cache was being made anew when hearth ended, and it does not carry this pool now".to_string();
            return Err(crate::manager::pools::device(&pool.ssd, problem, remedy, Kind::Conflict));
        }
        let disks = self.memory().state.disks_of(&pool.name);
        self.data().format(pool)?;
        self.data().write_disks(pool, &disks)?;
        self.change(|state| {
            if let Some(now) = state.pool_mut(&pool.name) {
                now.ssd.clone_from(&pool.ssd);
            }
        })?;
        Ok(pool.clone())
    }
}

/// Of an error that came before anything was done: what is dirty stays where it is.
fn nothing_was_changed(error: ControlError) -> ControlError {
    match error {
        ControlError::DirtyData { name, dirty, why, .. } => {
            let remedy = "fix that and try again: nothing was changed".into();
            ControlError::DirtyData { name, dirty, why, remedy }
        }
        other => other,
    }
}
