//! The right disk: devices whose names change hands, that are rolled back, that come late or go for a while; and one volume by itself.

use super::Manager;
use super::fake::World;
use super::tests::started;
use super::waiting::Watched;
use api::options::OptionsPatch;
use api::words::Export;
use api::{Action, Answer, Done, Health, PoolCreate, VolumeAdd, VolumeSet, VolumeView};
use std::collections::BTreeMap;

const SSD: &str = "/dev/ssd";

fn world() -> World {
    let world = World::default();
    for path in [SSD, "/dev/sda", "/dev/sdb", "/dev/sdc"] {
        world.add_device(path, 1 << 30);
    }
    world
}

/// Volumes `a` and `b` over `/dev/sda` and `/dev/sdb`, versions 5 and 6.
fn two(world: &World, mode: &str) -> Manager {
    let manager = started(world);
    let pool = PoolCreate {
        name: "p".into(),
        ssd: SSD.into(),
        size_bytes: None,
        ram_bytes: None,
        content: None,
        force: false,
        on_blank_ssd: None,
        spare_percent: None,
    };
    manager.handle(Action::PoolCreate(pool)).expect("nothing fails");
    for (name, backing, version) in [("a", "/dev/sda", 5), ("b", "/dev/sdb", 6)] {
        let options = OptionsPatch { mode: Some(mode.into()), ..OptionsPatch::default() };
        let (name, backing) = (name.to_string(), backing.to_string());
        let add = VolumeAdd { name: name.clone(), pool: "p".into(), backing, exports: vec![Export::LOOP], sector_bytes: None, options };
        manager.handle(Action::VolumeAdd(add)).expect("nothing fails");
        assert!(world.write(&name, version));
    }
    manager
}

fn view(manager: &Manager, name: &str) -> VolumeView {
    match manager.handle(Action::VolumeShow { name: name.into() }) {
        Ok(Answer::Volume(view)) => *view,
        other => panic!("{other:?}"),
    }
}

fn told(manager: &Manager, action: Action) -> String {
    match manager.handle(action) {
        Ok(Answer::Done(Done { summary: Some(told), .. })) => told,
        other => panic!("{other:?}"),
    }
}

fn start(name: &str) -> Action {
    Action::VolumeStart { name: name.into() }
}

fn stop(name: &str) -> Action {
    Action::VolumeStop { name: name.into(), give_up: false, force: false }
}

fn swap(world: &World, one: &str, other: &str) {
    let mut inside = world.inside();
    let (first, second) = (inside.devices.remove(one), inside.devices.remove(other));
    inside.devices.extend(first.map(|device| (other.into(), device)));
    inside.devices.extend(second.map(|device| (one.into(), device)));
}

/// The names of two disks are swapped by a reboot, in every mode, after a clean stop and after a crash: each volume has its own disk.
#[test]
fn volumes_find_their_disks_when_the_names_are_swapped() {
    for mode in ["write-through", "write-back", "write-around", "pass-through"] {
        for clean in [true, false] {
            let world = world();
            let manager = two(&world, mode);
            if clean {
                manager.stop().expect("nothing fails");
            }
            swap(&world, "/dev/sda", "/dev/sdb");
            let manager = started(&world);
            for (name, backing, version) in [("a", "/dev/sdb", 5), ("b", "/dev/sda", 6)] {
                let view = view(&manager, name);
                assert_eq!((view.health, view.backing.as_str()), (Health::Running, backing), "{mode}: {view:?}");
                assert_eq!(world.read(name), Some(version), "{mode}");
            }
            let events: Vec<String> = manager.events_after(0).into_iter().map(|event| event.message).collect();
            assert!(events.iter().any(|e| e.contains("is /dev/sdb now (it was /dev/sda): recognised by its serial number")), "{events:?}");
            // And so it stays.
            drop(manager);
            let manager = started(&world);
            assert_eq!((view(&manager, "a").backing.as_str(), world.read("a")), ("/dev/sdb", Some(5)), "{mode}");
        }
    }
}

/// Another disk has the name, and the right one is nowhere: nothing is offered under the volume's name, in no mode. A volume of its own over
/// that disk is another matter.
#[test]
fn another_disk_is_never_offered() {
    for mode in ["write-through", "write-back", "write-around", "pass-through"] {
        let world = world();
        drop(two(&world, mode));
        world.inside().devices.remove("/dev/sda");
        swap(&world, "/dev/sda", "/dev/sdc");
        let manager = started(&world);
        let seen = view(&manager, "a");
        let problem = seen.problem.clone().unwrap_or_default();
        assert!(seen.health == Health::Failed && problem.contains("is another one: its serial number was"), "{mode}: {seen:?}");
        assert_eq!((world.read("a"), world.read("b")), (None, Some(6)), "{mode}");
        let remedy = seen.remedy.unwrap_or_default();
        assert!(remedy.contains("starts by itself") && remedy.contains("--accept-backing"), "{remedy}");
        let add = VolumeAdd {
            name: "c".into(),
            pool: "p".into(),
            backing: "/dev/sda".into(),
            exports: Vec::new(),
            sector_bytes: None,
            options: OptionsPatch::default(),
        };
        manager.handle(Action::VolumeAdd(add)).expect("it is not the disk of volume a");
    }
}

