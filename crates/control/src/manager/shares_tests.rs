//! Shares: with their volume, before its block device goes, and over restarts.

use super::Manager;
use super::fake::World;
use super::share_watch::WatchedShares;
use api::error::{ControlError, Kind};
use api::options::OptionsPatch;
use api::words::Export;
use api::{Action, Answer, DiskCreate, DiskSet, EventView, JobState, PoolCreate, Severity, ShareAdd, ShareView, VolumeAdd};
use std::sync::Arc;
use targets::Protocol;

fn open(world: &World) -> Manager {
    Manager::open(Arc::new(world.clone()), Box::new(world.clone()), std::path::Path::new("/state")).expect("a state")
}

/// A daemon with the volume `v`, offered as a block device.
fn daemon(world: &World) -> Manager {
    for path in ["/dev/ssd", "/dev/v", "/dev/w"] {
        world.add_device(path, 1 << 30);
    }
    let manager = open(world);
    manager.start().expect("nothing fails");
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
    add_volume(&manager, "v", vec![Export::LOOP]);
    manager
}

fn add_volume(manager: &Manager, name: &str, exports: Vec<Export>) {
    let (pool, backing, options) = ("p".into(), format!("/dev/{name}"), OptionsPatch::default());
    let add = VolumeAdd { name: name.into(), pool, backing, exports, sector_bytes: None, options };
    manager.handle(Action::VolumeAdd(add)).expect("nothing fails");
}

fn iscsi() -> ShareAdd {
    ShareAdd { protocol: Protocol::Iscsi, addresses: Vec::new(), initiators: Vec::new(), any_initiator: false, chap_file: None }
}

fn share(manager: &Manager, add: ShareAdd) -> Result<ShareView, ControlError> {
    match manager.handle(Action::ShareAdd { volume: "v".into(), add })? {
        Answer::Share(view) => Ok(*view),
        other => panic!("{other:?}"),
    }
}

fn remove(manager: &Manager, protocol: Protocol, force: bool) -> Result<Answer, ControlError> {
    manager.handle(Action::ShareRemove { volume: "v".into(), protocol, force })
}

fn shown(manager: &Manager, protocol: Protocol) -> ShareView {
    match manager.handle(Action::ShareShow { volume: "v".into(), protocol }).expect("it is there") {
        Answer::Share(view) => *view,
        other => panic!("{other:?}"),
    }
}

/// How many targets stand.
fn stand(world: &World) -> usize {
    world.inside().sharing.stand.len()
}

fn events(manager: &Manager, severity: Severity) -> Vec<String> {
    let of_v = |event: &EventView| event.severity == severity && event.object == "v";
    manager.events_after(0).into_iter().filter(of_v).map(|event| event.message).collect()
}

#[test]
fn a_share_is_shown_and_goes_as_it_came() {
    let world = World::default();
    let manager = daemon(&world);
    let view = share(&manager, iscsi()).expect("nothing is in the way");
    let uuid = world.inside().saved.volumes[0].uuid;
    assert_eq!(view.target, format!("iqn.2003-01.org.linux-iscsi.hearth:{uuid}"));
    assert_eq!((view.addresses.as_slice(), view.device.as_deref()), (["127.0.0.1:3260".to_string()].as_slice(), Some("/loop/v")));
    assert_eq!(share(&manager, iscsi()).expect_err("once is enough").kind(), Kind::Conflict);
    let nvme = ShareAdd { protocol: Protocol::NvmeTcp, addresses: vec!["[::1]:7000".into()], ..iscsi() };
    share(&manager, nvme).expect("the other protocol");
    assert!(events(&manager, Severity::Warning)[0].contains("reservations of one are not seen by the other"));
    assert_eq!((stand(&world), manager.share_views().len()), (2, 2));
    assert_eq!(
        (shown(&manager, Protocol::Iscsi).server.as_deref(), shown(&manager, Protocol::NvmeTcp).server.as_deref()),
        (Some("lio"), Some("nvmet"))
    );
    assert!(shown(&manager, Protocol::Iscsi).limits.is_empty());
    assert_eq!(manager.volume_view("v").expect("it is there").shares.len(), 2);
    world.inside().sharing.initiators = vec!["iqn.a:b".into()];
    let error = remove(&manager, Protocol::Iscsi, false).expect_err("somebody is connected");
    assert!(error.to_string().contains("iqn.a:b") && error.remedy().contains("--force"), "{error}");
    remove(&manager, Protocol::Iscsi, true).expect("a person insists");
    world.inside().sharing.initiators.clear();
    remove(&manager, Protocol::NvmeTcp, false).expect("nobody is connected");
    assert_eq!((stand(&world), manager.share_views().len()), (0, 0));
    assert_eq!(remove(&manager, Protocol::NvmeTcp, false).expect_err("it is gone").kind(), Kind::NotFound);
    assert!(world.inside().saved.volumes[0].shares.is_empty());
}

