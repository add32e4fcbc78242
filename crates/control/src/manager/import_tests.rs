//! A pool taken in from its SSD: the state was lost, or is older, or the SSD and its disks come to another machine.

use super::Manager;
use super::fake::World;
use super::tests::{DISK, SSD, add, create, started, world};
use super::waiting::Watched;
use api::error::ControlError;
use api::{Action, Answer, Health, PoolCreate, PoolFoundView, PoolImport, VolumeView};
use records::state::State;
use std::collections::BTreeMap;

const DISK2: &str = "/disk2";

fn import() -> PoolImport {
    PoolImport { ssd: SSD.into(), ..PoolImport::default() }
}

fn look(manager: &Manager, import: PoolImport) -> Result<PoolFoundView, ControlError> {
    match manager.handle(Action::PoolLook(import))? {
        Answer::PoolFound(found) => Ok(*found),
        other => panic!("{other:?}"),
    }
}

fn take_in(manager: &Manager, import: PoolImport) -> Result<(), ControlError> {
    manager.handle(Action::PoolImport(import)).map(drop)
}

fn volume(manager: &Manager, name: &str) -> VolumeView {
    match manager.handle(Action::VolumeShow { name: name.into() }) {
        Ok(Answer::Volume(view)) => *view,
        other => panic!("{other:?}"),
    }
}

fn must(manager: &Manager, action: Action) {
    manager.handle(action).expect("nothing fails");
    while manager.jobs_running() > 0 {
        std::thread::yield_now();
    }
}

/// The write-back volume `v` with a dirty block of version 2, and the write-through volume `w` with version 3; killed, and the state is lost.
fn lost() -> World {
    let world = world();
    let manager = started(&world);
    must(&manager, create());
    must(&manager, add("v", DISK, "write-back"));
    must(&manager, add("w", DISK2, "write-through"));
    assert!(world.write("v", 2) && world.write("w", 3));
    manager.write_due_records();
    drop(manager);
    world.inside().saved = State::default();
    world
}

fn check_served(world: &World, manager: &Manager) {
    for (name, version) in [("v", 2), ("w", 3)] {
        assert_eq!((volume(manager, name).health, world.read(name)), (Health::Running, Some(version)), "{name}");
    }
}

fn bring_home(world: &World, manager: &Manager, disk: &str) {
    must(manager, Action::VolumeDestage { name: "v".into() });
    assert_eq!(world.inside().devices[disk].version, 2);
}

#[test]
fn a_pool_whose_state_was_lost_is_shown_and_taken_in() {
    let world = lost();
    let manager = started(&world);
    let again = PoolCreate {
        name: "p".into(),
        ssd: SSD.into(),
        size_bytes: None,
        ram_bytes: None,
        content: None,
        force: false,
        on_blank_ssd: None,
        spare_percent: None,
    };
    let refused = manager.handle(Action::PoolCreate(again)).expect_err("it carries a pool");
    assert!(refused.remedy().starts_with("take that pool in with `hearth pool import /ssd`"), "{}", refused.remedy());
    let before = world.inside().devices[SSD].log.clone();
    let found = look(&manager, import()).expect("it can be read");
    assert_eq!((found.name.as_deref(), found.known_as, found.volumes.len()), (Some("p"), None, 2));
    let v = &found.volumes[0];
    assert_eq!((v.name.as_str(), v.dirty_bytes, v.backing.as_deref(), v.problem.as_deref()), ("v", 4096, Some(DISK), None));
    assert_eq!(v.identity["serial number"], "serial of /disk");
    assert_eq!(world.inside().saved, State::default(), "a look changes nothing");
    assert_eq!(world.inside().devices[SSD].log, before, "nor there");
    take_in(&manager, import()).expect("all is there");
    check_served(&world, &manager);
    assert_eq!(volume(&manager, "v").exports.len(), 2, "they are offered as they were");
    drop(manager);
    let manager = started(&world);
    check_served(&world, &manager);
    bring_home(&world, &manager, DISK);
    let refused = take_in(&manager, import()).expect_err("it is here").to_string();
    assert!(refused.contains("the SSD of the pool \"p\" here"), "{refused}");
}

