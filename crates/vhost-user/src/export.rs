//! An export as the control thread sees it, and what its front ends share: the socket, and whose turn it is.
//!
//! Any number of front ends may connect and ask what the device is; the queues of one run at a time. So a front end that connects and does
//! nothing keeps no other out, and the second half of a migration can connect while the first still runs. Of those whose queues do not
//! run, the oldest gives way when there are too many.

use crate::block::{BlockDevice, SERIAL_BYTES};
use crate::error::VhostUserError;
use crate::mapping::Quota;
use crate::message::config_changed;
use crate::own_notes::OwnNotes;
use crate::session::Session;
use crate::succession::{Ended, Notes, Succession};
use runtime::{Context, Endpoint, EndpointAdder, EndpointGroup, Runtime, VolumeRef, monotonic_ns};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType};
use shares::{Slot, Table};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Front ends at a time whose queues do not run.
const IDLE_MAX: usize = 16;
/// Threads of front ends at a time: those above, one that runs queues, and some whose end takes long. More front ends wait to be accepted.
const THREADS_MAX: usize = 64;
/// So long each of them has before it gives way: a hundred times what it takes to set a device up on an idle machine.
const GRACE_NS: u64 = 100_000_000;
/// How long to wait before one more is let in while all others have their time.
const NOT_YET: Duration = Duration::from_millis(10);
/// How long a front end waits for the requests of the one before it.
const CLAIM_PATIENCE: Duration = Duration::from_secs(60);
/// Front ends that wait until they are accepted.
const BACKLOG: i32 = 16;
/// A session's thread needs little.
const STACK_BYTES: usize = 256 << 10;

/// How an export is made.
#[derive(Clone, Debug)]
pub struct ExportOptions {
    /// What the guest sees as the disk's serial number; the first 20 bytes count.
    pub serial: String,
    /// The socket's mode.
    pub mode: u32,
    /// The volume does not have the content that guests of an earlier daemon knew: those that come
    /// with requests of that one are not served before they have restarted.
    pub refuses_earlier: bool,
    /// The file that tells a daemon after a crash whose requests were under way, in a directory where nobody else writes. `None`: beside
    /// the socket.
    pub succession: Option<PathBuf>,
}

impl Default for ExportOptions {
    fn default() -> ExportOptions {
        ExportOptions { serial: String::new(), mode: 0o660, refuses_earlier: false, succession: None }
    }
}

/// A volume as a vhost-user-blk device.
///
/// Dropping it without [`VhostUserExport::stop`] disconnects all front ends.
#[derive(Debug)]
pub struct VhostUserExport {
    shared: Arc<Shared>,
    group: EndpointGroup,
    path: PathBuf,
    identity: (u64, u64),
    listener: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

/// What all sessions of an export share.
pub(crate) struct Shared {
    pub(crate) device: Arc<BlockDevice>,
    adder: EndpointAdder,
    /// What its front ends map.
    pub(crate) quota: Arc<Quota>,
    stopping: AtomicBool,
    /// Where requests under way are noted, of this export's own making; `None`: any are taken.
    own_notes: Option<Mutex<OwnNotes>>,
    /// Threads of front ends; some of those have gone already.
    threads: AtomicUsize,
    /// Who may go on with what a killed daemon has left.
    pub(crate) succession: Succession,
    inside: Mutex<Inside>,
    changed: Condvar,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Shared({:?})", self.device)
    }
}

struct Inside {
    sessions: BTreeMap<u64, Open>,
    /// Those whose queues do not run, by user.
    idle: Table<u32>,
    holder: Option<Holder>,
    next_number: u64,
}

struct Open {
    socket: Arc<OwnedFd>,
    user: u32,
    process: Option<i32>,
    back_channel: Option<OwnedFd>,
    idle: Option<Slot>,
}

struct Holder {
    number: u64,
    /// Its front end has gone; its requests are still under way.
    ending: bool,
}

/// The right of a session to run queues; given back when dropped.
pub(crate) struct Claim {
    shared: Arc<Shared>,
    number: u64,
    notes: Notes,
    /// A queue ran.
    begun: bool,
    /// So far.
    pub(crate) how: Ended,
}

