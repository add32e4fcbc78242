//! Files that are deleted, moved or replaced while hearth serves them. The kernel keeps what is open: all is served as before, and a deleted
//! file is gone for good once it is let go. So it is told at once, and nobody lets it go by mistake.

use super::{Manager, Trouble};
use api::error::{ControlError, Kind};
use api::{Health, Severity};
use datapath::StrayedFile;
use records::state::{PoolRecord, VolumeRecord};
use std::collections::BTreeMap;

/// What was told of such files, by volume and by pool.
#[derive(Debug, Default)]
pub(super) struct Strays {
    volumes: BTreeMap<String, StrayedFile>,
    pools: BTreeMap<String, StrayedFile>,
}

impl Manager {
    /// Looks at the names of all files in use once.
    pub(super) fn watch_names(&self, strays: &mut Strays, attached: &[VolumeRecord]) {
        strays.volumes.retain(|name, _| attached.iter().any(|volume| volume.name == *name));
        for volume in attached {
            let name = &volume.name;
            match (self.data().backing_strayed(name), strays.volumes.get(name)) {
                (Some(file), before) if before != Some(&file) => {
                    self.tell_strayed_backing(volume, &file);
                    strays.volumes.insert(name.clone(), file);
                }
                (None, Some(_)) => {
                    strays.volumes.remove(name);
                    self.events().note(Severity::Info, name, format!("{} leads to its backing file again", volume.backing));
                    self.waits_no_more(name);
                }
                _ => {}
            }
        }
        let pools: Vec<PoolRecord> = self.memory().state.pools.clone();
        strays.pools.retain(|name, _| pools.iter().any(|pool| pool.name == *name));
        for pool in &pools {
            match (self.data().ssd_strayed(&pool.name), strays.pools.get(&pool.name)) {
                (Some(file), before) if before != Some(&file) => {
                    self.tell_strayed_ssd(pool, &file);
                    strays.pools.insert(pool.name.clone(), file);
                }
                (None, Some(_)) => {
                    strays.pools.remove(&pool.name);
                    self.set_live_pool(&pool.name, |live| live.trouble = live.trouble.take().filter(|_| live.health != Health::Running));
                }
                _ => {}
            }
        }
    }

    fn tell_strayed_backing(&self, volume: &VolumeRecord, file: &StrayedFile) {
        let trouble = of_backing(volume, file);
        let severity = if file.is_deleted { Severity::Error } else { Severity::Warning };
        self.events().note(severity, &volume.name, format!("{}; {}", trouble.problem, trouble.remedy));
        self.set_live_volume(&volume.name, |live| live.trouble = live.trouble.take().or(Some(trouble)));
    }

    fn tell_strayed_ssd(&self, pool: &PoolRecord, file: &StrayedFile) {
        let trouble = of_ssd(pool, file);
        let severity = if file.is_deleted { Severity::Error } else { Severity::Warning };
        self.events().note(severity, &pool.name, format!("{}; {}", trouble.problem, trouble.remedy));
        self.set_live_pool(&pool.name, |live| live.trouble = live.trouble.take().or(Some(trouble)));
    }

    /// Refuses what would let a deleted backing file go, the last that there is of its data.
    pub(super) fn check_not_deleted(&self, volume: &VolumeRecord) -> Result<(), ControlError> {
        match self.data().backing_strayed(&volume.name).filter(|file| file.is_deleted) {
            Some(file) => {
                let Trouble { problem, remedy } = of_backing(volume, &file);
                Err(ControlError::Device { path: volume.backing.clone(), problem, remedy, kind: Kind::Conflict })
            }
            None => Ok(()),
        }
    }

    /// Refuses to stop a volume whose dirty data is in a deleted file of its pool's SSD.
    pub(super) fn check_dirty_is_kept(&self, volume: &VolumeRecord) -> Result<(), ControlError> {
        let Ok(pool) = self.pool_record(&volume.pool) else { return Ok(()) };
        match self.data().ssd_strayed(&pool.name).filter(|file| file.is_deleted) {
            Some(file) if self.data().dirty_bytes(&volume.name).ok() != Some(0) => {
                let Trouble { problem, .. } = of_ssd(&pool, &file);
                let remedy = format!("bring its dirty data home first with `hearth volume destage {}`", volume.name);
                Err(ControlError::Device { path: pool.ssd.clone(), problem, remedy, kind: Kind::Conflict })
            }
            _ => Ok(()),
        }
    }

