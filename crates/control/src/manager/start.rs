//! Bringing everything back after a start, clean or not.
//!
//! 1. Look at every backing device, change nothing, and judge (C6). One that does not answer is told, and holds up its own volume only.
//! 2. One save: those whose cache must not be believed and that had nothing dirty get a new number in the log: what it holds
//!    under the old one is void from then on, whatever a crash left there.
//! 3. Pools, each on a thread of its own: finish or undo what was half done, and recover. Nobody waits for one that waits for its SSD.
//! 4. One save for each pool that runs, before the first I/O: volumes that will be served lose `stopped_clean` (their stamps mean
//!    nothing any more) and gain `may_have_dirty` if they are write-back. A pool that does not come up leaves them clean.
//! 5. Attach volumes, export them.
//!
//! What cannot start is shown as failed with reason and remedy; the others work. A volume without dirty data whose pool
//! cannot start runs on its backing device alone: `cache_stale` is saved before, so the cache is emptied when it comes back.

use super::claims::Claim;
use super::guard::guarded;
use super::starting::{SSD_WAITED_FOR, judged_silent};
use super::verdict::{self, Verdict};
use super::{LivePool, LiveVolume, Manager, Trouble};
use api::error::{ControlError, Kind};
use api::names::Named;
use api::{Health, Severity};
use datapath::mapped::Leads;
use records::recognise;
use records::state::{BackingIdentity, PoolPhase, PoolRecord, State, VolumePhase, VolumeRecord};
use std::collections::BTreeMap;
use std::sync::Arc;
use types::Mode;

/// What a start came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Started {
    /// Pools that run.
    pub pools: usize,
    /// Volumes that are served.
    pub volumes: usize,
    /// Pools and volumes that are not, or not with their cache.
    pub troubled: usize,
}

/// By volume: the verdict, what the device is like now, and whether anything may have been dirty before this start.
pub(super) type Judged = BTreeMap<String, (Verdict, BackingIdentity, bool)>;

impl Manager {
    /// Brings back all pools and volumes. Called once.
    ///
    /// # Errors
    /// Only if the state cannot be saved; trouble with single devices is noted with them.
    pub fn start(&self) -> Result<Started, ControlError> {
        let state = self.memory().state.clone();
        let mut names: Vec<_> = state.pools.iter().map(|p| (Named::Pool, p.name.as_str())).collect();
        names.extend(state.volumes.iter().map(|v| (Named::Volume, v.name.as_str())));
        names.extend(state.disks.iter().map(|disk| (Named::Volume, disk.name.as_str())));
        let mut claim = self.claim(&names, "the daemon's start")?;
        self.settle_attachments();
        let state = self.memory().state.clone();
        // At once, and of all volumes: some take their time, or do not start at all.
        state.exported().iter().for_each(|volume| self.data().not_served(volume));
        let expected: Vec<VolumeRecord> = state.exported().into_iter().filter(|volume| !volume.rests()).collect();
        self.data().expect_exports(&expected);
        let wanted: Vec<VolumeRecord> = state.volumes.iter().filter(|v| !v.rests()).cloned().collect();
        let (answering, silent) = self.asked_at_start(wanted);
        if self.is_stopping() {
            return Ok(self.count());
        }
        let mut judged = self.judge_all(&answering);
        judged.extend(silent.iter().map(|volume| (volume.name.clone(), judged_silent(volume))));
        self.save_before_first_io(&judged)?;
        let pools = self.memory().state.pools.clone();
        // An SSD that was lost may have lost what it had not flushed, and how much was acknowledged is known to
        // the daemon before only. Whoever waits since then must not take the next flush for a success.
        for pool in pools.iter().filter(|pool| pool.degraded.is_some()) {
            state.volumes_of(&pool.name).filter(|volume| volume.may_have_dirty).for_each(|volume| self.data().end_kept(volume));
        }
        let judged = Arc::new(judged);
        self.start_pools(&pools, &judged, &mut claim);
        self.go_on_with_attachments(&judged);
        drop(claim);
        self.finish_detachments("");
        self.remember_preloads();
        Ok(self.count())
    }

