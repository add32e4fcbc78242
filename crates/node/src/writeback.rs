//! Bringing home what lies in memory above a device: the file systems on it and on what stands on it, then the page caches of all these
//! devices, from the top down.

use crate::patience::{begin, within};
use crate::users::stack_on;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Opens the device if it is still the one that was made; `None` if its name is another's by now.
pub type Opens = Arc<dyn Fn() -> io::Result<Option<File>> + Send + Sync>;

/// Writes back all there is above the device at `device`, within that time at the most. After half of
/// what is left the next has its turn, but what was begun goes on until the end.
///
/// # Errors
/// What went wrong, one sentence each; everything has been tried.
pub fn write_back(device: &Path, opens: &Opens, patience: Duration) -> Result<(), Vec<String>> {
    let deadline = Instant::now() + patience;
    let looked = opens.clone();
    // Held open while it is looked at, so that the number stays ours.
    let look = move || match looked()? {
        Some(node) => stack_on(node.metadata()?.rdev()).map(Some),
        None => Ok(None),
    };
    let stack = match within(patience / 2, "look-up", look) {
        Some(Ok(Some(stack))) => stack,
        // It was taken away, and what was above it with it.
        Some(Ok(None)) => return Ok(()),
        Some(Err(error)) => return Err(vec![error.to_string()]),
        None => return Err(vec![format!("what uses {} cannot be found out", device.display())]),
    };
    let mut steps: Vec<(String, Work)> = Vec::new();
    for point in stack.mounts {
        steps.push((format!("the file system at {}", point.display()), Box::new(move || sync_file_system(&point))));
    }
    for (number, name) in stack.devices {
        let path = PathBuf::from(format!("/dev/{}", name.replace('!', "/")));
        let opens = (path == device).then(|| opens.clone());
        steps.push((format!("{}", path.display()), Box::new(move || flush(&path, number, opens))));
    }
    let failed = carry_out(steps, deadline.saturating_duration_since(Instant::now()));
    if failed.is_empty() { Ok(()) } else { Err(failed) }
}

type Work = Box<dyn FnOnce() -> io::Result<()> + Send>;

/// One after the other, as long as they take no more than their part of the time. Gives what went wrong.
fn carry_out(steps: Vec<(String, Work)>, patience: Duration) -> Vec<String> {
    let deadline = Instant::now() + patience;
    let left = || deadline.saturating_duration_since(Instant::now());
    let (mut failed, mut late) = (Vec::new(), Vec::new());
    let cannot = |what: &str, error: &io::Error| format!("{what} cannot be written back ({error})");
    for (what, work) in steps {
        let Some(answer) = begin("write-back", move || unless_gone(work())) else {
            failed.push(format!("{what} was not written back: no thread can be started"));
            continue;
        };
        match answer.recv_timeout(left() / 2) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => failed.push(cannot(&what, &error)),
            Err(_) => late.push((what, answer)),
        }
    }
    for (what, answer) in late {
        match answer.recv_timeout(left()) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => failed.push(cannot(&what, &error)),
            Err(_) => failed.push(format!("{what} was not written back within {} s", patience.as_secs())),
        }
    }
    failed
}

/// What somebody unmounted or removed meanwhile was written back by that.
fn unless_gone(result: io::Result<()>) -> io::Result<()> {
    result.or_else(|error| match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENOTDIR | libc::ENXIO | libc::ENODEV) => Ok(()),
        _ => Err(error),
    })
}

fn sync_file_system(point: &Path) -> io::Result<()> {
    // What somebody has put in its place may be a pipe, and opening it must not wait for the other end.
    let root = OpenOptions::new().read(true).custom_flags(libc::O_CLOEXEC | libc::O_NONBLOCK).open(point)?;
    // SAFETY: the descriptor is open.
    if unsafe { libc::syncfs(root.as_raw_fd()) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Also the file system directly on the device, in whatever mount namespace it is mounted.
fn flush(path: &Path, number: u64, opens: Option<Opens>) -> io::Result<()> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_CLOEXEC | libc::O_NONBLOCK).open(path)?;
    let is_ours = opens.map_or(Ok(true), |opens| opens().map(|node| node.is_some()))?;
    if file.metadata()?.rdev() != number || !is_ours {
        // The name is another's by now.
        return Ok(());
    }
    flush_buffers(&file)?;
    file.sync_all()
}

/// Writes home what a file system that is mounted directly on this device holds, in whatever mount namespace, and what the device's own
/// page cache does.
fn flush_buffers(device: &File) -> io::Result<()> {
    const BLKFLSBUF: libc::c_ulong = 0x1261;
    // SAFETY: this request takes no argument.
    if unsafe { libc::ioctl(device.as_raw_fd(), BLKFLSBUF, 0) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// Each waits for the one behind it to end.
    #[test]
    fn what_is_slow_lets_the_others_work_and_is_waited_for_all_the_same() {
        let (behind, first) = mpsc::channel();
        let steps: Vec<(String, Work)> = vec![
            ("the first".into(), Box::new(move || first.recv().map_err(io::Error::other))),
            ("the last".into(), Box::new(move || behind.send(()).map_err(io::Error::other))),
        ];
        assert_eq!(carry_out(steps, Duration::from_secs(120)), Vec::<String>::new());
    }

    #[test]
    fn what_fails_and_what_hangs_is_told_and_what_is_gone_is_not() {
        let (hung, never) = mpsc::channel::<()>();
        let steps: Vec<(String, Work)> = vec![
            ("a disk".into(), Box::new(move || never.recv().map_err(io::Error::other))),
            ("a file system".into(), Box::new(|| sync_file_system(Path::new("/nowhere")))),
            ("another".into(), Box::new(|| Err(io::Error::from_raw_os_error(libc::EIO)))),
        ];
        let failed = carry_out(steps, Duration::from_secs(3));
        drop(hung);
        let expected = ["another cannot be written back (Input/output error (os error 5))", "a disk was not written back within 3 s"];
        assert_eq!(failed, expected);
    }

    #[test]
    fn a_pipe_where_a_file_system_was_is_not_waited_for() {
        let directory = tempfile::tempdir().expect("a directory");
        let pipe = directory.path().join("pipe");
        let name = std::ffi::CString::new(pipe.to_str().expect("plain")).expect("no zero byte");
        // SAFETY: a NUL-terminated path.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        drop(sync_file_system(&pipe));
    }
}
