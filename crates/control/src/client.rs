//! The other end of the API: one blocking request per connection over the Unix socket.
//!
//! HTTP/1.1 by hand, because the command line needs one verb, one body and one answer from a server that we wrote, and
//! because a general client would bring in a second runtime. Answers are bounded in size and must say their length.

use crate::api::PREFIX;
use crate::error::Refusal;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// Largest answer: a thousand volumes with all counters are about 3 MB.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Longest header line.
const LINE_BYTES_MAX: u64 = 8 << 10;

/// Why a call brought no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens.
    #[error(
        "nobody answers at {}: is the daemon running? start it with `hearth serve`, or name its socket with --socket",
        .0.display()
    )]
    NoDaemon(PathBuf),
    /// The socket is there, but not for us.
    #[error("{} may not be used by you: ask as root, or as a member of the socket's group", .0.display())]
    NotAllowed(PathBuf),
    /// The connection ended in the middle.
    #[error(
        "the daemon went away in the middle ({0}): see its log, start it again with `hearth serve`, and look with `hearth volume list` at what was done"
    )]
    Gone(String),
    /// Something that is not our API answered.
    #[error("what answers at {} is not hearth ({problem}): check --socket", socket.display())]
    NotHearth {
        /// Where it listens.
        socket: PathBuf,
        /// What is wrong with its answer.
        problem: String,
    },
    /// The daemon said no.
    #[error("{0}")]
    Refused(Refusal),
}

/// A client of one daemon.
#[derive(Clone, Debug)]
pub struct Client {
    socket: PathBuf,
}

impl Client {
    /// A client for the daemon at `socket`; connects with each call.
    pub fn new(socket: &Path) -> Client {
        Client { socket: socket.to_path_buf() }
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

    fn strange(&self, problem: impl std::fmt::Display) -> ClientError {
        ClientError::NotHearth { socket: self.socket.clone(), problem: problem.to_string() }
    }

    fn call<T: DeserializeOwned>(&self, verb: &str, path: &str, body: &[u8]) -> Result<T, ClientError> {
        use std::io::ErrorKind;
        let mut stream = UnixStream::connect(&self.socket).map_err(|e| match e.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => ClientError::NoDaemon(self.socket.clone()),
            ErrorKind::PermissionDenied => ClientError::NotAllowed(self.socket.clone()),
            _ => self.strange(e),
        })?;
        let head = format!(
            "{verb} {PREFIX}{path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        let gone = |e: std::io::Error| ClientError::Gone(e.to_string());
        let written = stream.write_all(&[head.as_bytes(), body].concat());
        // A server that refuses early may close before it has read all: its answer counts.
        let answer = read_answer(&mut BufReader::new(stream));
        let (status, body) = match (answer, written) {
            (Ok(answer), _) => answer,
            (Err(_), Err(e)) => return Err(gone(e)),
            (Err(e), Ok(())) if e.kind() == ErrorKind::InvalidData => return Err(self.strange(e)),
            (Err(e), Ok(())) => return Err(gone(e)),
        };
        if status == 200 {
            serde_json::from_slice(&body).map_err(|e| self.strange(e))
        } else {
            Err(ClientError::Refused(serde_json::from_slice(&body).map_err(|e| self.strange(e))?))
        }
    }
}

/// Reads status and body.
fn read_answer(from: &mut impl BufRead) -> std::io::Result<(u16, Vec<u8>)> {
    let invalid = |what: &str| std::io::Error::new(std::io::ErrorKind::InvalidData, what.to_string());
    let status = line(from)?;
    let code = status.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
    let code = code.ok_or_else(|| invalid("its answer is not HTTP"))?;
    let mut length = None;
    loop {
        let header = line(from)?;
        if header.is_empty() {
            break;
        }
        let (name, value) = header.split_once(':').ok_or_else(|| invalid("a header is broken"))?;
        if name.eq_ignore_ascii_case("content-length") {
            length = Some(value.trim().parse::<usize>().map_err(|_| invalid("a length is broken"))?);
        }
    }
    let length = length.ok_or_else(|| invalid("its answer has no length"))?;
    if length > ANSWER_BYTES_MAX {
        return Err(invalid("its answer is too long"));
    }
    let mut body = vec![0; length];
    from.read_exact(&mut body)?;
    Ok((code, body))
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

    #[test]
    fn a_vanished_socket_says_how_to_start_the_daemon() {
        let client = Client::new(Path::new("/nonexistent/hearth.sock"));
        let error = client.get::<serde_json::Value>("/daemon").expect_err("nobody is there");
        assert!(error.to_string().contains("start it with `hearth serve`"), "{error}");
    }
}
