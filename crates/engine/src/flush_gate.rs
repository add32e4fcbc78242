//! Flushes of one device, shared by all that use it: those that arrive while one runs wait for the next one, together.
//!
//! A flush covers the writes that completed before it began. One that arrives while another runs may stand for writes the running one
//! has missed, so it can never join it; but all that have arrived by the time it ends are served by a single next one.
//!
//! A failed flush is final: what the device lost is unknown and no later flush can bring it back, so from then on
//! the gate fails every arrival, and its device refuses writes.
//!
//! There must be one gate for a device, whatever number of threads use it. With two flushes in flight, one could fail and lose the writes
//! of both while the other, begun before and ended after it, succeeds: the failure is told once, to the one who asked.

use crate::mutants;
use alloc::vec::Vec;

/// What to do with a flush that has just arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// Start the device's flush now.
    Start,
    /// It waits for the next flush.
    Wait,
    /// The device has failed a flush before: fail this one.
    Failed,
}

/// How a flush ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ended {
    /// Those it answers succeed.
    pub believed: bool,
    /// The next flush is to be started now.
    pub start_next: bool,
}

/// The gate; `W` names who waits.
#[derive(Debug)]
pub struct FlushGate<W> {
    running: bool,
    covered: Vec<W>,
    next: Vec<W>,
    failed: bool,
}

impl<W> Default for FlushGate<W> {
    fn default() -> FlushGate<W> {
        FlushGate { running: false, covered: Vec::new(), next: Vec::new(), failed: false }
    }
}

impl<W> FlushGate<W> {
    /// Whether a flush of this device has ever failed.
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// A flush arrives. With [`Arrival::Failed`], the waiter is not kept.
    pub fn arrive(&mut self, waiter: W) -> Arrival {
        if self.failed {
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

    /// The running flush has ended. Moves those it answers to `answered`.
    pub fn end(&mut self, succeeded: bool, answered: &mut Vec<W>) -> Ended {
        assert!(self.running, "a flush ends that was begun");
        self.failed |= !succeeded && !mutants::active(mutants::FAILED_FLUSH_RETRIED);
        answered.append(&mut self.covered);
        if self.failed {
            answered.append(&mut self.next);
            self.running = false;
            return Ended { believed: false, start_next: false };
        }
        core::mem::swap(&mut self.covered, &mut self.next);
        self.running = !self.covered.is_empty();
        Ended { believed: succeeded, start_next: self.running }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_arrive_during_a_flush_share_the_next() {
        let mut gate = FlushGate::default();
        let mut answered = Vec::new();
        let end = |believed, start_next| Ended { believed, start_next };
        assert_eq!([gate.arrive(1), gate.arrive(2), gate.arrive(3)], [Arrival::Start, Arrival::Wait, Arrival::Wait]);
        assert_eq!(gate.end(true, &mut answered), end(true, true));
        assert_eq!(core::mem::take(&mut answered), [1]);
        assert_eq!(gate.arrive(4), Arrival::Wait);
        assert_eq!(gate.end(true, &mut answered), end(true, true));
        assert_eq!(core::mem::take(&mut answered), [2, 3]);
        assert_eq!(gate.end(true, &mut answered), end(true, false));
        assert_eq!(answered, [4]);
        assert_eq!(gate.arrive(5), Arrival::Start);
    }

    #[test]
    fn a_failure_is_final_and_reaches_all_who_wait() {
        let mut gate = FlushGate::default();
        let mut answered = Vec::new();
        assert_eq!([gate.arrive(1), gate.arrive(2)], [Arrival::Start, Arrival::Wait]);
        assert_eq!(gate.end(false, &mut answered), Ended { believed: false, start_next: false });
        assert_eq!(answered, [1, 2]);
        assert_eq!(gate.arrive(3), Arrival::Failed);
    }
}
