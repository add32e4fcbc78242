//! Disks beside a cache over the fake data path: their places, what is refused, and what a failure or crash at any step leaves.

use super::Manager;
use super::fake::World;
use super::waiting::Watched;
use api::options::OptionsPatch;
use api::words::Export;
use api::{Action, Answer, DiskCreate, DiskSet, DiskView, JobState, PoolCreate, PoolReplace, ShareAdd, VolumeAdd};
use std::path::Path;
use std::sync::Arc;
use targets::Protocol;

const MIB: u64 = 1 << 20;

fn open(world: &World) -> Manager {
    let manager = Manager::open(Arc::new(world.clone()), Box::new(world.clone()), Path::new("/state")).expect("the state can be read");
    manager.start().expect("the state can be saved");
    manager
}

/// A pool "p" on 1 GiB with a write-back volume "v", of which version 7 is dirty.
fn begin() -> (World, Manager) {
    let world = World::default();
    world.add_device("/ssd", 1024 * MIB);
    world.add_device("/disk", 1024 * MIB);
    let manager = open(&world);
    let create = PoolCreate {
        name: "p".into(),
        ssd: "/ssd".into(),
        size_bytes: None,
        force: false,
        on_blank_ssd: None,
        spare_percent: None,
        ram_bytes: None,
        content: None,
    };
    manager.handle(Action::PoolCreate(create)).expect("the SSD is good");
    let add = VolumeAdd {
        name: "v".into(),
        pool: "p".into(),
        backing: "/disk".into(),
        exports: Vec::new(),
        options: OptionsPatch { mode: Some("write-back".into()), ..OptionsPatch::default() },
        sector_bytes: None,
    };
    manager.handle(Action::VolumeAdd(add)).expect("the disk is good");
    assert!(world.write("v", 7));
    (world, manager)
}

/// Makes a disk, and waits for the job if there is one.
fn create(manager: &Manager, name: &str, size_bytes: u64) -> Result<(), String> {
    let create = DiskCreate { name: name.into(), pool: "p".into(), size_bytes, exports: Vec::new() };
    wait(manager, manager.handle(Action::DiskCreate(create)))
}

fn wait(manager: &Manager, answer: Result<Answer, api::error::ControlError>) -> Result<(), String> {
    let id = match answer {
        Ok(Answer::Job(job)) => job.id,
        Ok(_) => return Ok(()),
        Err(error) => return Err(error.refusal().to_string()),
    };
    loop {
        match manager.handle(Action::JobShow { id }) {
            Ok(Answer::Job(job)) if job.state == JobState::Running => std::thread::yield_now(),
            Ok(Answer::Job(job)) if job.state == JobState::Done => return Ok(()),
            other => return Err(format!("{other:?}")),
        }
    }
}

fn disks(manager: &Manager) -> Vec<DiskView> {
    match manager.handle(Action::DiskList) {
        Ok(Answer::Disks(disks)) => disks,
        other => panic!("{other:?}"),
    }
}

/// Its pieces, each as where it begins and how long it is.
fn pieces(manager: &Manager, name: &str) -> Vec<(u64, u64)> {
    let disk = disks(manager).into_iter().find(|disk| disk.name == name).expect("it is there");
    disk.pieces.iter().map(|piece| (piece.offset_bytes / MIB, piece.size_bytes / MIB)).collect()
}

fn place(manager: &Manager, name: &str) -> (u64, u64) {
    match pieces(manager, name)[..] {
        [piece] => piece,
        ref pieces => panic!("{name} has {} pieces", pieces.len()),
    }
}

fn resize(manager: &Manager, name: &str, size_bytes: u64, lose_content: bool) -> Result<(), String> {
    let set = DiskSet { size_bytes: Some(size_bytes), lose_content, exports: None };
    wait(manager, manager.handle(Action::DiskSet { name: name.into(), set }))
}

/// What could not be served for a moment comes back by itself, or when it is asked for.
fn come_back(manager: &Manager, world: &World) {
    manager.watch_devices(&mut Watched::default());
    if world.read("v").is_none() && !world.inside().running.is_empty() {
        manager.handle(Action::VolumeStart { name: "v".into() }).expect("nothing fails any more");
    }
}

fn room_at(world: &World) -> Option<u64> {
    world.inside().saved.pool("p").expect("it is there").disk_room.map(|room| room.at_bytes / MIB)
}

