//! Between the export and its queues, which live on reactors: which volume they ask, and whether
//! they ask it now.

use runtime::VolumeRef;
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What the queues share.
pub(crate) struct Switch {
    state: Mutex<State>,
    quiet: Condvar,
    /// One for each queue, written when the state has changed.
    bells: Vec<OwnedFd>,
}

/// What becomes of requests.
#[derive(Clone)]
pub(crate) enum Way {
    /// They go to this volume.
    To(VolumeRef),
    /// They wait.
    Wait,
    /// They fail: the device is about to go.
    Fail,
}

struct State {
    way: Way,
    /// Queues that have requests at the volume or are answering them.
    busy: Vec<bool>,
}

impl Switch {
    pub(crate) fn new(volume: VolumeRef, queues: u16) -> io::Result<Switch> {
        let bell = |_| eventfd(0, EventfdFlags::CLOEXEC).map_err(io::Error::from);
        let bells = (0..queues).map(bell).collect::<io::Result<_>>()?;
        let state = State { way: Way::To(volume), busy: vec![false; usize::from(queues)] };
        Ok(Switch { state: Mutex::new(state), quiet: Condvar::new(), bells })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn bell(&self, queue: u16) -> BorrowedFd<'_> {
        self.bells[usize::from(queue)].as_fd()
    }

    /// What a queue is to do from now on.
    pub(crate) fn way(&self) -> Way {
        self.state().way.clone()
    }

    /// Told by a queue that has heard of a change: whether it still has requests under way.
    pub(crate) fn set_busy(&self, queue: u16, busy: bool) {
        self.state().busy[usize::from(queue)] = busy;
        self.quiet.notify_all();
    }

    /// Requests wait from now on, and those under way end; `false` if they have not after `patience`.
    pub(crate) fn pause(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let mut state = self.state();
        state.way = Way::Wait;
        // Until each has said otherwise.
        state.busy.fill(true);
        drop(state);
        self.ring_bells();
        let mut state = self.state();
        while state.busy.contains(&true) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self.quiet.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Whether nothing is under way since a pause.
    pub(crate) fn is_quiet(&self) -> bool {
        !self.state().busy.contains(&true)
    }

    /// What waits, and all that comes, goes to `volume`.
    pub(crate) fn resume(&self, volume: VolumeRef) {
        self.state().way = Way::To(volume);
        self.ring_bells();
    }

    /// What waits, and all that comes, fails.
    pub(crate) fn fail(&self) {
        self.state().way = Way::Fail;
        self.ring_bells();
    }

    fn ring_bells(&self) {
        for bell in &self.bells {
            if let Err(error) = rustix::io::write(bell, &1u64.to_ne_bytes()) {
                // Only a bell that has been rung 2^64 times refuses.
                tracing::error!(%error, "a queue of a ublk device was not notified of a change");
            }
        }
    }
}
