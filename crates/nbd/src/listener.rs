//! The listening socket: made, accepted from, and taken away.

use crate::address::ListenSpec;
use crate::connection::Connection;
use crate::door::Peer;
use crate::exports::{Shared, count};
use io_uring::{opcode, types::Fd};
use runtime::{Context, Endpoint};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use shares::Seldom;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;
/// After accepting has failed, most likely for want of descriptors or memory, it rests for this long.
const REST_NS: u64 = 100_000_000;
/// A client that has said nothing for so long is asked whether it is still there; so often, and so many times, before it is given up.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEPALIVE_PROBES: u32 = 4;
/// The log tells of that at most this often.
const TELL_EVERY_NS: u64 = 10_000_000_000;
/// Connections beyond the limits that may be on their way out: they end as soon as a reactor looks at them.
const LEAVING_MAX: usize = 64;

const ACCEPT: u32 = 1;
const REST_TIMER: u32 = 1;
const WAITING_TIMER: u32 = 2;
/// How long until one that has to wait is tried again.
const WAITING_POLL_NS: u64 = 2_000_000;

/// Why a server could not listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Somebody answers there.
    #[error("another program listens on '{}'; stop it or choose another path", .0.display())]
    InUse(PathBuf),
    /// Somebody has the port.
    #[error("another program listens on {0}; stop it or choose another port")]
    PortTaken(SocketAddr),
    /// Something else has that name.
    #[error("'{}' exists and is not a socket; choose another path", .0.display())]
    NotASocket(PathBuf),
    /// The address can be reached from other machines.
    #[error("{0} is not a loopback address; without TLS, NBD is only served on 127.0.0.0/8, [::1] or a Unix socket")]
    NotLoopback(SocketAddr),
    /// The daemon may use Unix sockets only.
    #[error(
        "this daemon may use Unix sockets only, so it cannot listen on {0}; if systemd runs it, run `systemctl edit hearth` and add these lines \
         under [Service]: RestrictAddressFamilies=AF_INET AF_INET6 and IPAddressAllow=localhost, or the network of its clients"
    )]
    NoNetwork(SocketAddr),
    /// A system call failed.
    #[error("cannot {doing} '{place}' ({source})")]
    System {
        /// What was being done.
        doing: &'static str,
        /// To which path or address.
        place: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// A path that is ours for as long as this lives.
#[derive(Debug)]
pub(crate) struct SocketPath {
    /// Held for as long, so that no two servers clear the same name at the same time.
    _lock: PathLock,
    path: PathBuf,
    /// Device and inode, so that a successor's socket of the same name is not removed; `None` if it
    /// stays.
    identity: Option<(u64, u64)>,
}

impl SocketPath {
    /// Leaves the socket to another server. Gives what that knows it by.
    pub(crate) fn leave(&mut self) -> Vec<u8> {
        let (device, inode) = self.identity.take().unwrap_or_default();
        [device.to_be_bytes(), inode.to_be_bytes()].concat()
    }
}

impl Drop for SocketPath {
    fn drop(&mut self) {
        let ours = std::fs::symlink_metadata(&self.path).is_ok_and(|found| Some((found.dev(), found.ino())) == self.identity);
        if ours && let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!(%error, path = %self.path.display(), "socket not removed");
        }
    }
}

/// Another server may remove its lock file between our opening and our lock; so often in a row, somebody keeps doing that.
const LOCK_TRIES: u32 = 100;

/// A lock file beside a socket, of the same name with `.lock` behind it; removed with the lock, under the lock.
#[derive(Debug)]
struct PathLock {
    file: std::fs::File,
    path: PathBuf,
}

impl PathLock {
    fn take(socket: &Path) -> Result<PathLock, ListenError> {
        let mut name = socket.as_os_str().to_owned();
        name.push(".lock");
        let path = PathBuf::from(name);
        let failed = |source| ListenError::System { doing: "lock", place: path.display().to_string(), source };
        let mut options = std::fs::OpenOptions::new();
        // What somebody else has put there is not followed, and not waited for.
        options.write(true).create(true).truncate(false).mode(0o600).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        for _ in 0..LOCK_TRIES {
            let file = options.open(&path).map_err(failed)?;
            if !file.metadata().map_err(failed)?.is_file() {
                return Err(failed(std::io::Error::other("it is no file: remove it")));
            }
            match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
                Err(rustix::io::Errno::WOULDBLOCK) => return Err(ListenError::InUse(socket.to_owned())),
                Err(errno) => return Err(failed(errno.into())),
                // Its last holder may have removed it between our opening and our lock.
                Ok(()) if is_at(&file, &path) => return Ok(PathLock { file, path }),
                Ok(()) => {}
            }
        }
        Err(ListenError::InUse(socket.to_owned()))
    }
}

