//! The exports of one socket, and who uses them.

use crate::door::{Door, Visit};
use crate::limits::Limits;
use crate::parked::Parked;
use crate::protocol::wire::NAME_BYTES_MAX;
use crate::protocol::{Admission, Catalog, ExportInfo};
use crate::tls::Tls;
use runtime::VolumeRef;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// How long clients of a removed export may take for what is in flight, and then to see that they must go at once.
const LEAVE_PATIENCE: Duration = Duration::from_secs(5);
/// How often to look whether they have gone.
const GONE_POLL: Duration = Duration::from_millis(1);

/// How a volume is shown to clients.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ExportOptions {
    /// A line for people, shown by `nbdinfo`; empty for none.
    pub description: String,
    /// Refuse changes even if the volume takes them.
    pub read_only: bool,
    /// Whether zeroing is faster on this volume than writing zeroes; copying tools then zero first.
    pub fast_zeroes: bool,
    /// Users (effective uid) who may connect over a Unix socket; empty for all whom the socket's mode lets in.
    pub allowed_uids: Vec<u32>,
    /// With TLS: names of certificates that may use it; empty for all of the authority.
    pub allowed_names: Vec<String>,
}

/// Why an export could not be added or removed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ExportError {
    /// The name is longer than the protocol allows.
    #[error("export name of {0} bytes is too long (at most {NAME_BYTES_MAX})")]
    NameTooLong(usize),
    /// The description is longer than the protocol allows.
    #[error("export description of {0} bytes is too long (at most {NAME_BYTES_MAX})")]
    DescriptionTooLong(usize),
    /// The name is empty, which means the default export on the wire.
    #[error("an export needs a name")]
    NameEmpty,
    /// The name is taken.
    #[error("there is already an export named '{0}'")]
    Exists(String),
    /// The export is gone, but a client's connection has not ended: I/O of its volume hangs.
    #[error("export '{0}' is removed, but requests of its clients do not end; check the volume's devices")]
    ClientsStay(String),
    /// No such export.
    #[error("there is no export named '{0}'")]
    Unknown(String),
}

/// What has happened on a socket since it began to listen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Connections open now.
    pub connections: usize,
    /// Connections accepted.
    pub accepted: u64,
    /// Clients refused because there were too many.
    pub turned_away: u64,
    /// Connections ended in their handshake because newer ones needed their place.
    pub gave_way: u64,
    /// Connections whose handshake failed or took too long.
    pub handshakes_failed: u64,
    /// Connections closed because the client stalled.
    pub stalled: u64,
    /// Connections that ended without a goodbye, or sent what is not NBD.
    pub broken: u64,
}

#[derive(Default)]
pub(crate) struct CounterCells {
    pub(crate) connections: AtomicUsize,
    pub(crate) accepted: AtomicU64,
    pub(crate) turned_away: AtomicU64,
    pub(crate) gave_way: AtomicU64,
    pub(crate) handshakes_failed: AtomicU64,
    pub(crate) stalled: AtomicU64,
    pub(crate) broken: AtomicU64,
}

pub(crate) fn count(cell: &AtomicU64) {
    cell.fetch_add(1, Ordering::Relaxed);
}

/// One export.
pub(crate) struct Export {
    pub(crate) name: String,
    pub(crate) volume: VolumeRef,
    options: ExportOptions,
    allowed_names: Mutex<Vec<String>>,
    removed: AtomicBool,
    /// Bytes of pages that all its clients hold; see [`Budget`](crate::budget::Budget).
    pub(crate) held_bytes: AtomicU64,
    /// When a client last went short of pages.
    shortage_ns: AtomicU64,
    /// Sockets of the clients that chose it.
    clients: Mutex<Vec<Client>>,
    /// Its clients without a server; `None`: it is not suspended.
    parked: Mutex<Option<Vec<Parked>>>,
}

/// A client that has chosen an export.
struct Client {
    socket: Weak<OwnedFd>,
    /// Names in its certificate.
    names: Vec<String>,
}

impl Client {
    fn is_there(&self) -> bool {
        self.socket.strong_count() > 0
    }

    /// Shuts its socket: its connection sees the end of its input, looks why, and winds down.
    fn disconnect(&self, how: rustix::net::Shutdown) {
        if let Some(socket) = self.socket.upgrade()
            && let Err(error) = rustix::net::shutdown(&*socket, how)
        {
            tracing::debug!(%error, "a client was gone before its export");
        }
    }
}

