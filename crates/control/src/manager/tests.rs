//! The promises of management, over a data path that fails or loses power at every step in turn.

use super::Manager;
use super::fake::{Device, World};
use api::error::ControlError;
use api::options::OptionsPatch;
use api::words::Export;
use api::{Action, Answer, Health, JobState, JobView, PoolCreate, PoolReplace, PoolSet, VolumeAdd, VolumeSet, VolumeView, VolumeWarm};
use datapath::{Life, Notice};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use types::{Content, SsdIndex};

pub(super) const SSD: &str = "/ssd";
pub(super) const DISK: &str = "/disk";

pub(super) fn world() -> World {
    let world = World::default();
    for (path, size) in [(SSD, 1 << 30), (DISK, 1 << 30), ("/disk2", 1 << 30), ("/ssd2", 1 << 30)] {
        world.add_device(path, size);
    }
    world
}

fn manager(world: &World) -> Manager {
    Manager::open(Arc::new(world.clone()), Box::new(world.clone()), Path::new("/state")).expect("the state can be read")
}

/// A manager that has started; on a machine that was rebooted.
pub(super) fn started(world: &World) -> Manager {
    world.reboot();
    let manager = manager(world);
    manager.start().expect("the state can be saved");
    wait_for_jobs(&manager);
    manager
}

fn wait_for_jobs(manager: &Manager) {
    while manager.running_jobs().iter().any(|j| j.is_running()) {
        std::thread::sleep(Duration::from_micros(50));
    }
}

pub(super) fn create() -> Action {
    Action::PoolCreate(wish())
}

fn wish() -> PoolCreate {
    PoolCreate {
        name: "p".into(),
        ssd: SSD.into(),
        size_bytes: None,
        ram_bytes: None,
        content: None,
        force: false,
        on_blank_ssd: None,
        spare_percent: None,
    }
}

pub(super) fn add(name: &str, backing: &str, mode: &str) -> Action {
    let (name, backing, exports) = (name.into(), backing.into(), vec![Export::LOOP, Export::NBD]);
    let options = OptionsPatch { mode: Some(mode.into()), ..OptionsPatch::default() };
    Action::VolumeAdd(VolumeAdd { name, pool: "p".into(), backing, exports, sector_bytes: None, options })
}

fn set_mode(mode: &str) -> Action {
    let options = OptionsPatch { mode: Some(mode.into()), ..OptionsPatch::default() };
    Action::VolumeSet { name: "v".into(), set: VolumeSet { options, ..VolumeSet::default() } }
}

fn remove(drop_dirty: bool) -> Action {
    Action::VolumeRemove { name: "v".into(), drop_dirty }
}

/// Carries out an action and, if it began a job, the job.
pub(super) fn carry_out(manager: &Manager, action: Action) -> Result<(), String> {
    match manager.handle(action) {
        Ok(Answer::Job(job)) => match wait_for(manager, job.id).state {
            JobState::Failed { error } => Err(error.to_string()),
            _ => Ok(()),
        },
        Ok(_) => Ok(()),
        Err(error) => Err(error.refusal().to_string()),
    }
}

fn wait_for(manager: &Manager, id: u64) -> JobView {
    loop {
        match manager.handle(Action::JobShow { id }) {
            Ok(Answer::Job(job)) if job.state != JobState::Running => return *job,
            Ok(Answer::Job(_)) => std::thread::sleep(Duration::from_micros(50)),
            other => panic!("a job was lost: {other:?}"),
        }
    }
}

pub(super) fn must(manager: &Manager, action: Action) {
    let shown = format!("{action:?}");
    carry_out(manager, action).unwrap_or_else(|e| panic!("{shown}: {e}"));
}

pub(super) fn volume(manager: &Manager) -> Option<VolumeView> {
    match manager.handle(Action::VolumeShow { name: "v".into() }) {
        Ok(Answer::Volume(volume)) => Some(*volume),
        Err(ControlError::Unknown { .. }) => None,
        other => panic!("{other:?}"),
    }
}