    /// Starts pools side by side, until all have started but those that wait for their SSDs: these go on by themselves. Each can be managed as
    /// soon as it is done.
    fn start_pools(&self, pools: &[PoolRecord], judged: &Arc<Judged>, claim: &mut Claim) {
        pools.iter().for_each(|pool| self.shared.starting.begins(&pool.name));
        for pool in pools {
            let members: Vec<String> = {
                let memory = self.memory();
                let volumes = memory.state.volumes_of(&pool.name).map(|volume| volume.name.clone());
                volumes.chain(memory.state.disks_of(&pool.name).into_iter().map(|disk| disk.name)).collect()
            };
            let names = members.iter().map(|member| (Named::Volume, member.as_str())).chain([(Named::Pool, pool.name.as_str())]);
            let own = claim.split(&names.collect::<Vec<_>>());
            let (manager, judged, name, pool) = (self.clone(), judged.clone(), pool.name.clone(), pool.clone());
            let start = move || {
                let _ended = manager.shared.starting.ends(&pool.name);
                manager.wait_for_ssd(&pool);
                if manager.is_stopping() {
                    return;
                }
                manager.start_one_pool(&pool, &judged);
                drop(own);
                manager.finish_detachments(&pool.name);
                manager.finish_mode_changes(&pool.name);
            };
            if let Err(error) = std::thread::Builder::new().name("start".into()).spawn(start) {
                drop(self.shared.starting.ends(&name));
                let error = ControlError::DataPath(format!("no thread can be started ({error})"), "raise the thread limit".into());
                self.set_live_pool(&name, |live| (live.health, live.trouble) = (Health::Failed, Some(Trouble::from(&error))));
            }
        }
        self.shared.starting.wait();
    }

    pub(super) fn save_before_first_io(&self, judged: &Judged) -> Result<(), ControlError> {
        self.change(|state| {
            let State { pools, volumes, .. } = state;
            for volume in volumes.iter_mut().filter(|v| v.phase == VolumePhase::Ready) {
                let Some((verdict, now, _)) = judged.get(&volume.name) else { continue };
                match verdict {
                    Verdict::Refuse(..) => continue,
                    Verdict::Same => {}
                    Verdict::Grown => volume.size_bytes = volume.bytes_of(now.size_bytes),
                    Verdict::DropClean(_) => {
                        volume.cache_stale = true;
                        // It may have grown, too: what is served is on record.
                        volume.size_bytes = volume.size_bytes.max(volume.bytes_of(now.size_bytes));
                    }
                }
                // A trial has no pool.
                let pool = pools.iter_mut().find(|p| p.name == volume.pool);
                if let Some(pool) = pool.filter(|_| volume.cache_stale && !volume.may_have_dirty) {
                    renumber(volume, pool);
                    // Nothing is cached or dirty, and its device is as noted here, until it is used.
                    volume.stopped_clean = true;
                }
                volume.identity = now.clone();
            }
        })?;
        // Whoever still waits for a volume of before must not go on with what it knew of that.
        let changed = |name: &&String| matches!(judged.get(*name), Some((Verdict::DropClean(_), ..)));
        for name in judged.keys().filter(changed) {
            if let Ok(volume) = self.volume_record(name) {
                self.data().end_kept(&volume);
            }
        }
        Ok(())
    }

    /// The same; where it fails, volumes of which something had to be recorded are not served: what is cached of them is not to be believed, or
    /// they are larger than is known.
    pub(super) fn save_or_refuse(&self, judged: &mut Judged) -> Result<(), ControlError> {
        let saved = self.save_before_first_io(judged);
        if let Err(error) = &saved {
            let changed = judged.values_mut().map(|(verdict, ..)| verdict);
            for verdict in changed.filter(|verdict| matches!(verdict, Verdict::DropClean(_) | Verdict::Grown)) {
                *verdict = Verdict::Refuse(format!("what its backing device is like cannot be recorded: {error}"), error.remedy());
            }
        }
        saved
    }

