//! Jobs that are resumed, the check, and the disks of the machine, over the data path in memory.

use super::Manager;
use super::fake::{CHECK_PARTS, Device, World};
use api::error::{ControlError, Kind};
use api::options::OptionsPatch;
use api::words::Export;
use api::{
    Action, Answer, DeviceExamine, DeviceState, DeviceView, InsightAction, JobKind, JobState, JobView, PoolCreate, PoolReplace, Severity,
    VolumeAdd, VolumeSet, VolumeWarm,
};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

const GIB: u64 = 1 << 30;

/// A pool on /dev/ssd and a write-back volume over /dev/disk.
fn with_volume() -> (World, Manager) {
    let world = World::default();
    for path in ["/dev/ssd", "/dev/disk", "/dev/free", "/dev/ssd2", "/srv/file"] {
        world.add_device(path, GIB);
    }
    let manager = Manager::open(Arc::new(world.clone()), Box::new(world.clone()), Path::new("/state")).expect("the state can be read");
    manager.start().expect("the state can be saved");
    let create = PoolCreate {
        name: "p".into(),
        ssd: "/dev/ssd".into(),
        size_bytes: None,
        ram_bytes: None,
        content: None,
        force: false,
        on_blank_ssd: None,
        spare_percent: None,
    };
    manager.handle(Action::PoolCreate(create)).expect("nothing fails");
    add(&manager);
    (world, manager)
}

fn add(manager: &Manager) {
    let options = OptionsPatch { mode: Some("write-back".into()), ..OptionsPatch::default() };
    let add = VolumeAdd {
        name: "v".into(),
        pool: "p".into(),
        backing: "/dev/disk".into(),
        exports: vec![Export::LOOP],
        sector_bytes: None,
        options,
    };
    manager.handle(Action::VolumeAdd(add)).expect("nothing fails");
}

fn job(answer: Result<Answer, ControlError>) -> JobView {
    match answer {
        Ok(Answer::Job(job)) => *job,
        other => panic!("no job: {other:?}"),
    }
}

