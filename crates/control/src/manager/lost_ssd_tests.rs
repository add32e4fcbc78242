//! An SSD that is lost: what is served without it, what is remembered, and what is served when it is back.

use super::Manager;
use super::fake::World;
use super::tests::{
    DISK, SSD, add, carry_out, create, life, must, nothing_dirty, ssd_failed, started, stopped_without_ssd, volume, with_dirty_volume,
    world,
};
use super::waiting::Watched;
use api::options::OptionsPatch;
use api::{Action, Health, PoolReplace, VolumeSet};
use datapath::{Life, Notice};
use records::state::VolumePhase;
use std::path::Path;
use std::sync::Arc;
use uuid::Uuid;

/// Without its SSD, a clean volume is served by its backing device, and never by what the SSD held before.
#[test]
fn a_lost_ssd_stops_only_what_may_be_dirty() {
    let world = world();
    let manager = started(&world);
    must(&manager, create());
    must(&manager, add("v", DISK, "write-through"));
    must(&manager, add("w", "/disk2", "write-back"));
    assert!(world.write("v", 5) && world.write("w", 6));
    let ssd = world.inside().devices.remove(SSD).expect("it is there");
    let manager = started(&world);
    assert_eq!(volume(&manager).map(|v| v.health), Some(Health::Degraded));
    assert_eq!((world.read("v"), world.read("w")), (Some(5), None));
    assert!(world.write("v", 8));
    world.inside().devices.insert(SSD.into(), ssd);
    started(&world);
    assert_eq!((world.read("v"), world.read("w")), (Some(8), Some(6)), "stale cache was served");
}

/// Two starts without the SSD serve the volume, and versions 7 and 8 are written. Then the SSD is there again.
fn serve_without_ssd(world: &World) {
    let ssd = world.inside().devices.remove(SSD).expect("it is there");
    for version in [7, 8] {
        let manager = started(world);
        assert_eq!(volume(&manager).map(|v| v.health), Some(Health::Degraded));
        assert!(world.write("v", version));
    }
    world.inside().devices.insert(SSD.into(), ssd);
}

/// A write-back volume that was stopped with nothing dirty needs no SSD, start after start.
#[test]
fn a_write_back_volume_without_dirty_data_survives_the_loss_of_its_ssd() {
    let world = world();
    with_dirty_volume(&world);
    let manager = started(&world);
    must(&manager, Action::VolumeDestage { name: "v".into() });
    manager.stop().expect("nothing fails");
    serve_without_ssd(&world);
    started(&world);
    assert_eq!(world.read("v"), Some(8));
    assert!(world.write("v", 9) && world.inside().saved.volumes[0].may_have_dirty, "write-back again, and marked");
}

#[test]
fn what_is_clean_on_an_ssd_that_failed_is_never_believed_again() {
    let world = world();
    let manager = started(&world);
    must(&manager, create());
    must(&manager, add("v", DISK, "write-through"));
    assert!(world.write("v", 5));
    manager.notice(&ssd_failed(&world));
    world.inside().devices.get_mut(DISK).expect("it is there").version = 6;
    let manager = started(&world);
    assert_eq!(world.read("v"), Some(6));
    assert_eq!(volume(&manager).map(|v| v.health), Some(Health::Running), "the SSD is there again");
    assert!(world.inside().saved.pools[0].degraded.is_none() && !world.inside().saved.volumes[0].cache_stale);
}

/// What is dirty on an SSD that failed is good until something is written past it.
#[test]
fn what_is_dirty_on_an_ssd_that_failed_is_served_when_it_is_back() {
    let world = world();
    with_dirty_volume(&world);
    let manager = started(&world);
    let dirty = world.read("v");
    manager.notice(&ssd_failed(&world));
    assert_eq!(world.inside().saved.pools[0].degraded.as_ref().map(|d| d.dirty_is_good), Some(true));
    let ssd = world.inside().devices.remove(SSD).expect("it is there");
    let manager = started(&world);
    assert_eq!((volume(&manager).map(|v| v.health), world.read("v")), (Some(Health::Failed), None), "it may be dirty");
    world.inside().devices.insert(SSD.into(), ssd);
    let manager = started(&world);
    assert_eq!((volume(&manager).map(|v| v.health), world.read("v")), (Some(Health::Running), dirty));
    must(&manager, Action::VolumeDestage { name: "v".into() });
}

