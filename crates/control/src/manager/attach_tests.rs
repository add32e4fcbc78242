//! Volumes attached to a device in use: who has it mounted sees each write, whatever fails or is cut off, and whoever gives the device
//! another table meanwhile.

use super::Manager;
use super::fake::World;
use super::tests::{create, started, world};
use super::waiting::Watched;
use api::error::ControlError;
use api::options::OptionsPatch;
use api::{Action, Answer, Attach, Health, Severity, VolumeSet};
use std::path::Path;
use std::sync::Arc;

pub(super) const LV: &str = "vg-lv";
const DEVICE: &str = "/dev/vg/lv";
pub(super) const ORIGIN: &str = "/dev/mapper/hearth-v-origin";

/// A pool, and a logical volume that holds version 1.
pub(super) fn lab() -> (World, Manager) {
    let world = world();
    world.add_mapped(LV, 1 << 30);
    world.inside().machine.sample_misses = true;
    assert!(world.write_mapped(LV, 1));
    let manager = started(&world);
    manager.handle(create()).expect("nothing fails");
    (world, manager)
}

pub(super) fn attach() -> Action {
    let (name, device, pool) = ("v".into(), DEVICE.into(), Some("p".into()));
    Action::Attach(Attach { name, device, pool, trial: false, options: OptionsPatch::default() })
}

pub(super) fn trial() -> Action {
    Action::Attach(Attach { name: "v".into(), device: DEVICE.into(), pool: None, trial: true, options: OptionsPatch::default() })
}

fn detach() -> Action {
    Action::Detach { name: "v".into() }
}

fn told(answer: Result<Answer, ControlError>) -> String {
    match answer.expect("nothing fails") {
        Answer::Done(done) => done.summary.expect("it tells what was done"),
        other => panic!("{other:?}"),
    }
}

pub(super) fn leads_to_volume(world: &World) -> bool {
    !world.inside().mapped[LV].table.starts_with("own")
}

/// The daemon dies, and the machine goes on: mapped devices are as they are.
pub(super) fn dies(world: &World) {
    let (mapped, origin) = {
        let inside = world.inside();
        (inside.mapped.clone(), inside.devices.get(ORIGIN).cloned())
    };
    world.reboot();
    world.inside().mapped = mapped;
    if let Some(origin) = origin {
        world.inside().devices.insert(ORIGIN.into(), origin);
    }
}

pub(super) fn opened(world: &World) -> Manager {
    Manager::open(Arc::new(world.clone()), Box::new(world.clone()), Path::new("/state")).expect("the state can be read")
}

/// The next daemon: exports were kept.
pub(super) fn next(world: &World) -> Manager {
    dies(world);
    let manager = opened(world);
    manager.start().expect("the state can be saved");
    manager
}

/// The machine boots: LVM activates the device with its own table.
fn boot(world: &World) -> Manager {
    boots(world);
    next(world)
}

fn boots(world: &World) {
    world.reload_mapped(LV, "");
    let mut inside = world.inside();
    inside.devices.remove(ORIGIN);
    (inside.machine.boots, inside.machine.ends) = (inside.machine.boots + 1, false);
    let mapped = inside.mapped.get_mut(LV).expect("it is there");
    (mapped.instance, mapped.writes, mapped.is_open) = (mapped.instance + 1, 0, false);
}

/// Whoever has the device mounted writes and reads.
pub(super) fn works(world: &World, version: u64, case: &str) {
    assert!(world.read_mapped(LV).is_some(), "{case}: it cannot be read");
    assert!(world.write_mapped(LV, version), "{case}: it cannot be written");
    assert_eq!(world.read_mapped(LV), Some(version), "{case}");
    assert_eq!(world.inside().mapped[LV].version, version, "{case}: write-through");
}

fn nothing_is_left(world: &World, case: &str) {
    let inside = world.inside();
    assert!(inside.mapped[LV].table.starts_with("own"), "{case}: {}", inside.mapped[LV].table);
    assert!(!inside.devices.contains_key(ORIGIN) && inside.exports.is_empty() && inside.saved.volumes.is_empty(), "{case}");
}

