//! Which processes of this machine have a connection to which export. The kernel's NBD client tells the process that connected a device
//! (`/sys/block/nbdN/pid`), so a device that leads to an export of this very process is known by it.

use rustix::net::sockopt;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};

struct Served {
    pid: u32,
    export: String,
    socket: Weak<OwnedFd>,
}

static SERVED: Mutex<Vec<Served>> = Mutex::new(Vec::new());

/// A connection on a Unix socket is a client's of the export from now on, as long as its socket lives.
pub(crate) fn note(socket: &Arc<OwnedFd>, export: &str) {
    let Ok(peer) = sockopt::socket_peercred(socket) else { return };
    let pid = peer.pid.as_raw_nonzero().get().unsigned_abs();
    // No code that may panic runs while it is held.
    let mut served = SERVED.lock().unwrap_or_else(PoisonError::into_inner);
    served.retain(|known| known.socket.strong_count() > 0);
    served.push(Served { pid, export: export.to_owned(), socket: Arc::downgrade(socket) });
}

/// The export of this process that the process of that number is connected to, if it is. A process that has connected a socket for the
/// kernel may be gone itself.
pub fn export_served_to(pid: u32) -> Option<String> {
    let served = SERVED.lock().unwrap_or_else(PoisonError::into_inner);
    served.iter().find(|known| known.pid == pid && known.socket.strong_count() > 0).map(|known| known.export.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_process_is_known_as_long_as_its_connection_lives() {
        let (ours, _theirs) = UnixStream::pair().expect("a pair of sockets");
        let socket = Arc::new(OwnedFd::from(ours));
        assert_eq!(export_served_to(std::process::id()), None);
        note(&socket, "disk");
        assert_eq!(export_served_to(std::process::id()).as_deref(), Some("disk"));
        drop(socket);
        assert_eq!(export_served_to(std::process::id()), None);
    }
}
