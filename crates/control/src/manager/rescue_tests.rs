//! The daemon does not come back: whoever has an attached device open goes on without hearth, whatever fails or is cut off, and no later daemon
//! serves anything stale.

use super::Manager;
use super::attach_tests::{LV, ORIGIN, attach, dies, lab, leads_to_volume, next, opened, trial, works};
use super::fake::World;
use crate::rescue::{Led, Patience, lead_past, note_stale, waiting};
use api::error::ControlError;
use api::words::Export;
use api::{Action, Health};
use datapath::mapped::MappedDevices;
use records::state::State;
use records::store::{Loaded, Store};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Long where it is to be waited for, short where it ends by that.
const PATIENCE: Patience = Patience { for_requests: Duration::from_millis(50), for_exchange: Duration::from_secs(60) };

/// A volume with something in its cache, whose daemon was killed while its users had requests under way. Gives its number, too.
fn killed(act: Action) -> (World, u32) {
    let (world, manager) = lab();
    manager.handle(act).expect("nothing fails");
    works(&world, 2, "attached");
    world.fill_cache("v");
    drop(manager);
    dies(&world);
    world.inside().machine.under_way = true;
    let id = saved(&world).volumes[0].id;
    (world, id)
}

fn saved(world: &World) -> State {
    world.inside().saved.clone()
}

fn mapped(world: &World) -> Arc<dyn MappedDevices + Send + Sync> {
    Arc::new(world.clone())
}

/// What `hearth rescue` does where it serves nothing; gives whether block devices were ended.
fn exchange(world: &World) -> (Vec<Led>, bool) {
    exchange_by(world, PATIENCE)
}

fn exchange_by(world: &World, patience: Patience) -> (Vec<Led>, bool) {
    let mut ended = false;
    let found = waiting(world, &saved(world));
    assert!(found.refused.is_empty(), "{found:?}");
    let mut end = || {
        assert!(!std::mem::replace(&mut ended, true), "once");
        world.inside().machine.under_way = false;
    };
    let led = lead_past(&mapped(world), found.volumes, &mut end, patience);
    (led, ended)
}

fn goes_on_alone(world: &World, version: u64, case: &str) {
    assert!(!leads_to_volume(world), "{case}");
    assert!(world.write_mapped(LV, version), "{case}: without hearth");
    assert_eq!(world.read_mapped(LV), Some(version), "{case}");
}

/// The daemon comes after all.
fn comes_back(world: &World, version: u64, id: u32, case: &str) -> Manager {
    let manager = next(world);
    assert!(leads_to_volume(world), "{case}");
    assert_eq!(world.read_mapped(LV), Some(version), "{case}: stale");
    works(world, version + 1, case);
    assert_ne!(world.inside().saved.volumes[0].id, id, "{case}: nothing that was cached is served");
    assert_eq!(manager.volume_view("v").expect("it is there").health, Health::Running, "{case}");
    manager
}

#[test]
fn what_waits_is_served_and_the_device_led_past() {
    let (world, id) = killed(attach());
    opened(&world).lead_all_past().expect("nothing fails");
    assert!(!world.inside().machine.under_way, "it was served");
    assert!(!world.inside().devices.contains_key(ORIGIN) && world.inside().exports.is_empty());
    goes_on_alone(&world, 7, "rescued");
    opened(&world).lead_all_past().expect("nothing is to be done");
    goes_on_alone(&world, 8, "rescued twice");
    comes_back(&world, 8, id, "the next daemon");
}

#[test]
fn a_trial_ends_with_the_rescue() {
    let (world, _) = killed(trial());
    opened(&world).lead_all_past().expect("nothing fails");
    goes_on_alone(&world, 7, "rescued");
    next(&world);
    assert!(world.inside().saved.volumes.is_empty() && !leads_to_volume(&world));
}

