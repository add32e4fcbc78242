//! A kernel whose tree does not answer, played by a pipe that nobody writes to: its own share waits for
//! it, and no other.

use std::path::Path;
use std::time::Duration;
use targets::{Access, Protocol, Share, Targets, Tgtd};

const SHORT: Duration = Duration::from_millis(100);
/// A step that fails is told, not waited for.
const LONG: Duration = Duration::from_secs(60);

fn share(uuid: [u8; 16]) -> Share {
    Share {
        protocol: Protocol::NvmeTcp,
        uuid,
        volume: "db".into(),
        device: "/dev/loop7".into(),
        read_only: false,
        is_alone: true,
        addresses: vec![([127, 0, 0, 1], 4420).into()],
        access: Access::Anyone,
        chap: None,
    }
}

/// The directory of its namespace, as far as a look reads it.
fn set_up(config: &Path, share: &Share) -> std::path::PathBuf {
    let subsystem = config.join("nvmet/subsystems").join(share.target());
    let namespace = subsystem.join("namespaces/1");
    std::fs::create_dir_all(&namespace).expect("there is room");
    for (path, value) in [(namespace.join("device_path"), "/dev/loop7"), (subsystem.join("attr_allow_any_host"), "1")] {
        std::fs::write(path, value).expect("there is room");
    }
    namespace.join("enable")
}

#[test]
fn a_kernel_that_does_not_answer_keeps_one_share_and_nobody_for_ever() {
    let directory = tempfile::tempdir().expect("a directory");
    let config = directory.path().join("config");
    let targets = Targets::at(&config, Tgtd::at(directory.path().join("s.0")), &directory.path().join("modules"));
    let (hanging, other) = (share([1; 16]), share([2; 16]));
    let pipe = set_up(&config, &hanging);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::from(0o600), 0).expect("allowed");
    std::fs::write(set_up(&config, &other), "1").expect("there is room");
    let impatient = targets.clone().with_limits(SHORT, SHORT);
    let uuid = hanging.uuid;
    let late = [
        impatient.look(&hanging, false).map(drop),
        impatient.offer(&hanging).map(drop),
        impatient.connected(Protocol::NvmeTcp, uuid).map(drop),
        impatient.refresh(Protocol::NvmeTcp, uuid).map(drop),
        impatient.remove(Protocol::NvmeTcp, "db", uuid),
    ];
    for result in late {
        let error = result.expect_err("it hangs");
        assert!(error.to_string().contains("does not answer within"), "{error}");
        assert!(error.remedy().contains("goes on by itself"), "{}", error.remedy());
    }
    assert!(impatient.is_offered(Protocol::NvmeTcp, "db", uuid), "nobody knows");
    let lacks = targets.with_limits(LONG, LONG).look(&other, false).expect("it is another").lacks;
    assert_eq!(lacks, ["it does not listen on 127.0.0.1:4420"]);
    // Whoever waits ends with that.
    std::fs::write(&pipe, "1").expect("somebody reads");
}
