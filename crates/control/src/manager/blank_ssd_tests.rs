//! A pool whose SSD is blank when it starts: made anew where nothing can be lost and a person has chosen so; refused with the right command else.

use super::Manager;
use super::fake::{Device, World};
use super::tests::{DISK, SSD, add, started, world};
use api::{Action, Answer, Health, PoolCreate, PoolReplace, PoolSet, PoolView, VolumeView};

const STABLE: &str = "/dev/disk/by-path/pci-0000:00:04.0-nvme-1";

fn pool(manager: &Manager) -> PoolView {
    match manager.handle(Action::PoolShow { name: "p".into() }) {
        Ok(Answer::Pool(view)) => *view,
        other => panic!("{other:?}"),
    }
}

fn volume(manager: &Manager) -> VolumeView {
    match manager.handle(Action::VolumeShow { name: "v".into() }) {
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

/// The volume `v` of version 5 on a pool that was killed, whose SSD is blank since.
fn blank(ssd: &str, mode: &str, on_blank: &str) -> World {
    let world = world();
    if ssd != SSD {
        world.add_device(ssd, 1 << 30);
    }
    let manager = started(&world);
    must(
        &manager,
        Action::PoolCreate(PoolCreate {
            name: "p".into(),
            ssd: ssd.into(),
            size_bytes: None,
            ram_bytes: None,
            content: None,
            force: false,
            on_blank_ssd: Some(on_blank.into()),
            spare_percent: None,
        }),
    );
    assert_eq!(pool(&manager).on_blank_ssd, on_blank);
    must(&manager, add("v", DISK, mode));
    assert!(world.write("v", 5));
    drop(manager);
    let mut inside = world.inside();
    let before = inside.devices[ssd].clone();
    inside.devices.insert(ssd.into(), Device { size_bytes: before.size_bytes, serial: before.serial, ..Device::default() });
    drop(inside);
    world
}

fn check_made(world: &World, manager: &Manager) {
    let (seen, served) = (pool(manager), volume(manager));
    assert_eq!((seen.health, served.health, world.read("v")), (Health::Running, Health::Running, Some(5)), "{seen:?}");
    assert_eq!(served.exports.len(), 2);
    assert!(world.inside().devices[&seen.ssd].pool == Some(seen.uuid));
}

#[test]
fn a_clean_pool_makes_its_cache_anew_under_its_exports() {
    for mode in ["write-through", "write-around", "pass-through"] {
        let world = blank(SSD, mode, "make");
        let former = world.inside().saved.pools[0].uuid;
        let manager = started(&world);
        check_made(&world, &manager);
        assert_ne!(pool(&manager).uuid, former, "the SSD of before is no more the pool's");
        assert!(manager.events_after(0).iter().any(|event| event.message.contains("is blank: a new cache is made there")));
        assert!(world.write("v", 6));
        drop(manager);
        let manager = started(&world);
        assert_eq!((pool(&manager).health, world.read("v")), (Health::Running, Some(6)));
    }
}

/// Not asked for: the volume goes on without its cache, and the command that mends it is named, and mends it.
#[test]
fn a_pool_that_shall_not_names_the_command() {
    let world = blank(SSD, "write-through", "stop");
    let manager = started(&world);
    let seen = pool(&manager);
    let remedy = seen.remedy.unwrap_or_default();
    assert!(seen.health == Health::Failed && seen.problem.is_some_and(|problem| problem.contains("it is blank")));
    assert!(remedy.contains("hearth pool replace p --ssd /ssd`") && remedy.contains("--on-blank-ssd make"), "{remedy}");
    assert_eq!((volume(&manager).health, world.read("v")), (Health::Degraded, Some(5)));
    let replace = PoolReplace { ssd: SSD.into(), size_bytes: None, force: false, drop_dirty: false };
    must(&manager, Action::PoolReplace { name: "p".into(), replace });
    check_made(&world, &manager);
    // Or once and for all.
    let world = blank(SSD, "write-through", "stop");
    let manager = started(&world);
    must(&manager, Action::PoolSet { name: "p".into(), set: PoolSet { content: None, on_blank_ssd: Some("make".into()) } });
    must(&manager, Action::PoolStart { name: "p".into() });
    check_made(&world, &manager);
}

/// What may have been dirty, a disk, or another device: nothing is made, whatever was chosen.
#[test]
fn nothing_is_made_anew_where_something_may_be_lost() {
    let refused = |world: &World, why: &str, what_to_do: &str| {
        let before = world.inside().devices[SSD].pool;
        let manager = started(world);
        let seen = pool(&manager);
        let (problem, remedy) = (seen.problem.unwrap_or_default(), seen.remedy.unwrap_or_default());
        assert!(seen.health == Health::Failed && problem.contains(why) && remedy.contains(what_to_do), "{problem}; {remedy}");
        assert_eq!(world.inside().devices[SSD].pool, before);
        manager
    };
    let world = blank(SSD, "write-back", "make");
    drop(refused(&world, "dirty data of the volume \"v\"", "hearth pool replace p --ssd /ssd --drop-dirty"));
    assert_eq!(world.read("v"), None, "newer data may turn up with the right SSD");
    let world = blank(SSD, "write-through", "make");
    world.inside().devices.get_mut(SSD).expect("it is there").serial = "another".into();
    drop(refused(&world, "another device: its serial number was", "hearth pool replace p --ssd /ssd"));
    let world = blank(SSD, "write-through", "make");
    world.inside().devices.get_mut(SSD).expect("it is there").signature = Some("an ext4 file system".into());
    drop(refused(&world, "does not carry this pool", "bring the right SSD"));
    // Nothing known is on it, and it is not blank.
    let world = blank(SSD, "write-through", "make");
    world.inside().devices.get_mut(SSD).expect("it is there").version = 9;
    drop(refused(&world, "does not carry this pool", "bring the right SSD"));
}

/// A name that stands for the place is enough: local disks of a cloud's machines are others after a stop.
#[test]
fn at_the_same_place_another_blank_device_is_taken() {
    let world = blank(STABLE, "write-through", "make");
    world.inside().devices.get_mut(STABLE).expect("it is there").serial = "another".into();
    check_made(&world, &started(&world));
}

/// Whatever fails and wherever the power goes, the next start has the pool, and no block of another time.
#[test]
fn making_anew_fails_at_every_step() {
    for crash in [false, true] {
        for step in 1.. {
            let world = blank(SSD, "write-through", "make");
            world.reboot();
            {
                let mut inside = world.inside();
                (inside.fail_at, inside.crash) = (Some(inside.steps + step), crash);
            }
            let manager = Manager::open(std::sync::Arc::new(world.clone()), Box::new(world.clone()), std::path::Path::new("/state"))
                .expect("the state can be read");
            drop(manager.start());
            let untouched = {
                let inside = world.inside();
                inside.fail_at.is_some_and(|at| at > inside.steps)
            };
            drop(manager);
            let manager = started(&world);
            check_made(&world, &manager);
            assert!(world.write("v", 6));
            drop(manager);
            let manager = started(&world);
            assert_eq!((world.read("v"), world.inside().devices[DISK].version), (Some(6), 6), "crash {crash}, step {step}");
            drop(manager);
            if untouched {
                assert!(step > 5, "hardly anything was tested");
                break;
            }
        }
    }
}
