//! The other end of the API: one blocking request per connection over the Unix socket.
//!
//! HTTP/1.1 by hand: one verb, one body and one answer from a server that we wrote. The client of hyper, which serves the other end, is asynchronous:
//! each command would start a runtime, and most of this file would stay: which process listens, whether it is stopped or silent, an answer that comes
//! before the request was read, and events line by line. Answers are bounded in size and must say their length.

use crate::PREFIX;
use crate::error::Refusal;
use crate::server_events::EventReader;
pub use crate::server_events::ServerEvent;
use crate::words::SOCKET_PATH_BYTES_MAX;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::socket_peercred;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Largest answer: a thousand volumes with all counters are about 3 MB.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Longest header line.
const LINE_BYTES_MAX: u64 = 8 << 10;

/// Most header lines of an answer.
const HEADERS_MAX: usize = 100;
/// A stream of events that says nothing for so long is dead: the daemon sends a comment every 15 s.
const STREAM_PATIENCE: Duration = Duration::from_secs(45);

/// After this long without a word of the daemon, a call checks whether the process is stopped, and a look reports that it waits.
const QUIET: Duration = Duration::from_secs(2);
/// How long it may say nothing at all: after a minute it answers that what was asked for goes on.
const SILENCE_MAX: Duration = Duration::from_secs(90);

/// How the daemon of a socket is started: the packaged one by its unit.
fn starting_it(socket: &Path) -> &'static str {
    let is_packaged = socket.starts_with("/run/hearth") && Path::new("/lib/systemd/system/hearth.service").exists();
    if is_packaged { "systemctl start hearth" } else { "hearth serve" }
}

/// Why a call brought no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nothing listens.
    #[error(
        "no answer at {}: is the daemon running? start it with `{}`, or name its socket with --socket",
        .0.display(),
        starting_it(.0)
    )]
    NoDaemon(PathBuf),
    /// The socket is there, but not for us.
    #[error("{} refuses this user: run the command as root or as a member of the socket's group (`usermod -aG GROUP USER`)", .0.display())]
    NotAllowed(PathBuf),
    /// No socket can have that path.
    #[error(
        "the socket's path {} has {} bytes, and sockets have {SOCKET_PATH_BYTES_MAX} at most: give a shorter one with --socket",
        .0.display(),
        .0.as_os_str().len()
    )]
    LongPath(PathBuf),
    /// The connection ended in the middle.
    #[error(
        "the connection to the daemon ended early ({0}): see its log, start it again with `hearth serve`, and check with `hearth volume list` what was done"
    )]
    Gone(String),
    /// The daemon is there, and was stopped (SIGSTOP, a debugger).
    #[error("the daemon, process {0}, is stopped and answers no client: let it go on with `kill -CONT {0}`")]
    Stopped(i32),
    /// The daemon is there and does not answer.
    #[error("the daemon, process {pid}, has not answered for {} s: see its log, and try again", silent.as_secs())]
    Silent {
        /// Its process.
        pid: i32,
        /// How long.
        silent: Duration,
    },
    /// Something that is not our API answered.
    #[error("the server at {} is not hearth ({problem}): check --socket", socket.display())]
    NotHearth {
        /// Where it listens.
        socket: PathBuf,
        /// What is wrong with its answer.
        problem: String,
    },
    /// The daemon said no.
    #[error("{0}")]
    Refused(Box<Refusal>),
}

/// A client of one daemon.
#[derive(Clone, Debug)]
pub struct Client {
    socket: PathBuf,
    tell: fn(&str),
}

impl Client {
    /// A client for the daemon at `socket`; connects with each call.
    pub fn new(socket: &Path) -> Client {
        Client { socket: socket.to_path_buf(), tell: |_| () }
    }

    /// Says by `tell` who is waited for, when a look takes long.
    #[must_use]
    pub fn telling(self, tell: fn(&str)) -> Client {
        Client { tell, ..self }
    }

