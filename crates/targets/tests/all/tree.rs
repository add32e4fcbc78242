//! What is written below configfs, as whole trees; and that it goes as it came.

use std::path::Path;
use targets::model::Model;
use targets::{Access, Chap, Protocol, Share, Tree, apply, connected, device_of, lacks, names, refresh, remove};

const UUID: [u8; 16] = [0xcc, 0xb4, 0x76, 0x60, 0x5a, 0x80, 0x4c, 0xa3, 0x90, 0xd8, 0x18, 0x7b, 0xb9, 0x9b, 0x71, 0x42];
const CHAP: &str = "user = db\npassword = hunter2-hunter2\nmutual_user = hearth\nmutual_password = hunter3-hunter3";

fn share(protocol: Protocol) -> Share {
    let initiator = match protocol {
        Protocol::Iscsi => "iqn.1993-08.org.debian:01:abc",
        Protocol::NvmeTcp => "nqn.2014-08.org.nvmexpress:uuid:4c4c4544",
    };
    Share {
        protocol,
        uuid: UUID,
        volume: "db".into(),
        device: "/dev/loop7".into(),
        read_only: false,
        is_alone: true,
        addresses: vec![([192, 0, 2, 1], protocol.port()).into()],
        access: Access::Only(vec![initiator.into()]),
        chap: (protocol == Protocol::Iscsi).then(|| Chap::parse(CHAP).expect("well-formed")),
    }
}

fn open(protocol: Protocol) -> Share {
    let addresses = vec![([127, 0, 0, 1], protocol.port()).into(), "[::1]:7000".parse().expect("an address")];
    Share { addresses, access: Access::Anyone, chap: None, read_only: true, ..share(protocol) }
}

fn stands(tree: &dyn Tree, share: &Share) -> bool {
    lacks(tree, share, share.chap.is_some()).is_empty()
}

/// In memory, if there is such a place: each case makes hundreds of files.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory")
}

fn with_model(test: impl FnOnce(&Model)) {
    let directory = directory();
    test(&Model::new(directory.path()));
}

/// Lines of the tree that setting up a share has added or changed.
fn added(model: &Model, before: &str) -> String {
    let before: Vec<&str> = before.lines().collect();
    model.snapshot().lines().filter(|line| !before.contains(line)).map(|line| format!("{line}\n")).collect()
}

#[test]
fn trees_are_as_written_down() {
    let cases = [
        ("iscsi-chap", share(Protocol::Iscsi)),
        ("iscsi-open", open(Protocol::Iscsi)),
        ("nvme-tcp", share(Protocol::NvmeTcp)),
        ("nvme-tcp-open", open(Protocol::NvmeTcp)),
    ];
    for (name, share) in cases {
        with_model(|model| {
            let before = model.snapshot();
            apply(model, &share).expect("nothing fails");
            let tree = added(model, &before);
            let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/trees/{name}.txt"));
            if std::env::var_os("BLESS").is_some() {
                std::fs::write(&file, &tree).expect("it can be written");
            }
            assert_eq!(tree, std::fs::read_to_string(&file).expect("BLESS=1 writes it"), "{name}");
            assert_eq!(device_of(model, share.protocol, "db", UUID).as_deref(), Some("/dev/loop7"));
        });
    }
}

#[test]
fn a_second_time_changes_nothing_and_a_removal_leaves_what_was_before() {
    for share in [share(Protocol::Iscsi), open(Protocol::Iscsi), share(Protocol::NvmeTcp), open(Protocol::NvmeTcp)] {
        with_model(|model| {
            let before = model.snapshot();
            apply(model, &share).expect("nothing fails");
            let made = model.snapshot();
            let changes = model.changes.get();
            apply(model, &share).expect("it is there");
            // Only that the directory of reservations is there is made sure of again.
            assert!(model.changes.get() <= changes + 1, "nothing of what connected initiators use is touched");
            assert_eq!(model.snapshot(), made);
            remove(model, share.protocol, "db", UUID).expect("nothing fails");
            let fabric_stays = "target/iscsi/";
            let left: Vec<String> = model.snapshot().lines().filter(|l| !l.starts_with(fabric_stays)).map(str::to_owned).collect();
            assert_eq!(left.join("\n") + "\n", before);
            assert_eq!(device_of(model, share.protocol, "db", UUID), None);
            remove(model, share.protocol, "db", UUID).expect("nothing is no failure");
        });
    }
}