impl Claim {
    /// # Errors
    /// A sentence: another front end runs queues.
    pub(crate) fn new(shared: &Arc<Shared>, number: u64, notes: Notes) -> Result<Claim, String> {
        let deadline = Instant::now() + CLAIM_PATIENCE;
        let mut inside = shared.inside();
        loop {
            if shared.stopping.load(Ordering::Acquire) {
                return Err("the export is being stopped".into());
            }
            let Some(holder) = &inside.holder else { break };
            let left = deadline.saturating_duration_since(Instant::now());
            // Its thread may not have seen yet that it has gone.
            let gone = holder.ending || inside.sessions.get(&holder.number).is_none_or(|open| has_hung_up(&open.socket));
            if !gone || left.is_zero() {
                let process = inside.sessions.get(&holder.number).and_then(|open| open.process);
                let process = process.map(|process| format!(" (process {process})")).unwrap_or_default();
                return Err(format!(
                    "another virtual machine uses the disk{process}: stop it first, since two would spoil each other's data"
                ));
            }
            inside = shared.changed.wait_timeout(inside, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        inside.holder = Some(Holder { number, ending: false });
        let slot = inside.sessions.get_mut(&number).and_then(|open| open.idle.take());
        if let Some(slot) = slot {
            inside.idle.leave(slot);
        }
        Ok(Claim { shared: shared.clone(), number, notes, begun: false, how: Ended { in_order: true, asked: false } })
    }

    /// A queue is about to run; before anything is taken.
    pub(crate) fn begins(&mut self) {
        if !std::mem::replace(&mut self.begun, true) {
            self.shared.succession.begins(self.notes);
        }
    }

    /// The front end has gone: another one may wait until its requests have ended.
    pub(crate) fn is_ending(&self) {
        if let Some(holder) = self.shared.inside().holder.as_mut().filter(|holder| holder.number == self.number) {
            holder.ending = true;
        }
        self.shared.changed.notify_all();
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Before another can begin.
        if self.begun {
            self.shared.succession.ends(self.notes, self.how);
        }
        let mut inside = self.shared.inside();
        inside.holder.take_if(|holder| holder.number == self.number);
        // From now on it is one of many.
        inside.make_idle(self.number);
        drop(inside);
        self.shared.changed.notify_all();
    }
}

impl Inside {
    /// The session has a place among those whose queues do not run, or is disconnected.
    fn make_idle(&mut self, number: u64) {
        let Some(open) = self.sessions.get(&number) else { return };
        match self.idle.enter(open.user, true, monotonic_ns()) {
            Ok(entered) => {
                if let Some(slot) = entered.gives_way {
                    self.disconnect(slot);
                }
                if let Some(open) = self.sessions.get_mut(&number) {
                    open.idle = Some(entered.slot);
                }
            }
            Err(_) => end_socket(&open.socket),
        }
    }

    fn disconnect(&mut self, slot: Slot) {
        if let Some(open) = self.sessions.values_mut().find(|open| open.idle == Some(slot)) {
            open.idle = None;
            end_socket(&open.socket);
        }
    }
}

/// Whether the other end is closed; what it has said before may not be read yet.
fn has_hung_up(socket: &OwnedFd) -> bool {
    let mut wanted = [PollFd::new(socket, PollFlags::RDHUP)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let looked = rustix::event::poll(&mut wanted, Some(&now));
    looked.is_ok() && wanted[0].revents().intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR)
}

/// The session at the other side of it sees the end.
fn end_socket(socket: &OwnedFd) {
    if let Err(error) = rustix::net::shutdown(socket, Shutdown::Both) {
        tracing::debug!(%error, "a front end was gone before it was disconnected");
    }
}

impl Shared {
    /// State behind this lock is complete at every moment, so a panic elsewhere does not spoil it.
    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a queue.
    pub(crate) fn add(&self, queue: Box<dyn Endpoint>) {
        self.adder.add(queue);
    }

    /// Memory for requests under way was made for a front end.
    pub(crate) fn note_own(&self, number: u64, file: &OwnedFd) -> io::Result<()> {
        let Some(own) = &self.own_notes else { return Ok(()) };
        let facts = rustix::fs::fstat(file)?;
        own.lock().unwrap_or_else(PoisonError::into_inner).give(number, (facts.st_dev, facts.st_ino));
        Ok(())
    }

    /// Whether a front end may come with this memory.
    pub(crate) fn takes_notes(&self, number: u64, file: &OwnedFd) -> io::Result<bool> {
        let Some(own) = &self.own_notes else { return Ok(true) };
        let facts = rustix::fs::fstat(file)?;
        Ok(own.lock().unwrap_or_else(PoisonError::into_inner).take(number, (facts.st_dev, facts.st_ino)))
    }

    /// # Errors
    /// A sentence: it is no Unix socket. Sending to others may wait, and so may closing them.
    pub(crate) fn set_back_channel(&self, number: u64, channel: OwnedFd) -> Result<(), String> {
        if !rustix::net::sockopt::socket_domain(&channel).is_ok_and(|domain| domain == AddressFamily::UNIX) {
            return Err("a back channel is no Unix socket".into());
        }
        let mut inside = self.inside();
        let before = inside.sessions.get_mut(&number).and_then(|open| open.back_channel.replace(channel));
        // Descriptors that somebody has sent through it and nobody has taken are closed with it, which may take long.
        drop(inside);
        drop(before);
        Ok(())
    }

    pub(crate) fn session_ended(&self, number: u64) {
        if let Some(own) = &self.own_notes {
            own.lock().unwrap_or_else(PoisonError::into_inner).ended(number);
        }
        let mut inside = self.inside();
        let open = inside.sessions.remove(&number);
        if let Some(slot) = open.as_ref().and_then(|open| open.idle) {
            inside.idle.leave(slot);
        }
        drop(inside);
        self.changed.notify_all();
        // As above.
        drop(open);
    }

    /// Takes in a front end that has connected; gives its number. `None`: not yet, since all others have their time, or too many are on
    /// their way out.
    fn arrive(&self, socket: &Arc<OwnedFd>) -> Option<u64> {
        if self.threads.load(Ordering::Acquire) >= THREADS_MAX {
            return None;
        }
        let peer = rustix::net::sockopt::socket_peercred(socket).ok();
        let user = peer.map_or(u32::MAX, |peer| peer.uid.as_raw());
        let mut inside = self.inside();
        let entered = inside.idle.enter(user, true, monotonic_ns()).ok()?;
        if let Some(slot) = entered.gives_way {
            inside.disconnect(slot);
        }
        let number = inside.next_number;
        inside.next_number += 1;
        let process = peer.map(|peer| peer.pid.as_raw_nonzero().get());
        let open = Open { socket: socket.clone(), user, process, back_channel: None, idle: Some(entered.slot) };
        inside.sessions.insert(number, open);
        Some(number)
    }

    /// Accepts front ends until the socket is shut down.
    fn listen(self: &Arc<Shared>, listener: &OwnedFd) {
        while !self.stopping.load(Ordering::Acquire) {
            let socket = match rustix::net::accept_with(listener, SocketFlags::CLOEXEC) {
                Ok(socket) => Arc::new(socket),
                Err(_) if self.stopping.load(Ordering::Acquire) => return,
                Err(error) => {
                    // Descriptors are short, or it was gone before it was accepted.
                    tracing::debug!(%error, "a front end could not be accepted");
                    std::thread::sleep(NOT_YET);
                    continue;
                }
            };
            let number = loop {
                match self.arrive(&socket) {
                    Some(number) => break number,
                    None if self.stopping.load(Ordering::Acquire) => return,
                    None => std::thread::sleep(NOT_YET),
                }
            };
            let session = Session::new(self.clone(), socket, number);
            let name = format!("vhost-{}", self.device.volume.name());
            let thread = Thread::new(self);
            let body = move || {
                let _thread = thread;
                session.run();
            };
            let spawned = std::thread::Builder::new().name(name).stack_size(STACK_BYTES).spawn(body);
            if let Err(error) = spawned {
                tracing::warn!(%error, "a virtual machine could not be served");
                self.session_ended(number);
            }
        }
    }
}

/// One of the threads of front ends.
struct Thread(Arc<Shared>);

impl Thread {
    fn new(shared: &Arc<Shared>) -> Thread {
        shared.threads.fetch_add(1, Ordering::AcqRel);
        Thread(shared.clone())
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.0.threads.fetch_sub(1, Ordering::AcqRel);
    }
}

impl VhostUserExport {
    /// Offers `volume` at the socket `path`.
    ///
    /// # Errors
    /// See [`VhostUserError`]; nothing is left behind.
    pub fn start(runtime: &Runtime, volume: &VolumeRef, path: &Path, options: &ExportOptions) -> Result<VhostUserExport, VhostUserError> {
        let (listener, identity) = bind(path, options.mode)?;
        let mut serial = [0; SERIAL_BYTES];
        let given = options.serial.as_bytes();
        let length = given.len().min(SERIAL_BYTES);
        serial[..length].copy_from_slice(&given[..length]);
        // A member that is always there makes the group known to the runtime.
        let group = runtime.add_endpoint(Box::new(Anchor));
        let inside =
            Inside { sessions: BTreeMap::new(), idle: Table::with_share(IDLE_MAX).with_grace(GRACE_NS), holder: None, next_number: 0 };
        let shared = Arc::new(Shared {
            device: Arc::new(BlockDevice { volume: volume.clone(), serial }),
            adder: runtime.endpoint_adder(&group),
            quota: Arc::default(),
            stopping: AtomicBool::new(false),
            own_notes: options.refuses_earlier.then(Mutex::default),
            threads: AtomicUsize::new(0),
            succession: Succession::open(options.succession.clone().unwrap_or_else(|| path.with_extension("guest"))),
            inside: Mutex::new(inside),
            changed: Condvar::new(),
        });
        let listener = Arc::new(listener);
        let (for_thread, socket) = (shared.clone(), listener.clone());
        let mut export = VhostUserExport { shared, group, path: path.to_owned(), identity, listener, thread: None };
        let thread = std::thread::Builder::new().name("vhost-listener".into()).stack_size(STACK_BYTES);
        let spawned = thread.spawn(move || for_thread.listen(&socket)).map_err(system("start a thread for", path));
        match spawned {
            Ok(thread) => export.thread = Some(thread),
            Err(error) => {
                if let Err(also) = runtime.stop_endpoints(&export.group, Duration::ZERO) {
                    tracing::warn!("{also}");
                }
                return Err(error);
            }
        }
        Ok(export)
    }

    /// The socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Who uses the disk now, for a message.
    pub fn user(&self) -> Option<String> {
        let inside = self.shared.inside();
        let process = inside.sessions.get(&inside.holder.as_ref()?.number).and_then(|open| open.process);
        Some(process.map_or_else(|| "a virtual machine".into(), |process| format!("a virtual machine, process {process}")))
    }

    /// The volume has another size: front ends are asked to look. They tell their guests, who go on meanwhile.
    pub fn capacity_changed(&self) {
        for open in self.shared.inside().sessions.values() {
            let Some(channel) = &open.back_channel else { continue };
            // Whoever does not listen is not waited for.
            let sent = rustix::net::send(channel, &config_changed(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
            if let Err(error) = sent {
                tracing::warn!(volume = self.shared.device.volume.name(), %error, "a virtual machine was not notified of its disk's new size");
            }
        }
    }

    /// Takes no more requests, lets those under way end (for `patience`), and disconnects all front ends.
    ///
    /// # Errors
    /// [`VhostUserError::TimedOut`]; the export is gone nevertheless.
    pub fn stop(mut self, runtime: &Runtime, patience: Duration) -> Result<(), VhostUserError> {
        self.shared.stopping.store(true, Ordering::Release);
        let ended = runtime.stop_endpoints(&self.group, patience);
        self.disconnect();
        let path = self.path.clone();
        ended.map_err(|_| VhostUserError::TimedOut { path, seconds: patience.as_secs() })
    }

    fn disconnect(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        self.shared.changed.notify_all();
        end_socket(&self.listener);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of a vhost-user socket panicked");
        }
        for open in self.shared.inside().sessions.values() {
            end_socket(&open.socket);
        }
        let is_ours = std::fs::symlink_metadata(&self.path).is_ok_and(|now| (now.dev(), now.ino()) == self.identity);
        if is_ours && let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!("{} stays ({error})", self.path.display());
        }
    }
}

impl Drop for VhostUserExport {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.disconnect();
        }
    }
}