    /// The daemon ends, and with it what has no name.
    pub(super) fn tell_what_is_lost_by_the_end(&self, volume: &VolumeRecord) -> bool {
        let Some(file) = self.data().backing_strayed(&volume.name) else { return false };
        if file.is_deleted {
            let message =
                format!("its backing file {} was deleted while it was served, and is gone now that the daemon ends", volume.backing);
            self.events().note(Severity::Error, &volume.name, message);
        }
        true
    }
}

fn of_backing(volume: &VolumeRecord, file: &StrayedFile) -> Trouble {
    let (name, backing, open_as) = (&volume.name, &volume.backing, &file.open_as);
    if !file.is_deleted {
        return Trouble {
            problem: format!("{backing} no longer leads to its backing file: that was moved, or another file was put in its place"),
            remedy: format!(
                "hearth serves the file that it has open; move it back to {backing} before the volume or the daemon is stopped"
            ),
        };
    }
    Trouble {
        problem: format!("its backing file {backing} was deleted: hearth still serves it, and its data is gone once the volume is stopped"),
        remedy: format!(
            "stop who writes to it and `hearth volume destage {name}`, copy it with `cp --sparse=always {open_as} COPY`, then \
             `hearth volume stop {name} --force`, move the copy to {backing} and `hearth volume set {name} --accept-backing`"
        ),
    }
}

