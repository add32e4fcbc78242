//! Texts that people see say a thing once, and say what was done.

use super::Manager;
use super::fake::World;
use api::options::{Limit, OptionsPatch};
use api::{Action, Answer, JobState, PoolCreate, PoolSet, VolumeAdd, VolumeSet};
use std::path::Path;
use std::sync::Arc;

/// Words in a row that a text may not have twice.
const WORDS: usize = 4;

/// The first words that stand twice in a text.
fn repeated(text: &str) -> Option<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let runs: Vec<&[&str]> = words.windows(WORDS).collect();
    let twice = (0..runs.len()).find(|at| runs[..*at].contains(&runs[*at]))?;
    Some(runs[twice].join(" "))
}

#[test]
fn what_is_said_twice_is_found() {
    let doubled = "pool \"fp\" does not run: pool \"fp\" does not run: its SSD failed";
    assert_eq!(repeated(doubled).as_deref(), Some("pool \"fp\" does not"));
    assert_eq!(repeated("remove it, or add it to another pool"), None);
}

fn with_volume(mode: &str) -> (World, Manager) {
    let world = World::default();
    for path in ["/ssd", "/disk", "/disk2"] {
        world.add_device(path, 1 << 30);
    }
    let manager = open(&world);
    let create = PoolCreate {
        name: "p".into(),
        ssd: "/ssd".into(),
        size_bytes: None,
        ram_bytes: None,
        content: None,
        force: false,
        on_blank_ssd: None,
        spare_percent: None,
    };
    manager.handle(Action::PoolCreate(create)).expect("nothing fails");
    manager.handle(add("v", "/disk", mode)).expect("nothing fails");
    (world, manager)
}

fn open(world: &World) -> Manager {
    let manager = Manager::open(Arc::new(world.clone()), Box::new(world.clone()), Path::new("/state")).expect("the state can be read");
    manager.start().expect("the state can be saved");
    manager
}

fn add(name: &str, backing: &str, mode: &str) -> Action {
    let options = OptionsPatch { mode: Some(mode.into()), ..OptionsPatch::default() };
    Action::VolumeAdd(VolumeAdd {
        name: name.into(),
        pool: "p".into(),
        backing: backing.into(),
        exports: Vec::new(),
        options,
        sector_bytes: None,
    })
}

/// Everything that people can read about a world in trouble.
fn texts(manager: &Manager) -> Vec<String> {
    let mut texts = Vec::new();

    let content = Some("dense".into());
    for action in [
        add("w", "/disk2", "write-through"),
        Action::VolumeDestage { name: "v".into() },
        Action::VolumeStart { name: "v".into() },
        Action::VolumeDropCache { name: "v".into() },
        Action::VolumeRemove { name: "v".into(), drop_dirty: false },
        Action::PoolSet { name: "p".into(), set: PoolSet { content, on_blank_ssd: None } },
        Action::PoolDestroy { name: "p".into(), force: false },
        Action::PoolCheck { name: "p".into() },
    ] {
        if let Err(error) = manager.handle(action) {
            texts.push(error.refusal().to_string());
        }
    }
    while manager.running_jobs().iter().any(|job| job.is_running()) {
        std::thread::yield_now();
    }
    let views = [Action::PoolList, Action::VolumeList, Action::JobList].map(|action| manager.handle(action).expect("looking never fails"));
    for view in views {
        match view {
            Answer::Pools(pools) => texts.extend(pools.iter().flat_map(|p| [p.problem.clone(), p.remedy.clone()]).flatten()),
            Answer::Volumes(volumes) => texts.extend(volumes.iter().flat_map(|v| [v.problem.clone(), v.remedy.clone()]).flatten()),
            Answer::Jobs(jobs) => texts.extend(jobs.iter().filter_map(|job| match &job.state {
                JobState::Failed { error } => Some(error.to_string()),
                _ => None,
            })),
            _ => {}
        }
    }
    let Ok(Answer::Events(events)) = manager.handle(Action::Events { after: 0 }) else { panic!("there are events") };
    texts.extend(events.iter().map(|event| format!("{}: {}", event.object, event.message)));
    texts
}

