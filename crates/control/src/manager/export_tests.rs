//! Exports that cannot be made at a start, over the fake data path.

use super::Manager;
use super::fake::World;
use super::tests::{add, carry_out, create, must, started, stopped_without_ssd, volume, world};
use super::waiting::Watched;
use api::options::{Limit, OptionsPatch};
use api::words::Export;
use api::{Action, Answer, DiskCreate, DiskSet, Health, VolumeSet};
use std::net::{Ipv4Addr, SocketAddr};

/// The exports of `v` that are there.
fn offered(world: &World, name: &str) -> Vec<String> {
    world.inside().exports.iter().filter(|(volume, _)| volume == name).map(|(_, export)| export.clone()).collect()
}

fn lacks_one(world: &World, manager: &Manager, health: Health) {
    assert_eq!(offered(world, "v"), ["loop"], "who has it open goes on");
    assert!(world.inside().write_by_export("v", 6));
    let view = volume(manager).expect("it is on record");
    let (problem, remedy) = (view.problem.expect("it is shown"), view.remedy.expect("so is what to do"));
    assert_eq!(view.health, health, "{problem}");
    assert!(problem.contains("nbd") && problem.contains("address is taken") && remedy == "free it", "{problem}; {remedy}");
}

/// A device that was taken over from the daemon before has users: it is not taken from under them because another export fails.
#[test]
fn an_export_that_fails_at_a_start_takes_no_other_away() {
    let world = world();
    let manager = started(&world);
    must(&manager, create());
    must(&manager, add("v", super::tests::DISK, "write-back"));
    manager.stop().expect("nothing fails");
    world.inside().no_export = Some(Export::NBD);
    let manager = started(&world);
    lacks_one(&world, &manager, Health::Running);
    let mut watched = Watched::default();
    manager.watch_devices(&mut watched);
    manager.watch_devices(&mut watched);
    lacks_one(&world, &manager, Health::Running);
    let told = manager.events().after(0).into_iter().filter(|event| event.message.contains("address is taken")).count();
    assert_eq!(told, 1, "told once, however often it is tried");
    let tried = carry_out(&manager, Action::VolumeStart { name: "v".into() }).expect_err("it was asked for");
    assert!(tried.contains("address is taken"), "{tried}");
    lacks_one(&world, &manager, Health::Running);
    world.inside().no_export = None;
    (0..4).for_each(|_| manager.watch_devices(&mut watched));
    assert_eq!(offered(&world, "v"), ["loop", "nbd"], "it is tried again by itself");
    let view = volume(&manager).expect("it is on record");
    assert_eq!((view.health, view.problem), (Health::Running, None));
    assert_eq!(world.read("v"), Some(6));
}

/// The same of a volume that is served without its cache.
#[test]
fn a_volume_without_its_pool_keeps_the_exports_that_can_be_made() {
    let (world, _ssd) = stopped_without_ssd("write-through");
    world.inside().no_export = Some(Export::NBD);
    let manager = started(&world);
    assert_eq!(offered(&world, "v"), ["loop"]);
    assert_eq!(volume(&manager).expect("it is on record").health, Health::Degraded);
    world.inside().no_export = None;
    manager.watch_devices(&mut Watched::default());
    assert_eq!(offered(&world, "v"), ["loop", "nbd"]);
}

/// Nobody uses a new volume yet: it has all its exports, or is not made.
#[test]
fn a_new_volume_has_all_its_exports_or_none() {
    let world = world();
    let manager = started(&world);
    must(&manager, create());
    world.inside().no_export = Some(Export::NBD);
    carry_out(&manager, add("v", super::tests::DISK, "write-back")).expect_err("not all of it works");
    assert!(volume(&manager).is_none() && world.inside().exports.is_empty());
}

