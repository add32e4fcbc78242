//! Disks beside a cache when something fails, and when several commands come at once: whatever happens, what is on record is served again with
//! all its exports, and nobody waits for ever.

use super::Manager;
use super::fake::World;
use super::waiting::Watched;
use api::error::ControlError;
use api::options::OptionsPatch;
use api::words::Export;
use api::{Action, Answer, DiskCreate, DiskSet, Health, JobState, PoolCreate, PoolReplace, VolumeAdd, VolumeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

const MIB: u64 = 1 << 20;

fn open(world: &World) -> Manager {
    let manager = Manager::open(Arc::new(world.clone()), Box::new(world.clone()), Path::new("/state")).expect("the state can be read");
    manager.start().expect("the state can be saved");
    manager
}

fn add(name: &str, pool: &str) -> Action {
    Action::VolumeAdd(VolumeAdd {
        name: name.into(),
        pool: pool.into(),
        backing: format!("/disk-{name}"),
        exports: vec![Export::NBD, Export::LOOP],
        options: OptionsPatch { mode: Some("write-back".into()), ..OptionsPatch::default() },
        sector_bytes: None,
    })
}

fn pool_create(name: &str) -> Action {
    let (name, ssd) = (name.to_owned(), format!("/ssd-{name}"));
    Action::PoolCreate(PoolCreate {
        name,
        ssd,
        size_bytes: None,
        force: false,
        on_blank_ssd: None,
        spare_percent: None,
        ram_bytes: None,
        content: None,
    })
}

/// A pool "p" on 1 GiB with a write-back volume "v", of which version 7 is dirty.
fn begin(can_wait: bool) -> (World, Manager) {
    let world = World::default();
    world.inside().disks.can_wait = can_wait;
    for path in ["/ssd-p", "/ssd-q", "/disk-v", "/disk-w", "/disk-x"] {
        world.add_device(path, 1024 * MIB);
    }
    let manager = open(&world);
    manager.handle(pool_create("p")).expect("the SSD is good");
    manager.handle(add("v", "p")).expect("the disk is good");
    assert!(world.write("v", 7));
    (world, manager)
}

fn create(name: &str, mib: u64) -> Action {
    let exports = vec![Export::NBD, Export::LOOP];
    Action::DiskCreate(DiskCreate { name: name.into(), pool: "p".into(), size_bytes: mib * MIB, exports })
}

fn resize(name: &str, mib: u64) -> Action {
    Action::DiskSet { name: name.into(), set: DiskSet { size_bytes: Some(mib * MIB), lose_content: true, exports: None } }
}

fn offer(name: &str, exports: &[Export]) -> Action {
    let set = DiskSet { exports: Some(exports.to_vec()), ..DiskSet::default() };
    Action::DiskSet { name: name.into(), set }
}

fn remove(name: &str) -> Action {
    Action::DiskRemove { name: name.into(), lose_content: true }
}

fn take_back() -> Action {
    Action::PoolTakeBack { name: "p".into() }
}

/// Carries it out, with the job that it may be.
fn run(manager: &Manager, action: Action) -> Result<(), ControlError> {
    let Answer::Job(job) = manager.handle(action)? else { return Ok(()) };
    loop {
        match manager.handle(Action::JobShow { id: job.id })? {
            Answer::Job(job) if job.state == JobState::Running => std::thread::yield_now(),
            Answer::Job(job) if job.state == JobState::Done => return Ok(()),
            Answer::Job(job) => return Err(ControlError::Job(format!("{job:?}"), String::new())),
            other => panic!("{other:?}"),
        }
    }
}

/// What a person does who reads what is wrong, after a look of the daemon's own.
fn heal(manager: &Manager, case: &str) {
    let mut watched = Watched::default();
    manager.watch_devices(&mut watched);
    let Ok(Answer::Pools(pools)) = manager.handle(Action::PoolList) else { panic!("{case}") };
    for pool in pools.iter().filter(|pool| pool.health != Health::Running) {
        assert!(pool.problem.is_some(), "{case}: {pool:?}");
        manager.handle(Action::PoolStart { name: pool.name.clone() }).unwrap_or_else(|error| panic!("{case}: {error}"));
    }
    let Ok(Answer::Volumes(volumes)) = manager.handle(Action::VolumeList) else { panic!("{case}") };
    for volume in &volumes {
        manager.handle(Action::VolumeStart { name: volume.name.clone() }).unwrap_or_else(|error| panic!("{case}: {error}"));
    }
}

fn check(world: &World, manager: &Manager, case: &str) {
    // A save that has failed may be on disk all the same.
    let state = manager.memory().state.clone();
    state.check().unwrap_or_else(|problem| panic!("{case}: {problem}"));
    assert_eq!(world.inside().not_served(&state), Vec::<String>::new(), "{case}");
    let Ok(Answer::Disks(disks)) = manager.handle(Action::DiskList) else { panic!("{case}") };
    for disk in &disks {
        assert_eq!((disk.health, &disk.problem), (Health::Running, &None), "{case}: {disk:?}");
    }
}

/// What is done before, and what fails.
fn cases() -> Vec<(&'static str, Vec<Action>, Action)> {
    vec![
        ("create", vec![], create("b", 32)),
        ("create in a gap", vec![create("a", 48), resize("a", 8)], create("b", 16)),
        ("grow", vec![create("a", 16)], resize("a", 64)),
        ("grow into a gap", vec![create("a", 48), resize("a", 8)], resize("a", 24)),
        ("shrink", vec![create("a", 48)], resize("a", 8)),
        ("offer otherwise", vec![create("a", 16)], offer("a", &[Export::NBD, Export::BLOCK, Export::VHOST_USER])),
        ("remove", vec![create("a", 16)], remove("a")),
        ("take back", vec![create("a", 16), create("b", 64), remove("b")], take_back()),
        ("take all back", vec![create("a", 16), remove("a")], take_back()),
    ]
}

#[test]
fn whatever_fails_all_that_is_on_record_is_served_again() {
    for (can_wait, keeps_cache) in [(true, false), (true, true), (false, true)] {
        for (name, _, _) in &cases() {
            // Up to the step that nothing comes to.
            for step in 0.. {
                let mut was_reached = false;
                for fail_more in [0, 1, 3] {
                    let (world, manager) = begin(can_wait);
                    world.inside().disks.keeps_cache = keeps_cache;
                    let (_, before, action) = cases().into_iter().find(|(known, ..)| known == name).expect("it is listed");
                    for action in before {
                        run(&manager, action).expect("nothing fails yet");
                    }
                    {
                        let mut inside = world.inside();
                        (inside.fail_at, inside.fail_more) = (Some(inside.steps + step), fail_more);
                    }
                    let result = run(&manager, action);
                    was_reached |= {
                        let mut inside = world.inside();
                        inside.fail_at.take().is_some_and(|first| first <= inside.steps)
                    };
                    let case =
                        format!("{name}, step {step} and {fail_more} more, can wait {can_wait}, cache stays {keeps_cache}: {result:?}");
                    heal(&manager, &case);
                    check(&world, &manager, &case);
                    assert_eq!(world.read("v"), Some(7), "{case}");
                    // And it goes on.
                    run(&manager, create("z", 8)).unwrap_or_else(|error| panic!("{case}: {error}"));
                    run(&manager, remove("z")).unwrap_or_else(|error| panic!("{case}: {error}"));
                    check(&world, &manager, &case);
                }
                if !was_reached {
                    assert!(step > 3, "{name}");
                    break;
                }
            }
        }
    }
}

/// A crash at any step, with users who wait: the next daemon serves what is on record.
#[test]
fn after_a_crash_at_any_step_all_is_served() {
    for (keeps_cache, (name, _, _)) in cases().iter().flat_map(|case| [(false, case), (true, case)]) {
        for step in 0.. {
            let (world, manager) = begin(true);
            world.inside().disks.keeps_cache = keeps_cache;
            let (_, before, action) = cases().into_iter().find(|(known, ..)| known == name).expect("it is listed");
            for action in before {
                run(&manager, action).expect("nothing fails yet");
            }
            {
                let mut inside = world.inside();
                (inside.fail_at, inside.crash) = (Some(inside.steps + step), true);
            }
            let result = run(&manager, action);
            let was_reached = world.inside().dead;
            drop(manager);
            world.reboot();
            let manager = open(&world);
            let case = format!("{name}, step {step}, cache stays {keeps_cache}: {result:?}");
            check(&world, &manager, &case);
            assert_eq!(world.read("v"), Some(7), "{case}");
            run(&manager, create("z", 8)).unwrap_or_else(|error| panic!("{case}: {error}"));
            if !was_reached {
                break;
            }
        }
    }
}

/// Carries it out, after others; gives whether that made sense.
fn run_when_free(manager: &Manager, action: &Action) -> bool {
    for _ in 0..100 {
        match run(manager, action.clone()) {
            Err(ControlError::Claimed { .. } | ControlError::AtWork { .. }) => std::thread::yield_now(),
            result => return result.is_ok(),
        }
    }
    false
}

fn is_busy(manager: &Manager, action: Action) -> bool {
    matches!(manager.handle(action), Err(ControlError::Claimed { .. } | ControlError::AtWork { .. }))
}

/// The cache is made anew while dirty data goes home for long: what came into the pool meanwhile would be formatted away.
#[test]
fn nothing_comes_into_a_pool_whose_cache_is_being_made_anew() {
    let (world, manager) = begin(true);
    manager.handle(pool_create("q")).expect("the SSD is good");
    run(&manager, create("a", 16)).expect("there is room");
    assert!(world.write("v", 8));
    let replace = || PoolReplace { ssd: "/ssd-p".into(), size_bytes: None, force: true, drop_dirty: false };
    for (begun, what) in
        [(create("b", 64), "create"), (resize("a", 256), "grow"), (Action::PoolReplace { name: "p".into(), replace: replace() }, "replace")]
    {
        if what == "replace" {
            run(&manager, remove("a")).expect("nobody uses it");
            run(&manager, remove("b")).expect("nobody uses it");
            assert!(world.write("v", 9));
        }
        world.inside().slow = true;
        let Ok(Answer::Job(job)) = manager.handle(begun) else { panic!("{what}: it has to wait") };
        assert!(is_busy(&manager, add("w", "p")), "{what}: its dirty data would be lost");
        assert!(is_busy(&manager, create("c", 1)), "{what}");
        assert!(is_busy(&manager, take_back()), "{what}");
        let set =
            VolumeSet { options: OptionsPatch { mode: Some("write-through".into()), ..OptionsPatch::default() }, ..VolumeSet::default() };
        assert!(is_busy(&manager, Action::VolumeSet { name: "v".into(), set }), "{what}");
        if what == "create" {
            let mut elsewhere = add("b", "q");
            if let Action::VolumeAdd(add) = &mut elsewhere {
                add.backing = "/disk-w".into();
            }
            assert!(is_busy(&manager, elsewhere), "the name is the disk's");
        }
        world.inside().slow = false;
        while matches!(manager.handle(Action::JobShow { id: job.id }), Ok(Answer::Job(job)) if job.state == JobState::Running) {
            std::thread::yield_now();
        }
        check(&world, &manager, what);
    }
    assert_eq!(world.read("v"), Some(9));
    manager.handle(add("w", "p")).expect("now it may come");
}

/// A block device that cannot be told its new size is made anew, unless somebody uses it: then that is told.
#[test]
fn an_idle_block_device_gets_its_size_by_being_made_anew() {
    let (world, manager) = begin(true);
    run(&manager, create("a", 16)).expect("there is room");
    world.inside().disks.keeps_size = true;
    let told = |manager: &Manager| manager.events_after(0).into_iter().filter(|event| event.message.contains("keeps its size")).count();
    run(&manager, resize("a", 17)).expect("there is room behind it");
    assert_eq!(told(&manager), 0);
    check(&world, &manager, "made anew");
    world.add_mapped("user", MIB);
    world.inside().mapped.get_mut("user").expect("it is there").table = "/loop/a".into();
    run(&manager, resize("a", 18)).expect("it grows in use");
    assert_eq!(told(&manager), 1);
    check(&world, &manager, "in use");
    let reach = |manager: &Manager| match manager.handle(Action::DiskShow { name: "a".into() }) {
        Ok(Answer::Disk(disk)) => disk.size_reach.join("; "),
        other => panic!("{other:?}"),
    };
    assert!(reach(&manager).contains("the block device keeps its size"), "who asks is told: {}", reach(&manager));
    // Given again once nobody uses it, the command mends it.
    world.inside().mapped.clear();
    run(&manager, resize("a", 18)).expect("it has that size");
    assert!(!reach(&manager).contains("keeps"), "{}", reach(&manager));
    assert!(reach(&manager).contains("have it"), "{}", reach(&manager));
    check(&world, &manager, "again");
}

/// Small numbers, different for each thread.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// Commands for disks, pools and volumes from several threads, while clients write: what is refused is busy or makes no sense, no disk lies over
/// another or over the cache (the world checks that), and no acknowledged write is lost.
#[test]
fn commands_that_come_at_once_do_not_meet() {
    for seed in 0..4 {
        let (world, manager) = begin(true);
        world.inside().disks.keeps_cache = seed % 2 == 1;
        let stop = AtomicBool::new(false);
        let (written, carried_out) = (AtomicU64::new(7), AtomicU32::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for version in 8.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let mut inside = world.inside();
                    if inside.write_by_export("v", version) {
                        written.store(version, Ordering::Relaxed);
                    }
                    drop(inside);
                    std::thread::yield_now();
                }
            });
            let workers: Vec<_> = (0..5)
                .map(|number| {
                    let (manager, carried_out) = (&manager, &carried_out);
                    scope.spawn(move || {
                        let mut random = Random(seed * 100 + number);
                        // On a busy machine most commands meet another one: then they go on until some were carried out.
                        let goes_on = |command: u32| command < 150 || carried_out.load(Ordering::Relaxed) <= 50;
                        for _ in (0..).take_while(|command| goes_on(*command)) {
                            let name = ["a", "b", "c", "w"][random.below(4) as usize];
                            let mib = 1 + random.below(200);
                            let mode = ["write-back", "write-through"][random.below(2) as usize];
                            let options = OptionsPatch { mode: Some(mode.into()), ..OptionsPatch::default() };
                            let action = match random.below(12) {
                                0..=2 => create(name, mib),
                                3..=5 => resize(name, mib),
                                6 => remove(name),
                                7 => take_back(),
                                8 => add("w", "p"),
                                9 => Action::VolumeRemove { name: "w".into(), drop_dirty: false },
                                10 => Action::VolumeSet { name: "v".into(), set: VolumeSet { options, ..VolumeSet::default() } },
                                _ => {
                                    let replace = PoolReplace { ssd: "/ssd-p".into(), size_bytes: None, force: true, drop_dirty: false };
                                    Action::PoolReplace { name: "p".into(), replace }
                                }
                            };
                            if random.below(8) == 0 {
                                manager.watch_devices(&mut Watched::default());
                            }
                            carried_out.fetch_add(u32::from(run_when_free(manager, &action)), Ordering::Relaxed);
                        }
                    })
                })
                .collect();
            let ended: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
            stop.store(true, Ordering::Relaxed);
            ended.into_iter().for_each(|ended| ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        });
        heal(&manager, "after all");
        check(&world, &manager, &format!("seed {seed}"));
        assert_eq!(world.read("v"), Some(written.load(Ordering::Relaxed)), "seed {seed}");
        assert!(world.inside().disks.waiting.is_empty());
    }
}
