//! What the data path reports by itself.

use super::{Manager, Trouble};
use api::{Health, Severity};
use datapath::{Life, Notice};
use records::events::unix_s;
use records::state::{Degraded, State, VolumeRecord};
use std::time::Duration;
use types::{OnSsdLoss, SsdIndex};

/// Why an SSD is lost whose own word came to nothing.
const UNKNOWN_FAILURE: &str = "an I/O to the SSD failed";
/// How long to wait before trying again to put a failed SSD on record. Writes wait meanwhile.
const RECORD_AGAIN: Duration = Duration::from_secs(1);

impl Manager {
    pub(super) fn take_notice(&self, notice: &Notice) {
        match notice {
            Notice::SsdFailed { pool, life, ssd, no_space } => self.ssd_failed(pool, *life, *ssd, *no_space),
            Notice::NothingDirty { pool, life, volume } => self.nothing_dirty(pool, *life, volume),
            Notice::PastSsd { .. } => self.written_past(&[notice]),
            Notice::GoingHome { pool, life } => self.data().going_home(pool, *life),
            Notice::BackingFailed { volume } => {
                // A word that came late: the volume was stopped, or started anew.
                if !self.data().backing_failed(volume) || self.has_given_up(volume) {
                    return;
                }
                let refused = self.data().figures().volumes.remove(volume.as_str()).and_then(|figures| figures.refused);
                let reason =
                    refused.filter(|refused| refused.asked == "flush").map_or(String::new(), |refused| format!(" ({})", refused.reason));
                let problem = format!(
                    "its backing device failed to flush{reason}: writes since the last successful flush may be lost, and no more writes are accepted"
                );
                let disk = self.memory().state.disk(volume).map(|disk| disk.pool.clone());
                let remedy = disk.map_or_else(
                    || format!("check the device and its data, then start the volume with `hearth volume start {volume}`"),
                    |pool| format!("check the SSD and the disk's data, then serve it again with `hearth pool start {pool}`"),
                );
                self.events().note(Severity::Error, volume, &problem);
                self.set_live_volume(volume, |live| {
                    live.trouble = Some(Trouble { problem: problem.clone(), remedy });
                    live.health = Health::Failed;
                });
            }
            Notice::DirtyBlockUnreadable { volume, block } => {
                let message =
                    format!("block {block} is dirty and cannot be read from the SSD: it returns EIO until a client overwrites it");
                self.note_often(Severity::Error, volume, "dirty blocks that cannot be read from the SSD", message);
            }
            Notice::ChecksumMismatch { volume, block } => {
                let message = format!(
                    "block {block} on the SSD did not match its checksum and was dropped; it was read from the backing device instead"
                );
                self.note_often(Severity::Warning, volume, "blocks that did not match their checksum", message);
            }
            Notice::DestageFailed { volume, .. } if self.has_given_up(volume) => {}
            Notice::DestageFailed { volume, block } => {
                let message = format!("destage of block {block} failed and will be retried");
                self.note_often(Severity::Warning, volume, "failed destages", message);
            }
        }
    }

    /// Notes what may come in floods.
    fn note_often(&self, severity: Severity, volume: &str, kind: &'static str, message: String) {
        let told = self.shared.repeats.lock().note(volume, kind, unix_s() * 1000);
        if told {
            self.events().note(severity, volume, message);
        }
    }

    /// Tells what floods have ended.
    pub(super) fn tell_repeats(&self, unix_ms: u64) {
        let ended = self.shared.repeats.lock().ended(unix_ms);
        for (volume, kind, count) in ended {
            self.events().note(Severity::Warning, &volume, format!("{count} more {kind} within a minute"));
        }
    }

    /// Puts the failure on record. Until then nothing is done that relies on it.
    pub(super) fn ssd_failed(&self, pool: &str, life: Life, ssd: SsdIndex, no_space: bool) {
        self.data().ssd_failed(pool, life, ssd);
        let reason = if no_space { "the SSD is full: there is no space for what is written to it" } else { UNKNOWN_FAILURE };
        if !self.record_stubbornly(&[(pool, life)], |state| is_lost(state, pool, life, reason)) {
            // The word came late: the pool has left that SSD.
            return;
        }
        self.data().degraded_recorded(pool, life);
        let waiting = self.told_to_wait(pool);
        let mut problem = format!("{reason}; its volumes go on without it");
        if !waiting.is_empty() {
            let names = waiting.join(", ");
            problem += &format!(", but writes to {names} wait while dirty data is destaged, and fail when it cannot be");
        }
        let first = if no_space { "make room on the file system or volume that the SSD lies on" } else { "bring the SSD back" };
        let first = format!("{first}, then start the pool with `hearth pool start {pool}`: its dirty data is then served again");
        let remedy = format!("{first}; or put the pool on another SSD with `hearth pool replace {pool} --ssd PATH`");
        self.events().note(Severity::Error, pool, &problem);
        for name in &waiting {
            self.set_live_volume(name, |live| {
                live.trouble.get_or_insert_with(|| Trouble {
                    problem: format!("{reason}: writes wait while dirty data is destaged, and fail when it cannot be"),
                    remedy: format!("{first}; or let it go on with `hearth volume set {name} --on-ssd-loss continue`"),
                });
            });
        }
        self.set_live_pool(pool, |live| {
            live.health = Health::Degraded;
            live.trouble = Some(Trouble { problem: problem.clone(), remedy });
        });
    }