/// Clients of what is to go are not cut off for a change that cannot be.
#[test]
fn a_change_of_exports_that_fails_takes_nothing_back() {
    let world = world();
    let manager = started(&world);
    must(&manager, create());
    must(&manager, add("v", super::tests::DISK, "write-back"));
    let tcp = |port| Export::nbd_tcp(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port));
    let set = |exports: &[Export]| {
        let set = VolumeSet { exports: Some(exports.to_vec()), ..VolumeSet::default() };
        carry_out(&manager, Action::VolumeSet { name: "v".into(), set })
    };
    world.inside().no_export = Some(tcp(10809));
    let error = set(&[Export::LOOP, tcp(10809)]).expect_err("its address is taken");
    assert!(error.contains("address is taken"), "{error}");
    assert_eq!((offered(&world, "v"), world.inside().taken_back.contains(&"nbd".into())), (vec!["loop".into(), "nbd".into()], false));
    assert_eq!(volume(&manager).map(|view| view.exports.len()), Some(2), "it is on record as before");
    world.inside().no_export = None;
    set(&[Export::LOOP, tcp(10809)]).expect("now it can be");
    assert_eq!(offered(&world, "v"), ["loop", "nbd:127.0.0.1:10809"]);
    assert!(!world.inside().taken_back.contains(&"loop".into()), "what stays is not touched");
    let error = set(&[tcp(0)]).expect_err("no port");
    assert!(error.contains("port 0"), "{error}");
}

#[test]
fn a_disk_keeps_the_exports_that_can_be_made() {
    let world = world();
    let manager = started(&world);
    must(&manager, create());
    let create = || {
        let exports = vec![Export::LOOP, Export::NBD];
        Action::DiskCreate(DiskCreate { name: "d".into(), pool: "p".into(), size_bytes: 8 << 20, exports })
    };
    world.inside().no_export = Some(Export::NBD);
    carry_out(&manager, create()).expect_err("not all of it works");
    assert!(world.inside().exports.is_empty() && world.inside().disks.served.is_empty());
    world.inside().no_export = None;
    must(&manager, create());
    manager.stop().expect("nothing fails");
    world.inside().no_export = Some(Export::NBD);
    let manager = started(&world);
    let show = || match manager.handle(Action::DiskList) {
        Ok(Answer::Disks(disks)) => (disks[0].health, disks[0].problem.clone()),
        other => panic!("{other:?}"),
    };
    assert_eq!(offered(&world, "d"), ["loop"]);
    let (health, problem) = show();
    assert!(health == Health::Running && problem.is_some_and(|problem| problem.contains("address is taken")));
    world.inside().no_export = None;
    manager.watch_devices(&mut Watched::default());
    assert_eq!(offered(&world, "d"), ["loop", "nbd"]);
    assert_eq!(show(), (Health::Running, None));
    // A change that cannot be takes nothing back.
    let tcp = Export::nbd_tcp(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 10809));
    let set = || {
        let set = DiskSet { exports: Some(vec![Export::LOOP, tcp]), ..DiskSet::default() };
        carry_out(&manager, Action::DiskSet { name: "d".into(), set })
    };
    world.inside().no_export = Some(tcp);
    world.inside().taken_back.clear();
    set().expect_err("its address is taken");
    assert_eq!((offered(&world, "d"), world.inside().taken_back.contains(&"nbd".into())), (vec!["loop".into(), "nbd".into()], false));
    world.inside().no_export = None;
    set().expect("now it can be");
    assert_eq!(offered(&world, "d"), ["loop", "nbd:127.0.0.1:10809"]);
}

/// What is in the place of a stable name, such as the device of a daemon that is gone, may take seconds to answer. All that time the volume was
/// "busy" to whoever asked for something.
#[test]
fn a_look_at_a_stable_name_keeps_nobody_from_the_volume() {
    let world = world();
    let manager = started(&world);
    must(&manager, create());
    must(&manager, add("v", super::tests::DISK, "write-back"));
    let taken = "/dev/hearth/v belongs to another daemon: use /dev/loop1 instead";
    world.inside().stable_names.insert("v".into(), Err(taken.into()));
    let meanwhile = manager.clone();
    world.inside().at_name_look = Some(Box::new(move || {
        let options = OptionsPatch { dirty_limit: Some(Limit::Bytes(1 << 30)), ..OptionsPatch::default() };
        must(&meanwhile, Action::VolumeSet { name: "v".into(), set: VolumeSet { options, ..VolumeSet::default() } });
    }));
    let mut watched = Watched::default();
    (0..3).for_each(|_| manager.watch_devices(&mut watched));
    assert!(world.inside().at_name_look.is_none(), "it was looked at");
    let told = || manager.events().after(0).into_iter().filter(|event| event.message.contains("stable name")).count();
    assert_eq!(told(), 1, "told once, however often it is looked at");
    world.inside().stable_names.insert("v".into(), Ok("/dev/hearth/v".into()));
    (0..16).for_each(|_| manager.watch_devices(&mut watched));
    assert_eq!(told(), 2, "it is there now");
}
