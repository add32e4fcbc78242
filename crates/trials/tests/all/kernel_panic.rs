//! The kernel's own NBD client on a write-back volume, in a virtual machine whose kernel dies without a word: what was synced is there after the
//! next boot, in the cache and, after a destage, on the backing disk alone.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use trials::command::{Ended, run};
use trials::needs::{Need, met};
use trials::place::{Place, binary};

/// A guest without hardware virtualization boots in half a minute and is some ten times as slow as the host.
const GUEST: Duration = Duration::from_secs(420);

/// The first time, the lab installs an emulator and unpacks a kernel.
const SETUP: Duration = Duration::from_secs(600);

/// The lab that boots a kernel with an NBD client; it lies beside the repository, or nowhere.
fn lab() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/vmlab/vmlab")
}

fn guest(place: &Place, step: &str) -> Ended {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("guest/kernel_panic.sh");
    let kept = place.path("kept");
    let disk = |name: &str, more: &str| format!("name={name},file={},size={more}", place.path(name));
    let mut command = Command::new(lab());
    command.args(["run", "--timeout", "400", "--module", "nbd", "--share", &kept]);
    // A slow disk, so that there is something dirty when the kernel goes.
    for (name, more) in [("state", "16M"), ("ssd", "128M"), ("disk", "256M,iops=10")] {
        command.args(["--disk", &disk(name, more)]);
    }
    command.args(["--", "sh"]).arg(script).arg(step).arg(binary().canonicalize().expect("it is there")).arg(&kept);
    run(&mut command, GUEST)
}

#[test]
fn a_kernel_panic_loses_nothing_that_was_synced() {
    let trial = "a_kernel_panic_loses_nothing_that_was_synced";
    if !lab().is_file() {
        eprintln!("{trial}: SKIPPED, the lab of virtual machines does not lie beside the repository");
        return;
    }
    if !met(trial, &[Need::Root, Need::Program("nbd-client")]) {
        return;
    }
    let place = Place::new("panic");
    std::fs::create_dir(place.path("kept")).expect("a directory");
    let prepared = run(Command::new(lab()).arg("setup"), SETUP);
    if !prepared.good() {
        eprintln!("{trial}: SKIPPED, no kernel for the lab can be had here:\n{}", prepared.stderr);
        return;
    }
    let written = guest(&place, "write");
    let daemon = std::fs::read_to_string(place.path("kept/daemon.write")).unwrap_or_default();
    assert!(written.stdout.contains("files are as they were"), "{written:#?}\n{daemon}");
    // The guest is gone without an exit status of its command.
    assert_eq!(written.code, Some(125), "{written:#?}\n{daemon}");
    let checked = guest(&place, "check");
    let daemon = std::fs::read_to_string(place.path("kept/daemon.check")).unwrap_or_default();
    assert!(checked.good(), "{checked:#?}\nthe daemon said:\n{daemon}");
    assert!(checked.stdout.contains("synced files there: 20"), "{checked:#?}");
    let dirty = std::fs::read_to_string(place.path("kept/dirty")).expect("the guest noted it");
    assert_ne!(dirty.trim(), "0", "something was in the cache only: {checked:#?}");
    eprintln!("{trial}: {} bytes were dirty when the kernel went", dirty.trim());
}
