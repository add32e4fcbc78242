//! Long work: numbered, watched, stopped on request.
//!
//! A job runs on a thread of its own and holds no lock of the manager while it waits. Whoever wants to know asks for its
//! view; whoever wants it stopped sets its flag, and the job stops at its next look.

use crate::live::{Live, LiveEvent};
use api::error::ControlError;
use api::{JobKind, JobState, JobView, PoolReplace};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// Over how long the rate is taken: long enough to be calm, short enough to follow a changed load.
const RATE_WINDOW: Duration = Duration::from_secs(5);
/// Finished jobs kept for those who ask late.
const FINISHED_MAX: usize = 64;
/// How often a running job is told to who listens.
const TELL: Duration = Duration::from_secs(1);

/// What a preload was asked for, and how far it has come.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Asked {
    /// What is to be kept: the ranges of a plan.
    pub ranges: Arc<[Range<u64>]>,
    /// All of them below this byte has been read.
    pub at_bytes: u64,
    /// Most bytes a second.
    pub rate_bytes_s: Option<u64>,
    /// What it is for, in words: "advice 3".
    pub told: String,
}

/// What was asked for, and how far it has come, so that another job can go on with it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Work {
    /// Everything that is dirty goes home.
    Destage,
    /// A range is read into the cache.
    Warm {
        /// First byte of all.
        start_bytes: u64,
        /// The first that is not cached yet.
        at_bytes: u64,
        /// End, exclusive.
        end_bytes: u64,
        /// Most bytes a second.
        rate_bytes_s: Option<u64>,
    },
    /// Ranges are read into the cache.
    Preload(Asked),
    /// The volume goes.
    Remove {
        /// With what is dirty.
        drop_dirty: bool,
    },
    /// Write-back was left.
    ModeChange,
    /// The cache is compared with its checksums.
    Check(CheckedSoFar),
    /// A pool gets another SSD.
    Replace(PoolReplace),
    /// A pool's cache gives room, or takes it.
    DiskRoom,
    /// Applications are looked for.
    Discover,
}

impl Work {
    /// What sort of job it makes.
    pub const fn kind(&self) -> JobKind {
        match self {
            Work::Destage => JobKind::Destage,
            Work::Warm { .. } => JobKind::Warm,
            Work::Preload(_) => JobKind::Preload,
            Work::Remove { .. } => JobKind::Remove,
            Work::ModeChange => JobKind::ModeChange,
            Work::Check(_) => JobKind::Check,
            Work::Replace(_) => JobKind::Replace,
            Work::DiskRoom => JobKind::DiskRoom,
            Work::Discover => JobKind::Discover,
        }
    }
}

/// How far a check is, and what it has found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CheckedSoFar {
    /// Parts of the pool that are done.
    pub parts: u32,
    /// Bytes of cached data that were compared.
    pub done_bytes: u64,
    /// Clean blocks that were bad and are dropped.
    pub clean_bad: u64,
    /// Dirty blocks that are bad.
    pub dirty_bad: u64,
    /// Volume and first byte of the first of them.
    pub dirty_bad_at: Vec<(String, u64)>,
}

/// One job.
#[derive(Debug)]
pub struct Job {
    id: u64,
    kind: JobKind,
    /// Volume or pool.
    object: String,
    /// Of the object: another one may have its name later.
    uuid: Uuid,
    work: Mutex<Work>,
    /// The job that has gone on with this one.
    resumed_as: AtomicU64,
    began: Instant,
    live: Live,
    cancel: AtomicBool,
    progress: Mutex<Progress>,
    /// What came of it, if that is not what was expected.
    told: OnceLock<String>,
}

#[derive(Debug)]
struct Progress {
    state: JobState,
    ended: Option<Instant>,
    told: Instant,
    done_bytes: u64,
    total_bytes: u64,
    /// Within the rate window.
    samples: VecDeque<Reached>,
}

/// How far a job was.
#[derive(Clone, Copy, Debug)]
struct Reached {
    at: Instant,
    done_bytes: u64,
    rest_bytes: u64,
}

impl Job {
    /// Its number.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The name of the volume or pool it works on.
    pub fn object(&self) -> &str {
        &self.object
    }

    /// Which volume or pool that was when it began.
    pub fn uuid(&self) -> Uuid {
        self.uuid
    }

    /// What is left of what was asked for.
    pub fn work(&self) -> Work {
        self.work.lock().expect("no holder of this lock panics").clone()
    }

    /// Notes how far it is, for the job that may go on with it.
    pub fn reached(&self, work: Work) {
        *self.work.lock().expect("no holder of this lock panics") = work;
    }

    /// The number of the job that has gone on with this one.
    pub fn resumed_as(&self) -> Option<u64> {
        Some(self.resumed_as.load(Ordering::Relaxed)).filter(|id| *id != 0)
    }

    /// Another job goes on with this one.
    pub fn note_resumed(&self, by: u64) {
        self.resumed_as.store(by, Ordering::Relaxed);
    }

    /// For calls that look at it themselves: set when somebody asks for the job's end.
    pub fn stop_flag(&self) -> &AtomicBool {
        &self.cancel
    }