/// Fails (or loses power at) step n = 1, 2, 3 ... of `action`, until it succeeds untouched; after each, restarts and lets `check` judge.
/// A failed action must have a remedy, and must succeed when it is asked again after the restart if it is not done.
pub(super) fn every_step(prepare: impl Fn(&World), action: impl Fn() -> Action, check: impl Fn(&World, &Manager, &str)) {
    for crash in [false, true] {
        for n in 1.. {
            let world = world();
            prepare(&world);
            let manager = started(&world);
            let first = world.inside().steps;
            (world.inside().fail_at, world.inside().crash) = (Some(first + n), crash);
            let result = carry_out(&manager, action());
            let touched = world.inside().steps >= first + n;
            if let Err(sentence) = &result {
                assert!(sentence.contains(';'), "no remedy: {sentence}");
            }
            let case = format!("crash {crash}, step {n}, {result:?}");
            world.inside().fail_at = None;
            if !crash {
                check(&world, &manager, &format!("{case}, before the restart"));
            }
            check(&world, &started(&world), &case);
            if !touched {
                assert_eq!(result, Ok(()), "an untouched action succeeds");
                assert!(n > 2, "only {n} steps: nothing was tested");
                break;
            }
        }
    }
}

#[test]
fn create_is_done_or_undone_at_every_step() {
    let check = |_: &World, manager: &Manager, case: &str| {
        match manager.handle(Action::PoolShow { name: "p".into() }) {
            Ok(Answer::Pool(pool)) if pool.health == Health::Running => {}
            Ok(Answer::Pool(_)) => must(manager, Action::PoolDestroy { name: "p".into(), force: true }),
            Err(ControlError::Unknown { .. }) => {}
            other => panic!("{case}: {other:?}"),
        }
        if manager.handle(Action::PoolShow { name: "p".into() }).is_err() {
            // Nothing of the failed try stands in the way, not even a signature.
            carry_out(manager, create()).unwrap_or_else(|e| panic!("{case}: {e}"));
        }
        must(manager, Action::PoolDestroy { name: "p".into(), force: false });
    };
    every_step(|_| (), create, check);
}

#[test]
fn add_is_done_or_undone_at_every_step() {
    let prepare = |world: &World| must(&started(world), create());
    let check = |world: &World, manager: &Manager, case: &str| {
        match volume(manager) {
            Some(volume) if volume.health == Health::Running => {
                assert!(volume.exports.values().all(Option::is_some), "{case}");
                assert!(world.write("v", 7) && world.read("v") == Some(7), "{case}");
            }
            Some(_) => must(manager, remove(true)),
            None => assert!(world.read("v").is_none() && world.inside().exports.is_empty(), "{case}"),
        }
        if volume(manager).is_none() {
            carry_out(manager, add("v", DISK, "write-back")).unwrap_or_else(|e| panic!("{case}: {e}"));
        }
        must(manager, remove(true));
    };
    every_step(prepare, || add("v", DISK, "write-back"), check);
}

pub(super) fn with_dirty_volume(world: &World) {
    let manager = started(world);
    must(&manager, create());
    must(&manager, add("v", DISK, "write-back"));
    assert!(world.write("v", 5));
    manager.stop().expect("nothing fails");
}

/// A daemon that was stopped with version 5 in the volume `v` of that mode, and its SSD, which has gone since.
pub(super) fn stopped_without_ssd(mode: &str) -> (World, Device) {
    let world = world();
    let manager = started(&world);
    must(&manager, create());
    must(&manager, add("v", DISK, mode));
    assert!(world.write("v", 5));
    manager.stop().expect("nothing fails");
    let ssd = world.inside().devices.remove(SSD).expect("it is there");
    (world, ssd)
}

/// The version 5 must be readable through the volume, or be at home if the volume is gone.
fn nothing_lost(world: &World, manager: &Manager, case: &str) {
    match volume(manager) {
        Some(view) if view.health == Health::Running => assert_eq!(world.read("v"), Some(5), "{case}"),
        Some(view) => assert!(view.remedy.is_some(), "{case}: {view:?}"),
        None => assert_eq!(world.inside().devices[DISK].version, 5, "{case}"),
    }
}

