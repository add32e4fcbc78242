//! Other exports and another name for a volume, over the fake data path.

use super::Manager;
use super::fake::World;
use super::tests::{DISK, add, carry_out, create, every_step, must, started, with_dirty_volume, world};
use api::options::OptionsPatch;
use api::words::Export;
use api::{Action, Answer, Health, ShareAdd, VolumeSet, VolumeView};
use targets::Protocol;

fn shown(manager: &Manager, name: &str) -> Option<VolumeView> {
    match manager.handle(Action::VolumeShow { name: name.into() }) {
        Ok(Answer::Volume(volume)) => Some(*volume),
        _ => None,
    }
}

fn rename(name: &str, to: &str) -> Action {
    Action::VolumeRename { name: name.into(), to: to.into() }
}

fn export(words: &[&str]) -> Action {
    let exports = words.iter().map(|word| Export::parse(word).expect("a word")).collect();
    Action::VolumeSet { name: "v".into(), set: VolumeSet { exports: Some(exports), ..VolumeSet::default() } }
}

/// The exports that are there.
fn exported(manager: &Manager, name: &str) -> Vec<String> {
    let exports = shown(manager, name).expect("it is there").exports;
    exports.into_iter().filter_map(|(word, place)| place.map(|_| word)).collect()
}

fn refused(manager: &Manager, action: Action, part: &str) {
    let sentence = carry_out(manager, action).expect_err(part);
    assert!(sentence.contains(part) && sentence.contains(';'), "{sentence}");
}

fn with_volume() -> (World, Manager) {
    let world = world();
    let manager = started(&world);
    must(&manager, create());
    must(&manager, add("v", DISK, "write-back"));
    assert!(world.write("v", 5));
    (world, manager)
}

/// As somebody who has mounted the loop device of `v`.
fn hold(world: &World, held: bool) {
    if held {
        world.add_mapped("vg-lv", 1 << 20);
        world.inside().mapped.get_mut("vg-lv").expect("it is there").table = "/loop/v".into();
    } else {
        world.inside().mapped.clear();
    }
}

#[test]
fn a_volume_is_exported_otherwise_while_it_is_served() {
    let (world, manager) = with_volume();
    must(&manager, export(&["nbd"]));
    assert_eq!(exported(&manager, "v"), ["nbd"]);
    must(&manager, export(&[]));
    assert_eq!(exported(&manager, "v"), [""; 0]);
    must(&manager, export(&["loop", "nbd"]));
    hold(&world, true);
    refused(&manager, export(&["nbd"]), "it is in use (it is part of vg-lv)");
    assert_eq!(exported(&manager, "v"), ["loop", "nbd"], "nothing was changed");
    must(&manager, export(&["loop"]));
    hold(&world, false);
    refused(&manager, export(&["loop", "loop"]), "twice");
    let share = ShareAdd { protocol: Protocol::Iscsi, addresses: vec![], initiators: vec![], any_initiator: false, chap_file: None };
    must(&manager, Action::ShareAdd { volume: "v".into(), add: share });
    refused(&manager, export(&[]), "it is shared by iSCSI");
    // Exports and options together; the names of certificates need an export that asks for them, old or new.
    let names = |exports: Option<Vec<Export>>| {
        let options = OptionsPatch { tls_names: Some(vec!["guest7".into()]), ..OptionsPatch::default() };
        Action::VolumeSet { name: "v".into(), set: VolumeSet { options, exports, ..VolumeSet::default() } }
    };
    refused(&manager, names(None), "--tls-names is for exports with TLS");
    let tls = Export::parse("nbds:127.0.0.1:7000").expect("a word");
    must(&manager, names(Some(vec![Export::LOOP, tls])));
    assert_eq!(exported(&manager, "v"), ["loop", "nbds:127.0.0.1:7000"]);
    refused(&manager, export(&["loop"]), "--tls-names is for exports with TLS");
    assert_eq!(world.read("v"), Some(5));
    // It is on record.
    drop(manager);
    world.reboot();
    assert_eq!(exported(&started(&world), "v"), ["loop", "nbds:127.0.0.1:7000"]);
}

#[test]
fn exports_are_the_new_ones_or_the_old_ones_or_both_at_every_step() {
    let check = |world: &World, manager: &Manager, case: &str| {
        let now = exported(manager, "v");
        assert!(
            [&["loop", "nbd", "vhost-user"][..], &["loop", "nbd"], &["vhost-user"], &["nbd"], &["loop"], &[]]
                .contains(&&now.iter().map(String::as_str).collect::<Vec<_>>()[..]),
            "{case}: {now:?}"
        );
        must(manager, export(&["vhost-user"]));
        assert_eq!(exported(manager, "v"), ["vhost-user"], "{case}");
        assert_eq!(world.read("v"), Some(5), "{case}");
    };
    every_step(with_dirty_volume, || export(&["vhost-user"]), check);
}

#[test]
fn a_volume_gets_another_name_and_keeps_what_it_has() {
    let (world, manager) = with_volume();
    let uuid = shown(&manager, "v").expect("it is there").uuid;
    must(&manager, rename("v", "orders"));
    assert!(shown(&manager, "v").is_none());
    let now = shown(&manager, "orders").expect("its new name");
    assert_eq!((now.health, now.uuid), (Health::Running, uuid));
    assert_eq!(exported(&manager, "orders"), ["loop", "nbd"]);
    assert_eq!(world.read("orders"), Some(5), "its dirty data is there");
    must(&manager, rename("orders", "orders"));
    // The old name is free; a taken one is not.
    must(&manager, add("v", "/disk2", "write-through"));
    refused(&manager, rename("orders", "v"), "there is already a volume \"v\"");
    refused(&manager, rename("orders", "a/b"), "has the character '/'");
    refused(&manager, rename("nothing", "x"), "there is no volume \"nothing\"");
    hold(&world, true);
    refused(&manager, rename("v", "w"), "it is in use (it is part of vg-lv)");
    hold(&world, false);
    // One that is stopped stays stopped.
    must(&manager, Action::VolumeStop { name: "v".into(), give_up: false, force: false });
    must(&manager, rename("v", "w"));
    assert_eq!(shown(&manager, "w").expect("its new name").health, Health::Stopped);
    drop(manager);
    world.reboot();
    let manager = started(&world);
    assert_eq!(world.read("orders"), Some(5));
    assert_eq!(shown(&manager, "w").expect("its new name").health, Health::Stopped);
}

#[test]
fn a_volume_has_one_of_its_names_at_every_step() {
    let check = |world: &World, manager: &Manager, case: &str| {
        let (old, new) = (shown(manager, "v"), shown(manager, "w"));
        assert_ne!(old.is_some(), new.is_some(), "{case}");
        if old.is_some_and(|volume| volume.health == Health::Running) {
            must(manager, rename("v", "w"));
        }
        let name = if shown(manager, "w").is_some() { "w" } else { "v" };
        must(manager, Action::VolumeStart { name: name.into() });
        assert_eq!(world.read(name), Some(5), "{case}");
    };
    every_step(with_dirty_volume, || rename("v", "w"), check);
}
