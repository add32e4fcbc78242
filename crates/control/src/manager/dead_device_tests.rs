//! Devices that are dead or answer nobody: what can be managed beside them, and what of them without a restart. Over the fake data path.

use super::Manager;
use super::fake::World;
use super::tests::{carry_out, must, started};
use super::waiting::Watched;
use api::names::Named;
use api::options::OptionsPatch;
use api::words::Export;
use api::{Action, Answer, Done, Health, PoolCreate, PoolView, VolumeAdd, VolumeView};
use datapath::DeviceUse;
use std::time::{Duration, Instant};

/// Pools `p` and `q`, each with two volumes that are block devices: `pa` over `/dev/pa` and so on.
fn daemon(world: &World, mode: &str) -> Manager {
    let manager = started(world);
    for pool in ["p", "q"] {
        let ssd = format!("/dev/ssd-{pool}");
        world.add_device(&ssd, 1 << 30);
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
        must(&manager, Action::PoolCreate(create));
        for volume in ["a", "b"].map(|letter| format!("{pool}{letter}")) {
            let backing = format!("/dev/{volume}");
            world.add_device(&backing, 1 << 30);
            let options = OptionsPatch { mode: Some(mode.into()), ..OptionsPatch::default() };
            let add = VolumeAdd { name: volume, pool: pool.into(), backing, exports: vec![Export::LOOP], sector_bytes: None, options };
            must(&manager, Action::VolumeAdd(add));
        }
    }
    manager
}

fn volume(manager: &Manager, name: &str) -> VolumeView {
    match manager.handle(Action::VolumeShow { name: name.into() }) {
        Ok(Answer::Volume(view)) => *view,
        other => panic!("{other:?}"),
    }
}

fn pool(manager: &Manager, name: &str) -> PoolView {
    match manager.handle(Action::PoolShow { name: name.into() }) {
        Ok(Answer::Pool(view)) => *view,
        other => panic!("{other:?}"),
    }
}

fn stop(name: &str, give_up: bool) -> Action {
    Action::VolumeStop { name: name.into(), give_up, force: false }
}

fn remove(manager: &Manager, name: &str, drop_dirty: bool) -> Option<String> {
    let removed = manager.handle(Action::VolumeRemove { name: name.into(), drop_dirty });
    let Ok(Answer::Job(job)) = removed else { panic!("{removed:?}") };
    while manager.jobs_running() > 0 {
        std::thread::yield_now();
    }
    let Ok(Answer::Job(job)) = manager.handle(Action::JobShow { id: job.id }) else { panic!("it is remembered") };
    match job.state {
        api::JobState::Failed { error } => Some(error.to_string()),
        _ => None,
    }
}

fn hang(world: &World, volume: &str, pool: &str) -> DeviceUse {
    let device = DeviceUse::Backing { volume: volume.into(), pool: pool.into() };
    world.inside().impatient = true;
    world.inside().hanging.insert(device.clone(), Instant::now());
    device
}

/// What a dead disk cannot flush is lost already: its volume goes all the same, and nobody is told that the disk is complete.
#[test]
fn a_volume_whose_disk_cannot_flush_goes_and_says_what_is_lost() {
    let world = World::default();
    let manager = daemon(&world, "write-through");
    world.inside().broken.extend(["/dev/pa".into(), "/dev/pb".into(), "/dev/qa".into(), "/dev/qb".into()]);
    let Ok(Answer::Done(Done { summary: Some(told), .. })) = manager.handle(stop("pa", false)) else { panic!("it stops") };
    assert!(told.contains("/dev/pa may lack what was written last") && !told.contains("complete and free"), "{told}");
    assert_eq!(volume(&manager, "pa").health, Health::Stopped);
    assert!(!world.inside().saved.volumes.iter().any(|volume| volume.name == "pa" && volume.stopped_clean), "as after a crash");
    assert_eq!(remove(&manager, "pb", false), None);
    let lost = |event: &api::EventView| event.object == "pb" && event.message.contains("/dev/pb cannot flush");
    assert!(manager.events_after(0).iter().any(lost));
    must(&manager, Action::PoolDestroy { name: "q".into(), force: true });
    assert!(world.inside().exports.is_empty(), "nothing is left of their block devices");
}

/// Who only stops or removes a volume is told what else there is to do; who gives up its device does not wait for that.
#[test]
fn a_device_that_hangs_is_given_up_by_who_says_so() {
    let world = World::default();
    let manager = daemon(&world, "write-back");
    assert!(world.write("pa", 7) && world.write("pb", 8));
    let (first, second) = (hang(&world, "pa", "p"), hang(&world, "pb", "p"));
    let refused = carry_out(&manager, stop("pa", false)).expect_err("it does not answer");
    assert!(refused.contains("`hearth volume stop pa --give-up`"), "{refused}");
    assert_eq!(volume(&manager, "pa").health, Health::Running, "it runs on");
    let refused = remove(&manager, "pb", false).expect("it does not answer");
    assert!(refused.contains("`hearth volume remove pb --drop-dirty`"), "{refused}");
    assert!(world.inside().given_up.is_empty());
    let told = manager.handle(stop("pa", true)).expect("it is given up");
    assert_eq!((volume(&manager, "pa").health, world.inside().given_up.clone()), (Health::Stopped, vec![first]), "{told:?}");
    assert!(world.inside().saved.volumes.iter().any(|volume| volume.name == "pa" && volume.may_have_dirty), "its dirty data is kept");
    assert_eq!(remove(&manager, "pb", true), None);
    assert!(world.inside().given_up.contains(&second));
}