#[test]
fn destage_loses_nothing_at_any_step() {
    every_step(with_dirty_volume, || Action::VolumeDestage { name: "v".into() }, nothing_lost);
}

#[test]
fn leaving_write_back_loses_nothing_at_any_step() {
    every_step(with_dirty_volume, || set_mode("write-through"), nothing_lost);
}

#[test]
fn entering_write_back_is_marked_before_it_is_in_force() {
    let prepare = |world: &World| {
        let manager = started(world);
        must(&manager, create());
        must(&manager, add("v", DISK, "write-through"));
        assert!(world.write("v", 4));
        manager.stop().expect("nothing fails");
    };
    let check = |world: &World, manager: &Manager, case: &str| {
        if volume(manager).expect("it was there").health != Health::Running {
            return;
        }
        assert!(world.write("v", 5), "{case}");
        let dirty = world.inside().devices[SSD].log.values().any(|(_, dirty)| *dirty);
        let marked = world.inside().saved.volumes[0].may_have_dirty;
        assert!(marked || !dirty, "{case}: dirty data without a mark");
        nothing_lost(world, manager, case);
    };
    every_step(prepare, || set_mode("write-back"), check);
}

#[test]
fn warm_loses_nothing_at_any_step() {
    let warm = || Action::VolumeWarm { name: "v".into(), warm: VolumeWarm { end_bytes: Some(3 << 20), ..VolumeWarm::default() } };
    every_step(with_dirty_volume, warm, nothing_lost);
}

#[test]
fn remove_loses_nothing_at_any_step_and_can_be_asked_again() {
    let check = |world: &World, manager: &Manager, case: &str| {
        nothing_lost(world, manager, case);
        if volume(manager).is_some_and(|v| v.health == Health::Running) && case.contains("before") {
            must(manager, remove(false));
            nothing_lost(world, manager, case);
        }
    };
    every_step(with_dirty_volume, || remove(false), check);
}

#[test]
fn destroy_is_finished_at_every_step() {
    let check = |world: &World, manager: &Manager, case: &str| {
        if let Ok(Answer::Pool(_)) = manager.handle(Action::PoolShow { name: "p".into() }) {
            must(manager, Action::PoolDestroy { name: "p".into(), force: true });
        }
        assert!(world.inside().exports.is_empty(), "{case}");
        assert!(volume(manager).is_none(), "{case}");
    };
    every_step(with_dirty_volume, || Action::PoolDestroy { name: "p".into(), force: true }, check);
}

fn replace(drop_dirty: bool) -> Action {
    let replace = PoolReplace { ssd: "/ssd2".into(), size_bytes: None, force: false, drop_dirty };
    Action::PoolReplace { name: "p".into(), replace }
}

/// The SSD of a pool with dirty data is replaced: all of it goes home first, and whatever fails, the volume is served from the one SSD or
/// the other.
#[test]
fn replacing_an_ssd_loses_nothing_at_any_step() {
    let check = |world: &World, manager: &Manager, case: &str| {
        nothing_lost(world, manager, case);
        let ssd = world.inside().saved.pools[0].ssd.clone();
        assert!(ssd == SSD || ssd == "/ssd2", "{case}: {ssd}");
        if case.contains("Ok") {
            assert_eq!(ssd, "/ssd2", "{case}");
        }
        let view = volume(manager).expect("it stays");
        let is_told = view.problem.is_some() || view.exports.values().all(Option::is_some);
        assert!(view.health != Health::Running || is_told, "{case}: {view:?}");
        assert!(
            !case.contains("before") || case.contains("Ok") || view.health == Health::Running || view.remedy.is_some(),
            "{case}: {view:?}"
        );
    };
    every_step(with_dirty_volume, || replace(false), check);
}