/// An earlier version left a log there: the import upgrades it, and says so before; one that cannot be upgraded is not taken in.
#[test]
fn a_log_is_upgraded_and_one_that_cannot_be_changes_nothing() {
    let world = lost();
    let log = |log| world.inside().devices.get_mut(SSD).expect("it is there").old_log = log;
    log(Some(Err("its log cannot be upgraded".into())));
    let manager = started(&world);
    let found = look(&manager, import()).expect("it can be read");
    assert_eq!(found.upgrade.as_deref(), Some("its log cannot be upgraded; ask the older version"));
    let refused = take_in(&manager, import()).expect_err("it cannot be started here");
    assert_eq!((refused.reason().as_str(), refused.remedy().as_str()), ("/ssd: its log cannot be upgraded", "ask the older version"));
    assert_eq!(world.inside().saved, State::default(), "nothing is changed");
    log(Some(Ok(())));
    let found = look(&manager, import()).expect("it can be read");
    assert_eq!(found.upgrade.as_deref(), Some("taking it in upgrades its log, for good: 4 KiB carried over"));
    take_in(&manager, import()).expect("all is there");
    check_served(&world, &manager);
    let said = manager.events_after(0).into_iter().filter(|event| event.object == "p" && event.message == "its log was upgraded").count();
    assert_eq!((said, world.inside().devices[SSD].old_log.clone()), (1, None));
}

/// On another machine the devices have other names.
#[test]
fn disks_are_found_by_their_identity_and_asked_for_where_they_are_not() {
    let world = lost();
    for (from, to) in [(SSD, "/dev/nvme7n1"), (DISK, "/dev/sdx"), (DISK2, "/dev/sdy")] {
        let mut inside = world.inside();
        let device = inside.devices.remove(from).expect("it is there");
        inside.devices.insert(to.into(), device);
    }
    let away = world.inside().devices.remove("/dev/sdx").expect("it is there");
    let import = || PoolImport { ssd: "/dev/nvme7n1".into(), ..PoolImport::default() };
    let manager = started(&world);
    let found = look(&manager, import()).expect("it can be read");
    let places: Vec<Option<&str>> = found.volumes.iter().map(|volume| volume.backing.as_deref()).collect();
    assert_eq!(places, [None, Some("/dev/sdy")]);
    assert!(found.volumes[0].problem.as_ref().is_some_and(|problem| problem.contains("not found under any name")));
    let refused = take_in(&manager, import()).expect_err("a disk is missing");
    assert!(refused.remedy().contains("--backing v=PATH") && refused.remedy().contains("--missing-later"), "{refused}");
    assert_eq!(world.inside().saved, State::default());
    take_in(&manager, PoolImport { missing_later: true, ..import() }).expect("it may come later");
    assert_eq!((world.read("v"), world.read("w")), (None, Some(3)));
    world.inside().devices.insert("/dev/sdx".into(), away);
    let mut watched = Watched::default();
    (0..3).for_each(|_| manager.watch_devices(&mut watched));
    check_served(&world, &manager);
    bring_home(&world, &manager, "/dev/sdx");
}

/// Another device than the one that it was is taken only because a person says so; it gets the dirty data, and what was cached clean goes.
#[test]
fn a_device_that_is_named_is_taken_and_one_that_cannot_be_is_not() {
    let world = lost();
    world.inside().devices.remove(DISK);
    world.add_device("/dev/copy", 1 << 30);
    world.add_device("/dev/small", 1 << 20);
    let manager = started(&world);
    let named = |volume: &str, path: &str| PoolImport { backings: BTreeMap::from([(volume.into(), path.into())]), ..import() };
    for (volume, path, why) in
        [("v", "/dev/small", "less than the 1 GiB"), ("x", "/dev/copy", "not on /ssd"), ("v", SSD, "superblock of a hearth pool")]
    {
        let refused = take_in(&manager, named(volume, path)).expect_err("it cannot be").to_string();
        assert!(refused.contains(why), "{refused}");
    }
    assert_eq!(world.inside().saved, State::default());
    take_in(&manager, named("v", "/dev/copy")).expect("a person says so");
    check_served(&world, &manager);
    bring_home(&world, &manager, "/dev/copy");
}

/// Two volumes on one device would write over each other.
#[test]
fn the_disk_of_another_volume_is_refused() {
    let world = lost();
    let manager = started(&world);
    let backings = BTreeMap::from([("v".to_string(), DISK2.to_string())]);
    let refused = take_in(&manager, PoolImport { backings, ..import() }).expect_err("w lies there");
    assert!(refused.to_string().contains("would both lie on /disk2") && refused.remedy().contains("--backing"), "{refused}");
    assert_eq!(world.inside().saved, State::default());
}