impl Export {
    pub(crate) fn info(&self) -> ExportInfo {
        let block_bytes_min = self.volume.logical_block_bytes();
        ExportInfo {
            name: self.name.clone(),
            description: self.options.description.clone(),
            size_bytes: self.volume.size_bytes(),
            block_bytes_min,
            atomic_bytes: self.volume.atomic_bytes().unwrap_or(0),
            whole_read_bytes_max: self.volume.request_bytes_max() / block_bytes_min * block_bytes_min,
            read_only: self.options.read_only || self.volume.read_only(),
            fast_zeroes: self.options.fast_zeroes,
        }
    }

    /// Sets which certificates may use it. Clients that may not any more are disconnected.
    pub(crate) fn allow_names(&self, names: &[String]) {
        // Before the look at the clients: who joins meanwhile looks at the names after that.
        *lock(&self.allowed_names) = names.to_vec();
        for client in lock(&self.clients).iter().filter(|client| client.is_there() && !self.allows(&client.names)) {
            tracing::info!("the NBD client with the certificate {} may not use {} any more", pki::names::shown(&client.names), self.name);
            client.disconnect(rustix::net::Shutdown::Both);
        }
    }

    /// Whether one of these names of a certificate is on the list, or there is none.
    fn allows(&self, names: &[String]) -> bool {
        let allowed = lock(&self.allowed_names);
        allowed.is_empty() || names.iter().any(|name| allowed.contains(name))
    }

    /// Whether the export has been removed: its clients are to leave.
    pub(crate) fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Acquire)
    }

    /// Whether it is suspended: its clients are to be left to whoever goes on with them.
    pub(crate) fn is_parking(&self) -> bool {
        lock(&self.parked).is_some()
    }

    /// Notes that a client went short of pages.
    pub(crate) fn note_shortage(&self, now_ns: u64) {
        self.shortage_ns.store(now_ns, Ordering::Relaxed);
    }

    /// Whether a client went short of pages within the last `recent_ns`.
    pub(crate) fn is_short(&self, now_ns: u64, recent_ns: u64) -> bool {
        let shortage_ns = self.shortage_ns.load(Ordering::Relaxed);
        shortage_ns != 0 && now_ns.saturating_sub(shortage_ns) <= recent_ns
    }

    /// Notes a client, so that removing the export reaches it. False if the export has just been removed, or is for others now.
    pub(crate) fn join(&self, socket: &Arc<OwnedFd>, names: Option<&[String]>) -> bool {
        let mut clients = lock(&self.clients);
        clients.retain(Client::is_there);
        let names = names.map(<[String]>::to_vec);
        let allowed = names.as_ref().is_none_or(|names| self.allows(names));
        clients.push(Client { socket: Arc::downgrade(socket), names: names.unwrap_or_default() });
        allowed && !self.is_removed() && !self.is_parking()
    }

    /// The client does not get it after all. Gives false.
    fn leave(&self, socket: &Arc<OwnedFd>) -> bool {
        lock(&self.clients).retain(|client| !std::ptr::eq(client.socket.as_ptr(), Arc::as_ptr(socket)));
        false
    }

    /// Disconnects clients. Gives whether any is left.
    fn disconnect_clients(&self, how: rustix::net::Shutdown) -> bool {
        let mut clients = lock(&self.clients);
        clients.retain(Client::is_there);
        clients.iter().for_each(|client| client.disconnect(how));
        !clients.is_empty()
    }

    /// Waits until no client is left; gives whether that came true.
    fn wait_clients_gone(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        // The last to hold a socket is its connection, dropped by the runtime when nothing of it is in flight any more.
        while lock(&self.clients).iter().any(Client::is_there) {
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(GONE_POLL);
        }
        true
    }
}

/// The exports of a socket, by name.
#[derive(Default)]
struct Names {
    here: BTreeMap<String, Arc<Export>>,
    /// Those that are away for a moment, and since when.
    away: BTreeMap<String, Instant>,
}

impl Names {
    /// The export of that name; for the empty name the only one, if there is only one. One that is away counts, too.
    fn find(&self, name: &[u8]) -> Option<Arc<Export>> {
        if name.is_empty() {
            return if self.here.len() == 1 && self.away.is_empty() { self.here.values().next().cloned() } else { None };
        }
        self.here.get(core::str::from_utf8(name).ok()?).cloned()
    }

    /// The name of an export that is away; as [`Names::find`].
    fn find_away(&self, name: &[u8]) -> Option<&str> {
        if name.is_empty() {
            return if self.away.len() == 1 && self.here.is_empty() { self.away.keys().next().map(String::as_str) } else { None };
        }
        self.away.get_key_value(core::str::from_utf8(name).ok()?).map(|(name, _)| name.as_str())
    }
}