/// An SSD that is gone takes its dirty data with it only when a person says so; a volume without dirty data needs no word.
#[test]
fn a_lost_ssd_is_replaced_and_dirty_data_is_given_up_only_if_asked() {
    for mode in ["write-back", "write-through"] {
        let (world, _) = stopped_without_ssd(mode);
        let manager = started(&world);
        let reason = manager.handle(Action::PoolShow { name: "p".into() });
        assert!(matches!(&reason, Ok(Answer::Pool(pool)) if pool.health == Health::Failed), "{reason:?}");
        if mode == "write-back" {
            let refused = manager.handle(replace(false)).expect_err("5 would be lost");
            assert!(matches!(refused, ControlError::DirtyData { .. }), "{refused}");
            assert!(refused.refusal().to_string().contains("--drop-dirty"));
        }
        must(&manager, replace(mode == "write-back"));
        let view = volume(&manager).expect("it stays");
        assert_eq!(view.health, Health::Running, "{mode}");
        assert_eq!(world.read("v"), Some(if mode == "write-back" { 0 } else { 5 }), "{mode}");
        assert!(world.write("v", 6) && world.read("v") == Some(6));
        manager.stop().expect("nothing fails");
        let manager = started(&world);
        assert_eq!((volume(&manager).expect("it stays").health, world.read("v")), (Health::Running, Some(6)), "later, too");
    }
}

/// A stop that fails anywhere loses nothing: the next start finds it all.
#[test]
fn stop_and_start_lose_nothing_at_any_step() {
    for crash in [false, true] {
        for n in 1..40 {
            let world = world();
            with_dirty_volume(&world);
            let manager = started(&world);
            let first = world.inside().steps;
            (world.inside().fail_at, world.inside().crash) = (Some(first + n), crash);
            let stopped = manager.stop();
            let case = format!("stop: crash {crash}, step {n}: {stopped:?}");
            nothing_lost(&world, &started(&world), &case);
            // The same for a start, then one more start with nothing failing.
            world.reboot();
            let first = world.inside().steps;
            (world.inside().fail_at, world.inside().crash) = (Some(first + n), crash);
            let again = self::manager(&world);
            let result = again.start();
            nothing_lost(&world, &started(&world), &format!("start: crash {crash}, step {n}: {result:?}"));
        }
    }
}

/// What clients see after hands other than ours were at the backing device.
fn check_foreign(mode: &str, change: impl Fn(&mut super::fake::Device), clean_stop: bool, expected: &str) {
    let world = world();
    let manager = started(&world);
    must(&manager, create());
    must(&manager, add("v", DISK, mode));
    assert!(world.write("v", 5));
    if clean_stop {
        manager.stop().expect("nothing fails");
    }
    change(world.inside().devices.get_mut(DISK).expect("it is there"));
    let manager = started(&world);
    let view = volume(&manager).expect("it is known");
    let problem = view.problem.clone().unwrap_or_default();
    match view.health {
        Health::Running => assert_eq!(expected, format!("reads {}", world.read("v").expect("it runs")), "{view:?}"),
        _ => assert!(!expected.starts_with("reads") && problem.contains(expected), "{view:?}"),
    }
    if view.health != Health::Running {
        assert!(view.remedy.is_some_and(|r| !r.is_empty()), "no way out");
        let for_dirty = matches!(manager.handle(remove(false)), Err(ControlError::DirtyData { .. }));
        assert!(for_dirty || mode != "write-back", "dirty data must not go silently");
    }
}

#[test]
fn foreign_hands_are_noticed() {
    for clean_stop in [true, false] {
        check_foreign("write-through", |_| (), clean_stop, "reads 5");
        check_foreign("write-back", |_| (), clean_stop, "reads 5");
        check_foreign("write-through", |d| d.version = 9, clean_stop, "reads 9");
        for mode in ["write-through", "pass-through"] {
            check_foreign(mode, |d| (d.serial, d.version) = ("other".into(), 9), clean_stop, "another one");
        }
        check_foreign("write-back", |d| d.serial = "other".into(), clean_stop, "another one");
        check_foreign("write-back", |d| d.size_bytes /= 2, clean_stop, "shrank");
        check_foreign("write-back", |d| d.in_use = Some("mounted at /x".into()), clean_stop, "mounted at /x");
    }
    check_foreign("write-back", |d| d.version = 9, true, "written by others");
}