    /// Whether somebody asked for its end.
    pub fn cancel_wanted(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }

    /// Asks for its end.
    pub fn cancel(&self) {
        self.cancel.store(true, Ordering::Relaxed);
    }

    /// Whether it still runs.
    pub fn is_running(&self) -> bool {
        self.progress().state == JobState::Running
    }

    /// Notes how far it is. A part of the work that finds nothing to do leaves what the parts before it have noted.
    pub fn advance(&self, done_bytes: u64, total_bytes: u64) {
        if total_bytes == 0 {
            return;
        }
        self.note_progress(done_bytes, total_bytes);
    }

    /// Notes how far work is of which nobody knows how much there is: what is told of it has no total, and no time left.
    pub fn advance_open(&self, done_bytes: u64) {
        self.note_progress(done_bytes, 0);
    }

    fn note_progress(&self, done_bytes: u64, total_bytes: u64) {
        let now = Instant::now();
        let mut progress = self.progress();
        (progress.done_bytes, progress.total_bytes) = (done_bytes, total_bytes);
        progress.samples.push_back(Reached { at: now, done_bytes, rest_bytes: total_bytes.saturating_sub(done_bytes) });
        // One from before the window stays: between two of them there is a rate, however rarely they come.
        while progress.samples.get(1).is_some_and(|reached| now.duration_since(reached.at) > RATE_WINDOW) {
            progress.samples.pop_front();
        }
        if now.duration_since(progress.told) >= TELL {
            progress.told = now;
            drop(progress);
            self.tell();
        }
    }

    /// Notes its end.
    pub fn finish(&self, result: Result<(), ControlError>) {
        let mut progress = self.progress();
        progress.ended = Some(Instant::now());
        progress.state = match result {
            Ok(()) => JobState::Done,
            Err(ControlError::Stopped) => JobState::Cancelled,
            Err(error) => JobState::Failed { error: error.cause() },
        };
        drop(progress);
        self.tell();
    }

    fn tell(&self) {
        if self.live.has_listeners() {
            self.live.publish(LiveEvent::Job(Arc::new(self.view())));
        }
    }

    /// How it is.
    pub fn view(&self) -> JobView {
        let progress = self.progress();
        let now = progress.ended.unwrap_or_else(Instant::now);
        let running = progress.state == JobState::Running;
        JobView {
            id: self.id,
            kind: self.kind,
            volume: self.object.clone(),
            state: progress.state.clone(),
            done_bytes: progress.done_bytes,
            total_bytes: progress.total_bytes,
            rate_bytes: rate(&progress.samples, now),
            left_s: left_s(&progress.samples, now).filter(|_| running && progress.total_bytes > 0),
            elapsed_ms: now.duration_since(self.began).as_millis() as u64,
            summary: self.told.get().cloned(),
            told: self.told.get().cloned(),
        }
    }

    /// Tells what came of it, where that is not what was expected; once.
    pub fn came_to(&self, sentence: String) {
        let _ = self.told.set(sentence);
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().expect("no holder of this lock panics")
    }
}

/// Bytes per second until now: what came in a moment, with nothing since, has taken as long as that is ago.
fn rate(samples: &VecDeque<Reached>, now: Instant) -> u64 {
    per_second(samples, now, |first, last| last.done_bytes.saturating_sub(first.done_bytes))
}

/// Seconds until nothing is left, at the pace at which that becomes less: clients may add to it. None where it does not become less.
fn left_s(samples: &VecDeque<Reached>, now: Instant) -> Option<u64> {
    let rest_bytes = samples.back()?.rest_bytes;
    rest_bytes.checked_div(per_second(samples, now, |first, last| first.rest_bytes.saturating_sub(last.rest_bytes)))
}

fn per_second(samples: &VecDeque<Reached>, now: Instant, bytes: impl Fn(&Reached, &Reached) -> u64) -> u64 {
    let (Some(first), Some(last)) = (samples.front(), samples.back()) else {
        return 0;
    };
    let elapsed_ms = now.duration_since(first.at).as_millis() as u64;
    bytes(first, last).saturating_mul(1000).checked_div(elapsed_ms).unwrap_or(0)
}

/// All jobs.
#[derive(Debug, Default)]
pub struct Jobs {
    live: Live,
    latest: AtomicU64,
    known: Mutex<BTreeMap<u64, Arc<Job>>>,
}

impl Jobs {
    /// No jobs yet; those to come are told to `live`.
    pub fn new(live: Live) -> Jobs {
        Jobs { live, ..Jobs::default() }
    }

    /// A new running job on a volume or pool.
    pub fn begin(&self, work: Work, object: &str, uuid: Uuid) -> Arc<Job> {
        let id = self.latest.fetch_add(1, Ordering::Relaxed) + 1;
        let began = Instant::now();
        let progress =
            Progress { state: JobState::Running, ended: None, told: began, done_bytes: 0, total_bytes: 0, samples: VecDeque::new() };
        let job = Arc::new(Job {
            id,
            live: self.live.clone(),
            kind: work.kind(),
            object: object.into(),
            uuid,
            work: Mutex::new(work),
            resumed_as: AtomicU64::new(0),
            began,
            cancel: AtomicBool::new(false),
            progress: Mutex::new(progress),
            told: OnceLock::new(),
        });
        let mut known = self.known();
        known.insert(id, job.clone());
        while known.values().filter(|j| !j.is_running()).count() > FINISHED_MAX {
            let oldest = known.values().find(|j| !j.is_running()).map(|j| j.id).expect("just counted");
            known.remove(&oldest);
        }
        drop(known);
        job.tell();
        job
    }

