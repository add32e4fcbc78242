//! Growth of volumes over the fake data path: what is refused, what is on record when, and what a crash at any step leaves.

use super::Manager;
use super::fake::{Device, World};
use crate::manager::waiting::Watched;
use api::options::OptionsPatch;
use api::words::Export;
use api::{Action, Answer, Health, PoolCreate, VolumeAdd, VolumeView};
use datapath::figures::Refused;
use insight::sampler::Sampler;
use std::path::Path;
use std::sync::Arc;

const GIB: u64 = 1 << 30;

fn open(world: &World) -> Manager {
    let manager = Manager::open(Arc::new(world.clone()), Box::new(world.clone()), Path::new("/state")).expect("the state can be read");
    manager.start().expect("the state can be saved");
    manager
}

/// A volume "v" of 1 GiB over /disk, in a pool.
fn world() -> World {
    world_with(Vec::new())
}

/// The same with these exports.
fn world_with(exports: Vec<Export>) -> World {
    let world = World::default();
    world.inside().devices.insert("/ssd".into(), Device { size_bytes: GIB, ..Device::default() });
    world.inside().devices.insert("/disk".into(), Device { size_bytes: GIB, serial: "S1".into(), ..Device::default() });
    let manager = open(&world);
    let pool = PoolCreate {
        name: "p".into(),
        ssd: "/ssd".into(),
        size_bytes: None,
        force: false,
        on_blank_ssd: None,
        spare_percent: None,
        ram_bytes: None,
        content: None,
    };
    manager.handle(Action::PoolCreate(pool)).expect("the SSD is good");
    let add = VolumeAdd {
        name: "v".into(),
        pool: "p".into(),
        backing: "/disk".into(),
        exports,
        options: OptionsPatch::default(),
        sector_bytes: None,
    };
    manager.handle(Action::VolumeAdd(add)).expect("the disk is good");
    drop(manager);
    world.reboot();
    world
}

fn resize(world: &World, size_bytes: u64) {
    world.inside().devices.get_mut("/disk").expect("it is there").size_bytes = size_bytes;
}

fn grow(manager: &Manager) -> Result<String, String> {
    match manager.handle(Action::VolumeGrow { name: "v".into() }) {
        Ok(Answer::Done(done)) => Ok(done.summary.expect("it says what it did")),
        Ok(other) => panic!("{other:?}"),
        Err(error) => Err(error.to_string()),
    }
}

fn view(manager: &Manager) -> VolumeView {
    match manager.handle(Action::VolumeShow { name: "v".into() }) {
        Ok(Answer::Volume(view)) => *view,
        other => panic!("{other:?}"),
    }
}

fn messages(manager: &Manager) -> Vec<String> {
    manager.events_after(0).into_iter().map(|event| event.message).collect()
}

#[test]
fn a_device_that_grew_is_told_of_once_and_served_when_asked() {
    let world = world();
    let manager = open(&world);
    let mut watched = Watched::default();
    manager.watch_devices(&mut watched);
    assert_eq!(view(&manager).backing_size_bytes, None);
    resize(&world, 2 * GIB + 700);
    for _ in 0..3 {
        manager.watch_devices(&mut watched);
    }
    let told: Vec<String> = messages(&manager).into_iter().filter(|message| message.contains("has grown")).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("`hearth volume grow v`"), "{told:?}");
    assert_eq!((view(&manager).size_bytes, view(&manager).backing_size_bytes), (GIB, Some(2 * GIB + 700)), "not before it is asked for");

    assert!(grow(&manager).expect("it has grown").contains("now (it was 1 GiB)"));
    assert_eq!((view(&manager).size_bytes, view(&manager).backing_size_bytes), (2 * GIB + 512, None), "whole sectors");
    assert_eq!(world.inside().served_bytes.get("v"), Some(&(2 * GIB + 512)));
    manager.watch_devices(&mut watched);
    assert_eq!(view(&manager).backing_size_bytes, None);
    assert!(grow(&manager).expect("nothing is to be done").contains("as that of its backing device"));
}

