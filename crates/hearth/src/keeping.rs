//! Exports that outlive the daemon: who holds them, and how the process of our own that does is
//! started.

use crate::commands::print;
use crate::failure::Failure;
use crate::serve::export_directory;
use control::lock::DaemonLock;
use control::places::Places;
use control::real::{EndedExports, end_kept_exports, end_shares_of, end_ublk_devices, end_ublk_devices_of, volume_of_device};
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
    let state_directory = socket.parent().unwrap_or(Path::new("/"));
    let mut over = |held: Vec<String>| {
        // What hangs on descriptors has ended with them; ublk devices are the kernel's own. A daemon
        // that has come at the last moment takes them over.
        let ended = match DaemonLock::take(&state_directory.join("lock")) {
            Ok(_lock) => end_ublk_devices(held.iter().map(String::as_str)),
            // Its directory is gone, and nobody can come.
            Err(_) if !state_directory.exists() => end_ublk_devices(held.iter().map(String::as_str)),
            Err(_) => Vec::new(),
        };
        for problem in ended.into_iter().filter_map(Result::err) {
            eprintln!("hearth-keeper: {problem}");
        }
    };
    holder::hold(listener, socket, PATIENCE, &mut over).map_err(failed)
}

/// Ends what a daemon has left that does not come back: users of its block devices get errors and
/// wait no longer.
///
/// # Errors
/// If a daemon runs, or something cannot be ended.
pub fn rescue(places: &Places) -> Result<(), Failure> {
    let state_directory = &places.state_directory;
    let nothing = || {
        Failure::failed(
            format!("no export is held for a daemon with the state directory {}", state_directory.display()),
            "give the right one with --state; exports of a service end with `systemctl stop hearth`",
        )
    };
    if !state_directory.join("lock").exists() {
        return Err(nothing());
    }
    let _lock = DaemonLock::take(&state_directory.join("lock"))?;
    let mut ended = EndedExports::default();
    let is_kept = state_directory.join(SOCKET).exists();
    if is_kept {
        ended = end_kept_exports(&keeper(state_directory), &export_directory(&places.socket))?;
    }
    // The kernel keeps these by itself: also those of a service, and of a keeper that was killed.
    ended.add_ublk(end_ublk_devices_of(state_directory)?);
    // Nothing that initiators wait for hangs any more.
    let shares = end_shares_of(state_directory, &export_directory(&places.socket))?;
    ended.remains.extend(shares.ended);
    ended.problems.extend(shares.problems);
    if !is_kept && ended.devices.is_empty() && ended.remains.is_empty() && ended.problems.is_empty() {
        return Err(nothing());
    }
    for device in &ended.devices {
        print(&format!("{device}: ended; whoever has it open gets errors, and it vanishes when that is closed\n"))?;
    }
    // A device that is in use gives errors already: the rescue is done.
    for remark in &ended.remains {
        print(&format!("{remark}\n"))?;
    }
    match ended.problems.first() {
        Some(problem) => Err(Failure::failed(problem.clone(), "see `losetup --list`")),
        None if ended.devices.is_empty() && ended.remains.is_empty() => print("nothing is held\n"),
        None => Ok(()),
    }
}

/// The same when the service manager has stopped the daemon and does not start it again. Where it
/// does, users wait for that.
///
/// # Errors
/// As [`rescue`]; that there is nothing to end is none.
pub fn rescue_after_stop(places: &Places) -> Result<(), Failure> {
    // What systemd says of a unit in ExecStopPost=; a failure is followed by a restart, or by
    // OnFailure=.
    let failed = std::env::var_os("SERVICE_RESULT").is_some_and(|result| result != "success");
    if failed || is_being_restarted()? || !places.state_directory.join("lock").exists() {
        return Ok(());
    }
    let _lock = DaemonLock::take(&places.state_directory.join("lock"))?;
    let mut first = None;
    for device in end_ublk_devices_of(&places.state_directory)? {
        match device {
            Ok(device) => print(&format!("{}: ended; whoever has it open gets errors\n", device.display()))?,
            Err(problem) => drop(first.get_or_insert((problem, "see the kernel's log (dmesg)"))),
        }
    }
    // A daemon that ends as it should takes them along; one that was killed while it did has left them.
    let shares = end_shares_of(&places.state_directory, &export_directory(&places.socket))?;
    for ended in &shares.ended {
        print(&format!("{ended}\n"))?;
    }
    if let Some(problem) = shares.problems.into_iter().next() {
        first.get_or_insert((problem, "see the kernel's log (dmesg), then give `hearth rescue`"));
    }
    first.map_or(Ok(()), |(problem, remedy)| Err(Failure::failed(problem, remedy)))
}

/// Whether systemd has a job to restart the service.
fn is_being_restarted() -> Result<bool, Failure> {
    let asked = std::process::Command::new("systemctl").args(["list-jobs", "--no-legend", "--plain"]).output();
    let asked = asked.map_err(|e| Failure::failed(format!("systemctl cannot be asked ({e})"), "end the devices with `hearth rescue`"))?;
    let jobs = String::from_utf8_lossy(&asked.stdout);
    let is_restart = |line: &str| line.split_whitespace().skip(1).take(2).eq(["hearth.service", "restart"]);
    Ok(jobs.lines().any(is_restart))
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
