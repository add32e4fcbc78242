//! What a stop waits for: reported while it waits, given up when it has waited long enough.
//!
//! A device that has answered nothing for a quarter of the limit, with I/O in flight, is given up: its I/O fails, and everything that waited for it
//! goes on. What cannot be helped by that, such as a system call that hangs, ends with the limit.

use super::Manager;
use api::Severity;
use api::error::{ControlError, Kind};
use api::human;
use datapath::{DeviceUse, WaitingFor};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How long a stop may take if nothing else is configured.
pub const STOP_LIMIT: Duration = Duration::from_secs(120);
/// The shortest that makes sense: a disk that spins up takes ten seconds, and has a quarter of it.
pub const STOP_LIMIT_MIN_MS: u64 = 4_000;
/// The longest.
pub const STOP_LIMIT_MAX_MS: u64 = 15 * 60_000;
/// A device that is silent for this part of the limit is given up.
const SILENCE_ONE_IN: u32 = 4;

/// How often it is looked whether something is to be given up.
pub(super) const LOOK: Duration = Duration::from_millis(if cfg!(test) { 5 } else { 500 });
/// How often it is told what is waited for.
const TELL: Duration = Duration::from_millis(if cfg!(test) { 20 } else { 5_000 });
/// A device is worth telling of when a request has been in flight for this long.
const SLOW: Duration = Duration::from_millis(if cfg!(test) { 0 } else { 2_000 });

/// What the stop of a pool does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    Jobs,
    Clients,
    Shards,
    BackingDevices,
}

impl Step {
    /// Continues "pool NAME".
    const fn words(self) -> &'static str {
        match self {
            Step::Jobs => "waits for its jobs to end",
            Step::Clients => "takes its exports away and ends the requests in flight",
            Step::Shards => "completes its writes and says where everything is",
            Step::BackingDevices => "records the state of its backing devices",
        }
    }
}

/// A stop under way.
#[derive(Debug)]
pub(super) struct Watch {
    deadline: Instant,
    limit: Duration,
    steps: Mutex<BTreeMap<String, Step>>,
    given_up: Mutex<BTreeSet<DeviceUse>>,
    /// By volume, as last known.
    dirty_bytes: Mutex<BTreeMap<String, u64>>,
    /// What was last told.
    status: Mutex<Option<String>>,
    /// All that was told.
    #[cfg(test)]
    pub(super) told: Mutex<Vec<String>>,
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().expect("no holder of this lock panics")
}

impl Watch {
    pub(super) fn new(limit: Duration) -> Watch {
        Watch {
            deadline: Instant::now() + limit,
            limit,
            steps: Mutex::default(),
            given_up: Mutex::default(),
            dirty_bytes: Mutex::default(),
            status: Mutex::default(),
            #[cfg(test)]
            told: Mutex::default(),
        }
    }

    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Whether to wait no longer for what may never end.
    pub(super) fn is_half_over(&self) -> bool {
        Instant::now() + self.limit / 2 >= self.deadline
    }

    /// Whether only what must be done at the end is still to be begun.
    pub(super) fn is_mostly_over(&self) -> bool {
        Instant::now() + self.limit / SILENCE_ONE_IN >= self.deadline
    }

    pub(super) fn is_over(&self) -> bool {
        Instant::now() >= self.deadline
    }

    pub(super) fn begins(&self, pool: &str, step: Step) {
        locked(&self.steps).insert(pool.into(), step);
    }

    pub(super) fn note_dirty(&self, volume: &str, bytes: u64) {
        locked(&self.dirty_bytes).insert(volume.into(), bytes);
    }

    /// Whether the volume's backing device was given up.
    pub(super) fn has_given_up(&self, volume: &str) -> bool {
        locked(&self.given_up).iter().any(|device| matches!(device, DeviceUse::Backing { volume: other, .. } if other == volume))
    }

    fn silence(&self) -> Duration {
        self.limit / SILENCE_ONE_IN
    }

    /// One sentence for each pool that is not done, and for each device that lets it wait.
    fn sentences(&self, waiting: &[WaitingFor], jobs: &[String]) -> Vec<String> {
        let mut sentences: Vec<String> = locked(&self.steps).iter().map(|(pool, step)| format!("pool {pool} {}", step.words())).collect();
        sentences.extend(jobs.iter().map(|job| format!("{job} has been asked to stop and still runs")));
        let slow = waiting.iter().filter(|wait| wait.oldest >= SLOW);
        sentences.extend(slow.map(|wait| {
            let WaitingFor { device, by, requests, silent, .. } = wait;
            let requests = types::counted(*requests, "request");
            let (silent, limit) = (human::seconds(silent.as_secs()), human::seconds(self.silence().as_secs()));
            format!("{device}, {}, has {requests} in flight and has not answered for {silent} (given up after {limit})", used_as(by))
        }));
        sentences
    }
}

/// What a device is used as, for people.
fn used_as(by: &DeviceUse) -> String {
    match by {
        DeviceUse::Backing { volume, pool } => format!("the backing device of volume {volume} (pool {pool})"),
        DeviceUse::Ssd { pool } => format!("the SSD of pool {pool}"),
    }
}

