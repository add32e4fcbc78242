//! A state directory that is older than the SSD: an old copy of it was put back. What may be dirty on the SSD is never dropped by it, and never
//! bypassed; the newest state works as if nothing had been.

use super::Manager;
use super::fake::World;
use super::tests::{DISK, SSD, add, create, started, world};
use api::options::OptionsPatch;
use api::{Action, Answer, Health, PoolReplace, PoolView, VolumeSet, VolumeView};
use records::state::State;

fn volume(manager: &Manager, name: &str) -> VolumeView {
    match manager.handle(Action::VolumeShow { name: name.into() }) {
        Ok(Answer::Volume(view)) => *view,
        other => panic!("{other:?}"),
    }
}

fn pool(manager: &Manager) -> PoolView {
    match manager.handle(Action::PoolShow { name: "p".into() }) {
        Ok(Answer::Pool(view)) => *view,
        other => panic!("{other:?}"),
    }
}

fn must(manager: &Manager, action: Action) {
    manager.handle(action).expect("nothing fails");
    while manager.jobs_running() > 0 {
        std::thread::yield_now();
    }
}

fn set_mode(name: &str, mode: &str) -> Action {
    let options = OptionsPatch { mode: Some(mode.into()), ..OptionsPatch::default() };
    Action::VolumeSet { name: name.into(), set: VolumeSet { options, ..VolumeSet::default() } }
}

fn remove(name: &str) -> Action {
    Action::VolumeRemove { name: name.into(), drop_dirty: false }
}

/// A pool with the write-through volume `v`, its state then, and what came after; killed.
fn older(after: &dyn Fn(&Manager, &World)) -> (World, State, State) {
    let world = world();
    let manager = started(&world);
    must(&manager, create());
    must(&manager, add("v", DISK, "write-through"));
    assert!(world.write("v", 1));
    let older = world.inside().saved.clone();
    after(&manager, &world);
    drop(manager);
    let newest = world.inside().saved.clone();
    (world, older, newest)
}

fn put(world: &World, state: &State) {
    world.inside().saved = state.clone();
}

fn log_of(world: &World) -> Vec<(u32, (u64, bool))> {
    world.inside().devices[SSD].log.iter().map(|(id, block)| (*id, *block)).collect()
}

