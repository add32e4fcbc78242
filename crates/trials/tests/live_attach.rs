//! A cache under a mounted logical volume, in a virtual machine with LVM and the device mapper: attached, detached, changed by LVM, its daemon
//! killed and stopped, all under a load that verifies what it reads; then a boot, after which the file system is mounted, and written, before
//! the daemon comes. And boots by systemd, with the units of the package.

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

/// Runs one step of a script in a guest that has the same disks at each step.
fn guest(place: &Place, script: &str, step: &str) -> Ended {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR"));
    let script = crates.join("guest").join(script);
    let kept = place.path("kept");
    let disk = |name: &str, size: &str| format!("name={name},file={},size={size}", place.path(name));
    let mut command = Command::new(lab());
    command.args(["run", "--timeout", "880", "--share", &kept]);
    for (name, size) in [("state", "16M"), ("ssd", "128M"), ("disk", "192M")] {
        command.args(["--disk", &disk(name, size)]);
    }
    command.args(["--", "sh"]).arg(script).arg(step).arg(binary().canonicalize().expect("it is there")).arg(&kept);
    command.arg(crates.join("../../packaging").canonicalize().expect("it is there"));
    run(&mut command, GUEST)
}

/// The place of a trial, if the lab is there and has a kernel.
fn prepared(trial: &str, name: &str, more: &[Need]) -> Option<Place> {
    if !lab().is_file() {
        eprintln!("{trial}: SKIPPED, the lab of virtual machines does not lie beside the repository");
        return None;
    }
    if !met(trial, &[Need::Root, Need::Program("lvm"), Need::Program("fio"), Need::Program("mkfs.ext4")]) || !met(trial, more) {
        return None;
    }
    let place = Place::new(name);
    std::fs::create_dir(place.path("kept")).expect("a directory");
    let prepared = run(Command::new(lab()).arg("setup"), SETUP);
    if !prepared.good() {
        eprintln!("{trial}: SKIPPED, no kernel for the lab can be had here:\n{}", prepared.stderr);
        return None;
    }
    Some(place)
}

#[test]
fn a_mounted_logical_volume_is_attached_through_everything() {
    let trial = "a_mounted_logical_volume_is_attached_through_everything";
    let Some(place) = prepared(trial, "live-attach", &[]) else { return };
    let lived = guest(&place, "live_attach.sh", "live");
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
    let again = guest(&place, "live_attach.sh", "again");
    assert!(again.good(), "{again:#?}\nthe daemon said:\n{}", daemon());
    for told in ["nothing stale", "a trial left nothing", "files there: 11"] {
        assert!(again.stdout.contains(told), "{told}: {again:#?}");
    }
}

/// After a boot the cache is there before the file system is mounted, and warm, since it was there until that was unmounted.
#[test]
fn a_boot_by_systemd_finds_the_cache_warm_under_the_mount() {
    let trial = "a_boot_by_systemd_finds_the_cache_warm_under_the_mount";
    let Some(place) = prepared(trial, "attach-boot", &[Need::Program("systemctl")]) else { return };
    let daemon = || std::fs::read_to_string(place.path("kept/daemon")).unwrap_or_default();
    let hits = |step: &str| {
        let stats: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(place.path(&format!("kept/stats.{step}"))).unwrap_or_default())
                .unwrap_or_default();
        let figure = |name: &str| stats[name].as_f64().unwrap_or(f64::NAN);
        figure("read_hits_ssd") / figure("reads")
    };
    let first = guest(&place, "attach_boot.sh", "first");
    assert!(first.good() && first.stdout.contains("nothing was unmounted"), "{first:#?}\nthe daemon said:\n{}", daemon());
    for (step, expect_hits) in [("warm", 0.9..=1.0), ("cold", 0.0..=0.5)] {
        let booted = guest(&place, "attach_boot.sh", step);
        for told in ["under the mount", "nothing stale", "told"] {
            assert!(booted.good() && booted.stdout.contains(told), "{step}, {told}: {booted:#?}\nthe daemon said:\n{}", daemon());
        }
        assert!(expect_hits.contains(&hits(step)), "{step}: {} of the reads were hits; the daemon said:\n{}", hits(step), daemon());
    }
}
