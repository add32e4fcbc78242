//! A pool's log becomes slots, in place, as a job; its volumes stay, with what is cached of them.
//!
//! Clients that can wait do so, others must be gone. Then the pool stops, its SSD is upgraded, and it starts again: what the SSD says then is what
//! is on record, so a crash in between needs no care here. If it cannot be upgraded, the pool starts as the log that it is.

use super::Manager;
use super::claims::WholePool;
use api::error::ControlError;
use api::{JobView, Severity};
use records::jobs::{Job, Work};
use records::state::{PoolRecord, VolumePhase, VolumeRecord};

impl Manager {
    /// Says whether it can be, as far as that can be said while the pool runs.
    pub(super) fn pool_upgrade_check(&self, name: &str) -> Result<String, ControlError> {
        let pool = self.running_pool(name)?;
        self.data().check_upgrade(&pool)?;
        let volumes: Vec<VolumeRecord> = self.memory().state.volumes_of(name).cloned().collect();
        let waits = |volume: &&VolumeRecord| !self.all_can_wait(volume);
        volumes.iter().chain(&self.disk_volumes(name)).filter(waits).try_for_each(|volume| self.check_unused(volume))?;
        Ok("its log can become slots; whether dirty data is in the way is seen when the pool has stopped".into())
    }

    pub(super) fn pool_upgrade(&self, name: &str) -> Result<JobView, ControlError> {
        let WholePool { claim, record: pool, volumes, disks } = self.claim_whole_pool(name, "its upgrade")?;
        self.running_pool(name)?;
        self.data().check_upgrade(&pool)?;
        if let Some(volume) = volumes.iter().find(|v| v.phase != VolumePhase::Ready) {
            return Err(ControlError::Claimed { named: "volume", name: volume.name.clone(), doing: "its removal" });
        }
        volumes.iter().try_for_each(|volume| self.check_not_deleted(volume))?;
        let waits = |volume: &&VolumeRecord| !self.all_can_wait(volume);
        volumes.iter().chain(&disks).filter(waits).try_for_each(|volume| self.check_unused(volume))?;
        let manager = self.clone();
        self.run_job(Work::Upgrade, (name, pool.uuid), claim, move |job| manager.upgrade_stopped(&pool, &volumes, &disks, job))
    }

    fn upgrade_stopped(&self, pool: &PoolRecord, volumes: &[VolumeRecord], disks: &[VolumeRecord], job: &Job) -> Result<(), ControlError> {
        let name = &pool.name;
        let served: Vec<VolumeRecord> = volumes.iter().chain(disks).filter(|volume| self.volume_attached(&volume.name)).cloned().collect();
        if job.cancel_wanted() {
            return Err(ControlError::Stopped);
        }
        let calm = volumes.iter().try_for_each(|volume| self.suspend_all(volume)).and_then(|()| self.suspend_disks(name));
        let calm = calm.and_then(|()| volumes.iter().try_for_each(|volume| self.data().check_quiet(volume)));
        let calm = calm.and_then(|()| self.detach_all(volumes));
        if let Err(error) = calm {
            volumes.iter().for_each(|volume| self.serve_again(volume));
            self.serve_disks(name);
            return Err(error);
        }
        self.stop_quietly(name);
        let upgraded = self.data().upgrade(pool);
        // As slots or, after a failure, as what the SSD says that it is.
        let wanted: Vec<VolumeRecord> = self.memory().state.volumes_of(name).filter(|v| !v.rests()).cloned().collect();
        let mut judged = self.judge_all(&wanted);
        let saved = self.save_or_refuse(&mut judged);
        self.start_one_pool(&self.pool_record(name)?, &judged);
        let outcome = upgraded?;
        saved?;
        self.running_pool(name)?;
        self.events().note(Severity::Info, name, format!("its blocks lie in slots now: {outcome}"));
        self.check_served_again(&served)
    }
}