#[test]
fn what_a_target_cannot_do_is_shown() {
    let world = World::default();
    let manager = daemon(&world);
    world.inside().sharing.server = Some(targets::Server::Tgt);
    let view = share(&manager, iscsi()).expect("nothing is in the way");
    assert_eq!(view.server.as_deref(), Some("tgt"));
    assert!(view.limits.iter().any(|limit| limit.contains("ATS")), "{:?}", view.limits);
}

#[test]
fn a_shared_volume_stays_and_says_what_to_do() {
    let world = World::default();
    let manager = daemon(&world);
    share(&manager, iscsi()).expect("nothing is in the way");
    let refused: Vec<ControlError> = [
        Action::VolumeStop { name: "v".into(), give_up: false, force: false },
        Action::VolumeRemove { name: "v".into(), drop_dirty: true },
        Action::PoolDestroy { name: "p".into(), force: true },
    ]
    .into_iter()
    .map(|action| manager.handle(action).expect_err("initiators use it"))
    .collect();
    for error in &refused {
        assert!(error.to_string().contains("shared by iSCSI"), "{error}");
        assert!(error.remedy().contains("hearth share remove v --iscsi"), "{error}");
    }
    assert_eq!(stand(&world), 1);
    remove(&manager, Protocol::Iscsi, false).expect("nobody is connected");
    manager.handle(Action::VolumeStop { name: "v".into(), give_up: false, force: false }).expect("it is free");
}

#[test]
fn shares_come_back_with_their_volume() {
    let world = World::default();
    share(&daemon(&world), iscsi()).expect("nothing is in the way");
    // Killed: the machine lost everything that was only running.
    world.reboot();
    let manager = open(&world);
    manager.start().expect("nothing fails");
    assert_eq!((stand(&world), shown(&manager, Protocol::Iscsi).device.as_deref()), (1, Some("/loop/v")));
    // Stopped: what does not outlive the daemon goes before its block device.
    manager.stop().expect("nothing fails");
    assert_eq!(stand(&world), 0);
    world.inside().ending = false;
    let manager = open(&world);
    manager.start().expect("nothing fails");
    assert_eq!(stand(&world), 1);
    // What outlives it stays for the next one.
    world.inside().outlives = true;
    manager.stop().expect("nothing fails");
    assert_eq!(stand(&world), 1);
}

#[test]
fn what_cannot_be_offered_is_told_once_and_tried_again() {
    let world = World::default();
    let manager = daemon(&world);
    world.inside().sharing.fail = Some("the kernel has no such target".into());
    let error = share(&manager, iscsi()).expect_err("it cannot be");
    assert!(error.to_string().contains("no such target"), "{error}");
    assert!(world.inside().saved.volumes[0].shares.is_empty(), "nothing is left of it");
    world.inside().sharing.fail = None;
    share(&manager, iscsi()).expect("now it can");
    world.inside().sharing.fail = Some("the address is not there".into());
    world.reboot();
    let manager = open(&world);
    assert_eq!(manager.start().expect("nothing fails").volumes, 1, "the volume is served all the same");
    let view = shown(&manager, Protocol::Iscsi);
    assert!(view.device.is_none() && view.problem.is_some_and(|p| p.contains("the address is not there")));
    let mut watched = WatchedShares::default();
    (0..20).for_each(|_| manager.watch_shares(&mut watched));
    let told = events(&manager, Severity::Error);
    assert_eq!(told.len(), 1, "{told:?}");
    world.inside().sharing.fail = None;
    (0..64).for_each(|_| manager.watch_shares(&mut watched));
    assert_eq!(stand(&world), 1);
    assert!(shown(&manager, Protocol::Iscsi).problem.is_none());
    assert!(events(&manager, Severity::Info).iter().any(|told| told.ends_with("again")));
}