/// That nothing was dirty on an SSD that failed is remembered: nobody is asked to give up what is not there.
#[test]
fn a_write_back_volume_with_nothing_dirty_needs_no_ssd_that_failed() {
    let world = world();
    with_dirty_volume(&world);
    let manager = started(&world);
    must(&manager, Action::VolumeDestage { name: "v".into() });
    let another = Life { uuid: Uuid::new_v4(), ..life(&world) };
    manager.notice(&Notice::NothingDirty { pool: "p".into(), life: another, volume: "v".into() });
    assert!(world.inside().saved.volumes[0].may_have_dirty, "said of another SSD");
    manager.notice(&ssd_failed(&world));
    manager.notice(&nothing_dirty(&world));
    assert!(!world.inside().saved.volumes[0].may_have_dirty);
    serve_without_ssd(&world);
    started(&world);
    assert_eq!(world.read("v"), Some(8), "what the SSD holds of it is void");
}

/// The same SSD is formatted anew for its pool when that is said; dirty data goes home first.
#[test]
fn the_same_ssd_is_formatted_anew_by_force() {
    let world = world();
    with_dirty_volume(&world);
    let manager = started(&world);
    let before = (world.read("v"), world.inside().saved.pools[0].uuid);
    let replace = |force| {
        let replace = PoolReplace { ssd: SSD.into(), size_bytes: None, force, drop_dirty: false };
        Action::PoolReplace { name: "p".into(), replace }
    };
    let refused = manager.handle(replace(false)).expect_err("not without a word").refusal().to_string();
    assert!(refused.contains("it is the SSD of this pool") && refused.contains("--force"), "{refused}");
    must(&manager, replace(true));
    assert_ne!(world.inside().saved.pools[0].uuid, before.1, "it is another pool");
    assert_eq!((volume(&manager).map(|v| v.health), world.read("v")), (Some(Health::Running), before.0));
    assert!(world.write("v", 9));
    let manager = started(&world);
    assert_eq!((volume(&manager).map(|v| v.health), world.read("v")), (Some(Health::Running), Some(9)));
}

/// What a failure while the SSD is formatted anew leaves: every volume is served, with its cache or without, and it can be asked for again.
#[test]
fn formatting_anew_loses_nothing_at_any_step() {
    for crash in [false, true] {
        for n in 1..60 {
            let world = world();
            with_dirty_volume(&world);
            let manager = started(&world);
            let before = world.read("v");
            let first = world.inside().steps;
            (world.inside().fail_at, world.inside().crash) = (Some(first + n), crash);
            let replace = PoolReplace { ssd: SSD.into(), size_bytes: None, force: true, drop_dirty: false };
            let replace = Action::PoolReplace { name: "p".into(), replace };
            let result = carry_out(&manager, replace.clone());
            let case = format!("crash {crash}, step {n}: {result:?}");
            let manager = started(&world);
            let health = volume(&manager).map(|v| v.health);
            assert!(matches!(health, Some(Health::Running | Health::Degraded)), "{case}: {health:?}");
            assert_eq!(world.read("v"), before, "{case}");
            must(&manager, replace);
            assert_eq!((volume(&manager).map(|v| v.health), world.read("v")), (Some(Health::Running), before), "{case}, asked again");
        }
    }
}

/// What was written past the SSD is on record before it is acknowledged, and void on the SSD when that is back.
#[test]
fn what_was_written_past_the_ssd_is_void_when_it_is_back() {
    let world = world();
    with_dirty_volume(&world);
    let manager = started(&world);
    let life = life(&world);
    let past = |blocks, token| Notice::PastSsd { pool: "p".into(), life, volume: "v".into(), blocks, token };
    manager.notices(&[ssd_failed(&world), past(4..8, 17), past(0..4, 18)]);
    assert_eq!(world.inside().past_recorded, [17, 18]);
    assert_eq!(world.inside().saved.volumes[0].past, [(0, 8)]);
    world.inside().devices.get_mut(DISK).expect("it is there").version = 77;
    let manager = started(&world);
    assert_eq!((volume(&manager).map(|v| v.health), world.read("v")), (Some(Health::Running), Some(77)));
    assert!(world.inside().saved.volumes[0].past.is_empty(), "said once");
    assert!(world.write("v", 78));
    started(&world);
    assert_eq!(world.read("v"), Some(78), "what was written since is kept");
}