impl Drop for PathLock {
    fn drop(&mut self) {
        if is_at(&self.file, &self.path)
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::debug!(%error, path = %self.path.display(), "lock file not removed");
        }
    }
}

/// Whether the path still leads to the open file.
fn is_at(file: &std::fs::File, path: &Path) -> bool {
    let place = |facts: std::fs::Metadata| (facts.dev(), facts.ino());
    file.metadata().ok().map(place).is_some_and(|ours| std::fs::symlink_metadata(path).is_ok_and(|there| place(there) == ours))
}

/// A socket that listens.
#[derive(Debug)]
pub(crate) struct Listening {
    pub(crate) socket: OwnedFd,
    pub(crate) path: Option<SocketPath>,
    /// The address, with the port that the kernel chose.
    pub(crate) address: Option<SocketAddr>,
}

fn system(doing: &'static str, place: &impl ToString) -> impl FnOnce(rustix::io::Errno) -> ListenError {
    let place = place.to_string();
    move |errno| ListenError::System { doing, place, source: errno.into() }
}

/// Goes on listening on a socket that another server has left, if its path is as that has left it.
pub(crate) fn listen_again(path: &Path, socket: OwnedFd, known_by: &[u8]) -> Result<Option<Listening>, ListenError> {
    let lock = PathLock::take(path)?;
    let Ok(found) = std::fs::symlink_metadata(path) else { return Ok(None) };
    let is_its = [found.dev().to_be_bytes(), found.ino().to_be_bytes()].concat() == known_by;
    if !is_its || !found.file_type().is_socket() {
        return Ok(None);
    }
    let guard = SocketPath { _lock: lock, path: path.to_owned(), identity: Some((found.dev(), found.ino())) };
    Ok(Some(Listening { socket, path: Some(guard), address: None }))
}

/// Makes the socket that `spec` describes.
pub(crate) fn listen(spec: &ListenSpec) -> Result<Listening, ListenError> {
    match spec {
        ListenSpec::Unix { path, mode, group } => listen_unix(path, *mode, *group),
        ListenSpec::Tcp(address) if !address.ip().is_loopback() => Err(ListenError::NotLoopback(*address)),
        ListenSpec::Tcp(address) => listen_tcp(*address),
    }
}

fn listen_unix(path: &Path, mode: u32, group: Option<u32>) -> Result<Listening, ListenError> {
    let place = path.display().to_string();
    let failed = |doing| system(doing, &place);
    let address = SocketAddrUnix::new(path).map_err(failed("use the socket path"))?;
    let lock = PathLock::take(path)?;
    remove_stale(path, &address)?;
    let socket = stream_socket(AddressFamily::UNIX).map_err(failed("make a socket for"))?;
    rustix::net::bind(&socket, &address).map_err(failed("bind"))?;
    let found = std::fs::symlink_metadata(path);
    let found = found.map_err(|source| ListenError::System { doing: "look at", place: place.clone(), source })?;
    let guard = SocketPath { _lock: lock, path: path.to_owned(), identity: Some((found.dev(), found.ino())) };
    // Nobody can connect before `listen`, so mode and group are in force from the first client on.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
        .and_then(|()| match group.filter(|group| *group != found.gid()) {
            Some(group) => std::os::unix::fs::chown(path, None, Some(group)),
            // The unit allows no chown, and needs none: the daemon runs with the group that its sockets are to have.
            None => Ok(()),
        })
        .map_err(|source| ListenError::System { doing: "set mode and group of", place: place.clone(), source })?;
    rustix::net::listen(&socket, BACKLOG).map_err(failed("listen on"))?;
    Ok(Listening { socket, path: Some(guard), address: None })
}

/// Removes a socket that nobody listens on any more.
fn remove_stale(path: &Path, address: &SocketAddrUnix) -> Result<(), ListenError> {
    let place = path.display().to_string();
    let found = match std::fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => {
            return Err(ListenError::System { doing: "look at", place, source });
        }
    };
    if !found.file_type().is_socket() {
        return Err(ListenError::NotASocket(path.to_owned()));
    }
    let probe = stream_socket(AddressFamily::UNIX).map_err(system("make a socket for", &place))?;
    match rustix::net::connect(&probe, address) {
        Err(rustix::io::Errno::CONNREFUSED) => {
            // Only what was asked is removed: who takes no lock may have come meanwhile.
            if std::fs::symlink_metadata(path).is_ok_and(|now| (now.dev(), now.ino()) != (found.dev(), found.ino())) {
                return Err(ListenError::InUse(path.to_owned()));
            }
            std::fs::remove_file(path).map_err(|source| ListenError::System { doing: "remove the stale socket", place, source })
        }
        Err(rustix::io::Errno::NOENT) => Ok(()),
        Ok(()) | Err(rustix::io::Errno::AGAIN) => Err(ListenError::InUse(path.to_owned())),
        Err(errno) => Err(system("find out who listens on", &place)(errno)),
    }
}

