//! Preloads as jobs, over the data path in memory: what they read, where they go on, and what is remembered over a restart.

use super::Manager;
use super::fake::World;
use api::error::{ControlError, Kind};
use api::options::OptionsPatch;
use api::words::Export;
use api::{Action, Answer, JobKind, JobState, JobView, PoolCreate, VolumeAdd, VolumeWarm};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// RAM of the pool: what a restart reads again.
const RAM_BYTES: u64 = 64 * MIB;

fn open(world: &World) -> Manager {
    let manager = Manager::open(Arc::new(world.clone()), Box::new(world.clone()), Path::new("/state")).expect("the state can be read");
    manager.start().expect("the state can be saved");
    manager
}

fn with_volume(mode: &str) -> (World, Manager) {
    let world = World::default();
    ["/dev/ssd", "/dev/disk"].iter().for_each(|path| world.add_device(path, GIB));
    let manager = open(&world);
    let create = PoolCreate {
        name: "p".into(),
        ssd: "/dev/ssd".into(),
        size_bytes: None,
        ram_bytes: Some(RAM_BYTES),
        content: None,
        force: false,
        on_blank_ssd: None,
        spare_percent: None,
    };
    manager.handle(Action::PoolCreate(create)).expect("nothing fails");
    let options = OptionsPatch { mode: Some(mode.into()), ..OptionsPatch::default() };
    let (name, pool, backing) = ("v".into(), "p".into(), "/dev/disk".into());
    let add = VolumeAdd { name, pool, backing, exports: vec![Export::LOOP], sector_bytes: None, options };
    manager.handle(Action::VolumeAdd(add)).expect("nothing fails");
    (world, manager)
}

fn preload(manager: &Manager, ranges: &[Range<u64>]) -> JobView {
    manager.begin_preload("v", ranges.to_vec(), None, None, "advice 3".into()).expect("it begins")
}

fn ended(manager: &Manager, id: u64) -> JobView {
    loop {
        match manager.handle(Action::JobShow { id }) {
            Ok(Answer::Job(job)) if job.state != JobState::Running => return *job,
            Ok(Answer::Job(_)) => std::thread::sleep(Duration::from_micros(50)),
            other => panic!("no job: {other:?}"),
        }
    }
}

fn resumed(manager: &Manager, id: u64) -> JobView {
    match manager.handle(Action::JobResume { id }) {
        Ok(Answer::Job(job)) => ended(manager, job.id),
        other => panic!("no job: {other:?}"),
    }
}

/// What was read and kept, as ranges in MiB.
fn kept(world: &World) -> Vec<(u64, u64)> {
    let mut kept: Vec<(u64, u64)> = Vec::new();
    for piece in world.inside().warmed.iter().filter(|piece| piece.is_kept) {
        match kept.last_mut().filter(|(_, end)| *end == piece.at_bytes) {
            Some((_, end)) => *end = piece.end_bytes(),
            None => kept.push((piece.at_bytes, piece.end_bytes())),
        }
    }
    kept.into_iter().map(|(start, end)| (start / MIB, end / MIB)).collect()
}

fn told(manager: &Manager, part: &str) -> bool {
    match manager.handle(Action::Events { after: 0 }) {
        Ok(Answer::Events(events)) => events.iter().any(|event| event.message.contains(part)),
        other => panic!("{other:?}"),
    }
}

/// A preload that fails at its n-th piece; and the pieces read until then.
fn failed_at(world: &World, manager: &Manager, ranges: &[Range<u64>], piece: u64) -> JobView {
    let steps = world.inside().steps;
    world.inside().fail_at = Some(steps + piece);
    let begun = preload(manager, ranges);
    let view = ended(manager, begun.id);
    assert!(matches!(view.state, JobState::Failed { .. }), "{view:?}");
    view
}

#[test]
fn ranges_are_read_in_address_order_and_gaps_are_not_kept() {
    let (world, manager) = with_volume("write-through");
    let ranges = [30 * MIB..34 * MIB, 2 * MIB..4 * MIB, 5 * MIB..6 * MIB];
    let cost = manager.preload_cost("v", &ranges, None).expect("it runs");
    assert_eq!((cost.bytes, cost.read_bytes, cost.ranges), (7 * MIB, 8 * MIB, 3));
    let done = ended(&manager, preload(&manager, &ranges).id);
    assert_eq!((done.kind, done.state, done.done_bytes, done.total_bytes), (JobKind::Preload, JobState::Done, 7 * MIB, 7 * MIB));
    assert_eq!(kept(&world), [(2, 4), (5, 6), (30, 34)]);
    let gaps: Vec<u64> = world.inside().warmed.iter().filter(|piece| !piece.is_kept).map(|piece| piece.at_bytes / MIB).collect();
    assert_eq!(gaps, [4]);
    assert!(told(&manager, "preload of advice 3: at most 7 MiB are written to the SSD"));
    assert!(world.inside().notes.is_empty(), "nothing is left to be remembered");
}

