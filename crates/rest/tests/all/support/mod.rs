//! A server over a data path in memory, and clients that may say anything.
#![allow(dead_code)] // Each test file uses a part.

use control::manager::Manager;
use control::manager::fake::World;
use rest::server::ServerLimits;
use rest::{Server, ServerOptions, StopSender, TcpOptions, stop_pair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long an answer, or anything else that is sure to come, is waited for.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Looks until it is so: far longer than it takes, on a busy machine too.
#[track_caller]
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A server that ends with its guard.
pub struct Running {
    pub directory: tempfile::TempDir,
    pub manager: Manager,
    pub world: World,
    pub tcp: Option<SocketAddr>,
    stop: Option<StopSender>,
    thread: Option<JoinHandle<std::io::Result<()>>>,
}

/// An answer taken apart.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// Checks that it is a whole problem document of that kind; gives its detail and remedy.
    pub fn problem(&self, status: u16, kind: &str) -> String {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let json = self.json();
        assert_eq!(json["kind"], kind, "{self:?}");
        assert_eq!(json["type"], format!("/problems/{kind}"), "{self:?}");
        assert_eq!(json["status"], status, "{self:?}");
        assert!(json["title"].as_str().is_some_and(|t| !t.is_empty()), "{self:?}");
        let (detail, remedy) = (json["detail"].as_str().expect("a detail"), json["remedy"].as_str().expect("a remedy"));
        assert!(!detail.is_empty() && (!detail.ends_with('.') || detail.ends_with("- or .")) && !remedy.is_empty(), "{self:?}");
        format!("{detail}; {remedy}")
    }
}

/// Room for many requests; tests of the limits set their own.
pub fn limits() -> ServerLimits {
    ServerLimits { requests_per_second: 1e6, requests_burst: 1e6, ..ServerLimits::default() }
}

impl Running {
    /// On the socket alone.
    pub fn start() -> Running {
        Running::with(|options| options.limits = limits())
    }

    /// On the socket and on TCP.
    pub fn with_tcp() -> Running {
        Running::with(|options| {
            options.limits = limits();
            options.tcp = Some(TcpOptions::at(([127, 0, 0, 1], 0).into()));
        })
    }

    pub fn with(change: impl FnOnce(&mut ServerOptions)) -> Running {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let world = World::default();
        world.add_device("/dev/ssd", 1 << 30);
        world.add_device("/dev/disk", 1 << 34);
        let manager = Manager::open(Arc::new(world.clone()), Box::new(world.clone()), directory.path()).expect("an empty state");
        let mut options = ServerOptions::new(directory.path());
        change(&mut options);
        let server = Server::bind(&directory.path().join("h.sock"), options).expect("it can listen");
        let tcp = server.tcp_address();
        let (stop, stopped) = stop_pair();
        let managed = manager.clone();
        let thread = std::thread::spawn(move || server.serve(managed, stopped));
        Running { directory, manager, world, tcp, stop: Some(stop), thread: Some(thread) }
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("h.sock")
    }

    /// Says something on the socket, as it is.
    pub fn connect(&self, says: &[u8]) -> UnixStream {
        let mut stream = UnixStream::connect(self.socket()).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.write_all(says).expect("there is room");
        stream
    }

    /// Says something on the socket, and takes what comes until it is closed.
    pub fn raw(&self, says: &[u8]) -> Answer {
        read_all(&mut self.connect(says))
    }

    /// One request on the socket. Its answer has a status that the description knows for the path.
    pub fn ask(&self, method: &str, path: &str, body: &str) -> Answer {
        let answer = self.raw(request(method, path, &[], body).as_bytes());
        if let Some(statuses) = described(method, path) {
            assert!(statuses.contains(&answer.status.to_string()), "{method} {path}: the description has {statuses:?}: {answer:?}");
        }
        answer
    }