/// Each step fails once: nothing stays of what was made, and the next try succeeds.
#[test]
fn a_step_that_fails_leaves_nothing_behind() {
    for share in [share(Protocol::Iscsi), open(Protocol::Iscsi), share(Protocol::NvmeTcp), open(Protocol::NvmeTcp)] {
        let mut failed = 0;
        for at in 1.. {
            let mut ended = false;
            with_model(|model| {
                let before = model.snapshot();
                model.fail_at.set(Some(at));
                match apply(model, &share) {
                    Ok(()) => ended = model.changes.get() < at,
                    Err(error) => {
                        assert!(!format!("{error} {error:?} {}", error.remedy()).contains("hunter"), "{error}");
                        assert_eq!(model.snapshot(), before, "{error}");
                    }
                }
                model.fail_at.set(None);
                apply(model, &share).expect("nothing fails any more");
                assert_eq!(device_of(model, share.protocol, "db", UUID).as_deref(), Some("/dev/loop7"));
            });
            if ended {
                break;
            }
            failed += 1;
        }
        assert!(failed > 10, "only {failed} steps");
    }
}

/// A removal in which a step fails goes on, and a second one finishes it.
#[test]
fn a_removal_that_was_interrupted_is_finished_by_the_next() {
    for share in [share(Protocol::Iscsi), share(Protocol::NvmeTcp)] {
        for at in 1..12 {
            with_model(|model| {
                let before = model.snapshot();
                apply(model, &share).expect("nothing fails");
                model.changes.set(0);
                model.fail_at.set(Some(at));
                let _ = remove(model, share.protocol, "db", UUID);
                model.fail_at.set(None);
                remove(model, share.protocol, "db", UUID).expect("nothing fails any more");
                // An adapter without a device says nothing; nor does a host that nothing allows.
                let ours =
                    |line: &&str| !["target/iscsi/", "target/core/iblock_0/", "nvmet/hosts/nqn"].iter().any(|said| line.starts_with(said));
                let left: String = model.snapshot().lines().filter(ours).map(|l| format!("{l}\n")).collect();
                assert!(!model.snapshot().contains("hearth-db"));
                assert_eq!(left, before);
            });
        }
    }
}

/// A daemon is killed at any step: the next one finishes what was begun.
#[test]
fn what_a_killed_daemon_began_is_finished() {
    let states = [
        "target/core/iblock_0/hearth-db",
        "target/core/iblock_0/hearth-db=serial",
        "target/iscsi/iqn.2003-01.org.linux-iscsi.hearth:ccb47660-5a80-4ca3-90d8-187bb99b7142",
    ];
    let whole = {
        let directory = directory();
        let model = Model::new(directory.path());
        apply(&model, &share(Protocol::Iscsi)).expect("nothing fails");
        model.snapshot()
    };
    for state in states {
        with_model(|model| {
            use targets::Tree;
            let (path, has_serial) = state.strip_suffix("=serial").map_or((state, false), |path| (path, true));
            let above = path.rsplit_once('/').expect("a path").0;
            model.make(above).expect("allowed");
            model.make(path).expect("allowed");
            if has_serial {
                model.write(&format!("{path}/wwn/vpd_unit_serial"), &names::scsi_serial(UUID)).expect("allowed");
            }
            apply(model, &share(Protocol::Iscsi)).expect("nothing fails");
            let made = model.snapshot();
            assert_eq!(made.matches("/hearth-db/enable = 1").count(), 1, "{made}");
            assert_eq!(made.matches("/hearth-db/wwn/vpd_unit_serial").count(), 1, "{made}");
            let own = |text: &str| text.lines().filter(|l| l.starts_with("target/iscsi")).map(str::to_owned).collect::<Vec<_>>();
            let renumbered: Vec<String> = own(&made).iter().map(|l| l.replace("iblock_1", "iblock_0")).collect();
            assert_eq!(renumbered, own(&whole));
        });
    }
}

