//! A volume that is read by asking: work that needs bytes stops where it needs them, and goes on
//! when somebody has brought them.
//!
//! Work is written as `async` functions, which the compiler makes the state machine of; nothing
//! here has a thread or an executor. One request waits at a time: who holds the [`Volume`] takes it
//! by [`Volume::wanted`], answers by [`Volume::give`], and polls the work again.

use super::ReadAt;
use super::lvm::Runs;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

/// Bytes of a volume that are wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Read {
    /// Where they begin, a multiple of 512.
    pub offset_bytes: u64,
    /// How many, a multiple of 512.
    pub len_bytes: usize,
}

/// A volume as the work sees it, or a logical volume on it. Copies are one and the same.
#[derive(Clone, Default)]
pub(crate) struct Volume {
    asked: Arc<Mutex<State>>,
    /// Where its bytes lie, if it is a logical one.
    runs: Option<Arc<Runs>>,
}

impl std::fmt::Debug for Volume {
    /// Without the bytes, which are nobody's to print.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Volume").field("wanted", &self.wanted()).finish_non_exhaustive()
    }
}

#[derive(Default)]
struct State {
    wanted: Option<Read>,
    /// The answer, `None` inside where the bytes could not be had.
    given: Option<Option<Box<[u8]>>>,
    /// Nothing is asked for any more: every read fails, so that the work comes to its end.
    closed: bool,
}

impl Volume {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        // No code that may panic runs while it is held.
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The logical volume with these runs.
    pub(crate) fn with(&self, runs: Arc<Runs>) -> Volume {
        Volume { asked: self.asked.clone(), runs: Some(runs) }
    }

    /// Reads bytes; `false` if they could not be had.
    pub(crate) async fn read(&self, offset_bytes: u64, bytes: &mut [u8]) -> bool {
        // Nobody who reads volumes need know what a read of nothing is.
        if bytes.is_empty() {
            return true;
        }
        let Some(runs) = &self.runs else { return self.read_there(offset_bytes, bytes).await };
        let (mut at, mut rest) = (offset_bytes, bytes);
        while !rest.is_empty() {
            let Some((physical, left)) = runs.find(at) else { return false };
            let (now, later) = rest.split_at_mut(usize::try_from(left).unwrap_or(usize::MAX).min(rest.len()));
            if !self.read_there(physical, now).await {
                return false;
            }
            (at, rest) = (at + now.len() as u64, later);
        }
        true
    }

    async fn read_there(&self, offset_bytes: u64, bytes: &mut [u8]) -> bool {
        {
            let mut state = self.state();
            if state.closed {
                return false;
            }
            state.wanted = Some(Read { offset_bytes, len_bytes: bytes.len() });
            state.given = None;
        }
        let given = poll_fn(|_| {
            let mut state = self.state();
            match state.given.take() {
                Some(given) => Poll::Ready(given),
                None if state.closed => Poll::Ready(None),
                None => Poll::Pending,
            }
        });
        match given.await {
            Some(given) if given.len() == bytes.len() => {
                bytes.copy_from_slice(&given);
                true
            }
            _ => false,
        }
    }

    /// What the work waits for.
    pub(crate) fn wanted(&self) -> Option<Read> {
        self.state().wanted
    }

    /// Answers what the work waits for.
    pub(crate) fn give(&self, bytes: Option<Box<[u8]>>) {
        let mut state = self.state();
        if state.wanted.take().is_some() {
            state.given = Some(bytes);
        }
    }

    /// Lets every read fail from now on.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        state.wanted = None;
    }
}

/// Does work to its end with a function that reads.
pub(super) fn drive<T>(read: &mut ReadAt, volume: &Volume, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    loop {
        if let Poll::Ready(done) = work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return done;
        }
        // Work waits for nothing but reads.
        let Some(wanted) = volume.wanted() else {
            volume.close();
            continue;
        };
        let mut bytes = vec![0; wanted.len_bytes].into_boxed_slice();
        let can = read(wanted.offset_bytes, &mut bytes);
        volume.give(can.then_some(bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_goes_on_when_bytes_come_and_ends_when_none_will() {
        let volume = Volume::default();
        let mut work = pin!(async {
            let mut bytes = [0; 512];
            let first = volume.read(512, &mut bytes).await;
            (first, bytes[7], volume.read(0, &mut bytes).await, volume.read(0, &mut bytes).await)
        });
        let mut poll = || work.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(poll().is_pending() && poll().is_pending());
        assert_eq!(volume.wanted(), Some(Read { offset_bytes: 512, len_bytes: 512 }));
        volume.give(Some(vec![9; 512].into()));
        assert_eq!(format!("{volume:?}"), "Volume { wanted: None, .. }", "no bytes of pages in any log");
        assert!(poll().is_pending());
        volume.give(Some(vec![9; 100].into()));
        assert!(poll().is_pending(), "too few bytes are none, and the next are asked for");
        volume.close();
        assert_eq!(poll(), Poll::Ready((true, 9, false, false)));
    }
}
