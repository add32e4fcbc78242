//! One daemon per state directory, by a lock the kernel drops when the process ends, however it ends.

use crate::error::ControlError;
use rustix::fs::FlockOperation;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::Stdio;

/// The lock; held while the value lives.
#[derive(Debug)]
pub struct DaemonLock {
    file: File,
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
        let mut file = loop {
            let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path).map_err(failed)?;
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                // A lock on a file whose name somebody has removed keeps nobody out.
                Ok(()) if is_at(&file, path).map_err(failed)? => break file,
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    let mut text = String::new();
                    // What is written there may be of an earlier holder, while the present one is about to write its id: the kernel knows.
                    let written = file.read_to_string(&mut text).ok().map(|_| text.trim().to_string());
                    let pid = holder_of(&file).or(written).filter(|pid| !pid.is_empty()).unwrap_or_else(|| "unknown".into());
                    return Err(ControlError::SecondDaemon { pid, path: shown });
                }
                Err(e) => return Err(failed(e.into())),
            }
        };
        let write = |file: &mut File| -> std::io::Result<()> {
            file.set_len(0)?;
            file.rewind()?;
            writeln!(file, "{}", std::process::id())
        };
        write(&mut file).map_err(failed)?;
        Ok(DaemonLock { file })
    }

    /// A copy for the standard input of a process that goes on under this lock, also when this one ends.
    ///
    /// # Errors
    /// The system's.
    pub fn share(&self) -> std::io::Result<Stdio> {
        self.file.try_clone().map(Stdio::from)
    }
}

/// Whether the path still leads to the open file.
fn is_at(file: &File, path: &Path) -> std::io::Result<bool> {
    let ours = file.metadata()?;
    match std::fs::metadata(path) {
        Ok(there) => Ok((there.dev(), there.ino()) == (ours.dev(), ours.ino())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// The process that holds a lock on the file, by the kernel's list (proc(5), locks): "1: FLOCK ADVISORY WRITE 812 fe:00:4711 0 EOF".
fn holder_of(file: &File) -> Option<String> {
    let facts = file.metadata().ok()?;
    let place = format!("{:02x}:{:02x}:{}", rustix::fs::major(facts.dev()), rustix::fs::minor(facts.dev()), facts.ino());
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        (fields.get(1) == Some(&"FLOCK") && fields.get(5) == Some(&place.as_str())).then(|| fields[4].to_string())
    })
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
        // What an earlier holder left there misleads nobody.
        std::fs::write(&path, "1\n").expect("there is room");
        let error = DaemonLock::take(&path).expect_err("it is held");
        assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
        drop(first);
        DaemonLock::take(&path).expect("it was dropped");
    }
}
