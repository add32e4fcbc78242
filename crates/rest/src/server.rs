//! The listeners together: what they are given, what they share, and how they end.

use crate::allotment::Allotment;
use crate::assets::{self, Assets};
use crate::console_address::ConsoleAddress;
use crate::hosts::Hosts;
use crate::limits::Limit;
use crate::listen::{self, Socket, TcpSocket};
use crate::peers::Users;
use crate::routes;
use crate::sessions::Sessions;
use crate::tls::Tls;
use crate::tokens::Tokens;
use api::error::ControlError;
use control::manager::Manager;
use records::events::unix_s;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// Ends a server when it is dropped.
pub type StopSender = tokio::sync::oneshot::Sender<()>;
/// What a server waits on.
pub type StopReceiver = tokio::sync::oneshot::Receiver<()>;

/// Both ends of a server's stop.
pub fn stop_pair() -> (StopSender, StopReceiver) {
    tokio::sync::oneshot::channel()
}

/// What a server grants its clients.
#[derive(Clone, Copy, Debug)]
pub struct ServerLimits {
    /// Connections of known clients at a time, by each listener. The one that was idle for longest gives way to another.
    pub connections: usize,
    /// Connections at a time, by each listener, whose client has not said who it is. The oldest gives way to another.
    pub strangers: usize,
    /// How long a client may take for its TLS handshake, to send a request's header, and as long again for its body. A request that was sent may
    /// take its time.
    pub patience: Duration,
    /// How long a client may take nothing of an answer that waits for it.
    pub stall: Duration,
    /// How long an answer may take that only looks.
    pub look: Duration,
    /// How long one may take that changes something.
    pub change: Duration,
    /// Actions that look at a time, and as many that change something. One client may have three quarters of them.
    pub actions: usize,
    /// Streams of events at a time. One client may have three quarters of them.
    pub streams: usize,
    /// Requests of a client in a second, in the long run.
    pub requests_per_second: f64,
    /// Requests of a client at once.
    pub requests_burst: f64,
}

impl Default for ServerLimits {
    /// Far more than people and scripts need, and few enough for a process whose memory is bounded.
    fn default() -> ServerLimits {
        ServerLimits {
            connections: 64,
            strangers: 64,
            patience: Duration::from_secs(10),
            stall: Duration::from_secs(30),
            look: Duration::from_secs(5),
            change: Duration::from_secs(60),
            actions: 32,
            streams: 32,
            requests_per_second: 100.0,
            requests_burst: 400.0,
        }
    }
}

/// A TCP listener, always with TLS.
#[derive(Clone, Debug)]
pub struct TcpOptions {
    /// Where.
    pub address: SocketAddr,
    /// Whether it may be an address that other machines can reach.
    pub allow_remote: bool,
    /// The certificate (PEM, with what signed it); a self-signed one is made if it is not given.
    pub certificate: Option<PathBuf>,
    /// Its private key (PEM).
    pub key: Option<PathBuf>,
}

impl TcpOptions {
    /// With a certificate of its own, for this machine alone.
    pub fn at(address: SocketAddr) -> TcpOptions {
        TcpOptions { address, allow_remote: false, certificate: None, key: None }
    }
}

/// How the API is served.
#[derive(Clone)]
pub struct ServerOptions {
    /// Where tokens and the certificate are kept.
    pub state_directory: PathBuf,
    /// The group, by name or number, that the socket belongs to; `None`: that of the process.
    pub socket_group: Option<String>,
    /// The group whose members may do everything by the socket; others who can connect may look.
    pub operate_group: Option<String>,
    /// TCP, if it is wanted.
    pub tcp: Option<TcpOptions>,
    /// Without TCP: where the console is served, from the first time that somebody asks for its address by the Unix socket. `None`: never. If
    /// the port is taken, another one is used.
    pub console_on_demand: Option<SocketAddr>,
    /// Names, beside localhost, by which the TCP listener may be asked.
    pub names: Vec<String>,
    /// The files of the console.
    pub assets: Assets,
    /// What clients are granted.
    pub limits: ServerLimits,
}