#[test]
fn what_another_program_took_away_is_set_up_again() {
    let world = World::default();
    let manager = daemon(&world);
    share(&manager, iscsi()).expect("nothing is in the way");
    world.inside().sharing.stand.clear();
    let mut watched = WatchedShares::default();
    (0..2).for_each(|_| manager.watch_shares(&mut watched));
    assert_eq!(stand(&world), 0, "it may come back by itself");
    manager.watch_shares(&mut watched);
    assert_eq!(stand(&world), 1);
    let told = events(&manager, Severity::Warning);
    assert!(told.iter().any(|told| told.contains("by another program (it is not there)")), "{told:?}");
    (0..9).for_each(|_| manager.watch_shares(&mut watched));
    assert_eq!(events(&manager, Severity::Warning).len(), told.len(), "and once only");
}

/// Whoever is at work on a target is not disturbed by a repair; nor does one that never ends keep it from being whole.
#[test]
fn what_still_changes_is_not_put_right() {
    let world = World::default();
    let manager = daemon(&world);
    share(&manager, iscsi()).expect("nothing is in the way");
    let mut watched = WatchedShares::default();
    let mut look = |lacks: &[&str]| {
        world.inside().sharing.lacks = lacks.iter().map(|&lack| lack.to_owned()).collect();
        manager.watch_shares(&mut watched);
        world.inside().sharing.offers
    };
    let before = look(&[]);
    for lacks in [&["LUN 1"][..], &["LUN 1"], &[], &["LUN 1"], &["LUN 1"], &["LUN 1", "ACL"], &["LUN 1", "ACL"], &["ACL"], &["ACL"]] {
        assert_eq!(look(lacks), before, "{lacks:?}");
    }
    assert_eq!(look(&["ACL"]), before + 1, "three times the same");
    let offers = (0..40).map(|n| look(if n % 2 == 0 { &["LUN 1"] } else { &["ACL"] })).last().expect("some");
    assert_eq!(offers, before + 2, "changed for too long");
}

#[test]
fn a_target_that_does_not_answer_is_told_once_and_not_touched() {
    let world = World::default();
    let manager = daemon(&world);
    share(&manager, iscsi()).expect("nothing is in the way");
    let offers = world.inside().sharing.offers;
    world.inside().sharing.silent = true;
    let mut watched = WatchedShares::default();
    (0..20).for_each(|_| manager.watch_shares(&mut watched));
    assert_eq!((stand(&world), world.inside().sharing.offers), (1, offers));
    let told = events(&manager, Severity::Warning);
    assert!(told.len() == 1 && told[0].contains("it does not answer: it is looked at again"), "{told:?}");
    let listed = manager.volume_view("v").expect("it is there").shares.remove(0);
    assert!(listed.problem.is_some_and(|problem| problem.contains("it does not answer")));
    assert_eq!(listed.remedy.as_deref(), Some("start it again"));
    assert_eq!((listed.connected, shown(&manager, Protocol::Iscsi).connected), (None, None));
    let error = remove(&manager, Protocol::Iscsi, false).expect_err("nobody knows who is connected");
    assert!(error.to_string().contains("does not answer") && error.remedy() == "start it again", "{error}");
    world.inside().sharing.silent = false;
    world.inside().sharing.initiators = vec!["iqn.a:b".into()];
    manager.watch_shares(&mut watched);
    let listed = manager.volume_view("v").expect("it is there").shares.remove(0);
    assert_eq!((listed.problem, listed.connected), (None, Some(vec!["iqn.a:b".to_owned()])));
    assert!(events(&manager, Severity::Info).iter().any(|told| told.ends_with("answers again")));
}

