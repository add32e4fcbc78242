//! Devices that do not answer at the daemon's start: their own volumes and pools wait for them, and nothing else does.

use super::verdict::Verdict;
use super::{Manager, Trouble};
use api::Severity;
use records::state::{BackingIdentity, PoolRecord, VolumeRecord};
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// How soon it is told that a device does not answer.
const TOLD_AFTER: Duration = Duration::from_secs(2);
/// How long an SSD is waited for then: what a command takes that the kernel repeats. A backing device is not, its volume starts by itself
/// when it answers, as one that spins up does after some seconds.
pub(super) const SSD_WAITED_FOR: Duration = if cfg!(test) { Duration::ZERO } else { Duration::from_secs(30) };
/// Between two looks.
const LOOK: Duration = Duration::from_millis(100);

/// Pools that the daemon's start has begun to start.
#[derive(Debug, Default)]
pub(super) struct Starting {
    /// By name: whether it waits for its SSD.
    pools: Mutex<BTreeMap<String, bool>>,
    changed: Condvar,
}

impl Starting {
    fn pools(&self) -> MutexGuard<'_, BTreeMap<String, bool>> {
        self.pools.lock().expect("no holder of this lock panics")
    }

    pub(super) fn begins(&self, pool: &str) {
        self.pools().insert(pool.into(), false);
    }

    /// It has ended, however it did, when what this gives is dropped.
    pub(super) fn ends(&self, pool: &str) -> impl Drop {
        Ended { starting: self, pool: pool.into() }
    }

    /// It waits for its SSD.
    fn waits(&self, pool: &str) {
        if let Some(waits) = self.pools().get_mut(pool) {
            *waits = true;
        }
        self.changed.notify_all();
    }

    /// Waits for all that do not wait themselves.
    pub(super) fn wait(&self) {
        let mut pools = self.pools();
        while pools.values().any(|waits| !waits) {
            pools = self.changed.wait(pools).expect("no holder of this lock panics");
        }
    }
}

struct Ended<'a> {
    starting: &'a Starting,
    pool: String,
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.starting.pools().remove(&self.pool);
        self.starting.changed.notify_all();
    }
}

impl Manager {
    /// Asks the backing devices, all at once, whether they answer. One that does not, yet, holds up nothing but its own volume, which starts by
    /// itself when it does. Gives the volumes whose devices answer, and the others.
    pub(super) fn asked_at_start(&self, wanted: Vec<VolumeRecord>) -> (Vec<VolumeRecord>, Vec<VolumeRecord>) {
        let silent: Vec<bool> = std::thread::scope(|scope| {
            let ask = |volume: &VolumeRecord| {
                // What lies under an attached device may have to be led there first.
                let may_be_asked = volume.attachment.is_none();
                let is_silent = may_be_asked && self.data().is_silent(&volume.backing, TOLD_AFTER);
                if is_silent {
                    let problem = format!("its backing device {} does not answer so far", volume.backing);
                    self.events().note(Severity::Warning, &volume.name, &problem);
                    let trouble = Trouble { problem, remedy: "check it: the volume starts by itself when it answers".into() };
                    self.set_live_volume(&volume.name, |live| live.trouble = Some(trouble));
                }
                if !is_silent {
                    self.set_live_volume(&volume.name, |live| live.trouble = None);
                }
                is_silent
            };
            let asked: Vec<_> = wanted.iter().map(|volume| scope.spawn(move || ask(volume))).collect();
            asked.into_iter().map(|asked| asked.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
        });
        let (silent, answering): (Vec<_>, Vec<_>) = wanted.into_iter().zip(silent).partition(|(_, silent)| *silent);
        let records = |them: Vec<(VolumeRecord, bool)>| them.into_iter().map(|(volume, _)| volume).collect();
        (records(answering), records(silent))
    }

    fn stays_silent(&self, spec: &str, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        while self.data().is_silent(spec, LOOK) {
            if Instant::now() >= until || self.is_stopping() {
                return true;
            }
            std::thread::sleep(LOOK);
        }
        false
    }

    /// The start does not wait for a pool whose SSD does not answer.
    pub(super) fn wait_for_ssd(&self, pool: &PoolRecord) {
        if !self.data().is_silent(&pool.ssd, TOLD_AFTER) {
            return;
        }
        let problem = format!("its SSD {} does not answer so far", pool.ssd);
        self.events().note(Severity::Warning, &pool.name, &problem);
        let trouble = Trouble { problem, remedy: "check it: the pool starts by itself when it answers".into() };
        self.set_live_pool(&pool.name, |live| live.trouble = Some(trouble));
        self.shared.starting.waits(&pool.name);
        if !self.stays_silent(&pool.ssd, SSD_WAITED_FOR) {
            self.set_live_pool(&pool.name, |live| live.trouble = None);
        }
    }
}

pub(super) fn judged_silent(volume: &VolumeRecord) -> (Verdict, BackingIdentity, bool) {
    let problem = format!("its backing device {} does not answer", volume.backing);
    let verdict = Verdict::Refuse(problem, "check it: the volume starts by itself when it answers".into());
    (verdict, BackingIdentity::default(), volume.may_have_dirty)
}
