//! The server as control sees it.

use crate::address::{ListenSpec, tcp_uri, unix_uri};
use crate::connection::Connection;
use crate::exports::{Counters, ExportError, ExportOptions, Shared};
use crate::limits::Limits;
use crate::listener::{ListenError, Listener, Listening, SocketPath, listen, listen_again, listen_tcp, peer_of};
use crate::parked::{Parked, State};
use crate::protocol::Session;
use crate::tls::Tls;
use crate::transmission::Transmission;
use runtime::{EndpointGroup, Runtime, RuntimeError, VolumeRef};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A listening socket with its exports. [`Server::stop`] ends it; dropped without that, its path is removed, and the clients that are
/// there stay until the runtime ends.
pub struct Server {
    shared: Arc<Shared>,
    group: EndpointGroup,
    place: Place,
    /// Ours until the server goes.
    path: Option<SocketPath>,
    /// The listening socket, as long as it may be left to another server.
    socket: Option<OwnedFd>,
}

/// What a server has left to another one.
#[derive(Debug)]
pub struct Left {
    /// The socket that listens. Whoever connects waits.
    pub listener: OwnedFd,
    /// What its path is known by.
    pub state: Vec<u8>,
    /// The clients.
    pub clients: Vec<Parked>,
}

/// What a suspended export has left.
#[derive(Debug)]
pub struct Suspended {
    /// Its clients.
    pub clients: Vec<Parked>,
    /// No request of them is at the volume any more. Else I/O hangs there.
    pub all_gone: bool,
}

enum Place {
    Unix(PathBuf),
    Tcp(SocketAddr),
    Tls(SocketAddr),
}

/// Listens where `spec` says. There are no exports yet. Who asks for one of those in `expected` waits,
/// as by [`Server::expect_export`]: a client may be served before the caller can add the first one.
/// Who asks for another one is told that there is none.
///
/// # Errors
/// See [`ListenError`].
pub fn serve(runtime: &Runtime, spec: &ListenSpec, limits: Limits, expected: &[&str]) -> Result<Server, ListenError> {
    let listening = listen(spec)?;
    Ok(serve_on(runtime, spec, limits, listening, expected))
}

/// Listens on a TCP address that other machines may reach, with TLS: clients are served that show a certificate, and nothing else is
/// spoken of before. `expected` as in [`serve`].
///
/// # Errors
/// See [`ListenError`].
pub fn serve_tls(runtime: &Runtime, address: SocketAddr, limits: Limits, tls: Arc<Tls>, expected: &[&str]) -> Result<Server, ListenError> {
    let listening = listen_tcp(address)?;
    let place = Place::Tls(listening.address.unwrap_or(address));
    Ok(begin(runtime, place, Shared::new(limits, Some(tls)), listening, expected))
}

/// The same on a socket that another server has left there, with its state as in [`Left`], if it
/// still is the one of that path; else as [`serve`].
///
/// # Errors
/// See [`ListenError`].
pub fn serve_again(
    runtime: &Runtime,
    path: &Path,
    limits: Limits,
    left: (OwnedFd, &[u8]),
    expected: &[&str],
) -> Result<Server, ListenError> {
    let (left, state) = left;
    let spec = ListenSpec::unix(path);
    let listening = match listen_again(path, left, state)? {
        Some(listening) => listening,
        None => listen(&spec)?,
    };
    Ok(serve_on(runtime, &spec, limits, listening, expected))
}

fn serve_on(runtime: &Runtime, spec: &ListenSpec, limits: Limits, listening: Listening, expected: &[&str]) -> Server {
    let place = match (spec, listening.address) {
        (ListenSpec::Unix { path, .. }, _) => Place::Unix(path.clone()),
        (ListenSpec::Tcp(asked), bound) => Place::Tcp(bound.unwrap_or(*asked)),
    };
    begin(runtime, place, Shared::new(limits, None), listening, expected)
}

fn begin(runtime: &Runtime, place: Place, shared: Shared, listening: Listening, expected: &[&str]) -> Server {
    let shared = Arc::new(shared);
    // Before the first client can ask.
    expected.iter().for_each(|name| shared.expect(name));
    // Who has no descriptor to spare leaves nothing to others: its clients connect again.
    let socket = listening.socket.try_clone().inspect_err(|error| tracing::warn!(%error, "NBD clients cannot be left to another server"));
    let socket = socket.ok();
    let listener = Listener::new(listening.socket, matches!(place, Place::Unix(_)), shared.clone());
    let group = runtime.add_endpoint(Box::new(listener));
    Server { shared, group, place, path: listening.path, socket }
}

impl Server {
    /// Shows a volume under `name`.
    ///
    /// # Errors
    /// [`ExportError::Exists`], [`ExportError::NameEmpty`], [`ExportError::NameTooLong`].
    pub fn add_export(&self, name: &str, volume: VolumeRef, options: ExportOptions) -> Result<(), ExportError> {
        self.shared.add(name, volume, options)
    }

