//! One pool by itself, started while all others go on: its SSD was away, or full, and is as it must be again.
//!
//! Nothing is new in it: exports and volumes go as before a replacement of the SSD, and come as at the daemon's start. After a crash
//! in between the next start does that.

use super::Manager;
use crate::api::{Health, Severity};
use crate::error::{ControlError, Kind};
use crate::names::Named;
use crate::state::{PoolPhase, PoolRecord, VolumePhase, VolumeRecord};
use std::collections::BTreeSet;

impl Manager {
    /// Starts a pool that does not run, or runs without its SSD. Its volumes must not be in use.
    pub(super) fn pool_start(&self, name: &str) -> Result<String, ControlError> {
        let record = self.pool_record(name)?;
        let volumes: Vec<VolumeRecord> = self.memory().state.volumes_of(name).cloned().collect();
        let mut claimed = vec![(Named::Pool, name), (Named::SsdOfPool, name)];
        claimed.extend(volumes.iter().map(|v| (Named::Volume, v.name.as_str())));
        let _claim = self.claim(&claimed, "its start")?;
        if self.memory().pools.get(name).is_some_and(|live| live.health == Health::Running) {
            return Ok("it is already running".into());
        }
        if record.phase != PoolPhase::Ready {
            return Err(ControlError::Claimed { named: "pool", name: name.into(), doing: "its creation or destruction" });
        }
        if let Some(volume) = volumes.iter().find(|v| v.phase != VolumePhase::Ready) {
            return Err(ControlError::Claimed { named: "volume", name: volume.name.clone(), doing: "its removal" });
        }
        // What runs without the SSD goes on if that is not there.
        super::start::check_is_believed(&record)?;
        self.check_ssd_is_there(&record)?;
        volumes.iter().filter(|v| self.volume_attached(&v.name)).try_for_each(|v| self.check_unused(v))?;
        let gone = volumes.iter().try_for_each(|v| self.unexport_all(v)).and_then(|()| self.detach_all(&volumes));
        if let Err(error) = gone {
            volumes.iter().for_each(|v| self.serve_again(v));
            return Err(error);
        }
        self.stop_quietly(name);
        let wanted: Vec<VolumeRecord> = self.memory().state.volumes_of(name).filter(|v| !v.rests()).cloned().collect();
        let judged = self.judge_all(&wanted);
        let saved = self.save_before_first_io(&judged);
        self.start_one_pool(&self.pool_record(name)?, &judged);
        saved?;
        let now = self.running_pool(name)?;
        self.events().note(Severity::Info, name, "the pool is started");
        Ok(format!("running on {}", now.ssd))
    }

    /// Whether what carries the pool is where it was, or anywhere else.
    fn check_ssd_is_there(&self, pool: &PoolRecord) -> Result<(), ControlError> {
        if self.carries(&pool.ssd, &pool.name) || self.data().find_ssd(pool.uuid).is_some() {
            return Ok(());
        }
        Err(ssd_is_missing(pool))
    }

    /// Starts pools by themselves whose SSD was missed and is there, where nobody uses their volumes; once, since what does not come up then
    /// has another reason, and its volumes would go and come for nothing. `missed` is kept from look to look. `is_due`: whether now is a
    /// time to look, by the pool's name and a mark of its device.
    pub(super) fn start_pools_that_are_back(&self, missed: &mut BTreeSet<String>, is_due: &mut dyn FnMut(&str, u64) -> bool) {
        let waiting: Vec<PoolRecord> = {
            let memory = self.memory();
            let stands = |pool: &&PoolRecord| {
                let health = memory.pools.get(&pool.name).map(|live| live.health);
                pool.phase == PoolPhase::Ready && matches!(health, Some(Health::Failed | Health::Degraded))
            };
            memory.state.pools.iter().filter(stands).cloned().collect()
        };
        for pool in waiting {
            // Shards that have the SSD open still would not see that it is another; who made room on it says so.
            if self.data().has_shards(&pool.name) || !is_due(&pool.name, self.data().device_mark(&pool.ssd)) || self.is_stopping() {
                continue;
            }
            if self.check_ssd_is_there(&pool).is_err() {
                missed.insert(pool.name);
                continue;
            }
            if !missed.remove(&pool.name) {
                continue;
            }
            match self.pool_start(&pool.name) {
                Ok(told) => self.events().note(Severity::Info, &pool.name, format!("its SSD is back: {told}")),
                Err(error) => {
                    let message = format!("its SSD is back, but the pool does not start by itself: {}", error.reason());
                    self.events().note(Severity::Warning, &pool.name, message);
                }
            }
        }
    }
}

/// The SSD of the pool is nowhere.
pub(super) fn ssd_is_missing(pool: &PoolRecord) -> ControlError {
    let name = &pool.name;
    let remedy = format!(
        "reconnect it: the pool then starts by itself, or by `hearth pool start {name}` if a volume of it is in use; or put the pool on \
         another SSD with `hearth pool replace {name} --ssd PATH`"
    );
    super::pools::device(&pool.ssd, "the SSD of this pool is not there".into(), remedy, Kind::NotFound)
}
