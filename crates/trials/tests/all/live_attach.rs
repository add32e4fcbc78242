//! A cache under a mounted logical volume, in a virtual machine with LVM and the device mapper: attached, detached, changed by LVM, its daemon
//! killed, stopped and given up, all under a load that verifies what it reads; then a boot, after which the file system is mounted, and
//! written, before the daemon comes.

use trials::lab::{prepared, step};
use trials::needs::Need;

#[test]
fn a_mounted_logical_volume_is_attached_through_everything() {
    let trial = "a_mounted_logical_volume_is_attached_through_everything";
    let Some(place) = prepared(trial, "live-attach", &[Need::Program("lvm"), Need::Program("fio")]) else { return };
    let lived = step(&place, "live_attach.sh", "live");
    let daemon = || std::fs::read_to_string(place.path("kept/daemon")).unwrap_or_default();
    for told in [
        "attached, detached and attached again",
        "extended and refreshed",
        "what was loaded is taken away",
        "went around a snapshot",
        "killed, stopped",
        "rescued, and attached again",
        "saw no error",
    ] {
        assert!(lived.stdout.contains(told), "{told}: {lived:#?}\n{}", daemon());
    }
    // The guest is gone without an exit status of its command.
    assert_eq!(lived.code, Some(125), "{lived:#?}");
    let again = step(&place, "live_attach.sh", "again");
    assert!(again.good(), "{again:#?}\nthe daemon said:\n{}", daemon());
    for told in
        ["nothing stale", "rescued by who keeps the block device", "rescued without serving", "a trial left nothing", "files there: 15"]
    {
        assert!(again.stdout.contains(told), "{told}: {again:#?}");
    }
}