    /// Volumes that were judged good are about to be used: what was known of them at rest is so no more.
    pub(super) fn save_that_they_are_used(&self, judged: &Judged) -> Result<(), ControlError> {
        let is_good = |volume: &VolumeRecord| {
            !volume.rests() && judged.get(&volume.name).is_some_and(|(verdict, ..)| !matches!(verdict, Verdict::Refuse(..)))
        };
        self.change(|state| {
            let State { pools, volumes, .. } = state;
            for volume in volumes.iter_mut().filter(|v| v.phase == VolumePhase::Ready && is_good(v)) {
                volume.stopped_clean = false;
                // Without its SSD nothing becomes dirty.
                let may_become_dirty = !pools.iter().any(|p| p.name == volume.pool && p.degraded.is_some());
                volume.may_have_dirty |= may_become_dirty && volume.options.mode == Mode::WriteBack;
            }
        })
    }

    /// The same of the volumes of one pool; gives all of them as they are then.
    fn save_that_the_pool_is_used(&self, pool: &str, judged: &Judged) -> Result<Vec<VolumeRecord>, ControlError> {
        let names: Vec<String> = self.memory().state.volumes_of(pool).map(|v| v.name.clone()).collect();
        let of_pool = judged.iter().filter(|(name, _)| names.contains(name)).map(|(name, judged)| (name.clone(), judged.clone())).collect();
        self.save_that_they_are_used(&of_pool)?;
        Ok(self.memory().state.volumes_of(pool).cloned().collect())
    }

    pub(super) fn start_one_pool(&self, pool: &PoolRecord, judged: &Judged) {
        let start = || {
            self.start_pool_and_volumes(pool, judged);
            Ok(())
        };
        if let Err(error) = guarded("the start of the pool", start) {
            self.fail_pool(pool, &error);
        }
    }

    fn start_pool_and_volumes(&self, pool: &PoolRecord, judged: &Judged) {
        let volumes: Vec<VolumeRecord> = self.memory().state.volumes_of(&pool.name).cloned().collect();
        match self.bring_up_pool(pool, &volumes) {
            Ok(true) => {
                match self.save_that_the_pool_is_used(&pool.name, judged) {
                    Ok(volumes) => volumes.iter().for_each(|v| self.start_one_volume(v, judged)),
                    Err(error) => volumes.iter().for_each(|volume| match volume.rests() {
                        true => self.show_stopped(volume),
                        false => {
                            self.fail_volume(volume, &error);
                            // The state file may be writable soon.
                            self.set_live_volume(&volume.name, |live| live.waits = true);
                        }
                    }),
                }
                // Nothing that was to be saved is of them.
                self.serve_disks(&pool.name);
            }
            Ok(false) => {}
            Err(error) => {
                let health = if pool.degraded.is_some() { Health::Degraded } else { Health::Failed };
                self.events().note(Severity::Error, &pool.name, format!("the pool does not start: {}", error.reason()));
                // Early in a boot it may be there a moment later.
                let missed = error.kind() == Kind::NotFound;
                let trouble = Some(Trouble::from(&error));
                let is_older = matches!(error, ControlError::OlderState { .. });
                self.set_live_pool(&pool.name, |live| {
                    (live.health, live.trouble, live.missed, live.state_is_older) = (health, trouble, missed, is_older);
                });
                self.fail_disks(pool, &error);
                for volume in &volumes {
                    let result = match volume.rests() {
                        true => {
                            self.show_stopped(volume);
                            Ok(())
                        }
                        false => self.try_without_pool(volume, judged, &error),
                    };
                    if let Err(error) = result {
                        self.fail_volume(volume, &error);
                    }
                }
            }
        }
    }

