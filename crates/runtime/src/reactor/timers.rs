//! Timers of endpoints, by deadline.

use crate::endpoint::EndpointKey;
use std::collections::{BTreeMap, BTreeSet};

/// At most one timer per endpoint and token.
#[derive(Default)]
pub(crate) struct Timers {
    by_deadline: BTreeSet<(u64, EndpointKey, u32)>,
    deadlines: BTreeMap<(EndpointKey, u32), u64>,
}

impl Timers {
    /// Sets the timer, moving it if it is set.
    pub(crate) fn set(&mut self, key: EndpointKey, token: u32, deadline_ns: u64) {
        self.cancel(key, token);
        self.by_deadline.insert((deadline_ns, key, token));
        self.deadlines.insert((key, token), deadline_ns);
    }

    /// Forgets the timer, if it is set.
    pub(crate) fn cancel(&mut self, key: EndpointKey, token: u32) {
        if let Some(deadline_ns) = self.deadlines.remove(&(key, token)) {
            self.by_deadline.remove(&(deadline_ns, key, token));
        }
    }

    /// Forgets all timers of an endpoint.
    pub(crate) fn cancel_all(&mut self, key: EndpointKey) {
        while let Some((&(_, token), _)) = self.deadlines.range((key, 0)..=(key, u32::MAX)).next() {
            self.cancel(key, token);
        }
    }

    /// Takes out a timer that is due.
    pub(crate) fn pop_due(&mut self, now_ns: u64) -> Option<(EndpointKey, u32)> {
        let &(deadline_ns, key, token) = self.by_deadline.first()?;
        if deadline_ns > now_ns {
            return None;
        }
        self.cancel(key, token);
        Some((key, token))
    }

    pub(crate) fn next_deadline_ns(&self) -> Option<u64> {
        self.by_deadline.first().map(|(deadline_ns, ..)| *deadline_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_fire_in_order_once_and_can_be_moved_and_forgotten() {
        let key = |slot| EndpointKey { slot, generation: 1 };
        let mut timers = Timers::default();
        timers.set(key(1), 0, 30);
        timers.set(key(1), 1, 10);
        timers.set(key(2), 0, 20);
        timers.set(key(1), 0, 5);
        timers.set(key(3), 9, 1);
        timers.cancel_all(key(3));
        assert_eq!(timers.next_deadline_ns(), Some(5));
        assert_eq!(timers.pop_due(4), None);
        let fired: Vec<_> = std::iter::from_fn(|| timers.pop_due(100)).collect();
        assert_eq!(fired, [(key(1), 0), (key(1), 1), (key(2), 0)]);
        assert_eq!(timers.next_deadline_ns(), None);
    }
}
