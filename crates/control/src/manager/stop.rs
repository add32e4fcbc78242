//! The clean stop: exports go, shards quiesce, checkpoints are written, and what the backing devices are like is noted.
//!
//! Each pool stops on a thread of its own, up to the save that calls its volumes stopped, so that no pool waits for the devices of another. What
//! they wait for is told and given up by [`super::stop_watch`].

use super::stop_watch::{STOP_LIMIT, Step, Watch};
use super::work::LOOK;
use super::{Manager, stamps};
use api::error::ControlError;
use api::{Health, Severity};
use datapath::Withdrawal;
use records::state::{BackingIdentity, Kept, VolumeRecord};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

impl Manager {
    /// Sets how long a stop may take; once, before anything is asked.
    pub fn set_stop_limit(&self, limit: Duration) {
        self.shared.stop_limit.get_or_init(|| limit);
    }

    /// Stops everything cleanly. Called once, with nothing else to follow; actions are refused from here on.
    ///
    /// Dirty data stays on the SSD and is found there by the next start. An export that is still in use (mounted) is taken away
    /// all the same: the process ends. A device that does not answer is given up, and this returns after the limit at the latest: something may
    /// still wait for a device then, so the process is to end without waiting for its threads.
    ///
    /// # Errors
    /// The first failure. What could be stopped cleanly is; the rest is recovered by the next start as after a crash.
    pub fn stop(&self) -> Result<(), ControlError> {
        let limit = *self.shared.stop_limit.get_or_init(|| STOP_LIMIT);
        let watch = self.shared.stop_watch.get_or_init(|| Arc::new(Watch::new(limit)));
        self.memory().stopping = true;
        self.data().end_by(watch.deadline());
        // While clients are still served: nothing of the stop waits for it before its end.
        let saved = self.save_watches_at_end();
        self.running_jobs().iter().for_each(|job| job.cancel());
        self.data()
            .figures()
            .volumes
            .iter()
            .for_each(|(name, figures)| figures.stats.dirty_bytes.iter().for_each(|bytes| watch.note_dirty(name, *bytes)));
        let mut pools: BTreeSet<String> = self.memory().state.pools.iter().map(|pool| pool.name.clone()).collect();
        // That of trials; one may just be coming.
        pools.insert(String::new());
        let (done, ended) = channel();
        for pool in &pools {
            let (manager, watch, pool, done) = (self.clone(), watch.clone(), pool.clone(), done.clone());
            // Nobody listens any more when the limit is over.
            let stop = move || drop(done.send((pool.clone(), manager.stop_one_pool(&pool, &watch))));
            if std::thread::Builder::new().name("stop".into()).spawn(stop.clone()).is_err() {
                stop();
            }
        }
        drop(done);
        let deadline = watch.deadline();
        let mut errors = self.watch_stop(watch, &ended, pools);
        if saved.recv_timeout(deadline.saturating_duration_since(Instant::now())) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("what was learned of loads in the last minutes may not be saved: the state directory's disk does not answer");
        }
        self.data().finish();
        if errors.is_empty() { Ok(()) } else { Err(errors.swap_remove(0)) }
    }

    /// Stops a pool and its volumes, up to the save that calls them stopped.
    fn stop_one_pool(&self, pool: &str, watch: &Watch) -> Result<(), ControlError> {
        watch.begins(pool, Step::Jobs);
        let mut objects: BTreeSet<String> = self.memory().state.volumes_of(pool).map(|volume| volume.name.clone()).collect();
        objects.insert(pool.into());
        while !watch.is_over() && self.running_jobs().iter().any(|job| objects.contains(job.object())) {
            std::thread::sleep(LOOK);
        }
        // A volume that is being attached, or whose device another program has led past hearth, may still get its device led here.
        while !watch.is_half_over() && self.is_at_work_on(pool) {
            std::thread::sleep(LOOK);
        }
        watch.begins(pool, Step::Clients);
        let volumes: Vec<VolumeRecord> = self.memory().state.volumes_of(pool).cloned().collect();
        let attached: Vec<&VolumeRecord> = volumes.iter().filter(|volume| self.volume_attached(&volume.name)).collect();
        // What the path of such a file leads to is not what was served.
        let strayed: BTreeSet<&str> =
            attached.iter().filter(|volume| self.tell_what_is_lost_by_the_end(volume)).map(|volume| volume.name.as_str()).collect();
        let mut first_error = None;
        let mut clean = Vec::new();
        // Of a volume whose shards do not all answer nothing is known: it keeps the mark that it may have dirty data.
        let mut dirty_bytes = BTreeMap::new();
        for (volume, released) in self.release_all(&attached) {
            match released {
                Ok(dirty) => {
                    clean.push(volume);
                    dirty_bytes.extend(dirty.map(|bytes| (volume.name.as_str(), bytes)));
                }
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        dirty_bytes.iter().for_each(|(volume, bytes)| watch.note_dirty(volume, *bytes));
        self.lead_latecomers_past(pool);
        if let Err(error) = self.abandon_disks(pool, Withdrawal::DaemonEnds) {
            first_error = first_error.or(Some(error));
        }
        let is_running = self.memory().pools.get(pool).is_some_and(|live| live.health == Health::Running);
        // Also of a pool that has lost its SSD: dirty blocks go home until its shards have stopped.
        if is_running || self.data().has_shards(pool) {
            watch.begins(pool, Step::Shards);
            if let Err(error) = self.data().stop_pool(pool, is_running) {
                self.events().note(Severity::Error, pool, format!("the pool did not stop cleanly: {error}"));
                return Err(first_error.unwrap_or(error));
            }
        }
        watch.begins(pool, Step::BackingDevices);
        // What is cached of others that are attached is dropped by the next start.
        clean.retain(|volume| volume.attachment.is_none() || is_running && self.left_as_it_is(volume).is_some());
        // One that was given up may still change by what was in flight, and would not answer.
        clean.retain(|volume| !watch.has_given_up(&volume.name));
        clean.retain(|volume| !strayed.contains(volume.name.as_str()));
        let noted = self.note_stopped(&clean, &dirty_bytes);
        if is_running && noted.is_ok() {
            self.leave_records(pool);
        }
        let now: Vec<VolumeRecord> = self.memory().state.volumes_of(pool).cloned().collect();
        self.leave_attachments(&now);
        first_error.map_or(noted, Err)
    }

    /// Takes the volumes from their clients, side by side; gives what is dirty of each, as far as that is known.
    fn release_all<'a>(&self, volumes: &[&'a VolumeRecord]) -> Vec<(&'a VolumeRecord, Result<Option<u64>, ControlError>)> {
        let release = |volume: &VolumeRecord| {
            self.lead_past_at_end(volume);
            let gone = self.abandon_exports(volume, Withdrawal::DaemonEnds);
            // A client that is still there may make more dirty.
            let dirty_bytes = if gone { self.data().dirty_bytes(&volume.name).ok() } else { None };
            self.data().detach(volume, false).map(|()| dirty_bytes)
        };
        let [others @ .., last] = volumes else { return Vec::new() };
        std::thread::scope(|scope| {
            let begun: Vec<_> = others.iter().map(|volume| (*volume, scope.spawn(|| release(volume)))).collect();
            let last = (*last, release(last));
            let join = |(volume, released): (_, std::thread::ScopedJoinHandle<'_, _>)| {
                (volume, released.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            };
            begun.into_iter().map(join).chain([last]).collect()
        })
    }

    /// After the last I/O: the backing devices' identities with stamps that mean something.
    fn note_stopped(&self, volumes: &[&VolumeRecord], dirty_bytes: &BTreeMap<&str, u64>) -> Result<(), ControlError> {
        let seen = |volume: &&VolumeRecord| match self.data().examine_backing(&volume.backing) {
            // What somebody has open exclusively cannot be looked at.
            Ok(facts) if facts.in_use.is_some() => None,
            Ok(facts) => Some((volume.name.clone(), facts.identity)),
            Err(error) => {
                let message = format!("its backing device cannot be read ({error}): the next start treats the volume as after a crash");
                self.events().note(Severity::Warning, &volume.name, message);
                None
            }
        };
        let seen: BTreeMap<String, BackingIdentity> = volumes.iter().filter_map(seen).collect();
        let kept: BTreeMap<String, Kept> = volumes.iter().filter_map(|v| Some((v.name.clone(), self.still_as_left(v)?))).collect();
        self.change(|state| {
            for volume in &mut state.volumes {
                let Some(identity) = seen.get(&volume.name) else {
                    continue;
                };
                let kept = kept.get(&volume.name).cloned();
                let kept = kept
                    .filter(|_| stamps::tell_of_writes(identity))
                    .map(|kept| Kept { for_next_boot: kept.for_next_boot && stamps::tell_of_mounts(identity), ..kept });
                if let Some(attachment) = &mut volume.attachment {
                    (attachment.tables, attachment.kept) = (Vec::new(), kept);
                }
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
    use crate::manager::fake::World;
    use api::options::OptionsPatch;
    use api::{Action, PoolCreate, PoolReplace, VolumeAdd};
    use datapath::DeviceUse;
    use records::state::State;
    use std::time::Instant;

    /// A daemon with two pools: `p` with the volumes `v` and `w`, `q` with `x`; all write-back.
    fn daemon(world: &World) -> Manager {
        for path in ["/dev/ssd-p", "/dev/ssd-q", "/dev/v", "/dev/w", "/dev/x"] {
            world.add_device(path, 1 << 30);
        }
        let manager =
            Manager::open(Arc::new(world.clone()), Box::new(world.clone()), std::path::Path::new("/state")).expect("an empty state");
        manager.start().expect("nothing fails");
        for pool in ["p", "q"] {
            let ssd = format!("/dev/ssd-{pool}");
            let create = PoolCreate {
                name: pool.into(),
                ssd,
                size_bytes: None,
                ram_bytes: None,
                content: None,
                force: false,
                on_blank_ssd: None,
                spare_percent: None,
            };
            manager.handle(Action::PoolCreate(create)).expect("nothing fails");
        }
        for (volume, pool) in [("v", "p"), ("w", "p"), ("x", "q")] {
            let options = OptionsPatch { mode: Some("write-back".into()), ..OptionsPatch::default() };
            let (name, pool, backing) = (volume.into(), pool.into(), format!("/dev/{volume}"));
            manager
                .handle(Action::VolumeAdd(VolumeAdd { name, pool, backing, exports: Vec::new(), sector_bytes: None, options }))
                .expect("nothing fails");
        }
        manager
    }

    /// Whether a write-back volume without dirty data keeps its mark over a stop.
    fn keeps_mark(silent: bool) -> bool {
        let world = World::default();
        let manager = daemon(&world);
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

    /// Stops while these devices hang; gives the error, and the names of the volumes that have stopped cleanly.
    fn stop_while(hanging: &[DeviceUse], dead_for_good: bool) -> (World, Manager, String, Vec<String>) {
        let world = World::default();
        let manager = daemon(&world);
        assert!(world.write("v", 7));
        manager.set_stop_limit(Duration::from_secs(2));
        world.inside().hanging = hanging.iter().map(|device| (device.clone(), Instant::now())).collect();
        world.inside().dead_for_good = dead_for_good;
        let error = manager.stop().expect_err("not all has stopped cleanly");
        let clean = |inside: &State| inside.volumes.iter().filter(|v| v.stopped_clean).map(|v| v.name.clone()).collect();
        let clean = clean(&world.inside().saved);
        assert!(world.inside().saved.pools.iter().all(|pool| pool.degraded.is_none()), "nothing is on record against an SSD");
        (world, manager, error.to_string(), clean)
    }

    fn backing(volume: &str, pool: &str) -> DeviceUse {
        DeviceUse::Backing { volume: volume.into(), pool: pool.into() }
    }

    #[test]
    fn a_backing_device_that_hangs_is_given_up_alone_and_named() {
        let (world, manager, error, clean) = stop_while(&[backing("v", "p")], false);
        assert_eq!(clean, ["w", "x"]);
        for part in ["/dev/hung", "volume v", "gives up on it", "4 KiB of dirty data stay on the SSD of pool p"] {
            assert!(error.contains(part), "{error}");
        }
        assert_eq!(world.inside().given_up, [backing("v", "p")]);
        assert!(world.inside().saved.volumes[0].may_have_dirty);
        assert!(manager.stop_status().is_some(), "it has waited");
        // The last word may come when the device is given up already.
        let told = manager.shared.stop_watch.get().expect("it has stopped").told.lock().expect("nobody panicked").clone();
        let tells =
            |told: &String| told.contains("pool p takes its exports away") && told.contains("/dev/hung, the backing device of volume v");
        assert!(told.iter().any(tells), "{told:?}");
        // The next start has it all.
        world.reboot();
        let next = Manager::open(Arc::new(world.clone()), Box::new(world.clone()), std::path::Path::new("/state")).expect("a state");
        next.start().expect("nothing fails");
        assert_eq!(world.read("v"), Some(7));
    }

    #[test]
    fn several_that_hang_are_given_up() {
        let (world, _, _, clean) = stop_while(&[backing("v", "p"), backing("w", "p"), backing("x", "q")], false);
        assert_eq!((clean.len(), world.inside().given_up.len()), (0, 3));
    }

    #[test]
    fn a_pool_whose_ssd_hangs_is_left_as_by_a_crash_and_the_others_stop() {
        let ssd = DeviceUse::Ssd { pool: "p".into() };
        let (world, _, error, clean) = stop_while(std::slice::from_ref(&ssd), false);
        assert_eq!(clean, ["x"]);
        assert!(error.contains("the SSD of pool p"), "{error}");
        assert_eq!(world.inside().given_up, [ssd]);
        assert!(world.inside().saved.volumes.iter().filter(|v| v.pool == "p").all(|v| v.may_have_dirty));
    }

    #[test]
    fn what_does_not_even_give_way_is_left_when_the_limit_is_over() {
        let (world, manager, _, clean) = stop_while(&[backing("v", "p")], true);
        assert_eq!(clean, ["x"]);
        let late = |event: &api::EventView| event.object == "p" && event.message.contains("is not stopped after");
        assert!(manager.events_after(0).iter().any(late));
        // So that its thread ends.
        world.inside().hanging.clear();
    }

    /// A device that is dead for good must not keep its volume, or the pool, from being given up by a person; and it takes no other volume along.
    #[test]
    fn who_gives_up_data_does_not_wait_for_a_device_that_hangs() {
        for dropping in [true, false] {
            let world = World::default();
            let manager = daemon(&world);
            world.inside().impatient = true;
            world.inside().hanging.insert(backing("v", "p"), Instant::now());
            world.add_device("/dev/new", 1 << 30);
            let ssd = "/dev/new".into();
            let replace = PoolReplace { ssd, size_bytes: None, force: false, drop_dirty: true };
            manager.handle(Action::PoolReplace { name: "p".into(), replace }).expect("it begins");
            while manager.jobs_running() > 0 {
                std::thread::yield_now();
            }
            assert!(world.read("w").is_some() && manager.volume_view("w").is_ok_and(|view| view.health == Health::Running), "untouched");
            if dropping {
                manager.handle(Action::VolumeRemove { name: "v".into(), drop_dirty: true }).expect("it begins");
                while manager.jobs_running() > 0 {
                    std::thread::yield_now();
                }
            } else {
                manager.handle(Action::PoolDestroy { name: "p".into(), force: true }).expect("it goes");
            }
            assert_eq!(world.inside().given_up, [backing("v", "p")]);
            assert!(!world.inside().saved.volumes.iter().any(|volume| volume.name == "v"));
        }
    }
}
