//! The work of the jobs: destage, leave write-back, remove.

use super::claims::Claim;
use super::{Manager, Trouble};
use api::error::ControlError;
use api::stats::VolumeStats;
use api::{Health, JobView, Severity};
use datapath::{DeviceUse, Pending};
use records::jobs::{Job, Work};
use records::state::{VolumePhase, VolumeRecord};
use std::time::{Duration, Instant};
use types::Mode;
use uuid::Uuid;

/// How often a job looks at its progress and its flag.
pub(super) const LOOK: Duration = Duration::from_millis(if cfg!(test) { 1 } else { 50 });
/// How long users of a volume have to close it when what they waited for has failed: a process has to come to its end.
const CLOSES_WITHIN: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 5 });

/// How far dirty data is on its way home. Done is what was destaged since the command was given, never less than before; the rest is what is dirty now.
/// Clients that go on writing add to the rest, and some of what they wrote may be dirty when the command has ended.
#[derive(Default)]
struct Homecoming {
    /// Done by an earlier command of the same job.
    earlier_bytes: u64,
    done_bytes: u64,
    dirty_bytes: u64,
}

impl Homecoming {
    /// Bytes done, and in all, by the counters before the command and those of now.
    fn look(&mut self, before: &VolumeStats, now: &VolumeStats) -> (u64, u64) {
        self.done_bytes = now.destaged_bytes.saturating_sub(before.destaged_bytes).max(self.done_bytes);
        self.dirty_bytes = now.dirty_bytes.unwrap_or(self.dirty_bytes);
        let done_bytes = self.earlier_bytes + self.done_bytes;
        (done_bytes, done_bytes + self.dirty_bytes)
    }
}

