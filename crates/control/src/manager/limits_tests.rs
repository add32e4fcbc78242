//! What a machine does not have: memory for a RAM tier or an index, small sectors below a file; and what hearth does wrong itself.

use super::Manager;
use super::fake::World;
use super::tests::started;
use api::options::OptionsPatch;
use api::words::Export;
use api::{Action, Answer, Health, PoolCreate, PoolSet, PoolView, VolumeAdd};

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
    Action::PoolCreate(PoolCreate {
        name: name.into(),
        ssd: ssd.into(),
        size_bytes: None,
        ram_bytes,
        content: None,
        force: false,
        on_blank_ssd: None,
        spare_percent: None,
    })
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
    Action::VolumeAdd(VolumeAdd { name, pool: "a".into(), backing, exports: vec![Export::LOOP], sector_bytes, options })
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

#[test]
fn an_ssd_is_refused_whose_index_there_is_no_memory_for_before_anything_is_written() {
    let world = world();
    world.add_device("/dev/large", 1 << 40);
    world.add_device("/dev/huge", 17 << 40);
    let manager = started(&world);
    let create = |name: &str, ssd: &str, size_bytes, content: &str| {
        let (ram_bytes, content) = (Some(128 * MIB), Some(content.into()));
        Action::PoolCreate(PoolCreate {
            name: name.into(),
            ssd: ssd.into(),
            size_bytes,
            ram_bytes,
            content,
            force: false,
            on_blank_ssd: None,
            spare_percent: None,
        })
    };
    let told = refused(&world, &manager, create("a", "/dev/large", None, "off"));
    let expected = "/dev/large: an index of 1 TiB with content off takes 4 GiB of memory when all of it is used; this test has 1 GiB, of \
                    which 768 MiB are left beside RAM tiers and other pools; give at most --size 192GiB";
    assert_eq!(told, expected);
    let told = refused(&world, &manager, create("a", "/dev/large", None, "auto"));
    assert!(
        told.contains("takes 12 GiB") && told.ends_with("give at most --size 64GiB, or --content off with at most --size 192GiB"),
        "{told}"
    );
    manager.handle(create("a", "/dev/large", Some(128 << 30), "off")).expect("what it says fits");
    // Index and RAM tier of the other pool count.
    let told = refused(&world, &manager, create("b", "/dev/huge", Some(1 << 40), "off"));
    assert!(told.contains("of which 128 MiB are left") && told.contains("give at most --size 32GiB"), "{told}");
    let set = PoolSet { content: Some("auto".into()), on_blank_ssd: None };
    let told = refused(&world, &manager, Action::PoolSet { name: "a".into(), set });
    assert!(told.starts_with("--content cannot be auto: an index of 128 GiB with content auto takes 1.50 GiB"), "{told}");
    world.inside().memory_bytes = None;
    let told = refused(&world, &manager, create("b", "/dev/huge", None, "off"));
    assert_eq!(told, "/dev/huge: it has 17 TiB, and a pool can use 16 TiB; give at most --size 16384GiB");
}

#[test]
fn a_pool_whose_start_hearth_gets_wrong_is_failed_and_takes_no_other_down() {
    let world = world();
    let manager = started(&world);
    world.inside().mistaken.insert("b".into());
    manager.handle(create("a", "/ssd1", Some(0))).expect("nothing fails");
    let error = manager.handle(create("b", "/ssd2", Some(0))).expect_err("hearth gets it wrong");
    let expected = "a mistake in hearth ended the start of the pool: b slots are more than a shard can have";
    assert_eq!(error.reason(), expected);
    assert!(world.inside().saved.pools.iter().all(|pool| pool.name != "b"), "its creation is undone");
    world.inside().mistaken.clear();
    manager.handle(create("b", "/ssd2", Some(0))).expect("nothing fails");
    drop(manager);
    world.inside().mistaken.insert("b".into());
    let manager = started(&world);
    let (a, b) = (pool(&manager, "a"), pool(&manager, "b"));
    assert_eq!((a.health, b.health, b.problem.as_deref()), (Health::Running, Health::Failed, Some(expected)));
    world.inside().mistaken.clear();
    manager.handle(Action::PoolStart { name: "b".into() }).expect("by the next try hearth gets it right");
    assert_eq!(pool(&manager, "b").health, Health::Running);
}
