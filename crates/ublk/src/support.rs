//! Whether this machine can have ublk devices: asked before the first is made, and never again.

use crate::control::Control;
use crate::error::UblkError;
use crate::kernels;
use crate::uapi::{ANY_DEVICE, DeviceInfo};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How long a child may take to make and remove a device.
const PATIENCE: Duration = Duration::from_secs(30);

/// The process that makes a first device: if the kernel hangs in that, it hangs there.
#[derive(Clone, Debug)]
pub struct Probe {
    /// A program that calls [`probe`] when it gets these arguments.
    pub program: PathBuf,
    /// See `program`.
    pub arguments: Vec<OsString>,
}

/// What was found out, once for the life of this process; `None`: not asked yet.
static KNOWN: Mutex<Option<Result<(), String>>> = Mutex::new(None);

/// Whether ublk devices can be made here.
///
/// # Errors
/// [`UblkError::Unsupported`] with the reason.
pub fn check(with: &Probe) -> Result<(), UblkError> {
    let mut known = KNOWN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let unsupported = |reason: String| UblkError::Unsupported { reason };
    let release = kernels::release();
    if kernels::is_bad(&release) {
        return Err(unsupported(format!("ublk of this kernel ({release}) hangs when a device is made: another kernel is needed")));
    }
    // What may change by loading a module is asked each time.
    Control::open()?;
    known.get_or_insert_with(|| ask(with, PATIENCE)).clone().map_err(unsupported)
}

/// Has the first device made by a child.
fn ask(with: &Probe, patience: Duration) -> Result<(), String> {
    let mut command = Command::new(&with.program);
    command.args(&with.arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("ublk cannot be tried ({error})"))?;
    let deadline = Instant::now() + patience;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() >= deadline => {
                give_up(child);
                return Err("making a ublk device hangs in this kernel".to_owned());
            }
            Ok(None) => std::thread::sleep(Duration::from_millis(5)),
            Err(error) => return Err(format!("ublk cannot be tried ({error})")),
        }
    };
    if status.success() {
        return Ok(());
    }
    let said = child.stderr.take().and_then(|stderr| std::io::read_to_string(stderr).ok()).unwrap_or_default();
    let said = said.lines().last().unwrap_or("no reason given").to_owned();
    Err(format!("a ublk device cannot be made here: {said}"))
}

/// It may hang in the kernel, where no signal reaches it: it is not waited for.
fn give_up(mut child: Child) {
    if let Err(error) = child.kill() {
        tracing::warn!(%error, "the process that tried ublk does not end");
    }
}

/// What the child does: makes a device and removes it.
///
/// # Errors
/// Why it cannot.
pub fn probe() -> Result<(), UblkError> {
    let mut control = Control::open()?;
    let made = control.add(&DeviceInfo {
        queues: 1,
        depth: 1,
        state: 0,
        request_bytes_max: 4096,
        number: ANY_DEVICE,
        server_pid: 0,
        flags: crate::control::BASE,
        mark: 0,
    })?;
    control.delete(made.number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(script: &str) -> Probe {
        Probe { program: "/bin/sh".into(), arguments: vec!["-c".into(), script.into()] }
    }

    #[test]
    fn a_child_that_hangs_or_fails_is_told() {
        assert_eq!(ask(&probe("exit 0"), PATIENCE), Ok(()));
        let failed = ask(&probe("echo first >&2; echo the reason >&2; exit 1"), PATIENCE).expect_err("it failed");
        assert!(failed.ends_with(": the reason"), "{failed}");
        let hung = ask(&probe("exec sleep 60"), Duration::from_millis(50)).expect_err("it hung");
        assert!(hung.contains("hangs"), "{hung}");
        let none = ask(&Probe { program: "/nowhere".into(), arguments: Vec::new() }, PATIENCE).expect_err("nothing there");
        assert!(none.contains("cannot be tried"), "{none}");
    }
}
