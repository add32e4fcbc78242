//! Trials of what this machine's kernel may not have, run in a guest that has it: the same test of
//! the same program, started anew there.
//!
//! The guest lab lies beside the project, at `../shared/vmlab`. Its guests see this machine's files
//! read-only at the same paths; what they write is lost, and their disk is a scratch file.

use crate::command::{Ended, run};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Set in a guest.
const IN_GUEST: &str = "VMLAB";
/// Where a place's files go in a guest: on the scratch disk.
const DIRECTORY: &str = "/mnt/trials";
/// How long a guest may live: emulated processors are ten times as slow.
const LIMIT: Duration = Duration::from_secs(420);

/// The program that starts guests, if it is there.
pub fn launcher() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/vmlab/vmlab");
    path.is_file().then_some(path)
}

/// Whether this process runs in a guest.
pub fn is_guest() -> bool {
    std::env::var_os(IN_GUEST).is_some()
}

/// Runs the test of that name, of this very program, in a guest with these modules, where it must
/// pass. What it says goes to standard error. `options` are more of the launcher's.
///
/// # Panics
/// If it fails there, or the guest does not come up.
pub fn pass_in_guest(test: &str, modules: &[&str], options: &[&str]) {
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