    /// Opens TLS, trusting the server's own certificate.
    pub fn secure(&self) -> StreamOwned<ClientConnection, TcpStream> {
        secure(self.tcp.expect("it listens"), &self.directory.path().join("tls/certificate.pem"))
    }

    /// One request over TLS.
    pub fn ask_tls(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let mut stream = self.secure();
        stream.write_all(request(method, path, headers, body).as_bytes()).expect("there is room");
        read_all(&mut stream)
    }

    /// Opens TCP and says something that is no whole TLS handshake.
    pub fn half_open(&self, says: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.tcp.expect("it listens")).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.write_all(says).expect("there is room");
        stream
    }

    /// A new token, by the socket.
    pub fn token(&self, name: &str, role: &str) -> String {
        let made = self.ask("POST", "/api/v1/tokens", &format!("{{\"name\":\"{name}\",\"role\":\"{role}\"}}"));
        assert_eq!(made.status, 200, "{made:?}");
        made.json()["token"].as_str().expect("a token").to_string()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.stop.take());
        let ended = self.thread.take().expect("it runs").join();
        if !std::thread::panicking() {
            ended.expect("it does not panic").expect("it ends well");
        }
    }
}

/// The statuses that the description has for a request, if it knows path and method.
fn described(method: &str, path: &str) -> Option<BTreeSet<String>> {
    static DESCRIPTION: LazyLock<Value> = LazyLock::new(|| serde_json::from_str(&rest::openapi::document()).expect("JSON"));
    let parts: Vec<&str> = path.split('?').next()?.split('/').collect();
    let is_of = |pattern: &str| {
        let pattern: Vec<&str> = pattern.split('/').collect();
        pattern.len() == parts.len() && pattern.iter().zip(&parts).all(|(wanted, part)| wanted.starts_with('{') || wanted == part)
    };
    // A fixed name counts before one in braces.
    let paths = DESCRIPTION["paths"].as_object()?;
    let item = paths.get(&parts.join("/")).or_else(|| paths.iter().find(|(pattern, _)| is_of(pattern)).map(|(_, item)| item))?;
    Some(item[method.to_lowercase()]["responses"].as_object()?.keys().cloned().collect())
}

/// Text of a request that closes its connection. Headers given replace those of the same name.
pub fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> String {
    let mut all = vec![("host", "localhost".to_string()), ("connection", "close".into())];
    if !body.is_empty() {
        all.push(("content-type", "application/json".into()));
        all.push(("content-length", body.len().to_string()));
    }
    all.retain(|(name, _)| !headers.iter().any(|(other, _)| other.eq_ignore_ascii_case(name)));
    all.extend(headers.iter().map(|(name, value)| (*name, value.to_string())));
    let lines: String = all.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("{method} {path} HTTP/1.1\r\n{lines}\r\n{body}")
}

pub fn read_all(from: &mut impl Read) -> Answer {
    let mut bytes = Vec::new();
    // A TLS peer may close without its farewell; what came counts.
    let mut part = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut part) {
        bytes.extend_from_slice(&part[..count]);
    }
    let text = String::from_utf8(bytes).expect("text");
    parse(&text).unwrap_or_else(|| panic!("no answer: {text:?}"))
}

pub fn parse(text: &str) -> Option<Answer> {
    let (head, body) = text.split_once("\r\n\r\n")?;
    let mut lines = head.lines();
    let status = lines.next()?.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    let headers = lines.filter_map(|l| l.split_once(": ")).map(|(n, v)| (n.to_string(), v.to_string())).collect();
    Some(Answer { status, headers, body: body.to_string() })
}

pub fn secure(address: SocketAddr, certificate: &Path) -> StreamOwned<ClientConnection, TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificate).expect("its certificate")).expect("a certificate");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().expect("versions");
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let name = ServerName::try_from("localhost").expect("a name");
    let connection = ClientConnection::new(Arc::new(config), name).expect("a connection");
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    StreamOwned::new(connection, stream)
}