/// What others wrote to a disk between a stop in order and the import is seen by the stamps on the SSD: dirty data is not written over it, and clean
/// blocks are dropped.
#[test]
fn what_others_wrote_since_a_stop_in_order_is_noticed() {
    for written in [false, true] {
        let world = world();
        let manager = started(&world);
        must(&manager, create());
        must(&manager, add("v", DISK, "write-back"));
        must(&manager, add("w", DISK2, "write-through"));
        assert!(world.write("v", 2) && world.write("w", 3));
        manager.stop().expect("nothing fails");
        drop(manager);
        world.inside().saved = State::default();
        if written {
            for (disk, version) in [(DISK, 70), (DISK2, 71)] {
                world.inside().devices.get_mut(disk).expect("it is there").version = version;
            }
        }
        let manager = started(&world);
        let known = look(&manager, import()).expect("it can be read").volumes[0].problem.clone();
        assert_eq!(known.is_some_and(|problem| problem.contains("written by others")), written);
        let taken = PoolImport { missing_later: written, ..import() };
        take_in(&manager, taken).expect("the pool is taken in");
        match written {
            false => check_served(&world, &manager),
            true => {
                let v = volume(&manager, "v");
                assert!(v.health == Health::Failed && v.problem.is_some_and(|problem| problem.contains("written by others")));
                assert_eq!((world.read("v"), world.read("w")), (None, Some(71)), "nobody reads what was cached before");
                assert_eq!(world.inside().devices[DISK].version, 70, "nothing was written over it");
            }
        }
    }
}

#[test]
fn names_that_are_taken_can_be_others() {
    let world = lost();
    world.add_device("/other", 1 << 30);
    world.add_device("/third", 1 << 30);
    let manager = started(&world);
    let other = PoolCreate {
        name: "p".into(),
        ssd: "/other".into(),
        size_bytes: None,
        ram_bytes: None,
        content: None,
        force: false,
        on_blank_ssd: None,
        spare_percent: None,
    };
    must(&manager, Action::PoolCreate(other));
    must(&manager, add("v", "/third", "write-through"));
    let saved = world.inside().saved.clone();
    let refused = take_in(&manager, import()).expect_err("the pool's name is taken");
    assert!(refused.remedy().contains("--name"), "{refused}");
    let named = PoolImport { name: Some("q".into()), ..import() };
    let refused = take_in(&manager, named.clone()).expect_err("a volume's name is taken");
    assert!(refused.remedy().contains("--rename v=NEW"), "{refused}");
    assert_eq!(world.inside().saved, saved);
    take_in(&manager, PoolImport { renames: BTreeMap::from([("v".into(), "v2".into())]), ..named }).expect("all names are free");
    drop(manager);
    let manager = started(&world);
    assert_eq!((world.read("v2"), world.read("w"), volume(&manager, "v2").pool.as_str()), (Some(2), Some(3), "q"));
}

/// The state is there and older than the SSD: what the SSD says takes its place.
#[test]
fn an_older_state_is_brought_up_to_date() {
    let world = world();
    let manager = started(&world);
    must(&manager, create());
    must(&manager, add("v", DISK, "write-through"));
    must(&manager, add("gone", "/ssd2", "write-through"));
    let older = world.inside().saved.clone();
    must(&manager, Action::VolumeRemove { name: "gone".into(), drop_dirty: false });
    must(&manager, Action::VolumeRemove { name: "v".into(), drop_dirty: false });
    must(&manager, add("v", DISK, "write-back"));
    must(&manager, add("w", DISK2, "write-through"));
    assert!(world.write("v", 2) && world.write("w", 3));
    manager.write_due_records();
    drop(manager);
    world.inside().saved = older;
    let manager = started(&world);
    assert_eq!(world.read("v"), None);
    let found = look(&manager, import()).expect("it can be read");
    assert_eq!(found.known_as.as_deref(), Some("p"));
    take_in(&manager, import()).expect("all is there");
    check_served(&world, &manager);
    assert!(matches!(manager.handle(Action::VolumeShow { name: "gone".into() }), Err(ControlError::Unknown { .. })));
    drop(manager);
    let manager = started(&world);
    check_served(&world, &manager);
    bring_home(&world, &manager, DISK);
}

/// Whatever fails, and wherever the power goes: the pool is taken in or it is not, and then it can be.
#[test]
fn an_import_fails_at_every_step() {
    for crash in [false, true] {
        for step in 1.. {
            let world = lost();
            let manager = started(&world);
            {
                let mut inside = world.inside();
                (inside.fail_at, inside.crash) = (Some(inside.steps + step), crash);
            }
            let result = take_in(&manager, import());
            let untouched = {
                let inside = world.inside();
                inside.fail_at.is_some_and(|at| at > inside.steps)
            };
            drop(manager);
            let manager = started(&world);
            if world.inside().saved.pools.is_empty() {
                assert!(result.is_err(), "crash {crash}, step {step}: it is said to be taken in");
                take_in(&manager, import()).unwrap_or_else(|error| panic!("crash {crash}, step {step}: {error}"));
            }
            check_served(&world, &manager);
            bring_home(&world, &manager, DISK);
            if untouched {
                assert!(step > 5, "hardly anything was tested");
                result.expect("nothing went wrong");
                break;
            }
        }
    }
}