fn of_ssd(pool: &PoolRecord, file: &StrayedFile) -> Trouble {
    let (name, ssd) = (&pool.name, &pool.ssd);
    if !file.is_deleted {
        return Trouble {
            problem: format!("{ssd} no longer leads to its SSD's file: that was moved, or another file was put in its place"),
            remedy: format!("move the file back to {ssd} before the daemon is stopped"),
        };
    }
    Trouble {
        problem: format!("its SSD's file {ssd} was deleted: the pool goes on, and dirty data is gone once the daemon ends"),
        remedy: format!(
            "bring dirty data home with `hearth volume destage`, then put the pool on another SSD with `hearth pool replace {name} --ssd PATH`"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manager::fake::World;
    use api::options::OptionsPatch;
    use api::{Action, Answer, PoolCreate, PoolReplace, VolumeAdd};
    use std::path::Path;
    use std::sync::Arc;

    fn daemon() -> (World, Manager) {
        let world = World::default();
        for path in ["/ssd", "/disk", "/new"] {
            world.add_device(path, 1 << 30);
        }
        let manager = Manager::open(Arc::new(world.clone()), Box::new(world.clone()), Path::new("/state")).expect("a state");
        manager.start().expect("nothing is there");
        let pool = PoolCreate {
            name: "p".into(),
            ssd: "/ssd".into(),
            size_bytes: None,
            ram_bytes: Some(0),
            content: None,
            force: false,
            on_blank_ssd: None,
            spare_percent: None,
        };
        manager.handle(Action::PoolCreate(pool)).expect("it is free");
        let options = OptionsPatch { mode: Some("write-back".into()), ..OptionsPatch::default() };
        let volume =
            VolumeAdd { name: "v".into(), pool: "p".into(), backing: "/disk".into(), exports: Vec::new(), sector_bytes: None, options };
        manager.handle(Action::VolumeAdd(volume)).expect("it is free");
        (world, manager)
    }

    fn strays(world: &World, name: &str, is_deleted: bool) {
        world.inside().strayed.insert(name.into(), StrayedFile { is_deleted, open_as: "/proc/1/fd/9".into() });
    }

    fn stop(manager: &Manager, force: bool) -> Result<String, ControlError> {
        match manager.handle(Action::VolumeStop { name: "v".into(), give_up: false, force })? {
            Answer::Done(done) => Ok(done.summary.unwrap_or_default()),
            other => panic!("{other:?}"),
        }
    }

    fn events(manager: &Manager, part: &str) -> usize {
        manager.events_after(0).iter().filter(|event| event.message.contains(part)).count()
    }

    #[test]
    fn a_deleted_backing_file_is_told_once_and_not_let_go_by_mistake() {
        let (world, manager) = daemon();
        strays(&world, "v", true);
        let attached = [manager.volume_record("v").expect("it is known")];
        let mut told = Strays::default();
        (0..3).for_each(|_| manager.watch_names(&mut told, &attached));
        assert_eq!(events(&manager, "/disk was deleted"), 1);
        let view = manager.volume_view("v").expect("it is known");
        assert_eq!(view.health, Health::Running, "it is served as before");
        assert!(view.remedy.is_some_and(|remedy| remedy.contains("cp --sparse=always /proc/1/fd/9")));
        let replace = PoolReplace { ssd: "/new".into(), size_bytes: None, force: false, drop_dirty: false };
        let remove = |drop_dirty| Action::VolumeRemove { name: "v".into(), drop_dirty };
        for action in [
            Action::VolumeStop { name: "v".into(), give_up: false, force: false },
            remove(false),
            Action::PoolReplace { name: "p".into(), replace },
        ] {
            let error = manager.handle(action.clone()).expect_err("its data would be gone");
            assert!(error.to_string().contains("was deleted"), "{action:?}: {error}");
            assert!(world.write("v", 5), "it goes on");
        }
        // Another file has its name by now: that is not the volume's.
        let before = manager.volume_record("v").expect("it is known").identity;
        world.inside().devices.get_mut("/disk").expect("there").serial = "another".into();
        assert!(stop(&manager, true).expect("it was said").contains("is gone"));
        let after = manager.volume_record("v").expect("it is known");
        assert_eq!((after.identity, after.stopped_clean, after.may_have_dirty), (before, false, true));
    }

    #[test]
    fn the_end_of_the_daemon_tells_what_it_loses_and_notes_no_other_file() {
        let (world, manager) = daemon();
        strays(&world, "v", true);
        world.inside().devices.get_mut("/disk").expect("there").serial = "another".into();
        let before = manager.volume_record("v").expect("it is known").identity;
        manager.stop().expect("nothing fails");
        assert_eq!(events(&manager, "is gone now that the daemon ends"), 1);
        let after = world.inside().saved.volumes[0].clone();
        assert_eq!((after.identity, after.stopped_clean), (before, false));
    }

    #[test]
    fn a_moved_file_is_told_until_it_is_back() {
        let (world, manager) = daemon();
        strays(&world, "v", false);
        let attached = [manager.volume_record("v").expect("it is known")];
        let mut told = Strays::default();
        manager.watch_names(&mut told, &attached);
        assert!(manager.volume_view("v").is_ok_and(|view| view.problem.is_some_and(|problem| problem.contains("no longer leads to"))));
        world.inside().strayed.clear();
        manager.watch_names(&mut told, &attached);
        assert!(manager.volume_view("v").is_ok_and(|view| view.problem.is_none()));
        strays(&world, "v", false);
        assert!(stop(&manager, false).expect("its file stays").contains("does not lead to it"));
    }

    #[test]
    fn dirty_data_in_a_deleted_ssd_goes_home_first() {
        let (world, manager) = daemon();
        assert!(world.write("v", 7));
        strays(&world, "p", true);
        manager.watch_names(&mut Strays::default(), &[]);
        assert!(manager.pool_view("p").is_ok_and(|view| view.problem.is_some_and(|problem| problem.contains("/ssd was deleted"))));
        let error = stop(&manager, false).expect_err("it is dirty");
        assert!(error.remedy().contains("hearth volume destage v"), "{}", error.remedy());
        let answer = manager.handle(Action::VolumeDestage { name: "v".into() }).expect("it begins");
        while manager.jobs_running() > 0 {
            std::thread::yield_now();
        }
        assert!(matches!(answer, Answer::Job(_)));
        stop(&manager, false).expect("nothing is dirty");
    }
}