/// Nobody is connected to what does not stand; to what may stand, nobody knows.
#[test]
fn that_nobody_is_connected_is_said_only_where_it_is_known() {
    let world = World::default();
    let manager = daemon(&world);
    share(&manager, iscsi()).expect("nothing is in the way");
    world.inside().sharing.silent = true;
    let view = shown(&manager, Protocol::Iscsi);
    assert_eq!((view.connected, view.remedy.as_deref()), (None, Some("start it again")));
    assert!(view.problem.is_some_and(|problem| problem.contains("it does not answer")), "before the watch has looked");
    // The next daemon cannot offer it, and the target of the last one stands, or not: it does not answer.
    world.inside().sharing.fail = Some("its secrets cannot be read".into());
    world.reboot();
    let manager = open(&world);
    manager.start().expect("nothing fails");
    let listed = || manager.share_views().remove(0);
    assert_eq!((listed().device, listed().connected), (None, None));
    let view = shown(&manager, Protocol::Iscsi);
    assert_eq!((view.connected, view.problem), (None, listed().problem));
    (world.inside().sharing.silent, world.inside().sharing.initiators) = (false, vec!["iqn.a:b".into()]);
    assert_eq!(shown(&manager, Protocol::Iscsi).connected, Some(vec!["iqn.a:b".into()]));
    world.inside().sharing.fail = None;
    let mut watched = WatchedShares::default();
    (0..64).for_each(|_| manager.watch_shares(&mut watched));
    assert_eq!(listed().connected, Some(vec!["iqn.a:b".into()]));
    // It did not go when its device went.
    world.inside().sharing.late = true;
    manager.withdraw_shares(&manager.volume_record("v").expect("it is there"));
    assert_eq!(listed().connected, None);
    world.inside().sharing.late = false;
    manager.set_live_volume("v", |live| live.exports.clear());
    (0..64).for_each(|_| manager.watch_shares(&mut watched));
    assert_eq!((listed().device, listed().connected), (None, Some(vec![])));
}

/// Its target may come to be after it was given up.
#[test]
fn what_is_left_of_a_share_that_was_not_added_goes_when_the_target_answers() {
    let world = World::default();
    let manager = daemon(&world);
    world.inside().sharing.late = true;
    share(&manager, iscsi()).expect_err("it does not answer");
    assert_eq!((stand(&world), manager.share_views().len()), (1, 0));
    let mut watched = WatchedShares::default();
    (0..4).for_each(|_| manager.watch_shares(&mut watched));
    world.inside().sharing.late = false;
    (0..20).for_each(|_| manager.watch_shares(&mut watched));
    assert_eq!(stand(&world), 0);
    // Added meanwhile, it stays.
    world.inside().sharing.late = true;
    share(&manager, iscsi()).expect_err("it does not answer");
    world.inside().sharing.late = false;
    share(&manager, iscsi()).expect("it answers");
    (0..20).for_each(|_| manager.watch_shares(&mut watched));
    assert_eq!((stand(&world), manager.share_views().len()), (1, 1));
}

/// The volume stops all the same; then nothing is to serve its device.
#[test]
fn a_target_that_does_not_answer_when_its_device_goes_goes_when_it_does() {
    let world = World::default();
    let manager = daemon(&world);
    share(&manager, iscsi()).expect("nothing is in the way");
    world.inside().sharing.late = true;
    let volume = manager.volume_record("v").expect("it is there");
    manager.withdraw_shares(&volume);
    assert!(events(&manager, Severity::Warning).iter().any(|told| told.contains("did not go completely")));
    world.inside().sharing.late = false;
    manager.set_live_volume("v", |live| live.exports.clear());
    let mut watched = WatchedShares::default();
    (0..20).for_each(|_| manager.watch_shares(&mut watched));
    assert_eq!((stand(&world), manager.share_views().len()), (0, 1));
}