/// Disks that tell nothing about themselves are known by what lies on them; of two that are alike in that, neither is taken.
#[test]
fn what_lies_on_a_disk_tells_which_it_is() {
    let world = world();
    for (path, uuid) in [("/dev/sda", "A"), ("/dev/sdb", "B"), ("/dev/sdc", "C")] {
        let mut inside = world.inside();
        let device = inside.devices.get_mut(path).expect("it is there");
        (device.serial, device.content) = (String::new(), Some(uuid.into()));
    }
    drop(two(&world, "write-through"));
    swap(&world, "/dev/sda", "/dev/sdb");
    let manager = started(&world);
    assert_eq!((view(&manager, "a").backing.as_str(), world.read("a")), ("/dev/sdb", Some(5)));
    drop(manager);
    // The disk of `a` is gone from its place, and two have what lay on it.
    let copy = world.inside().devices["/dev/sdb"].clone();
    world.inside().devices.insert("/dev/sdd".into(), copy.clone());
    world.inside().devices.insert("/dev/sde".into(), copy);
    world.inside().devices.remove("/dev/sdb");
    let manager = started(&world);
    let problem = view(&manager, "a").problem.unwrap_or_default();
    assert!(problem.contains("one is a copy of the other") && world.read("a").is_none(), "{problem}");
}

/// A disk comes late: its volume starts by itself, wherever the disk is then, and no other volume is touched.
#[test]
fn a_volume_starts_by_itself_when_its_disk_is_there() {
    for mode in ["write-through", "write-back"] {
        let world = world();
        drop(two(&world, mode));
        let disk = world.inside().devices.remove("/dev/sda").expect("it is there");
        let manager = started(&world);
        let mut watched = Watched::default();
        let seen = view(&manager, "a");
        assert!(seen.health == Health::Failed && seen.remedy.unwrap_or_default().contains("starts by itself"), "{mode}");
        let errors = |manager: &Manager| manager.events_after(0).len();
        manager.watch_devices(&mut watched);
        let before = errors(&manager);
        (0..20).for_each(|_| manager.watch_devices(&mut watched));
        assert_eq!(errors(&manager), before, "nothing is told again and again");
        assert!(world.write("b", 7), "the other one runs");
        world.inside().devices.insert("/dev/sdz".into(), disk);
        manager.watch_devices(&mut watched);
        let seen = view(&manager, "a");
        assert_eq!((seen.health, seen.backing.as_str(), world.read("a")), (Health::Running, "/dev/sdz", Some(5)), "{mode}: {seen:?}");
        assert_eq!(world.read("b"), Some(7));
        assert!(seen.problem.is_none() && seen.exports.values().all(Option::is_some));
    }
}

/// A disk goes while its volume runs, and comes back: with the exports as they were if nothing can be lost, with new ones else.
#[test]
fn a_volume_goes_on_when_its_disk_is_back() {
    for lost in [false, true] {
        let world = world();
        let manager = two(&world, "write-back");
        let mut watched = Watched::default();
        let disk = world.inside().devices.remove("/dev/sda").expect("it is there");
        manager.watch_devices(&mut watched);
        let seen = view(&manager, "a");
        assert!(seen.health == Health::Failed && seen.problem.unwrap_or_default().contains("went away"), "{lost}");
        manager.watch_devices(&mut watched);
        world.inside().lost_writes = lost;
        world.inside().devices.insert("/dev/sdz".into(), disk);
        (0..70).for_each(|_| manager.watch_devices(&mut watched));
        let seen = view(&manager, "a");
        assert_eq!((seen.health, seen.backing.as_str(), world.read("a")), (Health::Running, "/dev/sdz", Some(5)), "{lost}: {seen:?}");
        let again = manager.events_after(0).iter().any(|event| event.message.contains("its exports are made again"));
        assert_eq!(again, lost);
        assert_eq!(view(&manager, "b").health, Health::Running);
    }
}

