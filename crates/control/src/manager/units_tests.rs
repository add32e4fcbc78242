//! Volumes that write aligned units as a whole: what they must be, and when that may be taken back. Over the fake data path.

use super::fake::World;
use super::tests::{DISK, add, carry_out, create, must, started, world};
use api::options::{Limit, OptionsPatch};
use api::{Action, Answer, Done, VolumeSet};

fn set(mode: Option<&str>, atomic: Option<Limit>) -> Action {
    let options = OptionsPatch { mode: mode.map(str::to_owned), atomic, ..OptionsPatch::default() };
    Action::VolumeSet { name: "v".into(), set: VolumeSet { options, ..VolumeSet::default() } }
}

fn saved(world: &World) -> Option<u32> {
    world.inside().saved.volumes[0].options.atomic_bytes
}

#[test]
fn what_is_promised_of_units_is_not_taken_back_under_users() {
    const UNIT: Option<Limit> = Some(Limit::Bytes(16 << 10));
    let world = world();
    let manager = started(&world);
    must(&manager, create());
    must(&manager, add("v", DISK, "write-through"));
    let refused = carry_out(&manager, set(None, UNIT)).expect_err("it is write-through");
    assert!(refused.contains("only a write-back volume") && refused.contains("--atomic off"), "{refused}");
    assert_eq!(saved(&world), None);
    must(&manager, set(Some("write-back"), UNIT));
    assert_eq!(saved(&world), Some(16 << 10));
    let refused = carry_out(&manager, set(Some("write-through"), None)).expect_err("it promises something");
    assert!(refused.contains("--atomic off"), "{refused}");
    // Somebody has its block device open.
    world.add_mapped("user", 1 << 30);
    world.inside().mapped.get_mut("user").expect("just added").table = "/loop/v".into();
    let larger = manager.handle(set(None, Some(Limit::Bytes(32 << 10)))).expect("a larger unit holds what a smaller one does");
    let Answer::Done(Done { summary: Some(said), .. }) = larger else { panic!("{larger:?}") };
    assert!(said.contains("its block device is in use and does not say so before"), "{said}");
    for less in [Limit::Off, Limit::Bytes(8 << 10)] {
        let refused = carry_out(&manager, set(None, Some(less))).expect_err("it is relied on");
        assert!(refused.contains("programs may rely on whole writes") && refused.contains("doublewrite"), "{refused}");
        assert_eq!(saved(&world), Some(32 << 10));
    }
    world.inside().mapped.remove("user");
    must(&manager, set(None, Some(Limit::Off)));
    assert_eq!(saved(&world), None);
}