#[test]
fn what_others_made_stays() {
    with_model(|model| {
        use targets::Tree;
        // A device of LIO's own tools on the first adapter, with our directory's name, and an NVMe port with our address.
        for path in ["target/core/iblock_0", "target/core/iblock_0/hearth-db", "target/iscsi", "target/iscsi/iqn.2003-01.org.x:y"] {
            model.make(path).expect("allowed");
        }
        model.write("target/core/iblock_0/hearth-db/wwn/vpd_unit_serial", "another").expect("allowed");
        for path in ["nvmet/ports/1", "nvmet/hosts/nqn.other", "nvmet/subsystems/nqn.x"] {
            model.make(path).expect("allowed");
        }
        model.put("nvmet/ports/1/addr_traddr", "192.0.2.1");
        let host = "nqn.2014-08.org.nvmexpress:uuid:4c4c4544";
        model.make(&format!("nvmet/hosts/{host}")).expect("allowed");
        model.link(&format!("nvmet/hosts/{host}"), &format!("nvmet/subsystems/nqn.x/allowed_hosts/{host}")).expect("allowed");
        let before = model.snapshot();
        for protocol in Protocol::ALL {
            apply(model, &share(protocol)).expect("nothing is in the way");
        }
        assert!(model.snapshot().contains("target/core/iblock_1/hearth-db/enable = 1"));
        for protocol in Protocol::ALL {
            remove(model, protocol, "db", UUID).expect("nothing fails");
        }
        assert_eq!(model.snapshot(), before);
    });
}

#[test]
fn another_device_takes_the_place_of_one_that_is_gone() {
    for protocol in Protocol::ALL {
        with_model(|model| {
            apply(model, &share(protocol)).expect("nothing fails");
            let renewed = Share { device: "/dev/loop8".into(), ..share(protocol) };
            apply(model, &renewed).expect("nothing fails");
            assert_eq!(device_of(model, protocol, "db", UUID).as_deref(), Some("/dev/loop8"));
            assert!(!model.snapshot().contains("/dev/loop7"));
        });
    }
}

#[test]
fn after_a_reboot_all_is_as_before_with_reservations() {
    with_model(|model| {
        apply(model, &share(Protocol::Iscsi)).expect("nothing fails");
        let before = model.snapshot();
        model.reboot();
        apply(model, &share(Protocol::Iscsi)).expect("nothing fails");
        assert_eq!(model.snapshot(), before);
    });
    let directory = directory();
    let model = Model::new(directory.path());
    let kept = directory.path().join("outside/var/target/pr");
    std::fs::create_dir_all(&kept).expect("there is room");
    let text = "PR_REG_START: 0\ninitiator_node=iqn.a\nsa_res_key=7\nPR_REG_END: 0\n";
    std::fs::write(kept.join(format!("aptpl_{}", names::scsi_serial(UUID))), text).expect("there is room");
    apply(&model, &share(Protocol::Iscsi)).expect("nothing fails");
    assert!(model.snapshot().contains("pr/res_aptpl_metadata = initiator_node=iqn.a,sa_res_key=7"));
}

#[test]
fn what_is_in_the_way_is_told_with_what_to_do() {
    for protocol in Protocol::ALL {
        let port = protocol.port();
        with_model(|model| {
            model.busy.borrow_mut().insert("/dev/loop7".into());
            let error = apply(model, &share(protocol)).expect_err("it is mounted");
            assert!(error.to_string().contains("does not take /dev/loop7") && error.remedy().contains("unmount"), "{error}");
            model.busy.borrow_mut().clear();
            model.taken.borrow_mut().insert(format!("192.0.2.1:{port}"));
            let error = apply(model, &share(protocol)).expect_err("somebody listens there");
            assert!(error.to_string().contains(&format!("192.0.2.1:{port}")) && error.remedy().contains("another port"), "{error}");
        });
        let directory = directory();
        let error = apply(&targets::Configfs::new(directory.path()), &share(protocol)).expect_err("no target there");
        assert!(error.remedy().contains("modprobe"), "{error}");
    }
}

