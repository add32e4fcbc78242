//! How connections come in: by the Unix socket, whose other end the kernel names, and by TCP, always with TLS.
//!
//! Every connection is accepted at once and comes by its listener's [door](Door): so nobody waits for others to end.

use crate::door::{self, Door, Visit};
use crate::peers::{self, Peer, Users};
use crate::problem::{Problem, of_status};
use crate::server::{ServerLimits, TcpOptions};
use crate::tls::Tls;
use crate::wire::Wire;
use api::error::ControlError;
use api::words::SOCKET_PATH_BYTES_MAX;
use axum::Router;
use axum::http::StatusCode;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use std::convert::Infallible;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Before the next try when a connection could not be accepted: no file descriptors, most likely, and some may become free.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// A client that has said nothing for so long is asked whether it is still there; so often, and so many times, before it is given up.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEPALIVE_PROBES: u32 = 4;
/// How long it is tried to tell a client that its connection had to make room.
const FAREWELL: Duration = Duration::from_secs(1);
/// Connections that wait to be accepted; the standard library has the same.
const BACKLOG: i32 = 128;
/// Largest request line and headers together.
const HEAD_BYTES_MAX: usize = 32 << 10;
/// Most header lines.
const HEADERS_MAX: usize = 64;
/// What a TLS connection begins with: a record of type "handshake".
const TLS_HANDSHAKE: u8 = 22;

/// A bound Unix socket; removed when dropped, unless its name is another's by then.
#[derive(Debug)]
pub struct Socket {
    listener: Option<UnixListener>,
    path: PathBuf,
    /// Device and inode of the name.
    identity: (u64, u64),
}

impl Socket {
    /// Binds `path`, for its owner and a group. A socket left behind by a daemon that was killed is replaced. The caller holds the lock beside it,
    /// so nobody else does the same at the same time.
    ///
    /// # Errors
    /// [`ControlError::SecondDaemon`] if somebody answers there, [`ControlError::State`] if it cannot be made.
    pub fn bind(path: &Path, group: Option<&str>) -> Result<Socket, ControlError> {
        let shown = path.display().to_string();
        let failed = |what: &str, e: std::io::Error| ControlError::State {
            path: shown.clone(),
            problem: format!("{what} ({e})"),
            remedy: "give another socket with --socket PATH".into(),
        };
        let group = group.map(|name| group_of(&shown, name)).transpose()?;
        if shown.len() > SOCKET_PATH_BYTES_MAX {
            return Err(ControlError::State {
                problem: format!("the path has {} bytes, and sockets have {SOCKET_PATH_BYTES_MAX} at most", shown.len()),
                path: shown,
                remedy: "give a shorter one with --socket PATH".into(),
            });
        }
        if let Some(directory) = path.parent().filter(|d| !d.as_os_str().is_empty()) {
            std::fs::create_dir_all(directory).map_err(|e| failed("its directory cannot be created", e))?;
        }
        match std::fs::symlink_metadata(path) {
            Ok(there) if !there.file_type().is_socket() => {
                let error = std::io::Error::from(std::io::ErrorKind::AlreadyExists);
                return Err(failed("a file that is not a socket has this name", error));
            }
            Ok(there) => match who_listens(path) {
                Ok(Some(pid)) => return Err(ControlError::SecondDaemon { pid, path: shown }),
                // Only what was asked is removed, should another one have come meanwhile.
                Ok(None) if identity_of(path).is_ok_and(|now| now == (there.dev(), there.ino())) => {
                    std::fs::remove_file(path).map_err(|e| failed("the old socket cannot be removed", e))?;
                }
                Ok(None) => {}
                Err(e) => return Err(failed("it is unknown whether somebody listens there", e)),
            },
            Err(_) => {}
        }
        let listener = UnixListener::bind(path).map_err(|e| failed("the socket cannot be created", e))?;
        let found = std::fs::symlink_metadata(path).map_err(|e| failed("it cannot be examined", e))?;
        let socket = Socket { listener: Some(listener), path: path.to_path_buf(), identity: (found.dev(), found.ino()) };
        if let Some(group) = group.filter(|group| *group != found.gid()) {
            std::os::unix::fs::chown(path, None, Some(group)).map_err(|e| ControlError::State {
                path: shown.clone(),
                problem: format!("its group cannot be set ({e})"),
                remedy: "run the daemon with that group: `Group=` in a drop-in (`systemctl edit hearth`)".into(),
            })?;
        }
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660)).map_err(|e| failed("its mode cannot be set", e))?;
        Ok(socket)
    }

    /// The listener; once, within a runtime.
    pub(crate) fn listen(&mut self) -> std::io::Result<tokio::net::UnixListener> {
        let listener = self.listener.take().expect("a socket serves once");
        listener.set_nonblocking(true)?;
        tokio::net::UnixListener::from_std(listener)
    }
}