#[test]
fn a_device_in_use_is_attached_and_detached() {
    let (world, manager) = lab();
    assert!(told(manager.handle(attach())).contains("nothing was unmounted"));
    assert!(leads_to_volume(&world));
    works(&world, 2, "attached");
    let view = manager.volume_view("v").expect("it is there");
    assert_eq!((view.attached_to.as_deref(), view.health), (Some(LV), Health::Running));
    for refused in [
        Action::VolumeStop { name: "v".into(), give_up: false, force: false },
        Action::VolumeRemove { name: "v".into(), drop_dirty: false },
    ] {
        let error = manager.handle(refused).expect_err("it is in use");
        assert!(error.remedy().contains("hearth detach v"), "{error}");
    }
    assert!(told(manager.handle(detach())).contains("as it was before"));
    nothing_is_left(&world, "detached");
    works(&world, 3, "detached");
    manager.handle(attach()).expect("nothing fails");
    works(&world, 4, "attached again");
}

/// What reads a new block device (udev does) must not fill the cache with what the device is still being written past it.
#[test]
fn nothing_is_cached_before_the_device_leads_to_the_volume() {
    let (world, manager) = lab();
    manager.handle(attach()).expect("nothing fails");
    // Before that it was pass-through: the options of the record are in force now.
    world.fill_cache("v");
    assert_eq!(world.read("v"), Some(1));
    let before = manager.volume_record("v").expect("it is there");
    assert_eq!(manager.as_attached(&before).options.mode.name(), "write-through");
    world.reload_mapped(LV, "other");
    assert_eq!(manager.as_attached(&before).options.mode.name(), "pass-through");
}

#[test]
fn what_cannot_be_right_is_refused() {
    let (world, manager) = lab();
    let with = |change: &dyn Fn(&mut Attach)| {
        let Action::Attach(mut asked) = attach() else { unreachable!() };
        change(&mut asked);
        manager.handle(Action::Attach(asked)).expect_err("it is refused").to_string()
    };
    let write_back = || OptionsPatch { mode: Some("write-back".into()), ..OptionsPatch::default() };
    assert!(with(&|asked| asked.options = write_back()).contains("cannot be write-back"));
    assert!(with(&|asked| asked.options.read_only = Some(true)).contains("its users write"));
    assert!(with(&|asked| asked.pool = None).contains("needs a pool"));
    assert!(with(&|asked| asked.trial = true).contains("has no pool"));
    assert!(with(&|asked| asked.pool = Some("q".into())).contains('q'));
    assert!(with(&|asked| asked.device = "/dev/vg/other".into()).contains("/dev/vg/other"));
    nothing_is_left(&world, "all were refused");
    manager.handle(attach()).expect("nothing fails");
    assert!(with(&|asked| asked.name = "w".into()).contains("attached already, as the volume \"v\""));
    let set = VolumeSet { options: write_back(), ..VolumeSet::default() };
    let error = manager.handle(Action::VolumeSet { name: "v".into(), set }).expect_err("never");
    assert!(error.to_string().contains("cannot be write-back"), "{error}");
    manager.handle(super::tests::add("x", "/disk", "write-through")).expect("nothing fails");
    let error = manager.handle(Action::Detach { name: "x".into() }).expect_err("it is no attachment");
    assert!(error.remedy().contains("hearth volume remove x"), "{error}");
}

#[test]
fn a_daemon_that_is_killed_and_comes_back_keeps_the_cache() {
    let (world, manager) = lab();
    manager.handle(attach()).expect("nothing fails");
    works(&world, 2, "attached");
    let id = world.inside().saved.volumes[0].id;
    drop(manager);
    let manager = next(&world);
    works(&world, 3, "the next daemon");
    assert!(leads_to_volume(&world));
    assert_eq!(world.inside().saved.volumes[0].id, id, "its cache is what it was");
    manager.handle(detach()).expect("nothing fails");
    nothing_is_left(&world, "detached");
}