/// What listener, connections and control share.
pub(crate) struct Shared {
    exports: Mutex<Names>,
    /// Clients that another server is to go on with; `None`: clients that have to go are
    /// disconnected.
    parked: Mutex<Option<Vec<Parked>>>,
    pub(crate) door: Arc<Door>,
    /// `Some`: clients must begin TLS before anything else.
    pub(crate) tls: Option<Arc<Tls>>,
    pub(crate) limits: Limits,
    pub(crate) counters: CounterCells,
}

/// State behind these locks is complete at every moment, so a panic elsewhere does not spoil it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(crate) fn new(limits: Limits, tls: Option<Arc<Tls>>) -> Shared {
        let (door, counters) = (Door::new(limits), CounterCells::default());
        Shared { exports: Mutex::default(), parked: Mutex::default(), door, tls, limits, counters }
    }

    /// From now on clients that have to go are left to another server.
    pub(crate) fn begin_to_park(&self) {
        lock(&self.parked).get_or_insert_default();
    }

    pub(crate) fn is_parking(&self) -> bool {
        lock(&self.parked).is_some()
    }

    /// Leaves a client to whoever goes on with it, which has chosen this export.
    pub(crate) fn park(&self, export: &Export, client: Parked) {
        match &mut *lock(&export.parked) {
            Some(parked) => parked.push(client),
            None => lock(&self.parked).get_or_insert_default().push(client),
        }
    }

    /// The clients that were left.
    pub(crate) fn take_parked(&self) -> Vec<Parked> {
        lock(&self.parked).take().unwrap_or_default()
    }

    pub(crate) fn add(&self, name: &str, volume: VolumeRef, options: ExportOptions) -> Result<(), ExportError> {
        if name.is_empty() {
            return Err(ExportError::NameEmpty);
        }
        if name.len() > NAME_BYTES_MAX {
            return Err(ExportError::NameTooLong(name.len()));
        }
        if options.description.len() > NAME_BYTES_MAX {
            return Err(ExportError::DescriptionTooLong(options.description.len()));
        }
        let mut exports = lock(&self.exports);
        if exports.here.contains_key(name) {
            return Err(ExportError::Exists(name.to_owned()));
        }
        let export = Export {
            name: name.to_owned(),
            volume,
            allowed_names: Mutex::new(options.allowed_names.clone()),
            options,
            removed: AtomicBool::new(false),
            held_bytes: AtomicU64::new(0),
            shortage_ns: AtomicU64::new(0),
            clients: Mutex::default(),
            parked: Mutex::default(),
        };
        exports.away.remove(name);
        exports.here.insert(name.to_owned(), Arc::new(export));
        Ok(())
    }

    pub(crate) fn remove(&self, name: &str) -> Result<(), ExportError> {
        let export = {
            let mut exports = lock(&self.exports);
            exports.away.remove(name);
            exports.here.remove(name).ok_or_else(|| ExportError::Unknown(name.to_owned()))?
        };
        export.removed.store(true, Ordering::Release);
        let any = export.disconnect_clients(rustix::net::Shutdown::Read);
        if any && !export.wait_clients_gone(LEAVE_PATIENCE) {
            // Somebody does not take his answers: end the other direction, too.
            export.disconnect_clients(rustix::net::Shutdown::Both);
            if !export.wait_clients_gone(LEAVE_PATIENCE) {
                return Err(ExportError::ClientsStay(name.to_owned()));
            }
        }
        Ok(())
    }

    /// Takes an export away, whose clients are to be left to whoever goes on with them. Who asks for it meanwhile waits.
    pub(crate) fn begin_to_suspend(&self, name: &str) -> Result<Arc<Export>, ExportError> {
        let export = {
            let mut exports = lock(&self.exports);
            let export = exports.here.remove(name).ok_or_else(|| ExportError::Unknown(name.to_owned()))?;
            exports.away.insert(name.to_owned(), Instant::now());
            export
        };
        lock(&export.parked).get_or_insert_default();
        Ok(export)
    }

    /// Waits until all clients of a suspended export are left; those that do not come to a rest within `patience` are disconnected. Gives
    /// whether none is there any more.
    pub(crate) fn end_suspending(export: &Export, patience: Duration) -> (Vec<Parked>, bool) {
        let gone = export.wait_clients_gone(patience) || {
            export.disconnect_clients(rustix::net::Shutdown::Both);
            export.wait_clients_gone(LEAVE_PATIENCE)
        };
        (lock(&export.parked).as_mut().map(std::mem::take).unwrap_or_default(), gone)
    }

    /// An export of that name will come: who asks for it waits.
    pub(crate) fn expect(&self, name: &str) {
        let mut exports = lock(&self.exports);
        if !exports.here.contains_key(name) {
            exports.away.entry(name.to_owned()).or_insert_with(Instant::now);
        }
    }

    /// Nobody waits any more for those that are not to be kept, by their name and for how long they are away.
    pub(crate) fn forget_absent(&self, keep: impl Fn(&str, Duration) -> bool) {
        lock(&self.exports).away.retain(|name, since| keep(name, since.elapsed()));
    }

    fn find(&self, name: &[u8]) -> Option<Arc<Export>> {
        lock(&self.exports).find(name)
    }

    pub(crate) fn export(&self, name: &str) -> Option<Arc<Export>> {
        self.find(name.as_bytes())
    }

    pub(crate) fn counters(&self) -> Counters {
        let cells = &self.counters;
        Counters {
            connections: cells.connections.load(Ordering::Relaxed),
            accepted: cells.accepted.load(Ordering::Relaxed),
            turned_away: cells.turned_away.load(Ordering::Relaxed),
            gave_way: cells.gave_way.load(Ordering::Relaxed),
            handshakes_failed: cells.handshakes_failed.load(Ordering::Relaxed),
            stalled: cells.stalled.load(Ordering::Relaxed),
            broken: cells.broken.load(Ordering::Relaxed),
        }
    }
}