#[test]
fn a_changed_backing_device_can_be_accepted() {
    let world = world();
    with_dirty_volume(&world);
    world.inside().devices.get_mut(DISK).expect("it is there").version = 9;
    let manager = started(&world);
    assert_eq!(volume(&manager).map(|v| v.health), Some(Health::Failed));
    let set = VolumeSet { accept_backing: true, ..VolumeSet::default() };
    must(&manager, Action::VolumeSet { name: "v".into(), set });
    assert_eq!(world.read("v"), Some(5), "the dirty data is kept");
    must(&manager, remove(false));
    assert_eq!(world.inside().devices[DISK].version, 5);
}

/// A damaged log may have lost the notes that blocks came home. A volume that keeps nothing back gets none of its old data for that; one that
/// does is not served until a person gives up what is dirty.
#[test]
fn old_data_of_a_damaged_log_stays_away() {
    for mode in ["write-through", "write-back"] {
        let world = world();
        let manager = started(&world);
        must(&manager, create());
        must(&manager, add("v", DISK, mode));
        assert!(world.write("v", 5));
        manager.stop().expect("nothing fails");
        let id = world.inside().saved.volumes[0].id;
        world.inside().damaged = vec![id];
        let old = (4, true);
        assert!(world.inside().devices.get_mut(SSD).expect("it is there").log.insert(id, old).is_some());
        let manager = started(&world);
        if mode == "write-back" {
            assert_eq!((volume(&manager).map(|v| v.health), world.read("v")), (Some(Health::Failed), None));
            let error = carry_out(&manager, remove(false)).expect_err("dirty data would be lost");
            assert!(error.contains("SSD of its pool is damaged") && error.contains("--drop-dirty"), "{error}");
            must(&manager, remove(true));
        } else {
            assert_eq!((volume(&manager).map(|v| v.health), world.read("v")), (Some(Health::Running), Some(5)));
            must(&manager, remove(false));
        }
        assert_ne!(world.inside().devices[DISK].version, 4, "{mode}: old data went home");
        assert!(world.inside().devices[SSD].log.is_empty(), "{mode}: nothing of it is left");
    }
}