/// A removal that was interrupted while the SSD was lost: what the SSD still calls dirty is old when it is back.
#[test]
fn an_interrupted_removal_writes_nothing_old() {
    let world = world();
    with_dirty_volume(&world);
    let manager = started(&world);
    must(&manager, Action::VolumeDestage { name: "v".into() });
    let id = world.inside().saved.volumes[0].id;
    manager.notices(&[ssd_failed(&world), nothing_dirty(&world)]);
    // The note that 5 came home could not be logged, and 9 was written past the SSD.
    world.inside().devices.get_mut(SSD).expect("it is there").log.insert(id, (5, true));
    world.inside().devices.get_mut(DISK).expect("it is there").version = 9;
    world.inside().saved.volumes[0].phase = VolumePhase::Removing;
    let manager = started(&world);
    assert!(volume(&manager).is_none(), "it is removed");
    assert_eq!(world.inside().devices[DISK].version, 9);
}

/// Under the name of the SSD another disk may be found after a reboot: `--force` is for the SSD of the pool, and for nothing else.
#[test]
fn another_disk_under_the_name_of_the_ssd_is_not_formatted_anew() {
    let world = world();
    with_dirty_volume(&world);
    let other = {
        let mut inside = world.inside();
        inside.devices.remove(SSD);
        let mut other = inside.devices[DISK].clone();
        (other.serial, other.in_use) = ("of another".into(), Some("mounted on /srv".into()));
        other
    };
    world.inside().devices.insert(SSD.into(), other);
    let manager = started(&world);
    let replace = PoolReplace { ssd: SSD.into(), size_bytes: None, force: true, drop_dirty: true };
    let replace = Action::PoolReplace { name: "p".into(), replace };
    let refused = carry_out(&manager, replace.clone()).expect_err("somebody uses it");
    assert!(refused.contains("mounted on /srv"), "{refused}");
    // One that is free and empty takes the place of the SSD that has gone.
    world.inside().devices.get_mut(SSD).expect("it is there").in_use = None;
    must(&manager, replace);
    assert_eq!(volume(&manager).map(|v| v.health), Some(Health::Running));
}

/// A pool that does not come up leaves its volumes as they were: nothing dirty stays so.
#[test]
fn an_ssd_that_was_never_used_makes_nothing_dirty() {
    let world = world();
    with_dirty_volume(&world);
    let manager = started(&world);
    must(&manager, Action::VolumeDestage { name: "v".into() });
    manager.stop().expect("nothing fails");
    // It is killed while it looks for the SSD; the next start finds none.
    world.inside().devices.remove(SSD);
    for _ in 0..2 {
        let first = world.inside().steps;
        world.inside().fail_at = Some(first + 2);
        world.inside().crash = true;
        drop(Manager::open(Arc::new(world.clone()), Box::new(world.clone()), Path::new("/state")).map(|manager| manager.start()));
        let manager = started(&world);
        assert_eq!((volume(&manager).map(|v| v.health), world.read("v")), (Some(Health::Degraded), Some(5)));
    }
}

/// Killed at any step of its start, and then without an SSD, the daemon serves what had nothing dirty.
#[test]
fn a_start_that_is_killed_makes_nothing_dirty_before_the_pool_has_come_up() {
    for n in 1..40 {
        let world = world();
        with_dirty_volume(&world);
        let manager = started(&world);
        must(&manager, Action::VolumeDestage { name: "v".into() });
        manager.stop().expect("nothing fails");
        // A new SSD that fails when the pool is to come up, at any step: the backing device has it all.
        world.add_device("/ssd2", 1 << 30);
        let manager = started(&world);
        let first = world.inside().steps;
        world.inside().fail_at = Some(first + n);
        world.inside().crash = true;
        let replace = PoolReplace { ssd: "/ssd2".into(), size_bytes: None, force: false, drop_dirty: false };
        let result = carry_out(&manager, Action::PoolReplace { name: "p".into(), replace });
        let is_new = world.inside().saved.pools[0].ssd == "/ssd2";
        let used = world.inside().saved.volumes[0].may_have_dirty;
        if is_new && !used {
            world.inside().devices.remove("/ssd2");
        }
        let manager = started(&world);
        let health = volume(&manager).map(|v| v.health);
        assert!(matches!(health, Some(Health::Running | Health::Degraded)), "step {n}, {result:?}: {health:?}");
        assert_eq!(world.read("v"), Some(5), "step {n}");
    }
}

/// The loss is heard of while the pool comes up: it is on record when the pool runs.
#[test]
fn a_loss_during_the_start_is_not_forgotten() {
    let world = world();
    with_dirty_volume(&world);
    world.inside().lost.insert("p".into());
    let manager = started(&world);
    assert!(world.inside().saved.pools[0].degraded.is_some());
    let view = manager.pool_view("p").expect("it is known");
    assert_eq!(view.health, Health::Degraded);
    // A write past the SSD is on record although the word of its failure was lost.
    world.inside().saved.pools[0].degraded = None;
    let manager = {
        drop(manager);
        world.inside().lost.clear();
        started(&world)
    };
    let life = life(&world);
    manager.notices(&[Notice::PastSsd { pool: "p".into(), life, volume: "v".into(), blocks: 0..8, token: 5 }]);
    assert_eq!(world.inside().saved.volumes[0].past, [(0, 8)]);
    assert!(world.inside().saved.pools[0].degraded.is_some());
}