    /// Asks for something.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.call("GET", path, &[])
    }

    /// Sends something.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn send<T: DeserializeOwned>(&self, verb: &str, path: &str, body: &impl Serialize) -> Result<T, ClientError> {
        let body = serde_json::to_vec(body).expect("our own types can be written as JSON");
        self.call(verb, path, &body)
    }

    /// Asks for something to be done that needs no body.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn post<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.call("POST", path, &[])
    }

    /// Deletes something.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.call("DELETE", path, &[])
    }

    /// All metrics, as the text that a scrape gives (docs/metrics.md).
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn metrics(&self) -> Result<String, ClientError> {
        let body = self.exchange("GET", "/metrics", &[])?;
        String::from_utf8(body).map_err(|e| self.strange(e))
    }

    fn strange(&self, problem: impl std::fmt::Display) -> ClientError {
        ClientError::NotHearth { socket: self.socket.clone(), problem: problem.to_string() }
    }

    /// Server-sent events of `path`, one by one as they come; those with a number above `after` that came earlier are sent first. Connects
    /// when the first is asked for; ends after an error, and when the daemon ends the stream.
    pub fn stream(&self, path: &str, after: Option<u64>) -> impl Iterator<Item = Result<ServerEvent, ClientError>> + use<> {
        Stream { client: self.clone(), path: path.into(), after, events: None, ended: false }
    }

    fn connect(&self) -> Result<UnixStream, ClientError> {
        use std::io::ErrorKind;
        if self.socket.as_os_str().len() > SOCKET_PATH_BYTES_MAX {
            return Err(ClientError::LongPath(self.socket.clone()));
        }
        UnixStream::connect(&self.socket).map_err(|e| match e.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => ClientError::NoDaemon(self.socket.clone()),
            ErrorKind::PermissionDenied => ClientError::NotAllowed(self.socket.clone()),
            _ => self.strange(e),
        })
    }

    /// Waits until the daemon says something. A look that takes long reports the process that it waits for; what changes something is reported
    /// elsewhere.
    fn wait_for_answer(&self, stream: &UnixStream, is_look: bool) -> Result<(), ClientError> {
        let began = Instant::now();
        let pid = socket_peercred(stream).map_or(0, |peer| peer.pid.as_raw_nonzero().get());
        let mut is_reported = !is_look;
        while !is_readable(stream, QUIET) {
            if is_stopped(pid) {
                return Err(ClientError::Stopped(pid));
            }
            if began.elapsed() >= SILENCE_MAX {
                return Err(ClientError::Silent { pid, silent: SILENCE_MAX });
            }
            if !std::mem::replace(&mut is_reported, true) {
                (self.tell)(&format!("waiting for an answer of the daemon, process {pid}"));
            }
        }
        Ok(())
    }

    /// What the daemon said no with.
    fn refused(&self, body: &[u8]) -> ClientError {
        serde_json::from_slice(body).map_or_else(|e| self.strange(e), |refusal| ClientError::Refused(Box::new(refusal)))
    }

    fn broken(&self, error: std::io::Error) -> ClientError {
        use std::io::ErrorKind;
        match error.kind() {
            ErrorKind::InvalidData => self.strange(error),
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                ClientError::Gone(format!("it sent nothing for {} s", STREAM_PATIENCE.as_secs()))
            }
            _ => ClientError::Gone(error.to_string()),
        }
    }

    fn open_stream(&self, path: &str, after: Option<u64>) -> Result<EventReader<BufReader<UnixStream>>, ClientError> {
        let mut stream = self.connect()?;
        stream.set_read_timeout(Some(STREAM_PATIENCE)).map_err(|e| self.strange(e))?;
        let after = after.map_or(String::new(), |number| format!("Last-Event-ID: {number}\r\n"));
        let head =
            format!("GET {PREFIX}{path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n{after}Connection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).map_err(|e| self.broken(e))?;
        let mut from = BufReader::new(stream);
        let answer = read_head(&mut from).map_err(|e| self.broken(e))?;
        if answer.code == 200 {
            return Ok(EventReader::new(from, answer.chunked));
        }
        let body = read_body(&mut from, &answer).map_err(|e| self.broken(e))?;
        Err(self.refused(&body))
    }

    fn call<T: DeserializeOwned>(&self, verb: &str, path: &str, body: &[u8]) -> Result<T, ClientError> {
        let body = self.exchange(verb, &format!("{PREFIX}{path}"), body)?;
        serde_json::from_slice(&body).map_err(|e| self.strange(e))
    }

    /// The body of a good answer.
    fn exchange(&self, verb: &str, path: &str, body: &[u8]) -> Result<Vec<u8>, ClientError> {
        use std::io::ErrorKind;
        let mut stream = self.connect()?;
        let head = format!(
            "{verb} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        let gone = |e: std::io::Error| ClientError::Gone(e.to_string());
        let written = stream.write_all(&[head.as_bytes(), body].concat());
        self.wait_for_answer(&stream, verb == "GET")?;
        // A server that refuses early may close before it has read all: its answer counts.
        let answer = read_answer(&mut BufReader::new(stream));
        let (status, body) = match (answer, written) {
            (Ok(answer), _) => answer,
            (Err(_), Err(e)) => return Err(gone(e)),
            (Err(e), Ok(())) if e.kind() == ErrorKind::InvalidData => return Err(self.strange(e)),
            (Err(e), Ok(())) => return Err(gone(e)),
        };
        if status == 200 { Ok(body) } else { Err(self.refused(&body)) }
    }
}

/// Whether there is something to read, or nothing will come any more.
fn is_readable(stream: &UnixStream, patience: Duration) -> bool {
    let limit = Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: 0 };
    // What goes wrong here is told by the read.
    !matches!(poll(&mut [PollFd::new(stream, PollFlags::IN)], Some(&limit)), Ok(0))
}