/// C6: a device that is not what it was is refused as often as it is asked for, whatever was asked and stopped meanwhile. Nothing is lost by
/// that, and both ways out that the refusal names are ways out: the right device, or a person's word.
#[test]
fn a_changed_backing_device_is_refused_until_a_person_says_so() {
    type Change = fn(&mut super::fake::Device);
    let cases: [(&str, Change, &str); 6] = [
        ("write-back", |d| d.version = 9, "written by others"),
        ("write-back", |d| d.serial = "other".into(), "another one"),
        ("write-through", |d| d.serial = "other".into(), "another one"),
        ("pass-through", |d| d.serial = "other".into(), "another one"),
        ("write-back", |d| d.size_bytes /= 2, "shrank from 1 GiB to 512 MiB"),
        ("write-through", |d| d.size_bytes /= 2, "shrank from 1 GiB to 512 MiB"),
    ];
    for (mode, change, expected) in cases {
        let world = world();
        let manager = started(&world);
        must(&manager, create());
        must(&manager, add("v", DISK, mode));
        assert!(world.write("v", 5));
        manager.stop().expect("nothing fails");
        let device = |world: &World| world.inside().devices[DISK].clone();
        let right = device(&world);
        change(world.inside().devices.get_mut(DISK).expect("it is there"));
        let changed = device(&world);
        // Asked again, after the daemon was killed, after it was stopped, and after both.
        for stops in [false, true, false, true] {
            let manager = started(&world);
            refused(&manager, expected);
            let error = carry_out(&manager, Action::VolumeDestage { name: "v".into() }).expect_err("it is not served");
            assert!(error.contains(expected) && error.contains("reconnect the right device"), "{error}");
            // Options may change; that opens no way in.
            must(&manager, set_mode("write-around"));
            must(&manager, set_mode(mode));
            if mode == "write-back" {
                let error = carry_out(&manager, remove(false)).expect_err("5 would be lost");
                assert!(error.contains(expected) && error.contains("--drop-dirty"), "{error}");
            }
            refused(&manager, expected);
            assert_eq!((world.read("v"), world.inside().exports.len()), (None, 0), "{mode}, {expected}");
            if stops {
                manager.stop().expect("nothing fails");
            }
        }
        let now = device(&world);
        assert_eq!((now.version, now.serial, now.size_bytes), (changed.version, changed.serial, changed.size_bytes), "it was not touched");
        // The right one is back, and all is there.
        world.inside().devices.insert(DISK.into(), right);
        let manager = started(&world);
        let view = volume(&manager).expect("it is known");
        assert_eq!((view.health, world.read("v")), (Health::Running, Some(5)), "{mode}, {expected}: {view:?}");
        manager.stop().expect("nothing fails");
        // A person says that the other one is right.
        change(world.inside().devices.get_mut(DISK).expect("it is there"));
        let manager = started(&world);
        refused(&manager, expected);
        let set = VolumeSet { accept_backing: true, ..VolumeSet::default() };
        let accepted = carry_out(&manager, Action::VolumeSet { name: "v".into(), set });
        if mode == "write-back" && expected.starts_with("shrank") {
            let error = accepted.expect_err("dirty data may lie beyond its end");
            assert!(error.contains("--drop-dirty"), "{error}");
            refused(&manager, expected);
            refused(&started(&world), expected);
            continue;
        }
        assert_eq!(accepted, Ok(()), "{mode}, {expected}");
        assert_eq!(world.read("v"), Some(5), "{mode}, {expected}: what was dirty is kept, and else it is at home");
        manager.stop().expect("nothing fails");
        let view = volume(&started(&world)).expect("it is known");
        assert_eq!((view.health, world.read("v")), (Health::Running, Some(5)), "{mode}, {expected}, the next time: {view:?}");
    }
}

/// Not served, with one sentence of what is wrong and one of what to do.
fn refused(manager: &Manager, expected: &str) {
    let view = volume(manager).expect("it is known");
    let (problem, remedy) = (view.problem.clone().unwrap_or_default(), view.remedy.clone().unwrap_or_default());
    assert!(view.health == Health::Failed && problem.contains(expected), "{view:?}");
    assert!(problem.starts_with("its backing device /disk ") && !problem.contains(['\n', ';']), "{problem}");
    assert!(remedy.contains("reconnect the right device") && remedy.contains("`hearth volume "), "{remedy}");
}

/// What the pool's data path says now when its SSD fails.
pub(super) fn ssd_failed(world: &World) -> Notice {
    Notice::SsdFailed { pool: "p".into(), life: life(world), ssd: SsdIndex::FIRST, no_space: false }
}

/// The life that the pool is in.
pub(super) fn life(world: &World) -> Life {
    let inside = world.inside();
    Life { uuid: inside.saved.pools[0].uuid, session: inside.saved.pools[0].session }
}

/// What the pool's data path says when nothing of the volume `v` is dirty on an SSD that failed.
pub(super) fn nothing_dirty(world: &World) -> Notice {
    Notice::NothingDirty { pool: "p".into(), life: life(world), volume: "v".into() }
}

/// An SSD that fails while it is given up may be heard of late: that says nothing about the new one.
#[test]
fn the_failure_of_a_replaced_ssd_is_not_held_against_the_new_one() {
    let world = world();
    with_dirty_volume(&world);
    let manager = started(&world);
    let late = ssd_failed(&world);
    must(&manager, replace(false));
    manager.notice(&late);
    assert!(world.write("v", 6));
    let manager = started(&world);
    assert_eq!(volume(&manager).map(|v| v.health), Some(Health::Running), "its dirty data would be out of reach");
    assert_eq!(world.read("v"), Some(6));
}

