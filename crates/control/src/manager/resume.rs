//! Going on with a job that was stopped or failed, as a new one: from where the old one came to, where that means anything.
//!
//! What a job has done stays done, so a destage, a removal or the end of a mode change is begun again and finds less to do; a warm-up, a
//! preload and a check go on at the place they had reached.

use super::Manager;
use api::error::ControlError;
use api::names::Named;
use api::{JobState, JobView, PoolReplace, Severity};
use records::jobs::{Job, Work};
use records::state::VolumeRecord;
use types::Mode;

impl Manager {
    pub(super) fn job_resume(&self, id: u64) -> Result<JobView, ControlError> {
        let old = self.shared.jobs.get(id)?;
        let view = old.view();
        let what = format!("job {id} ({} of \"{}\")", view.kind.word(), view.volume);
        match view.state {
            JobState::Running => {
                let remedy = format!("follow it with `hearth job show {id}`, or stop it with `hearth job cancel {id}`");
                return Err(ControlError::Job(format!("{what} is still running"), remedy));
            }
            JobState::Done => {
                return Err(ControlError::Job(format!("{what} is done"), "it is complete: start a new one".into()));
            }
            JobState::Cancelled | JobState::Failed { .. } => {}
        }
        if let Some(next) = old.resumed_as() {
            return Err(ControlError::Job(
                format!("{what} was resumed as job {next}"),
                format!("resume that one: `hearth job resume {next}`"),
            ));
        }
        let new = match old.work() {
            Work::Check(so_far) => self.check_from(old.object(), Some(old.uuid()), so_far)?,
            Work::Replace(replace) => self.resume_replace(&old, &replace, &what)?,
            Work::Discover => self.discover_as_job(old.object())?,
            Work::DiskRoom => {
                return Err(ControlError::Job(format!("{what} is not resumed"), "give the command again".into()));
            }
            work => self.resume_on_volume(&old, &work, &what)?,
        };
        old.note_resumed(new.id);
        self.events().note(Severity::Info, old.object(), format!("{} resumed: job {} goes on with job {id}", view.kind.word(), new.id));
        Ok(new)
    }

    fn resume_replace(&self, old: &Job, replace: &PoolReplace, what: &str) -> Result<JobView, ControlError> {
        let name = old.object();
        if self.pool_record(name)?.uuid != old.uuid() {
            let remedy = format!("see `hearth pool show {name}`");
            return Err(ControlError::Job(format!("the pool of {what} is on another SSD by now"), remedy));
        }
        self.pool_replace(name, replace)
    }

    fn resume_on_volume(&self, old: &Job, work: &Work, what: &str) -> Result<JobView, ControlError> {
        let name = old.object();
        if self.volume_record(name)?.uuid != old.uuid() {
            let remedy = format!("start a new one; see `hearth volume show {name}`");
            return Err(ControlError::Job(format!("the volume of {what} is gone, and another one has its name"), remedy));
        }
        match work {
            Work::Destage => self.volume_destage(name),
            Work::Remove { drop_dirty } => self.volume_remove(name, *drop_dirty),
            Work::Warm { start_bytes, at_bytes, end_bytes, rate_bytes_s } => {
                let claim = self.claim(&[(Named::Volume, name)], "a warm-up")?;
                let record = self.warmable_volume(name)?;
                self.warm_from(record, *start_bytes..*end_bytes, *at_bytes, *rate_bytes_s, claim)
            }
            Work::Preload(asked) => {
                let claim = self.claim(&[(Named::Volume, name)], "a preload")?;
                self.preload_from(self.warmable_volume(name)?, asked.clone(), claim)
            }
            Work::ModeChange => self.resume_mode_change(name, what),
            Work::Check(_) | Work::Replace(_) | Work::DiskRoom => unreachable!("of a pool"),
            Work::Discover => unreachable!("begun again from the start"),
        }
    }

    fn resume_mode_change(&self, name: &str, what: &str) -> Result<JobView, ControlError> {
        let claim = self.claim(&[(Named::Volume, name)], "the end of an interrupted mode change")?;
        let record: VolumeRecord = self.running_volume(name)?;
        if record.options.mode == Mode::WriteBack {
            let remedy = format!("leave write-back again with `hearth volume set {name} --mode MODE`");
            return Err(ControlError::Job(format!("the volume of {what} is in write-back again"), remedy));
        }
        self.finish_mode_change(record, claim)
    }
}