/// Offers a disk otherwise; gives how it is offered then.
fn offer(manager: &Manager, words: &[&str]) -> Result<Vec<String>, String> {
    let exports: Vec<Export> = words.iter().map(|word| Export::parse(word).expect("a word")).collect();
    let set = DiskSet { exports: Some(exports), ..DiskSet::default() };
    match manager.handle(Action::DiskSet { name: "a".into(), set }) {
        Ok(Answer::Disk(disk)) => {
            Ok(disk.exports.iter().map(|(word, place)| format!("{word}{}", if place.is_some() { "" } else { ": nowhere" })).collect())
        }
        Ok(other) => panic!("{other:?}"),
        Err(error) => Err(format!("{error}; {}", error.remedy())),
    }
}

#[test]
fn a_disk_is_offered_otherwise_and_what_is_in_use_stays() {
    let (world, manager) = begin();
    create(&manager, "a", 16 * MIB).expect("there is room");
    let check = |words: &[&str], expected: &[&str]| {
        let expected: Vec<String> = expected.iter().map(|&word| word.to_owned()).collect();
        assert_eq!(offer(&manager, words), Ok(expected), "{words:?}");
    };
    check(&["nbd", "loop"], &["loop", "nbd"]);
    check(&["loop"], &["loop"]);
    let gone = manager.events_after(0);
    assert!(gone.iter().any(|event| event.message == "it is exported as loop now"));
    check(&["loop", "nbd:127.0.0.1:7000"], &["loop", "nbd:127.0.0.1:7000"]);
    let (told, twice) = (manager.events_after(0).len(), ["loop", "nbd:127.0.0.1:7000"]);
    check(&twice, &twice);
    assert_eq!(manager.events_after(0).len(), told, "nothing was changed");
    let refused = offer(&manager, &["loop", "loop"]).expect_err("twice");
    assert!(refused.contains("twice"), "{refused}");
    // Shared, the block device stays.
    let share = ShareAdd { protocol: Protocol::Iscsi, addresses: vec![], initiators: vec![], any_initiator: false, chap_file: None };
    manager.handle(Action::ShareAdd { volume: "a".into(), add: share }).expect("it has a block device");
    let refused = offer(&manager, &["nbd"]).expect_err("shared");
    assert!(refused.contains("it is shared by iSCSI") && refused.contains("hearth share remove a --iscsi"), "{refused}");
    check(&["loop", "nbd"], &["loop", "nbd"]);
    manager.handle(Action::ShareRemove { volume: "a".into(), protocol: Protocol::Iscsi, force: false }).expect("nobody is connected");
    // Mounted, too.
    world.add_mapped("vg-lv", 16 * MIB);
    world.inside().mapped.get_mut("vg-lv").expect("it is there").table = "/loop/a".into();
    let refused = offer(&manager, &["nbd"]).expect_err("in use");
    assert!(refused.contains("it is in use (it is part of vg-lv)"), "{refused}");
    check(&["loop"], &["loop"]);
    world.inside().mapped.clear();
    check(&["vhost-user"], &["vhost-user"]);
    check(&[], &[]);
    let not_both = DiskSet { size_bytes: Some(MIB), exports: Some(vec![]), ..DiskSet::default() };
    for set in [DiskSet::default(), not_both, DiskSet { exports: Some(vec![]), lose_content: true, ..DiskSet::default() }] {
        manager.handle(Action::DiskSet { name: "a".into(), set }).expect_err("one thing at a time");
    }
    // What is on record comes back with the next daemon.
    check(&["nbd"], &["nbd"]);
    drop(manager);
    world.reboot();
    let exports = disks(&open(&world)).remove(0).exports;
    assert!(exports.len() == 1 && exports["nbd"].is_some(), "{exports:?}");
}

#[test]
fn disks_take_gaps_before_the_cache_gives_more() {
    let (world, manager) = begin();
    create(&manager, "a", 100 * MIB).expect("there is room");
    assert_eq!(place(&manager, "a"), (912, 100), "the room begins on a multiple of 16 MiB");
    create(&manager, "b", 11 * MIB).expect("there is room");
    assert_eq!(place(&manager, "b"), (1012, 11), "the rest of the room, which leaves the end of the SSD out");
    create(&manager, "c", 5 * MIB / 2).expect("there is room");
    assert_eq!(place(&manager, "c"), (896, 3), "whole mebibytes, in what the cache gave");
    assert_eq!(world.read("v"), Some(7));
    assert!(resize(&manager, "a", 50 * MIB, false).expect_err("content").contains("--lose-content"));
    resize(&manager, "a", 50 * MIB, true).expect("it was said");
    create(&manager, "d", 40 * MIB).expect("where a ended");
    assert_eq!(place(&manager, "d"), (962, 40));
    let refused = create(&manager, "e", 1024 * MIB).expect_err("too much");
    assert!(refused.contains("855 MiB more of disks at most"), "{refused}");
    assert!(create(&manager, "v", MIB).expect_err("a volume's name").contains("v"));
    assert!(create(&manager, "a", MIB).expect_err("a disk's name").contains("a"));
    // The cache gets back what is before the first disk.
    let remove = |name: &str, lose_content| manager.handle(Action::DiskRemove { name: name.into(), lose_content });
    assert!(remove("c", false).is_err());
    remove("c", true).expect("nobody uses it");
    wait(&manager, manager.handle(Action::PoolTakeBack { name: "p".into() })).expect("there is room");
    assert_eq!(room_at(&world), Some(912));
    assert!(manager.handle(Action::PoolTakeBack { name: "p".into() }).is_err(), "nothing more");
    assert_eq!(disks(&manager).len(), 3);
    assert_eq!(world.read("v"), Some(7));
}