/// Anywhere: the caller sees to TLS. An address that no network interface has yet will do: at a boot
/// the network may come later.
pub(crate) fn listen_tcp(address: SocketAddr) -> Result<Listening, ListenError> {
    let failed = |doing| system(doing, &address);
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = stream_socket(family).map_err(|errno| match errno {
        rustix::io::Errno::AFNOSUPPORT => ListenError::NoNetwork(address),
        errno => failed("make a socket for")(errno),
    })?;
    sockopt::set_socket_reuseaddr(&socket, true).map_err(failed("prepare"))?;
    let bound = match rustix::net::bind(&socket, &address) {
        Err(rustix::io::Errno::ADDRNOTAVAIL) => {
            let freed = if address.is_ipv4() { sockopt::set_ip_freebind(&socket, true) } else { sockopt::set_ipv6_freebind(&socket, true) };
            freed.and_then(|()| rustix::net::bind(&socket, &address))
        }
        bound => bound,
    };
    // The kernel may find out only when it is to listen.
    let taken = |doing| {
        move |errno| match errno {
            rustix::io::Errno::ADDRINUSE => ListenError::PortTaken(address),
            errno => failed(doing)(errno),
        }
    };
    bound.map_err(taken("bind"))?;
    rustix::net::listen(&socket, BACKLOG).map_err(taken("listen on"))?;
    let bound = rustix::net::getsockname(&socket).map_err(failed("find the port of"))?;
    Ok(Listening { socket, path: None, address: SocketAddr::try_from(bound).ok() })
}

/// Blocking, because the ring itself waits for readiness and treats non-blocking sockets as a wish not to wait.
fn stream_socket(family: AddressFamily) -> rustix::io::Result<OwnedFd> {
    rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)
}

/// The endpoint that accepts connections.
pub(crate) struct Listener {
    socket: OwnedFd,
    is_unix: bool,
    shared: Arc<Shared>,
    accepting: bool,
    /// One that was accepted and has to wait until others have had their time; nothing is accepted meanwhile.
    waiting: Option<(Arc<OwnedFd>, Peer)>,
    stopping: bool,
    closed: bool,
    failures: Seldom,
}

impl Listener {
    pub(crate) fn new(socket: OwnedFd, is_unix: bool, shared: Arc<Shared>) -> Listener {
        Listener {
            socket,
            is_unix,
            shared,
            accepting: false,
            waiting: None,
            stopping: false,
            closed: false,
            failures: Seldom::every(TELL_EVERY_NS),
        }
    }

    fn accept(&mut self, cx: &mut Context<'_>) {
        if self.accepting || self.stopping || self.waiting.is_some() {
            return;
        }
        self.accepting = true;
        // One at a time, so that a flood finds this thread between two of its connections, and others within it.
        let entry = opcode::Accept::new(Fd(self.socket.as_raw_fd()), std::ptr::null_mut(), std::ptr::null_mut());
        let entry = entry.flags(libc::SOCK_CLOEXEC).build();
        // SAFETY: the entry names no memory; the socket is open until this endpoint is dropped.
        unsafe { cx.push(entry, ACCEPT) };
    }

    fn accepted(&mut self, cx: &mut Context<'_>, socket: OwnedFd) {
        let counters = &self.shared.counters;
        count(&counters.accepted);
        if self.stopping {
            return;
        }
        let limits = &self.shared.limits;
        let before = counters.connections.fetch_add(1, Ordering::Relaxed);
        if before >= limits.connections_max + limits.handshakes_max + LEAVING_MAX {
            counters.connections.fetch_sub(1, Ordering::Relaxed);
            count(&counters.turned_away);
            tracing::debug!(connections = before, "connection refused: too many clients");
            return;
        }
        let peer = peer_of(self.is_unix, &socket);
        self.let_in(cx, Arc::new(socket), peer);
    }

    /// Lets a connection in, now or as soon as others have had their time.
    fn let_in(&mut self, cx: &mut Context<'_>, socket: Arc<OwnedFd>, peer: Peer) {
        let Some((visit, gave_way)) = self.shared.door.arrive(peer, &socket, cx.now_ns()) else {
            self.waiting = Some((socket, peer));
            return cx.set_timer(cx.now_ns() + WAITING_POLL_NS, WAITING_TIMER);
        };
        if gave_way {
            count(&self.shared.counters.gave_way);
        }
        cx.add_endpoint(Box::new(Connection::new(socket, self.shared.clone(), visit)));
    }