#[test]
fn a_long_job_can_be_stopped_and_nothing_else_waits_for_it() {
    let world = world();
    with_dirty_volume(&world);
    world.inside().slow = true;
    let manager = started(&world);
    let Ok(Answer::Job(job)) = manager.handle(remove(false)) else { panic!("a job") };
    let busy = manager.handle(Action::VolumeDestage { name: "v".into() }).expect_err("it is claimed");
    assert!(matches!(busy, ControlError::AtWork { job: at_work, .. } if at_work == job.id), "{busy}");
    assert!(busy.remedy().contains(&format!("`hearth job cancel {}`", job.id)), "{}", busy.remedy());
    assert!(manager.handle(Action::VolumeList).is_ok() && manager.handle(Action::StatsAll).is_ok());
    manager.handle(Action::JobCancel { id: job.id }).expect("it runs");
    assert_eq!(wait_for(&manager, job.id).state, JobState::Cancelled);
    assert_eq!(world.read("v"), Some(5), "it is served as before");
    world.inside().slow = false;
    must(&manager, remove(false));
    assert_eq!(world.inside().devices[DISK].version, 5);
}

fn check_refused(action: Action, expected: &str) {
    let world = world();
    let manager = started(&world);
    must(&manager, create());
    must(&manager, add("v", DISK, "write-through"));
    world.inside().devices.get_mut("/ssd2").expect("it is there").signature = Some("an ext4 file system".into());
    world.inside().devices.get_mut("/disk2").expect("it is there").in_use = Some("mounted at /srv".into());
    let before = world.inside().saved.clone();
    let sentence = manager.handle(action).expect_err(expected).refusal().to_string();
    assert!(sentence.contains(expected), "{sentence} lacks {expected}");
    assert_eq!(world.inside().saved, before, "a refusal changes nothing");
}

#[test]
fn a_pool_may_have_no_ram_tier() {
    let manager = started(&world());
    let create = |ram_bytes| PoolCreate { ram_bytes, ..wish() };
    let refused = manager.handle(Action::PoolCreate(create(Some(4096)))).expect_err("too small to be one").refusal().to_string();
    assert!(refused.contains("or 0 for no RAM tier"), "{refused}");
    must(&manager, Action::PoolCreate(create(Some(0))));
    let Answer::Pool(pool) = manager.handle(Action::PoolShow { name: "p".into() }).expect("it is there") else { panic!("no pool") };
    assert_eq!(pool.ram_bytes, 0);
}

fn set_content(word: &str) -> Action {
    Action::PoolSet { name: "p".into(), set: PoolSet { content: Some(word.into()), on_blank_ssd: None } }
}

/// How the pool treats content: as shown, as saved, and as the shards that run do it.
fn content_of(world: &World, manager: &Manager) -> [Content; 3] {
    let Ok(Answer::Pool(pool)) = manager.handle(Action::PoolShow { name: "p".into() }) else { panic!("the pool is there") };
    let inside = world.inside();
    [pool.content, inside.saved.pools[0].content, inside.content["p"]]
}

/// Whatever fails, the treatment of content is the old one or the new one, and shards that were started do what was saved.
#[test]
fn the_treatment_of_content_changes_whole_at_every_step() {
    let check = |world: &World, manager: &Manager, case: &str| {
        let [shown, saved, done] = content_of(world, manager);
        assert_eq!(shown, done, "{case}");
        // A save that failed may have been one all the same: the next start finds it.
        assert!(saved == shown || case.contains("before"), "{case}");
        assert!([Content::Auto, Content::Fast].contains(&saved), "{case}");
        if case.contains("Ok") {
            assert_eq!(saved, Content::Fast, "{case}");
        }
        if !case.contains("before") {
            must(manager, set_content("off"));
            assert_eq!(content_of(world, manager), [Content::Off; 3], "{case}");
        }
    };
    every_step(|world| must(&started(world), create()), || set_content("fast"), check);
}

