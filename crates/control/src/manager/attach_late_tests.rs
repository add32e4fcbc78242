//! Attached volumes while a daemon stops, and where their disk or the state file fails.

use super::Manager;
use super::attach_tests::{LV, attach, lab, leads_to_volume, next, trial, works};
use super::tests::{add, started};
use super::waiting::Watched;
use api::{Action, Health};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

type Stop = Arc<Mutex<Option<JoinHandle<bool>>>>;

/// The next device that is led here is so only when a stop has begun.
fn stop_at_lead_here(world: &super::fake::World, manager: &Manager) -> Stop {
    let (stopping, stop) = (manager.clone(), Stop::default());
    let kept = stop.clone();
    let act = move || {
        let stopper = stopping.clone();
        *kept.lock().expect("nobody panics") = Some(std::thread::spawn(move || stopper.stop().is_ok()));
        while !stopping.is_stopping() {
            std::thread::yield_now();
        }
        // It goes as far as it does without waiting.
        std::thread::sleep(Duration::from_millis(50));
    };
    world.inside().at_lead_here = Some(Box::new(act));
    stop
}

/// Whoever ends the daemon's block devices after that must find nobody on them.
#[test]
fn no_device_leads_to_a_daemon_that_has_stopped() {
    for case in ["attach", "trial", "return"] {
        let (world, manager) = lab();
        let stop = if case == "return" {
            manager.handle(attach()).expect("nothing fails");
            world.reload_mapped(LV, "extended");
            let stop = stop_at_lead_here(&world, &manager);
            manager.watch_devices(&mut Watched::default());
            stop
        } else {
            let stop = stop_at_lead_here(&world, &manager);
            drop(manager.handle(if case == "attach" { attach() } else { trial() }));
            stop
        };
        let stop = stop.lock().expect("nobody panics").take().expect("it was led here");
        stop.join().expect("it does not panic");
        assert!(!leads_to_volume(&world), "{case}");
        assert!(world.write_mapped(LV, 8), "{case}: without hearth");
        drop(manager);
        world.inside().ending = false;
        let manager = next(&world);
        assert_eq!(world.read_mapped(LV), Some(8), "{case}: stale");
        works(&world, 9, case);
        if case != "trial" {
            assert_eq!(manager.volume_view("v").expect("it is there").health, Health::Running, "{case}");
        }
    }
}

/// Its users wait for it, and the disk has everything.
#[test]
fn a_volume_whose_cache_cannot_be_proved_is_served_without() {
    let (world, manager) = lab();
    manager.handle(attach()).expect("nothing fails");
    works(&world, 2, "attached");
    world.fill_cache("v");
    drop(manager);
    world.inside().machine.sample_fails = true;
    let manager = next(&world);
    works(&world, 3, "bare");
    let view = manager.volume_view("v").expect("it is there");
    assert_eq!(view.health, Health::Degraded);
    assert!(view.problem.is_some_and(|problem| problem.contains("a block cannot be read")));
    assert!(view.remedy.is_some_and(|remedy| remedy.contains("hearth detach v")));
    drop(manager);
    world.inside().machine.sample_fails = false;
    let manager = next(&world);
    assert_eq!(world.read_mapped(LV), Some(3), "nothing stale");
    works(&world, 4, "with its cache");
    assert_eq!(manager.volume_view("v").expect("it is there").health, Health::Running);
}

/// A disk was written by others while it was away, and what is to be recorded of that is not.
#[test]
fn a_pool_that_starts_believes_no_cache_that_could_not_be_recorded_as_void() {
    const DISK: &str = "/disk";
    for step in 1.. {
        let (world, manager) = lab();
        manager.handle(add("x", DISK, "write-through")).expect("nothing fails");
        assert!(world.write("x", 1));
        world.fill_cache("x");
        manager.stop().expect("nothing fails");
        drop(manager);
        let (ssd, mut disk) = {
            let mut inside = world.inside();
            inside.ending = false;
            (inside.devices.remove("/ssd").expect("it is there"), inside.devices.remove(DISK).expect("it is there"))
        };
        world.reboot();
        let manager = started(&world);
        disk.version = 7;
        {
            let mut inside = world.inside();
            inside.devices.insert("/ssd".into(), ssd);
            inside.devices.insert(DISK.into(), disk);
            inside.fail_at = Some(inside.steps + step);
        }
        drop(manager.handle(Action::PoolStart { name: "p".into() }));
        let over = {
            let mut inside = world.inside();
            let over = inside.fail_at.is_some_and(|at| inside.steps < at);
            inside.fail_at = None;
            over
        };
        assert!(matches!(world.read("x"), None | Some(7)), "step {step}: stale");
        let mut watched = Watched::default();
        (0..70).for_each(|_| manager.watch_devices(&mut watched));
        assert!(matches!(world.read("x"), None | Some(7)), "step {step}: stale later");
        if over {
            assert_eq!(world.read("x"), Some(7));
            assert!(step > 5, "it has steps");
            break;
        }
    }
}
