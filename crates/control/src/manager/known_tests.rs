//! What is shown is known, or said to be unknown; and a volume whose backing device refuses what it is asked for is not shown as well.

use super::Manager;
use super::fake::World;
use super::tests::started;
use api::error::ControlError;
use api::options::OptionsPatch;
use api::words::Export;
use api::{Action, Answer, Health, PoolCreate, PoolView, VolumeAdd, VolumeView};
use datapath::figures::Refused;
use insight::sampler::Sampler;

const SSD: &str = "/dev/ssd";
const DISK: &str = "/dev/sda";

/// A pool with the volumes `back` (write-back, one dirty block) and `through` (write-through).
fn world() -> (World, Manager) {
    let world = World::default();
    for path in [SSD, DISK, "/dev/sdb"] {
        world.add_device(path, 1 << 30);
    }
    let manager = started(&world);
    let pool = PoolCreate {
        name: "p".into(),
        ssd: SSD.into(),
        size_bytes: None,
        ram_bytes: Some(0),
        content: None,
        force: false,
        on_blank_ssd: None,
        spare_percent: None,
    };
    manager.handle(Action::PoolCreate(pool)).expect("nothing fails");
    for (name, mode, backing) in [("back", "write-back", DISK), ("through", "write-through", "/dev/sdb")] {
        let options = OptionsPatch { mode: Some(mode.into()), ..OptionsPatch::default() };
        let (name, backing) = (name.to_string(), backing.to_string());
        let add = VolumeAdd { name: name.clone(), pool: "p".into(), backing, exports: vec![Export::LOOP], sector_bytes: None, options };
        manager.handle(Action::VolumeAdd(add)).expect("nothing fails");
        assert!(world.write(&name, 7));
    }
    (world, manager)
}

fn view(manager: &Manager, name: &str) -> VolumeView {
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

/// Dirty bytes everywhere they are shown: view, list, counters, sample.
fn dirty(manager: &Manager, name: &str) -> Option<u64> {
    let shown = view(manager, name).dirty_bytes;
    let Ok(Answer::Volumes(list)) = manager.handle(Action::VolumeList) else { panic!("a list") };
    assert_eq!(list.iter().find(|volume| volume.name == name).expect("it is listed").dirty_bytes, shown);
    let Ok(Answer::VolumeStats(stats)) = manager.handle(Action::Stats { name: name.into() }) else { panic!("counters") };
    assert_eq!(stats.dirty_bytes, shown);
    let Ok(Answer::StatsAll(all)) = manager.handle(Action::StatsAll) else { panic!("counters") };
    assert_eq!(all.volumes[name].dirty_bytes, shown);
    assert_eq!(manager.take_sample(&mut Sampler::default(), 1000, 1000).volumes[name].dirty_bytes, shown);
    shown
}

/// Killed with dirty data, and then something is missing at the start. `0` would be an invitation to drop it.
#[test]
fn dirty_data_of_what_does_not_run_is_known_or_unknown_and_never_none() {
    let (world, manager) = world();
    assert_eq!((dirty(&manager, "back"), dirty(&manager, "through")), (Some(4096), Some(0)));
    drop(manager);
    let disk = world.inside().devices.remove(DISK).expect("it was there");
    let manager = started(&world);
    assert_eq!(view(&manager, "back").health, Health::Failed);
    assert_eq!(dirty(&manager, "back"), Some(4096), "the pool runs, and knows");
    assert_eq!(view(&manager, "back").cached_bytes, None);
    let refused = manager.handle(Action::VolumeRemove { name: "back".into(), drop_dirty: false }).expect_err("it has dirty data");
    assert!(refused.to_string().contains("has 4 KiB of dirty data"), "{refused}");
    drop(manager);
    world.inside().devices.insert(DISK.into(), disk);
    let ssd = world.inside().devices.remove(SSD).expect("it was there");
    let manager = started(&world);
    assert_eq!((dirty(&manager, "back"), pool(&manager).dirty_bytes), (None, None), "nobody knows");
    assert_eq!(dirty(&manager, "through"), Some(0), "it never had any");
    assert_eq!(pool(&manager).cached_bytes, None);
    drop(manager);
    world.inside().devices.insert(SSD.into(), ssd);
    world.inside().damaged = vec![1];
    let manager = started(&world);
    assert_eq!(dirty(&manager, "back"), None, "a damaged log tells less than was there");
}

#[test]
fn a_stopped_volume_has_the_dirty_data_it_was_stopped_with() {
    let (world, manager) = world();
    manager.handle(Action::VolumeStop { name: "back".into(), give_up: false, force: false }).expect("nobody uses it");
    assert_eq!(dirty(&manager, "back"), Some(4096));
    drop(manager);
    let manager = started(&world);
    assert_eq!((view(&manager, "back").health, dirty(&manager, "back")), (Health::Stopped, Some(4096)));
}

#[test]
fn a_volume_whose_disk_refuses_writes_is_failing_until_it_takes_them_again() {
    let (world, manager) = world();
    let mut sampler = Sampler::default();
    let mut shown = |refused: Option<Refused>| {
        world.inside().refused = refused.into_iter().map(|refused| ("back".to_string(), refused)).collect();
        let sample = manager.take_sample(&mut sampler, 1000, 1000);
        let (view, other) = (view(&manager, "back"), view(&manager, "through"));
        assert_eq!((other.health, other.problem), (Health::Running, None), "the other one works");
        assert_eq!((view.health, &view.problem), (sample.volumes["back"].health, &sample.volumes["back"].problem));
        (view.health, view.problem.unwrap_or_default())
    };
    assert_eq!(shown(None), (Health::Running, String::new()));
    let full = Refused { asked: "write", reason: "No space left on device (os error 28)".into() };
    let told = "writes to its backing device fail: No space left on device (os error 28)".to_string();
    assert_eq!(shown(Some(full.clone())), (Health::Failing, told.clone()));
    assert_eq!(shown(Some(full)), (Health::Failing, told.clone()));
    let failed = || ControlError::DataPath("the backing device refused a write".into(), String::new());
    assert_eq!(manager.with_reason("back", failed()).to_string(), told, "a destage tells what the disk said");
    assert_eq!(manager.with_reason("through", failed()).to_string(), failed().to_string());
    let broken = Refused { asked: "read", reason: "Input/output error (os error 5)".into() };
    assert_eq!(shown(Some(broken)).1, "reads of its backing device fail: Input/output error (os error 5)");
    assert_eq!(shown(None), (Health::Running, String::new()));
    let events: Vec<String> = manager.events_after(0).into_iter().map(|event| event.message).collect();
    let count = |part: &str| events.iter().filter(|event| event.contains(part)).count();
    let told = (count("os error 28"), count("os error 5"), count("do what they are asked for again"));
    assert_eq!(told, (1, 1, 1), "once each: {events:?}");
}
