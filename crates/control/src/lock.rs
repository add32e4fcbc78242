//! One daemon per state directory, by a lock the kernel drops when the process ends, however it ends.

use crate::error::ControlError;
use rustix::fs::FlockOperation;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The lock; held while the value lives.
#[derive(Debug)]
pub struct DaemonLock {
    _file: File,
}

impl DaemonLock {
    /// Takes the lock `path` and writes this process's id into it. The file stays when the daemon ends: removing it
    /// would open a race in which two daemons hold two files of the same name.
    ///
    /// # Errors
    /// [`ControlError::SecondDaemon`] if somebody holds it, [`ControlError::State`] if the file cannot be used.
    pub fn take(path: &Path) -> Result<DaemonLock, ControlError> {
        let shown = path.display().to_string();
        let failed = |e: std::io::Error| ControlError::State {
            path: shown.clone(),
            problem: format!("the lock file cannot be opened ({e})"),
            remedy: "make its directory writable, or use another one with --state DIR".into(),
        };
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path).map_err(failed)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut text = String::new();
                // Whoever holds it may be about to write its id: no id is no reason to fail differently.
                let read = file.read_to_string(&mut text).unwrap_or(0);
                let pid = if read == 0 { "unknown".into() } else { text.trim().into() };
                return Err(ControlError::SecondDaemon { pid, path: shown });
            }
            Err(e) => return Err(failed(e.into())),
        }
        let write = |file: &mut File| -> std::io::Result<()> {
            file.set_len(0)?;
            file.rewind()?;
            writeln!(file, "{}", std::process::id())
        };
        write(&mut file).map_err(failed)?;
        Ok(DaemonLock { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_is_told_who_is_first() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("lock");
        let first = DaemonLock::take(&path).expect("nobody has it");
        let error = DaemonLock::take(&path).expect_err("it is held");
        assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
        drop(first);
        DaemonLock::take(&path).expect("it was dropped");
    }
}
