//! Exports that outlive the daemon: who holds them, and how the process of our own that does is
//! started.

use crate::commands::print;
use crate::failure::Failure;
use crate::logs::say;
use crate::serve::export_directory;
use keeper::{Keeper, Kept, ProcessOptions, SOCKET, holder};
use machine::{end_held_exports, volume_of_device};
use records::lock::{DaemonLock, KEEPER_NAME};
use records::places::Places;
use records::state::State;
use records::store;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// How long exports are held without a daemon. Whoever uses them waits for so long, and gets errors
/// then.
const PATIENCE: Duration = Duration::from_secs(120);

/// Who holds the exports of the daemon that is known by these places.
pub fn keeper(places: &Places) -> Keeper {
    // The process lives in another directory.
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let state_directory = absolute(&places.state_directory);
    Keeper::open(ProcessOptions {
        directory: state_directory.clone(),
        // Also where the file of this program was replaced meanwhile.
        program: "/proc/self/exe".into(),
        arguments: vec!["keeper".into(), state_directory.join(SOCKET).into(), absolute(&places.socket).into()],
    })
}

/// The process that holds them: daemons connect to its standard input, which they find under this
/// name.
///
/// # Errors
/// If that is no socket that daemons can connect to.
pub fn keep(socket: &Path, daemon_socket: Option<&Path>) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::failed(error.to_string(), "it is started by `hearth serve`, and by no other program");
    // By its own name in lists of processes.
    rustix::thread::set_name(KEEPER_NAME).map_err(|error| failed(error.into()))?;
    raise_descriptor_limit();
    let listener = rustix::io::fcntl_dupfd_cloexec(std::io::stdin(), 3).map_err(|error| failed(error.into()))?;
    let state_directory = socket.parent().unwrap_or(Path::new("/"));
    let exports = daemon_socket.map(export_directory);
    let mut over = |held: Kept| {
        // Without its directory no daemon can come.
        let keep_out = || match DaemonLock::take(&state_directory.join("lock")) {
            Err(_) if state_directory.exists() => None,
            lock => Some(lock),
        };
        let ended = end_held_exports(held, exports.as_deref().unwrap_or(Path::new("/")), keep_out);
        ended.problems.iter().for_each(|problem| say(format_args!("hearth-keeper: {problem}")));
    };
    let mut last = || daemon_socket.is_some_and(|daemon_socket| begin_rescue(state_directory, daemon_socket));
    holder::hold(listener, socket, PATIENCE, &mut last, &mut over).map_err(failed)
}

/// As many descriptors as may be had: each block device takes some.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        // A set that does not fit is refused.
        tracing::debug!(%error, "the limit of descriptors is as it was");
    }
}

/// No daemon has come. Where devices in use lead to volumes, their users can go on without hearth: that
/// needs what is held. Gives whether somebody will ask for it.
fn begin_rescue(state_directory: &Path, daemon_socket: &Path) -> bool {
    let is_attached = |state: State| state.volumes.iter().any(|volume| volume.attachment.is_some());
    if !store::look(state_directory).is_ok_and(is_attached) {
        return false;
    }
    let mut command = Command::new("/proc/self/exe");
    command.arg("--state").arg(state_directory).arg("--socket").arg(daemon_socket).arg("rescue");
    // It ends before this process does, or soon after it.
    command.stdin(Stdio::null()).spawn().is_ok()
}

/// Prints `HEARTH_VOLUME=NAME` for a block device of ours; nothing for others.
///
/// # Errors
/// If standard output is closed.
pub fn udev_name(places: &Places, device: &str) -> Result<(), Failure> {
    match volume_of_device(device, &places.state_directory) {
        Some((name, false)) => print(&format!("HEARTH_VOLUME={name}\n")),
        Some((name, true)) => print(&format!("HEARTH_ATTACHED={name}\n")),
        None => Ok(()),
    }
}