/// Every way in which the SSD can know more than the state: nothing is served, nothing changes on the SSD, and all that would lose data is refused.
#[test]
fn what_is_dirty_on_the_ssd_is_never_dropped_whatever_an_older_state_says() {
    let write_back = |manager: &Manager, world: &World| {
        must(manager, set_mode("v", "write-back"));
        assert!(world.write("v", 2));
    };
    let anew = |manager: &Manager, world: &World| {
        must(manager, remove("v"));
        must(manager, add("v", DISK, "write-back"));
        assert!(world.write("v", 2));
    };
    let another = |manager: &Manager, world: &World| {
        must(manager, add("w", "/disk2", "write-back"));
        assert!(world.write("w", 2));
    };
    type Way<'a> = (&'a str, &'a dyn Fn(&Manager, &World));
    let ways: [Way<'_>; 3] = [("v", &write_back), ("v", &anew), ("w", &another)];
    for (dirty, after) in ways {
        let (world, older, newest) = older(after);
        let before = log_of(&world);
        put(&world, &older);
        // The second life finds what the first has made of the state.
        for life in 0..2 {
            let manager = started(&world);
            let (seen, served) = (pool(&manager), volume(&manager, "v"));
            let problem = seen.problem.clone().unwrap_or_default();
            assert!(seen.health == Health::Failed && problem.contains("state is older than this SSD"), "{life}: {seen:?}");
            assert!(seen.remedy.is_some_and(|remedy| remedy.contains("newest state.json")));
            assert!(served.health == Health::Failed && world.read("v").is_none(), "{life}: {served:?}");
            assert_eq!((seen.dirty_bytes, served.dirty_bytes), (None, None), "nobody knows what is dirty");
            let replace = PoolReplace { ssd: SSD.into(), size_bytes: None, force: true, drop_dirty: false };
            for action in [
                Action::PoolReplace { name: "p".into(), replace },
                Action::PoolDestroy { name: "p".into(), force: false },
                Action::PoolStart { name: "p".into() },
                Action::VolumeStart { name: "v".into() },
                remove("v"),
            ] {
                let refused = manager.handle(action.clone()).expect_err("it would lose data").to_string();
                let has_volumes = matches!(action, Action::PoolDestroy { .. }) && refused.contains("still has");
                assert!(has_volumes || refused.contains("older than this SSD"), "{refused}");
            }
            // A state that goes on by itself does not become newer by that.
            must(&manager, Action::VolumeStop { name: "v".into(), give_up: false, force: false });
            must(&manager, set_mode("v", "write-around"));
            must(&manager, Action::PoolSet { name: "p".into(), set: api::PoolSet { content: Some("off".into()), on_blank_ssd: None } });
            drop(manager.handle(Action::VolumeStart { name: "v".into() }));
            manager.write_due_records();
            assert_eq!(log_of(&world), before, "{life}: the SSD is as it was");
        }
        put(&world, &newest);
        let manager = started(&world);
        assert_eq!((pool(&manager).health, world.read(dirty)), (Health::Running, Some(2)), "{dirty}");
        must(&manager, Action::VolumeDestage { name: dirty.into() });
        let home = if dirty == "v" { DISK } else { "/disk2" };
        assert_eq!(world.inside().devices[home].version, 2);
    }
}

/// A pool without volumes in the older state is not destroyed without being asked for twice.
#[test]
fn a_pool_that_had_no_volumes_then_is_not_destroyed_by_an_older_state() {
    let world = world();
    let manager = started(&world);
    must(&manager, create());
    let older = world.inside().saved.clone();
    must(&manager, add("v", DISK, "write-back"));
    assert!(world.write("v", 2));
    drop(manager);
    put(&world, &older);
    let manager = started(&world);
    let refused = manager.handle(Action::PoolDestroy { name: "p".into(), force: false }).expect_err("there is dirty data");
    assert!(refused.to_string().contains("older than this SSD"), "{refused}");
}

/// What an older state does not know may be of no account for data: then it is served, and the administrator hears of it.
#[test]
fn a_state_that_is_older_in_what_is_harmless_is_served_and_told() {
    let (world, older, newest) = older(&|manager, world| {
        must(manager, set_mode("v", "write-around"));
        assert!(world.write("v", 2));
        manager.write_due_records();
    });
    put(&world, &older);
    let manager = started(&world);
    assert_eq!((pool(&manager).health, world.read("v")), (Health::Running, Some(2)));
    let told = manager.events_after(0).into_iter().any(|event| event.object == "p" && event.message.contains("version"));
    assert!(told, "{:?}", manager.events_after(0));
    drop(manager);
    // By now the one that was the newest is older in the same way.
    put(&world, &newest);
    let manager = started(&world);
    assert_eq!((pool(&manager).health, world.read("v")), (Health::Running, Some(2)));
}

/// The copy is on the SSD before anything can be dirty that it does not tell of, whatever fails and wherever the power goes.
#[test]
fn no_dirty_block_without_a_copy_that_tells_of_it() {
    for crash in [false, true] {
        for step in 1.. {
            let (world, older, _) = older(&|manager, world| {
                {
                    let mut inside = world.inside();
                    (inside.fail_at, inside.crash) = (Some(inside.steps + step), crash);
                }
                drop(manager.handle(set_mode("v", "write-back")));
                while manager.jobs_running() > 0 {
                    std::thread::yield_now();
                }
                world.inside().fail_at = None;
                if !world.inside().dead {
                    world.write("v", 2);
                }
            });
            let untouched = world.inside().steps > 0 && log_of(&world).iter().any(|(_, (_, dirty))| *dirty);
            put(&world, &older);
            let manager = started(&world);
            if untouched {
                assert_eq!(world.read("v"), None, "crash {crash}, step {step}: dirty data is bypassed");
                assert!(log_of(&world).iter().any(|(_, (_, dirty))| *dirty), "crash {crash}, step {step}: dirty data is dropped");
            }
            drop(manager);
            if step > 12 {
                break;
            }
        }
    }
}
