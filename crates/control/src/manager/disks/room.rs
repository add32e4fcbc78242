//! The start of the room for disks moves: the cache is cut there or lengthened up to there, or a new, empty one is made in what is left of the SSD.

use super::super::Manager;
use super::super::claims::{Claim, WholePool};
use api::error::ControlError;
use api::human;
use api::{JobView, PoolReplace, Severity};
use records::jobs::{Job, Work};
use records::state::{PoolPhase, PoolRecord, Span, VolumePhase, VolumeRecord};
use uuid::Uuid;

impl Manager {
    /// Moves the begin of the room for disks (`None`: there is none any more); then does what was asked for.
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
            manager.give_room(&old, room, &volumes, job)?;
            then()
        })
    }

    fn give_room(&self, old: &PoolRecord, room: Option<Span>, volumes: &[VolumeRecord], job: &Job) -> Result<(), ControlError> {
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
        let stays = self.data().may_resize(&PoolRecord { disk_room: room, ..old.clone() });
        let saved = self.change(|state| {
            if let Some(pool) = state.pool_mut(name) {
                pool.disk_room = room;
                if stays {
                    pool.phase = PoolPhase::Resizing;
                    return;
                }
                pool.phase = PoolPhase::Reformatting { former: pool.uuid };
                (pool.uuid, pool.session, pool.degraded) = (uuid, 0, None);
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
        let what = if stays { "and keeps what lies there" } else { "and is empty" };
        let told = format!("its cache has {} of the SSD now, {what}", human::bytes(has));
        self.events().note(Severity::Info, name, told);
        self.check_served_again(&served)
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
