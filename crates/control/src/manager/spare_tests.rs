//! How much of its SSD a pool leaves unused: by the kind of drive or as asked for, kept over restarts, replacements and imports.

use super::Manager;
use super::fake::World;
use super::tests::{SSD, carry_out, must, started, world};
use api::{Action, Answer, PoolCreate, PoolImport, PoolReplace, PoolView};
use device::Drive;
use records::state::State;

const OTHER: &str = "/dev/other";

fn create(ssd: &str, spare_percent: Option<u8>) -> Action {
    Action::PoolCreate(PoolCreate {
        name: "p".into(),
        ssd: ssd.into(),
        size_bytes: None,
        ram_bytes: None,
        content: None,
        force: false,
        on_blank_ssd: None,
        spare_percent,
    })
}

fn pool(manager: &Manager) -> PoolView {
    match manager.handle(Action::PoolShow { name: "p".into() }) {
        Ok(Answer::Pool(view)) => *view,
        other => panic!("{other:?}"),
    }
}

/// Percent, and the reason.
fn spare(manager: &Manager) -> (u8, String) {
    let spare = pool(manager).spare.expect("it was chosen");
    (spare.percent, spare.reason)
}

fn with_drive(drive: Drive) -> World {
    let world = world();
    world.add_device(OTHER, 1 << 30);
    world.inside().devices.get_mut(OTHER).expect("just added").drive = Some(drive);
    world
}

#[test]
fn the_kind_of_drive_decides_and_the_reason_is_said() {
    let cases = [
        (Drive::Volatile, 10, "with a volatile write cache"),
        (Drive::Protected, 0, "without a volatile write cache"),
        (Drive::Part, 0, "not a whole drive"),
        (Drive::File, 0, "a file"),
    ];
    for (drive, percent, why) in cases {
        let world = with_drive(drive);
        let manager = started(&world);
        must(&manager, create(OTHER, None));
        let (found, reason) = spare(&manager);
        assert!(found == percent && reason.contains(why), "{drive:?}: {found} %, {reason}");
        assert_eq!(world.inside().devices[OTHER].spare_percent, percent, "{drive:?}");
    }
}

#[test]
fn a_part_of_a_drive_that_size_leaves_to_others_has_no_spare() {
    let world = with_drive(Drive::Volatile);
    let manager = started(&world);
    let Action::PoolCreate(create) = create(OTHER, None) else { unreachable!("it is that") };
    must(&manager, Action::PoolCreate(PoolCreate { size_bytes: Some(512 << 20), ..create }));
    assert_eq!(spare(&manager).0, 0);
}

#[test]
fn what_cannot_be_is_refused_with_one_sentence() {
    let manager = started(&world());
    let refused = |action: Action| carry_out(&manager, action).expect_err("it is refused");
    let much = refused(create(SSD, Some(51)));
    assert!(much.contains("--spare is at most 50 percent, not 51"), "{much}");
    assert!(matches!(manager.handle(Action::PoolList), Ok(Answer::Pools(pools)) if pools.is_empty()));
}

#[test]
fn the_choice_outlives_a_restart_a_replacement_and_the_loss_of_the_state() {
    let world = with_drive(Drive::Volatile);
    let manager = started(&world);
    must(&manager, create(SSD, Some(20)));
    let asked = (20, "as asked for".to_string());
    assert_eq!(spare(&manager), asked);
    drop(manager);
    let manager = started(&world);
    assert_eq!(spare(&manager), asked);
    let to = |ssd: &str| PoolReplace { ssd: ssd.into(), size_bytes: None, force: false, drop_dirty: false };
    must(&manager, Action::PoolReplace { name: "p".into(), replace: to(OTHER) });
    assert_eq!((spare(&manager), world.inside().devices[OTHER].spare_percent), (asked.clone(), 20));
    manager.write_due_records();
    drop(manager);
    world.inside().saved = State::default();
    let manager = started(&world);
    must(&manager, Action::PoolImport(PoolImport { ssd: OTHER.into(), ..PoolImport::default() }));
    assert_eq!(spare(&manager), asked);
}

#[test]
fn another_drive_gets_the_default_of_its_kind() {
    let world = with_drive(Drive::Volatile);
    let manager = started(&world);
    must(&manager, create(SSD, None));
    assert_eq!(spare(&manager).0, 0, "a file");
    let replace = PoolReplace { ssd: OTHER.into(), size_bytes: None, force: false, drop_dirty: false };
    must(&manager, Action::PoolReplace { name: "p".into(), replace });
    assert_eq!((spare(&manager).0, world.inside().devices[OTHER].spare_percent), (10, 10));
}

#[test]
fn an_ssd_without_its_copy_of_the_state_says_how_much_is_unused() {
    let world = with_drive(Drive::Volatile);
    let manager = started(&world);
    must(&manager, create(OTHER, Some(20)));
    drop(manager);
    world.inside().saved = State::default();
    world.inside().devices.get_mut(OTHER).expect("there").records = None;
    let manager = started(&world);
    must(&manager, Action::PoolImport(PoolImport { ssd: OTHER.into(), name: Some("p".into()), ..PoolImport::default() }));
    assert_eq!(spare(&manager), (20, "as found on the SSD".into()));
}

#[test]
fn an_ssd_that_does_not_discard_is_said_to_keep_what_was_there() {
    let world = with_drive(Drive::Volatile);
    world.inside().devices.get_mut(OTHER).expect("there").keeps_all = true;
    let manager = started(&world);
    must(&manager, create(OTHER, None));
    let kept = |manager: &Manager| pool(manager).spare.and_then(|spare| spare.not_discarded);
    assert_eq!(kept(&manager).as_deref(), Some("it does not support discards"));
    drop(manager);
    assert_eq!(kept(&started(&world)).as_deref(), Some("it does not support discards"));
}
