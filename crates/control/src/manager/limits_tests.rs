//! What a machine does not have: memory for a RAM tier, small sectors below a file.

use super::Manager;
use super::fake::World;
use super::tests::started;
use crate::api::{Action, Answer, PoolCreate, PoolView, VolumeAdd};
use crate::options::OptionsPatch;
use crate::words::Export;

const MIB: u64 = 1 << 20;

fn world() -> World {
    let world = World::default();
    for path in ["/ssd1", "/ssd2", "/ssd3", "/disk.img", "/dev/sda"] {
        world.add_device(path, 1 << 30);
    }
    world.inside().memory_bytes = Some(1024 * MIB);
    world
}

fn create(name: &str, ssd: &str, ram_mib: Option<u64>) -> Action {
    let ram_bytes = ram_mib.map(|mib| mib * MIB);
    Action::PoolCreate(PoolCreate { name: name.into(), ssd: ssd.into(), size_bytes: None, ram_bytes, content: None, force: false })
}

fn refused(world: &World, manager: &Manager, action: Action) -> String {
    let before = world.inside().saved.clone();
    let sentence = manager.handle(action).expect_err("it is refused").refusal().to_string();
    assert_eq!(world.inside().saved, before, "a refusal changes nothing");
    sentence
}

fn pool(manager: &Manager, name: &str) -> PoolView {
    match manager.handle(Action::PoolShow { name: name.into() }) {
        Ok(Answer::Pool(view)) => *view,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_ram_tier_is_refused_that_there_is_no_memory_for() {
    let world = world();
    let manager = started(&world);
    let told = refused(&world, &manager, create("a", "/ssd1", Some(4096)));
    let expected = "--ram asks for 4 GiB, this test has 1 GiB; give at most --ram 512 MiB: the index and everybody else need theirs";
    assert_eq!(told, expected);
    manager.handle(create("a", "/ssd1", Some(512))).expect("half of what there is");
    let told = refused(&world, &manager, create("b", "/ssd2", Some(512)));
    assert!(told.contains("this test has 1 GiB, and other pools have RAM tiers of 512 MiB; give at most --ram 256 MiB"), "{told}");
    manager.handle(create("b", "/ssd2", None)).expect("the default fits");
    let told = refused(&world, &manager, create("c", "/ssd3", Some(4)));
    assert!(told.contains("give --ram 0 for no RAM tier"), "{told}");
    manager.handle(create("c", "/ssd3", Some(0))).expect("no RAM tier always fits");
}

/// A daemon that starts where there is less than there was serves its pools all the same, with less, and says so.
#[test]
fn a_start_with_less_memory_gives_smaller_ram_tiers() {
    let world = world();
    let manager = started(&world);
    manager.handle(create("a", "/ssd1", Some(512))).expect("half of what there is");
    manager.handle(create("b", "/ssd2", Some(128))).expect("it fits");
    drop(manager);
    world.inside().memory_bytes = Some(512 * MIB);
    let manager = started(&world);
    let given = |name: &str| (pool(&manager, name).ram_bytes / MIB, world.inside().ram_bytes[name] / MIB);
    assert_eq!((given("a"), given("b")), ((256, 256), (0, 0)), "b comes after all that a wants");
    let events: Vec<String> = manager.events_after(0).into_iter().map(|event| event.message).collect();
    let expected = "its RAM tier has 256 MiB instead of 512 MiB: this test has 512 MiB; give it more and restart the daemon";
    assert!(events.iter().any(|event| event == expected), "{events:?}");
    drop(manager);
    world.inside().memory_bytes = Some(1024 * MIB);
    let manager = started(&world);
    assert_eq!((pool(&manager, "a").ram_bytes, pool(&manager, "b").ram_bytes), (512 * MIB, 128 * MIB), "what was asked for is remembered");
}

fn add(backing: &str, sector_bytes: Option<u32>) -> Action {
    let (name, backing, options) = ("v".to_string(), backing.to_string(), OptionsPatch::default());
    Action::VolumeAdd(VolumeAdd { name, pool: "a".into(), backing, exports: vec![Export::Loop], sector_bytes, options })
}

#[test]
fn a_file_on_large_sectors_is_refused_unless_it_is_said_what_it_was_made_for() {
    let world = world();
    let manager = started(&world);
    manager.handle(create("a", "/ssd1", Some(0))).expect("nothing fails");
    for path in ["/disk.img", "/dev/sda"] {
        world.inside().devices.get_mut(path).expect("it is there").sector_bytes = 4096;
    }
    let told = refused(&world, &manager, add("/disk.img", None));
    assert!(told.contains("direct I/O to this file moves whole 4096 bytes, and an image has sectors of 512 bytes"), "{told}");
    let told = refused(&world, &manager, add("/dev/sda", Some(512)));
    assert!(told.contains("leave out --sector-size, or give 4096"), "{told}");
    for (backing, asked, expected) in [("/disk.img", Some(4096), 4096), ("/dev/sda", None, 4096), ("/ssd2", None, 512)] {
        let Ok(Answer::Volume(view)) = manager.handle(add(backing, asked)) else { panic!("{backing} is fine") };
        assert_eq!(view.sector_bytes, Some(expected), "{backing}");
        assert_eq!(world.inside().saved.volumes[0].sector_bytes, Some(expected), "{backing}");
        let remove = Action::VolumeRemove { name: "v".into(), drop_dirty: false };
        manager.handle(remove).expect("nothing fails");
        while manager.running_jobs().iter().any(|job| job.is_running()) {
            std::thread::yield_now();
        }
    }
}