    /// Running volumes of a pool that has lost its SSD whose writes wait until nothing of them is dirty there.
    fn told_to_wait(&self, pool: &str) -> Vec<String> {
        let memory = self.memory();
        let runs = |name: &str| memory.volumes.get(name).is_some_and(|live| live.attached && live.health == Health::Running);
        let waits = |v: &&VolumeRecord| v.may_have_dirty && v.options.on_ssd_loss == OnSsdLoss::Stop && runs(&v.name);
        memory.state.volumes_of(pool).filter(waits).map(|v| v.name.clone()).collect()
    }

    /// Puts on record that the SSD holds nothing of the volume; then it goes on without the SSD.
    fn nothing_dirty(&self, pool: &str, life: Life, name: &str) {
        // Of a volume that the log lost something of, the shards do not know all; of a pool that is not known, nothing is.
        let Some(damaged) = self.memory().pools.get(pool).map(|live| live.damaged.clone()) else { return };
        let concerns = self.record_stubbornly(&[(pool, life)], |state| {
            let is_known = |v: &VolumeRecord| v.pool == pool && !damaged.contains(&v.id);
            let lost = state.volume(name).is_some_and(is_known) && is_lost(state, pool, life, UNKNOWN_FAILURE);
            let Some(volume) = state.volume_mut(name).filter(|_| lost) else { return false };
            (volume.cache_stale, volume.may_have_dirty) = (true, false);
            true
        });
        if concerns {
            self.data().ssd_forgotten(pool, life, name);
            self.waits_no_more(name);
            self.events().note(Severity::Info, name, "nothing of it is dirty on the SSD that failed: it goes on without its cache");
        }
    }

    /// What a volume waited for has come, or it goes on: a running one has no trouble but that of its lost SSD.
    pub(super) fn waits_no_more(&self, name: &str) {
        self.set_live_volume(name, |live| live.trouble = live.trouble.take().filter(|_| live.health != Health::Running));
    }

    /// Takes in what came meanwhile. What was written past lost SSDs is recorded in one save; what needs none comes first, since a save may
    /// have to be tried for long.
    pub(super) fn take_notices(&self, notices: &[Notice]) {
        let (saved, others): (Vec<&Notice>, Vec<&Notice>) = notices
            .iter()
            .partition(|notice| matches!(notice, Notice::SsdFailed { .. } | Notice::NothingDirty { .. } | Notice::PastSsd { .. }));
        others.into_iter().for_each(|notice| self.take_notice(notice));
        for notice in &saved {
            if let Notice::SsdFailed { pool, life, ssd, .. } = notice {
                self.data().ssd_failed(pool, *life, *ssd);
            }
        }
        let (past, others): (Vec<&Notice>, Vec<&Notice>) = saved.into_iter().partition(|notice| matches!(notice, Notice::PastSsd { .. }));
        others.into_iter().for_each(|notice| self.take_notice(notice));
        if !past.is_empty() {
            self.written_past(&past);
        }
    }

    /// Puts on record which blocks were written past an SSD; then these writes are acknowledged.
    fn written_past(&self, notices: &[&Notice]) {
        let mut pools: Vec<(&str, Life)> = Vec::new();
        for notice in notices {
            if let Notice::PastSsd { pool, life, .. } = notice
                && !pools.contains(&(pool, *life))
            {
                pools.push((pool, *life));
            }
        }
        self.record_stubbornly(&pools, |state| {
            for notice in notices {
                let Notice::PastSsd { pool, life, volume, blocks, .. } = notice else { continue };
                let lost = is_lost(state, pool, *life, UNKNOWN_FAILURE);
                if let Some(volume) = state.volume_mut(volume).filter(|v| lost && v.pool == *pool) {
                    volume.add_past(blocks.clone());
                }
            }
            true
        });
        for notice in notices {
            let Notice::PastSsd { pool, life, token, volume, .. } = notice else { continue };
            // What belongs to no volume is on record nowhere.
            if self.volume_record(volume).is_ok() {
                self.data().past_recorded(pool, *life, *token);
            }
        }
    }

    /// Saves what the data path of these pools waits for, however often it takes.
    fn record_stubbornly(&self, pools: &[(&str, Life)], change: impl Fn(&mut State) -> bool) -> bool {
        loop {
            match self.change(&change) {
                Ok(concerns) => return concerns,
                Err(error) => {
                    for (pool, life) in pools {
                        let message = format!("its SSD failed and the failure cannot be recorded, so writes wait: {error}");
                        self.events().note(Severity::Error, pool, message);
                        // Their patience is for the SSD.
                        self.data().going_home(pool, *life);
                    }
                    std::thread::sleep(RECORD_AGAIN);
                }
            }
        }
    }
}

/// Notes that the pool has lost its SSD and that what is cached there is void, if it is in that life.
fn is_lost(state: &mut State, pool: &str, life: Life, reason: &str) -> bool {
    let Some(record) = state.pool_mut(pool).filter(|p| life.is_of(p)) else { return false };
    record.degraded.get_or_insert(Degraded { reason: reason.into(), since_unix_s: unix_s(), dirty_is_good: true });
    state.volumes.iter_mut().filter(|v| v.pool == pool).for_each(|v| v.cache_stale = true);
    true
}
