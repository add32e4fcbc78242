//! Flushes of one device, shared: those that arrive while one runs wait for the next one, together.
//!
//! A flush covers the writes that completed before it began. One that arrives while another runs may stand for writes the running one
//! has missed, so it can never join it; but all that have arrived by the time it ends are served by a single next one.
//!
//! A failed flush is final: what the device lost is unknown and no later flush can bring it back, so from then on
//! the gate fails every arrival, and its device refuses writes. The mark is shared by the gates of all reactors.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What to do with a flush that has just arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Arrival {
    /// Start the device's flush now.
    Start,
    /// It waits for the next flush.
    Wait,
    /// The device has failed a flush before: fail this one.
    Failed,
}

/// The gate; `W` names who waits.
pub(crate) struct FlushGate<W> {
    running: bool,
    covered: Vec<W>,
    next: Vec<W>,
    failed: Arc<AtomicBool>,
}

impl<W> FlushGate<W> {
    pub(crate) fn new(failed: Arc<AtomicBool>) -> FlushGate<W> {
        FlushGate { running: false, covered: Vec::new(), next: Vec::new(), failed }
    }

    /// Whether a flush of this device has ever failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// A flush arrives. With [`Arrival::Failed`], the waiter is not kept.
    pub(crate) fn arrive(&mut self, waiter: W) -> Arrival {
        if self.has_failed() {
            Arrival::Failed
        } else if self.running {
            self.next.push(waiter);
            Arrival::Wait
        } else {
            self.running = true;
            self.covered.push(waiter);
            Arrival::Start
        }
    }

    /// The running flush has ended. Moves those it answers to `answered`; they succeed only if this returns
    /// `(true, _)`. The second value tells to start the next flush now.
    pub(crate) fn end(&mut self, succeeded: bool, answered: &mut Vec<W>) -> (bool, bool) {
        debug_assert!(self.running);
        if !succeeded {
            self.failed.store(true, Ordering::Release);
        }
        answered.append(&mut self.covered);
        // Another reactor's flush may have failed meanwhile, and the error may have been told to it alone.
        if self.has_failed() {
            answered.append(&mut self.next);
            self.running = false;
            return (false, false);
        }
        std::mem::swap(&mut self.covered, &mut self.next);
        self.running = !self.covered.is_empty();
        (true, self.running)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_arrive_during_a_flush_share_the_next() {
        let mut gate = FlushGate::new(Arc::default());
        let mut answered = Vec::new();
        assert_eq!([gate.arrive(1), gate.arrive(2), gate.arrive(3)], [Arrival::Start, Arrival::Wait, Arrival::Wait]);
        assert_eq!(gate.end(true, &mut answered), (true, true));
        assert_eq!(std::mem::take(&mut answered), [1]);
        assert_eq!(gate.arrive(4), Arrival::Wait);
        assert_eq!(gate.end(true, &mut answered), (true, true));
        assert_eq!(std::mem::take(&mut answered), [2, 3]);
        assert_eq!(gate.end(true, &mut answered), (true, false));
        assert_eq!(answered, [4]);
        assert_eq!(gate.arrive(5), Arrival::Start);
    }

    #[test]
    fn a_failure_is_final_and_reaches_all_gates_of_the_device() {
        let failed = Arc::new(AtomicBool::new(false));
        let (mut here, mut there) = (FlushGate::new(failed.clone()), FlushGate::new(failed));
        let mut answered = Vec::new();
        assert_eq!([here.arrive(1), here.arrive(2), there.arrive(3)], [Arrival::Start, Arrival::Wait, Arrival::Start]);
        assert_eq!(here.end(false, &mut answered), (false, false));
        assert_eq!(std::mem::take(&mut answered), [1, 2]);
        assert_eq!(here.arrive(4), Arrival::Failed);
        assert_eq!(there.end(true, &mut answered), (false, false), "ended well, but the device is not to be believed");
        assert_eq!(answered, [3]);
        assert_eq!(there.arrive(5), Arrival::Failed);
    }
}