#[test]
fn one_that_failed_goes_on_where_it_was() {
    let (world, manager) = with_volume("write-back");
    let ranges = [10 * MIB..20 * MIB, 100 * MIB..110 * MIB];
    let old = failed_at(&world, &manager, &ranges, 13);
    assert_eq!((old.done_bytes, old.total_bytes), (12 * MIB, 20 * MIB));
    assert_eq!(world.inside().notes.len(), 1);
    let new = resumed(&manager, old.id);
    assert_eq!((new.kind, new.state, new.done_bytes), (JobKind::Preload, JobState::Done, 20 * MIB));
    assert_eq!(kept(&world), [(10, 20), (100, 110)], "nothing twice, nothing left out");
    assert!(world.inside().notes.is_empty());
}

#[test]
fn one_that_was_cut_short_by_a_restart_goes_on() {
    let (world, manager) = with_volume("write-through");
    let ranges = [0..100 * MIB, 300 * MIB..400 * MIB];
    let old = failed_at(&world, &manager, &ranges, 151);
    assert_eq!(old.done_bytes, 150 * MIB);
    manager.stop().expect("nothing fails");
    world.reboot();
    let manager = open(&world);
    assert!(told(&manager, "the preload of advice 3 had ended with the daemon, 86 MiB of 200 MiB done: `hearth job resume 1` goes on"));
    let Ok(Answer::Jobs(jobs)) = manager.handle(Action::JobList) else { panic!("no jobs") };
    assert_eq!((jobs.len(), jobs[0].kind, &jobs[0].state), (1, JobKind::Preload, &JobState::Cancelled));
    assert_eq!(jobs[0].done_bytes, 150 * MIB - RAM_BYTES, "what RAM had is gone");
    world.inside().warmed.clear();
    let new = resumed(&manager, jobs[0].id);
    assert_eq!((new.state, new.done_bytes, new.total_bytes), (JobState::Done, 200 * MIB, 200 * MIB));
    assert_eq!(kept(&world), [(86, 100), (300, 400)]);
    assert!(world.inside().notes.is_empty());
}

#[test]
fn what_is_remembered_of_a_volume_that_is_gone_or_not_understood_is_nothing() {
    let (world, manager) = with_volume("write-through");
    failed_at(&world, &manager, &[0..50 * MIB], 20);
    let note = world.inside().notes.first_key_value().map(|(name, text)| (name.clone(), text.clone())).expect("it is noted");
    manager.handle(Action::VolumeRemove { name: "v".into(), drop_dirty: false }).expect("it begins");
    while manager.jobs_running() > 0 {
        std::thread::sleep(Duration::from_micros(50));
    }
    manager.stop().expect("nothing fails");
    world.reboot();
    world.inside().notes.insert("preload-x.json".into(), note.1);
    let manager = open(&world);
    let Ok(Answer::Jobs(jobs)) = manager.handle(Action::JobList) else { panic!("no jobs") };
    assert!(jobs.is_empty(), "{jobs:?}");
    assert_eq!(world.inside().notes.keys().collect::<Vec<_>>(), ["preload-x.json"], "what is not understood is left alone");
}

#[test]
fn a_budget_and_the_pool_bound_it() {
    let (_world, manager) = with_volume("write-through");
    let ranges = [500 * MIB..600 * MIB, 0..400 * MIB];
    let bytes = |budget| manager.preload_cost("v", &ranges, budget).expect("it runs").bytes;
    assert_eq!((bytes(Some(150 * MIB)), bytes(None)), (150 * MIB, 500 * MIB));
    let far = [0..u64::MAX];
    assert!(manager.preload_cost("v", &far, None).expect("it is cut").bytes <= GIB);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let (_world, manager) = with_volume("pass-through");
    let refused = |ranges: Vec<Range<u64>>, rate| {
        let error = manager.begin_preload("v", ranges, None, rate, "advice 3".into()).expect_err("refused").refusal();
        (error.kind, error.to_string())
    };
    let some = vec![0..MIB];
    assert!(refused(some.clone(), Some(0)).1.contains("--rate is zero"));
    assert!(refused(some.clone(), None).1.contains("pass-through"));
    let unknown = manager.begin_preload("w", some, None, None, String::new()).map(drop);
    assert_eq!(unknown.map_err(|error| error.kind()), Err(Kind::NotFound));
    let (_world, manager) = with_volume("write-back");
    for ranges in [vec![], vec![2 * GIB..3 * GIB]] {
        let error = manager.begin_preload("v", ranges, None, None, String::new()).expect_err("refused");
        assert!(error.to_string().contains("there is nothing to preload"), "{error}");
    }
    let warm = VolumeWarm { rate_bytes_s: Some(0), ..VolumeWarm::default() };
    let error: ControlError = manager.handle(Action::VolumeWarm { name: "v".into(), warm }).expect_err("refused");
    assert!(error.to_string().contains("--rate is zero"), "{error}");
}

#[test]
fn a_rate_is_kept() {
    let (world, manager) = with_volume("write-through");
    let warm = VolumeWarm { start_bytes: 0, end_bytes: Some(40 * MIB), rate_bytes_s: Some(64 * MIB) };
    let Ok(Answer::Job(job)) = manager.handle(Action::VolumeWarm { name: "v".into(), warm }) else { panic!("no job") };
    let done = ended(&manager, job.id);
    assert_eq!((done.state, done.done_bytes), (JobState::Done, 40 * MIB));
    // The disk in memory takes no time.
    assert!(done.elapsed_ms >= 500, "40 MiB at 64 MiB/s took {} ms", done.elapsed_ms);
    assert_eq!(kept(&world), [(0, 40)]);
}