/// While the loss cannot be recorded, the shards hear that it is worth waiting.
#[test]
fn who_waits_for_the_record_is_told_to_wait_on() {
    let world = world();
    with_dirty_volume(&world);
    let manager = started(&world);
    let first = world.inside().steps;
    world.inside().fail_at = Some(first + 1);
    manager.notice(&ssd_failed(&world));
    assert_eq!(world.inside().going_home, ["p"]);
    assert!(world.inside().saved.pools[0].degraded.is_some(), "the second try");
}

/// A pool that has lost its SSD stops its shards too, before the backing devices are looked at; and lets single volumes go and come.
#[test]
fn a_degraded_pool_lets_its_backing_devices_go() {
    let world = world();
    with_dirty_volume(&world);
    let manager = started(&world);
    must(&manager, Action::VolumeDestage { name: "v".into() });
    manager.notices(&[ssd_failed(&world), nothing_dirty(&world)]);
    must(&manager, Action::VolumeStop { name: "v".into(), give_up: false, force: false });
    assert!(world.inside().saved.volumes[0].stopped_clean);
    must(&manager, Action::VolumeStart { name: "v".into() });
    assert_eq!((volume(&manager).map(|v| v.health), world.read("v")), (Some(Health::Degraded), Some(5)));
    world.inside().devices.get_mut(DISK).expect("it is there").in_use = Some("the shards".into());
    manager.stop().expect("nothing fails");
    let inside = world.inside();
    assert!(inside.running.is_empty(), "its shards have stopped");
    assert!(
        !inside.saved.volumes[0].stopped_clean && inside.saved.volumes[0].identity.size_bytes > 0,
        "what could not be seen is not noted"
    );
}

fn start_pool() -> Action {
    Action::PoolStart { name: "p".into() }
}

/// An SSD that comes late: its pool and volumes start by themselves, and nobody restarts the daemon.
#[test]
fn a_pool_starts_by_itself_when_its_ssd_is_there() {
    for (mode, is_looked_for) in [("write-back", true), ("write-through", true), ("write-back", false), ("write-through", false)] {
        let (world, ssd) = stopped_without_ssd(mode);
        let manager = started(&world);
        if is_looked_for {
            let refused = carry_out(&manager, start_pool()).expect_err("there is no SSD");
            assert!(refused.contains("is not there"), "{refused}");
        }
        let without = if mode == "write-back" { Health::Failed } else { Health::Degraded };
        assert_eq!(volume(&manager).map(|v| v.health), Some(without), "{mode}");
        let mut watched = Watched::default();
        if is_looked_for {
            manager.watch_devices(&mut watched);
        }
        world.inside().devices.insert(SSD.into(), ssd);
        for _ in 0..200 {
            manager.watch_devices(&mut watched);
        }
        assert_eq!((volume(&manager).map(|v| v.health), world.read("v")), (Some(Health::Running), Some(5)), "{mode}");
        must(&manager, start_pool());
    }
}

/// A pool that does not come up although its SSD is there: its volumes do not go and come for that.
#[test]
fn a_pool_that_does_not_come_up_is_left_alone() {
    let world = world();
    let manager = started(&world);
    must(&manager, create());
    must(&manager, add("v", DISK, "write-through"));
    manager.stop().expect("nothing fails");
    world.inside().saved.pools[0].degraded =
        Some(records::state::Degraded { reason: "of old".into(), since_unix_s: 1, dirty_is_good: false });
    let manager = started(&world);
    assert_eq!(volume(&manager).map(|v| v.health), Some(Health::Degraded));
    let refused = carry_out(&manager, start_pool()).expect_err("nothing on it is believed");
    assert!(refused.contains("failed earlier (of old)"), "{refused}");
    let (before, mut watched) = (manager.latest_event(), Watched::default());
    (0..300).for_each(|_| manager.watch_devices(&mut watched));
    assert_eq!(manager.latest_event(), before, "nothing was done");
}