/// The exports as one client may see them.
pub(crate) struct View<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) visit: &'a RefCell<Visit>,
    /// Names in the client's certificate, if it has shown one.
    pub(crate) names: Option<&'a [String]>,
    /// It may wait for an export that is away.
    pub(crate) waits: bool,
    pub(crate) socket: &'a Arc<OwnedFd>,
    /// What the client has joined.
    pub(crate) joined: &'a RefCell<Option<Arc<Export>>>,
    pub(crate) now_ns: u64,
}

impl View<'_> {
    fn may_use(&self, export: &Export) -> bool {
        let allowed = &export.options.allowed_uids;
        let is_user = allowed.is_empty() || self.visit.borrow().peer().uid().is_some_and(|uid| allowed.contains(&uid));
        is_user && (self.shared.tls.is_none() || self.is_named(export))
    }

    fn is_named(&self, export: &Export) -> bool {
        self.names.is_some_and(|names| export.allows(names))
    }
}

impl Catalog for View<'_> {
    fn list(&self) -> Vec<(String, String)> {
        let exports = lock(&self.shared.exports);
        let visible = exports.here.values().filter(|export| self.may_use(export));
        visible.map(|export| (export.name.clone(), export.options.description.clone())).collect()
    }

    fn find(&self, name: &[u8]) -> Option<ExportInfo> {
        self.shared.find(name).filter(|export| self.may_use(export)).map(|export| export.info())
    }

    fn is_awaited(&self, name: &[u8]) -> bool {
        self.waits && lock(&self.shared.exports).find_away(name).is_some()
    }

    fn absence(&self, name: &[u8]) -> Option<String> {
        let exports = lock(&self.shared.exports);
        exports.find_away(name).map(|name| format!("the export {name} is away, and has not come back in time: try again later"))
    }

    fn refusal(&self, name: &[u8]) -> Option<String> {
        let (tls, names) = (self.shared.tls.as_ref()?, self.names?);
        let export = self.shared.find(name).filter(|export| !self.is_named(export))?;
        let from = self.visit.borrow().peer().address().map_or_else(String::new, |peer| format!(" from {peer}"));
        let (shown, export) = (pki::names::shown(names), &export.name);
        tls.refusals.tell(
            &format!(
                "an NBD client{from} was refused: its certificate {shown} is not among the names that may use the volume {export}; \
                 `hearth volume set {export} --tls-names` sets them"
            ),
            self.now_ns,
        );
        Some(format!("the certificate {shown} may not use the export {export}: its name is not in the export's list"))
    }

    /// From here on whoever suspends or removes the export waits for this client.
    fn admit(&self, name: &[u8]) -> Admission {
        let joined = self.shared.find(name).filter(|export| export.join(self.socket, self.names) || export.leave(self.socket));
        let Some(export) = joined else {
            let is_away = self.is_awaited(name);
            return if is_away { Admission::Away } else { Admission::Refused("the export is going: try again later".into()) };
        };
        // Whoever connects from another machine has no device here.
        let is_local = self.visit.borrow().peer().uid().is_some();
        match self.visit.borrow_mut().become_client(self.now_ns) {
            Ok(()) => {
                if is_local {
                    crate::local::note(self.socket, &export.name);
                }
                *self.joined.borrow_mut() = Some(export);
                Admission::Welcome
            }
            Err(sentence) => {
                export.leave(self.socket);
                count(&self.shared.counters.turned_away);
                Admission::Refused(sentence)
            }
        }
    }
}
