//! Who may come in: connections in the handshake and in transmission, each with its limit and with a share for each peer.
//!
//! A connection that is still in its handshake costs its client nothing, so it is owed nothing: at the limit the oldest one gives way
//! to the newest, and a client that wants an export always finds a way to ask for it. When it has chosen one, it becomes a client.
//! Clients are never disconnected for others: at that limit the new one is refused, with an answer of the protocol where it has one.

use crate::limits::Limits;
use shares::{Full, Seldom, Slot, Table};
use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// So long is left to every handshake, however many others come: a hundred times what one takes on an idle machine.
const GRACE_NS: u64 = 100_000_000;
/// The log tells of refusals at most this often, however many there are.
const TELL_EVERY_NS: u64 = 10_000_000_000;

/// Whose connections count together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Peer {
    /// A user of this machine, by a Unix socket.
    User(u32),
    /// An address, by TCP.
    Address(IpAddr),
    /// The kernel does not say.
    Unknown,
}

impl Peer {
    /// The address, of a connection by TCP.
    pub(crate) fn address(self) -> Option<IpAddr> {
        if let Peer::Address(address) = self { Some(address) } else { None }
    }

    /// What rules for streams know it by: `192.0.2.7`, or `uid:1000` on a Unix socket.
    pub(crate) fn name(self) -> Option<String> {
        match self {
            Peer::User(uid) => Some(format!("uid:{uid}")),
            // An IPv4 client of a socket that listens on both is known by its IPv4 address.
            Peer::Address(address) => Some(address.to_canonical().to_string()),
            Peer::Unknown => None,
        }
    }

    /// The user, where the kernel says which one it is.
    pub(crate) fn uid(self) -> Option<u32> {
        if let Peer::User(uid) = self { Some(uid) } else { None }
    }
}

/// One for each listening socket.
#[derive(Debug)]
pub(crate) struct Door {
    limits: Limits,
    inside: Mutex<Inside>,
}

#[derive(Debug)]
struct Inside {
    handshakes: Table<Peer>,
    clients: Table<Peer>,
    /// The sockets behind the slots of `handshakes`.
    sockets: HashMap<Slot, Weak<OwnedFd>>,
    gave_way: Seldom,
    refused: Seldom,
}

impl Door {
    pub(crate) fn new(limits: Limits) -> Arc<Door> {
        let inside = Inside {
            handshakes: Table::with_share(limits.handshakes_max).with_grace(GRACE_NS),
            clients: Table::new(limits.connections_max, limits.connections_per_peer_max),
            sockets: HashMap::new(),
            gave_way: Seldom::every(TELL_EVERY_NS),
            refused: Seldom::every(TELL_EVERY_NS),
        };
        Arc::new(Door { limits, inside: Mutex::new(inside) })
    }

    /// A connection begins its handshake. Gives whether another one had to give way for it; `None`: it has to wait for a moment, so
    /// that others have theirs.
    pub(crate) fn arrive(self: &Arc<Door>, peer: Peer, socket: &Arc<OwnedFd>, now_ns: u64) -> Option<(Visit, bool)> {
        let mut inside = self.inside();
        // In a handshake everybody may go, sooner or later.
        let entered = inside.handshakes.enter(peer, true, now_ns).ok()?;
        inside.sockets.insert(entered.slot, Arc::downgrade(socket));
        let gave_way = entered.gives_way.is_some();
        if let Some(slot) = entered.gives_way {
            inside.disconnect(slot);
            if let Some(times) = inside.gave_way.happened(now_ns) {
                tracing::warn!(
                    times,
                    "NBD clients that did not finish their handshake were disconnected to make room for newer ones: {} handshakes are \
                     allowed at a time, three quarters of them for one peer",
                    self.limits.handshakes_max
                );
            }
        }
        Some((Visit { door: self.clone(), peer, handshake: Some(entered.slot), client: None }, gave_way))
    }

    /// Disconnects the oldest of those in the handshake: file descriptors are short.
    pub(crate) fn make_room(&self) -> bool {
        let mut inside = self.inside();
        let slot = inside.handshakes.make_room();
        slot.map(|slot| inside.disconnect(slot)).is_some()
    }

    /// State behind this lock is complete at every moment, so a panic elsewhere does not spoil it.
    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inside {
    /// The connection sees the end of its input and ends itself.
    fn disconnect(&mut self, slot: Slot) {
        let socket = self.sockets.remove(&slot).and_then(|socket| socket.upgrade());
        if let Some(socket) = socket
            && let Err(error) = rustix::net::shutdown(&*socket, rustix::net::Shutdown::Both)
        {
            tracing::debug!(%error, "a client was gone before it gave way");
        }
    }
}

/// One connection's slots, given back when it ends.
#[derive(Debug)]
pub(crate) struct Visit {
    door: Arc<Door>,
    peer: Peer,
    handshake: Option<Slot>,
    client: Option<Slot>,
}

impl Visit {
    /// Whose connection it is.
    pub(crate) fn peer(&self) -> Peer {
        self.peer
    }

    /// The handshake is about to end well: from now on it is a client's connection.
    ///
    /// # Errors
    /// A sentence for the client.
    pub(crate) fn become_client(&mut self, now_ns: u64) -> Result<(), String> {
        if self.client.is_some() {
            return Ok(());
        }
        let mut inside = self.door.inside();
        let refused = match inside.clients.enter(self.peer, false, now_ns) {
            Ok(entered) => {
                self.client = Some(entered.slot);
                if let Some(slot) = self.handshake.take() {
                    inside.handshakes.leave(slot);
                    inside.sockets.remove(&slot);
                }
                return Ok(());
            }
            Err(refused) => refused,
        };
        let limits = &self.door.limits;
        let sentence = match refused {
            Full::Peer => {
                format!("you already have {} connections to this server: close one, then try again", limits.connections_per_peer_max)
            }
            Full::Table | Full::NotYet => {
                format!("this server already has {} connections: close one, then try again", limits.connections_max)
            }
        };
        if let Some(times) = inside.refused.happened(now_ns) {
            tracing::warn!(times, peer = ?self.peer, "an NBD client was refused: {sentence}");
        }
        Err(sentence)
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let mut inside = self.door.inside();
        if let Some(slot) = self.handshake {
            inside.handshakes.leave(slot);
            inside.sockets.remove(&slot);
        }
        if let Some(slot) = self.client {
            inside.clients.leave(slot);
        }
    }
}