    /// Whether the pool runs now; not if it was on its way in or out.
    fn bring_up_pool(&self, pool: &PoolRecord, volumes: &[VolumeRecord]) -> Result<bool, ControlError> {
        check_is_believed(pool)?;
        if pool.phase.is_kept() {
            self.check_ssd_not_on_own(pool)?;
        }
        match pool.phase {
            PoolPhase::Destroying => self.finish_destroy(pool, volumes).map(|()| false),
            PoolPhase::Reformatting { former } => self.run_pool(&self.reformat(pool, former)?, volumes).map(|()| true),
            PoolPhase::Resizing => {
                let found = self.with_its_ssd(pool)?;
                self.data().resize(&found)?;
                self.data().write_disks(&found, &self.memory().state.disks_of(&pool.name))?;
                self.run_pool(&found, volumes).map(|()| true)
            }
            PoolPhase::Ready => {
                let found = self.with_its_ssd(pool)?;
                let pool = match self.with_blank_ssd(&found, volumes)? {
                    Some(anew) => self.reformat(&anew, pool.uuid)?,
                    None => found,
                };
                self.run_pool(&pool, volumes).map(|()| true)
            }
            PoolPhase::Creating => match self.run_pool(pool, volumes) {
                Ok(()) => Ok(true),
                Err(error) => {
                    self.forget_half_made(pool)?;
                    self.events().note(Severity::Warning, &pool.name, format!("its creation was interrupted and is undone: {error}"));
                    Ok(false)
                }
            },
        }
    }

    /// The pool as it is known, with its SSD where that is now: another disk may have the name it had.
    fn with_its_ssd(&self, pool: &PoolRecord) -> Result<PoolRecord, ControlError> {
        if self.data().is_silent(&pool.ssd, SSD_WAITED_FOR) {
            return Err(super::pool_start::ssd_is_silent(pool));
        }
        let is_there = self.data().examine_ssd(&pool.ssd).is_ok_and(|facts| facts.pool == Some(pool.uuid) || facts.in_use.is_some());
        if !is_there {
            let message = format!("its SSD is not at {}: it is looked for among all disks", pool.ssd);
            self.events().note(Severity::Warning, &pool.name, message);
        }
        let Some(ssd) = (!is_there).then(|| self.data().find_ssd(pool.uuid)).flatten() else {
            return match self.data().examine_ssd(&pool.ssd) {
                Err(ControlError::Unknown { .. }) => Err(super::pool_start::ssd_is_missing(pool)),
                _ => Ok(pool.clone()),
            };
        };
        // Recorded when it has started there: an old copy must not keep the right one out.
        let message = format!("its SSD is {ssd} now (it was {}): recognised by the pool's UUID", pool.ssd);
        self.events().note(Severity::Info, &pool.name, message);
        Ok(PoolRecord { ssd, ..pool.clone() })
    }

    fn forget_half_made(&self, pool: &PoolRecord) -> Result<(), ControlError> {
        self.undo_ssd(pool)?;
        self.change(|state| state.pools.retain(|p| p.name != pool.name))?;
        self.memory().pools.remove(&pool.name);
        Ok(())
    }

    fn start_one_volume(&self, volume: &VolumeRecord, judged: &Judged) {
        let result = match volume.rests() {
            true => {
                self.show_stopped(volume);
                Ok(())
            }
            false => self.try_in_pool(volume, judged),
        };
        if let Err(error) = result {
            self.fail_volume(volume, &error);
        }
    }

    /// Starts a volume whose pool runs.
    pub(super) fn try_in_pool(&self, volume: &VolumeRecord, judged: &Judged) -> Result<(), ControlError> {
        match (volume.phase, judged.get(&volume.name)) {
            (VolumePhase::Dropping, _) => self.finish_remove(volume),
            (_, Some((Verdict::Refuse(problem, remedy), ..))) => Err(self.refused_by_its_device(volume, problem, remedy)),
            // What the SSD may still call dirty is old.
            (VolumePhase::Removing, _) if !volume.may_have_dirty => self.finish_remove(volume),
            (VolumePhase::Removing, _) => self.resume_remove(volume),
            (VolumePhase::Ready, verdict) => {
                if let Some((Verdict::DropClean(why), ..)) = verdict {
                    self.events().note(Severity::Warning, &volume.name, format!("{why}: its cache is dropped"));
                }
                self.bring_up_volume(volume).or_else(|error| self.serve_who_waits(volume, error))
            }
        }
    }

