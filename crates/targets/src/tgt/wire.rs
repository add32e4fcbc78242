//! How `tgtd` is spoken to: one order on each connection to its Unix socket, one answer. The form is
//! that of its own program `tgtadm`, unchanged since 2012: a fixed head, then words.
//!
//! Not by that program: its arguments, secrets too, could be read by every user of the machine.

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Its socket, up to the number of the control port.
const SOCKET: &str = "/var/run/tgtd/socket";
/// As `tgtadm` and `tgtd` read it: another place of the socket.
const SOCKET_VARIABLE: &str = "TGT_IPC_SOCKET";
/// It has one thread: one that does not answer for so long, from the connection to the last byte, hangs.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long one that hangs is left alone, at first and at last, unless it is started anew.
const PAUSE: Duration = Duration::from_secs(5);
const PAUSE_MAX: Duration = Duration::from_secs(60);
const HEAD_BYTES: usize = 120;
/// Longest answer: some thousands of targets.
const ANSWER_BYTES_MAX: u32 = 16 << 20;

/// What an order is about.
#[derive(Clone, Copy)]
pub(super) enum Mode {
    System = 0,
    Target = 1,
    Unit = 2,
    Portal = 3,
    Connection = 6,
    Account = 7,
}

/// What is to be done.
#[derive(Clone, Copy)]
pub(super) enum Act {
    New = 0,
    Delete = 1,
    Show = 2,
    Bind = 3,
    Unbind = 4,
    Update = 5,
}

/// One order.
#[derive(Clone)]
pub(super) struct Order {
    mode: Mode,
    act: Act,
    target: i32,
    session: u64,
    connection: u32,
    unit: u64,
    is_outgoing: bool,
    force: bool,
    words: String,
}

impl Order {
    pub(super) fn new(mode: Mode, act: Act) -> Order {
        Order { mode, act, target: -1, session: 0, connection: 0, unit: 0, is_outgoing: false, force: false, words: String::new() }
    }

    pub(super) fn target(self, target: i32) -> Order {
        Order { target, ..self }
    }

    pub(super) fn connection(self, session: u64, connection: u32) -> Order {
        Order { session, connection, ..self }
    }

    pub(super) fn unit(self, unit: u64) -> Order {
        Order { unit, ..self }
    }

    pub(super) fn outgoing(self) -> Order {
        Order { is_outgoing: true, ..self }
    }

    pub(super) fn force(self) -> Order {
        Order { force: true, ..self }
    }

    pub(super) fn words(self, words: String) -> Order {
        Order { words, ..self }
    }

    fn bytes(&self) -> Vec<u8> {
        // With the zero that ends them.
        let words_bytes = if self.words.is_empty() { 0 } else { self.words.len() + 1 };
        let mut bytes = Vec::with_capacity(HEAD_BYTES + words_bytes);
        let mut put = |value: u32| bytes.extend_from_slice(&value.to_ne_bytes());
        put(self.mode as u32);
        put(self.act as u32);
        bytes.extend_from_slice(b"iscsi");
        bytes.resize(72, 0);
        bytes.extend_from_slice(&((HEAD_BYTES + words_bytes) as u32).to_ne_bytes());
        bytes.extend_from_slice(&self.target.to_ne_bytes());
        bytes.extend_from_slice(&self.session.to_ne_bytes());
        bytes.extend_from_slice(&self.unit.to_ne_bytes());
        // Connection, host, kind of device (0: a disk), direction, unused, force.
        for value in [self.connection, 0, 0, u32::from(self.is_outgoing), 0, u32::from(self.force)] {
            bytes.extend_from_slice(&value.to_ne_bytes());
        }
        bytes.extend_from_slice(self.words.as_bytes());
        bytes.resize(HEAD_BYTES + words_bytes, 0);
        bytes
    }
}

