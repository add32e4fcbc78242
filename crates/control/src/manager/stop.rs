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
        // Of a volume whose shards do not all answer nothing is known: it keeps the mark that it may have dirty data.
        let dirty_bytes: BTreeMap<&str, u64> =
            attached.iter().filter_map(|v| Some((v.name.as_str(), self.data().dirty_bytes(&v.name).ok()?))).collect();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Action, PoolCreate, VolumeAdd};
    use crate::manager::fake::World;
    use crate::options::OptionsPatch;
    use std::sync::Arc;

    /// Whether a write-back volume without dirty data keeps its mark over a stop.
    fn keeps_mark(silent: bool) -> bool {
        let world = World::default();
        world.add_device("/dev/ssd", 1 << 30);
        world.add_device("/dev/disk", 1 << 30);
        let manager =
            Manager::open(Arc::new(world.clone()), Box::new(world.clone()), std::path::Path::new("/state")).expect("an empty state");
        manager.start().expect("nothing fails");
        let create =
            PoolCreate { name: "p".into(), ssd: "/dev/ssd".into(), size_bytes: None, ram_bytes: None, content: None, force: false };
        manager.handle(Action::PoolCreate(create)).expect("nothing fails");
        let options = OptionsPatch { mode: Some("write-back".into()), ..OptionsPatch::default() };
        let add = VolumeAdd { name: "v".into(), pool: "p".into(), backing: "/dev/disk".into(), exports: Vec::new(), options };
        manager.handle(Action::VolumeAdd(add)).expect("nothing fails");
        world.inside().silent = silent;
        manager.stop().expect("nothing fails");
        let inside = world.inside();
        assert!(inside.saved.volumes[0].stopped_clean);
        inside.saved.volumes[0].may_have_dirty
    }

    #[test]
    fn what_is_not_known_to_be_clean_may_be_dirty() {
        assert!(!keeps_mark(false), "every shard said that nothing is dirty");
        assert!(keeps_mark(true), "no shard said anything");
    }
}
