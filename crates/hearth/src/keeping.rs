//! Exports that outlive the daemon: who holds them, and how the process of our own that does is
//! started.

use crate::commands::print;
use crate::failure::Failure;
use crate::serve::export_directory;
use control::lock::DaemonLock;
use control::places::Places;
use control::real::end_kept_exports;
use keeper::{Keeper, ProcessOptions, SOCKET, holder};
use std::path::Path;
use std::time::Duration;

/// How long exports are held without a daemon. Whoever uses them waits for so long, and gets errors
/// then.
const PATIENCE: Duration = Duration::from_secs(120);

/// Who holds the exports of the daemon that has this state directory.
pub fn keeper(state_directory: &Path) -> Keeper {
    // The process lives in another directory.
    let state_directory = std::path::absolute(state_directory).unwrap_or_else(|_| state_directory.to_owned());
    Keeper::open(ProcessOptions {
        directory: state_directory.clone(),
        // Also where the file of this program was replaced meanwhile.
        program: "/proc/self/exe".into(),
        arguments: vec!["keeper".into(), state_directory.join(SOCKET).into()],
    })
}

/// The process that holds them: daemons connect to its standard input, which they find under this
/// name.
///
/// # Errors
/// If that is no socket that daemons can connect to.
pub fn keep(socket: &Path) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::failed(error.to_string(), "it is started by `hearth serve`, and by nobody else");
    // By its own name in lists of processes.
    rustix::thread::set_name(c"hearth-keeper").map_err(|error| failed(error.into()))?;
    let listener = rustix::io::fcntl_dupfd_cloexec(std::io::stdin(), 3).map_err(|error| failed(error.into()))?;
    holder::hold(listener, socket, PATIENCE).map_err(failed)
}

/// Ends what a daemon has left that does not come back: users of its block devices get errors and
/// wait no longer.
///
/// # Errors
/// If a daemon runs, or something cannot be ended.
pub fn rescue(places: &Places) -> Result<(), Failure> {
    let state_directory = &places.state_directory;
    if !state_directory.join(SOCKET).exists() {
        return Err(Failure::failed(
            format!("no export is held for a daemon with the state directory {}", state_directory.display()),
            "give the right one with --state; exports of a service end with `systemctl stop hearth`",
        ));
    }
    let _lock = DaemonLock::take(&state_directory.join("lock"))?;
    let ended = end_kept_exports(&keeper(state_directory), &export_directory(&places.socket))?;
    for device in &ended.devices {
        print(&format!("{device}: ended; whoever has it open gets errors, and it vanishes when that is closed\n"))?;
    }
    // A device that is in use gives errors already: the rescue is done.
    for remark in &ended.remains {
        print(&format!("{remark}\n"))?;
    }
    match ended.problems.first() {
        Some(problem) => Err(Failure::failed(problem.clone(), "see `losetup --list`")),
        None if ended.devices.is_empty() => print("nothing is held\n"),
        None => Ok(()),
    }
}
