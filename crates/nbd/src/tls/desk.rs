//! The thread that shakes hands: signatures and certificates take up to milliseconds, which no reactor has.
//!
//! A connection hands over its handshake with the records that have come, and gets it back with those to be sent; it has one errand
//! there at a time. So the queue is as long as the number of handshakes at most, which the door limits.

use super::negotiation::{Errand, Negotiation, Outcome};
use rustix::event::EventfdFlags;
use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

/// Where errands are brought. The thread ends when this is dropped.
pub(super) struct Desk {
    errands: Sender<Errand>,
}

impl Desk {
    pub(super) fn start() -> io::Result<Desk> {
        let (errands, waiting) = channel();
        std::thread::Builder::new().name("nbd-tls".into()).spawn(move || work(&waiting))?;
        Ok(Desk { errands })
    }

    /// Gives whether somebody is there to do it.
    pub(super) fn bring(&self, errand: Errand) -> bool {
        self.errands.send(errand).is_ok()
    }
}

fn work(waiting: &Receiver<Errand>) {
    while let Ok(Errand { tls, mut negotiation, input, counter }) = waiting.recv() {
        // Whoever has left meanwhile costs nothing more.
        if Arc::strong_count(&counter) > 1 {
            // What a stranger sends is looked at here by code that is not ours: its mistakes cost the stranger's connection alone.
            let done = catch_unwind(AssertUnwindSafe(|| negotiation.run(&tls, &input)));
            let (output, outcome) = done.unwrap_or_else(|_| {
                tracing::error!("a TLS handshake failed by a mistake in hearth or in its TLS library: please report it");
                (Vec::new(), Outcome::Failed)
            });
            counter.put(Ready { negotiation, output, outcome });
        }
    }
}

/// An errand that is done.
pub(super) struct Ready {
    pub(super) negotiation: Box<Negotiation>,
    /// What is to be sent.
    pub(super) output: Vec<u8>,
    pub(super) outcome: Outcome,
}

/// Where one connection waits for its errand.
pub(super) struct Counter {
    ready: Mutex<Option<Ready>>,
    bell: OwnedFd,
}

impl Counter {
    pub(super) fn new() -> io::Result<Arc<Counter>> {
        let bell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?;
        Ok(Arc::new(Counter { ready: Mutex::default(), bell }))
    }

    pub(super) fn bell(&self) -> &OwnedFd {
        &self.bell
    }

    fn put(&self, ready: Ready) {
        *self.ready.lock().unwrap_or_else(PoisonError::into_inner) = Some(ready);
        if let Err(error) = rustix::io::write(&self.bell, &1_u64.to_ne_bytes()) {
            tracing::warn!(%error, "cannot wake the connection: its TLS handshake will time out");
        }
    }

    pub(super) fn take(&self) -> Option<Ready> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
