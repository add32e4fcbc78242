//! The check of a pool as a job: what its SSD holds is compared with the checksums.
//!
//! A pool that runs is checked part by part while its volumes are in use; a bad clean block is dropped, as if a client had met it. One that does not
//! run is inspected as a whole, reading only. Both leave the names of pool and volumes free for other work: only who gives up the SSD has to wait.

use super::{Claim, Manager};
use api::error::{ControlError, Kind};
use api::human;
use api::names::Named;
use api::{Health, JobView, Severity};
use records::jobs::{CheckedSoFar, Job, Work};
use records::state::PoolRecord;
use types::BLOCK_BYTES;
use uuid::Uuid;

/// Addresses and problems told by a failed check; further ones are counted.
const TOLD_MAX: usize = 16;

impl Manager {
    pub(super) fn pool_check(&self, name: &str) -> Result<JobView, ControlError> {
        self.check_from(name, None, CheckedSoFar::default())
    }

    /// Begins a check, or goes on with one; `uuid` is the pool that was being checked.
    pub(super) fn check_from(&self, name: &str, uuid: Option<Uuid>, so_far: CheckedSoFar) -> Result<JobView, ControlError> {
        let claim = self.claim(&[(Named::SsdOfPool, name)], "a check")?;
        let record = self.pool_record(name)?;
        if uuid.is_some_and(|uuid| uuid != record.uuid) {
            let problem = format!("the pool \"{name}\" is now on another SSD than the one being checked");
            return Err(ControlError::Job(problem, format!("start a new check with `hearth pool check {name}`")));
        }
        let live = self.memory().pools.get(name).map(|live| (live.health, live.size_bytes > 0));
        match live {
            Some((Health::Running, _)) => self.begin_check(record, so_far, claim, Manager::check_running),
            Some((Health::Starting, _)) => Err(ControlError::Claimed { named: "pool", name: name.into(), doing: "its start" }),
            Some((Health::Removing, _)) => Err(ControlError::Claimed { named: "pool", name: name.into(), doing: "its removal" }),
            // Its shards still have the SSD, which failed under them.
            Some((Health::Degraded, true)) => Err(ControlError::NotRunning {
                named: "pool",
                name: name.into(),
                reason: format!("its SSD {} has failed", record.ssd),
                remedy: format!("replace it with `hearth pool replace {name} --ssd PATH`, or restart the daemon and check again"),
            }),
            _ => self.begin_check(record, CheckedSoFar::default(), claim, Manager::check_at_rest),
        }
    }

    fn begin_check(
        &self,
        record: PoolRecord,
        so_far: CheckedSoFar,
        claim: Claim,
        check: fn(&Manager, &PoolRecord, &Job) -> Result<(), ControlError>,
    ) -> Result<JobView, ControlError> {
        let (manager, name, uuid) = (self.clone(), record.name.clone(), record.uuid);
        self.run_job(Work::Check(so_far), (&name, uuid), claim, move |job| check(&manager, &record, job))
    }

    fn check_running(&self, record: &PoolRecord, job: &Job) -> Result<(), ControlError> {
        let Work::Check(mut so_far) = job.work() else { unreachable!("a check was begun") };
        loop {
            // More may be cached by now than when it began, or less.
            let total_bytes = self.data().pool_stats(&record.name).cached_bytes.max(so_far.done_bytes);
            job.advance(so_far.done_bytes, total_bytes);
            if job.cancel_wanted() {
                return Err(ControlError::Stopped);
            }
            let found = self.data().check_part(record, so_far.parts, job.stop_flag())?;
            so_far.parts += 1;
            so_far.done_bytes += found.blocks * BLOCK_BYTES;
            so_far.clean_bad += found.clean_bad;
            so_far.dirty_bad += found.dirty_bad;
            let room = TOLD_MAX.saturating_sub(so_far.dirty_bad_at.len());
            so_far.dirty_bad_at.extend(found.dirty_bad_at.into_iter().take(room));
            job.reached(Work::Check(so_far.clone()));
            if so_far.parts >= found.parts {
                break;
            }
        }
        job.advance(so_far.done_bytes, so_far.done_bytes);
        // Whoever resumes it, for what it has found, wants to know whether that is still so.
        job.reached(Work::Check(CheckedSoFar::default()));
        self.judge_check(&record.name, &so_far)
    }

    fn judge_check(&self, pool: &str, found: &CheckedSoFar) -> Result<(), ControlError> {
        if found.clean_bad > 0 {
            let message =
                format!("the check dropped {} that did not match the checksum; no data is lost", blocks(found.clean_bad, "clean"));
            self.events().note(Severity::Warning, pool, message);
        }
        if found.dirty_bad == 0 {
            return Ok(());
        }
        let at: Vec<String> = found.dirty_bad_at.iter().map(|(volume, byte)| format!("{volume} at byte {byte}")).collect();
        let more = found.dirty_bad - at.len() as u64;
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let problem = format!("{} on the SSD cannot be read as written: {}{more}", blocks(found.dirty_bad, "dirty"), at.join(", "));
        let remedy = "restore these places from a backup, and replace the SSD with `hearth pool replace`";
        Err(ControlError::DataPath(problem, remedy.into()))
    }

    /// A pool that does not run: everything on its SSD, reading only.
    fn check_at_rest(&self, record: &PoolRecord, job: &Job) -> Result<(), ControlError> {
        let inspected = self.data().check_at_rest(record, &mut |done, total| {
            job.advance(done, total);
            !job.cancel_wanted()
        })?;
        if job.cancel_wanted() {
            return Err(ControlError::Stopped);
        }
        if inspected.problems_count == 0 {
            return Ok(());
        }
        let told = &inspected.problems[..inspected.problems.len().min(TOLD_MAX)];
        let more = inspected.problems_count - told.len() as u64;
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        let problem = format!("{}{more}", told.join("; "));
        let remedy = "see docs/failures.md, section \"The SSD\"".to_string();
        Err(ControlError::Device { path: record.ssd.clone(), problem, remedy, kind: Kind::Failed })
    }
}

fn blocks(count: u64, sort: &str) -> String {
    format!("{} ({})", types::counted(count, &format!("{sort} block")), human::bytes(count * BLOCK_BYTES))
}