#[test]
fn the_treatment_of_content_is_chosen_at_creation_and_outlives_the_ssd() {
    let world = world();
    let manager = started(&world);
    let create = |word: &str| {
        let content = Some(word.into());
        Action::PoolCreate(PoolCreate { content, ..wish() })
    };
    let refused = carry_out(&manager, create("on")).expect_err("no such word");
    assert!(refused.contains("use off, fast, dense or auto") && world.inside().saved.pools.is_empty(), "{refused}");
    must(&manager, create("dense"));
    assert_eq!(content_of(&world, &manager), [Content::Dense; 3]);
    must(&manager, replace(false));
    assert_eq!(content_of(&world, &manager), [Content::Dense; 3]);
    // A pool that does not run learns it at its next start.
    let ssd = world.inside().devices.remove("/ssd2").expect("it is there");
    let manager = started(&world);
    must(&manager, set_content("off"));
    world.inside().devices.insert("/ssd2".into(), ssd);
    let manager = started(&world);
    assert_eq!(content_of(&world, &manager), [Content::Off; 3]);
}

#[test]
fn nothing_is_destroyed_by_mistake() {
    let pool = |name: &str, ssd: &str, size_bytes| {
        Action::PoolCreate(PoolCreate {
            name: name.into(),
            ssd: ssd.into(),
            size_bytes,
            ram_bytes: None,
            content: None,
            force: false,
            on_blank_ssd: None,
            spare_percent: None,
        })
    };
    check_refused(pool("q", SSD, None), "it is the SSD of the pool \"p\"");
    check_refused(pool("q", DISK, None), "it is the backing device of the volume \"v\"");
    check_refused(pool("q", "/ssd2", None), "it holds an ext4 file system; choose another device, or give --force");
    check_refused(pool("q", "/disk2", None), "mounted at /srv");
    check_refused(pool("q", "/nowhere", None), "there is no such file or device");
    check_refused(pool("q", "/dev/nowhere", Some(1 << 30)), "there is no such file or device");
    check_refused(pool("p", "/ssd2", None), "there is already a pool \"p\"");
    check_refused(pool("q", "/ssd2", Some(1 << 40)), "less than the 1 TiB of --size");
    check_refused(pool("q", "/ssd2", Some(1)), "--size must be at least");
    check_refused(pool("q/r", "/ssd2", None), "character");
    check_refused(add("w", SSD, "write-through"), "it is the SSD of the pool \"p\"");
    check_refused(add("w", DISK, "write-through"), "it is the backing device of the volume \"v\"");
    check_refused(add("w", "/disk2", "write-through"), "mounted at /srv");
    check_refused(add("v", "/ssd2", "write-through"), "there is already a volume \"v\"");
    check_refused(add("w", "/nowhere", "write-through"), "there is no such file or device");
    check_refused(add("w", "/ssd2", "fast"), "--mode has the unknown value");
    check_refused(set_content("most"), "--content has the unknown value \"most\"; use off, fast, dense or auto");
    check_refused(Action::PoolSet { name: "p".into(), set: PoolSet::default() }, "no option was given");
    check_refused(
        Action::PoolSet { name: "x".into(), set: PoolSet { content: Some("off".into()), on_blank_ssd: None } },
        "there is no pool \"x\"",
    );
    check_refused(Action::PoolDestroy { name: "p".into(), force: false }, "still has the volume \"v\"");
    check_refused(Action::PoolDestroy { name: "x".into(), force: true }, "there is no pool \"x\"");
    check_refused(Action::VolumeDestage { name: "x".into() }, "there is no volume \"x\"");
    let set = Action::VolumeSet { name: "v".into(), set: VolumeSet::default() };
    check_refused(set, "no option was given");
    let warm = VolumeWarm { start_bytes: 1 << 40, ..VolumeWarm::default() };
    check_refused(Action::VolumeWarm { name: "v".into(), warm }, "--range lies outside");
    check_refused(Action::Stats { name: "x".into() }, "there is no volume \"x\"");
}