#[test]
fn connected_initiators_are_named() {
    with_model(|model| {
        let nowhere = Path::new("/nonexistent");
        assert_eq!(connected(model, nowhere, nowhere, Protocol::Iscsi, UUID), Some(vec![]), "nothing is shared");
        apply(model, &share(Protocol::Iscsi)).expect("nothing fails");
        assert_eq!(connected(model, nowhere, nowhere, Protocol::Iscsi, UUID), Some(vec![]));
        let group = format!("target/iscsi/{}/tpgt_1", names::target(Protocol::Iscsi, UUID));
        let acl = format!("{group}/acls/iqn.1993-08.org.debian:01:abc");
        model.put(&format!("{acl}/info"), "InitiatorName: iqn.1993-08.org.debian:01:abc\nInitiatorAlias: x\n");
        model.put(&format!("{group}/dynamic_sessions"), "iqn.other\n\0");
        let both = vec!["iqn.1993-08.org.debian:01:abc".to_string(), "iqn.other".into()];
        assert_eq!(connected(model, nowhere, nowhere, Protocol::Iscsi, UUID), Some(both));
        apply(model, &share(Protocol::NvmeTcp)).expect("nothing fails");
        assert_eq!(connected(model, nowhere, nowhere, Protocol::NvmeTcp, UUID), None, "nothing tells");
    });
}

/// Nobody is not the same as nothing known.
#[test]
fn who_is_connected_is_not_known_where_it_cannot_be_read() {
    let (directory, nowhere) = (directory(), Path::new("/nonexistent"));
    let model = Model::new(directory.path());
    Protocol::ALL.into_iter().for_each(|protocol| apply(&model, &open(protocol)).expect("nothing fails"));
    let target = |protocol| names::target(protocol, UUID);
    let sessions = directory.path().join(format!("config/target/iscsi/{}/tpgt_1/dynamic_sessions", target(Protocol::Iscsi)));
    std::fs::remove_file(&sessions).expect("it is there");
    assert_eq!(connected(&model, nowhere, nowhere, Protocol::Iscsi, UUID), Some(vec![]), "a kernel without it");
    std::fs::create_dir(&sessions).expect("it cannot be read so");
    assert_eq!(connected(&model, nowhere, nowhere, Protocol::Iscsi, UUID), None);
    let debugfs = directory.path().join("debugfs");
    let controller = debugfs.join("nvmet").join(target(Protocol::NvmeTcp)).join("ctrl1");
    std::fs::create_dir_all(&controller).expect("a directory");
    let by_debugfs = || connected(&model, &debugfs, nowhere, Protocol::NvmeTcp, UUID);
    assert_eq!(by_debugfs(), None, "its name cannot be read");
    std::fs::write(controller.join("hostnqn"), "nqn.host\n").expect("a file");
    assert_eq!(by_debugfs(), Some(vec!["nqn.host".into()]));
}

#[test]
fn a_volume_that_has_grown_is_told_where_the_protocol_can() {
    with_model(|model| {
        for protocol in Protocol::ALL {
            apply(model, &share(protocol)).expect("nothing fails");
        }
        assert!(!refresh(model, Protocol::Iscsi, UUID).expect("nothing to do"));
        assert!(refresh(model, Protocol::NvmeTcp, UUID).expect("it is told"));
    });
}

#[test]
fn entries_of_hosts_that_others_made_stay() {
    with_model(|model| {
        let share = share(Protocol::NvmeTcp);
        let host = "nvmet/hosts/nqn.2014-08.org.nvmexpress:uuid:4c4c4544";
        model.make(host).expect("allowed");
        let before = model.snapshot();
        apply(model, &share).expect("nothing fails");
        remove(model, Protocol::NvmeTcp, "db", UUID).expect("nothing fails");
        assert_eq!(model.snapshot(), before);
        model.remove(host).expect("nobody needs it");
        let before = model.snapshot();
        apply(model, &share).expect("nothing fails");
        remove(model, Protocol::NvmeTcp, "db", UUID).expect("nothing fails");
        assert_eq!(model.snapshot(), before, "our own goes");
    });
}