#[test]
fn what_would_take_disks_along_is_refused() {
    let (world, manager) = begin();
    world.add_device("/ssd2", 1024 * MIB);
    create(&manager, "a", 16 * MIB).expect("there is room");
    let refused = |action| manager.handle(action).expect_err("it has a disk").refusal().to_string();
    for ssd in ["/ssd", "/ssd2"] {
        let replace = PoolReplace { ssd: ssd.into(), size_bytes: None, force: true, drop_dirty: false };
        let told = refused(Action::PoolReplace { name: "p".into(), replace });
        assert!(told.contains("carries the disk \"a\"") && told.contains("hearth disk remove"), "{told}");
    }
    let destroy = |force| Action::PoolDestroy { name: "p".into(), force };
    wait(&manager, manager.handle(Action::VolumeRemove { name: "v".into(), drop_dirty: false })).expect("its dirty data is destaged");
    let told = refused(destroy(false));
    assert!(told.contains("has disks on its SSD: a"), "{told}");
    assert_eq!(disks(&manager).len(), 1);
    manager.handle(destroy(true)).expect("it was said");
    assert!(disks(&manager).is_empty());
    assert_eq!(world.inside().saved.disks, []);
}

#[test]
fn two_who_make_disks_at_once_get_different_places() {
    let (world, manager) = begin();
    create(&manager, "first", 200 * MIB).expect("there is room");
    resize(&manager, "first", MIB, true).expect("it was said");
    std::thread::scope(|scope| {
        for number in 0..4 {
            let manager = &manager;
            scope.spawn(move || {
                let name = format!("d{number}");
                while let Err(told) = create(manager, &name, 10 * MIB) {
                    assert!(told.contains("busy") || told.contains("try again"), "{told}");
                    std::thread::yield_now();
                }
            });
        }
    });
    assert_eq!(disks(&manager).len(), 5);
    world.inside().saved.check().expect("nothing overlaps");
}

#[test]
fn a_disk_grows_into_whatever_room_there_is() {
    let (world, manager) = begin();
    create(&manager, "a", 20 * MIB).expect("there is room");
    create(&manager, "b", 3 * MIB).expect("there is room");
    assert_eq!((pieces(&manager, "a"), pieces(&manager, "b")), (vec![(992, 20)], vec![(1012, 3)]));
    resize(&manager, "b", 6 * MIB, false).expect("there is room behind it");
    assert_eq!(pieces(&manager, "b"), [(1012, 6)], "in one piece");
    resize(&manager, "a", 25 * MIB, false).expect("there is room, elsewhere");
    assert_eq!(pieces(&manager, "a"), [(992, 20), (1018, 5)]);
    assert_eq!(room_at(&world), Some(992), "the cache gave nothing for that");
    resize(&manager, "b", 40 * MIB, false).expect("the cache gives room");
    assert_eq!(pieces(&manager, "b"), [(1012, 6), (944, 34)]);
    assert_eq!(room_at(&world), Some(944));
    assert_eq!(world.read("v"), Some(7));
    resize(&manager, "b", 41 * MIB, false).expect("there is room behind its last piece");
    assert_eq!(pieces(&manager, "b"), [(1012, 6), (944, 35)]);
    create(&manager, "c", 13 * MIB).expect("what is left of the room");
    assert_eq!(pieces(&manager, "c"), [(979, 13)]);
    resize(&manager, "b", 3 * MIB, true).expect("it was said");
    assert_eq!(pieces(&manager, "b"), [(1012, 3)]);
    create(&manager, "d", 37 * MIB).expect("in pieces, before the cache gives more");
    assert_eq!((pieces(&manager, "d"), room_at(&world)), (vec![(944, 35), (1015, 2)], Some(944)));
    let refused = resize(&manager, "d", 2048 * MIB, false).expect_err("too much");
    assert!(refused.contains("881 MiB more of disks at most"), "{refused}");
    world.inside().saved.check().expect("nothing overlaps");
}