impl Manager {
    /// Runs `work` as a job on a thread of its own; the claim is given back before the job is seen as ended.
    pub(super) fn run_job(
        &self,
        asked: Work,
        object: (&str, Uuid),
        claim: Claim,
        work: impl FnOnce(&Job) -> Result<(), ControlError> + Send + 'static,
    ) -> Result<JobView, ControlError> {
        let kind = asked.kind();
        let job = self.shared.jobs.begin(asked, object.0, object.1);
        self.events().note(Severity::Info, object.0, format!("{} begun (job {})", kind.word(), job.id()));
        let (watched, manager, object) = (job.clone(), self.clone(), object.0.to_string());
        let spawned = std::thread::Builder::new().name(format!("job-{}", job.id())).spawn(move || {
            // A fault in hearth ends this job, and nothing waits for it for ever.
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&watched)));
            let result = done.unwrap_or_else(|_| {
                let problem = format!("the {} stopped at a fault in hearth, which the log of the daemon tells", kind.word());
                Err(ControlError::Job(problem, "report it with that log".into()))
            });
            drop(claim);
            let severity = if result.is_ok() { Severity::Info } else { Severity::Warning };
            let outcome = result.as_ref().map_or_else(ToString::to_string, |()| "done".into());
            manager.events().note(severity, &object, format!("{}: {outcome} (job {})", kind.word(), watched.id()));
            watched.finish(result);
        });
        if let Err(error) = spawned {
            let error = ControlError::DataPath(format!("no thread can be started ({error})"), "raise the thread limit".into());
            let refusal = ControlError::DataPath(error.to_string(), error.remedy());
            job.finish(Err(error));
            return Err(refusal);
        }
        Ok(job.view())
    }

    /// Destages all dirty data.
    pub(super) fn destage_all(&self, volume: &VolumeRecord, job: &Job) -> Result<(), ControlError> {
        let before = self.data().volume_stats(&volume.name);
        let pending = self.data().destage(volume)?;
        self.watch_dirty(volume, &before, pending, job)
    }

    /// Waits for a command that destages, and reports how far it is. `before` are the volume's counters before the command was given.
    fn watch_dirty(
        &self,
        volume: &VolumeRecord,
        before: &VolumeStats,
        mut pending: Box<dyn Pending>,
        job: &Job,
    ) -> Result<(), ControlError> {
        // A removal destages twice.
        let mut reached = Homecoming { earlier_bytes: job.view().done_bytes, ..Homecoming::default() };
        let mut cancelled = false;
        loop {
            let ended = pending.poll();
            let (done_bytes, total_bytes) = reached.look(before, &self.data().volume_stats(&volume.name));
            job.advance(done_bytes, total_bytes);
            match ended {
                Some(Ok(())) => {
                    if total_bytes == 0 {
                        // Nothing is left and nothing had to go home: what was dirty was discarded meanwhile.
                        let known_bytes = job.view().total_bytes;
                        job.advance(known_bytes, known_bytes);
                    }
                    return Ok(());
                }
                Some(Err(_)) if cancelled => return Err(ControlError::Stopped),
                Some(Err(error)) => return Err(self.with_reason(&volume.name, error)),
                None => {}
            }
            if job.cancel_wanted() && !cancelled {
                pending.cancel();
                cancelled = true;
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Why dirty data does not go home, where a device of the volume has said it.
    pub(super) fn with_reason(&self, name: &str, error: ControlError) -> ControlError {
        let refused = self.data().figures().volumes.remove(name).and_then(|figures| figures.refused);
        match (error, refused.filter(|refused| refused.asked != "read")) {
            (ControlError::DataPath(..) | ControlError::Below { .. }, Some(refused)) => {
                let Trouble { problem, remedy } = super::known::refusal(&refused);
                ControlError::DataPath(problem, remedy)
            }
            (error, _) => error,
        }
    }

    /// Follows a change of options: at once where nothing needs to go home, as a job where it does.
    pub(super) fn watch_change(
        &self,
        claim: Claim,
        volume: VolumeRecord,
        before: VolumeStats,
        pending: Box<dyn Pending>,
        leaves_write_back: bool,
    ) -> Result<Option<JobView>, ControlError> {
        if !leaves_write_back {
            return wait_for(pending).map(|()| None);
        }
        let (manager, name, uuid) = (self.clone(), volume.name.clone(), volume.uuid);
        let work = move |job: &Job| {
            manager.watch_dirty(&volume, &before, pending, job)?;
            manager.note_clean(&volume.name)
        };
        self.run_job(Work::ModeChange, (&name, uuid), claim, work).map(Some)
    }

    /// Nothing is dirty and nothing can become dirty: the mark goes.
    fn note_clean(&self, name: &str) -> Result<(), ControlError> {
        self.change(|state| {
            if let Some(volume) = state.volume_mut(name).filter(|v| v.options.mode != Mode::WriteBack) {
                volume.may_have_dirty = false;
            }
        })
    }

    /// Finishes, in the background, what a start found begun: a volume that left write-back with dirty data.
    pub(super) fn destage_leftovers(&self, volume: VolumeRecord) {
        let name = volume.name.clone();
        let Ok(claim) = self.claim(&[(api::names::Named::Volume, &name)], "the end of an interrupted mode change") else {
            return;
        };
        if let Err(error) = self.finish_mode_change(volume, claim) {
            self.events().note(Severity::Warning, &name, format!("its dirty data is not being destaged: {error}"));
        }
    }

    /// Brings home what a volume that left write-back still has, and takes its mark away.
    pub(super) fn finish_mode_change(&self, volume: VolumeRecord, claim: Claim) -> Result<JobView, ControlError> {
        let (manager, name, uuid) = (self.clone(), volume.name.clone(), volume.uuid);
        let work = move |job: &Job| {
            manager.destage_all(&volume, job)?;
            manager.note_clean(&volume.name)
        };
        self.run_job(Work::ModeChange, (&name, uuid), claim, work)
    }

    /// All steps of a removal.
    pub(super) fn remove(&self, volume: &VolumeRecord, drop_dirty: bool, job: &Job) -> Result<(), ControlError> {
        let attached = self.volume_attached(&volume.name);
        let remedy = format!("lose what it did not take with `hearth volume remove {} --drop-dirty`", volume.name);
        let or_drop = |error| if drop_dirty { error } else { super::single::or(error, &remedy) };
        if attached {
            self.give_up_if_silent(volume, drop_dirty).map_err(or_drop)?;
        }
        if attached && volume.may_have_dirty && !drop_dirty {
            self.destage_all(volume, job)?;
        }
        if job.cancel_wanted() {
            return Err(ControlError::Stopped);
        }
        self.unexport_all(volume).map_err(or_drop)?;
        let prepared = self.remove_prepared(volume, drop_dirty, attached, job);
        if prepared.is_err() {
            self.offer_again(volume);
            return prepared;
        }
        let before = self.latest_event();
        // Stopped, and not in order: what its device did not take is lost.
        let not_in_order = volume.stopped && !volume.stopped_clean && !attached;
        let removed = self.finish_remove(volume).inspect_err(|error| {
            let trouble = Trouble {
                problem: format!("its removal was interrupted: {error}"),
                remedy: format!("finish it with `hearth volume remove {}`", volume.name),
            };
            self.set_live_volume(&volume.name, |live| {
                (live.health, live.trouble) = (Health::Failed, Some(trouble));
            });
        });
        let lost = self.events_after(before).into_iter().find(|event| event.object == volume.name && event.severity == Severity::Error);
        match lost {
            Some(event) => job.came_to(format!("{} may lack what was written last: {}", volume.backing, event.message)),
            None if not_in_order => {
                job.came_to(format!("{} may lack what was written last: the volume was not stopped in order", volume.backing))
            }
            None => {}
        }
        removed
    }

    /// The rest that clients wrote while the exports went, and step 1.
    fn remove_prepared(&self, volume: &VolumeRecord, drop_dirty: bool, attached: bool, job: &Job) -> Result<(), ControlError> {
        if attached && volume.may_have_dirty && !drop_dirty {
            self.destage_all(volume, job)?;
        }
        let phase = if drop_dirty { VolumePhase::Dropping } else { VolumePhase::Removing };
        self.change(|state| {
            if let Some(record) = state.volume_mut(&volume.name) {
                record.phase = phase;
                record.may_have_dirty &= drop_dirty || record.options.mode == Mode::WriteBack;
            }
        })
    }

    /// Steps 2 and 3; also what a start does with a volume it finds on its way out.
    pub(super) fn finish_remove(&self, volume: &VolumeRecord) -> Result<(), ControlError> {
        self.set_live_volume(&volume.name, |live| live.health = Health::Removing);
        let pool_runs = self.memory().pools.get(&volume.pool).is_some_and(|p| p.health == Health::Running);
        let degraded = self.memory().state.pool(&volume.pool).is_some_and(|p| p.degraded.is_some());
        if self.volume_attached(&volume.name) {
            // Who loses what is dirty does not depend on a device that does not answer any more.
            let dropping = self.volume_record(&volume.name).is_ok_and(|record| record.phase == VolumePhase::Dropping);
            let detached = match (degraded, dropping) {
                // Its SSD cannot be told to forget the volume, and needs not: no start takes over what it holds of volumes that are gone.
                (true, true) => self.or_give_up(volume, || self.data().release(volume).map(drop)),
                (true, false) => self.data().release(volume).map(drop),
                (false, true) => self.detach_or_give_up(volume, true),
                (false, false) => self.data().detach(volume, true),
            };
            match detached {
                Err(error) if degraded => {
                    self.events().note(Severity::Warning, &volume.name, format!("removed in spite of an error: {error}"))
                }
                other => other?,
            }
            self.set_live_volume(&volume.name, |live| live.attached = false);
        } else if pool_runs {
            self.data().forget(volume)?;
        }
        // Of one that was not served, a daemon that was killed may have left the targets.
        self.withdraw_shares(volume);
        if volume.attachment.is_some() {
            self.data().mapped().remove_origin(volume)?;
        }
        self.change(|state| state.volumes.retain(|v| v.name != volume.name))?;
        self.memory().volumes.remove(&volume.name);
        self.forget_history(&insight::series::volume_object(&volume.name));
        Ok(())
    }

    /// Detaches a volume that goes with its data; if requests in flight do not end, its backing device is given up.
    pub(super) fn detach_or_give_up(&self, volume: &VolumeRecord, forget: bool) -> Result<(), ControlError> {
        self.or_give_up(volume, || self.data().detach(volume, forget))
    }

    /// Gives the backing device of a volume up that does not answer, if it may; what waits for it fails. Gives whether it was so.
    ///
    /// # Errors
    /// That it does not answer, if it may not be given up.
    pub(super) fn give_up_if_silent(&self, volume: &VolumeRecord, may: bool) -> Result<bool, ControlError> {
        match self.data().answers(volume, self.silence()) {
            Ok(()) => Ok(false),
            Err(error) if may => self.give_up_backing(volume, &error).map(|()| true),
            Err(error) => Err(error),
        }
    }

    /// Refuses a volume that is in use, as [`Manager::check_unused`] does. What waits for a backing device that does not answer can neither be
    /// unmounted nor closed: the device is given up if it may, and its users have a moment to go; else the refusal says how to give it up. A
    /// device that answers stays with its users.
    pub(super) fn check_unused_or_silent(&self, volume: &VolumeRecord, may_give_up: bool) -> Result<(), ControlError> {
        let Err(refused) = self.check_unused(volume) else { return Ok(()) };
        if !self.volume_attached(&volume.name) || !self.may_wait_for_device(volume, &refused) {
            return Err(refused);
        }
        match self.data().answers(volume, self.silence()) {
            // Looks end early with the daemon.
            Err(silence) if is_silence(&silence) && !self.is_stopping() => {
                if !may_give_up {
                    return Err(or_stop(refused, volume));
                }
                self.give_up_backing(volume, &silence)?;
                self.wait_until_unused(volume)
            }
            _ => Err(refused),
        }
    }

    /// Whether what refuses a volume are users who go by themselves when what they wait for fails. A share does not, and neither does what a volume
    /// is attached to.
    pub(super) fn may_wait_for_device(&self, volume: &VolumeRecord, refused: &ControlError) -> bool {
        matches!(refused, ControlError::Export { .. }) && self.check_unshared(volume).is_ok()
    }

    /// Whose requests have just failed with their device closes it soon, if that is all it waited for.
    ///
    /// # Errors
    /// If the volume is still in use then.
    pub(super) fn wait_until_unused(&self, volume: &VolumeRecord) -> Result<(), ControlError> {
        let begun = Instant::now();
        loop {
            match self.check_unused(volume) {
                Err(ControlError::Export { .. }) if begun.elapsed() < CLOSES_WITHIN => std::thread::sleep(LOOK),
                result => return result,
            }
        }
    }

    pub(super) fn give_up_backing(&self, volume: &VolumeRecord, why: &ControlError) -> Result<(), ControlError> {
        let device = DeviceUse::Backing { volume: volume.name.clone(), pool: volume.pool.clone() };
        let message = format!("its backing device {} does not answer, hearth gives up on it ({why})", volume.backing);
        self.events().note(Severity::Warning, &volume.name, message);
        self.data().give_up(&device)
    }

    fn or_give_up(&self, volume: &VolumeRecord, let_go: impl Fn() -> Result<(), ControlError>) -> Result<(), ControlError> {
        let Err(error) = let_go() else { return Ok(()) };
        self.give_up_backing(volume, &error)?;
        let_go()
    }
}

/// Whether a look at a device says that it does not answer, and not that it could not be asked.
pub(super) fn is_silence(error: &ControlError) -> bool {
    matches!(error, ControlError::Device { .. })
}

/// The refusal of a volume whose users wait for a device that does not answer.
fn or_stop(refused: ControlError, volume: &VolumeRecord) -> ControlError {
    match refused {
        ControlError::Export { export, problem, .. } => ControlError::Export {
            export,
            problem: format!("{problem}, and its backing device {} does not answer", volume.backing),
            remedy: format!("give the device up with `hearth volume stop {} --give-up`: what waits for it fails then", volume.name),
        },
        other => other,
    }
}

/// Waits for the end of a command that needs no progress.
pub(super) fn wait_for(mut pending: Box<dyn Pending>) -> Result<(), ControlError> {
    loop {
        match pending.poll() {
            Some(result) => return result,
            None => std::thread::sleep(LOOK),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(destaged_bytes: u64, dirty_bytes: u64) -> VolumeStats {
        VolumeStats { destaged_bytes, dirty_bytes: Some(dirty_bytes), ..VolumeStats::default() }
    }

    /// 300 bytes are dirty. Clients write 500 more while 400 go home.
    #[test]
    fn a_destage_never_runs_backwards_and_says_what_is_left() {
        let (before, mut reached) = (counters(1000, 300), Homecoming::default());
        let looks =
            [(1000, 300), (1100, 500), (1250, 600), (1400, 400)].map(|(destaged, dirty)| reached.look(&before, &counters(destaged, dirty)));
        assert_eq!(looks, [(0, 300), (100, 600), (250, 850), (400, 800)]);
        // While nobody can say, what was known counts.
        assert_eq!(reached.look(&before, &VolumeStats::default()), (400, 800));
        let mut second = Homecoming { earlier_bytes: 400, ..Homecoming::default() };
        assert_eq!(second.look(&counters(1400, 10), &counters(1410, 0)), (410, 410));
    }
}
