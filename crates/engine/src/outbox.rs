//! What leaves the shard: actions in order, and for each I/O in flight what its completion means.

use crate::api::{Action, Event, Io, IoId, IoKind, Reply, Target};
use crate::key::Map;
use alloc::collections::VecDeque;

/// Actions to be drained, and the meaning `C` of each I/O in flight.
pub struct Outbox<C> {
    actions: VecDeque<Action>,
    in_flight: Map<IoId, C>,
    next_io: u64,
}

impl<C> Default for Outbox<C> {
    fn default() -> Outbox<C> {
        Outbox { actions: VecDeque::new(), in_flight: Map::default(), next_io: 0 }
    }
}

/// Where an I/O goes and how long it is.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// The device.
    pub target: Target,
    /// First byte.
    pub offset_bytes: u64,
    /// Length in bytes.
    pub length_bytes: u64,
    /// Not for a waiting client.
    pub background: bool,
}

impl<C> Outbox<C> {
    /// Hands out an I/O whose completion means `context`.
    pub fn io(&mut self, span: Span, kind: IoKind, context: C) -> IoId {
        let id = IoId(self.next_io);
        self.next_io += 1;
        self.in_flight.insert(id, context);
        let Span { target, offset_bytes, length_bytes, background } = span;
        self.actions.push_back(Action::Io(Io { id, target, offset_bytes, length_bytes, kind, background }));
        id
    }

    /// What the completion of `id` means.
    ///
    /// # Panics
    /// If that I/O is not in flight: the outside completed it twice, or made it up.
    pub fn completed(&mut self, id: IoId) -> C {
        self.in_flight.remove(&id).unwrap_or_else(|| panic!("completion of an I/O that is not in flight: {id:?}"))
    }

    /// Hands out a reply.
    pub fn reply(&mut self, reply: Reply) {
        self.actions.push_back(Action::Reply(reply));
    }

    /// Hands out an event.
    pub fn event(&mut self, event: Event) {
        self.actions.push_back(Action::Event(event));
    }

    /// The next action, oldest first.
    pub fn poll(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Whether there is nothing to drain.
    pub fn is_drained(&self) -> bool {
        self.actions.is_empty()
    }

    /// I/Os handed out and not completed.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }
}