/// Whether a process was stopped by a signal or a debugger, by proc_pid_stat(5).
fn is_stopped(pid: i32) -> bool {
    let state = |stat: String| stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok().and_then(state);
    matches!(state, Some('T' | 't'))
}

struct Stream {
    client: Client,
    path: String,
    after: Option<u64>,
    events: Option<EventReader<BufReader<UnixStream>>>,
    ended: bool,
}

impl Stream {
    fn read(&mut self) -> Result<Option<ServerEvent>, ClientError> {
        let events = match &mut self.events {
            Some(events) => events,
            empty => empty.insert(self.client.open_stream(&self.path, self.after)?),
        };
        events.next().map_err(|e| self.client.broken(e))
    }
}

impl Iterator for Stream {
    type Item = Result<ServerEvent, ClientError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.read().transpose();
        self.ended = !matches!(next, Some(Ok(_)));
        next
    }
}

/// What matters of an answer's head.
struct Head {
    code: u16,
    length: Option<usize>,
    chunked: bool,
}

/// Reads status and body.
fn read_answer(from: &mut impl BufRead) -> std::io::Result<(u16, Vec<u8>)> {
    let head = read_head(from)?;
    Ok((head.code, read_body(from, &head)?))
}

fn invalid(what: &str) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidData, what.to_string())
}

fn read_head(from: &mut impl BufRead) -> std::io::Result<Head> {
    let status = line(from)?;
    let code = status.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
    let mut head = Head { code: code.ok_or_else(|| invalid("its answer is not HTTP"))?, length: None, chunked: false };
    for _ in 0..HEADERS_MAX {
        let header = line(from)?;
        if header.is_empty() {
            return Ok(head);
        }
        let (name, value) = header.split_once(':').ok_or_else(|| invalid("a header is broken"))?;
        if name.eq_ignore_ascii_case("content-length") {
            head.length = Some(value.trim().parse::<usize>().map_err(|_| invalid("a length is broken"))?);
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            head.chunked = value.trim().eq_ignore_ascii_case("chunked");
        }
    }
    Err(invalid("its answer has too many headers"))
}

fn read_body(from: &mut impl BufRead, head: &Head) -> std::io::Result<Vec<u8>> {
    let length = head.length.ok_or_else(|| invalid("its answer has no length"))?;
    if length > ANSWER_BYTES_MAX {
        return Err(invalid("its answer is too long"));
    }
    let mut body = vec![0; length];
    from.read_exact(&mut body)?;
    Ok(body)
}