/// After a boot anybody may have written before hearth came: what was cached is void.
#[test]
fn what_was_written_past_hearth_is_read_after_a_boot() {
    let (world, manager) = lab();
    manager.handle(attach()).expect("nothing fails");
    works(&world, 2, "attached");
    world.fill_cache("v");
    drop(manager);
    world.reload_mapped(LV, "");
    assert!(world.write_mapped(LV, 7));
    let manager = boot(&world);
    assert!(leads_to_volume(&world));
    assert_eq!(world.read_mapped(LV), Some(7));
    works(&world, 8, "booted");
    // Without its device it waits for it.
    let mapped = world.inside().mapped.remove(LV).expect("it is there");
    drop(manager);
    world.inside().devices.remove(ORIGIN);
    let manager = next(&world);
    let view = manager.volume_view("v").expect("it is there");
    assert!(view.problem.is_some_and(|problem| problem.contains("vg-lv that it is attached to is not there")));
    world.inside().mapped.insert(LV.into(), mapped);
    world.reload_mapped(LV, "");
    let mut watched = Watched::default();
    (0..70).for_each(|_| manager.watch_devices(&mut watched));
    assert!(leads_to_volume(&world));
    works(&world, 9, "activated");
}

#[test]
fn a_table_of_another_program_is_noticed_and_the_cache_dropped() {
    let (world, manager) = lab();
    manager.handle(attach()).expect("nothing fails");
    works(&world, 2, "attached");
    let mut watched = Watched::default();
    manager.watch_devices(&mut watched);
    for round in 0..3 {
        world.reload_mapped(LV, &format!("extended {round}"));
        world.inside().mapped.get_mut(LV).expect("it is there").size_bytes += 1 << 20;
        works(&world, 10 + round, "past hearth");
        // LVM is not done yet.
        world.inside().mapped.get_mut(LV).expect("it is there").changing = true;
        manager.watch_devices(&mut watched);
        assert!(!leads_to_volume(&world));
        world.inside().mapped.get_mut(LV).expect("it is there").changing = false;
        manager.watch_devices(&mut watched);
        assert!(leads_to_volume(&world));
        assert_eq!(world.read_mapped(LV), Some(10 + round), "nothing stale");
        works(&world, 20 + round, "attached again");
        let view = manager.volume_view("v").expect("it is there");
        assert_eq!((view.health, view.size_bytes), (Health::Running, (1 << 30) + ((round + 1) << 20)));
    }
    world.inside().mapped.remove(LV);
    manager.watch_devices(&mut watched);
    assert!(!world.inside().devices.contains_key(ORIGIN), "LVM has its extents back");
    assert_eq!(manager.volume_view("v").expect("it is there").health, Health::Failed);
    manager.handle(detach()).expect("nothing is in the way");
    assert!(world.inside().saved.volumes.is_empty());
}

#[test]
fn swap_that_comes_later_is_told_of_once() {
    let (world, manager) = lab();
    manager.handle(attach()).expect("nothing fails");
    let told = || manager.events_after(0).iter().filter(|event| event.message.contains("swapoff /srv/swapfile")).count();
    let mut watched = Watched::default();
    manager.watch_devices(&mut watched);
    assert_eq!(told(), 0);
    world.inside().machine.swap.push((LV.into(), "/srv/swapfile".into()));
    (0..3).for_each(|_| manager.watch_devices(&mut watched));
    assert_eq!(told(), 1);
    world.inside().machine.swap.clear();
    manager.watch_devices(&mut watched);
    world.inside().machine.swap.push((LV.into(), "/srv/swapfile".into()));
    manager.watch_devices(&mut watched);
    assert_eq!(told(), 2, "switched on again");
}

#[test]
fn what_cannot_be_looked_at_is_told_once_and_again_when_it_can() {
    let (world, manager) = lab();
    manager.handle(attach()).expect("nothing fails");
    let told = |severity, text: &str| {
        manager.events_after(0).iter().filter(|event| event.severity == severity && event.message.contains(text)).count()
    };
    let mut watched = Watched::default();
    for (look, what) in [("swap", "whether swap is on its device"), ("leads", "whether its device still leads to it")] {
        world.inside().machine.blind = vec![look];
        (0..3).for_each(|_| manager.watch_devices(&mut watched));
        assert_eq!(told(Severity::Warning, &format!("it cannot be seen {what}, and is tried again")), 1, "{look}");
        world.inside().machine.blind.clear();
        (0..3).for_each(|_| manager.watch_devices(&mut watched));
        assert_eq!(told(Severity::Info, &format!("it is seen again {what}")), 1, "{look}");
    }
    assert_eq!(manager.volume_view("v").expect("it is there").health, Health::Running);
}

