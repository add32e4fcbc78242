//! The server as control sees it.

use crate::address::{ListenSpec, tcp_uri, unix_uri};
use crate::exports::{Counters, ExportError, ExportOptions, Shared};
use crate::limits::Limits;
use crate::listener::{ListenError, Listener, SocketPath, listen};
use runtime::{EndpointGroup, Runtime, RuntimeError, VolumeRef};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A listening socket with its exports. [`Server::stop`] ends it; dropped without that, its path is removed, and the clients that are
/// there stay until the runtime ends.
pub struct Server {
    shared: Arc<Shared>,
    group: EndpointGroup,
    place: Place,
    /// Ours until the server goes.
    _path: Option<SocketPath>,
}

enum Place {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

/// Listens where `spec` says. There are no exports yet: clients that connect are told so.
///
/// # Errors
/// See [`ListenError`].
pub fn serve(runtime: &Runtime, spec: &ListenSpec, limits: Limits) -> Result<Server, ListenError> {
    let listening = listen(spec)?;
    let place = match (spec, listening.address) {
        (ListenSpec::Unix { path, .. }, _) => Place::Unix(path.clone()),
        (ListenSpec::Tcp(asked), bound) => Place::Tcp(bound.unwrap_or(*asked)),
    };
    let shared = Arc::new(Shared::new(limits));
    let listener = Listener::new(listening.socket, matches!(place, Place::Unix(_)), shared.clone());
    let group = runtime.add_endpoint(Box::new(listener));
    Ok(Server { shared, group, place, _path: listening.path })
}

impl Server {
    /// Shows a volume under `name`.
    ///
    /// # Errors
    /// [`ExportError::Exists`], [`ExportError::NameEmpty`], [`ExportError::NameTooLong`].
    pub fn add_export(&self, name: &str, volume: VolumeRef, options: ExportOptions) -> Result<(), ExportError> {
        self.shared.add(name, volume, options)
    }

    /// Takes an export away and waits until its clients have gone: they get the answers to what is in flight, then the end of the
    /// connection, after 5 seconds by force. Afterwards no request comes by this export any more.
    ///
    /// # Errors
    /// [`ExportError::Unknown`]; [`ExportError::ClientsStay`] if requests hang in the volume.
    pub fn remove_export(&self, name: &str) -> Result<(), ExportError> {
        self.shared.remove(name)
    }

    /// The URI of an export; the empty name means the default export.
    pub fn uri(&self, name: &str) -> String {
        match &self.place {
            Place::Unix(path) => unix_uri(name, path),
            Place::Tcp(address) => tcp_uri(name, *address),
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