/// Each step fails, or is the last of the process that serves. Then the tables are exchanged, or the daemon comes, or the machine boots.
#[test]
fn a_rescue_that_fails_or_is_cut_off_at_any_step_leaves_nothing_stale() {
    for (crash, then) in [(false, "exchange"), (true, "exchange"), (true, "daemon"), (false, "daemon"), (true, "boot")] {
        for step in 1.. {
            let case = format!("crash {crash}, step {step}, {then}");
            let (world, id) = killed(attach());
            {
                let mut inside = world.inside();
                (inside.fail_at, inside.crash) = (Some(inside.steps + step), crash);
            }
            let result = opened(&world).lead_all_past();
            let over = {
                let inside = world.inside();
                inside.fail_at.is_some_and(|at| inside.steps < at)
            };
            // Whoever was served until then has written past the cache.
            if leads_to_volume(&world) && !crash && world.read_mapped(LV).is_some() {
                assert!(world.write_mapped(LV, 6), "{case}");
            }
            dies(&world);
            {
                let mut inside = world.inside();
                (inside.dead, inside.fail_at, inside.crash) = (false, None, false);
            }
            let mut version = world.inside().mapped[LV].version;
            if then == "exchange" {
                assert!(exchange(&world).0.iter().all(|led| led.result.is_ok()), "{case}");
                goes_on_alone(&world, 7, &case);
                version = 7;
            } else if !leads_to_volume(&world) {
                goes_on_alone(&world, 7, &case);
                version = 7;
            }
            assert!(result.is_err() || !leads_to_volume(&world), "{case}");
            if then == "boot" {
                world.reload_mapped(LV, "");
                world.inside().mapped.get_mut(LV).expect("it is there").inactive = None;
                world.inside().devices.remove(ORIGIN);
                assert!(world.write_mapped(LV, 9), "{case}");
                version = 9;
            }
            world.inside().machine.under_way = false;
            if version > 2 {
                comes_back(&world, version, id, &case);
            } else {
                next(&world);
                assert_eq!(world.read_mapped(LV), Some(2), "{case}");
            }
            if over {
                assert!(step > 5, "it has steps");
                break;
            }
        }
    }
}

/// Requests that are under way hold the exchange up until hearth's block device ends.
#[test]
fn tables_are_exchanged_where_nothing_can_be_served() {
    let (world, id) = killed(attach());
    let (led, ended) = exchange(&world);
    assert!(ended && matches!(led[..], [Led { result: Ok(true), .. }]), "{led:?}");
    assert!(!world.inside().devices.contains_key(ORIGIN));
    goes_on_alone(&world, 7, "rescued");
    comes_back(&world, 7, id, "the next daemon");

    let (world, id) = killed(attach());
    world.inside().machine.under_way = false;
    let (led, ended) = exchange_by(&world, Patience { for_requests: Duration::from_secs(60), ..PATIENCE });
    assert!(!ended && matches!(led[..], [Led { result: Ok(false), .. }]), "nothing was under way: {led:?}");
    goes_on_alone(&world, 7, "rescued");
    let (led, ended) = exchange(&world);
    assert!(led.is_empty() && !ended, "nothing is to be done");
    comes_back(&world, 7, id, "the next daemon");
}

/// A write of the killed daemon that the kernel still has could come over what users write past hearth.
#[test]
fn what_is_under_way_at_the_disk_is_waited_for() {
    let (world, id) = killed(attach());
    world.inside().machine.under_way = false;
    world.inside().origin_in_use = true;
    let short = Patience { for_exchange: Duration::from_millis(300), ..PATIENCE };
    let (led, _) = exchange_by(&world, short);
    assert!(matches!(&led[..], [Led { result: Err(error), .. }] if error.to_string().contains("is not done")), "{led:?}");
    assert!(leads_to_volume(&world), "its users wait");

    let disk = world.clone();
    let done = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        assert!(leads_to_volume(&disk), "not before");
        disk.inside().origin_in_use = false;
    });
    assert!(exchange(&world).0.iter().all(|led| led.result.is_ok()));
    done.join().expect("no panic");
    goes_on_alone(&world, 7, "rescued");
    comes_back(&world, 7, id, "the next daemon");
}

/// Its block device cannot be had now, and users wait for that: the start does not wait with them.
#[test]
fn a_start_ends_although_users_of_a_device_wait_for_ever() {
    let (world, _) = killed(attach());
    world.inside().dead = false;
    world.inside().no_export = Some(Export::BLOCK);
    let manager = next(&world);
    assert!(leads_to_volume(&world), "nobody has taken it from its users");
    drop(manager);
    // When their requests have ended, the exchange that has begun goes on.
    world.inside().machine.under_way = false;
    while leads_to_volume(&world) {
        std::thread::yield_now();
    }
}

