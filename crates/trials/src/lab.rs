//! Trials of what this machine's kernel may not have, run in a guest that has it: the same test of
//! the same program, started anew there.
//!
//! The guest lab lies beside the project, at `../shared/vmlab`. Its guests see this machine's files
//! read-only at the same paths; what they write is lost, and their disk is a scratch file.

use crate::command::{Ended, run};
use crate::needs::{Need, met};
use crate::place::{Place, binary};
use crate::turns::Turn;
use std::ffi::OsString;
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

/// The kernel of an emulated machine does not always live, whatever runs in it: CI saw one that ended in a
/// panic before the first program.
const ATTEMPTS: u32 = 3;
/// What a guest says before anything else.
const UP: &str = "the guest is up\n";

/// The program that starts guests, if it is there.
pub fn launcher() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/vmlab/vmlab");
    path.is_file().then_some(path)
}

/// Whether this process runs in a guest.
pub fn is_guest() -> bool {
    std::env::var_os(IN_GUEST).is_some()
}

/// Runs `words` in a guest, which must boot: one whose kernel ends before that is started once more. `options` are the launcher's.
///
/// # Panics
/// If there is no lab.
pub fn run_in_guest(options: &[OsString], words: &[OsString], limit: Duration) -> Ended {
    let _turn = Turn::wait();
    let launcher = launcher().expect("the caller has asked for it as a need");
    started(limit, || {
        let mut command = Command::new(&launcher);
        command.arg("run").args(options).args(["--", "sh", "-c"]).arg(format!("printf '{}'; exec \"$@\"", UP.escape_default()));
        command.arg("sh").args(words);
        command
    })
}

/// What a command of the lab gave, once its guest was up; what it gave at last, if none of [`ATTEMPTS`] was.
fn started(limit: Duration, command: impl Fn() -> Command) -> Ended {
    for attempt in 1.. {
        let mut ended = run(&mut command(), limit);
        if let Some(said) = ended.stdout.strip_prefix(UP) {
            ended.stdout = said.to_owned();
            return ended;
        }
        if ended.late || attempt == ATTEMPTS {
            return ended;
        }
        eprintln!("the guest did not come up, and is started once more: {}", ended.stderr);
    }
    unreachable!("the last attempt returns")
}

/// Runs the test of that whole name (`module::test`), of this very program, in a guest with these modules, where it must
/// pass. What it says goes to standard error. `options` are more of the launcher's.
///
/// # Panics
/// If it fails there, or the guest does not come up.
pub fn pass_in_guest(test: &str, modules: &[&str], options: &[&str]) {
    let program = std::env::current_exe().expect("this program has a path");
    let inside = format!(
        "mkdir -p {DIRECTORY} && mkfs.ext4 -q /dev/vmlab/trials && mount /dev/vmlab/trials {DIRECTORY} && \
         exec '{}' --exact {test} --nocapture",
        program.display()
    );
    let limit = LIMIT.as_secs().to_string();
    let mut all: Vec<OsString> = ["--disk", "name=trials,size=6G", "--mem", "3G", "--timeout", &limit].map(OsString::from).into();
    all.extend(options.iter().map(OsString::from));
    all.extend(modules.iter().flat_map(|module| ["--module", module]).map(OsString::from));
    let directory = format!("TRIAL_DIRECTORY={DIRECTORY}");
    for variable in [&directory, "TRIAL_KILLS", "TRIAL_SEED", "HEARTH_BIN", "CARGO_TARGET_DIR"] {
        if variable.contains('=') || std::env::var_os(variable).is_some() {
            all.extend(["--env", variable].map(OsString::from));
        }
    }
    let words = ["sh", "-c", &inside].map(OsString::from);
    let pass = || {
        let ended = run_in_guest(&all, &words, LIMIT + Duration::from_secs(60));
        eprint!("{}{}", ended.stdout, ended.stderr);
        ended
    };
    let mut ended = pass();
    // All that it wrote went with it: the test begins afresh. A panic that the test itself brings about comes again.
    for _ in 1..ATTEMPTS {
        if !ended.stderr.contains("Kernel panic") {
            break;
        }
        eprintln!("{test}: the guest's kernel died, and the test is tried again");
        ended = pass();
    }
    assert!(ended.good(), "{test} failed in the guest");
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
    let disks = [("state", "16M"), ("ssd", "128M"), ("disk", "192M")];
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").canonicalize().expect("it is there");
    step_with(place, script, step, STEP_LIMIT, &disks, &[], &[packaging.into()])
}

/// [`step`] with other disks (name, size and what more the launcher takes), more options of the launcher, and more words for the script.
///
/// # Panics
/// As of [`step`].
pub fn step_with(
    place: &Place,
    script: &str,
    step: &str,
    limit: Duration,
    disks: &[(&str, &str)],
    options: &[&str],
    more: &[OsString],
) -> Ended {
    let kept = place.path("kept");
    let mut all: Vec<OsString> = options.iter().map(OsString::from).collect();
    all.extend(["--timeout", &(limit.as_secs() - 20).to_string(), "--share", &kept].map(OsString::from));
    for (name, size) in disks {
        all.extend(["--disk", &format!("name={name},file={},size={size}", place.path(name))].map(OsString::from));
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("guest").join(script);
    let binary = binary().canonicalize().expect("it is there");
    let mut words: Vec<OsString> = vec!["sh".into(), script.into(), step.into(), binary.into(), kept.into()];
    words.extend(more.iter().cloned());
    run_in_guest(&all, &words, limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A launcher that gives these words, one at each start, and notes how often it was started.
    fn launched(said: &[&str]) -> (Ended, usize) {
        let place = tempfile::tempdir().expect("a directory");
        let starts = place.path().join("starts");
        let said = said.iter().map(|said| format!("'{said}'")).collect::<Vec<_>>().join(" ");
        let script = format!("echo >>{0}; set -- {said}; shift $(($(wc -l <{0}) - 1)); printf \"$1\"; exit 125", starts.display());
        let ended = started(Duration::from_secs(60), || crate::command::words(&["sh", "-c", &script]));
        (ended, std::fs::read_to_string(starts).expect("it was started").len())
    }

    #[test]
    fn only_a_guest_that_did_not_come_up_is_started_again() {
        let (ended, starts) = launched(&["", "the guest is up\\nand failed", ""]);
        assert_eq!((ended.code, ended.stdout.as_str(), starts), (Some(125), "and failed", 2));
        let (ended, starts) = launched(&["", "", "", "the guest is up\\n"]);
        assert_eq!((ended.code, ended.stdout.as_str(), starts), (Some(125), "", 3));
    }
}
