//! What a daemon has left that does not come back: its block devices end, so that no program waits
//! for them any more, and devices that volumes are attached to go on without hearth.
//!
//! A process of its own serves such volumes until their devices are led past hearth: what may keep
//! the daemon from running, a disk that hangs too, cannot keep the rescue from going on.

use crate::certificates;
use crate::commands::print;
use crate::exporters;
use crate::failure::Failure;
use crate::keeping::keeper;
use crate::logs::say;
use crate::serve::{export_directory, stay_in_memory, tell_kernel_that_io_depends_on_us};
use api::error::ControlError;
use clap::Args;
use control::manager::Manager;
use control::rescue::{Led, Patience, device_of, lead_past, note_stale, waiting};
use datapath::mapped::MappedDevices;
use keeper::SOCKET;
use machine::{EndedExports, KernelMapper, Machine, MachineOptions};
use machine::{clear_left_exports, end_kept_exports, end_shares_of, end_ublk_devices_of};
use records::lock::{DaemonLock, RESCUE_NAME};
use records::places::Places;
use records::state::VolumeRecord;
use records::store::{self, FileStore};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// When to end what is left.
#[derive(Args, Debug)]
pub struct Rescue {
    /// Only if the service was stopped and is not being restarted: for the service's unit
    #[arg(long, hide = true)]
    pub after_stop: bool,
    /// Serve attached volumes until their devices are led past hearth: for the command itself
    #[arg(long, hide = true)]
    pub serve: bool,
}

/// How long volumes may be served until their devices are led past hearth.
const SERVE_PATIENCE: Duration = Duration::from_secs(60);
/// How long it may take without that.
const PATIENCE: Patience = Patience { for_requests: Duration::from_secs(2), for_exchange: Duration::from_secs(30) };
/// Between two looks at the process that serves.
const LOOK: Duration = Duration::from_millis(20);

/// Ends what a daemon has left that does not come back: users of its block devices get errors and
/// wait no longer; users of devices that volumes are attached to go on.
///
/// # Errors
/// If a daemon runs, or something cannot be ended.
pub fn rescue(places: &Places) -> Result<(), Failure> {
    let state_directory = &places.state_directory;
    let nothing = || {
        let directory = state_directory.display();
        print(&format!("nothing is held for a daemon with the state directory {directory}; --state names another\n"))
    };
    if !state_directory.join("lock").exists() {
        return nothing();
    }
    name_process();
    let lock = DaemonLock::take(&state_directory.join("lock")).map_err(daemon_runs)?;
    let is_kept = state_directory.join(SOCKET).exists();
    let mut ended = None;
    let past = lead_attached_past(places, &lock, &mut || ended = Some(end_exports(places)));
    let ended = ended.unwrap_or_else(|| end_exports(places))?;
    if !is_kept && past.is_empty() && ended.devices.is_empty() && ended.remains.is_empty() && ended.problems.is_empty() {
        return nothing();
    }
    past.print()?;
    for device in &ended.devices {
        print(&format!("{device}: ended; programs that have it open get errors, and it vanishes when they close it\n"))?;
    }
    // A device that is in use gives errors already: the rescue is done.
    for remark in &ended.remains {
        print(&format!("{remark}\n"))?;
    }
    match (ended.problems.first(), past.problems.into_iter().next()) {
        (_, Some(problem)) => Err(problem),
        (Some(problem), None) => Err(Failure::failed(problem.clone(), "see `losetup --list`")),
        (None, None) if ended.devices.is_empty() && ended.remains.is_empty() && past.sentences.is_empty() => nothing(),
        (None, None) => Ok(()),
    }
}

/// What has a daemon needs no rescue; one that hangs is ended first.
fn daemon_runs(error: ControlError) -> Failure {
    match error {
        ControlError::SecondDaemon { pid, path } => Failure::failed(
            format!("a hearth daemon (process {pid}) runs and uses {path}, and a rescue is for what a daemon has left"),
            "if it hangs, end it first (`systemctl stop hearth`, or `kill -9` with its process number)",
        ),
        other => other.into(),
    }
}