fn ended(manager: &Manager, id: u64) -> JobView {
    loop {
        let view = job(manager.handle(Action::JobShow { id }));
        if view.state != JobState::Running {
            return view;
        }
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// Begins a job in a slow world and stops it there.
fn stopped(world: &World, manager: &Manager, action: Action) -> JobView {
    world.inside().slow = true;
    let begun = job(manager.handle(action));
    manager.handle(Action::JobCancel { id: begun.id }).expect("it runs");
    let view = ended(manager, begun.id);
    assert_eq!(view.state, JobState::Cancelled);
    world.inside().slow = false;
    view
}

fn resumed(manager: &Manager, id: u64) -> JobView {
    let new = job(manager.handle(Action::JobResume { id }));
    assert_ne!(new.id, id, "a job of its own");
    ended(manager, new.id)
}

fn refused(manager: &Manager, id: u64, kind: Kind, part: &str) {
    let error = manager.handle(Action::JobResume { id }).expect_err("refused").refusal();
    assert_eq!(error.kind, kind, "{error}");
    assert!(error.to_string().contains(part) && error.remedy.is_some(), "{error} lacks {part:?}");
}

fn events(manager: &Manager) -> Vec<(Severity, String)> {
    match manager.handle(Action::Events { after: 0 }) {
        Ok(Answer::Events(events)) => events.into_iter().map(|event| (event.severity, event.message)).collect(),
        other => panic!("{other:?}"),
    }
}

fn must_tell(manager: &Manager, severity: Severity, part: &str) {
    let events = events(manager);
    assert!(events.iter().any(|(grave, message)| *grave == severity && message.contains(part)), "no {part:?} in {events:?}");
}

fn destage() -> Action {
    Action::VolumeDestage { name: "v".into() }
}

fn check() -> Action {
    Action::PoolCheck { name: "p".into() }
}

#[test]
fn a_destage_that_was_stopped_is_resumed() {
    let (world, manager) = with_volume();
    assert!(world.write("v", 5));
    let old = stopped(&world, &manager, destage());
    assert_eq!(world.inside().devices["/dev/disk"].version, 0);
    let new = resumed(&manager, old.id);
    assert_eq!((new.kind, new.state), (JobKind::Destage, JobState::Done));
    assert_eq!(world.inside().devices["/dev/disk"].version, 5);
    let next = format!("was resumed as job {}", new.id);
    refused(&manager, old.id, Kind::Conflict, &next);
    refused(&manager, new.id, Kind::Conflict, "is done");
    refused(&manager, 999, Kind::NotFound, "there is no job \"999\"");
    must_tell(&manager, Severity::Info, &format!("destage begun (job {})", old.id));
    must_tell(&manager, Severity::Info, &format!("job {} goes on with job {}", new.id, old.id));
    must_tell(&manager, Severity::Info, &format!("destage: done (job {})", new.id));
}

#[test]
fn a_job_that_runs_is_not_resumed() {
    let (world, manager) = with_volume();
    world.inside().slow = true;
    assert!(world.write("v", 5));
    let running = job(manager.handle(destage()));
    refused(&manager, running.id, Kind::Conflict, "is still running");
    world.inside().slow = false;
    assert_eq!(ended(&manager, running.id).state, JobState::Done);
}

#[test]
fn a_warm_up_that_failed_goes_on_where_it_was() {
    let (world, manager) = with_volume();
    let warm = VolumeWarm { start_bytes: 2 << 20, end_bytes: Some(8 << 20), rate_bytes_s: None };
    let steps = world.inside().steps;
    world.inside().fail_at = Some(steps + 3);
    let begun = job(manager.handle(Action::VolumeWarm { name: "v".into(), warm }));
    let failed = ended(&manager, begun.id);
    assert!(matches!(failed.state, JobState::Failed { .. }), "{failed:?}");
    assert_eq!((failed.done_bytes, failed.total_bytes), (2 << 20, 6 << 20));
    must_tell(&manager, Severity::Warning, &format!("an I/O failed (job {})", begun.id));
    let new = resumed(&manager, begun.id);
    assert_eq!((new.kind, &new.state), (JobKind::Warm, &JobState::Done));
    assert_eq!((new.done_bytes, new.total_bytes), (6 << 20, 6 << 20), "progress is of the whole");
    let read: Vec<u64> = world.inside().warmed.iter().map(|piece| piece.at_bytes >> 20).collect();
    assert_eq!(read, [2, 3, 4, 5, 6, 7], "nothing twice, nothing left out");
}

#[test]
fn a_removal_and_a_mode_change_are_resumed() {
    let (world, manager) = with_volume();
    assert!(world.write("v", 5));
    let options = OptionsPatch { mode: Some("write-through".into()), ..OptionsPatch::default() };
    let leave = Action::VolumeSet { name: "v".into(), set: VolumeSet { options, ..VolumeSet::default() } };
    let old = stopped(&world, &manager, leave);
    assert!(world.inside().saved.volumes[0].may_have_dirty);
    let new = resumed(&manager, old.id);
    assert_eq!((new.kind, new.state), (JobKind::ModeChange, JobState::Done));
    assert!(!world.inside().saved.volumes[0].may_have_dirty, "the mark is gone");
    assert_eq!(world.inside().devices["/dev/disk"].version, 5);

    let (world, manager) = with_volume();
    assert!(world.write("v", 6));
    let old = stopped(&world, &manager, Action::VolumeRemove { name: "v".into(), drop_dirty: false });
    let new = resumed(&manager, old.id);
    assert_eq!((new.kind, new.state), (JobKind::Remove, JobState::Done));
    assert_eq!(world.inside().devices["/dev/disk"].version, 6);
    assert!(world.inside().saved.volumes.is_empty());
}

/// The name of a volume may be another one's by then, and its mode another.
#[test]
fn what_has_changed_since_is_not_resumed() {
    let (world, manager) = with_volume();
    assert!(world.write("v", 5));
    let old = stopped(&world, &manager, destage());
    let gone = job(manager.handle(Action::VolumeRemove { name: "v".into(), drop_dirty: true }));
    assert_eq!(ended(&manager, gone.id).state, JobState::Done);
    refused(&manager, old.id, Kind::NotFound, "there is no volume \"v\"");
    add(&manager);
    refused(&manager, old.id, Kind::Conflict, "another one has its name");

    assert!(world.write("v", 6));
    let set = |mode: &str| {
        let options = OptionsPatch { mode: Some(mode.into()), ..OptionsPatch::default() };
        Action::VolumeSet { name: "v".into(), set: VolumeSet { options, ..VolumeSet::default() } }
    };
    let old = stopped(&world, &manager, set("write-through"));
    manager.handle(set("write-back")).expect("nothing fails");
    refused(&manager, old.id, Kind::Conflict, "write-back again");
}

#[test]
fn a_check_looks_at_every_part_and_others_work_meanwhile() {
    let (world, manager) = with_volume();
    world.inside().slow = true;
    let running = job(manager.handle(check()));
    assert_eq!((running.kind, running.volume.as_str()), (JobKind::Check, "p"));
    let again = manager.handle(check()).expect_err("one at a time").refusal();
    assert_eq!(again.kind, Kind::Busy);
    assert!(again.to_string().starts_with("the SSD of pool \"p\" is busy: a check is in progress"), "{again}");
    let replace = PoolReplace { ssd: "/dev/ssd2".into(), size_bytes: None, force: false, drop_dirty: false };
    for action in [Action::PoolDestroy { name: "p".into(), force: true }, Action::PoolReplace { name: "p".into(), replace }] {
        assert_eq!(manager.handle(action).expect_err("the SSD is needed").kind(), Kind::Busy);
    }
    let set = api::PoolSet { content: Some("off".into()), on_blank_ssd: None };
    manager.handle(Action::PoolSet { name: "p".into(), set }).expect("a check is no reason to wait");
    assert_eq!(
        manager.handle(Action::VolumeShow { name: "v".into() }).map(|answer| matches!(answer, Answer::Volume(v) if v.job.is_none())).ok(),
        Some(true)
    );
    world.inside().slow = false;
    let done = ended(&manager, running.id);
    assert_eq!(
        (done.state, done.done_bytes, done.total_bytes),
        (JobState::Done, 4096 * u64::from(CHECK_PARTS), 4096 * u64::from(CHECK_PARTS))
    );
    assert_eq!(world.inside().checked, (0..CHECK_PARTS).collect::<Vec<_>>());
    must_tell(&manager, Severity::Info, &format!("check begun (job {})", running.id));
    must_tell(&manager, Severity::Info, &format!("check: done (job {})", running.id));
    manager.handle(Action::PoolDestroy { name: "p".into(), force: true }).expect("the claim is given back");
}

#[test]
fn a_check_goes_on_where_it_was_and_forgets_nothing_it_has_found() {
    let (world, manager) = with_volume();
    world.inside().bad_parts.extend([(0, true), (1, false), (4, true)]);
    world.inside().slow_from = Some(2);
    let begun = job(manager.handle(check()));
    while world.inside().checked.len() < 2 || !world.inside().slow {
        std::thread::sleep(Duration::from_micros(50));
    }
    manager.handle(Action::JobCancel { id: begun.id }).expect("it runs");
    let view = ended(&manager, begun.id);
    assert_eq!((view.state, view.done_bytes), (JobState::Cancelled, 2 * 4096));
    (world.inside().slow, world.inside().slow_from) = (false, None);
    let new = resumed(&manager, begun.id);
    assert_eq!(world.inside().checked, [0, 1, 2, 3, 4]);
    assert_eq!(new.done_bytes, 5 * 4096);
    let JobState::Failed { error } = new.state else { panic!("dirty blocks are bad: {new:?}") };
    let told = "2 dirty blocks (8 KiB) on the SSD cannot be read as written: v at byte 0, v at byte 16384";
    assert!(error.to_string().starts_with(told) && error.remedy.is_some(), "{error}");
    must_tell(&manager, Severity::Warning, "1 clean block (4 KiB) that did not match");
    // Resumed once more it looks at everything anew: perhaps the blocks were written since.
    world.inside().bad_parts.clear();
    world.inside().checked.clear();
    assert_eq!(resumed(&manager, new.id).state, JobState::Done);
    assert_eq!(world.inside().checked.len(), CHECK_PARTS as usize);
}

#[test]
fn a_pool_that_does_not_run_is_inspected() {
    let (world, manager) = with_volume();
    manager.stop().expect("nothing fails");
    world.reboot();
    // Another pool is on its SSD: it does not start.
    world.inside().devices.get_mut("/dev/ssd").expect("it is there").pool = Some(Uuid::from_bytes([9; 16]));
    let manager = Manager::open(Arc::new(world.clone()), Box::new(world.clone()), Path::new("/state")).expect("the state can be read");
    manager.start().expect("the state can be saved");
    let done = job(manager.handle(check()));
    assert_eq!(ended(&manager, done.id).state, JobState::Done);
    world.inside().problems = vec!["shard 0: 3 pages cannot be read".into()];
    let bad = job(manager.handle(check()));
    let JobState::Failed { error } = ended(&manager, bad.id).state else { panic!("it has problems") };
    assert!(error.to_string().contains("/dev/ssd: shard 0: 3 pages cannot be read"), "{error}");
    let stopped = stopped(&world, &manager, check());
    world.inside().problems.clear();
    assert_eq!(resumed(&manager, stopped.id).state, JobState::Done);
    assert!(world.inside().checked.is_empty(), "no part of it runs");
    let unknown = manager.handle(Action::PoolCheck { name: "q".into() }).expect_err("no such pool");
    assert_eq!(unknown.kind(), Kind::NotFound);
}

#[test]
fn a_check_ends_with_the_daemon() {
    let (world, manager) = with_volume();
    world.inside().slow = true;
    let running = job(manager.handle(check()));
    manager.stop().expect("the check is stopped first");
    assert_eq!(ended(&manager, running.id).state, JobState::Cancelled);
}

fn devices(manager: &Manager) -> Vec<DeviceView> {
    match manager.handle(Action::DeviceList) {
        Ok(Answer::Devices(devices)) => devices,
        other => panic!("{other:?}"),
    }
}

fn examine(manager: &Manager, path: &str) -> Result<DeviceView, ControlError> {
    match manager.handle(Action::DeviceExamine(DeviceExamine { path: path.into() })) {
        Ok(Answer::Device(view)) => Ok(*view),
        Ok(other) => panic!("{other:?}"),
        Err(error) => Err(error),
    }
}

fn check_device(change: impl FnOnce(&mut Device), state: DeviceState, told: &str, destroys: Option<&str>, can: (bool, bool)) {
    let (world, manager) = with_volume();
    change(world.inside().devices.get_mut("/dev/free").expect("it is there"));
    let listed = devices(&manager).into_iter().find(|view| view.path == "/dev/free").expect("it is listed");
    assert_eq!((listed.state, listed.summary.as_str(), listed.destroys.as_deref()), (state, told, destroys));
    assert_eq!((listed.can_be_ssd, listed.can_be_backing), can, "{told}");
    assert_eq!(examine(&manager, "/dev/free").expect("it is there"), listed, "asked for by name it is the same");
    assert_eq!(examine(&manager, "/dev/disk/by-id/free").expect("it is there"), listed, "by any name");
}

#[test]
fn every_state_of_a_disk_is_told() {
    use DeviceState::{Foreign, Free, InUse, Pool};
    check_device(|_| (), Free, "free", None, (true, true));
    check_device(|d| d.size_bytes = 1 << 20, Free, "free, too small for a pool", None, (false, true));
    check_device(|d| d.read_only = true, Free, "free, can only be read", None, (false, true));
    let ext4 = "Everything on /dev/free is destroyed: it has an ext4 file system, 1 GiB.";
    check_device(|d| d.signature = Some("an ext4 file system".into()), Foreign, "has an ext4 file system", Some(ext4), (true, true));
    check_device(|d| d.in_use = Some("it is mounted at /".into()), InUse, "mounted at /", None, (false, false));
    let told = "cannot be examined: it does not answer";
    check_device(|d| d.problem = Some("it does not answer".into()), InUse, told, None, (false, false));
    let told = "carries a hearth pool that this daemon does not know";
    let pool = "Everything on /dev/free is destroyed: it has a hearth pool, 1 GiB.";
    check_device(|d| d.pool = Some(Uuid::from_bytes([8; 16])), Pool, told, Some(pool), (true, false));
}

#[test]
fn what_hearth_has_is_known_by_any_name() {
    let (world, manager) = with_volume();
    world.add_device("/dev/ssd1", GIB);
    world.inside().devices.get_mut("/dev/ssd1").expect("it is there").parent = Some("/dev/ssd".into());
    world.add_device("/dev/loop5", GIB);
    let find = |path: &str| devices(&manager).into_iter().find(|view| view.path == path).expect("it is listed");
    let (ssd, disk) = (find("/dev/ssd"), find("/dev/disk"));
    assert_eq!(
        (ssd.state, ssd.summary.as_str(), ssd.can_be_ssd, ssd.can_be_backing),
        (DeviceState::Pool, "the SSD of pool p", false, false)
    );
    assert_eq!((disk.state, disk.summary.as_str()), (DeviceState::Backing, "the backing device of volume v"));
    assert!(!disk.can_be_ssd && !disk.can_be_backing);
    assert_eq!(examine(&manager, "/dev/disk/by-id/ssd").expect("it is there").summary, "the SSD of pool p");
    let modelled = examine(&manager, "model:7k2:/dev/disk").expect("it is there");
    assert_eq!((modelled.state, modelled.path.as_str()), (DeviceState::Backing, "model:7k2:/dev/disk"));

    // A disk of which hearth has a partition is taken; and what a volume is offered as is that volume.
    world.inside().devices.get_mut("/dev/disk").expect("it is there").parent = Some("/dev/free".into());
    let whole = find("/dev/free");
    let told = "its partition /dev/disk is the backing device of volume v";
    assert_eq!((whole.state, whole.summary.as_str(), whole.can_be_ssd), (DeviceState::InUse, told, false));
    manager.set_live_volume("v", |live| drop(live.exports.insert(Export::LOOP, "/dev/loop5".into())));
    world.add_device("/dev/loop5p1", GIB);
    world.inside().devices.get_mut("/dev/loop5p1").expect("it is there").parent = Some("/dev/loop5".into());
    for (path, told) in [
        ("/dev/loop5", "the volume v itself, exported by hearth"),
        ("/dev/loop5p1", "a partition of the volume v itself, exported by hearth"),
    ] {
        let view = find(path);
        assert_eq!((view.state, view.summary.as_str(), view.can_be_ssd, view.can_be_backing), (DeviceState::InUse, told, false, false));
    }
    let create = PoolCreate {
        name: "q".into(),
        ssd: "/dev/loop5".into(),
        size_bytes: None,
        ram_bytes: None,
        content: None,
        force: true,
        on_blank_ssd: None,
        spare_percent: None,
    };
    let error = manager.handle(Action::PoolCreate(create)).expect_err("it would wait for itself").to_string();
    assert!(error.contains("it is the volume \"v\" itself"), "{error}");
}

#[test]
fn paths_that_a_person_types_are_judged() {
    let (world, manager) = with_volume();
    let file = examine(&manager, "/srv/file").expect("it is there");
    assert_eq!((file.kind.as_str(), file.state, file.can_be_ssd, file.can_be_backing), ("file", DeviceState::Free, true, true));
    let modelled = examine(&manager, "model:7k2:/srv/file").expect("it is there");
    assert_eq!((modelled.path.as_str(), modelled.can_be_ssd, modelled.can_be_backing), ("model:7k2:/srv/file", false, true));
    let new = examine(&manager, "/srv/new").expect("it can be made");
    assert_eq!((new.kind.as_str(), new.can_be_ssd, new.can_be_backing), ("file", true, false));
    assert_eq!(new.summary, "does not exist; a file of the given size would be created");
    let new = examine(&manager, "model:7k2:/srv/new").expect("it is told");
    assert!(!new.can_be_ssd && !new.can_be_backing && new.summary.contains("truncate -s SIZE /srv/new"), "{}", new.summary);
    for (path, kind, part) in [
        ("/dev/none", Kind::NotFound, "there is no such device"),
        ("disk.img", Kind::Usage, "is not absolute"),
        ("", Kind::Usage, "is not absolute"),
        ("model:7k2", Kind::Usage, "is not absolute"),
        ("model:7k2:disk", Kind::Usage, "is not absolute"),
    ] {
        let error = examine(&manager, path).expect_err(path).refusal();
        assert!(error.kind == kind && error.to_string().contains(part) && error.remedy.is_some(), "{path}: {error}");
    }
    let steps = world.inside().steps;
    examine(&manager, "/srv/file").expect("it is there");
    assert_eq!(world.inside().steps, steps, "looking changes nothing");
}

fn replace(ssd: &str) -> Action {
    let replace = PoolReplace { ssd: ssd.into(), size_bytes: None, force: false, drop_dirty: false };
    Action::PoolReplace { name: "p".into(), replace }
}

fn pool_ssd(manager: &Manager) -> String {
    match manager.handle(Action::PoolShow { name: "p".into() }) {
        Ok(Answer::Pool(pool)) => pool.ssd,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_replacement_of_an_ssd_is_a_job_that_can_be_stopped_until_all_is_home() {
    let (world, manager) = with_volume();
    assert!(world.write("v", 5));
    let wrong = PoolReplace { ssd: "/dev/none".into(), size_bytes: None, force: false, drop_dirty: false };
    manager.handle(Action::PoolReplace { name: "p".into(), replace: wrong }).expect_err("what is wrong from the start is told at once");
    let old = stopped(&world, &manager, replace("/dev/ssd2"));
    assert_eq!((old.kind, old.volume.as_str()), (JobKind::Replace, "p"));
    assert_eq!(pool_ssd(&manager), "/dev/ssd");
    assert!(world.write("v", 6), "it is served as before");

    world.inside().slow = true;
    let running = job(manager.handle(Action::JobResume { id: old.id }));
    for action in [destage(), Action::PoolDestroy { name: "p".into(), force: true }] {
        assert_eq!(manager.handle(action).expect_err("volumes and pool are taken").kind(), Kind::Busy);
    }
    world.inside().slow = false;
    assert_eq!(ended(&manager, running.id).state, JobState::Done);
    assert_eq!((pool_ssd(&manager), world.inside().devices["/dev/disk"].version), ("/dev/ssd2".into(), 6));
    assert!(world.write("v", 7), "it is served from the new SSD");
    must_tell(&manager, Severity::Info, "the pool is now on /dev/ssd2");
    refused(&manager, running.id, Kind::Conflict, "is done");
}

#[test]
fn a_replacement_is_not_resumed_when_the_pool_has_another_ssd_by_then() {
    let (world, manager) = with_volume();
    world.add_device("/dev/ssd3", GIB);
    assert!(world.write("v", 5));
    let old = stopped(&world, &manager, replace("/dev/ssd2"));
    let other = job(manager.handle(replace("/dev/ssd3")));
    assert_eq!(ended(&manager, other.id).state, JobState::Done);
    refused(&manager, old.id, Kind::Conflict, "on another SSD by now");
    assert_eq!(pool_ssd(&manager), "/dev/ssd3");
}

#[test]
fn a_stop_of_the_daemon_ends_a_replacement_first() {
    let (world, manager) = with_volume();
    assert!(world.write("v", 5));
    world.inside().slow = true;
    let running = job(manager.handle(replace("/dev/ssd2")));
    manager.stop().expect("nothing fails");
    assert_eq!(ended(&manager, running.id).state, JobState::Cancelled);
    assert_eq!(world.inside().saved.pools[0].ssd, "/dev/ssd");
}

#[test]
fn a_look_for_applications_that_cannot_begin_is_refused_at_once() {
    let (_world, manager) = with_volume();
    // Over devices in memory nothing is watched. It is asked on another thread: to say why, a lock is taken again.
    let (told, refused) = std::sync::mpsc::channel();
    let asked = manager.clone();
    std::thread::spawn(move || {
        let answer = asked.handle(Action::Insight(InsightAction::ApplicationDiscover { volume: "v".into() }));
        told.send(answer.map_err(|error| error.refusal().to_string())).expect("somebody waits");
    });
    let answer = refused.recv_timeout(Duration::from_secs(120)).expect("it is refused at once");
    assert!(answer.as_ref().is_err_and(|refusal| refusal.contains("it is not watched")), "{answer:?}");
    let kind =
        manager.handle(Action::Insight(InsightAction::ApplicationDiscover { volume: "none".into() })).expect_err("there is none").refusal();
    assert!(kind.to_string().contains("there is no volume \"none\""), "{kind}");
    assert!(matches!(manager.handle(Action::VolumeDestage { name: "v".into() }), Ok(Answer::Job(_))), "its name is not held");
}
