//! A cache under a mounted logical volume, in a virtual machine with LVM and the device mapper: attached, detached, changed by LVM, its daemon
//! killed and stopped, all under a load that verifies what it reads; then a boot, after which the file system is mounted, and written, before
//! the daemon comes.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use trials::command::{Ended, run};
use trials::needs::{Need, met};
use trials::place::{Place, binary};

/// A guest without hardware virtualization boots in half a minute and is some ten times as slow as the host.
const GUEST: Duration = Duration::from_secs(900);

/// The first time, the lab installs an emulator and unpacks a kernel.
const SETUP: Duration = Duration::from_secs(600);

/// The lab that boots a kernel with the device mapper; it lies beside the repository, or nowhere.
fn lab() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/vmlab/vmlab")
}

fn guest(place: &Place, step: &str) -> Ended {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("guest/live_attach.sh");
    let kept = place.path("kept");
    let disk = |name: &str, size: &str| format!("name={name},file={},size={size}", place.path(name));
    let mut command = Command::new(lab());
    command.args(["run", "--timeout", "880", "--share", &kept]);
    for (name, size) in [("state", "16M"), ("ssd", "128M"), ("disk", "192M")] {
        command.args(["--disk", &disk(name, size)]);
    }
    command.args(["--", "sh"]).arg(script).arg(step).arg(binary().canonicalize().expect("it is there")).arg(&kept);
    run(&mut command, GUEST)
}

#[test]
fn a_mounted_logical_volume_is_attached_through_everything() {
    let trial = "a_mounted_logical_volume_is_attached_through_everything";
    if !lab().is_file() {
        eprintln!("{trial}: SKIPPED, the lab of virtual machines does not lie beside the repository");
        return;
    }
    if !met(trial, &[Need::Root, Need::Program("lvm"), Need::Program("fio"), Need::Program("mkfs.ext4")]) {
        return;
    }
    let place = Place::new("live-attach");
    std::fs::create_dir(place.path("kept")).expect("a directory");
    let prepared = run(Command::new(lab()).arg("setup"), SETUP);
    if !prepared.good() {
        eprintln!("{trial}: SKIPPED, no kernel for the lab can be had here:\n{}", prepared.stderr);
        return;
    }
    let lived = guest(&place, "live");
    let daemon = || std::fs::read_to_string(place.path("kept/daemon")).unwrap_or_default();
    for told in [
        "attached, detached and attached again",
        "extended and refreshed",
        "what was loaded is taken away",
        "went around a snapshot",
        "killed, stopped",
        "saw no error",
    ] {
        assert!(lived.stdout.contains(told), "{told}: {lived:#?}\n{}", daemon());
    }
    // The guest is gone without an exit status of its command.
    assert_eq!(lived.code, Some(125), "{lived:#?}");
    let again = guest(&place, "again");
    assert!(again.good(), "{again:#?}\nthe daemon said:\n{}", daemon());
    for told in ["nothing stale", "a trial left nothing", "files there: 11"] {
        assert!(again.stdout.contains(told), "{told}: {again:#?}");
    }
}
