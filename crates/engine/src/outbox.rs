//! What leaves the shard: actions in order, and for each I/O in flight what its completion means.

use crate::api::{Action, Event, Io, IoId, IoKind, Reply, Target};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Low bits of an [`IoId`] that name a place; the rest is a serial number, so that names ascend in the order of handing out.
const PLACE_BITS: u32 = 20;

/// Actions to be drained, and the meaning `C` of each I/O in flight.
pub struct Outbox<C> {
    actions: VecDeque<Action>,
    places: Vec<Place<C>>,
    free: Vec<u32>,
    serial: u64,
}

/// Where the meaning of one I/O is kept until its completion; used again afterwards.
struct Place<C> {
    id: IoId,
    context: Option<C>,
}

impl<C> Default for Outbox<C> {
    fn default() -> Outbox<C> {
        Outbox { actions: VecDeque::new(), places: Vec::new(), free: Vec::new(), serial: 0 }
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
        let place = self.free.pop().unwrap_or(self.places.len() as u32);
        assert!(place < 1 << PLACE_BITS, "a million I/Os in flight");
        let id = IoId(self.serial << PLACE_BITS | u64::from(place));
        self.serial += 1;
        let kept = Place { id, context: Some(context) };
        match self.places.get_mut(place as usize) {
            Some(free) => *free = kept,
            None => self.places.push(kept),
        }
        let Span { target, offset_bytes, length_bytes, background } = span;
        self.actions.push_back(Action::Io(Io { id, target, offset_bytes, length_bytes, kind, background }));
        id
    }

    /// What the completion of `id` means.
    ///
    /// # Panics
    /// If that I/O is not in flight: the outside completed it twice, or made it up.
    pub fn completed(&mut self, id: IoId) -> C {
        let number = (id.0 & ((1 << PLACE_BITS) - 1)) as u32;
        let place = self.places.get_mut(number as usize).filter(|place| place.id == id);
        let context = place.and_then(|place| place.context.take());
        self.free.push(number);
        context.unwrap_or_else(|| panic!("completion of an I/O that is not in flight: {id:?}"))
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
        self.places.len() - self.free.len()
    }
}
