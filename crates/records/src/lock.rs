//! One daemon per state directory, by a lock the kernel drops when the process ends, however it ends.

use api::error::ControlError;
use rustix::fs::FlockOperation;
use std::ffi::CStr;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// What the process is called that holds block devices while there is no daemon.
pub const KEEPER_NAME: &CStr = c"hearth-keeper";
/// What the process is called that goes on in the place of a daemon that does not come back.
pub const RESCUE_NAME: &CStr = c"hearth-rescue";
/// How long to wait for them: they end the devices that nobody has come for, which the kernel may take
/// a minute for.
const KEEPER_PATIENCE: Duration = Duration::from_secs(90);
/// How often to look meanwhile.
const KEEPER_LOOK: Duration = Duration::from_millis(100);
/// Whoever has let go since the lock was asked for holds it no more. A holder that the kernel does not name, as one in another PID
/// namespace, is asked about for so long.
const GONE_PATIENCE: Duration = Duration::from_secs(1);
const GONE_LOOK: Duration = Duration::from_millis(10);

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
        DaemonLock::take_until(path, Instant::now() + KEEPER_PATIENCE)
    }

    /// The same, without waiting for anybody.
    ///
    /// # Errors
    /// As [`DaemonLock::take`].
    pub fn take_now(path: &Path) -> Result<DaemonLock, ControlError> {
        DaemonLock::take_until(path, Instant::now())
    }

    fn take_until(path: &Path, give_up_at: Instant) -> Result<DaemonLock, ControlError> {
        let shown = path.display().to_string();
        let failed = |e: std::io::Error| ControlError::State {
            path: shown.clone(),
            problem: format!("the lock file cannot be opened ({e})"),
            remedy: "make its directory writable, or use another one with --state DIR".into(),
        };
        let gone_until = Instant::now() + GONE_PATIENCE;
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
                    let holder = holder_of(&file);
                    let (wait, until) = match holder.as_deref().map_or(Going::Gone, going) {
                        // They end devices that nobody has come for, and let go.
                        Going::Soon => (KEEPER_LOOK, give_up_at),
                        Going::Gone => (GONE_LOOK, gone_until),
                        Going::Stays => (Duration::ZERO, Instant::now()),
                    };
                    if Instant::now() < until {
                        std::thread::sleep(wait);
                        continue;
                    }
                    let pid = holder.or(written).filter(|pid| !pid.is_empty()).unwrap_or_else(|| "unknown".into());
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

/// What is to be expected of a process that holds the lock.
enum Going {
    /// It lets go by itself.
    Soon,
    /// It has let go, or ended, since it was seen to hold the lock.
    Gone,
    Stays,
}

fn going(pid: &str) -> Going {
    let is_one = |name: &[u8]| [KEEPER_NAME, RESCUE_NAME].iter().any(|one| name.trim_ascii_end() == one.to_bytes());
    match std::fs::read(format!("/proc/{pid}/comm")) {
        Ok(name) if is_one(&name) => Going::Soon,
        Ok(_) => Going::Stays,
        Err(_) => Going::Gone,
    }
}

impl Drop for DaemonLock {
    /// A process that shares the lock and was killed may take its time to end.
    fn drop(&mut self) {
        if let Err(error) = rustix::fs::flock(&self.file, FlockOperation::Unlock) {
            tracing::debug!(%error, "the lock goes with its last holder");
        }
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
        // What an earlier holder left there misleads nobody.
        std::fs::write(&path, "1\n").expect("there is room");
        let error = DaemonLock::take(&path).expect_err("it is held");
        assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
        drop(first);
        DaemonLock::take(&path).expect("it was dropped");
    }

    #[test]
    fn who_holds_the_exports_is_waited_for() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("lock");
        drop(DaemonLock::take(&path).expect("nobody has it"));
        // A process of that name, which is that of its file, has the lock for a moment.
        let named = directory.path().join("hearth-keeper");
        std::os::unix::fs::symlink("/usr/bin/flock", &named).expect("an empty directory");
        let mut keeper = std::process::Command::new(named);
        keeper.arg(&path).args(["sh", "-c", "echo has it; cat"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut keeper = keeper.spawn().expect("bash");
        let mut told = [0; 7];
        keeper.stdout.take().expect("piped").read_exact(&mut told).expect("it has the lock");
        let waits = std::thread::spawn(move || DaemonLock::take(&path).map(drop));
        std::thread::sleep(KEEPER_LOOK * 3);
        assert!(!waits.is_finished(), "it is waited for");
        drop(keeper.stdin.take());
        waits.join().expect("no panic").expect("it has let go");
        keeper.wait().expect("it ends");
    }

    /// A daemon that starts at the moment at which the one before ends: who is named holds it, not who wrote its number there once.
    #[test]
    fn who_has_let_go_is_not_named() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("lock");
        drop(DaemonLock::take(&path).expect("nobody has it"));
        for _ in 0..40 {
            let mut holder = std::process::Command::new("/usr/bin/flock");
            holder.arg(&path).args(["sh", "-c", "echo has it"]).stdout(Stdio::piped());
            let mut holder = holder.spawn().expect("flock");
            let mut told = [0; 7];
            holder.stdout.take().expect("piped").read_exact(&mut told).expect("it has the lock");
            let lock = loop {
                match DaemonLock::take_now(&path) {
                    Ok(lock) => break lock,
                    Err(ControlError::SecondDaemon { pid, .. }) => assert_eq!(pid, holder.id().to_string()),
                    Err(error) => panic!("{error}"),
                }
            };
            drop(lock);
            holder.wait().expect("it ends");
        }
    }
}