/// It is killed between the load of a table and its coming into force.
#[test]
fn an_exchange_that_was_cut_off_is_gone_on_with() {
    let (world, id) = killed(attach());
    {
        let mut inside = world.inside();
        inside.machine.under_way = false;
        (inside.fail_at, inside.crash) = (Some(inside.steps + 2), true);
    }
    let short = Patience { for_exchange: Duration::ZERO, ..PATIENCE };
    let volumes = waiting(&world, &saved(&world)).volumes;
    let led = lead_past(&mapped(&world), volumes, &mut || (), short);
    assert!(matches!(led[..], [Led { result: Err(_), .. }]), "{led:?}");
    assert!(leads_to_volume(&world) && world.inside().mapped[LV].inactive.is_some());
    dies(&world);
    world.inside().dead = false;
    assert!(exchange(&world).0.iter().all(|led| led.result.is_ok()));
    goes_on_alone(&world, 7, "rescued");
    comes_back(&world, 7, id, "the next daemon");
}

/// The disk below does not answer.
#[test]
fn an_exchange_that_does_not_end_is_told_of() {
    let (world, _) = killed(attach());
    let volumes = waiting(&world, &saved(&world)).volumes;
    let short = Patience { for_exchange: Duration::from_millis(1), ..PATIENCE };
    let led = lead_past(&mapped(&world), volumes, &mut || (), short);
    let [Led { result: Err(error), .. }] = &led[..] else { panic!("{led:?}") };
    assert!(error.to_string().contains("requests that are under way do not end"), "{error}");
    assert!(error.remedy().contains("hearth rescue") && leads_to_volume(&world));
    // The thread ends by that.
    world.inside().machine.under_way = false;
}

/// LVM suspends the device, and waits for the requests of the block device that has no server.
#[test]
fn a_program_that_waits_for_the_same_requests_goes_first() {
    let (world, id) = killed(attach());
    world.inside().machine.under_way = false;
    world.inside().mapped.get_mut(LV).expect("it is there").changing = true;
    let found = waiting(&world, &saved(&world));
    let mut end = || {
        world.reload_mapped(LV, "refreshed");
        world.inside().mapped.get_mut(LV).expect("it is there").changing = false;
    };
    let led = lead_past(&mapped(&world), found.volumes, &mut end, PATIENCE);
    assert!(matches!(led[..], [Led { result: Ok(true), .. }]), "{led:?}");
    goes_on_alone(&world, 7, "rescued");
    comes_back(&world, 7, id, "the next daemon");
}

/// A state file that cannot be written: it can be read.
struct ReadOnly(World);

impl Store for ReadOnly {
    fn load(&mut self) -> Result<Loaded, ControlError> {
        self.0.load()
    }

    fn save(&mut self, _state: &State) -> Result<(), ControlError> {
        Err(ControlError::State { path: "state.json".into(), problem: "read-only".into(), remedy: "repair it".into() })
    }
}

/// Whoever serves past the cache and cannot record that would leave it stale. The table of the device says as much as a record.
#[test]
fn where_nothing_can_be_recorded_nothing_is_served_and_the_device_shows_it() {
    let (world, id) = killed(attach());
    let store = Box::new(ReadOnly(world.clone()));
    let manager = Manager::open(Arc::new(world.clone()), store, Path::new("/state")).expect("it can be read");
    manager.lead_all_past().expect_err("it cannot be recorded");
    assert!(world.inside().machine.under_way && leads_to_volume(&world), "nobody was served");
    drop(manager);
    dies(&world);
    let state = saved(&world);
    let volumes = waiting(&world, &state).volumes;
    note_stale(&mut ReadOnly(world.clone()), &state, &volumes).expect_err("it cannot be recorded");
    assert!(exchange(&world).0.iter().all(|led| led.result.is_ok()));
    goes_on_alone(&world, 7, "rescued");
    comes_back(&world, 7, id, "the next daemon");
}

#[test]
fn what_is_noted_costs_the_cache_even_where_the_device_is_found_leading_here() {
    let (world, id) = killed(attach());
    let state = saved(&world);
    let volumes = waiting(&world, &state).volumes;
    note_stale(&mut world.clone(), &state, &volumes).expect("nothing fails");
    world.inside().machine.under_way = false;
    comes_back(&world, 2, id, "the next daemon");
}

/// It cannot come to this by itself.
#[test]
fn a_volume_whose_disk_may_lack_data_is_refused() {
    let (world, _) = killed(attach());
    world.inside().saved.volume_mut("v").expect("it is there").may_have_dirty = true;
    let found = waiting(&world, &saved(&world));
    assert!(found.volumes.is_empty());
    let told = found.refused[0].to_string();
    assert!(told.contains("/dev/mapper/vg-lv") && told.contains("data of the volume \"v\" that its disk lacks"), "{told}");
    assert!(found.refused[0].remedy().contains("start the daemon"));
    opened(&world).lead_all_past().expect_err("it is refused");
    assert!(leads_to_volume(&world) && world.inside().machine.under_way);
}