#[test]
fn a_part_that_somebody_took_away_is_noticed_and_set_up_again() {
    let acl = "target/iscsi/iqn.2003-01.org.linux-iscsi.hearth:ccb47660-5a80-4ca3-90d8-187bb99b7142/tpgt_1";
    let nqn = "nqn.2014-08.org.nvmexpress:uuid:ccb47660-5a80-4ca3-90d8-187bb99b7142";
    let link = |path: String| (path, true);
    let cases = [
        (Protocol::Iscsi, link(format!("{acl}/acls/iqn.1993-08.org.debian:01:abc/lun_0/hearth-db"))),
        (Protocol::Iscsi, link(format!("{acl}/lun/lun_0/hearth-db"))),
        (Protocol::Iscsi, (format!("{acl}/np/192.0.2.1:3260"), false)),
        (Protocol::NvmeTcp, link(format!("nvmet/subsystems/{nqn}/allowed_hosts/nqn.2014-08.org.nvmexpress:uuid:4c4c4544"))),
        (Protocol::NvmeTcp, link(format!("nvmet/ports/26624/subsystems/{nqn}"))),
    ];
    for (protocol, (path, is_link)) in cases {
        with_model(|model| {
            let share = share(protocol);
            assert!(!stands(model, &share), "not before");
            apply(model, &share).expect("nothing fails");
            let whole = model.snapshot();
            assert!(stands(model, &share), "{protocol:?}");
            if is_link { model.unlink(&path) } else { model.remove(&path) }.expect("anybody may");
            assert!(!stands(model, &share), "{path} is missed");
            apply(model, &share).expect("nothing fails");
            assert_eq!(model.snapshot(), whole, "{path}");
        });
    }
    for share in [open(Protocol::Iscsi), open(Protocol::NvmeTcp)] {
        with_model(|model| {
            apply(model, &share).expect("nothing fails");
            assert!(stands(model, &share));
            let switch = match share.protocol {
                Protocol::Iscsi => format!("{acl}/attrib/generate_node_acls"),
                Protocol::NvmeTcp => format!("nvmet/subsystems/{nqn}/attr_allow_any_host"),
            };
            model.put(&switch, "0");
            assert!(!stands(model, &share), "{switch}");
        });
    }
}

/// What somebody else does.
type Act = Box<dyn FnOnce(&Model)>;

/// Shares of several volumes come and go at the same time.
#[test]
fn shares_that_come_and_go_at_the_same_time_do_not_disturb_each_other() {
    let other = |protocol: Protocol| Share { uuid: [9; 16], volume: "other".into(), device: "/dev/loop9".into(), ..share(protocol) };
    let host = "nqn.2014-08.org.nvmexpress:uuid:4c4c4544";
    let subsystem = |share: &Share| format!("nvmet/subsystems/{}", share.target());
    let comes = |protocol: Protocol, change: fn(Share) -> Share| -> Act {
        Box::new(move |model| apply(model, &change(other(protocol))).expect("nothing is in its way"))
    };
    let goes =
        |protocol: Protocol| -> Act { Box::new(move |model| remove(model, protocol, "other", [9; 16]).expect("nothing is in its way")) };
    let elsewhere = |share: Share| Share { addresses: vec![([192, 0, 2, 9], 4420).into()], ..share };
    let (nvme, iscsi) = (Protocol::NvmeTcp, Protocol::Iscsi);
    let link = |share: &Share| format!("nvmet/ports/26624/subsystems/{}", share.target());
    // While ours is set up, before this step: the other comes (with another address, or the same), or goes.
    let ours = share(nvme);
    let while_it_comes: [(Protocol, bool, String, Act); 6] = [
        (nvme, false, "nvmet/ports/26624".into(), comes(nvme, elsewhere)),
        (nvme, false, "nvmet/ports/26624".into(), comes(nvme, |share| share)),
        (nvme, false, format!("nvmet/hosts/{host}"), comes(nvme, |share| share)),
        (nvme, true, link(&ours), goes(nvme)),
        (nvme, true, format!("{}/allowed_hosts/{host}", subsystem(&ours)), goes(nvme)),
        (iscsi, false, "target/core/iblock_0".into(), comes(iscsi, |share| share)),
    ];
    for (protocol, is_there, at, act) in while_it_comes {
        with_model(|model| {
            if is_there {
                apply(model, &other(protocol)).expect("nothing is in the way");
            }
            *model.meanwhile.borrow_mut() = Some((at.clone(), act));
            apply(model, &share(protocol)).unwrap_or_else(|error| panic!("{at}: {error}"));
            assert!(model.meanwhile.borrow().is_none(), "{at}: it has happened");
            assert_eq!(lacks(model, &share(protocol), protocol == iscsi), [""; 0], "{at}");
            if !is_there {
                let there = [other(protocol), elsewhere(other(protocol))];
                assert!(there.iter().any(|other| lacks(model, other, protocol == iscsi).is_empty()), "{at}: {}", model.snapshot());
            }
            remove(model, protocol, "other", [9; 16]).unwrap_or_else(|error| panic!("{at}: {error}"));
            assert_eq!(lacks(model, &share(protocol), protocol == iscsi), [""; 0], "{at}");
        });
    }
    // While ours goes, before this step: the other comes.
    let while_it_goes = [(nvme, "nvmet/ports/26624"), (nvme, &format!("nvmet/hosts/{host}")), (iscsi, "target/core/iblock_0")];
    for (protocol, at) in while_it_goes {
        with_model(|model| {
            apply(model, &share(protocol)).expect("nothing is in the way");
            let act: Act = match protocol {
                Protocol::NvmeTcp => comes(nvme, |share| share),
                // As another program does it.
                Protocol::Iscsi => Box::new(|model| model.make("target/core/iblock_0/of-others").expect("allowed")),
            };
            *model.meanwhile.borrow_mut() = Some((at.to_owned(), act));
            remove(model, protocol, "db", UUID).unwrap_or_else(|error| panic!("{at}: {error}"));
            assert!(model.meanwhile.borrow().is_none(), "{at}: it has happened");
            assert!(protocol == iscsi || lacks(model, &other(protocol), false).is_empty(), "{at}");
        });
    }
}