/// One volume is stopped, its disk may be taken elsewhere, and it is started again; the others run on. It stays stopped over restarts.
#[test]
fn a_volume_is_stopped_and_started_by_itself() {
    for mode in ["write-through", "write-back"] {
        let world = world();
        let manager = two(&world, mode);
        let said = told(&manager, stop("a"));
        assert!(said.contains(if mode == "write-back" { "4 KiB of dirty data stay on the SSD" } else { "is complete and free" }), "{said}");
        assert_eq!((view(&manager, "a").health, world.read("a"), world.read("b")), (Health::Stopped, None, Some(6)), "{mode}");
        assert!(told(&manager, stop("a")).contains("already"));
        let mut watched = Watched::default();
        (0..5).for_each(|_| manager.watch_devices(&mut watched));
        assert_eq!(view(&manager, "a").health, Health::Stopped, "it does not start by itself");
        manager.stop().expect("nothing fails");
        let manager = started(&world);
        assert_eq!((view(&manager, "a").health, world.read("b")), (Health::Stopped, Some(6)), "{mode}");
        swap(&world, "/dev/sda", "/dev/sdc");
        assert!(told(&manager, start("a")).contains("/dev/sdc"));
        assert_eq!((view(&manager, "a").health, world.read("a")), (Health::Running, Some(5)), "{mode}");
        assert!(told(&manager, start("a")).contains("already"));
    }
}

/// What is dirty when a volume is stopped counts, and not what was dirty when the pool started: a disk that was changed meanwhile is refused.
#[test]
fn what_became_dirty_since_the_pool_started_is_not_given_up() {
    let world = world();
    let manager = two(&world, "write-back");
    told(&manager, stop("a"));
    world.inside().devices.get_mut("/dev/sda").expect("it is there").version = 77;
    let refused = manager.handle(start("a")).expect_err("its dirty data would be lost or mixed").refusal().to_string();
    assert!(refused.contains("written by others") && refused.contains("--accept-backing"), "{refused}");
    let set = VolumeSet { accept_backing: true, ..VolumeSet::default() };
    let said = told(&manager, Action::VolumeSet { name: "a".into(), set });
    assert!(said.contains("dropped") && said.contains("its dirty data is kept"), "{said}");
    assert_eq!(world.read("a"), Some(5));
}

/// A disk is rolled back while the daemon is killed: the clean cache goes; dirty data is not mixed with what is older.
#[test]
fn a_disk_that_was_rolled_back_is_noticed_after_a_crash() {
    let world = world();
    let manager = two(&world, "write-through");
    manager.note_stamps(&mut BTreeMap::new());
    assert!(!world.inside().saved.volumes[0].noted.is_empty());
    let steps = world.inside().steps;
    let mut looked = BTreeMap::new();
    manager.note_stamps(&mut looked);
    assert!(!looked["a"].1, "it may have been too early");
    manager.note_stamps(&mut looked);
    assert!(looked["a"].1, "the last look at an idle disk");
    assert_eq!(world.inside().steps, steps, "nothing new, nothing done");
    drop(manager);
    // What is cached of it is elsewhere than what is compared.
    let id = world.inside().saved.volumes[0].id;
    world.inside().devices.get_mut("/dev/sda").expect("it is there").version = 3;
    world.inside().devices.get_mut(SSD).expect("it is there").log.insert(id, (3, false));
    let manager = started(&world);
    let events: Vec<String> = manager.events_after(0).into_iter().map(|event| event.message).collect();
    assert!(events.iter().any(|e| e.contains("was rolled back to an earlier state") && e.contains("is dropped")), "{events:?}");
    assert_eq!((view(&manager, "a").health, world.read("a")), (Health::Running, Some(3)));
    assert_ne!(world.inside().saved.volumes[0].id, id, "nothing of the old cache is left");
    drop(manager);
    let world = self::world();
    let manager = two(&world, "write-back");
    world.inside().devices.get_mut("/dev/sda").expect("it is there").version = 4;
    manager.note_stamps(&mut BTreeMap::new());
    drop(manager);
    world.inside().devices.get_mut("/dev/sda").expect("it is there").version = 3;
    let manager = started(&world);
    let problem = view(&manager, "a").problem.unwrap_or_default();
    assert!(
        problem.contains("rolled back to an earlier state: its last write was 4 and is now 3") && world.read("a").is_none(),
        "{problem}"
    );
}

#[test]
fn a_word_drops_the_clean_cache_and_says_so() {
    let world = world();
    let manager = two(&world, "write-through");
    let drop_cache = |name: &str| Action::VolumeDropCache { name: name.into() };
    assert!(told(&manager, drop_cache("a")).starts_with("4 KiB of clean cache"));
    assert_eq!(view(&manager, "a").cached_bytes, Some(0));
    let set = VolumeSet { accept_backing: true, ..VolumeSet::default() };
    let said = told(&manager, Action::VolumeSet { name: "b".into(), set });
    assert!(said.contains("4 KiB of clean cache"), "{said}");
    assert_eq!((view(&manager, "b").cached_bytes, world.read("b")), (Some(0), Some(6)));
    told(&manager, stop("a"));
    let refused = manager.handle(drop_cache("a")).expect_err("it does not run").refusal().to_string();
    assert!(refused.contains("is not running") && refused.contains("hearth volume start a"), "{refused}");
}

