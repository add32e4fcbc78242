//! Another SSD for a pool, as a job; its volumes stay what they are.
//!
//! 1. What is dirty on the old SSD goes home (or is given up, if that was said). The exports go, the volumes are detached, the pool stops.
//! 2. The new SSD is formatted: a pool that no record knows yet.
//! 3. One save makes it the pool's, and the volumes' caches empty.
//! 4. Pool and volumes come up as at the daemon's start.
//!
//! Until 3 the old SSD is the pool's: after a failure it comes up again, after a crash the next start does that. Until the pool stops, the job can
//! be stopped, and all is as it was but for what has gone home.
//!
//! The same SSD may be formatted anew (`--force`). Then there is no old one to come back to: before 2 a save says that nothing is dirty and the
//! caches are void, so that after a failure or crash the volumes are served without a cache, and the replacement can be asked for again.

use super::Manager;
use super::claims::WholePool;
use api::error::ControlError;
use api::{JobView, PoolCreate, PoolReplace, Severity};
use records::jobs::{Job, Work};
use records::state::{PoolPhase, PoolRecord, VolumePhase, VolumeRecord};
use uuid::Uuid;

impl Manager {
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

    pub(super) fn pool_replace(&self, name: &str, replace: &PoolReplace) -> Result<JobView, ControlError> {
        let WholePool { claim, record: old, volumes, disks } = self.claim_whole_pool(name, "the replacement of its SSD")?;
        if let Some(volume) = volumes.iter().find(|v| v.phase != VolumePhase::Ready) {
            return Err(ControlError::Claimed { named: "volume", name: volume.name.clone(), doing: "its removal" });
        }
        if let Some(disk) =
            disks.first().filter(|_| !self.is_place_of(&replace.ssd, name) || disks.iter().any(|d| self.volume_attached(&d.name)))
        {
            let problem = format!("it carries the disk \"{}\"", disk.name);
            let remedy = "copy what is on the pool's disks, and remove them with `hearth disk remove`".to_string();
            return Err(super::pools::device(&old.ssd, problem, remedy, api::error::Kind::Conflict));
        }
        if let Some(disk) = disks.first().filter(|_| self.is_place_of(&replace.ssd, name) && self.has_blank_ssd(&old)) {
            let problem = format!("it is blank: it was wiped, or is another one; the disk \"{}\" was on the pool's SSD", disk.name);
            let remedy = "reconnect the right SSD; if that is lost for good, remove the pool's disks with `hearth disk remove`".to_string();
            return Err(super::pools::device(&old.ssd, problem, remedy, api::error::Kind::Conflict));
        }
        if !old.phase.is_kept() {
            return Err(ControlError::Claimed { named: "pool", name: name.into(), doing: "its creation or destruction" });
        }
        let wish = PoolCreate {
            name: name.into(),
            ssd: replace.ssd.clone(),
            size_bytes: replace.size_bytes,
            ram_bytes: Some(old.ram_bytes),
            content: None,
            force: replace.force,
            on_blank_ssd: None,
            spare_percent: None,
        };
        if !replace.drop_dirty {
            self.check_state_is_newest(&old)?;
        }
        super::pools::check_sizes(&wish)?;
        let file_made = self.check_ssd(&wish)?;
        self.check_index(&wish, old.content)?;
        let spare = Some(self.spare_of(&wish, old.spare.as_ref()));
        volumes.iter().try_for_each(|v| self.check_unused(v).and_then(|()| self.check_not_deleted(v)))?;
        if let Some(volume) = volumes.iter().find(|v| v.may_have_dirty && !self.volume_attached(&v.name) && !replace.drop_dirty) {
            return Err(would_be_lost(&old, volume, replace, &format!(", perhaps, on {}, and the pool is not running", old.ssd)));
        }
        let (manager, replace, uuid) = (self.clone(), replace.clone(), old.uuid);
        self.run_job(Work::Replace(replace.clone()), (name, uuid), claim, move |job| {
            let new = PoolRecord { ssd: replace.ssd.clone(), size_bytes: replace.size_bytes, file_made, spare, ..old.clone() };
            manager.replace_ssd(&old, new, &volumes, &replace, job)
        })
    }