/// Who asks for growth learns who has it, and asks again once nobody uses what could not be told.
#[test]
fn a_block_device_that_keeps_its_size_is_in_the_answer_until_it_is_mended() {
    let world = world_with(vec![Export::LOOP, Export::NBD]);
    let manager = open(&world);
    resize(&world, 2 * GIB);
    world.inside().disks.keeps_size = true;
    world.add_mapped("user", GIB);
    world.inside().mapped.get_mut("user").expect("it is there").table = "/loop/v".into();
    for (again, expected) in [(false, "its size is 2 GiB now (it was 1 GiB)"), (true, "its size is 2 GiB, as that of its backing device")] {
        let told = grow(&manager).expect("the volume has grown");
        assert!(told.starts_with(expected), "{again}: {told}");
        assert!(told.contains("the block device keeps its size") && told.contains("NBD clients see it when they connect again"), "{told}");
        assert!(!told.contains("have it"), "{told}");
    }
    world.inside().mapped.clear();
    let told = grow(&manager).expect("nobody uses it");
    assert!(told.contains("users of /loop/v have it") && !told.contains("keeps"), "{told}");
}

#[test]
fn a_device_that_shrank_is_an_error_and_the_volume_does_not_follow() {
    let world = world();
    let manager = open(&world);
    resize(&world, GIB / 2);
    manager.watch_devices(&mut Watched::default());
    let problem = view(&manager).problem.expect("people must see it");
    assert!(problem.contains("shrank from 1 GiB to 512 MiB"), "{problem}");
    // What lies beyond its end fails, and that it is shorter says why.
    let short = Refused { asked: "write", reason: "it moves less than is asked for".into() };
    world.inside().refused = [("v".to_string(), short)].into();
    let mut sampler = Sampler::default();
    manager.take_sample(&mut sampler, 1000, 1000);
    assert_eq!((view(&manager).health, view(&manager).problem), (Health::Failing, Some(problem)));
    world.inside().refused.clear();
    manager.take_sample(&mut sampler, 2000, 1000);
    let refused = grow(&manager).expect_err("its clients were told of more");
    assert!(refused.contains("does not shrink"), "{refused}");
    assert_eq!((view(&manager).size_bytes, world.inside().served_bytes.get("v")), (GIB, None));
    resize(&world, GIB);
    manager.watch_devices(&mut Watched::default());
    assert_eq!(view(&manager).problem, None, "it is as it was");
}

#[test]
fn more_than_a_volume_can_have_is_refused() {
    let world = world();
    let manager = open(&world);
    resize(&world, types::VOLUME_BYTES_MAX + GIB);
    let refused = grow(&manager).expect_err("too large");
    assert!(refused.contains("more than the 64 TiB"), "{refused}");
}

#[test]
fn a_stopped_volume_grows_when_it_starts() {
    let world = world();
    let manager = open(&world);
    manager.handle(Action::VolumeStop { name: "v".into(), give_up: false, force: false }).expect("nobody uses it");
    resize(&world, 3 * GIB);
    assert!(grow(&manager).expect("no error").contains("when it starts"));
    manager.handle(Action::VolumeStart { name: "v".into() }).expect("the disk is there");
    assert_eq!(view(&manager).size_bytes, 3 * GIB);
}

/// Whatever step fails, and whether or not the machine goes with it: the volume has one of its two sizes, what is served is never more than what is on
/// record, and asked again it grows.
#[test]
fn a_failure_at_any_step_loses_nothing() {
    for crash in [false, true] {
        for step in 0..8 {
            let world = world();
            let manager = open(&world);
            resize(&world, 2 * GIB);
            {
                let mut inside = world.inside();
                (inside.fail_at, inside.crash) = (Some(inside.steps + step), crash);
            }
            let asked = grow(&manager);
            let served = world.inside().served_bytes.get("v").copied().unwrap_or(GIB);
            let saved = world.inside().saved.volume("v").expect("it is there").size_bytes;
            assert!([GIB, 2 * GIB].contains(&saved) && served <= saved, "step {step}, crash {crash}: served {served}, on record {saved}");
            assert!(asked.is_err() || saved == 2 * GIB, "step {step}, crash {crash}: said to be done, and not on record");
            let manager = if crash {
                drop(manager);
                world.reboot();
                open(&world)
            } else {
                world.inside().fail_at = None;
                manager
            };
            grow(&manager).expect("it can grow now");
            assert_eq!(view(&manager).size_bytes, 2 * GIB, "step {step}, crash {crash}");
        }
    }
}
