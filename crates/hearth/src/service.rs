//! What the daemon tells a service manager (sd_notify(3)): how far a start is, that it is ready, that it lives, that it stops.
//!
//! Nothing happens, and no thread runs, where nobody wants to know.

use crate::failure::Failure;
use api::{Action, Answer, Health, PoolView, VolumeView};
use control::manager::Manager;
use control::manager::stop_watch::STOP_LIMIT_MAX_MS;
use sd_notify::NotifyState;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// How often a start or a stop says that it goes on.
const BEAT: Duration = Duration::from_secs(1);
/// What each such word asks for.
const MORE_TIME_US: u32 = 60_000_000;
/// Longest that a start asks for more time: recovery reads what the SSD holds.
const START_MAX: Duration = Duration::from_secs(3600);
/// Longest that a stop does: beyond its own limit, which the configuration sets.
const STOP_MAX: Duration = Duration::from_millis(STOP_LIMIT_MAX_MS + 60_000);

/// A thread's sign of life: gone with the thread, however it ends.
#[derive(Clone, Debug, Default)]
pub struct Life(Arc<()>);

/// What the service manager is told by.
#[derive(Debug)]
pub struct Service {
    words: Option<Sender<Word>>,
}

enum Word {
    Ready(String),
    Stopping,
}

/// How long systemd may take to say which of its jobs are under way.
const JOBS_PATIENCE: Duration = Duration::from_secs(2);

/// Whether systemd, which has this process stopped, starts the service again at once. `false` if nobody says so.
pub fn is_restarted() -> bool {
    if std::env::var_os("NOTIFY_SOCKET").is_none() {
        return false;
    }
    let unit = std::fs::read_to_string("/proc/self/cgroup").ok().and_then(|groups| unit_of(&groups).map(str::to_owned));
    let Some(unit) = unit else { return false };
    let (send, receive) = channel();
    let asked = std::thread::Builder::new().name("systemctl".into()).spawn(move || {
        let jobs = std::process::Command::new("systemctl").args(["list-jobs", "--no-legend", "--plain", "--full"]).output();
        drop(jobs.map(|jobs| send.send(String::from_utf8_lossy(&jobs.stdout).into_owned())));
    });
    let jobs = asked.ok().and_then(|_| receive.recv_timeout(JOBS_PATIENCE).ok()).unwrap_or_default();
    is_restart_of(&unit, &jobs)
}

/// The service in the list of a process's control groups, cgroups(7): `0::/system.slice/hearth.service`.
fn unit_of(groups: &str) -> Option<&str> {
    groups.lines().filter_map(|line| line.rsplit('/').next()).find(|name| name.ends_with(".service"))
}

/// Whether a restart of the unit is in the list: number, unit, type and state of each job.
fn is_restart_of(unit: &str, jobs: &str) -> bool {
    let mut jobs = jobs.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    jobs.any(|job| job.get(1) == Some(&unit) && job.get(2) == Some(&"restart"))
}

impl Service {
    /// Begins to tell, if somebody wants to know. `lives` are the threads without which the daemon is of no use.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(manager: &Manager, lives: Vec<Life>) -> Result<Service, Failure> {
        if std::env::var_os("NOTIFY_SOCKET").is_none() {
            return Ok(Service { words: None });
        }
        let (words, said) = channel();
        let lives = lives.iter().map(|life| Arc::downgrade(&life.0)).collect();
        let teller = Teller { manager: manager.clone(), lives, watchdog: sd_notify::watchdog_enabled().map(|limit| limit / 2) };
        crate::serve::spawn("service", move || teller.run(&said))?;
        Ok(Service { words: Some(words) })
    }

    /// Everything is back.
    pub fn ready(&self, what: &str) {
        self.say(Word::Ready(what.into()));
    }

    /// A stop has begun.
    pub fn stopping(&self) {
        self.say(Word::Stopping);
    }

    fn say(&self, word: Word) {
        if let Some(words) = &self.words
            && words.send(word).is_err()
        {
            tracing::warn!("the thread that talks to the service manager is gone");
        }
    }
}