    /// The device is not as it must be. When it is, the volume starts by itself.
    fn refused_by_its_device(&self, volume: &VolumeRecord, problem: &str, remedy: &str) -> ControlError {
        self.set_live_volume(&volume.name, |live| live.waits = true);
        refused(volume, problem, remedy)
    }

    /// Attaches, proves the cache against the backing device where it must be, exports.
    pub(super) fn bring_up_volume(&self, volume: &VolumeRecord) -> Result<(), ControlError> {
        let damaged = self.memory().pools.get(&volume.pool).is_some_and(|p| p.damaged.contains(&volume.id));
        if damaged && volume.may_have_dirty {
            let remedy = format!(
                "inspect it with `hearth pool check`, restore it, and restart the daemon; or discard the dirty data with \
                 `hearth volume remove {} --drop-dirty`",
                volume.name
            );
            return Err(refused(volume, "the SSD of its pool is damaged where it may hold dirty data of this volume", &remedy));
        }
        let volume = if damaged {
            // Its backing device has everything. What the damaged log still calls dirty came home long ago, and may be old.
            let told = "the SSD of its pool is damaged: the cache of the volume is dropped; its backing device is complete";
            self.events().note(Severity::Warning, &volume.name, told);
            self.begin_anew(volume)?
        } else {
            self.prove_cache(volume)?
        };
        let volume = self.forget_past(&volume)?;
        self.attach(&volume)?;
        let offered = self.drop_stale(&volume).and_then(|()| self.export_what_can_be(&volume)).and_then(|()| self.lead_here(&volume, true));
        if let Err(error) = offered {
            // What its device leads to is never taken away.
            if self.step_back_quietly(&volume) {
                self.detach_quietly(&volume);
            }
            return Err(error);
        }
        self.set_live_volume(&volume.name, |live| (live.health, live.trouble) = (Health::Running, None));
        Ok(())
    }

    pub(super) fn show_stopped(&self, volume: &VolumeRecord) {
        self.data().not_served(volume);
        self.set_live_volume(&volume.name, |live| *live = LiveVolume::new(Health::Stopped));
    }

    fn attach(&self, volume: &VolumeRecord) -> Result<(), ControlError> {
        // What was good when it was judged may be gone again.
        let attached = self.attach_to_pool(&self.as_attached(volume));
        self.set_live_volume(&volume.name, |live| (live.attached, live.waits) = (attached.is_ok(), attached.is_err()));
        attached?;
        Ok(())
    }

    /// The device of an attached volume leads past hearth; then the volume starts again by itself, with a fresh number. `false`: it may lead
    /// here.
    fn step_back_quietly(&self, volume: &VolumeRecord) -> bool {
        if volume.attachment.is_none() {
            return true;
        }
        let stepped = self.step_back(volume);
        if let Err(also) = &stepped {
            self.events().note(Severity::Error, &volume.name, format!("its device does not lead past hearth: {also}"));
        } else if let Err(also) = self.volume_record(&volume.name).and_then(|volume| self.was_led_past(&volume)) {
            self.events().note(Severity::Warning, &volume.name, also.to_string());
        }
        self.set_live_volume(&volume.name, |live| live.waits = true);
        stepped.is_ok()
    }

    fn detach_quietly(&self, volume: &VolumeRecord) {
        if !self.volume_attached(&volume.name) {
            return;
        }
        if let Err(also) = self.let_go(volume) {
            self.events().note(Severity::Warning, &volume.name, format!("the volume did not detach: {also}"));
        }
    }

