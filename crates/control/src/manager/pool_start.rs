//! One pool by itself, started while all others go on: its SSD was away, or full, and is as it must be again.
//!
//! What runs without the SSD ends as by a crash, and all comes back as at the daemon's start. After
//! a crash in between the next start does that. Users of block devices see a pause.

use super::Manager;
use super::claims::WholePool;
use super::waiting::SILENCE;
use api::error::{ControlError, Kind};
use api::names::Named;
use api::{Health, Severity};
use records::state::{PoolPhase, PoolRecord, VolumePhase, VolumeRecord};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

impl Manager {
    /// Starts a pool that does not run, or runs without its SSD. Users of block devices wait
    /// meanwhile, where they can; other users must not be there.
    pub(super) fn pool_start(&self, name: &str) -> Result<String, ControlError> {
        let WholePool { claim: _claim, record, volumes, .. } = self.claim_whole_pool(name, "its start")?;
        if self.memory().pools.get(name).is_some_and(|live| live.health == Health::Running) {
            self.renew_failed_disks(name)?;
            self.serve_disks(name);
            return Ok("it is already running".into());
        }
        if !record.phase.is_kept() {
            return Err(ControlError::Claimed { named: "pool", name: name.into(), doing: "its creation or destruction" });
        }
        if let Some(volume) = volumes.iter().find(|v| v.phase != VolumePhase::Ready) {
            return Err(ControlError::Claimed { named: "volume", name: volume.name.clone(), doing: "its removal" });
        }
        volumes.iter().try_for_each(|v| self.check_not_deleted(v))?;
        // What runs without the SSD goes on if that is not there.
        super::start::check_is_believed(&record)?;
        self.check_ssd_is_there(&record, &volumes)?;
        if self.data().has_shards(name) && record.phase == PoolPhase::Ready {
            self.check_ssd_takes_writes(&record)?;
        }
        let gone = volumes.iter().try_for_each(|v| self.suspend_all(v));
        let gone = gone.and_then(|()| self.end_disks(name)).and_then(|()| self.let_go_of_all(name, &volumes));
        if let Err(error) = gone {
            volumes.iter().for_each(|v| self.serve_again(v));
            self.serve_disks(name);
            return Err(error);
        }
        self.stop_quietly(name);
        let wanted: Vec<VolumeRecord> = self.memory().state.volumes_of(name).filter(|v| !v.rests()).cloned().collect();
        let mut judged = self.judge_all(&wanted);
        let saved = self.save_or_refuse(&mut judged);
        self.start_one_pool(&self.pool_record(name)?, &judged);
        saved?;
        let now = self.running_pool(name)?;
        self.events().note(Severity::Info, name, "the pool is started");
        Ok(format!("running on {}", now.ssd))
    }

    /// Its volumes have no clients any more. Shards that have lost their SSD end as by a crash:
    /// requests wait in them that no client waits for.
    fn let_go_of_all(&self, pool: &str, volumes: &[VolumeRecord]) -> Result<(), ControlError> {
        if !self.data().has_shards(pool) {
            return self.detach_all(volumes);
        }
        self.data().abandon_pool(pool)?;
        volumes.iter().filter(|volume| self.volume_attached(&volume.name)).try_for_each(|volume| {
            self.data().detach(volume, false)?;
            self.set_live_volume(&volume.name, |live| live.attached = false);
            Ok(())
        })
    }

    /// Whether what carries the pool is where it was, or anywhere else; or a blank SSD where its cache may be made anew.
    fn check_ssd_is_there(&self, pool: &PoolRecord, volumes: &[VolumeRecord]) -> Result<(), ControlError> {
        if self.carries(&pool.ssd, &pool.name) || self.data().find_ssd(pool.uuid).is_some() {
            return Ok(());
        }
        if self.has_blank_ssd(pool) {
            return self.check_may_be_made(pool, volumes);
        }
        // Its cache is still to be made anew there.
        if let PoolPhase::Reformatting { former } = pool.phase
            && (self.data().examine_ssd(&pool.ssd).is_ok_and(|facts| facts.pool == Some(former)) || self.data().find_ssd(former).is_some())
        {
            return Ok(());
        }
        Err(ssd_is_missing(pool))
    }