/// LVM gives the device its own table at any step of a start, and its users write to the disk.
#[test]
fn a_refresh_amid_a_start_leaves_nothing_stale() {
    for before in ["killed", "stopped", "started"] {
        for step in 1.. {
            let case = format!("{before}, step {step}");
            let (world, manager) = lab();
            manager.handle(attach()).expect("nothing fails");
            works(&world, 2, &case);
            world.fill_cache("v");
            if before == "stopped" {
                manager.stop().expect("nothing fails");
                world.inside().ending = false;
            }
            drop(manager);
            let manager = if before == "started" {
                let manager = next(&world);
                world.refresh_at(step, LV, 7);
                let volume = manager.volume_record("v").expect("it is there");
                drop(manager.start_alone(&volume));
                manager
            } else {
                world.refresh_at(step, LV, 7);
                next(&world)
            };
            if world.inside().refresh_at.is_some() {
                assert!(step > 5, "it has steps");
                break;
            }
            assert_eq!(world.read_mapped(LV), Some(7), "{case}: stale");
            let mut watched = Watched::default();
            (0..70).for_each(|_| manager.watch_devices(&mut watched));
            assert!(leads_to_volume(&world), "{case}");
            assert_eq!(world.read_mapped(LV), Some(7), "{case}: stale");
            works(&world, 8, &case);
            let view = manager.volume_view("v").expect("it is there");
            assert_eq!(view.health, Health::Running, "{case}");
        }
    }
}

/// Killed between the load of a table and its coming into force, on the way here and on the way past.
#[test]
fn what_a_killed_swap_has_left_is_taken_away_and_what_others_load_is_not() {
    for way in ["here", "past", "another program's"] {
        let (world, manager) = lab();
        manager.handle(attach()).expect("nothing fails");
        works(&world, 2, way);
        drop(manager);
        {
            let mut inside = world.inside();
            let origin = inside.devices[ORIGIN].signature.clone();
            let mapped = inside.mapped.get_mut(LV).expect("it is there");
            mapped.inactive = match way {
                "here" => Some(mapped.table.clone()),
                "past" => origin,
                _ => Some("own extended".into()),
            };
        }
        let manager = next(&world);
        let view = manager.volume_view("v").expect("it is there");
        let is_ours = way != "another program's";
        assert_eq!(view.health == Health::Running, is_ours, "{way}");
        assert_eq!(world.inside().mapped[LV].inactive.is_none(), is_ours, "{way}");
        assert_eq!(manager.handle(detach()).is_ok(), is_ours, "{way}");
    }
}

/// Somebody has the origin open when the daemon starts: one volume waits, and everything else starts.
#[test]
fn an_origin_in_use_keeps_only_its_own_volume_from_ending() {
    for ends in ["trial", "leaving"] {
        let (world, manager) = lab();
        manager.handle(super::tests::add("x", "/disk", "write-through")).expect("nothing fails");
        manager.handle(if ends == "trial" { trial() } else { attach() }).expect("nothing fails");
        if ends == "leaving" {
            world.inside().saved.volume_mut("v").and_then(|v| v.attachment.as_mut()).expect("it is there").leaving = true;
        }
        drop(manager);
        world.reload_mapped(LV, "");
        world.inside().origin_in_use = true;
        let manager = next(&world);
        assert_eq!(manager.volume_view("x").expect("it is there").health, Health::Running, "{ends}");
        let mut watched = Watched::default();
        manager.watch_devices(&mut watched);
        assert_eq!(world.inside().saved.volumes.len(), 2, "{ends}");
        assert!(!leads_to_volume(&world), "{ends}");
        world.inside().origin_in_use = false;
        manager.watch_devices(&mut watched);
        assert_eq!(world.inside().saved.volumes.len(), 1, "{ends}");
        assert!(!leads_to_volume(&world) && !world.inside().devices.contains_key(ORIGIN), "{ends}");
    }
}