    /// Compares a sample of the clean cache with the backing device, and forgets the cache if it differs. Gives the volume as it
    /// is then: perhaps under a new number.
    fn prove_cache(&self, volume: &VolumeRecord) -> Result<VolumeRecord, ControlError> {
        if volume.cache_stale {
            return Ok(volume.clone());
        }
        let sample = self.data().sample(volume)?;
        if sample.different == 0 {
            return Ok(volume.clone());
        }
        let (different, compared) = (sample.different, sample.compared);
        let problem = format!(
            "its backing device {} was written by others or rolled back: {different} of {compared} blocks compared differ from what is cached",
            volume.backing
        );
        if recognise::is_nameless(&volume.identity) {
            let problem = format!("{problem}, and since the device has no identity, it may be another one");
            return Err(refused(volume, &problem, &verdict::wrong_remedy(volume)));
        }
        let found = |p: &LivePool| p.dirty_bytes.get(&volume.id).is_some_and(|bytes| *bytes > 0);
        if self.memory().pools.get(&volume.pool).is_some_and(found) {
            return Err(refused(volume, &problem, &verdict::changed_remedy(volume)));
        }
        self.events().note(Severity::Warning, &volume.name, format!("{problem}: its cache is dropped"));
        self.data().end_kept(volume);
        self.begin_anew(volume)
    }

    /// Gives the volume another number in the log, under which nothing is cached. All that was is forgotten.
    fn begin_anew(&self, volume: &VolumeRecord) -> Result<VolumeRecord, ControlError> {
        let fresh = self.change(|state| {
            let State { pools, volumes, .. } = state;
            let volume = volumes.iter_mut().find(|v| v.name == volume.name)?;
            renumber(volume, pools.iter_mut().find(|p| p.name == volume.pool)?);
            Some(volume.clone())
        })?;
        self.data().forget(volume)?;
        fresh.ok_or(ControlError::Unknown { named: "volume", name: volume.name.clone() })
    }

    /// What was written past the SSD while it was lost is void there, before anything of the volume goes home.
    fn forget_past(&self, volume: &VolumeRecord) -> Result<VolumeRecord, ControlError> {
        if volume.past.is_empty() {
            return Ok(volume.clone());
        }
        self.data().void_past(volume)?;
        self.change(|state| {
            if let Some(volume) = state.volume_mut(&volume.name) {
                volume.past.clear();
            }
        })?;
        let told =
            "what was written past the SSD while it was lost is served as it was written; all else that was dirty is served from the SSD";
        self.events().note(Severity::Info, &volume.name, told);
        Ok(VolumeRecord { past: Vec::new(), ..volume.clone() })
    }

    /// The person has accepted the backing device as it is: clean cache goes, dirty data is kept.
    fn drop_stale(&self, volume: &VolumeRecord) -> Result<(), ControlError> {
        if !volume.cache_stale {
            return Ok(());
        }
        self.data().drop_clean(volume)?;
        self.change(|state| {
            // It may have lost its SSD meanwhile: then that is not what was dropped.
            let is_lost = state.pool(&volume.pool).is_some_and(|pool| pool.degraded.is_some());
            if let Some(volume) = state.volume_mut(&volume.name).filter(|_| !is_lost) {
                volume.cache_stale = false;
            }
        })
    }