#[test]
fn a_failure_at_any_step_of_a_growth_loses_nothing() {
    for crash in [false, true] {
        for step in 0..40 {
            let (world, manager) = begin();
            create(&manager, "a", 16 * MIB).expect("there is room");
            let before = place(&manager, "a");
            {
                let mut inside = world.inside();
                (inside.fail_at, inside.crash) = (Some(inside.steps + step), crash);
            }
            let grown = resize(&manager, "a", 64 * MIB, false);
            let manager = if crash {
                drop(manager);
                world.reboot();
                open(&world)
            } else {
                world.inside().fail_at = None;
                manager
            };
            let case = format!("step {step}, crash {crash}: {grown:?}");
            world.inside().saved.check().unwrap_or_else(|problem| panic!("{case}: {problem}"));
            let now = pieces(&manager, "a");
            assert!(now[0].0 == before.0 && now[0].1 >= before.1, "{case}: what it had is where it was");
            assert!(grown.is_err() || now.iter().map(|(_, length)| length).sum::<u64>() == 64, "{case}");
            if world.inside().running.is_empty() {
                manager.handle(Action::PoolStart { name: "p".into() }).unwrap_or_else(|error| panic!("{case}: {error}"));
            }
            come_back(&manager, &world);
            assert_eq!(world.read("v"), Some(7), "{case}");
            resize(&manager, "a", 64 * MIB, false).unwrap_or_else(|error| panic!("{case}: {error}"));
            resize(&manager, "a", 16 * MIB, true).unwrap_or_else(|error| panic!("{case}: {error}"));
            assert_eq!(place(&manager, "a"), before, "{case}");
        }
    }
}

/// Where the cache can be cut, it is the same one after a disk was made, and after the room was taken back.
#[test]
fn a_cache_that_can_be_cut_keeps_what_it_has() {
    for keeps_cache in [false, true] {
        let (world, manager) = begin();
        world.inside().disks.keeps_cache = keeps_cache;
        let uuid = || world.inside().saved.pool("p").expect("it is there").uuid;
        let before = uuid();
        create(&manager, "a", 16 * MIB).expect("there is room");
        assert_eq!((uuid() == before, room_at(&world).is_some()), (keeps_cache, true));
        manager.handle(Action::DiskRemove { name: "a".into(), lose_content: true }).expect("nobody uses it");
        wait(&manager, manager.handle(Action::PoolTakeBack { name: "p".into() })).expect("it takes it");
        assert_eq!((uuid() == before, room_at(&world)), (keeps_cache, None));
        let told = if keeps_cache { "keeps what lies there" } else { "is empty" };
        let events = manager.events_after(0);
        let of_pool: Vec<&str> =
            events.iter().map(|event| event.message.as_str()).filter(|message| message.contains("of the SSD now")).collect();
        assert!(of_pool.len() == 2 && of_pool.iter().all(|message| message.ends_with(told)), "{of_pool:?}");
        assert_eq!(world.read("v"), Some(7));
    }
}

#[test]
fn a_failure_at_any_step_loses_nothing() {
    for crash in [false, true] {
        for step in 0..40 {
            let (world, manager) = begin();
            create(&manager, "first", 16 * MIB).expect("there is room");
            assert!(world.write("v", 8));
            let before = place(&manager, "first");
            {
                let mut inside = world.inside();
                (inside.fail_at, inside.crash) = (Some(inside.steps + step), crash);
            }
            let made = create(&manager, "second", 64 * MIB);
            let manager = if crash {
                drop(manager);
                world.reboot();
                open(&world)
            } else {
                world.inside().fail_at = None;
                manager
            };
            let case = format!("step {step}, crash {crash}: {made:?}");
            world.inside().saved.check().unwrap_or_else(|problem| panic!("{case}: {problem}"));
            assert_eq!(place(&manager, "first"), before, "{case}");
            if made.is_ok() {
                place(&manager, "second");
                assert_eq!(world.read("v"), Some(8), "{case}: all is served, or the job has failed");
            } else {
                come_back(&manager, &world);
            }
            assert_eq!(world.read("v"), Some(8), "{case}");
            // And it goes on.
            if world.inside().running.is_empty() {
                manager.handle(Action::PoolStart { name: "p".into() }).unwrap_or_else(|error| panic!("{case}: {error}"));
            }
            if disks(&manager).len() == 1 {
                create(&manager, "second", 64 * MIB).unwrap_or_else(|error| panic!("{case}: {error}"));
            }
            assert_eq!(world.read("v"), Some(8), "{case}");
        }
    }
}