    /// Accepting has failed. What a client that leaves at once may cause is tried again at once; all else after a rest, or this thread
    /// would do nothing else. If descriptors are short, a connection that has not proved itself makes room.
    fn failed(&mut self, cx: &mut Context<'_>, errno: i32) {
        if matches!(errno, libc::ECONNABORTED | libc::EINTR | libc::ECANCELED) {
            return self.accept(cx);
        }
        cx.set_timer(cx.now_ns() + REST_NS, REST_TIMER);
        // Without a descriptor to spare, accepting fails also where nobody waits.
        let mut waiting = [PollFd::new(&self.socket, PollFlags::IN)];
        if rustix::event::poll(&mut waiting, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) == Ok(0) {
            return;
        }
        let made_room = matches!(errno, libc::EMFILE | libc::ENFILE) && self.shared.door.make_room();
        if made_room {
            count(&self.shared.counters.gave_way);
        }
        if let Some(times) = self.failures.happened(cx.now_ns()) {
            let error = io::Error::from_raw_os_error(errno);
            tracing::warn!(times, "an NBD connection cannot be accepted yet ({error}); it waits");
        }
    }
}

/// Whose connection it is.
pub(crate) fn peer_of(is_unix: bool, socket: &OwnedFd) -> Peer {
    if is_unix {
        return sockopt::socket_peercred(socket).map_or(Peer::Unknown, |peer| Peer::User(peer.uid.as_raw()));
    }
    if let Err(error) = sockopt::set_tcp_nodelay(socket, true) {
        tracing::debug!(%error, "replies may be delayed");
    }
    if let Err(error) = notice_death(socket) {
        tracing::debug!(%error, "a client whose machine has gone may not be noticed");
    }
    let address = rustix::net::getpeername(socket).ok().flatten().and_then(|address| SocketAddr::try_from(address).ok());
    address.map_or(Peer::Unknown, |address| Peer::Address(address.ip()))
}

/// A client whose machine has gone says no goodbye, and an idle connection stays for ever if nobody asks.
///
/// Data that nobody acknowledges ends one by the kernel's own limit. A shorter one of ours (`TCP_USER_TIMEOUT`) would end clients that
/// live and read nothing for a while, as a virtual machine that is stopped.
fn notice_death(socket: &OwnedFd) -> rustix::io::Result<()> {
    sockopt::set_tcp_keepidle(socket, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(socket, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(socket, KEEPALIVE_PROBES)?;
    sockopt::set_socket_keepalive(socket, true)
}

impl Endpoint for Listener {
    fn start(&mut self, cx: &mut Context<'_>) {
        self.accept(cx);
    }

    fn ring(&mut self, cx: &mut Context<'_>, _token: u32, result: i32, _flags: u32) {
        if result >= 0 {
            // SAFETY: a successful accept hands over a new descriptor, and it comes to nobody but us.
            self.accepted(cx, unsafe { OwnedFd::from_raw_fd(result) });
        }
        self.accepting = false;
        if self.stopping {
            return self.close(cx);
        }
        if result < 0 { self.failed(cx, -result) } else { self.accept(cx) }
    }

    fn reply(&mut self, _cx: &mut Context<'_>, _reply: engine::api::Reply) {
        unreachable!("a listener submits no requests");
    }

    fn timer(&mut self, cx: &mut Context<'_>, token: u32) {
        if token == WAITING_TIMER
            && !self.stopping
            && let Some((socket, peer)) = self.waiting.take()
        {
            self.let_in(cx, socket, peer);
        }
        self.accept(cx);
    }

    fn stop(&mut self, cx: &mut Context<'_>) {
        self.stopping = true;
        if self.waiting.take().is_some() {
            self.shared.counters.connections.fetch_sub(1, Ordering::Relaxed);
        }
        // A descriptor accepted after `close` would be lost: wait for the last completion.
        if self.accepting { cx.cancel(ACCEPT) } else { self.close(cx) }
    }
}

impl Listener {
    fn close(&mut self, cx: &mut Context<'_>) {
        if !self.closed {
            self.closed = true;
            cx.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_over_tcp_is_asked_whether_it_is_still_there() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback is there");
        let _client = std::net::TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        let socket = OwnedFd::from(listener.accept().expect("one has come").0);
        assert!(!sockopt::socket_keepalive(&socket).expect("a socket"), "not by itself");
        assert!(matches!(peer_of(false, &socket), Peer::Address(address) if address.is_loopback()));
        assert!(sockopt::socket_keepalive(&socket).expect("a socket"));
        let asked = (sockopt::tcp_keepidle(&socket), sockopt::tcp_keepintvl(&socket), sockopt::tcp_keepcnt(&socket));
        assert_eq!(asked, (Ok(KEEPALIVE_IDLE), Ok(KEEPALIVE_INTERVAL), Ok(KEEPALIVE_PROBES)));
    }
}
