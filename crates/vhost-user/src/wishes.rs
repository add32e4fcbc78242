//! Between the thread that talks to a front end and a queue on its reactor: what the queue is to do, and how far it is.

use crate::dirty::DirtyLog;
use crate::memory::GuestMemory;
use crate::ring::Place;
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What may change while a queue runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wishes {
    pub(crate) memory: Arc<GuestMemory>,
    pub(crate) place: Place,
    /// Where to tell the driver of answers; `None`: it looks by itself.
    pub(crate) call: Option<Arc<OwnedFd>>,
    /// Where to tell the front end of a broken queue.
    pub(crate) error: Option<Arc<OwnedFd>>,
    pub(crate) log: Option<Arc<DirtyLog>>,
    /// Whether requests are taken.
    pub(crate) enabled: bool,
    /// Every write is durable before it is answered: the driver does not flush.
    pub(crate) write_through: bool,
    /// Take no more, end what is under way, and go.
    pub(crate) end: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Line {
    inside: Mutex<Inside>,
    changed: Condvar,
    /// Of the wishes; read without the lock.
    generation: AtomicU64,
    bell: OwnedFd,
}

#[derive(Debug, Default)]
struct Inside {
    wishes: Wishes,
    /// The generation that the queue goes by.
    seen: u64,
    /// The queue is gone; `None` in that if it was cut off.
    ended: Option<Option<EndOfQueue>>,
}

/// A queue that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EndOfQueue {
    /// What it would have taken next.
    pub(crate) next_available: u16,
    /// All that was taken is answered, also what was left by a daemon before.
    pub(crate) in_order: bool,
}

impl Line {
    pub(crate) fn new(wishes: Wishes) -> rustix::io::Result<Arc<Line>> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let inside = Mutex::new(Inside { wishes, ..Inside::default() });
        Ok(Arc::new(Line { inside, changed: Condvar::new(), generation: AtomicU64::new(1), bell }))
    }

    /// State behind this lock is complete at every moment, so a panic elsewhere does not spoil it.
    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the queue waits on.
    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Changes what the queue is to do, and waits until it goes by that, or is gone. `false`: not within `patience`.
    pub(crate) fn wish(&self, change: impl FnOnce(&mut Wishes), patience: Duration) -> bool {
        let mut inside = self.inside();
        change(&mut inside.wishes);
        let wanted = self.generation.fetch_add(1, Ordering::Release) + 1;
        self.ring();
        let deadline = Instant::now() + patience;
        while inside.seen < wanted && inside.ended.is_none() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            inside = self.changed.wait_timeout(inside, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Has the queue look at what it waits for.
    pub(crate) fn ring(&self) {
        if let Err(error) = rustix::io::write(&self.bell, &1u64.to_ne_bytes()) {
            tracing::debug!(%error, "a queue was rung very often");
        }
    }

    /// Waits until the queue is gone. `None`: it was cut off, or is not gone within `patience`.
    pub(crate) fn wait_ended(&self, patience: Duration) -> Option<EndOfQueue> {
        let deadline = Instant::now() + patience;
        let mut inside = self.inside();
        loop {
            if let Some(ended) = inside.ended {
                return ended;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            inside = self.changed.wait_timeout(inside, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether the queue is gone.
    pub(crate) fn is_ended(&self) -> bool {
        self.inside().ended.is_some()
    }

    /// The queue asks for its wishes, if they are newer than those of generation `known`; from now on it goes by them.
    pub(crate) fn take(&self, known: &mut u64) -> Option<Wishes> {
        if self.generation.load(Ordering::Acquire) == *known {
            return None;
        }
        let inside = self.inside();
        *known = self.generation.load(Ordering::Acquire);
        Some(inside.wishes.clone())
    }

    /// The queue goes by the wishes of that generation.
    pub(crate) fn obeyed(&self, generation: u64) {
        self.inside().seen = generation;
        self.changed.notify_all();
    }

    /// The queue is gone. The first word counts.
    pub(crate) fn ended(&self, end: Option<EndOfQueue>) {
        self.inside().ended.get_or_insert(end);
        self.changed.notify_all();
    }
}
