//! Where the console is. A daemon that does not listen on TCP begins to do so when somebody asks for the console by its Unix socket, on a
//! loopback address and until it ends: so the console needs no setting and no restart.

use crate::listen::TcpSocket;
use crate::server::{ServerOptions, TcpOptions};
use crate::tls::Tls;
use api::error::ControlError;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// A listener, and what makes it private.
type Opened = (TcpSocket, Tls);

/// The address of the console.
pub(crate) struct ConsoleAddress {
    /// `https://…`, if it is served.
    url: Mutex<Option<String>>,
    on_demand: Option<SocketAddr>,
    names: Vec<String>,
    state_directory: PathBuf,
    opened: Sender<Opened>,
}

impl ConsoleAddress {
    /// `served`: where TCP is served from the start. Gives also where a listener comes from that is opened later.
    pub(crate) fn new(served: Option<SocketAddr>, options: &ServerOptions) -> (ConsoleAddress, Receiver<Opened>) {
        let (opened, later) = channel(1);
        let address = ConsoleAddress {
            url: Mutex::new(served.map(url)),
            on_demand: options.console_on_demand,
            names: options.names.clone(),
            state_directory: options.state_directory.clone(),
            opened,
        };
        (address, later)
    }

    /// Where the console is, `https://…`; opened now, if it may be. `None` if it is switched off. Waits for the disk.
    ///
    /// # Errors
    /// If there is no port, or the certificate cannot be made.
    pub(crate) fn get_or_open(&self) -> Result<Option<String>, ControlError> {
        let mut known = self.url.lock().unwrap_or_else(PoisonError::into_inner);
        if known.is_some() {
            return Ok(known.clone());
        }
        let Some(wanted) = self.on_demand else { return Ok(None) };
        let options = TcpOptions::at(wanted);
        let any_port = TcpOptions::at(SocketAddr::new(wanted.ip(), 0));
        let socket = TcpSocket::bind(&options).or_else(|_| TcpSocket::bind(&any_port))?;
        let tls = Tls::open(&options, &self.names, &self.state_directory)?;
        let address = socket.address();
        if self.opened.try_send((socket, tls)).is_err() {
            return Ok(None);
        }
        tracing::info!("the console was asked for: the API also listens at https://{address} until the daemon ends");
        *known = Some(url(address));
        Ok(known.clone())
    }
}

/// An address as a browser on this machine takes it.
fn url(address: SocketAddr) -> String {
    if address.ip().is_unspecified() { format!("https://localhost:{}", address.port()) } else { format!("https://{address}") }
}