    /// Sets which certificates may use an export. Clients that may not any more are disconnected.
    ///
    /// # Errors
    /// [`ExportError::Unknown`]
    pub fn allow_names(&self, name: &str, names: &[String]) -> Result<(), ExportError> {
        self.shared.export(name).map(|export| export.allow_names(names)).ok_or_else(|| ExportError::Unknown(name.to_owned()))
    }

    /// Takes an export away and waits until its clients have gone: they get the answers to what is in flight, then the end of the
    /// connection, after 5 seconds by force. Afterwards no request comes by this export any more.
    ///
    /// # Errors
    /// [`ExportError::Unknown`]; [`ExportError::ClientsStay`] if requests hang in the volume.
    pub fn remove_export(&self, name: &str) -> Result<(), ExportError> {
        self.shared.remove(name)
    }

    /// An export of that name will come: who asks for it waits, as [`Limits::absence_ns`] says.
    pub fn expect_export(&self, name: &str) {
        self.shared.expect(name);
    }

    /// Of exports that are suspended or expected: nobody waits any more for those that are not to be kept, by their name and for how long
    /// they are away.
    pub fn forget_absent(&self, keep: impl Fn(&str, Duration) -> bool) {
        self.shared.forget_absent(keep);
    }

    /// Takes an export away, but not its clients: after answers to all that they have asked so far they wait, until [`Server::resume`] goes on
    /// with them under an export of the same name. New clients wait for it. Clients of other exports notice nothing. Those that do not take their answers within
    /// `patience` are disconnected.
    ///
    /// # Errors
    /// [`ExportError::Unknown`]
    pub fn suspend_export(&self, runtime: &Runtime, name: &str, patience: Duration) -> Result<Suspended, ExportError> {
        let export = self.shared.begin_to_suspend(name)?;
        runtime.wake_endpoints(&self.group);
        let (clients, all_gone) = Shared::end_suspending(&export, patience);
        Ok(Suspended { clients, all_gone })
    }

    /// Goes on with a client of another server, or of a suspended export, which had chosen an export of the same name.
    ///
    /// # Errors
    /// A sentence: then its connection is closed.
    pub fn resume(&self, runtime: &Runtime, socket: OwnedFd, state: &[u8]) -> Result<(), String> {
        let state = State::decode(state).ok_or("what is known of an NBD client is of another version")?;
        let export = self.shared.export(&state.export).ok_or_else(|| format!("there is no export named '{}'", state.export))?;
        let info = export.info();
        if info.size_bytes < state.size_bytes || info.block_bytes_min > state.block_bytes_min {
            return Err(format!("the export '{}' is smaller than when its client chose it, or has larger sectors", state.export));
        }
        let socket = Arc::new(socket);
        let peer = peer_of(matches!(self.place, Place::Unix(_)), &socket);
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let now_ns = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
        let full = || format!("there are too many NBD clients: one of '{}' must connect again", state.export);
        let (mut visit, _) = self.shared.door.arrive(peer, &socket, now_ns).ok_or_else(full)?;
        visit.become_client(now_ns)?;
        if !export.join(&socket, None) {
            return Err(format!("the export '{}' is going", state.export));
        }
        let session = Session { export: info, structured: state.structured, allocation_context: state.allocation_context };
        let transmission = Transmission::new(session, export, &self.shared.limits);
        self.shared.counters.connections.fetch_add(1, Ordering::Relaxed);
        let connection = Connection::resumed(socket, self.shared.clone(), visit, transmission, &state.input);
        runtime.add_endpoint_to(&self.group, Box::new(connection));
        Ok(())
    }

    /// Stops serving, and leaves all to another server: who connects waits, and so do the clients,
    /// after answers to all that they have asked so far. Those that do not take their answers
    /// within `patience`, or are in their handshake, are disconnected. `None` if the socket cannot
    /// be left.
    ///
    /// # Errors
    /// As [`Runtime::stop_endpoints`]; the server is gone.
    pub fn leave(mut self, runtime: &Runtime, patience: Duration) -> Result<Option<Left>, RuntimeError> {
        let Some(listener) = self.socket.take() else {
            return runtime.stop_endpoints(&self.group, patience).map(|()| None);
        };
        self.shared.begin_to_park();
        runtime.stop_endpoints(&self.group, patience)?;
        let state = self.path.as_mut().map(SocketPath::leave).unwrap_or_default();
        Ok(Some(Left { listener, state, clients: self.shared.take_parked() }))
    }

    /// The URI of an export; the empty name means the default export.
    pub fn uri(&self, name: &str) -> String {
        match &self.place {
            Place::Unix(path) => unix_uri(name, path),
            Place::Tcp(address) => tcp_uri(name, *address, false),
            Place::Tls(address) => tcp_uri(name, *address, true),
        }
    }

    /// What has happened so far.
    pub fn counters(&self) -> Counters {
        self.shared.counters()
    }

    /// Stops listening, lets replies in flight leave, and disconnects all clients; by force what has not gone after `patience`.
    ///
    /// # Errors
    /// As [`Runtime::stop_endpoints`]; the socket's path is removed in any case.
    pub fn stop(self, runtime: &Runtime, patience: Duration) -> Result<(), RuntimeError> {
        runtime.stop_endpoints(&self.group, patience)
    }
}