/// Why an order was not carried out.
#[derive(Debug)]
pub(super) enum Refusal {
    /// Nobody listens.
    Absent(io::Error),
    /// It hangs, or what it says is no answer.
    Silent(io::Error),
    /// It closed the connection without an answer: it obeys its own user and group only.
    NotAllowed,
    /// Its own number.
    Code(u32),
}

impl Refusal {
    pub(super) const TARGET_EXISTS: u32 = 9;
    pub(super) const NO_CONNECTION: u32 = 7;
    pub(super) const USER_EXISTS: u32 = 14;
    pub(super) const NO_ACL: u32 = 13;
    pub(super) const UNIT_ACTIVE: u32 = 20;

    pub(super) fn is(&self, code: u32) -> bool {
        matches!(self, Refusal::Code(own) if *own == code)
    }
}

/// A `tgtd`. Clones know of each other what they waited for in vain.
#[derive(Clone, Debug)]
pub struct Tgtd {
    socket: PathBuf,
    patience: Duration,
    pause: Duration,
    hangs: Arc<Mutex<Option<Hang>>>,
}

/// It did not answer.
#[derive(Clone, Copy, Debug)]
struct Hang {
    /// Which of them: each start of it makes the socket anew.
    socket: Option<SocketMark>,
    until: Instant,
    pause: Duration,
}

type SocketMark = (u64, i64, i64);

impl Tgtd {
    /// The one of this machine.
    pub fn of_machine() -> Tgtd {
        let socket = std::env::var(SOCKET_VARIABLE).unwrap_or_else(|_| SOCKET.into());
        Tgtd::at(format!("{socket}.0"))
    }

    /// The one with this socket.
    pub fn at(socket: impl Into<PathBuf>) -> Tgtd {
        Tgtd { socket: socket.into(), patience: PATIENCE, pause: PAUSE, hangs: Arc::default() }
    }

    /// How long an answer is waited for, and how long it is left alone first when none has come.
    #[must_use]
    pub fn with_patience(self, patience: Duration, pause: Duration) -> Tgtd {
        Tgtd { patience, pause, ..self }
    }

    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Waits at most as long as its patience, and not at all while one that hangs is left alone.
    pub(super) fn ask(&self, order: &Order) -> Result<String, Refusal> {
        let socket = self.mark();
        let before = self.hangs().filter(|hang| hang.socket == socket);
        if before.is_some_and(|hang| Instant::now() < hang.until) {
            return Err(Refusal::Silent(io::ErrorKind::TimedOut.into()));
        }
        let answer = self.exchange(order, Instant::now() + self.patience);
        let is_late = |error: &io::Error| matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock);
        *self.hangs() = match &answer {
            Err(Refusal::Silent(error)) if is_late(error) => {
                let pause = before.map_or(self.pause, |hang| (hang.pause * 2).min(PAUSE_MAX));
                Some(Hang { socket, until: Instant::now() + pause, pause })
            }
            _ => None,
        };
        answer
    }

    fn hangs(&self) -> MutexGuard<'_, Option<Hang>> {
        self.hangs.lock().expect("no holder of this lock panics")
    }

    fn mark(&self) -> Option<SocketMark> {
        let facts = std::fs::symlink_metadata(&self.socket).ok()?;
        Some((facts.ino(), facts.ctime(), facts.ctime_nsec()))
    }

    fn exchange(&self, order: &Order, end: Instant) -> Result<String, Refusal> {
        let stream = self.connect(end).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Refusal::Absent(error),
            _ => Refusal::Silent(error),
        })?;
        talk(&mut Bounded { stream, end, bytes: 0 }, order)
    }

    /// Where all places of those that wait for it are taken, the kernel waits no longer than for a write.
    fn connect(&self, end: Instant) -> io::Result<UnixStream> {
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(left(end)?))?;
        connect(&socket, &SocketAddrUnix::new(&self.socket)?)?;
        Ok(UnixStream::from(socket))
    }
}