impl ServerOptions {
    /// The Unix socket alone, without a console.
    pub fn new(state_directory: &Path) -> ServerOptions {
        ServerOptions {
            state_directory: state_directory.to_path_buf(),
            socket_group: None,
            operate_group: None,
            tcp: None,
            console_on_demand: None,
            names: Vec::new(),
            assets: assets::none(),
            limits: ServerLimits::default(),
        }
    }
}

/// What all requests share.
pub(crate) struct App {
    pub(crate) manager: Manager,
    pub(crate) tokens: Tokens,
    pub(crate) sessions: Sessions,
    pub(crate) hosts: Hosts,
    pub(crate) assets: Assets,
    pub(crate) limits: ServerLimits,
    /// All requests, by client.
    pub(crate) requests: Limit,
    /// Logins that failed, by client.
    pub(crate) logins: Limit,
    /// Places for actions that look.
    pub(crate) looks: Allotment,
    /// Places for actions that change something.
    pub(crate) changes: Allotment,
    /// Places for streams of events.
    pub(crate) streams: Allotment,
    /// Differs for each start of the daemon.
    pub(crate) instance: String,
    /// When it started: seconds since 1970.
    pub(crate) started_unix_s: u64,
    /// Where the console is, or how it gets there.
    pub(crate) console: ConsoleAddress,
}

/// Bound listeners, not served yet.
pub struct Server {
    socket: Socket,
    tcp: Option<(TcpSocket, Tls)>,
    options: ServerOptions,
}

impl Server {
    /// Binds the socket at `path`, and TCP if it is asked for.
    ///
    /// # Errors
    /// If somebody answers there already, if an address may not or cannot be used, or if the certificate cannot.
    pub fn bind(path: &Path, options: ServerOptions) -> Result<Server, ControlError> {
        let socket = Socket::bind(path, options.socket_group.as_deref())?;
        let tcp = match &options.tcp {
            Some(tcp) => Some((TcpSocket::bind(tcp)?, Tls::open(tcp, &options.names, &options.state_directory)?)),
            None => None,
        };
        Ok(Server { socket, tcp, options })
    }

    /// Where TCP listens; with port 0 the kernel chose one.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.tcp.as_ref().map(|(socket, _)| socket.address())
    }

    /// Serves until `stop` gets a message or is dropped. Blocks: give it a thread.
    ///
    /// # Errors
    /// If the runtime or a listener cannot be set up.
    pub fn serve(self, manager: Manager, stop: StopReceiver) -> std::io::Result<()> {
        let Server { mut socket, tcp, options } = self;
        let (console, mut opened) = ConsoleAddress::new(tcp.as_ref().map(|(socket, _)| socket.address()), &options);
        let remote = options.tcp.as_ref().is_some_and(|tcp| !tcp.address.ip().is_loopback());
        let limits = options.limits;
        let app = Arc::new(App {
            manager,
            tokens: Tokens::open(&options.state_directory),
            sessions: Sessions::open(&options.state_directory),
            hosts: Hosts { remote, names: options.names.iter().map(|n| n.to_ascii_lowercase()).collect() },
            assets: options.assets,
            limits,
            requests: Limit::new(limits.requests_per_second, limits.requests_burst),
            logins: Limit::new(5.0 / 60.0, 5.0),
            looks: Allotment::new(limits.actions),
            changes: Allotment::new(limits.actions),
            streams: Allotment::new(limits.streams),
            instance: Uuid::new_v4().to_string(),
            started_unix_s: unix_s(),
            console,
        });
        let users = Users::new(options.operate_group);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        runtime.block_on(async {
            let router = routes::router(app);
            let listener = socket.listen()?;
            let by_tcp = async {
                let tcp = match tcp {
                    Some(tcp) => Some(tcp),
                    None => opened.recv().await,
                };
                match tcp {
                    Some((socket, tls)) => listen::serve_tcp(socket.listen()?, Arc::new(tls), router.clone(), limits).await,
                    None => std::future::pending::<std::io::Result<std::convert::Infallible>>().await,
                }
            };
            tokio::select! {
                never = listen::serve_socket(&listener, &users, router.clone(), limits) => match never {},
                failed = by_tcp => failed.map(|never| match never {}),
                // An error means that the sender is gone: a stop too.
                _ = stop => Ok(()),
            }
        })?;
        // Actions still under way on blocking threads must not hold up the stop; the manager has refused new ones.
        runtime.shutdown_background();
        Ok(())
    }
}