fn open(world: &World, volume: &str) {
    let user = format!("user-of-{volume}");
    world.add_mapped(&user, 1 << 30);
    world.inside().mapped.get_mut(&user).expect("just added").table = format!("/loop/{volume}");
}

fn close(world: &World, volume: &str) {
    world.inside().mapped.remove(&format!("user-of-{volume}"));
}

/// A process hangs in a read of a dead disk: it cannot be closed, nor killed. Its volume goes all the same, if whoever asks gives up what it holds;
/// a device that answers is taken from nobody.
#[test]
fn who_waits_for_a_device_that_hangs_does_not_keep_a_volume_that_goes_with_its_data() {
    let world = World::default();
    let manager = daemon(&world, "write-back");
    let remove_it = |drop_dirty| Action::VolumeRemove { name: "pa".into(), drop_dirty };
    let destroy = || Action::PoolDestroy { name: "p".into(), force: true };
    open(&world, "pa");
    for action in [remove_it(false), remove_it(true), destroy()] {
        let refused = carry_out(&manager, action).expect_err("it is in use");
        assert!(refused.contains("it is in use") && !refused.contains("--give-up"), "{refused}");
    }
    let device = hang(&world, "pa", "p");
    let refused = carry_out(&manager, remove_it(false)).expect_err("it hangs");
    assert!(refused.contains("/dev/pa does not answer") && refused.contains("`hearth volume stop pa --give-up`"), "{refused}");
    // Beside it another one is in use, and answers.
    open(&world, "pb");
    carry_out(&manager, destroy()).expect_err("a device that answers stays with its users");
    assert!(world.inside().given_up.is_empty());
    close(&world, "pb");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !world.inside().given_up.contains(&device) {
                std::thread::yield_now();
            }
            close(&world, "pa");
        });
        assert_eq!(remove(&manager, "pa", true), None);
    });
    let device = hang(&world, "pb", "p");
    open(&world, "pb");
    let refused = carry_out(&manager, destroy()).expect_err("it is mounted, say");
    assert!(refused.contains("it is in use") && world.inside().given_up.contains(&device), "{refused}");
    close(&world, "pb");
    must(&manager, destroy());
    assert!(world.inside().saved.pools.iter().all(|pool| pool.name != "p"));
}

#[test]
fn a_pool_is_destroyed_in_spite_of_devices_that_hang() {
    let world = World::default();
    let manager = daemon(&world, "write-back");
    let device = hang(&world, "pa", "p");
    must(&manager, Action::PoolDestroy { name: "p".into(), force: true });
    assert_eq!(world.inside().given_up, [device]);
    assert!(world.inside().saved.pools.iter().all(|pool| pool.name != "p"));
}

/// The start of a pool may still be at work when the first look is taken: looks are taken until all run.
fn watch_until_running(manager: &Manager, watched: &mut Watched, names: &[&str]) {
    let until = Instant::now() + Duration::from_secs(60);
    while names.iter().any(|name| volume(manager, name).health != Health::Running) {
        let told = || names.iter().map(|name| volume(manager, name)).collect::<Vec<_>>();
        assert!(Instant::now() < until, "not all come by themselves: {:?}", told());
        manager.watch_devices(watched);
        std::thread::yield_now();
    }
}

/// The SSD answers again while what missed it is still at work with the pool: a look in that moment must not be the last.
#[test]
fn an_ssd_that_is_back_before_its_pool_has_failed_in_full_is_not_forgotten() {
    let world = World::default();
    let manager = daemon(&world, "write-back");
    manager.stop().expect("nothing fails");
    world.inside().silent_devices.insert("/dev/ssd-q".into());
    let manager = started(&world);
    let claim = loop {
        match manager.claim(&[(Named::Pool, "q")], "its start") {
            Ok(claim) => break claim,
            Err(_) => std::thread::yield_now(),
        }
    };
    assert_eq!(pool(&manager, "q").health, Health::Failed);
    world.inside().silent_devices.clear();
    let mut watched = Watched::default();
    manager.watch_devices(&mut watched);
    assert_eq!(pool(&manager, "q").health, Health::Failed, "it is still claimed");
    drop(claim);
    watch_until_running(&manager, &mut watched, &["qa", "qb"]);
    let told = manager.events_after(0);
    assert!(!told.iter().any(|event| event.message.contains("does not start by itself")), "{told:?}");
}

/// The start of one volume waits for its device, and nothing else does.
#[test]
fn a_start_waits_for_no_device_that_does_not_answer() {
    for mode in ["write-back", "write-through"] {
        let world = World::default();
        let manager = daemon(&world, mode);
        assert!(["pa", "pb", "qa", "qb"].iter().all(|name| world.write(name, 5)));
        manager.stop().expect("nothing fails");
        world.inside().silent_devices.extend(["/dev/pa".into(), "/dev/ssd-q".into()]);
        let manager = started(&world);
        let late = volume(&manager, "pa");
        let problem = late.problem.clone().unwrap_or_default();
        assert!(late.health == Health::Failed && problem.contains("/dev/pa does not answer"), "{late:?}");
        assert_eq!((volume(&manager, "pb").health, world.read("pb")), (Health::Running, Some(5)));
        // This one is waited for beside the start.
        while pool(&manager, "q").health == Health::Starting {
            std::thread::yield_now();
        }
        let late = pool(&manager, "q");
        assert!(late.health == Health::Failed && late.problem.clone().is_some_and(|p| p.contains("does not answer")), "{late:?}");
        // And each comes by itself.
        world.inside().silent_devices.clear();
        let names = ["pa", "pb", "qa", "qb"];
        watch_until_running(&manager, &mut Watched::default(), &names);
        assert!(names.iter().all(|name| world.read(name) == Some(5)), "{mode}");
    }
}
