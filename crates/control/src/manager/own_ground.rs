//! Nothing of hearth's lies on a volume of its own: the reactor that serves the volume would wait for itself, in the kernel, for a journal or
//! for memory that only it can write back. Refused where a device or file is named, and at a start; told where it comes about later.

use super::Manager;
use super::pools::device;
use api::Severity;
use api::error::{ControlError, Kind};
use records::state::{PoolRecord, VolumeRecord};
use std::collections::BTreeSet;

/// Looks between two looks for hearth's own files.
const LOOKS: u32 = 16;

/// What the watcher remembers of hearth's own files.
#[derive(Debug, Default)]
pub(super) struct OwnFiles {
    looks: u32,
    told: BTreeSet<String>,
}

impl Manager {
    /// Which volume of this daemon a device or file lies on, and the way there.
    fn own_volume_below(&self, spec: &str) -> Result<Option<(String, String)>, ControlError> {
        let volumes = self.memory().state.exported();
        self.data().own_volume_below(spec, &volumes)
    }

    /// Refuses a device or file, be it one that is to be made, that lies on a volume of this daemon.
    pub(super) fn check_not_on_own(&self, spec: &str) -> Result<(), ControlError> {
        let remedy = "choose a device or file that lies on no volume of this daemon: hearth would wait for itself";
        match self.own_volume_below(spec)? {
            Some((volume, way)) => Err(device(spec, problem(&volume, &way), remedy.into(), Kind::Conflict)),
            None => Ok(()),
        }
    }

    /// The same of a volume that is to start: (what is wrong, what to do). Asked before anything of the file is, which may wait for this daemon.
    pub(super) fn backing_on_own(&self, volume: &VolumeRecord) -> Option<(String, String)> {
        let (below, way) = self.own_volume_below(&volume.backing).ok().flatten()?;
        let (name, backing) = (&volume.name, &volume.backing);
        let remedy = format!(
            "hearth would wait for itself: copy it to a disk that is no volume of this daemon, lead {backing} to the copy by a symbolic link, \
             then `hearth volume set {name} --accept-backing`"
        );
        Some((format!("its backing device {backing} {}", problem(&below, &way).trim_start_matches("it ")), remedy))
    }

    /// The same of a pool.
    pub(super) fn check_ssd_not_on_own(&self, pool: &PoolRecord) -> Result<(), ControlError> {
        let Some((below, way)) = self.own_volume_below(&pool.ssd).ok().flatten() else { return Ok(()) };
        let remedy = format!(
            "hearth would wait for itself: copy it to a disk that is no volume of this daemon, lead {} to the copy by a symbolic link, then \
             `hearth pool start {}`",
            pool.ssd, pool.name
        );
        Err(device(&pool.ssd, problem(&below, &way), remedy, Kind::Conflict))
    }

    /// Tells who else has a device open that hearth takes into use: what they write there, hearth does not see.
    pub(super) fn warn_of_openers(&self, object: &str, spec: &str) {
        if let Some(openers) = self.data().opened_by_others(spec) {
            let message = format!("{spec} is also open in {openers}: no process but hearth may write to it from now on");
            self.events().note(Severity::Warning, object, message);
        }
    }

    /// Tells of files that the daemon itself needs and that have come to lie on a volume of its own. Not at each look.
    pub(super) fn watch_own_files(&self, own: &mut OwnFiles) {
        own.looks = (own.looks + 1) % LOOKS;
        if own.looks != 1 {
            return;
        }
        let files = std::iter::once(&self.shared.state_directory).chain(self.shared.own_files.get().into_iter().flatten());
        for file in files {
            match self.own_volume_below(file) {
                Ok(Some((volume, way))) if own.told.insert(file.clone()) => {
                    let message = format!(
                        "hearth's own {file} lies on it ({way}), and hearth may wait for itself: move it to another disk, then restart the daemon"
                    );
                    self.events().note(Severity::Error, &volume, message);
                }
                Ok(None) => drop(own.told.remove(file)),
                _ => {}
            }
        }
    }
}