#[test]
fn what_needs_that_nobody_is_connected_waits_for_that() {
    let world = World::default();
    let manager = daemon(&world);
    share(&manager, iscsi()).expect("nothing is in the way");
    world.inside().sharing.note = Some("it has other users".into());
    world.inside().sharing.initiators = vec!["iqn.a:b".into()];
    world.inside().sharing.lacks = vec!["LUN 1".into()];
    let mut watched = WatchedShares::default();
    (0..9).for_each(|_| manager.watch_shares(&mut watched));
    let told = events(&manager, Severity::Warning);
    assert_eq!(told.iter().filter(|told| told.contains("other users")).count(), 1, "{told:?}");
    assert!(shown(&manager, Protocol::Iscsi).limits.contains(&"it has other users".to_owned()));
    let offers = world.inside().sharing.offers;
    world.inside().sharing.initiators.clear();
    (0..9).for_each(|_| manager.watch_shares(&mut watched));
    assert_eq!(world.inside().sharing.offers, offers + 1);
    assert!(shown(&manager, Protocol::Iscsi).limits.is_empty());
}

/// A failure or a loss of power at any step: a share is there as a whole, or not at all, after the
/// next start; and what a person was told to be gone is gone.
#[test]
fn every_step_may_fail() {
    for crash in [false, true] {
        let mut failed = 0;
        for at in 1..40 {
            let world = World::default();
            let manager = daemon(&world);
            let steps = world.inside().steps;
            (world.inside().fail_at, world.inside().crash) = (Some(steps + at), crash);
            let added = share(&manager, iscsi());
            let removed = if added.is_ok() { Some(remove(&manager, Protocol::Iscsi, false)) } else { None };
            failed += u32::from(added.is_err() || removed.as_ref().is_some_and(Result::is_err));
            if crash {
                world.reboot();
            } else {
                world.inside().fail_at = None;
            }
            let manager = if crash { open(&world) } else { manager };
            if crash {
                manager.start().expect("nothing fails any more");
            } else {
                let mut watched = WatchedShares::default();
                (0..4).for_each(|_| manager.watch_shares(&mut watched));
            }
            let recorded = manager.share_views().len();
            assert_eq!(stand(&world), recorded, "crash {crash}, step {at}: {added:?} {removed:?}");
            if removed.is_some_and(|removed| removed.is_ok()) {
                assert_eq!(recorded, 0);
            }
        }
        assert!(failed >= 4, "only {failed} steps failed");
    }
}

#[test]
fn bad_input_gets_a_sentence() {
    let world = World::default();
    let manager = daemon(&world);
    let cases = [
        (ShareAdd { addresses: vec!["192.0.2.1".into()], ..iscsi() }, "every machine that reaches 192.0.2.1:3260", "--any-initiator"),
        (ShareAdd { addresses: vec!["host".into()], ..iscsi() }, "not IP or IP:PORT", "192.0.2.1"),
        (ShareAdd { addresses: vec!["127.0.0.1:0".into()], ..iscsi() }, "not IP or IP:PORT", "192.0.2.1"),
        (ShareAdd { addresses: vec!["::1".into(), "[::1]:3260".into()], ..iscsi() }, "twice", "once"),
        (ShareAdd { initiators: vec!["host".into()], ..iscsi() }, "not the name of an iSCSI initiator", "iqn."),
        (ShareAdd { initiators: vec!["iqn.a/../b".into()], ..iscsi() }, "character", "iqn."),
        (ShareAdd { initiators: vec!["iqn.a:bcd".into(), "iqn.a:bcd".into()], ..iscsi() }, "twice", "once"),
        (ShareAdd { initiators: vec!["iqn.a:bcd".into()], any_initiator: true, ..iscsi() }, "allows all", "one of them"),
        (ShareAdd { chap_file: Some("chap".into()), ..iscsi() }, "absolute", "path"),
        (ShareAdd { protocol: Protocol::NvmeTcp, chap_file: Some("/chap".into()), ..iscsi() }, "for iSCSI", "--initiator"),
        (ShareAdd { addresses: (1..20).map(|n| format!("127.0.0.{n}")).collect(), ..iscsi() }, "at most 16", "fewer"),
    ];
    for (add, problem, remedy) in cases {
        let error = share(&manager, add).expect_err(problem);
        assert_eq!(error.kind(), Kind::Usage);
        assert!(error.to_string().contains(problem) && error.remedy().contains(remedy), "{error}; {}", error.remedy());
    }
    add_volume(&manager, "w", vec![Export::NBD]);
    let error = manager.handle(Action::ShareAdd { volume: "w".into(), add: iscsi() }).expect_err("nothing to share");
    assert!(error.to_string().contains("no block device"), "{error}");
    let unknown = manager.handle(Action::ShareAdd { volume: "x".into(), add: iscsi() }).expect_err("no such volume");
    assert_eq!(unknown.kind(), Kind::NotFound);
    assert_eq!(stand(&world), 0);
}