/// Until then; an error afterwards.
fn left(end: Instant) -> io::Result<Duration> {
    // The kernel counts microseconds, and takes none for no limit.
    let least = Duration::from_micros(1);
    end.checked_duration_since(Instant::now()).filter(|left| *left >= least).ok_or_else(|| io::ErrorKind::TimedOut.into())
}

/// A connection whose uses all end by one time.
struct Bounded {
    stream: UnixStream,
    end: Instant,
    /// How many came in.
    bytes: usize,
}

impl Read for Bounded {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(left(self.end)?))?;
        let bytes = self.stream.read(buffer)?;
        self.bytes += bytes;
        Ok(bytes)
    }
}

impl Write for Bounded {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(left(self.end)?))?;
        self.stream.write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn talk(stream: &mut Bounded, order: &Order) -> Result<String, Refusal> {
    let mut head = [0; 8];
    let done = stream.write_all(&order.bytes()).and_then(|()| stream.read_exact(&mut head));
    let is_closed = |error: &io::Error| {
        matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
    };
    match done {
        Err(error) if is_closed(&error) && stream.bytes == 0 => return Err(Refusal::NotAllowed),
        done => done.map_err(Refusal::Silent)?,
    }
    let [code, bytes] = [0, 4].map(|at| u32::from_ne_bytes(head[at..at + 4].try_into().expect("four bytes")));
    if code != 0 {
        return Err(Refusal::Code(code));
    }
    let bytes = bytes.checked_sub(8).filter(|bytes| *bytes <= ANSWER_BYTES_MAX);
    let bytes = bytes.ok_or_else(|| Refusal::Silent(io::ErrorKind::InvalidData.into()))?;
    // Not all of them at once: it may say more than it has.
    let mut text = Vec::new();
    stream.take(u64::from(bytes)).read_to_end(&mut text).map_err(Refusal::Silent)?;
    if text.len() < bytes as usize {
        return Err(Refusal::Silent(io::ErrorKind::UnexpectedEof.into()));
    }
    Ok(String::from_utf8_lossy(&text).trim_end_matches('\0').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn an_order_has_the_form_of_tgtadm() {
        let order = Order::new(Mode::Account, Act::Bind).target(7).outgoing().words("user=a".into());
        let bytes = order.bytes();
        assert_eq!(bytes.len(), HEAD_BYTES + 7);
        let number = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        assert_eq!([number(0), number(4), number(72), number(76), number(108), number(116)], [7, 3, 127, 7, 1, 0]);
        assert_eq!(&bytes[8..14], b"iscsi\0");
        assert_eq!(&bytes[HEAD_BYTES..], b"user=a\0");
        assert_eq!(Order::new(Mode::Target, Act::Show).bytes().len(), HEAD_BYTES, "without words: the head alone");
    }

    #[test]
    fn answers_refusals_and_silence_are_told_apart() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("s.0");
        let order = Order::new(Mode::Target, Act::Show);
        assert!(matches!(Tgtd::at(&path).ask(&order), Err(Refusal::Absent(_))));
        let listener = UnixListener::bind(&path).expect("free");
        let server = std::thread::spawn(move || {
            for answer in [Some((0_u32, "Target 1: x")), Some((9, "")), None] {
                let (mut stream, _) = listener.accept().expect("one comes");
                stream.read_exact(&mut [0; HEAD_BYTES]).expect("an order");
                if let Some((code, text)) = answer {
                    stream.write_all(&code.to_ne_bytes()).expect("it listens");
                    stream.write_all(&(8 + text.len() as u32).to_ne_bytes()).expect("it listens");
                    stream.write_all(text.as_bytes()).expect("it listens");
                }
            }
        });
        let tgtd = Tgtd::at(&path);
        assert_eq!(tgtd.ask(&order).expect("an answer"), "Target 1: x");
        assert!(tgtd.ask(&order).is_err_and(|refusal| refusal.is(Refusal::TARGET_EXISTS)));
        assert!(matches!(tgtd.ask(&order), Err(Refusal::NotAllowed)));
        server.join().expect("no panic");
    }
}