fn problem(volume: &str, way: &str) -> String {
    format!("it lies on the volume \"{volume}\" of this very daemon ({way})")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manager::fake::World;
    use api::options::OptionsPatch;
    use api::{Action, Health, PoolCreate, VolumeAdd};
    use std::path::Path;
    use std::sync::Arc;

    fn opened(world: &World) -> Manager {
        Manager::open(Arc::new(world.clone()), Box::new(world.clone()), Path::new("/state")).expect("a state")
    }

    fn pool(name: &str, ssd: &str) -> Action {
        Action::PoolCreate(PoolCreate {
            name: name.into(),
            ssd: ssd.into(),
            size_bytes: None,
            ram_bytes: Some(0),
            content: None,
            force: false,
            on_blank_ssd: None,
            spare_percent: None,
        })
    }

    fn volume(name: &str, backing: &str) -> Action {
        Action::VolumeAdd(VolumeAdd {
            name: name.into(),
            pool: "p".into(),
            backing: backing.into(),
            exports: Vec::new(),
            sector_bytes: None,
            options: OptionsPatch::default(),
        })
    }

    fn world() -> (World, Manager) {
        let world = World::default();
        for (path, bytes) in [("/dev/ssd", 1 << 30), ("/dev/disk", 1 << 30), ("/mnt/image", 1 << 30), ("/mnt/ssd", 1 << 30)] {
            world.add_device(path, bytes);
        }
        let manager = opened(&world);
        manager.start().expect("nothing is there");
        for action in [pool("p", "/dev/ssd"), volume("v", "/dev/disk")] {
            manager.handle(action).expect("it is free");
        }
        (world, manager)
    }

    /// From now on there is a file system on v.
    fn mount(world: &World) {
        world.inside().on_own = [("/mnt/".to_string(), "v".to_string()), ("/state".to_string(), "v".to_string())].into();
    }

    #[test]
    fn what_lies_on_an_own_volume_is_refused() {
        let (world, manager) = world();
        mount(&world);
        for action in [pool("q", "/mnt/ssd"), volume("w", "/mnt/image")] {
            let error = manager.handle(action).expect_err("it would wait for itself");
            assert_eq!(error.kind(), Kind::Conflict);
            let (told, remedy) = (error.to_string(), error.remedy());
            assert!(told.contains("lies on the volume \"v\" of this very daemon (the way)"), "{told}");
            assert!(remedy.contains("lies on no volume of this daemon"), "{remedy}");
        }
        let mut own = OwnFiles::default();
        (0..3 * LOOKS).for_each(|_| manager.watch_own_files(&mut own));
        let told = manager.events_after(0).into_iter().filter(|event| event.message.contains("hearth's own /state lies on it")).count();
        assert_eq!(told, 1);
    }

    #[test]
    fn what_came_to_lie_there_does_not_start_and_nothing_of_it_is_looked_at() {
        let (world, manager) = world();
        for action in [pool("q", "/mnt/ssd"), volume("w", "/mnt/image")] {
            manager.handle(action).expect("it lies on another disk");
        }
        manager.stop().expect("nothing fails");
        world.reboot();
        mount(&world);
        // Whoever asks for the size of a file there waits for this very start.
        world.inside().devices.retain(|path, _| !path.starts_with("/mnt/"));
        let manager = opened(&world);
        manager.start().expect("the others start");
        let w = manager.volume_view("w").expect("it is known");
        assert_eq!(w.health, Health::Failed);
        let problem = w.problem.unwrap_or_default();
        assert!(problem.contains("/mnt/image lies on the volume \"v\""), "{problem}");
        assert!(manager.volume_view("v").is_ok_and(|v| v.health == Health::Running));
        let q = manager.pool_view("q").expect("it is known");
        assert_eq!(q.health, Health::Failed);
    }
}