/// An SSD that failed and is back: one command serves what is dirty on it, whatever goes wrong on the way.
#[test]
fn a_pool_that_lost_its_ssd_is_started_again_at_any_step() {
    for crash in [false, true] {
        for n in 1..40 {
            let world = world();
            with_dirty_volume(&world);
            let manager = started(&world);
            manager.notice(&ssd_failed(&world));
            world.inside().lost.insert("p".into());
            let first = world.inside().steps;
            world.inside().fail_at = Some(first + n);
            world.inside().crash = crash;
            world.inside().lost.clear();
            let result = carry_out(&manager, start_pool());
            if !crash && result.is_err() {
                must(&manager, start_pool());
            }
            let manager = if crash { started(&world) } else { manager };
            if volume(&manager).is_some_and(|v| v.health == Health::Failed) {
                // Its own device failed: it has its own command.
                must(&manager, Action::VolumeStart { name: "v".into() });
            }
            assert_eq!(
                (volume(&manager).map(|v| v.health), world.read("v")),
                (Some(Health::Running), Some(5)),
                "{crash}, step {n}: {result:?}"
            );
            assert!(world.inside().saved.pools[0].degraded.is_none());
            world.inside().fail_at = None;
            assert!(world.write("v", 6));
            manager.stop().expect("nothing fails");
            started(&world);
            assert_eq!(world.read("v"), Some(6));
        }
    }
}

/// A word of an earlier life of the pool is not believed in this one, nor one of a volume of which the log lost something.
#[test]
fn words_are_believed_only_of_this_life_and_of_what_is_known() {
    let world = world();
    with_dirty_volume(&world);
    drop(started(&world));
    let late = [nothing_dirty(&world), ssd_failed(&world)];
    let late_past = Notice::PastSsd { pool: "p".into(), life: life(&world), volume: "v".into(), blocks: 0..8, token: 5 };
    let manager = started(&world);
    let before = world.inside().saved.clone();
    manager.notices(&late);
    manager.notices(std::slice::from_ref(&late_past));
    assert_eq!(world.inside().saved, before, "the SSD is good, and 5 is dirty on it");
    manager.notice(&ssd_failed(&world));
    manager.notices(&[late[0].clone(), late_past]);
    assert!(world.inside().saved.volumes[0].may_have_dirty, "5 is dirty");
    assert!(world.inside().saved.volumes[0].past.is_empty(), "of the life before");
    let id = world.inside().saved.volumes[0].id;
    world.inside().damaged = vec![id];
    let manager = started(&world);
    assert_eq!(volume(&manager).map(|v| v.health), Some(Health::Failed));
    manager.notices(&[ssd_failed(&world), nothing_dirty(&world)]);
    assert!(world.inside().saved.volumes[0].may_have_dirty, "what the damaged log held of it is not known");
}

/// A volume that a person stopped stays as it is, whatever comes of its pool.
#[test]
fn a_stopped_volume_is_not_used_by_a_replacement() {
    let world = world();
    with_dirty_volume(&world);
    let manager = started(&world);
    must(&manager, Action::VolumeDestage { name: "v".into() });
    must(&manager, Action::VolumeStop { name: "v".into(), give_up: false, force: false });
    world.add_device("/ssd2", 1 << 30);
    let replace = PoolReplace { ssd: "/ssd2".into(), size_bytes: None, force: false, drop_dirty: false };
    must(&manager, Action::PoolReplace { name: "p".into(), replace });
    assert!(!world.inside().saved.volumes[0].may_have_dirty);
    assert_eq!(volume(&manager).map(|v| v.health), Some(Health::Stopped));
    must(&manager, Action::VolumeStart { name: "v".into() });
    assert_eq!((volume(&manager).map(|v| v.health), world.read("v")), (Some(Health::Running), Some(5)));
}

/// A volume whose writes wait for the lost SSD says so, with the word that lets it go on.
#[test]
fn a_volume_that_waits_says_so_until_it_goes_on() {
    let world = world();
    with_dirty_volume(&world);
    let manager = started(&world);
    manager.notice(&ssd_failed(&world));
    let view = volume(&manager).expect("it is known");
    assert!(view.problem.is_some_and(|problem| problem.contains("writes wait")), "it runs, and waits");
    assert!(view.remedy.is_some_and(|remedy| remedy.contains("volume set v --on-ssd-loss continue")));
    let options = OptionsPatch { on_ssd_loss: Some("continue".into()), ..OptionsPatch::default() };
    must(&manager, Action::VolumeSet { name: "v".into(), set: VolumeSet { options, ..VolumeSet::default() } });
    assert_eq!(volume(&manager).map(|view| (view.health, view.problem)), Some((Health::Running, None)));
}
