//! Descriptors that outlive the daemon.
//!
//! The kernel ends what a process serves when the last copy of a descriptor is closed: the requests
//! of a FUSE mount fail when its `/dev/fuse` goes. Somebody else who holds a copy keeps the mount
//! alive until the next daemon takes it over. That is the service manager where it offers a
//! descriptor store (systemd's `FileDescriptorStoreMax=`), else a small process of our own.
//!
//! ```text
//!   Keeper::open ─▶ take: what an earlier daemon left ─▶ keep, forget, any number
//! ```
//! Rooms: `service` talks to the service manager; `process` starts the process of our own and talks
//! to it; [`holder`] is that process; `wire` is how descriptors travel.
//!
//! A name stands for one set of descriptors. Keeping another set under it replaces the first.

pub mod holder;
mod process;
mod service;
mod wire;

use process::Process;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::fcntl_dupfd_cloexec;
use service::Service;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// Most descriptors under one name.
pub const DESCRIPTORS_MAX: usize = 4;
/// Longest name, in bytes. systemd takes 255 for a descriptor; a set adds a number to each.
pub const NAME_BYTES_MAX: usize = 240;

/// Sets of descriptors by name.
pub type Kept = BTreeMap<String, Vec<OwnedFd>>;

/// The name of the socket at which a process of our own listens, in its directory.
pub const SOCKET: &str = "keeper.sock";

/// How a process of our own is started.
#[derive(Clone, Debug)]
pub struct ProcessOptions {
    /// A directory that is this daemon's alone, and stays the same: there the process listens.
    pub directory: PathBuf,
    /// The program, and arguments that make it call [`holder::hold`]; the listening socket is its
    /// standard input.
    pub program: PathBuf,
    /// See `program`.
    pub arguments: Vec<OsString>,
}

/// Who holds descriptors for the next daemon.
#[derive(Debug)]
pub struct Keeper {
    holder: Holder,
}

#[derive(Debug)]
enum Holder {
    Service(Service),
    Process(Arc<Process>),
}

impl Keeper {
    /// The service manager's store where there is one, else a process of our own, which is started
    /// when something is to be kept.
    pub fn open(options: ProcessOptions) -> Keeper {
        let holder = match Service::of_environment() {
            Some(service) => Holder::Service(service),
            None => Holder::Process(Arc::new(Process::new(options))),
        };
        Keeper { holder }
    }

    /// What an earlier daemon has left; once, before anything is kept. It stays in the keeper until
    /// it is forgotten.
    ///
    /// # Errors
    /// The system's. Then nothing was taken.
    pub fn take(&self) -> io::Result<Kept> {
        match &self.holder {
            Holder::Service(service) => Ok(service.take()),
            Holder::Process(process) => {
                let mut kept = process.take()?;
                kept.retain(|name, _| !name.starts_with(LIMIT));
                Ok(kept)
            }
        }
    }

    /// Keeps copies of these descriptors. Afterwards they are safe: the daemon may end at any
    /// moment.
    ///
    /// # Errors
    /// The system's, or [`io::ErrorKind::InvalidInput`] for a name or a count that cannot be kept.
    pub fn keep(&self, name: &str, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let bad_name = name.is_empty() || name.len() > NAME_BYTES_MAX || name.bytes().any(|b| !b.is_ascii_graphic() || b == b':');
        if bad_name || descriptors.is_empty() || descriptors.len() > DESCRIPTORS_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        match &self.holder {
            Holder::Service(service) => service.keep(name, descriptors),
            Holder::Process(process) => process.keep(name, copies(descriptors)?),
        }
    }

    /// Lets a set go; it is no failure if there is none. What the kernel does for it ends when the
    /// daemon has closed its own copies, too.
    pub fn forget(&self, name: &str) {
        let forgotten = match &self.holder {
            Holder::Service(service) => service.forget(name),
            Holder::Process(process) => process.forget(name).and_then(|()| process.forget(&limit_name(name))),
        };
        if let Err(error) = forgotten {
            tracing::warn!(name, %error, "descriptors that are not needed any more may still be held");
        }
    }

    /// Lets a set go when there was no daemon for so long; `None`: with all others. A service manager
    /// has its own limits.
    ///
    /// # Errors
    /// The system's.
    pub fn limit(&self, name: &str, limit: Option<Duration>) -> io::Result<()> {
        let Holder::Process(process) = &self.holder else { return Ok(()) };
        match limit {
            Some(limit) => process.keep(&limit_name(name), vec![limit_descriptor(limit)?]),
            None => process.forget(&limit_name(name)),
        }
    }

    /// Whether what is kept outlives a stop that is asked for, not only a crash. A service manager
    /// that restarts the daemon hands everything back, and one that stops it lets everything go.
    pub fn outlives_a_stop(&self) -> bool {
        matches!(self.holder, Holder::Service(_))
    }
}

/// How the name of a set's limit begins; the set's name follows. It holds one file with the
/// milliseconds as text, so a holder that knows no limits keeps it as any other set.
const LIMIT: &str = "limit.";

fn limit_name(name: &str) -> String {
    format!("{LIMIT}{name}")
}

fn limit_descriptor(limit: Duration) -> io::Result<OwnedFd> {
    let mut memory = File::from(memfd_create("hearth-limit", MemfdFlags::CLOEXEC)?);
    memory.write_all(limit.as_millis().to_string().as_bytes())?;
    Ok(memory.into())
}

fn limit_of(set: &[OwnedFd]) -> Option<Duration> {
    let mut bytes = [0; 32];
    let read = rustix::io::pread(set.first()?, &mut bytes, 0).ok()?;
    std::str::from_utf8(&bytes[..read]).ok()?.parse().ok().map(Duration::from_millis)
}

fn copies(descriptors: &[BorrowedFd<'_>]) -> io::Result<Vec<OwnedFd>> {
    descriptors.iter().map(|fd| fcntl_dupfd_cloexec(fd, 3).map_err(io::Error::from)).collect()
}

fn borrowed(descriptors: &[OwnedFd]) -> Vec<BorrowedFd<'_>> {
    descriptors.iter().map(AsFd::as_fd).collect()
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no holder of this lock panics")
}