    /// The pool is not there: serve the backing device alone if that is safe.
    pub(super) fn try_without_pool(&self, volume: &VolumeRecord, judged: &Judged, pool_error: &ControlError) -> Result<(), ControlError> {
        if self.is_older_than_ssd(&volume.pool) {
            // What is not known here may be dirty there.
            return Err(refused(volume, &format!("its pool is not running ({})", pool_error.reason()), &pool_error.remedy()));
        }
        match (volume.phase, judged.get(&volume.name)) {
            (VolumePhase::Dropping, _) => self.finish_remove(volume),
            (_, Some((Verdict::Refuse(problem, remedy), ..))) => Err(self.refused_by_its_device(volume, problem, remedy)),
            (VolumePhase::Removing, _) if !volume.may_have_dirty => self.finish_remove(volume),
            (_, Some((_, _, true))) => {
                let why = pool_error.reason();
                let problem = format!("its pool is not running ({why}), and the SSD may hold newer data than the backing device");
                let (name, pool) = (&volume.name, &volume.pool);
                let bring_back = match pool_error.remedy() {
                    none if none.is_empty() => format!("start the pool with `hearth pool start {pool}`"),
                    remedy => remedy,
                };
                let or_replace = format!(" or `hearth pool replace {pool} --ssd PATH --drop-dirty`");
                let or_replace = if bring_back.contains("hearth pool replace") { "" } else { &or_replace };
                let remedy = format!("{bring_back}; or discard the dirty data with `hearth volume remove {name} --drop-dirty`{or_replace}");
                Err(refused(volume, &problem, &remedy))
            }
            _ => self.serve_bare(volume, pool_error),
        }
    }

    /// Whoever uses the device of an attached volume waits if that leads here and nobody serves it. The disk has all that was ever written, so
    /// they are served from it.
    fn serve_who_waits(&self, volume: &VolumeRecord, error: ControlError) -> Result<(), ControlError> {
        let may_be_served = volume.attachment.is_some() && !volume.may_have_dirty && !self.volume_attached(&volume.name);
        if !may_be_served || !matches!(self.data().mapped().leads(volume), Ok(Leads::Here)) {
            return Err(error);
        }
        let remedy = format!("then detach it with `hearth detach {0}`, and attach it again", volume.name);
        let remedy = if error.remedy().is_empty() { remedy } else { format!("{}; {remedy}", error.remedy()) };
        let why = ControlError::NotRunning { named: "volume", name: volume.name.clone(), reason: error.reason(), remedy };
        let served = self.serve_bare(volume, &why);
        if served.is_ok() {
            let message = format!("it cannot be served with its cache, and is served without: {error}");
            self.events().note(Severity::Warning, &volume.name, message);
        }
        served.map_err(|_| error)
    }

    fn serve_bare(&self, volume: &VolumeRecord, pool_error: &ControlError) -> Result<(), ControlError> {
        self.change(|state| {
            if let Some(volume) = state.volume_mut(&volume.name) {
                // Nothing was dirty, and without its cache nothing becomes so.
                (volume.cache_stale, volume.may_have_dirty, volume.stopped_clean) = (true, false, false);
            }
        })?;
        let attached = self.data().attach_bare(volume);
        self.set_live_volume(&volume.name, |live| (live.attached, live.waits) = (attached.is_ok(), attached.is_err()));
        attached?;
        if let Err(error) = self.export_what_can_be(volume).and_then(|()| self.lead_here(volume, false)) {
            self.step_back_quietly(volume);
            return Err(error);
        }
        self.set_live_volume(&volume.name, |live| {
            live.health = Health::Degraded;
            let problem = format!("it runs on its backing device alone: {}", pool_error.reason());
            live.trouble = Some(Trouble { problem, remedy: pool_error.remedy() });
        });
        Ok(())
    }

    /// A removal was interrupted after its last destage: make sure that nothing is dirty, then finish.
    fn resume_remove(&self, volume: &VolumeRecord) -> Result<(), ControlError> {
        let volume = &self.forget_past(volume)?;
        self.attach(volume)?;
        super::work::wait_for(self.data().destage(volume)?)?;
        self.finish_remove(volume)
    }

    /// Volumes of a pool that left write-back but still have dirty data.
    fn finish_mode_changes(&self, pool: &str) {
        let volumes: Vec<_> = {
            let memory = self.memory();
            let running = |name: &str| memory.volumes.get(name).is_some_and(|v| v.health == Health::Running);
            let unfinished =
                |v: &&VolumeRecord| v.pool == pool && v.may_have_dirty && v.options.mode != Mode::WriteBack && running(&v.name);
            memory.state.volumes.iter().filter(unfinished).cloned().collect()
        };
        volumes.into_iter().for_each(|v| self.destage_leftovers(v));
    }

