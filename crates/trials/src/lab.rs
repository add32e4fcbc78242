//! Trials of what this machine's kernel may not have, run in a guest that has it: the same test of
//! the same program, started anew there.
//!
//! The guest lab lies beside the project, at `../shared/vmlab`. Its guests see this machine's files
//! read-only at the same paths; what they write is lost, and their disk is a scratch file.

use crate::command::{Ended, run};
use crate::needs::{Need, met};
use crate::place::{Place, binary};
use crate::turns::Turn;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Set in a guest.
const IN_GUEST: &str = "VMLAB";
/// Where a place's files go in a guest: on the scratch disk.
const DIRECTORY: &str = "/mnt/trials";
/// How long a guest may live: emulated processors are ten times as slow.
const LIMIT: Duration = Duration::from_secs(420);

/// A guest without hardware virtualization boots in half a minute and is some ten times as slow as the host.
const STEP_LIMIT: Duration = Duration::from_secs(900);
/// The first time, the lab installs an emulator and unpacks a kernel.
const SETUP_LIMIT: Duration = Duration::from_secs(600);

/// The program that starts guests, if it is there.
pub fn launcher() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/vmlab/vmlab");
    path.is_file().then_some(path)
}

/// Whether this process runs in a guest.
pub fn is_guest() -> bool {
    std::env::var_os(IN_GUEST).is_some()
}

/// Runs the test of that whole name (`module::test`), of this very program, in a guest with these modules, where it must
/// pass. What it says goes to standard error. `options` are more of the launcher's.
///
/// # Panics
/// If it fails there, or the guest does not come up.
pub fn pass_in_guest(test: &str, modules: &[&str], options: &[&str]) {
    let _turn = Turn::wait();
    let launcher = launcher().expect("the caller has asked for it as a need");
    let program = std::env::current_exe().expect("this program has a path");
    let inside = format!(
        "mkdir -p {DIRECTORY} && mkfs.ext4 -q /dev/vmlab/trials && mount /dev/vmlab/trials {DIRECTORY} && \
         exec '{}' --exact {test} --nocapture",
        program.display()
    );
    let mut command = Command::new(launcher);
    command.args(["run", "--disk", "name=trials,size=6G", "--mem", "3G", "--timeout", &LIMIT.as_secs().to_string()]);
    command.args(options);
    for module in modules {
        command.args(["--module", module]);
    }
    let directory = format!("TRIAL_DIRECTORY={DIRECTORY}");
    for variable in [&directory, "TRIAL_KILLS", "TRIAL_SEED", "HEARTH_BIN", "CARGO_TARGET_DIR"] {
        if variable.contains('=') || std::env::var_os(variable).is_some() {
            command.args(["--env", variable]);
        }
    }
    command.args(["--", "sh", "-c", &inside]);
    let ended: Ended = run(&mut command, LIMIT + Duration::from_secs(60));
    eprint!("{}{}", ended.stdout, ended.stderr);
    assert!(ended.good(), "the test failed in the guest: {command:?}");
    // A name that no test has would pass, too.
    assert!(ended.stdout.contains("test result: ok. 1 passed"), "no test ran in the guest");
}

/// The place of a trial by steps, if the lab is there and has a kernel, and all else that it needs.
///
/// # Panics
/// If the machine refuses what every trial needs.
pub fn prepared(trial: &str, name: &str, more: &[Need]) -> Option<Place> {
    if !met(trial, &[Need::Root, Need::Lab, Need::Program("mkfs.ext4")]) || !met(trial, more) {
        return None;
    }
    let place = Place::new(name);
    std::fs::create_dir(place.path("kept")).expect("a directory");
    let prepared = run(Command::new(launcher()?).arg("setup"), SETUP_LIMIT);
    if !prepared.good() {
        eprintln!("{trial}: SKIPPED, no kernel for the lab can be had here:\n{}", prepared.stderr);
        return None;
    }
    Some(place)
}

/// Runs one step of a script in `guest/`, in a guest that has the same disks at each step: `state`, `ssd` and `disk`. The script gets the step,
/// the binary, a directory that outlives the guest (`kept` of the place), and the directory of the package's files.
///
/// # Panics
/// If there is no lab, or no binary.
pub fn step(place: &Place, script: &str, step: &str) -> Ended {
    let _turn = Turn::wait();
    let crates = Path::new(env!("CARGO_MANIFEST_DIR"));
    let kept = place.path("kept");
    let mut command = Command::new(launcher().expect("the caller has prepared it"));
    command.args(["run", "--timeout", &(STEP_LIMIT.as_secs() - 20).to_string(), "--share", &kept]);
    for (name, size) in [("state", "16M"), ("ssd", "128M"), ("disk", "192M")] {
        command.args(["--disk", &format!("name={name},file={},size={size}", place.path(name))]);
    }
    let there = |path: std::path::PathBuf| path.canonicalize().expect("it is there");
    command.args(["--", "sh"]).arg(crates.join("guest").join(script)).arg(step).arg(there(binary())).arg(&kept);
    command.arg(there(crates.join("../../packaging")));
    run(&mut command, STEP_LIMIT)
}