fn identity_of(path: &Path) -> std::io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

/// The process that listens on a socket; `None` if nobody does. One that is too busy to take the connection listens too.
fn who_listens(path: &Path) -> std::io::Result<Option<String>> {
    use rustix::io::Errno;
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let probe = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match connect(&probe, &SocketAddrUnix::new(path)?) {
        Ok(()) => {
            let peer = rustix::net::sockopt::socket_peercred(&probe);
            Ok(Some(peer.map_or("unknown".into(), |peer| peer.pid.as_raw_nonzero().to_string())))
        }
        Err(Errno::AGAIN) => Ok(Some("unknown".into())),
        Err(Errno::CONNREFUSED | Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn group_of(socket: &str, name: &str) -> Result<u32, ControlError> {
    peers::group_number(name).ok_or_else(|| ControlError::State {
        path: socket.into(),
        problem: format!("its group {name:?} does not exist"),
        remedy: format!("create it with `groupadd --system {name}`, or choose another one (`socket_group` in the configuration file)"),
    })
}

impl Drop for Socket {
    fn drop(&mut self) {
        let ours = identity_of(&self.path).is_ok_and(|now| now == self.identity);
        if ours && let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!("the socket {} was gone already ({error})", self.path.display());
        }
    }
}

/// A bound TCP socket.
#[derive(Debug)]
pub struct TcpSocket {
    listener: std::net::TcpListener,
    address: SocketAddr,
}

/// What to do where the systemd unit allows Unix sockets only.
const NO_NETWORK: &str = "if systemd runs the daemon, its unit allows no network: run `systemctl edit hearth`, and add these lines under [Service]: \
RestrictAddressFamilies=AF_INET AF_INET6 and IPAddressAllow=localhost (or the addresses that may connect)";

impl TcpSocket {
    /// Binds the address.
    ///
    /// # Errors
    /// If other machines can reach it and that is not allowed, or if it cannot be bound.
    pub fn bind(options: &TcpOptions) -> Result<TcpSocket, ControlError> {
        let asked = options.address;
        if !asked.ip().is_loopback() && !options.allow_remote {
            return Err(ControlError::BadOption {
                option: "--listen",
                problem: format!("asks for {asked}, which other machines can reach"),
                remedy: "use a loopback address such as 127.0.0.1:7420, or allow it with --allow-remote (`api.allow_remote`)".into(),
            });
        }
        let failed = |e: std::io::Error| ControlError::State {
            path: asked.to_string(),
            problem: format!("the API cannot listen there ({e})"),
            remedy: match e.raw_os_error() {
                Some(no_network) if no_network == rustix::io::Errno::AFNOSUPPORT.raw_os_error() => NO_NETWORK.into(),
                _ => "use an address of this machine and a free port with --listen".into(),
            },
        };
        let listener = match std::net::TcpListener::bind(asked) {
            // A cache does not wait for the network at a boot.
            Err(error) if error.kind() == ErrorKind::AddrNotAvailable => {
                let address = asked.ip();
                tracing::warn!("no network interface has the address {address} yet: the API waits for it");
                bind_early(asked)
            }
            bound => bound,
        }
        .map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(TcpSocket { listener, address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn listen(self) -> std::io::Result<tokio::net::TcpListener> {
        tokio::net::TcpListener::from_std(self.listener)
    }
}

/// Listens at an address that no network interface needs to have yet.
fn bind_early(address: SocketAddr) -> std::io::Result<std::net::TcpListener> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    match address {
        SocketAddr::V4(_) => sockopt::set_ip_freebind(&socket, true)?,
        SocketAddr::V6(_) => sockopt::set_ipv6_freebind(&socket, true)?,
    }
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

/// Serves the Unix socket.
pub(crate) async fn serve_socket(listener: &tokio::net::UnixListener, users: &Users, router: Router, limits: ServerLimits) -> Infallible {
    let door = Door::new(limits.strangers, limits.connections);
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                wait_to_accept(listener, &door, &error).await;
                continue;
            }
        };
        // Without the kernel's word nobody is trusted with more than looking.
        let peer = stream.peer_cred().map_or(Peer::Socket { user: u32::MAX, role: api::Role::View }, |c| users.peer(c.uid(), c.gid()));
        tokio::spawn(serve_connection(stream, peer, router.clone(), limits, door.arrive(peer.client()).await));
    }
}

/// Serves TCP.
///
/// # Errors
/// Never: the type lets it stand beside what can fail before it.
pub(crate) async fn serve_tcp(
    listener: tokio::net::TcpListener,
    tls: Arc<Tls>,
    router: Router,
    limits: ServerLimits,
) -> std::io::Result<Infallible> {
    let door = Door::new(limits.strangers, limits.connections);
    loop {
        let (stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                wait_to_accept(&listener, &door, &error).await;
                continue;
            }
        };
        let peer = Peer::Tcp { address };
        let (tls, router, visit) = (tls.clone(), router.clone(), door.arrive(peer.client()).await);
        tokio::spawn(async move {
            let shaken = tokio::select! {
                shaken = timeout(limits.patience, handshake(stream, &tls, limits)) => shaken,
                () = visit.must_go() => return tracing::debug!("no TLS with {address} before its place was needed"),
            };
            match shaken {
                Ok(Ok(stream)) => serve_connection(stream, peer, router, limits, visit).await,
                Ok(Err(error)) => tracing::debug!("no TLS with {address}: {error}"),
                Err(_) => tracing::debug!("no TLS with {address} in time"),
            }
        });
    }
}

async fn wait_to_accept(listener: impl AsFd, door: &Door, error: &std::io::Error) {
    let mut waiting = [PollFd::new(&listener, PollFlags::IN)];
    // Without a descriptor to spare, accepting fails also where nobody waits.
    if poll(&mut waiting, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) != Ok(0) {
        door.could_not_accept(error);
    }
    tokio::time::sleep(ACCEPT_AGAIN).await;
}

/// A client whose machine has gone says no goodbye, and an idle connection stays for ever if nobody asks. One to which something is to be
/// sent has its own limit ([`Wire`]).
fn notice_death(socket: impl AsFd) -> std::io::Result<()> {
    sockopt::set_tcp_keepidle(&socket, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(&socket, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(&socket, KEEPALIVE_PROBES)?;
    Ok(sockopt::set_socket_keepalive(&socket, true)?)
}

/// TLS, or an answer in plain words for who does not speak it.
async fn handshake(stream: TcpStream, tls: &Tls, limits: ServerLimits) -> std::io::Result<tokio_rustls::server::TlsStream<TcpStream>> {
    stream.set_nodelay(true)?;
    notice_death(&stream)?;
    let mut first = [0];
    if stream.peek(&mut first).await? == 1 && first[0] != TLS_HANDSHAKE {
        let problem = Problem::usage("this port speaks HTTPS only", "use an address that begins with https://");
        Wire::new(stream, limits.stall).say(&problem).await?;
        return Err(std::io::Error::other("plain text"));
    }
    tokio_rustls::TlsAcceptor::from(tls.config()).accept(stream).await
}

/// Serves one connection to its end.
async fn serve_connection<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    peer: Peer,
    router: Router,
    limits: ServerLimits,
    visit: Arc<Visit>,
) {
    let router = TowerToHyperService::new(router);
    let service = service_fn(|mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(peer);
        request.extensions_mut().insert(visit.clone());
        router.call(request)
    });
    let mut wire = Wire::new(stream, limits.stall);
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(limits.patience)
        .max_buf_size(2 * HEAD_BYTES_MAX)
        .max_header_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX);
    let served = {
        let serving = pin!(http.serve_connection(TokioIo::new(&mut wire), service));
        tokio::select! {
            served = serving => Some(served),
            () = visit.must_go() => None,
        }
    };
    let Some(served) = served else { return make_room(wire, &visit).await };
    let too_slow = served.as_ref().is_err_and(|error| error.is_timeout() && wire.is_unanswered());
    if let Err(error) = served {
        tracing::debug!("a connection to the API ended: {error}");
    }
    let leaving = async {
        match too_slow {
            // Nobody may read it: the client said nothing whole.
            true => wire.say(&of_status(StatusCode::REQUEST_TIMEOUT)).await,
            false => wire.take_leave().await,
        }
    };
    tokio::select! {
        left = timeout(limits.patience, leaving) => tracing::trace!("left: {left:?}"),
        () = visit.must_go() => {}
    }
}