impl Manager {
    /// How long a device may answer nothing before it is given up, where that is to be.
    pub(super) fn silence(&self) -> Duration {
        *self.shared.stop_limit.get_or_init(|| STOP_LIMIT) / SILENCE_ONE_IN
    }

    /// Waits until all pools have ended, or for as long as the limit allows. Gives what went wrong.
    pub(super) fn watch_stop(
        &self,
        watch: &Watch,
        ended: &Receiver<(String, Result<(), ControlError>)>,
        mut pools: BTreeSet<String>,
    ) -> Vec<ControlError> {
        let mut errors = Vec::new();
        let mut told = Instant::now();
        while !pools.is_empty() || !self.running_jobs().is_empty() {
            match ended.recv_timeout(LOOK) {
                Ok((pool, result)) => {
                    pools.remove(&pool);
                    locked(&watch.steps).remove(&pool);
                    errors.extend(result.err());
                    continue;
                }
                Err(RecvTimeoutError::Timeout) => {}
                // All have ended; jobs of none of them are left.
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(LOOK),
            }
            let waiting = self.data().waiting_for();
            for device in waiting.iter().filter(|device| device.silent >= watch.silence()) {
                errors.extend(self.give_up(watch, device));
            }
            if told.elapsed() >= TELL {
                told = Instant::now();
                self.tell_stop(watch, &waiting);
            }
            if watch.is_over() {
                errors.extend(self.stop_is_late(watch, &pools));
                break;
            }
        }
        errors
    }

    fn tell_stop(&self, watch: &Watch, waiting: &[WaitingFor]) {
        let job = |job: std::sync::Arc<records::jobs::Job>| format!("job {} ({} of {})", job.id(), job.work().kind().word(), job.object());
        let jobs: Vec<String> = self.running_jobs().into_iter().map(job).collect();
        let sentences = watch.sentences(waiting, &jobs);
        sentences.iter().for_each(|sentence| tracing::info!("stopping: {sentence}"));
        #[cfg(test)]
        locked(&watch.told).push(sentences.join("; "));
        *locked(&watch.status) = Some(sentences.join("; "));
    }

    /// What a stop waits for, in a line; `None` if none is under way or it has not waited yet.
    pub fn stop_status(&self) -> Option<String> {
        locked(&self.shared.stop_watch.get()?.status).clone()
    }

    /// Whether a stop has given up the volume's backing device: what fails since then fails by that.
    pub(super) fn has_given_up(&self, volume: &str) -> bool {
        self.shared.stop_watch.get().is_some_and(|watch| watch.has_given_up(volume))
    }

    fn give_up(&self, watch: &Watch, device: &WaitingFor) -> Option<ControlError> {
        // First: from now on nobody takes the volume for one that has stopped cleanly.
        if !locked(&watch.given_up).insert(device.by.clone()) {
            return None;
        }
        let silent = human::seconds(device.silent.as_secs());
        let (object, outcome) = match &device.by {
            DeviceUse::Backing { volume, pool } => {
                let known = self.data().dirty_bytes(volume).ok().or_else(|| locked(&watch.dirty_bytes).get(volume).copied());
                let dirty = match known {
                    Some(0) => "nothing is dirty on the SSD".to_string(),
                    Some(bytes) => format!("{} of dirty data stay on the SSD of pool {pool}", human::bytes(bytes)),
                    None => format!("dirty data stays on the SSD of pool {pool}"),
                };
                (volume, format!("requests in flight fail, {dirty}"))
            }
            DeviceUse::Ssd { pool } => {
                let outcome = "the pool is not stopped cleanly; all acknowledged data is on the SSD, and the next start recovers it";
                (pool, outcome.to_string())
            }
        };
        let problem = format!("{} has not answered for {silent}, hearth gives up on it: {outcome}", used_as(&device.by));
        self.events().note(Severity::Error, object, format!("{}, {problem}", device.device));
        if let Err(error) = self.data().give_up(&device.by) {
            self.events().note(Severity::Error, object, format!("giving up on it failed: {error}"));
        }
        let remedy = "check the device; the next start serves everything once it answers".into();
        Some(ControlError::Device { path: device.device.clone(), problem, remedy, kind: Kind::Failed })
    }

    /// The limit is over.
    fn stop_is_late(&self, watch: &Watch, pools: &BTreeSet<String>) -> Vec<ControlError> {
        let limit = human::seconds(watch.limit.as_secs());
        let steps = locked(&watch.steps).clone();
        let late = |pool: &String| {
            let step = steps.get(pool).map_or("waits", |step| step.words());
            let problem = format!(
                "the pool is not stopped after {limit}, while it {step}: it is left as after a crash, and the next start recovers it"
            );
            self.events().note(Severity::Error, pool, &problem);
            ControlError::DataPath(format!("pool {pool}: {problem}"), "check its devices; see the log".into())
        };
        pools.iter().map(late).collect()
    }
}
