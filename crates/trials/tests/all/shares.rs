//! Volumes for other machines: the kernel's own target and initiator on both sides of loopback, in a guest that has them. Names and secrets are
//! right or refused, reservations last, the daemon is killed under verifying load on both protocols without an I/O error, and growth is seen.
//! `TRIAL_LONG=1` goes on with an empty configfs, and a daemon that does not come back.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;
use trials::lab;
use trials::needs::{Need, met};
use trials::place::{Place, binary};

/// An emulated guest boots in half a minute and is some ten times as slow as this machine.
const GUEST: Duration = Duration::from_secs(900);

#[test]
fn initiators_outlive_the_daemon() {
    let trial = "initiators_outlive_the_daemon";
    let programs = ["iscsid", "iscsiadm", "nvme", "fio", "mkfs.ext4", "resize2fs"].map(Need::Program);
    if !met(trial, &[&[Need::Root, Need::Lab], &programs[..]].concat()) {
        return;
    }
    let place = Place::new("shares");
    let kept = place.path("kept");
    std::fs::create_dir(&kept).expect("a directory");
    let options = ["--timeout", "880", "--share", &kept, "--disk", "name=ssd,size=256M"].map(OsString::from);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("guest/shares.sh");
    let binary = binary().canonicalize().expect("it is there");
    let mut words: Vec<OsString> = vec!["sh".into(), script.into(), binary.into(), kept.into()];
    words.extend(std::env::var_os("TRIAL_LONG").map(|_| "long".into()));
    let ended = lab::run_in_guest(&options, &words, GUEST);
    let daemon = std::fs::read_to_string(place.path("kept/daemon")).unwrap_or_default();
    eprint!("{}", ended.stdout);
    assert!(ended.good() && ended.stdout.contains("all trials passed"), "{ended:#?}\nthe daemon said:\n{daemon}");
}