    /// Starts pools by themselves whose SSD was missed and is there, once, since what does not come
    /// up then has another reason; and, ever less often, pools that have lost their SSD under way,
    /// if it is there: it may have been away for a moment only. `is_due`: whether now is a time to
    /// look, by the pool's name and a mark of its device.
    pub(super) fn start_pools_that_are_back(&self, lost: &mut LostSsds, is_due: &mut dyn FnMut(&str, u64) -> bool) {
        let waiting: Vec<PoolRecord> = {
            let memory = self.memory();
            let stands = |pool: &&PoolRecord| {
                let health = memory.pools.get(&pool.name).map(|live| live.health);
                let is_kept = pool.phase.is_kept();
                is_kept && matches!(health, Some(Health::Failed | Health::Degraded))
            };
            memory.state.pools.iter().filter(stands).cloned().collect()
        };
        for pool in waiting {
            if self.data().has_shards(&pool.name) {
                lost.under_way.entry(pool.name.clone()).or_default();
            }
            if !is_due(&pool.name, self.data().device_mark(&pool.ssd)) || self.is_stopping() {
                continue;
            }
            let volumes: Vec<VolumeRecord> = self.memory().state.volumes_of(&pool.name).cloned().collect();
            if self.data().is_silent(&pool.ssd, SILENCE) || self.check_ssd_is_there(&pool, &volumes).is_err() {
                lost.missed.insert(pool.name);
                continue;
            }
            let mut was_missed = lost.missed.remove(&pool.name);
            self.set_live_pool(&pool.name, |live| was_missed |= std::mem::take(&mut live.missed));
            if !self.may_start_by_itself(&pool.name) || !was_missed && !lost.may_try(&pool.name, Instant::now()) {
                continue;
            }
            // A pool that goes on without its SSD is not stopped for one that is read-only.
            if self.data().has_shards(&pool.name)
                && let Err(error) = self.look_whether_ssd_takes_writes(&pool)
            {
                tracing::debug!("the SSD of pool {} takes no writes: {error}", pool.name);
                continue;
            }
            match self.pool_start(&pool.name) {
                Ok(summary) => self.events().note(Severity::Info, &pool.name, format!("its SSD is back: {summary}")),
                // The start that missed the SSD, say, has not ended yet: it is still missed.
                Err(error) if error.kind() == Kind::Busy => {
                    lost.missed.insert(pool.name);
                }
                Err(error) => {
                    let message = format!("its SSD is back, but the pool does not start by itself: {}", error.reason());
                    self.events().note(Severity::Warning, &pool.name, message);
                }
            }
        }
    }
}

impl Manager {
    /// Claimed meanwhile: nobody formats it, or puts another pool there.
    fn look_whether_ssd_takes_writes(&self, pool: &PoolRecord) -> Result<(), ControlError> {
        let _claim = self.claim(&[(Named::Pool, &pool.name), (Named::SsdOfPool, &pool.name)], "a look at its SSD")?;
        self.check_ssd_takes_writes(pool)
    }

    /// Refuses an SSD that is smaller than it was, or takes no writes. It is claimed.
    fn check_ssd_takes_writes(&self, pool: &PoolRecord) -> Result<(), ControlError> {
        let found = self.data().find_ssd(pool.uuid);
        let path = found.unwrap_or_else(|| pool.ssd.clone());
        self.data().ssd_takes_writes(&path, pool)
    }

    /// Whether nobody would see more than a pause. A pool without shards may be started anyway:
    /// `pool_start` refuses it while it is in use.
    fn may_start_by_itself(&self, pool: &str) -> bool {
        if !self.data().has_shards(pool) {
            return true;
        }
        let volumes: Vec<VolumeRecord> = self.memory().state.volumes_of(pool).cloned().collect();
        volumes.iter().chain(&self.disk_volumes(pool)).all(|volume| self.all_can_wait(volume))
    }
}

/// What is remembered of lost SSDs from look to look.
#[derive(Debug, Default)]
pub(super) struct LostSsds {
    /// Pools whose SSD was not there at the last look.
    missed: BTreeSet<String>,
    /// Pools that have lost their SSD under way.
    under_way: BTreeMap<String, Tries>,
}

/// Tries to start a pool.
#[derive(Clone, Copy, Debug, Default)]
struct Tries {
    last: Option<Instant>,
    pause: Duration,
}

/// Between a pool's first two tries. Each further pause is twice as long.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// Longest pause between tries; and how long after the last try the next loss is a new one.
const PAUSE_MAX: Duration = Duration::from_secs(600);

impl LostSsds {
    /// Whether to try a pool that has lost its SSD under way. Then that counts as a try.
    fn may_try(&mut self, pool: &str, now: Instant) -> bool {
        let Some(tries) = self.under_way.get_mut(pool) else { return false };
        match tries.last {
            Some(last) if now < last + tries.pause => return false,
            Some(last) if now < last + tries.pause + PAUSE_MAX => tries.pause = (tries.pause * 2).min(PAUSE_MAX),
            _ => tries.pause = PAUSE_MIN,
        }
        tries.last = Some(now);
        true
    }
}

/// The SSD of the pool is there and does not answer.
pub(super) fn ssd_is_silent(pool: &PoolRecord) -> ControlError {
    let name = &pool.name;
    let remedy = format!(
        "check it: the pool starts by itself when it answers; or put the pool on another SSD with `hearth pool replace {name} --ssd PATH`"
    );
    super::pools::device(&pool.ssd, "the SSD of this pool does not answer".into(), remedy, Kind::NotFound)
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