/// Does nothing until it is stopped.
struct Anchor;

impl Endpoint for Anchor {
    fn start(&mut self, _cx: &mut Context<'_>) {}

    fn ring(&mut self, _cx: &mut Context<'_>, _token: u32, _result: i32, _flags: u32) {}

    fn reply(&mut self, _cx: &mut Context<'_>, _reply: engine::api::Reply) {}

    fn stop(&mut self, cx: &mut Context<'_>) {
        cx.close();
    }
}

fn system<E: Into<io::Error>>(doing: &'static str, path: &Path) -> impl FnOnce(E) -> VhostUserError {
    let path = path.to_owned();
    move |error| VhostUserError::System { doing, path, source: error.into() }
}

/// A socket that listens at `path`, and which file it is.
fn bind(path: &Path, mode: u32) -> Result<(OwnedFd, (u64, u64)), VhostUserError> {
    let address = SocketAddrUnix::new(path).map_err(system("use the path", path))?;
    let socket = || rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(system("look at", path)(error)),
        Ok(found) if !found.file_type().is_socket() => return Err(VhostUserError::NotASocket { path: path.to_owned() }),
        Ok(_) => {
            let probe = socket().map_err(system("make a socket for", path))?;
            match rustix::net::connect(&probe, &address) {
                Err(rustix::io::Errno::CONNREFUSED) => std::fs::remove_file(path).map_err(system("remove the stale socket", path))?,
                Err(rustix::io::Errno::NOENT) => {}
                _ => return Err(VhostUserError::InUse { path: path.to_owned() }),
            }
        }
    }
    let socket = socket().map_err(system("make a socket for", path))?;
    rustix::net::bind(&socket, &address).map_err(system("bind", path))?;
    let found = std::fs::symlink_metadata(path).map_err(system("look at", path))?;
    // Nobody can connect before `listen`, so the mode is in force from the first front end on.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).map_err(system("set the mode of", path))?;
    rustix::net::listen(&socket, BACKLOG).map_err(system("listen on", path))?;
    Ok((socket, (found.dev(), found.ino())))
}
