//! The kernel's own NBD client on a write-back volume, in a virtual machine whose kernel dies without a word: what was synced is there after the
//! next boot, in the cache and, after a destage, on the backing disk alone.

use std::time::Duration;
use trials::command::Ended;
use trials::lab::{prepared, step_with};
use trials::needs::Need;
use trials::place::Place;

/// A guest without hardware virtualization boots in half a minute and is some ten times as slow as the host.
const GUEST: Duration = Duration::from_secs(420);

fn guest(place: &Place, step: &str) -> Ended {
    // A slow disk, so that there is something dirty when the kernel goes.
    let disks = [("state", "16M"), ("ssd", "128M"), ("disk", "256M,iops=10")];
    step_with(place, "kernel_panic.sh", step, GUEST, &disks, &["--module", "nbd"], &[])
}

#[test]
fn a_kernel_panic_loses_nothing_that_was_synced() {
    let trial = "a_kernel_panic_loses_nothing_that_was_synced";
    let Some(place) = prepared(trial, "panic", &[Need::Program("nbd-client")]) else { return };
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