struct Teller {
    manager: Manager,
    lives: Vec<Weak<()>>,
    watchdog: Option<Duration>,
}

impl Teller {
    fn run(&self, said: &Receiver<Word>) {
        let mut began = Instant::now();
        let (mut starting, mut stopping) = (true, false);
        loop {
            let wait = match self.watchdog {
                _ if starting || stopping => BEAT,
                Some(half) => half,
                None => Duration::MAX,
            };
            // Duration::MAX is beyond what the clock can add: without a watchdog the thread waits for a word.
            let word =
                if wait == Duration::MAX { said.recv().map_err(|_| RecvTimeoutError::Disconnected) } else { said.recv_timeout(wait) };
            match word {
                Ok(Word::Ready(what)) => {
                    starting = false;
                    tell(&[NotifyState::Ready, NotifyState::Status(&what)]);
                }
                Ok(Word::Stopping) => {
                    (starting, stopping, began) = (false, true, Instant::now());
                    tell(&[
                        NotifyState::Stopping,
                        NotifyState::Status("stopping: requests in flight are completed, dirty data stays on the SSD"),
                    ]);
                }
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if starting && began.elapsed() < START_MAX {
                tell(&[NotifyState::ExtendTimeoutUsec(MORE_TIME_US), NotifyState::Status(&self.how_far())]);
            }
            if stopping && began.elapsed() < STOP_MAX {
                tell(&[NotifyState::ExtendTimeoutUsec(MORE_TIME_US)]);
                if let Some(waits) = self.manager.stop_status() {
                    tell(&[NotifyState::Status(&format!("stopping: {waits}"))]);
                }
            }
            if self.watchdog.is_some() && self.alive() {
                tell(&[NotifyState::Watchdog]);
            }
        }
    }

    /// The manager answers, which takes its lock, and no thread has ended that must not.
    fn alive(&self) -> bool {
        self.lives.iter().all(|life| life.strong_count() > 0) && self.manager.handle(Action::Daemon).is_ok()
    }

    fn how_far(&self) -> String {
        match (self.manager.handle(Action::PoolList), self.manager.handle(Action::VolumeList)) {
            (Ok(Answer::Pools(pools)), Ok(Answer::Volumes(volumes))) => progress(&pools, &volumes),
            _ => "starting".into(),
        }
    }
}

/// How far a start is, for people.
fn progress(pools: &[PoolView], volumes: &[VolumeView]) -> String {
    let recovering: Vec<&str> = pools.iter().filter(|p| p.health == Health::Starting).map(|p| p.name.as_str()).collect();
    let back = volumes.iter().filter(|v| v.health != Health::Starting).count();
    let counted = format!("{back} of {} volumes are back", volumes.len());
    match recovering.as_slice() {
        [] => format!("starting: {counted}"),
        [one] => format!("starting: recovering pool {one}; {counted}"),
        [one, others @ ..] => format!("starting: recovering pool {one} and {} more; {counted}", others.len()),
    }
}

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!("the service manager cannot be notified ({error})");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restart_is_told_from_a_stop() {
        let groups = "1:name=systemd:/\n0::/system.slice/hearth.service\n";
        assert_eq!(unit_of(groups), Some("hearth.service"));
        assert_eq!(unit_of("0::/user.slice/session-1.scope"), None);
        let check = |jobs: &str, expected: bool| assert_eq!(is_restart_of("hearth.service", jobs), expected, "{jobs:?}");
        check("812 hearth.service restart running\n", true);
        check("811 other.service restart waiting\n812 hearth.service stop running\n", false);
        check("812 other-hearth.service restart running\n", false);
        check("", false);
        check("No jobs running.\n", false);
    }
}
