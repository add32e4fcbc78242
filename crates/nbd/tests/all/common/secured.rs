//! A server with TLS beside the plain one, over the same volume, and a client that speaks TLS by rustls.

use super::Fixture;
use super::client::{self, PATIENCE, option};
use nbd::{ExportOptions, Limits, Server, Tls, serve_tls};
use pki::authority::{Role, init, issue};
use pki::{files, pair};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

pub fn now_s() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs()
}

pub struct Secured {
    server: Option<Server>,
    pub authority: PathBuf,
    pub fixture: Fixture,
}

impl Secured {
    pub fn new() -> Secured {
        Secured::with_limits(Limits::default())
    }

    pub fn with_limits(limits: Limits) -> Secured {
        let fixture = Fixture::new();
        let authority = fixture.dir.path().join("pki");
        init(&authority, "hearth test", "localhost", &["127.0.0.1".into()], now_s()).expect("there is room");
        let tls: Arc<Tls> = Tls::open(&authority).expect("the files are there");
        let server = serve_tls(fixture.runtime(), ([127, 0, 0, 1], 0).into(), limits, tls, &["disk"]).expect("loopback is there");
        server.add_export("disk", fixture.volume.clone(), ExportOptions::default()).unwrap();
        Secured { server: Some(server), authority, fixture }
    }

    pub fn server(&self) -> &Server {
        self.server.as_ref().expect("not stopped yet")
    }

    pub fn address(&self) -> SocketAddr {
        let uri = self.server().uri("disk");
        uri.strip_prefix("nbds://").and_then(|rest| rest.strip_suffix("/disk")).expect("as it is written").parse().unwrap()
    }

    /// Directory of a new client certificate.
    pub fn client(&self, name: &str) -> PathBuf {
        let into = self.authority.join(name);
        issue(&self.authority, name, &Role::Client, &into, now_s()).expect("there is room");
        into
    }

    pub fn uri(&self, certificates: &Path) -> String {
        format!("{}?tls-certificates={}", self.server().uri("disk"), certificates.display())
    }

    /// Connects with the certificate of that directory; `None`: without one.
    ///
    /// # Errors
    /// If the server refuses.
    pub fn connect(&self, certificates: Option<&Path>) -> io::Result<Client> {
        let trusted = certificates.unwrap_or(&self.authority);
        let config = config(trusted, certificates);
        Client::connect(self.address(), config)
    }
}

impl Drop for Secured {
    fn drop(&mut self) {
        if let Some(server) = self.server.take()
            && !std::thread::panicking()
        {
            server.stop(self.fixture.runtime(), PATIENCE).expect("the server stops");
        }
    }
}

pub fn config(trusted: &Path, certificates: Option<&Path>) -> ClientConfig {
    config_of(trusted, certificates, rustls::ALL_VERSIONS)
}

pub fn config_of(trusted: &Path, certificates: Option<&Path>, versions: &[&'static SupportedProtocolVersion]) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    for certificate in pair::certificates(&trusted.join(files::CA_CERTIFICATE)).unwrap() {
        roots.add(certificate).unwrap();
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
    let builder = builder.with_protocol_versions(versions).unwrap().with_root_certificates(roots);
    match certificates {
        None => builder.with_no_client_auth(),
        Some(directory) => {
            let own = pair::read(&directory.join(files::CLIENT_CERTIFICATE), &directory.join(files::CLIENT_KEY)).unwrap();
            builder.with_client_auth_cert(own.chain, own.key).unwrap()
        }
    }
}

/// A connection that has come to STARTTLS, with nothing of TLS said yet.
pub fn at_starttls(address: SocketAddr) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    stream.read_exact(&mut [0; 18])?;
    stream.write_all(&[0, 0, 0, 3])?;
    stream.write_all(&option(5, b""))?;
    let mut answer = [0; 20];
    stream.read_exact(&mut answer)?;
    assert_eq!(answer[12..20], [0, 0, 0, 1, 0, 0, 0, 0], "TLS may begin");
    Ok(stream)
}

pub struct Client {
    pub stream: StreamOwned<ClientConnection, TcpStream>,
    cookie: u64,
}

impl Client {
    pub fn connect(address: SocketAddr, config: ClientConfig) -> io::Result<Client> {
        let plain = at_starttls(address)?;
        let name = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
        Ok(Client { stream: StreamOwned::new(connection, plain), cookie: 0 })
    }

    /// Chooses an export with GO; simple replies.
    ///
    /// # Errors
    /// What the server says, or that it has closed.
    pub fn go(&mut self, name: &str) -> io::Result<()> {
        let mut data = (name.len() as u32).to_be_bytes().to_vec();
        data.extend_from_slice(name.as_bytes());
        data.extend_from_slice(&[0, 0]);
        self.stream.write_all(&option(7, &data))?;
        loop {
            let mut head = [0; 20];
            self.stream.read_exact(&mut head)?;
            let field = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
            let mut body = vec![0; field(16) as usize];
            self.stream.read_exact(&mut body)?;
            match field(12) {
                1 => return Ok(()),
                3 => (),
                kind => return Err(io::Error::other(format!("{kind:#x} {}", String::from_utf8_lossy(&body)))),
            }
        }
    }

    fn call(&mut self, kind: u16, offset: u64, length: u32, data: &[u8]) -> io::Result<()> {
        self.cookie += 1;
        let mut bytes = client::header(kind, 0, self.cookie, offset, length);
        bytes.extend_from_slice(data);
        self.stream.write_all(&bytes)?;
        let mut reply = [0; 16];
        self.stream.read_exact(&mut reply)?;
        assert_eq!(reply[4..8], [0; 4], "the request succeeds");
        assert_eq!(reply[8..], self.cookie.to_be_bytes());
        Ok(())
    }

    pub fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.call(client::WRITE, offset, data.len() as u32, data)
    }

    pub fn read(&mut self, offset: u64, length: u32) -> io::Result<Vec<u8>> {
        self.call(client::READ, offset, length, &[])?;
        let mut data = vec![0; length as usize];
        self.stream.read_exact(&mut data)?;
        Ok(data)
    }
}
