//! Bringing home what lies in memory above a device: the file systems on it and on what stands on it, then the page caches of all these
//! devices, from the top down.

use crate::loopsys;
use crate::loopusers::stack_on;
use crate::ownloop::OwnLoop;
use crate::patience::within;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Writes back all there is, within that time at the most. What hangs gets half of what is left, so that the others have their turn.
///
/// # Errors
/// What went wrong, one sentence each; everything has been tried.
pub(crate) fn write_back(own: &OwnLoop, patience: Duration) -> Result<(), Vec<String>> {
    let deadline = Instant::now() + patience;
    let mut failed = Vec::new();
    let mut step = |what: String, work: Box<dyn FnOnce() -> io::Result<()> + Send>| {
        let left = deadline.saturating_duration_since(Instant::now()) / 2;
        match within(left, "write-back", work) {
            Some(Ok(())) => {}
            Some(Err(error)) => failed.push(format!("{what} cannot be written back ({error})")),
            None => failed.push(format!("{what} was not written back within {} s", left.as_secs())),
        }
    };
    let looked = own.clone();
    // Held open while it is looked at, so that the number stays ours.
    let look = move || match looked.open().map_err(io::Error::other)? {
        Some(_node) => stack_on(looked.number()).map(Some),
        None => Ok(None),
    };
    let stack = match within(patience / 2, "look-up", look) {
        Some(Ok(Some(stack))) => stack,
        // It was taken away, and what was above it with it.
        Some(Ok(None)) => return Ok(()),
        Some(Err(error)) => return Err(vec![error.to_string()]),
        None => return Err(vec![format!("what uses {} cannot be found out", own.path().display())]),
    };
    for point in stack.mounts {
        step(format!("the file system at {}", point.display()), Box::new(move || sync_file_system(&point)));
    }
    for (device, name) in stack.devices {
        let path = PathBuf::from(format!("/dev/{}", name.replace('!', "/")));
        let own = own.clone();
        step(format!("{}", path.display()), Box::new(move || flush(&path, device, &own)));
    }
    if failed.is_empty() { Ok(()) } else { Err(failed) }
}

fn sync_file_system(point: &Path) -> io::Result<()> {
    let root = File::open(point)?;
    // SAFETY: the descriptor is open.
    if unsafe { libc::syncfs(root.as_raw_fd()) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Also the file system directly on the device, in whatever mount namespace it is mounted.
fn flush(path: &Path, number: u64, own: &OwnLoop) -> io::Result<()> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_CLOEXEC | libc::O_NONBLOCK).open(path)?;
    let is_ours = path != own.path() || own.open().map_err(io::Error::other)?.is_some();
    if file.metadata()?.rdev() != number || !is_ours {
        // The name is another's by now.
        return Ok(());
    }
    loopsys::flush_buffers(&file)?;
    file.sync_all()
}