fn line(from: &mut impl BufRead) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    from.take(LINE_BYTES_MAX).read_until(b'\n', &mut bytes)?;
    if bytes.is_empty() {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    let text = bytes.strip_suffix(b"\r\n").map(|b| String::from_utf8_lossy(b).into_owned());
    text.ok_or_else(|| std::io::Error::new(std::io::ErrorKind::InvalidData, "a line is broken"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(answer: &str, expected: Result<(u16, &str), std::io::ErrorKind>) {
        let got = read_answer(&mut answer.as_bytes());
        match (got, expected) {
            (Ok((code, body)), Ok((expected_code, text))) => {
                assert_eq!((code, body.as_slice()), (expected_code, text.as_bytes()));
            }
            (Err(error), Err(kind)) => assert_eq!(error.kind(), kind, "{answer:?}"),
            (got, expected) => panic!("{answer:?} gave {got:?} instead of {expected:?}"),
        }
    }

    #[test]
    fn answers_are_read_or_refused() {
        use std::io::ErrorKind::{InvalidData, UnexpectedEof};
        check("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", Ok((200, "{}")));
        check("HTTP/1.1 404 Not Found\r\nA: b\r\nContent-Length: 0\r\n\r\n", Ok((404, "")));
        check("", Err(UnexpectedEof));
        check("HTTP/1.1 200 OK\r\n", Err(UnexpectedEof));
        check("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{}", Err(UnexpectedEof));
        check("SSH-2.0\r\n", Err(InvalidData));
        check("HTTP/1.1 200 OK\r\n\r\n", Err(InvalidData));
        check("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", Err(InvalidData));
        check("HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", Err(InvalidData));
        check(&"x".repeat(20_000), Err(InvalidData));
    }

    /// A server that sends `answer` to whoever asks first, and gives what was asked.
    fn serve_once(answer: &'static [u8]) -> (tempfile::TempDir, Client, std::thread::JoinHandle<String>) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let socket = directory.path().join("s");
        let listener = std::os::unix::net::UnixListener::bind(&socket).expect("it is ours");
        let client = Client::new(&socket);
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("somebody connects");
            let mut asked = String::new();
            let mut reader = BufReader::new(stream.try_clone().expect("a descriptor is free"));
            while !asked.ends_with("\r\n\r\n") {
                reader.read_line(&mut asked).expect("it is text");
            }
            stream.write_all(answer).expect("the client reads");
            asked
        });
        (directory, client, server)
    }

    #[test]
    fn a_stream_gives_events_until_it_ends() {
        let answer = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n\
            1c\r\nid: 6\nevent: event\ndata: {}\n\r\n1\r\n\n\r\n6\r\n: ok\n\n\r\n0\r\n\r\n";
        let (_directory, client, server) = serve_once(answer);
        let events: Vec<_> = client.stream("/stream", Some(5)).collect();
        let asked = server.join().expect("it ends");
        assert!(asked.starts_with("GET /api/v1/stream HTTP/1.1\r\n") && asked.contains("\r\nLast-Event-ID: 5\r\n"), "{asked}");
        let expected = ServerEvent { id: Some(6), event: "event".into(), data: "{}".into() };
        assert!(matches!(events.as_slice(), [Ok(event)] if *event == expected), "{events:?}");
    }

    #[test]
    fn a_stream_that_breaks_says_so_once() {
        let (_directory, client, server) = serve_once(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n9\r\ndata: a\n\n\r\n5\r\nda");
        let events: Vec<_> = client.stream("/stream", None).collect();
        server.join().expect("it ends");
        assert!(matches!(events.as_slice(), [Ok(_), Err(ClientError::Gone(_))]), "{events:?}");
        let refusal = b"HTTP/1.1 404 Not Found\r\nContent-Length: 113\r\n\r\n\
            {\"type\":\"/problems/not_found\",\"title\":\"x\",\"status\":404,\"detail\":\"nothing here\",\"kind\":\"not_found\",\"instance\":\"/\"}";
        let (_directory, client, server) = serve_once(refusal);
        let events: Vec<_> = client.stream("/stream", None).collect();
        server.join().expect("it ends");
        assert!(matches!(events.as_slice(), [Err(ClientError::Refused(_))]), "{events:?}");
        let nobody = Client::new(Path::new("/nonexistent/hearth.sock"));
        assert!(matches!(nobody.stream("/stream", None).collect::<Vec<_>>().as_slice(), [Err(ClientError::NoDaemon(_))]));
    }

    #[test]
    fn a_vanished_socket_says_how_to_start_the_daemon() {
        let client = Client::new(Path::new("/nonexistent/hearth.sock"));
        let error = client.get::<serde_json::Value>("/daemon").expect_err("nobody is there");
        assert!(error.to_string().contains("start it with `hearth serve`"), "{error}");
    }
}