fn end_exports(places: &Places) -> Result<EndedExports, Failure> {
    let (state_directory, exports) = (&places.state_directory, export_directory(&places.socket));
    let mut ended = EndedExports::default();
    if state_directory.join(SOCKET).exists() {
        ended = end_kept_exports(&keeper(places), &exports)?;
    }
    // The kernel keeps these by itself: also those of a service, and of a keeper that was killed.
    ended.add_ublk(end_ublk_devices_of(state_directory)?);
    // The same of devices that nobody holds any more.
    let cleared = clear_left_exports(state_directory, &exports)?;
    ended.remains.extend(cleared.gone.iter().map(|gone| format!("{}: cleared away, it led to nothing", gone.display())));
    ended.remains.extend(cleared.problems);
    // Nothing that initiators wait for hangs any more.
    let shares = end_shares_of(state_directory, &exports)?;
    ended.remains.extend(shares.ended);
    ended.problems.extend(shares.problems);
    Ok(ended)
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
    name_process();
    let lock = DaemonLock::take(&places.state_directory.join("lock"))?;
    let mut devices = None;
    let end = || end_ublk_devices_of(&places.state_directory);
    let past = lead_attached_past(places, &lock, &mut || devices = Some(end()));
    past.print()?;
    let mut first = past.problems.into_iter().next();
    for device in devices.unwrap_or_else(end)? {
        match device {
            Ok(device) => print(&format!("{}: ended; programs that have it open get errors\n", device.display()))?,
            Err(problem) => drop(first.get_or_insert(Failure::failed(problem, "see the kernel's log (dmesg)"))),
        }
    }
    // A daemon that ends as it should takes them along; one that was killed while it did has left them.
    let shares = end_shares_of(&places.state_directory, &export_directory(&places.socket))?;
    for ended in &shares.ended {
        print(&format!("{ended}\n"))?;
    }
    if let Some(problem) = shares.problems.into_iter().next() {
        first.get_or_insert(Failure::failed(problem, "see the kernel's log (dmesg), then give `hearth rescue`"));
    }
    first.map_or(Ok(()), Err)
}

/// A daemon that comes meanwhile knows by it that this does not take long.
fn name_process() {
    if let Err(error) = rustix::thread::set_name(RESCUE_NAME) {
        tracing::debug!(%error, "this process has the name it had");
    }
}

/// Whether systemd has a job to restart the service.
fn is_being_restarted() -> Result<bool, Failure> {
    let asked = Command::new("systemctl").args(["list-jobs", "--no-legend", "--plain"]).output();
    let asked = asked.map_err(|e| Failure::failed(format!("systemctl cannot be asked ({e})"), "end the devices with `hearth rescue`"))?;
    let jobs = String::from_utf8_lossy(&asked.stdout);
    let is_restart = |line: &str| line.split_whitespace().skip(1).take(2).eq(["hearth.service", "restart"]);
    Ok(jobs.lines().any(is_restart))
}

/// What became of devices that volumes are attached to.
#[derive(Default)]
struct Past {
    /// A sentence for each that goes on without hearth.
    sentences: Vec<String>,
    problems: Vec<Failure>,
}

impl Past {
    fn is_empty(&self) -> bool {
        self.sentences.is_empty() && self.problems.is_empty()
    }

    fn print(&self) -> Result<(), Failure> {
        self.sentences.iter().try_for_each(|sentence| print(&format!("{sentence}\n")))
    }
}