    fn replace_ssd(
        &self,
        old: &PoolRecord,
        new: PoolRecord,
        volumes: &[VolumeRecord],
        replace: &PoolReplace,
        job: &Job,
    ) -> Result<(), ControlError> {
        let name = &old.name;
        let formats_anew = self.is_place_of(&replace.ssd, name) || self.carries(&replace.ssd, name);
        let served: Vec<VolumeRecord> = volumes.iter().filter(|volume| self.volume_attached(&volume.name)).cloned().collect();
        self.bring_home(old, volumes, replace, job)?;
        let new = PoolRecord {
            uuid: Uuid::new_v4(),
            session: 0,
            degraded: None,
            phase: PoolPhase::Ready,
            disk_room: old.disk_room.filter(|_| formats_anew),
            ..new
        };
        self.events().note(Severity::Info, name, format!("the SSD {} is being replaced by {}", old.ssd, new.ssd));
        let calm = volumes.iter().try_for_each(|v| self.unexport_all(v).map(drop));
        // Once more: clients could write until now.
        let calm = calm.and_then(|()| self.bring_home(old, volumes, replace, job)).and_then(|()| self.detach_all(volumes));
        if let Err(error) = calm {
            volumes.iter().for_each(|v| self.serve_again(v));
            return Err(error);
        }
        self.stop_quietly(name);
        let result = self.exchange(&new, formats_anew);
        if result.is_err() && new.file_made {
            // What failed is told; a file that stays behind is only in the way of the next try.
            if let Err(also) = self.data().remove_file(&new) {
                self.events().note(Severity::Warning, name, format!("{} was not removed: {also}", new.ssd));
            }
        }
        // With the new SSD or, after a failure, with the old one again.
        let volumes: Vec<VolumeRecord> = self.memory().state.volumes_of(name).filter(|v| !v.rests()).cloned().collect();
        let mut judged = self.judge_all(&volumes);
        let saved = self.save_or_refuse(&mut judged);
        self.start_one_pool(&self.pool_record(name)?, &judged);
        result.and(saved)?;
        self.running_pool(name)?;
        self.events().note(Severity::Info, name, format!("the pool is now on {}; its cache is empty", new.ssd));
        self.check_served_again(&served)
    }

    /// Brings home what is dirty on the old SSD; what cannot go home is given up only if that was said.
    pub(super) fn bring_home(
        &self,
        pool: &PoolRecord,
        volumes: &[VolumeRecord],
        replace: &PoolReplace,
        job: &Job,
    ) -> Result<(), ControlError> {
        for volume in volumes.iter().filter(|v| v.may_have_dirty) {
            let attached = self.volume_attached(&volume.name);
            // A destage ends well only if nothing is dirty any more; figures could be wrong when a device hangs.
            let why = match attached.then(|| self.destage_all(volume, job)) {
                Some(Ok(())) => continue,
                Some(Err(ControlError::Stopped)) => return Err(ControlError::Stopped),
                Some(Err(error)) => format!(" that cannot be destaged: {error}"),
                None => format!(", perhaps, on {}, and the pool is not running", pool.ssd),
            };
            if !replace.drop_dirty {
                return Err(would_be_lost(pool, volume, replace, &why));
            }
            let message = format!("its dirty data on {} is discarded as requested", pool.ssd);
            self.events().note(Severity::Warning, &volume.name, message);
        }
        if job.cancel_wanted() { Err(ControlError::Stopped) } else { Ok(()) }
    }

    pub(super) fn detach_all(&self, volumes: &[VolumeRecord]) -> Result<(), ControlError> {
        let attached = || volumes.iter().filter(|v| self.volume_attached(&v.name));
        // All before the first: what is detached comes back only with its pool, and one device that hangs must not take the others along.
        attached().try_for_each(|volume| self.data().answers(volume, self.silence()))?;
        for volume in attached() {
            // It has to be attached again if another one cannot be let go.
            self.let_go(volume)?;
        }
        Ok(())
    }

    /// The replacement cannot begin: what went already comes back.
    pub(super) fn serve_again(&self, volume: &VolumeRecord) {
        if volume.rests() {
            return;
        }
        if self.volume_attached(&volume.name) {
            self.offer_again(volume);
        } else if let Err(error) = self.start_alone(volume) {
            self.fail_volume(volume, &error);
        }
    }

    /// Steps 2 and 3.
    fn exchange(&self, new: &PoolRecord, formats_anew: bool) -> Result<(), ControlError> {
        if formats_anew {
            self.change(|state| {
                for volume in state.volumes.iter_mut().filter(|v| v.pool == new.name) {
                    (volume.cache_stale, volume.may_have_dirty) = (true, false);
                }
            })?;
        }
        if new.file_made {
            self.data().make_file(&new.ssd, new.size_bytes.unwrap_or(super::pools::SSD_BYTES_MIN))?;
        }
        let new = &new.clone().formatted(self.data().format(new)?.not_discarded);
        self.change(|state| {
            if let Some(pool) = state.pool_mut(&new.name) {
                let next_volume_id = pool.next_volume_id;
                *pool = PoolRecord { next_volume_id, ..new.clone() };
            }
            for volume in state.volumes.iter_mut().filter(|v| v.pool == new.name) {
                // Until the pool has come up nothing of them is on it, and they can do without it.
                (volume.cache_stale, volume.may_have_dirty, volume.stopped_clean) = (true, false, false);
                volume.past.clear();
            }
        })
    }
}

/// What is dirty on the old SSD cannot go home, and nobody has said that it may be lost. `why` continues "has dirty data".
fn would_be_lost(pool: &PoolRecord, volume: &VolumeRecord, replace: &PoolReplace, why: &str) -> ControlError {
    ControlError::DirtyData {
        name: volume.name.clone(),
        dirty: "an unknown amount".into(),
        why: why.into(),
        remedy: format!(
            "fix that and try again, or discard the data with `hearth pool replace {} --ssd {} --drop-dirty`",
            pool.name, replace.ssd
        ),
    }
}
