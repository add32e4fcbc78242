//! The exports of one socket, and who uses them.

use crate::door::{Door, Visit};
use crate::limits::Limits;
use crate::parked::Parked;
use crate::protocol::wire::NAME_BYTES_MAX;
use crate::protocol::{Catalog, ExportInfo};
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
    removed: AtomicBool,
    /// Bytes of pages that all its clients hold; see [`Budget`](crate::budget::Budget).
    pub(crate) held_bytes: AtomicU64,
    /// When a client last went short of pages.
    shortage_ns: AtomicU64,
    /// Sockets of the clients that chose it.
    clients: Mutex<Vec<Weak<OwnedFd>>>,
}

impl Export {
    pub(crate) fn info(&self) -> ExportInfo {
        let block_bytes_min = self.volume.logical_block_bytes();
        ExportInfo {
            name: self.name.clone(),
            description: self.options.description.clone(),
            size_bytes: self.volume.size_bytes(),
            block_bytes_min,
            whole_read_bytes_max: self.volume.request_bytes_max() / block_bytes_min * block_bytes_min,
            read_only: self.options.read_only || self.volume.read_only(),
            fast_zeroes: self.options.fast_zeroes,
        }
    }

    /// Whether the export has been removed: its clients are to leave.
    pub(crate) fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Acquire)
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

    /// Notes a client, so that removing the export reaches it. False if the export has just been removed.
    pub(crate) fn join(&self, socket: &Arc<OwnedFd>) -> bool {
        let mut clients = lock(&self.clients);
        clients.retain(|client| client.strong_count() > 0);
        clients.push(Arc::downgrade(socket));
        !self.is_removed()
    }

    /// Shuts clients' sockets; a connection sees the end of its input, looks why, and winds down. Gives whether any is left.
    fn disconnect_clients(&self, how: rustix::net::Shutdown) -> bool {
        let mut clients = lock(&self.clients);
        clients.retain(|client| client.strong_count() > 0);
        for socket in clients.iter().filter_map(Weak::upgrade) {
            if let Err(error) = rustix::net::shutdown(&*socket, how) {
                tracing::debug!(%error, export = self.name, "client was gone before its export");
            }
        }
        !clients.is_empty()
    }

    /// Waits until no client is left; gives whether that came true.
    fn wait_clients_gone(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        // The last to hold a socket is its connection, dropped by the runtime when nothing of it is in flight any more.
        while lock(&self.clients).iter().any(|client| client.strong_count() > 0) {
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(GONE_POLL);
        }
        true
    }
}

/// What listener, connections and control share.
pub(crate) struct Shared {
    exports: Mutex<BTreeMap<String, Arc<Export>>>,
    /// Clients that another server is to go on with; `None`: clients that have to go are
    /// disconnected.
    parked: Mutex<Option<Vec<Parked>>>,
    pub(crate) door: Arc<Door>,
    pub(crate) limits: Limits,
    pub(crate) counters: CounterCells,
}

/// State behind these locks is complete at every moment, so a panic elsewhere does not spoil it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(crate) fn new(limits: Limits) -> Shared {
        Shared { exports: Mutex::default(), parked: Mutex::default(), door: Door::new(limits), limits, counters: CounterCells::default() }
    }

    /// From now on clients that have to go are left to another server.
    pub(crate) fn begin_to_park(&self) {
        lock(&self.parked).get_or_insert_default();
    }

    pub(crate) fn is_parking(&self) -> bool {
        lock(&self.parked).is_some()
    }

    pub(crate) fn park(&self, client: Parked) {
        lock(&self.parked).get_or_insert_default().push(client);
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
        if exports.contains_key(name) {
            return Err(ExportError::Exists(name.to_owned()));
        }
        let export = Export {
            name: name.to_owned(),
            volume,
            options,
            removed: AtomicBool::new(false),
            held_bytes: AtomicU64::new(0),
            shortage_ns: AtomicU64::new(0),
            clients: Mutex::default(),
        };
        exports.insert(name.to_owned(), Arc::new(export));
        Ok(())
    }

    pub(crate) fn remove(&self, name: &str) -> Result<(), ExportError> {
        let export = lock(&self.exports).remove(name).ok_or_else(|| ExportError::Unknown(name.to_owned()))?;
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

    /// The export of that name; for the empty name the only one, if there is only one.
    fn find(&self, name: &[u8]) -> Option<Arc<Export>> {
        let exports = lock(&self.exports);
        if name.is_empty() {
            return if exports.len() == 1 { exports.values().next().cloned() } else { None };
        }
        exports.get(core::str::from_utf8(name).ok()?).cloned()
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
    pub(crate) now_ns: u64,
}

impl View<'_> {
    fn may_use(&self, export: &Export) -> bool {
        let allowed = &export.options.allowed_uids;
        allowed.is_empty() || self.visit.borrow().peer().uid().is_some_and(|uid| allowed.contains(&uid))
    }
}

impl Catalog for View<'_> {
    fn list(&self) -> Vec<(String, String)> {
        let exports = lock(&self.shared.exports);
        let visible = exports.values().filter(|export| self.may_use(export));
        visible.map(|export| (export.name.clone(), export.options.description.clone())).collect()
    }

    fn find(&self, name: &[u8]) -> Option<ExportInfo> {
        self.shared.find(name).filter(|export| self.may_use(export)).map(|export| export.info())
    }

    fn admit(&self) -> Result<(), String> {
        self.visit.borrow_mut().become_client(self.now_ns).inspect_err(|_| count(&self.shared.counters.turned_away))
    }
}