/// Leads devices of attached volumes past hearth. `end` ends hearth's block devices; it is called
/// only if requests to them keep a device from being led past, which then fail.
fn lead_attached_past(places: &Places, lock: &DaemonLock, end: &mut dyn FnMut()) -> Past {
    let mapped: Arc<dyn MappedDevices + Send + Sync> = Arc::new(KernelMapper { export_directory: export_directory(&places.socket) });
    let mut past = Past::default();
    let (state, found) = match store::look(&places.state_directory) {
        Ok(state) => (state.clone(), waiting(&*mapped, &state)),
        Err(error) => {
            past.problems.push(error.into());
            return past;
        }
    };
    past.problems.extend(found.refused.into_iter().map(Failure::from));
    if found.volumes.is_empty() {
        return past;
    }
    // What is not understood as a whole is set aside by who goes on with it.
    let served = state.check().and_then(|()| serve_until_past(places, lock));
    if let Err(problem) = served {
        say(format_args!("hearth: attached volumes cannot be served until their devices go on without hearth: {problem}"));
    }
    // As it is now, with what that process has saved.
    let state = store::look(&places.state_directory);
    let remaining = state.as_ref().map(|state| waiting(&*mapped, state).volumes).unwrap_or_else(|_| found.volumes.clone());
    let is_past = |name: &str| remaining.iter().all(|volume| volume.name != name);
    let on = |volume: &VolumeRecord| {
        let next = match volume.is_trial() {
            true => "its trial is over",
            false if volume.attachment.as_ref().is_some_and(|attachment| attachment.leaving) => "its detachment ends with the next start",
            false => "the next start of the daemon attaches it again, with an empty cache",
        };
        format!("{}: goes on without hearth; {next}", device_of(volume))
    };
    past.sentences.extend(found.volumes.iter().filter(|volume| is_past(&volume.name)).map(on));
    if remaining.is_empty() {
        return past;
    }
    // Where it cannot be noted, the next daemon sees where the device leads.
    let noted = state.and_then(|state| note_stale(&mut FileStore::open(&places.state_directory)?, &state, &remaining));
    if let Err(error) = noted {
        say(format_args!("hearth: {error}"));
    }
    for Led { volume, result } in lead_past(&mapped, remaining, end, PATIENCE) {
        match result {
            Ok(false) => past.sentences.push(on(&volume)),
            Ok(true) => past.sentences.push(format!("{}; requests that were under way got errors", on(&volume))),
            Err(error) => past.problems.push(error.into()),
        }
    }
    past
}

/// Serves attached volumes by another process until their devices are led past hearth.
fn serve_until_past(places: &Places, lock: &DaemonLock) -> Result<(), String> {
    let input = lock.share().map_err(|error| error.to_string())?;
    let mut command = Command::new("/proc/self/exe");
    command.arg("--state").arg(&places.state_directory).arg("--socket").arg(&places.socket).args(["rescue", "--serve"]);
    let mut process = command.stdin(input).stdout(Stdio::null()).spawn().map_err(|error| error.to_string())?;
    let until = Instant::now() + SERVE_PATIENCE;
    loop {
        match process.try_wait().map_err(|error| error.to_string())? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(format!("its process ended with {status}")),
            None if Instant::now() >= until => break,
            None => std::thread::sleep(LOOK),
        }
    }
    // It may wait for a disk, and end when that answers.
    process.kill().map_err(|error| error.to_string())?;
    Err(format!("it takes longer than {} s", SERVE_PATIENCE.as_secs()))
}

/// That process. Its standard input is the lock of the state directory: it goes on if the one that
/// waits for it is killed.
///
/// # Errors
/// If a device does not lead past hearth; then its users wait as before.
pub fn serve(places: &Places) -> Result<(), Failure> {
    let state_directory = &places.state_directory;
    name_process();
    if DaemonLock::take_now(&state_directory.join("lock")).is_ok() {
        return Err(Failure::usage("`--serve` is for `hearth rescue` itself", "leave it out"));
    }
    tell_kernel_that_io_depends_on_us();
    stay_in_memory();
    let (notices, _notices) = channel();
    let machine = Machine::start(MachineOptions {
        reactors: Some(1),
        real_time: false,
        cpu_latency: false,
        export_directory: export_directory(&places.socket),
        certificates: state_directory.join(certificates::DIRECTORY),
        stable_names: true,
        keeper: state_directory.join(SOCKET).exists().then(|| keeper(places)),
        exporters: exporters::all,
        notices,
    })?;
    let manager = Manager::open(Arc::new(machine), Box::new(FileStore::open(state_directory)?), state_directory)?;
    Ok(manager.lead_all_past()?)
}
