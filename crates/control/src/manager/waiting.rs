//! Volumes that wait for their backing devices, and pools that wait for their SSD, start by themselves. A volume whose device goes away while
//! it runs is reported, and goes on when the device is back. Looked at once a second: what has to be asked for that is a few small files of
//! the kernel's.

use super::own_ground::OwnFiles;
use super::pool_start::LostSsds;
use super::strayed::Strays;
use super::verdict::Verdict;
use super::{Manager, Trouble};
use api::names::Named;
use api::{Health, Severity};
use records::state::{VolumePhase, VolumeRecord};
use std::collections::BTreeMap;
use std::time::Duration;

/// Looks between two tries while nothing changes, at most: a device may have become good in a way that no mark shows.
const LOOKS_MAX: u32 = 64;

/// How long a device may take to answer one look.
pub(super) const SILENCE: Duration = Duration::from_secs(1);

/// What the watcher remembers from look to look.
#[derive(Debug, Default)]
pub struct Watched {
    waiting: WaitingByName,
    pools: WaitingByName,
    exports: WaitingByName,
    names: WaitingByName,
    lost: LostSsds,
    own: OwnFiles,
    strays: Strays,
}

#[derive(Debug, Default)]
pub(super) struct WaitingByName {
    names: BTreeMap<String, Waiting>,
}

/// Of a volume or pool that waits.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    mark: u64,
    /// Looks until the next try, and from that to the one after it.
    left: u32,
    pause: u32,
}

impl WaitingByName {
    /// Forgets the others.
    pub(super) fn retain(&mut self, mut waits: impl FnMut(&str) -> bool) {
        self.names.retain(|name, _| waits(name));
    }

    /// Whether now is a time to try: something has changed, or the last try was long ago.
    pub(super) fn is_due(&mut self, name: &str, mark: u64) -> bool {
        let new = Waiting { mark, left: 1, pause: 1 };
        let waiting = match self.names.get_mut(name) {
            Some(waiting) if waiting.mark == mark => waiting,
            Some(waiting) => {
                *waiting = new;
                return true;
            }
            None => {
                self.names.insert(name.into(), new);
                return true;
            }
        };
        waiting.left -= 1;
        if waiting.left > 0 {
            return false;
        }
        waiting.pause = (waiting.pause * 2).min(LOOKS_MAX);
        waiting.left = waiting.pause;
        true
    }
}

impl Manager {
    /// Looks at all volumes once. A device that hangs may keep the caller: call it from a thread of its own, about once a second.
    pub fn watch_devices(&self, watched: &mut Watched) {
        let (attached, waiting): (Vec<VolumeRecord>, Vec<VolumeRecord>) = {
            let memory = self.memory();
            let live = |v: &VolumeRecord| memory.volumes.get(&v.name).map_or((false, false), |live| (live.attached, live.waits));
            let known = || memory.state.volumes.iter().filter(|v| v.phase == VolumePhase::Ready && !v.stopped);
            let attached = known().filter(|v| live(v).0 && !live(v).1).cloned().collect();
            (attached, known().filter(|v| live(v).1).cloned().collect())
        };
        for volume in attached.iter().filter(|v| self.data().backing_gone(&v.name) && !self.is_stopping()) {
            self.backing_went(volume);
        }
        for volume in attached.iter().filter(|v| !self.is_stopping() && !self.data().backing_gone(&v.name)) {
            self.look_at_size(volume);
        }
        let disks: Vec<VolumeRecord> = {
            let memory = self.memory();
            memory.state.exported().into_iter().filter(|volume| memory.state.disk(&volume.name).is_some()).collect()
        };
        for volume in attached.iter().chain(&disks).filter(|v| self.data().device_is_lost(&v.name) && !self.is_stopping()) {
            self.renew_lost_loop(volume);
        }
        watched.names.retain(|name| self.is_nameless(name));
        for volume in attached.iter().chain(&disks).filter(|_| !self.is_stopping()) {
            // A name that is there costs a look at a link; what is in its place may have to be asked.
            if !self.is_nameless(&volume.name) || watched.names.is_due(&volume.name, 0) {
                self.look_at_name(&volume.name);
            }
        }
        watched.exports.retain(|name| !self.lacking(name).is_empty());
        for volume in attached.iter().filter(|v| !self.lacking(&v.name).is_empty() && !self.is_stopping()) {
            if watched.exports.is_due(&volume.name, 0) {
                self.export_again(&volume.name);
            }
        }
        self.watch_attachments(&attached);
        self.watch_own_files(&mut watched.own);
        self.watch_names(&mut watched.strays, &attached);
        let (known, busy) = {
            let memory = self.memory();
            let is_busy = |v: &&VolumeRecord| memory.claims.has(Named::Volume, &v.name);
            let known = memory.state.exported();
            let busy: Vec<String> = known.iter().filter(is_busy).map(|v| v.name.clone()).collect();
            (known, busy)
        };
        for volume in self.data().close_kept(&known, &busy) {
            let message = "its users have waited for it and get errors now: it is not served";
            self.events().note(Severity::Error, &volume, message);
            known.iter().filter(|known| known.name == volume).for_each(|known| self.withdraw_shares(known));
        }
        self.start_pools_that_are_back(&mut watched.lost, &mut |pool, mark| watched.pools.is_due(pool, mark));
        let left = self.disks_left_behind();
        watched.waiting.names.retain(|name, _| waiting.iter().any(|v| v.name == *name) || left.iter().any(|(disk, _)| disk == name));
        for (disk, ssd) in &left {
            if watched.waiting.is_due(disk, self.data().device_mark(ssd)) && !self.is_stopping() {
                self.try_disk(disk);
            }
        }
        for volume in &waiting {
            if watched.waiting.is_due(&volume.name, self.data().device_mark(&volume.backing)) {
                self.try_again(volume);
            }
        }
    }