#[test]
fn a_detachment_that_is_refused_is_not_gone_on_with() {
    let (world, manager) = lab();
    manager.handle(attach()).expect("nothing fails");
    world.inside().mapped.get_mut(LV).expect("it is there").changing = true;
    manager.handle(detach()).expect_err("LVM is at it");
    world.inside().mapped.get_mut(LV).expect("it is there").changing = false;
    drop(manager);
    let manager = next(&world);
    assert!(leads_to_volume(&world), "it is attached as before");
    works(&world, 3, "still attached");
    manager.handle(detach()).expect("nothing is in the way");
    nothing_is_left(&world, "detached");
}

/// An LVM command takes longer than one try.
#[test]
fn a_stop_waits_for_the_device_to_be_led_past() {
    let (world, manager) = lab();
    manager.handle(attach()).expect("nothing fails");
    world.inside().busy_tries = 3;
    manager.stop().expect("nothing fails");
    assert_eq!(world.inside().busy_tries, 0);
    assert!(!leads_to_volume(&world));
    works(&world, 3, "without hearth");
}

#[test]
fn a_stop_of_the_daemon_leaves_the_device_working() {
    let (world, manager) = lab();
    manager.handle(attach()).expect("nothing fails");
    works(&world, 2, "attached");
    manager.stop().expect("nothing fails");
    assert!(!leads_to_volume(&world) && !world.inside().devices.contains_key(ORIGIN));
    works(&world, 3, "without hearth");
    drop(manager);
    world.inside().ending = false;
    let _manager = next(&world);
    assert!(leads_to_volume(&world));
    assert_eq!(world.read_mapped(LV), Some(3));
    works(&world, 4, "started again");
}

/// A volume whose daemon was stopped, with something in its cache; gives its number, too.
fn stopped(machine_ends: bool, is_open: bool) -> (World, u32) {
    let (world, manager) = lab();
    manager.handle(attach()).expect("nothing fails");
    works(&world, 2, "attached");
    world.fill_cache("v");
    world.inside().machine.ends = machine_ends;
    world.inside().mapped.get_mut(LV).expect("it is there").is_open = is_open;
    let id = world.inside().saved.volumes[0].id;
    manager.stop().expect("nothing fails");
    assert!(!leads_to_volume(&world) && !world.inside().devices.contains_key(ORIGIN));
    world.inside().ending = false;
    (world, id)
}

fn goes_on(world: &World, version: u64, id: u32, expect_cache: bool, case: &str) {
    assert!(leads_to_volume(world), "{case}");
    assert_eq!(world.read_mapped(LV), Some(version), "{case}: stale");
    assert_eq!(world.inside().saved.volumes[0].id == id, expect_cache, "{case}: its cache");
    works(world, version + 1, case);
}

#[test]
fn a_stop_keeps_the_cache_where_nobody_writes_meanwhile() {
    for is_open in [false, true] {
        let (world, id) = stopped(false, is_open);
        let manager = next(&world);
        goes_on(&world, 2, id, true, "stopped and started");
        manager.stop().expect("nothing fails");
        world.inside().ending = false;
        assert!(world.write_mapped(LV, 7));
        let manager = next(&world);
        goes_on(&world, 7, id, false, "written meanwhile");
        drop(manager);
        next(&world);
        assert_eq!(world.read_mapped(LV), Some(8), "killed after that");
    }
    let (world, id) = stopped(false, false);
    // LVM makes it anew, and what was counted of it begins anew.
    assert!(world.write_mapped(LV, 7));
    let writes = world.inside().mapped[LV].writes;
    if let Some(mapped) = world.inside().mapped.get_mut(LV) {
        (mapped.instance, mapped.writes) = (mapped.instance + 1, writes - 1);
    }
    let _manager = next(&world);
    goes_on(&world, 7, id, false, "made anew meanwhile");
}

