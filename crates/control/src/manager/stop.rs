//! The clean stop: exports go, shards quiesce, checkpoints are written, and what the backing devices are like is noted.

use super::Manager;
use crate::api::{Health, Severity};
use crate::error::ControlError;
use crate::jobs::LOOK;
use crate::state::{BackingIdentity, VolumeRecord};
use std::collections::BTreeMap;

impl Manager {
    /// Stops everything cleanly. Called once, with nothing else to follow; actions are refused from here on.
    ///
    /// Dirty data stays on the SSD and is found there by the next start. An export that is still in use (mounted) is taken away
    /// all the same: the process ends.
    ///
    /// # Errors
    /// The first failure. What could be stopped cleanly is; the rest is recovered by the next start as after a crash.
    pub fn stop(&self) -> Result<(), ControlError> {
        self.memory().stopping = true;
        self.end_jobs();
        let volumes: Vec<VolumeRecord> = self.memory().state.volumes.clone();
        let attached: Vec<&VolumeRecord> = volumes.iter().filter(|v| self.volume_attached(&v.name)).collect();
        for volume in &attached {
            self.abandon_exports(volume);
        }
        let dirty_bytes: BTreeMap<&str, u64> =
            attached.iter().map(|v| (v.name.as_str(), self.data().volume_stats(&v.name).dirty_bytes)).collect();
        let mut first_error = None;
        let mut clean = Vec::new();
        for volume in &attached {
            match self.data().detach(volume, false) {
                Ok(()) => clean.push(*volume),
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        let pools: Vec<_> = self.memory().pools.iter().filter(|(_, p)| p.health == Health::Running).map(|(n, _)| n.clone()).collect();
        for pool in &pools {
            if let Err(error) = self.data().stop_pool(pool, true) {
                self.events().note(Severity::Error, pool, format!("the pool did not stop cleanly: {error}"));
                clean.retain(|v| v.pool != *pool);
                first_error = first_error.or(Some(error));
            }
        }
        let result = self.note_stopped(&clean, &dirty_bytes);
        self.data().finish();
        first_error.map_or(result, Err)
    }

    fn end_jobs(&self) {
        let jobs = self.running_jobs();
        jobs.iter().for_each(|j| j.cancel());
        while jobs.iter().any(|j| j.is_running()) {
            std::thread::sleep(LOOK);
        }
    }

    /// After the last I/O: the backing devices' identities with stamps that mean something.
    fn note_stopped(&self, volumes: &[&VolumeRecord], dirty_bytes: &BTreeMap<&str, u64>) -> Result<(), ControlError> {
        let seen: BTreeMap<&str, BackingIdentity> =
            volumes.iter().filter_map(|v| Some((v.name.as_str(), self.data().examine_backing(&v.backing).ok()?.identity))).collect();
        self.change(|state| {
            for volume in &mut state.volumes {
                let Some(identity) = seen.get(volume.name.as_str()) else {
                    continue;
                };
                volume.identity = identity.clone();
                volume.stopped_clean = true;
                volume.may_have_dirty &= dirty_bytes.get(volume.name.as_str()) != Some(&0);
            }
        })
    }
}