/// Ends a connection whose place another one needs, with a word about that where it would be understood and costs next to nothing.
async fn make_room<S: AsyncRead + AsyncWrite + Unpin>(mut wire: Wire<S>, visit: &Visit) {
    tracing::debug!("a connection to the API was closed to make room");
    if let Some(_permit) = visit.farewell().filter(|_| wire.may_answer()) {
        let said = timeout(FAREWELL, wire.say(&door::crowded())).await;
        tracing::trace!("farewell: {said:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_socket_is_replaced_and_a_file_is_not() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("run/h.sock");
        let live = Socket::bind(&path, None).expect("the directory is made");
        let mode = std::fs::metadata(&path).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o660);
        let error = Socket::bind(&path, None).expect_err("somebody listens");
        assert!(matches!(error, ControlError::SecondDaemon { .. }), "{error}");
        // What a killed daemon leaves: the name without a listener.
        let left = directory.path().join("left.sock");
        drop(UnixListener::bind(&left).expect("it can be bound"));
        drop(Socket::bind(&left, None).expect("nobody listens"));
        assert!(!left.exists());
        drop(live);
        // One that is too busy to answer is not dead.
        let busy = directory.path().join("busy.sock");
        let listener = UnixListener::bind(&busy).expect("it can be bound");
        rustix::net::listen(&listener, 0).expect("it listens already");
        let _waits = std::os::unix::net::UnixStream::connect(&busy).expect("there is room for one");
        let error = Socket::bind(&busy, None).expect_err("it is full, and lives");
        assert!(matches!(error, ControlError::SecondDaemon { .. }), "{error}");
        // A name that is another's by the time of the end stays.
        let first = Socket::bind(&left, None).expect("nobody listens");
        std::fs::remove_file(&left).expect("it is there");
        let _second = UnixListener::bind(&left).expect("the name is free");
        drop(first);
        assert!(left.exists());
        std::fs::remove_file(&left).expect("it is there");
        std::fs::write(&left, "precious").expect("there is room");
        assert!(Socket::bind(&left, None).expect_err("a file").to_string().contains("not a socket"));
        assert_eq!(std::fs::read(&left).expect("still there"), b"precious");
    }

    #[test]
    fn a_group_must_exist_and_remote_addresses_must_be_allowed() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("h.sock");
        let error = Socket::bind(&path, Some("no-such-group-here")).expect_err("it does not exist");
        assert!(error.remedy().contains("groupadd") && !path.exists(), "{error}");
        let remote = TcpOptions::at(([192, 0, 2, 1], 7420).into());
        let error = TcpSocket::bind(&remote).expect_err("other machines can reach it");
        assert!(error.remedy().contains("--allow-remote"), "{error}");
    }

    /// At a boot the network may come after the daemon.
    #[test]
    fn an_address_that_comes_later_is_listened_at() {
        // For documentation: no interface has it.
        for later in ["192.0.2.1:0", "[2001:db8::1]:0"] {
            let options = TcpOptions { allow_remote: true, ..TcpOptions::at(later.parse().expect("an address")) };
            let socket = TcpSocket::bind(&options).expect("it waits for the address");
            assert_ne!(socket.address().port(), 0, "the kernel has chosen one");
            let taken = TcpSocket::bind(&TcpOptions { allow_remote: true, ..TcpOptions::at(socket.address()) }).expect_err("it is in use");
            assert!(matches!(taken, ControlError::State { .. }), "{taken}");
        }
    }
}