/// Killed at any step of the start that is to show that nothing was written, some steps after LVM has led the device past hearth and its
/// users have written.
#[test]
fn a_kill_while_the_cache_is_proved_leaves_nothing_stale() {
    for later in 0..12 {
        for step in 1.. {
            let case = format!("step {step}, {later} later");
            let (world, _) = stopped(false, true);
            world.refresh_at(step, LV, 7);
            {
                let mut inside = world.inside();
                (inside.fail_at, inside.crash) = (Some(inside.steps + step + later), true);
            }
            drop(Manager::open(Arc::new(world.clone()), Box::new(world.clone()), Path::new("/state")).map(|manager| manager.start()));
            let over = {
                let mut inside = world.inside();
                let over = inside.fail_at.is_some_and(|at| inside.steps < at);
                (inside.dead, inside.fail_at, inside.crash, inside.refresh_at) = (false, None, false, None);
                over
            };
            let version = world.inside().mapped[LV].version;
            let _manager = next(&world);
            assert_eq!(world.read_mapped(LV), Some(version), "{case}: stale");
            works(&world, 8, &case);
            if over {
                assert!(step > 5, "it has steps");
                break;
            }
        }
    }
}

/// The start after the boot is cut off at any step; then the machine boots without hearth, and its users write; then it boots again.
#[test]
fn a_proof_is_good_for_one_start() {
    for step in 1.. {
        let case = format!("step {step}");
        let (world, _) = stopped(true, false);
        boots(&world);
        {
            let mut inside = world.inside();
            (inside.fail_at, inside.crash) = (Some(inside.steps + step), true);
        }
        drop(Manager::open(Arc::new(world.clone()), Box::new(world.clone()), Path::new("/state")).map(|manager| manager.start()));
        let over = {
            let mut inside = world.inside();
            let over = inside.fail_at.is_some_and(|at| inside.steps < at);
            (inside.dead, inside.fail_at, inside.crash) = (false, None, false);
            over
        };
        boots(&world);
        assert!(world.write_mapped(LV, 7), "{case}");
        let _manager = boot(&world);
        assert_eq!(world.read_mapped(LV), Some(7), "{case}: stale");
        works(&world, 8, &case);
        if over {
            assert!(step > 5, "it has steps");
            break;
        }
    }
}

#[test]
fn a_boot_keeps_the_cache_if_nobody_could_have_written() {
    let (world, id) = stopped(true, false);
    let _manager = boot(&world);
    goes_on(&world, 2, id, true, "booted");

    let (world, id) = stopped(true, true);
    let _manager = boot(&world);
    goes_on(&world, 2, id, false, "it was mounted while the machine went down");

    let (world, id) = stopped(false, false);
    let _manager = boot(&world);
    goes_on(&world, 2, id, false, "the machine went down later");

    let (world, id) = stopped(true, false);
    boots(&world);
    assert!(world.write_mapped(LV, 7));
    let _manager = next(&world);
    goes_on(&world, 7, id, false, "written after the boot");

    let (world, id) = stopped(true, false);
    boots(&world);
    assert!(world.write_mapped(LV, 7));
    let _manager = boot(&world);
    goes_on(&world, 7, id, false, "written in a boot without hearth");
}

/// The next daemon comes at once, and what is in use was kept for it.
#[test]
fn a_planned_restart_keeps_the_cache() {
    for outlives in [true, false] {
        let (world, manager) = lab();
        manager.handle(attach()).expect("nothing fails");
        works(&world, 2, "attached");
        let id = world.inside().saved.volumes[0].id;
        world.inside().outlives = outlives;
        manager.expect_restart();
        manager.stop().expect("nothing fails");
        assert_eq!(leads_to_volume(&world), outlives, "its users wait, or go on without hearth");
        assert_eq!(world.inside().devices.contains_key(ORIGIN), outlives);
        drop(manager);
        world.inside().ending = false;
        if !outlives {
            works(&world, 3, "without hearth");
        }
        let _manager = next(&world);
        assert_eq!(world.read_mapped(LV), Some(2 + u64::from(!outlives)));
        works(&world, 3, "restarted");
        assert_eq!(world.inside().saved.volumes[0].id == id, outlives, "its cache is kept, or dropped");
    }
}