/// A pool whose SSD failed for good was named in its own reason: `pool "p" does not run: pool "p" does not run: its SSD ...`.
#[test]
fn no_text_says_a_thing_twice() {
    for mode in ["write-through", "write-back"] {
        for trouble in ["SSD gone", "SSD failed", "disk gone"] {
            let (world, manager) = with_volume(mode);
            if trouble == "SSD failed" {
                let notice = super::tests::ssd_failed(&world);
                manager.take_notice(&notice);
            }
            drop(manager);
            world.reboot();
            match trouble {
                "SSD gone" => world.inside().devices.remove("/ssd"),
                "disk gone" => world.inside().devices.remove("/disk"),
                _ => None,
            };
            let texts = texts(&open(&world));
            assert!(texts.len() > 3, "{trouble}: {texts:?}");
            for text in texts {
                assert_eq!(repeated(&text), None, "{mode}, {trouble}: {text}");
                assert!(!text.contains("  ") && !text.contains("1 blocks"), "{text}");
            }
        }
    }
}

/// `volume NAME changed` came whether or not anything did.
#[test]
fn a_change_says_what_changed_or_that_nothing_did() {
    let (_, manager) = with_volume("write-through");
    let set = |options: OptionsPatch| match manager
        .handle(Action::VolumeSet { name: "v".into(), set: VolumeSet { options, ..VolumeSet::default() } })
    {
        Ok(Answer::Done(done)) => done.summary.expect("it says what it did"),
        other => panic!("{other:?}"),
    };
    let limit = || OptionsPatch { dirty_limit: Some(Limit::Bytes(1 << 30)), ..OptionsPatch::default() };
    assert_eq!(set(limit()), "dirty limit 1 GiB (was off)");
    assert_eq!(set(limit()), "unchanged: the options already have these values");
    let back = || OptionsPatch { mode: Some("write-back".into()), ..OptionsPatch::default() };
    assert_eq!(set(back()), "mode write-back (was write-through)");
    assert_eq!(set(back()), "unchanged: the options already have these values");
    manager.handle(Action::VolumeStop { name: "v".into(), give_up: false, force: false }).expect("nobody uses it");
    assert_eq!(set(OptionsPatch { read_only: None, ..limit() }), "unchanged: the options already have these values");
    let off = OptionsPatch { dirty_limit: Some(Limit::Off), ..OptionsPatch::default() };
    assert_eq!(set(off), "dirty limit off (was 1 GiB); in effect when it runs again");
}

/// That the options are what they were says nothing where something else was changed.
#[test]
fn new_exports_alone_are_a_change() {
    let (_, manager) = with_volume("write-through");
    let options = OptionsPatch { dirty_limit: Some(Limit::Off), ..OptionsPatch::default() };
    let set = VolumeSet { options, exports: Some(vec![api::words::Export::NBD]), ..VolumeSet::default() };
    let Ok(Answer::Done(done)) = manager.handle(Action::VolumeSet { name: "v".into(), set }) else { panic!("it is done") };
    let told = done.summary.expect("it says what it did");
    assert!(told.contains("nbd") && !told.contains("unchanged") && !told.ends_with("; "), "{told}");
}

#[test]
fn the_file_that_was_made_for_a_pool_is_told_when_the_pool_goes() {
    let (_, manager) = with_volume("write-through");
    let create = PoolCreate {
        name: "q".into(),
        ssd: "/new".into(),
        size_bytes: Some(1 << 30),
        ram_bytes: Some(0),
        content: None,
        force: false,
        on_blank_ssd: None,
        spare_percent: None,
    };
    manager.handle(Action::PoolCreate(create)).expect("nothing is there yet");
    let destroy = |name: &str| match manager.handle(Action::PoolDestroy { name: name.into(), force: true }) {
        Ok(Answer::Done(done)) => done.summary,
        other => panic!("{other:?}"),
    };
    assert_eq!(destroy("q").as_deref(), Some("/new stays, 1 GiB: delete it if it is not needed"));
    assert_eq!(destroy("p"), None, "a device, or a file of somebody else");
}
