//! The descriptor store of a service manager (sd_notify(3), sd_listen_fds(3)).
//!
//! A set's descriptors get the names `NAME.0`, `NAME.1` and so on: the store gives them back one by
//! one.

use crate::{Kept, wire};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Mutex;

/// The first descriptor that is handed over (`SD_LISTEN_FDS_START`).
const FIRST: i32 = 3;

/// A service manager with room for descriptors.
#[derive(Debug)]
pub(crate) struct Service {
    socket: OwnedFd,
    address: SocketAddrUnix,
    /// How many descriptors there is room for. More are refused without a word.
    room: usize,
    /// How many descriptors a set has, so that all are removed.
    counts: Mutex<BTreeMap<String, usize>>,
}

impl Service {
    /// The one that has started this process, if it keeps descriptors: `FDSTORE` says so. systemd
    /// sets it from version 254 on; our unit sets it for those before.
    pub(crate) fn of_environment() -> Option<Service> {
        let room: u32 = std::env::var("FDSTORE").ok()?.parse().ok()?;
        let path = std::env::var_os("NOTIFY_SOCKET").filter(|_| room > 0)?;
        let bytes = std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str());
        let address = match bytes.strip_prefix(b"@") {
            Some(name) => SocketAddrUnix::new_abstract_name(name),
            None => SocketAddrUnix::new(bytes),
        };
        let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
        match (address, socket) {
            (Ok(address), Ok(socket)) => Some(Service { socket, address, room: room as usize, counts: Mutex::default() }),
            (Err(error), _) | (_, Err(error)) => {
                tracing::warn!(%error, "the service manager cannot be asked to keep descriptors");
                None
            }
        }
    }

    /// What was handed over to this process.
    pub(crate) fn take(&self) -> Kept {
        let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u32>().ok());
        if number("LISTEN_PID") != Some(std::process::id()) {
            return Kept::new();
        }
        let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut sets: BTreeMap<String, BTreeMap<usize, OwnedFd>> = BTreeMap::new();
        for (raw, name) in (FIRST..FIRST + number("LISTEN_FDS").unwrap_or(0) as i32).zip(names.split(':')) {
            // SAFETY: the manager has opened it for this process, which asks once, before anything
            // else is opened under this number.
            let descriptor = unsafe { OwnedFd::from_raw_fd(raw) };
            if let Err(error) = rustix::io::fcntl_setfd(&descriptor, rustix::io::FdFlags::CLOEXEC) {
                tracing::warn!(name, %error, "a descriptor that was handed over cannot be used");
                continue;
            }
            match name.rsplit_once('.').and_then(|(set, at)| Some((set, at.parse().ok()?))) {
                Some((set, at)) => drop(sets.entry(set.to_owned()).or_default().insert(at, descriptor)),
                None => tracing::warn!(name, "a descriptor of an unknown name was handed over"),
            }
        }
        let mut counts = crate::locked(&self.counts);
        for (name, set) in &sets {
            counts.insert(name.clone(), set.keys().last().map_or(0, |last| last + 1));
        }
        sets.into_iter().map(|(name, set)| (name, set.into_values().collect())).collect()
    }

    pub(crate) fn keep(&self, name: &str, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.forget(name)?;
        {
            let mut counts = crate::locked(&self.counts);
            if counts.values().sum::<usize>() + descriptors.len() > self.room {
                let problem = format!("the service manager keeps {} descriptors at most: raise FileDescriptorStoreMax=", self.room);
                return Err(io::Error::other(problem));
            }
            // Before the first is sent: what did not get there is removed without harm.
            counts.insert(name.to_owned(), descriptors.len());
        }
        for (at, descriptor) in descriptors.iter().enumerate() {
            // Without FDPOLL=0 it would be let go as soon as it reports an error.
            let text = format!("FDSTORE=1\nFDPOLL=0\nFDNAME={name}.{at}");
            wire::send_to(self.socket.as_fd(), &self.address, &text, &[*descriptor])?;
        }
        Ok(())
    }

    pub(crate) fn forget(&self, name: &str) -> io::Result<()> {
        let count = crate::locked(&self.counts).remove(name).unwrap_or(0);
        for at in 0..count {
            let text = format!("FDSTOREREMOVE=1\nFDNAME={name}.{at}");
            wire::send_to(self.socket.as_fd(), &self.address, &text, &[])?;
        }
        Ok(())
    }
}