#[test]
fn a_trial_writes_nothing_and_leaves_nothing() {
    let (world, manager) = lab();
    let ssd = || world.inside().devices["/ssd"].log.clone();
    let begin = |manager: &Manager| {
        assert!(told(manager.handle(trial())).contains("for a trial"));
        assert!(leads_to_volume(&world));
    };
    begin(&manager);
    works(&world, 2, "on trial");
    assert!(ssd().is_empty());
    assert!(told(manager.handle(detach())).contains("the trial saw"));
    nothing_is_left(&world, "detached");
    // Who is killed goes on; who is stopped, and a machine that boots, do not.
    begin(&manager);
    drop(manager);
    let manager = next(&world);
    assert!(leads_to_volume(&world));
    works(&world, 3, "the next daemon");
    manager.stop().expect("nothing fails");
    nothing_is_left(&world, "stopped");
    world.inside().ending = false;
    drop(manager);
    let manager = next(&world);
    begin(&manager);
    drop(manager);
    let manager = boot(&world);
    nothing_is_left(&world, "booted");
    // Another program ends it too.
    begin(&manager);
    world.reload_mapped(LV, "extended");
    manager.watch_devices(&mut Watched::default());
    nothing_is_left(&world, "another table");
    works(&world, 4, "after all");
    assert!(ssd().is_empty());
}

/// Each step of an operation goes wrong, or is the daemon's last; then the next daemon comes, or the machine boots.
fn every_step(prepare: impl Fn(&Manager), act: impl Fn() -> Action, expect_attached: Option<bool>) {
    for crash in [false, true] {
        for step in 1.. {
            let (world, manager) = lab();
            prepare(&manager);
            works(&world, 2, "before");
            let case = format!("crash {crash}, step {step}");
            {
                let mut inside = world.inside();
                (inside.fail_at, inside.crash) = (Some(inside.steps + step), crash);
            }
            let result = manager.handle(act());
            let over = {
                let inside = world.inside();
                inside.fail_at.is_some_and(|at| inside.steps < at)
            };
            if !crash {
                world.inside().fail_at = None;
                works(&world, 3, &case);
                if let Err(error) = &result {
                    assert!(!error.remedy().is_empty(), "{case}: {error}");
                }
            }
            world.fill_cache("v");
            drop(manager);
            let boots = step % 2 == 0;
            {
                let mut inside = world.inside();
                (inside.dead, inside.fail_at, inside.crash) = (false, None, false);
            }
            let manager = if boots { boot(&world) } else { next(&world) };
            let version = world.inside().mapped[LV].version;
            assert_eq!(world.read_mapped(LV), Some(version), "{case}: stale");
            works(&world, 5, &case);
            if crash && let Some(expected) = expect_attached {
                // Recorded, it is gone on with; else nothing is left.
                let recorded = world.inside().saved.volumes.len() == 1;
                assert!(recorded == leads_to_volume(&world), "{case}: recorded {recorded}");
                assert!(expected || !recorded, "{case}");
            }
            if world.inside().saved.volumes.is_empty() {
                nothing_is_left(&world, &case);
            } else {
                manager.handle(detach()).unwrap_or_else(|error| panic!("{case}: {error}"));
                nothing_is_left(&world, &case);
            }
            works(&world, 6, &case);
            if over {
                assert!(step > 5, "it has steps");
                break;
            }
        }
    }
}

#[test]
fn an_attachment_that_fails_or_is_cut_off_at_any_step_harms_nothing() {
    every_step(|_| (), attach, Some(true));
}

#[test]
fn a_trial_that_fails_or_is_cut_off_at_any_step_harms_nothing() {
    every_step(|_| (), trial, Some(true));
}

#[test]
fn a_detachment_that_fails_or_is_cut_off_at_any_step_harms_nothing() {
    let prepare = |manager: &Manager| drop(manager.handle(attach()).expect("nothing fails"));
    every_step(prepare, detach, None);
}