#[test]
fn what_was_made_is_remembered_by_all_at_the_same_time() {
    let directory = directory();
    let tree = targets::Configfs::new(directory.path()).with_ledger(directory.path().join("ledger"));
    let names: Vec<String> = (0..400).map(|n| format!("nvmet/hosts/{n}")).collect();
    let all = std::sync::Barrier::new(8);
    std::thread::scope(|scope| {
        for part in names.chunks(50) {
            let (tree, all) = (tree.clone(), &all);
            scope.spawn(move || {
                all.wait();
                part.iter().for_each(|name| tree.note_made(name).expect("there is room"));
            });
        }
    });
    assert!(names.iter().all(|name| tree.is_made_by_us(name)));
}

/// What others open is noticed, and closed again.
#[test]
fn a_door_that_somebody_opened_is_closed() {
    let group = "target/iscsi/iqn.2003-01.org.linux-iscsi.hearth:ccb47660-5a80-4ca3-90d8-187bb99b7142/tpgt_1";
    let subsystem = "nvmet/subsystems/nqn.2014-08.org.nvmexpress:uuid:ccb47660-5a80-4ca3-90d8-187bb99b7142";
    let acl = format!("{group}/acls/iqn.1993-08.org.debian:01:abc");
    let cases = [
        (Protocol::Iscsi, format!("{group}/attrib/generate_node_acls"), "1"),
        (Protocol::Iscsi, format!("{group}/attrib/authentication"), "0"),
        (Protocol::Iscsi, format!("{acl}/auth/userid"), ""),
        (Protocol::Iscsi, format!("{acl}/lun_0/write_protect"), "1"),
        (Protocol::Iscsi, format!("{group}/enable"), "0"),
        (Protocol::NvmeTcp, format!("{subsystem}/attr_allow_any_host"), "1"),
        (Protocol::NvmeTcp, format!("{subsystem}/namespaces/1/enable"), "0"),
    ];
    for (protocol, path, value) in cases {
        with_model(|model| {
            let share = share(protocol);
            apply(model, &share).expect("nothing fails");
            let whole = model.snapshot();
            model.put(&path, value);
            assert!(!stands(model, &share), "{path} is missed");
            apply(model, &share).expect("nothing fails");
            assert_eq!(model.snapshot(), whole, "{path}");
        });
    }
}