/// The names of two SSDs are swapped: a pool finds its own by the UUID on it.
#[test]
fn a_pool_finds_its_ssd_when_the_names_are_swapped() {
    let world = world();
    drop(two(&world, "write-back"));
    swap(&world, SSD, "/dev/sdc");
    let manager = started(&world);
    assert_eq!((view(&manager, "a").health, world.read("a")), (Health::Running, Some(5)));
    assert_eq!(world.inside().saved.pools[0].ssd, "/dev/sdc");
}

/// A device that grew beyond what a volume can have is refused, stopped or started, and comes back when it is right again.
#[test]
fn a_device_beyond_64_tib_is_refused_wherever_it_enters() {
    let beyond = types::VOLUME_BYTES_MAX + 4096;
    for mode in ["write-through", "write-back"] {
        let world = world();
        let size = |bytes| world.inside().devices.get_mut("/dev/sda").expect("it is there").size_bytes = bytes;
        let manager = two(&world, mode);
        told(&manager, stop("a"));
        size(beyond);
        let refused = |error: api::error::ControlError| error.refusal().to_string();
        let at_start = refused(manager.handle(start("a")).expect_err("it is too large"));
        assert!(at_start.contains("more than the 64 TiB that a volume can have"), "{at_start}");
        let set = VolumeSet { accept_backing: true, ..VolumeSet::default() };
        let accepted = refused(manager.handle(Action::VolumeSet { name: "a".into(), set }).expect_err("it is too large"));
        assert!(accepted.contains("more than the 64 TiB"), "{accepted}");
        drop(manager);
        let manager = started(&world);
        assert!(view(&manager, "a").problem.unwrap_or_default().contains("more than the 64 TiB") && world.read("a").is_none());
        size(types::VOLUME_BYTES_MAX);
        let mut watched = Watched::default();
        manager.watch_devices(&mut watched);
        assert_eq!((view(&manager, "a").health, world.read("a")), (Health::Running, Some(5)), "{mode}");
    }
}

fn add_over(backing: &str, mode: &str, read_only: Option<bool>) -> Action {
    let options = OptionsPatch { mode: Some(mode.into()), read_only, ..OptionsPatch::default() };
    let (name, backing) = ("c".to_string(), backing.to_string());
    Action::VolumeAdd(VolumeAdd { name, pool: "p".into(), backing, exports: vec![Export::LOOP], sector_bytes: None, options })
}

/// A disk that refuses writes: no volume that may be written is made over it, and one that has it later waits until it can be written.
#[test]
fn a_read_only_disk_is_refused_to_all_who_may_write() {
    for mode in ["write-through", "write-back", "write-around", "pass-through"] {
        let world = world();
        let manager = two(&world, mode);
        world.inside().devices.get_mut("/dev/sdc").expect("it is there").read_only = true;
        let before = world.inside().saved.clone();
        let refused = manager.handle(add_over("/dev/sdc", mode, None)).expect_err("nothing could be written").refusal().to_string();
        assert!(refused.contains("it is read-only") && refused.contains("with --read-only"), "{refused}");
        assert_eq!(refused.contains("--mode write-through"), mode == "write-back", "{refused}");
        assert_eq!(world.inside().saved, before, "a refusal changes nothing");
        if mode != "write-back" {
            manager.handle(add_over("/dev/sdc", mode, Some(true))).expect("it is only read");
            assert_eq!(view(&manager, "c").health, Health::Running);
        }
        let ssd = PoolCreate {
            name: "q".into(),
            ssd: "/dev/sdc".into(),
            size_bytes: None,
            ram_bytes: None,
            content: None,
            force: true,
            on_blank_ssd: None,
            spare_percent: None,
        };
        if mode == "write-back" {
            let refused = manager.handle(Action::PoolCreate(ssd)).expect_err("an SSD is written").refusal().to_string();
            assert!(refused.contains("it is read-only"), "{refused}");
        }
        // The switch of a disk, and a start after a crash.
        world.inside().devices.get_mut("/dev/sda").expect("it is there").read_only = true;
        drop(manager);
        let manager = started(&world);
        let (a, b) = (view(&manager, "a"), view(&manager, "b"));
        assert_eq!((a.health, b.health), (Health::Failed, Health::Running), "{mode}: {a:?}");
        assert_eq!(a.problem.as_deref(), Some("its backing device /dev/sda is read-only"), "{mode}");
        world.inside().devices.get_mut("/dev/sda").expect("it is there").read_only = false;
        manager.watch_devices(&mut Watched::default());
        assert_eq!((view(&manager, "a").health, world.read("a")), (Health::Running, Some(5)), "{mode}");
    }
}