    /// The job of that number.
    ///
    /// # Errors
    /// [`ControlError::Unknown`].
    pub fn get(&self, id: u64) -> Result<Arc<Job>, ControlError> {
        self.known().get(&id).cloned().ok_or(ControlError::Unknown { named: "job", name: id.to_string() })
    }

    /// The running job on a volume.
    pub fn of_volume(&self, volume: &str) -> Option<Arc<Job>> {
        self.known().values().find(|j| !j.kind.is_of_pool() && j.object == volume && j.is_running()).cloned()
    }

    /// All of them, oldest first.
    pub fn list(&self) -> Vec<Arc<Job>> {
        self.known().values().cloned().collect()
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Job>>> {
        self.known.lock().expect("no holder of this lock panics")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_seen_from_begin_to_end() {
        let jobs = Jobs::default();
        let job = jobs.begin(Work::Destage, "v", Uuid::from_bytes([1; 16]));
        assert_eq!(jobs.of_volume("v").map(|j| j.id()), Some(job.id()));
        job.advance(10, 100);
        assert!(!job.cancel_wanted());
        jobs.get(job.id()).expect("it is known").cancel();
        assert!(job.cancel_wanted());
        job.finish(Err(ControlError::Stopped));
        let view = job.view();
        assert_eq!((view.state, view.done_bytes, view.total_bytes, view.left_s), (JobState::Cancelled, 10, 100, None));
        assert!(jobs.of_volume("v").is_none());
        assert!(jobs.get(999).is_err());
    }

    /// Of a whole of 1000 bytes: (milliseconds, done).
    fn reached(start: Instant, samples: &[(u64, u64)]) -> VecDeque<Reached> {
        let one = |(ms, done_bytes): &(u64, u64)| Reached {
            at: start + Duration::from_millis(*ms),
            done_bytes: *done_bytes,
            rest_bytes: 1000u64.saturating_sub(*done_bytes),
        };
        samples.iter().map(one).collect()
    }

    #[test]
    fn the_rate_is_that_of_the_window() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let samples = reached(start, &[(0, 0), (500, 5), (2000, 200)]);
        assert_eq!((rate(&samples, at(2000)), left_s(&samples, at(2000))), (100, Some(8)));
        assert_eq!(rate(&reached(start, &[(0, 7)]), at(1000)), 0);
        assert_eq!((rate(&VecDeque::new(), at(0)), left_s(&VecDeque::new(), at(0))), (0, None));
    }

    #[test]
    fn what_came_in_a_moment_is_no_rate_that_lasts() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        // 64 KiB in a millisecond, then nothing for two minutes.
        let samples = reached(start, &[(0, 0), (1, 64 << 10)]);
        assert_eq!((rate(&samples, at(1000)), rate(&samples, at(120_000))), (64 << 10, 546));
    }

    #[test]
    fn nobody_knows_when_it_ends_while_clients_add_as_much_as_goes_home() {
        let start = Instant::now();
        let one = |ms, done_bytes, rest_bytes| Reached { at: start + Duration::from_millis(ms), done_bytes, rest_bytes };
        let at = start + Duration::from_secs(10);
        let even = VecDeque::from([one(0, 0, 500), one(10_000, 1000, 500)]);
        assert_eq!((rate(&even, at), left_s(&even, at)), (100, None));
        let growing = VecDeque::from([one(0, 0, 500), one(10_000, 1000, 900)]);
        assert_eq!((rate(&growing, at), left_s(&growing, at)), (100, None));
        // 100 bytes a second go home, half of which clients write anew.
        let slow = VecDeque::from([one(0, 0, 1000), one(10_000, 1000, 500)]);
        assert_eq!((rate(&slow, at), left_s(&slow, at)), (100, Some(10)));
    }

    #[test]
    fn work_without_an_end_in_sight_has_no_total_and_no_time_left() {
        let job = Jobs::default().begin(Work::Discover, "v", Uuid::from_bytes([1; 16]));
        job.advance_open(9 << 20);
        let view = job.view();
        assert_eq!((view.done_bytes, view.total_bytes, view.left_s), (9 << 20, 0, None));
    }

    #[test]
    fn finished_jobs_are_forgotten_in_the_end_and_running_ones_never() {
        let jobs = Jobs::default();
        let running = jobs.begin(Work::ModeChange, "r", Uuid::from_bytes([1; 16]));
        for _ in 0..FINISHED_MAX * 2 {
            jobs.begin(Work::Destage, "v", Uuid::from_bytes([1; 16])).finish(Ok(()));
        }
        assert!(jobs.list().len() <= FINISHED_MAX + 2);
        assert!(jobs.get(running.id()).is_ok());
    }
}
