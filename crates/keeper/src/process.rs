//! The process of our own that holds descriptors: started when there is something to keep, found
//! again by the next daemon, and started anew if it ends.

use crate::wire::{self, Kind};
use crate::{Kept, ProcessOptions, SOCKET, borrowed, locked};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with, sockopt};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

/// How soon the process is started again, if it ended.
const PAUSE: Duration = Duration::from_secs(1);
/// How long it may take to answer. One that is stopped is left alone, and another is started.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Process {
    options: ProcessOptions,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    socket: Option<Arc<OwnedFd>>,
    /// Copies of all that is kept, for a process that has to be started anew.
    kept: Kept,
}

impl Process {
    pub(crate) fn new(options: ProcessOptions) -> Process {
        Process { options, inner: Mutex::default() }
    }

    pub(crate) fn take(self: &Arc<Process>) -> io::Result<Kept> {
        let mut inner = locked(&self.inner);
        let Some(socket) = self.find()? else { return Ok(Kept::new()) };
        wire::send(socket.as_fd(), Kind::Take, "", &[])?;
        let mut kept = Kept::new();
        loop {
            match wire::receive(socket.as_fd())? {
                Some((Kind::Keep, name, descriptors)) => drop(kept.insert(name, descriptors)),
                Some((Kind::Done, ..)) => break,
                _ => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
        for (name, descriptors) in &kept {
            inner.kept.insert(name.clone(), crate::copies(&borrowed(descriptors))?);
        }
        self.watch(&mut inner, socket);
        Ok(kept)
    }

    pub(crate) fn keep(self: &Arc<Process>, name: &str, descriptors: Vec<OwnedFd>) -> io::Result<()> {
        let mut inner = locked(&self.inner);
        inner.kept.insert(name.to_owned(), descriptors);
        if inner.socket.is_none() {
            return self.start(&mut inner);
        }
        match ask(&inner, Kind::Keep, name) {
            Err(error) if error.kind() == io::ErrorKind::OutOfMemory => Err(error),
            // One that has ended is started anew, with all there is.
            told => told.or_else(|_| self.start(&mut inner)),
        }
    }

    pub(crate) fn forget(self: &Arc<Process>, name: &str) -> io::Result<()> {
        let mut inner = locked(&self.inner);
        if inner.kept.remove(name).is_none() || inner.socket.is_none() {
            return Ok(());
        }
        // An answer that came late would be taken for that to the next question.
        ask(&inner, Kind::Forget, name).or_else(|_| self.start(&mut inner))
    }

    /// Starts the process and gives it all that is kept.
    fn start(self: &Arc<Process>, inner: &mut MutexGuard<'_, Inner>) -> io::Result<()> {
        // One that has only been slow lets go of everything when it comes to that.
        if let Some(socket) = inner.socket.take()
            && let Err(error) = rustix::net::shutdown(&*socket, rustix::net::Shutdown::Both)
        {
            tracing::debug!(%error, "the process before was gone");
        }
        let directory = self.open_directory()?;
        let address = address(&directory)?;
        match rustix::fs::unlinkat(&directory, SOCKET, rustix::fs::AtFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        let listener = new_socket()?;
        bind(&listener, &address)?;
        listen(&listener, 4)?;
        let mut command = Command::new(&self.options.program);
        command.args(&self.options.arguments).arg0("hearth").current_dir("/");
        // A process group of its own: what ends the daemon from a terminal does not end it.
        command.stdin(Stdio::from(listener)).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let mut child = command.spawn()?;
        std::thread::Builder::new().name("keeper-end".into()).spawn(move || child.wait())?;
        let socket = new_socket()?;
        connect(&socket, &address)?;
        self.watch(inner, socket);
        let names: Vec<String> = inner.kept.keys().cloned().collect();
        // One set that cannot be kept does not take the others along.
        let told: Vec<io::Result<()>> = names.iter().map(|name| ask(inner, Kind::Keep, name)).collect();
        told.into_iter().collect()
    }

    /// The process that an earlier daemon has started, if there is one.
    fn find(&self) -> io::Result<Option<OwnedFd>> {
        let directory = self.open_directory()?;
        let socket = new_socket()?;
        match connect(&socket, &address(&directory)?) {
            Ok(()) => Ok(Some(socket)),
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::CONNREFUSED) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn open_directory(&self) -> io::Result<OwnedFd> {
        use rustix::fs::{Mode, OFlags, open};
        Ok(open(&self.options.directory, OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY, Mode::empty())?)
    }

    /// Notices when the process ends, and starts another while there is something to keep.
    fn watch(self: &Arc<Process>, inner: &mut MutexGuard<'_, Inner>, socket: OwnedFd) {
        let socket = Arc::new(socket);
        inner.socket = Some(socket.clone());
        let this = Arc::downgrade(self);
        let watching = std::thread::Builder::new().name("keeper".into()).spawn(move || watch(&this, &socket));
        if let Err(error) = watching {
            tracing::warn!(%error, "the process that holds the exports is not watched: its end will not be noticed");
        }
    }
}

fn watch(process: &Weak<Process>, socket: &Arc<OwnedFd>) {
    use rustix::event::{PollFd, PollFlags, poll};
    // Only its end is of interest: answers are read by those who ask.
    let mut polled = [PollFd::new(&**socket, PollFlags::RDHUP)];
    while poll(&mut polled, None) == Err(rustix::io::Errno::INTR) {}
    loop {
        let Some(process) = process.upgrade() else { return };
        let mut inner = locked(&process.inner);
        let is_present = inner.socket.as_ref().is_none_or(|now| Arc::ptr_eq(now, socket));
        if !is_present || inner.kept.is_empty() {
            if is_present {
                inner.socket = None;
            }
            return;
        }
        tracing::warn!("the process that holds the exports has ended: another one is started");
        match process.start(&mut inner) {
            Ok(()) => return,
            Err(error) => tracing::warn!(%error, "it cannot be started"),
        }
        drop(inner);
        drop(process);
        std::thread::sleep(PAUSE);
    }
}

/// Says one thing about a set and waits until it is done.
fn ask(inner: &Inner, kind: Kind, name: &str) -> io::Result<()> {
    let socket = inner.socket.as_ref().ok_or(io::ErrorKind::NotConnected)?;
    let descriptors = match kind {
        Kind::Keep => borrowed(inner.kept.get(name).ok_or(io::ErrorKind::NotFound)?),
        _ => Vec::new(),
    };
    wire::send(socket.as_fd(), kind, name, &descriptors)?;
    match wire::receive(socket.as_fd())? {
        Some((Kind::Done, ..)) => Ok(()),
        Some((Kind::Forget, ..)) => Err(io::ErrorKind::OutOfMemory.into()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn new_socket() -> io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(ANSWER_PATIENCE))?;
    Ok(socket)
}

/// The socket's address by its directory's descriptor: paths of sockets are short, paths of
/// directories need not be.
fn address(directory: &OwnedFd) -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new(format!("/proc/self/fd/{}/{SOCKET}", directory.as_raw_fd()))?)
}