    fn count(&self) -> Started {
        let memory = self.memory();
        let pools = memory.pools.values().filter(|p| p.health == Health::Running).count();
        let volumes = memory.volumes.values().filter(|v| v.health == Health::Running).count();
        Started { pools, volumes, troubled: memory.pools.len() - pools + memory.volumes.len() - volumes }
    }

    /// Takes the backing device as it is now for the right one, drops what was cached of it, and brings the volume up. Tells what was done.
    pub(super) fn accept_backing(&self, name: &str) -> Result<String, ControlError> {
        let volume = self.volume_record(name)?;
        if self.volume_attached(name) {
            let dropped = self.drop_cache(&volume)?;
            return Ok(format!("the volume already runs with {}; {dropped}", volume.backing));
        }
        self.running_pool(&volume.pool)?;
        let identity = self.check_backing(&volume.backing, &volume.options, Some(name))?.identity;
        if volume.may_have_dirty && identity.size_bytes < volume.size_bytes {
            return Err(super::pools::device(
                &volume.backing,
                "it is smaller than the volume, whose dirty data may lie beyond its end".into(),
                format!("connect a device of the right size, or discard the dirty data with `hearth volume remove {name} --drop-dirty`"),
                Kind::Conflict,
            ));
        }
        let before = volume;
        let volume = self.change(|state| {
            let State { pools, volumes, .. } = state;
            let volume = volumes.iter_mut().find(|v| v.name == name)?;
            if volume.may_have_dirty {
                volume.cache_stale = true;
            } else {
                renumber(volume, pools.iter_mut().find(|p| p.name == volume.pool)?);
            }
            volume.size_bytes = volume.bytes_of(identity.size_bytes);
            (volume.identity, volume.stopped_clean) = (identity, false);
            // What was noted is of the device of before.
            (volume.noted, volume.stopped) = (Vec::new(), false);
            volume.may_have_dirty |= volume.options.mode == Mode::WriteBack;
            Some(volume.clone())
        })?;
        let volume = volume.ok_or(ControlError::Unknown { named: "volume", name: name.into() })?;
        if volume.id != before.id {
            self.data().forget(&before)?;
        }
        let had_dirty = before.may_have_dirty;
        self.data().end_kept(&volume);
        self.bring_up_volume(&volume)?;
        let kept = if had_dirty { "; its dirty data is kept and will overwrite the data on the device" } else { "" };
        Ok(format!("{} is accepted as the backing device; its clean cache is dropped{kept}", volume.backing))
    }
}

/// Refuses a pool whose SSD failed in a way that lets nothing on it be believed, as versions recorded it that could not tell.
pub(super) fn check_is_believed(pool: &PoolRecord) -> Result<(), ControlError> {
    let Some(degraded) = pool.degraded.as_ref().filter(|degraded| !degraded.dirty_is_good) else { return Ok(()) };
    Err(ControlError::NotRunning {
        named: "pool",
        name: pool.name.clone(),
        reason: format!("its SSD {} failed earlier ({})", pool.ssd, degraded.reason),
        remedy: format!("move it to a good SSD with `hearth pool replace {} --ssd PATH`", pool.name),
    })
}

/// Gives the volume a number nothing was ever logged under: its cache is empty from the next save on.
fn renumber(volume: &mut VolumeRecord, pool: &mut PoolRecord) {
    volume.id = pool.next_volume_id;
    pool.next_volume_id += 1;
    volume.cache_stale = false;
    volume.past.clear();
}

fn refused(volume: &VolumeRecord, problem: &str, remedy: &str) -> ControlError {
    ControlError::NotRunning { named: "volume", name: volume.name.clone(), reason: problem.into(), remedy: remedy.into() }
}