    fn backing_went(&self, volume: &VolumeRecord) {
        let problem = format!("its backing device {} went away", volume.backing);
        self.events().note(Severity::Error, &volume.name, format!("{problem}: only cached blocks can be read"));
        let remedy = "reconnect it: the volume then resumes by itself".to_string();
        self.set_live_volume(&volume.name, |live| {
            (live.health, live.waits, live.trouble) = (Health::Failed, true, Some(Trouble { problem, remedy }));
        });
    }

    /// Tries to start a volume, or to go on with one whose device was away. Whoever wants to do something with it meanwhile is not in the way, and not
    /// kept from it, unless its device is there.
    fn try_again(&self, volume: &VolumeRecord) {
        let name = &volume.name;
        // All volumes are looked at from one thread.
        if volume.attachment.is_none() && self.data().is_silent(&volume.backing, SILENCE) {
            return;
        }
        if let Verdict::Refuse(problem, remedy) = self.peek(volume) {
            self.set_trouble(volume, Trouble { problem, remedy });
            return;
        }
        // Whoever is at it will see to it; so will the next look.
        let Ok(_claim) = self.claim(&[(Named::Volume, name)], "its start after its device returned") else { return };
        let Ok(volume) = self.volume_record(name) else { return };
        let still = self.memory().volumes.get(name).is_some_and(|live| live.waits) && !volume.stopped;
        if !still {
            return;
        }
        let result = if self.volume_attached(name) { self.go_on(&volume) } else { self.start_alone(&volume).map(|()| true) };
        match result {
            Ok(false) => {}
            Ok(true) => {
                self.set_live_volume(name, |live| live.waits = false);
                let place = self.volume_record(name).map_or(volume.backing, |now| now.backing);
                self.events().note(Severity::Info, name, format!("its backing device {place} is back: the volume is running"));
            }
            Err(error) => self.set_trouble(&volume, Trouble::from(&error)),
        }
    }

    /// A volume does not run for that reason. Told if it is news.
    fn set_trouble(&self, volume: &VolumeRecord, trouble: Trouble) {
        let before = self.memory().volumes.get(&volume.name).and_then(|live| live.trouble.clone());
        // One that went away while it ran is away as long as it is not back.
        if before.as_ref() == Some(&trouble) || self.volume_attached(&volume.name) {
            return;
        }
        self.events().note(Severity::Error, &volume.name, format!("the volume is not served: {}", trouble.problem));
        self.set_live_volume(&volume.name, |live| (live.health, live.trouble) = (Health::Failed, Some(trouble)));
    }

    /// The device of a running volume may be back. `false`: it is not.
    fn go_on(&self, volume: &VolumeRecord) -> Result<bool, api::error::ControlError> {
        let judged = self.judge_all(std::slice::from_ref(volume));
        let there = self.volume_record(&volume.name)?;
        match judged.get(&volume.name) {
            // Its device led past hearth meanwhile: it begins under a fresh number.
            Some((Verdict::Same | Verdict::Grown, ..)) if there.attachment.is_some() && there.cache_stale => {
                return self.start_alone(&there).map(|()| true);
            }
            Some((Verdict::Same | Verdict::Grown, ..)) => {}
            Some((Verdict::DropClean(_), ..)) => return self.start_alone(&there).map(|()| true),
            _ => return Ok(false),
        }
        match self.data().reattach(&there) {
            Ok(()) => {
                self.set_live_volume(&volume.name, |live| (live.health, live.trouble) = (Health::Running, None));
                if there.size_bytes > volume.size_bytes
                    && let Err(error) = self.grow_to(volume, there.identity.size_bytes)
                {
                    self.events().note(Severity::Warning, &volume.name, format!("it does not grow with its backing device: {error}"));
                }
            }
            Err(error) => {
                let message = format!("its exports are made again: unmount and mount the file systems on it again: {error}");
                self.events().note(Severity::Warning, &volume.name, message);
                self.start_alone(&there)?;
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_tried_at_once_and_the_rest_ever_more_rarely() {
        let mut watched = WaitingByName::default();
        let due: Vec<u32> = (0..200).filter(|_| true).filter(|_| watched.is_due("v", 1)).collect();
        assert_eq!(due, [0, 1, 3, 7, 15, 31, 63, 127, 191]);
        assert!(watched.is_due("v", 2), "something changed");
        assert!(watched.is_due("v", 2) && !watched.is_due("v", 2), "and then more rarely again");
    }
}