/// A disk beside the cache is shared like a volume, and stays so while its SSD's cache is made anew.
#[test]
fn a_disk_is_shared_like_a_volume() {
    let world = World::default();
    let manager = daemon(&world);
    world.inside().disks.can_wait = true;
    let done = |answer: Result<Answer, ControlError>| {
        if let Answer::Job(job) = answer.expect("nothing is in the way") {
            let state = || match manager.handle(Action::JobShow { id: job.id }).expect("it is known") {
                Answer::Job(job) => job.state,
                other => panic!("{other:?}"),
            };
            while state() == JobState::Running {
                std::thread::yield_now();
            }
            assert_eq!(state(), JobState::Done);
        }
    };
    let create = |name: &str, exports| DiskCreate { name: name.into(), pool: "p".into(), size_bytes: 16 << 20, exports };
    done(manager.handle(Action::DiskCreate(create("d", vec![Export::LOOP]))));
    done(manager.handle(Action::DiskCreate(create("n", vec![Export::NBD]))));
    let add = |volume: &str| manager.handle(Action::ShareAdd { volume: volume.into(), add: iscsi() });
    let refused = add("n").expect_err("it has no block device").refusal().to_string();
    assert!(refused.contains("the disk \"n\" has no block device") && refused.contains("hearth disk set n"), "{refused}");
    add("d").expect("nothing is in the way");
    let shown = || match manager.handle(Action::DiskShow { name: "d".into() }).expect("it is there") {
        Answer::Disk(disk) => *disk,
        other => panic!("{other:?}"),
    };
    let (uuid, share) = (shown().uuid, shown().shares.remove(0));
    assert_eq!((share.target, share.device.as_deref()), (format!("iqn.2003-01.org.linux-iscsi.hearth:{uuid}"), Some("/loop/d")));
    let remove = || manager.handle(Action::DiskRemove { name: "d".into(), lose_content: true });
    let resize = |mib: u64| {
        let set = DiskSet { size_bytes: Some(mib << 20), lose_content: true, exports: None };
        manager.handle(Action::DiskSet { name: "d".into(), set })
    };
    for refused in [remove(), resize(8)] {
        let told = refused.expect_err("it is shared").refusal().to_string();
        assert!(told.contains("the disk \"d\"") && told.contains("hearth share remove d --iscsi"), "{told}");
    }
    // It grows, for which the cache gives room: initiators wait.
    done(resize(96));
    assert_eq!((stand(&world), shown().shares.len(), shown().size_bytes), (1, 1, 96 << 20));
    let told = manager.events_after(0).into_iter().any(|event| event.object == "d" && event.message.contains("iSCSI"));
    assert!(told, "initiators are told the new size");
    // Over a restart, and when somebody takes the target away.
    drop(manager);
    world.reboot();
    let manager = open(&world);
    manager.start().expect("nothing fails");
    assert_eq!((stand(&world), manager.share_views().len()), (1, 1));
    world.inside().sharing.stand.clear();
    let mut watched = WatchedShares::default();
    (0..4).for_each(|_| manager.watch_shares(&mut watched));
    assert_eq!(stand(&world), 1, "it is set up again");
    manager.handle(Action::ShareRemove { volume: "d".into(), protocol: Protocol::Iscsi, force: false }).expect("nobody is connected");
    manager.handle(Action::DiskRemove { name: "d".into(), lose_content: true }).expect("it is not shared any more");
}
