//! What leaves the shard: actions in order, and for each I/O in flight what its completion means.

use crate::api::{Action, Event, Io, IoId, IoKind, Reply, Target, WriteKind};
use crate::store::Ground;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use types::{BLOCK_BYTES, SECTOR_BYTES};

/// Low bits of an [`IoId`] that name a place; the rest is a serial number, so that names ascend in the order of handing out.
const PLACE_BITS: u32 = 20;

/// Actions to be drained, and the meaning `C` of each I/O in flight.
pub struct Outbox<C> {
    actions: VecDeque<Action>,
    places: Vec<Place<C>>,
    free: Vec<u32>,
    serial: u64,
    /// All I/O of an SSD lies here; `None`: anywhere.
    ssd: Option<Ground>,
}

/// Where the meaning of one I/O is kept until its completion; used again afterwards.
struct Place<C> {
    id: IoId,
    target: Target,
    context: Option<C>,
    /// What a read that went well brings; 0 for other kinds.
    pages: u32,
}

impl<C> Default for Outbox<C> {
    fn default() -> Outbox<C> {
        Outbox { actions: VecDeque::new(), places: Vec::new(), free: Vec::new(), serial: 0, ssd: None }
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
    /// I/O of an SSD that is not on this ground is refused by an assertion: it would meet what is not this shard's.
    pub fn within(ssd: Ground) -> Outbox<C> {
        Outbox { ssd: Some(ssd), ..Outbox::default() }
    }

    /// Hands out an I/O whose completion means `context`.
    ///
    /// # Panics
    /// If it is none that a device can do: see [`Io`].
    pub fn io(&mut self, span: Span, kind: IoKind, context: C) -> IoId {
        self.io_of(span, kind, WriteKind::Other, context)
    }

    /// The same for a write to the SSD of which it is known what it writes.
    pub fn io_of(&mut self, span: Span, kind: IoKind, writes: WriteKind, context: C) -> IoId {
        let place = self.free.pop().unwrap_or(self.places.len() as u32);
        assert!(place < 1 << PLACE_BITS, "a million I/Os in flight");
        let id = IoId(self.serial << PLACE_BITS | u64::from(place));
        self.serial += 1;
        let pages = self.check(&span, &kind);
        let kept = Place { id, target: span.target, context: Some(context), pages };
        match self.places.get_mut(place as usize) {
            Some(free) => *free = kept,
            None => self.places.push(kept),
        }
        let Span { target, offset_bytes, length_bytes, background } = span;
        self.actions.push_back(Action::Io(Io { id, target, offset_bytes, length_bytes, kind, writes, background }));
        id
    }

    /// Asserts that the I/O keeps the rules of [`Io`] and meets nothing that is not this shard's. Gives the pages that a read must bring.
    fn check(&self, span: &Span, kind: &IoKind) -> u32 {
        let Span { target, offset_bytes: offset, length_bytes: length, .. } = *span;
        if matches!(kind, IoKind::Flush) {
            assert_eq!(length, 0, "a flush is of the whole device");
            return 0;
        }
        let unit = if target.is_ssd() { BLOCK_BYTES } else { SECTOR_BYTES };
        assert!(length > 0 && (offset | length).is_multiple_of(unit), "{length} bytes at {offset} of {target:?}: no whole units");
        let is_own = !target.is_ssd() || self.ssd.as_ref().is_none_or(|ground| ground.has(offset, length));
        assert!(is_own, "{length} bytes at {offset} of an SSD are not in the shard's {:?}", self.ssd);
        let pages = (offset % BLOCK_BYTES + length).div_ceil(BLOCK_BYTES) as usize;
        match kind {
            IoKind::Read(into) => {
                assert_eq!(into.len(), pages, "pages for {length} bytes");
                pages as u32
            }
            IoKind::Write { pages: data, .. } => {
                assert_eq!(data.len(), pages, "pages of {length} bytes");
                0
            }
            _ => 0,
        }
    }

    /// What the completion of `id` means, and of which device it is; `brought` is the count of pages that came with it, if it went well.
    ///
    /// # Panics
    /// If that I/O is not in flight (the outside completed it twice, or made it up), or a read that went well lacks pages.
    pub fn completed(&mut self, id: IoId, brought: Option<usize>) -> (C, Target) {
        let number = (id.0 & ((1 << PLACE_BITS) - 1)) as u32;
        let place = self.places.get_mut(number as usize).filter(|place| place.id == id);
        let wanted = place.as_ref().map(|place| place.pages as usize);
        let found = place.and_then(|place| Some((place.context.take()?, place.target)));
        self.free.push(number);
        assert!(brought.is_none() || brought == wanted, "{id:?} brought {brought:?} pages of {wanted:?}");
        found.unwrap_or_else(|| panic!("completion of an I/O that is not in flight: {id:?}"))
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

#[cfg(test)]
mod tests {
    use super::*;
    use types::{SsdIndex, VolumeIndex};

    #[test]
    fn a_completion_is_of_the_device_that_its_io_was_for() {
        let mut out = Outbox::default();
        let targets = [Target::Ssd(SsdIndex(1)), Target::Backing(VolumeIndex(0)), Target::Ssd(SsdIndex::FIRST)];
        let flush = |target| Span { target, offset_bytes: 0, length_bytes: 0, background: false };
        let ids = targets.map(|target| (out.io(flush(target), IoKind::Flush, target), target));
        for (id, target) in ids.into_iter().rev() {
            assert_eq!(out.completed(id, Some(0)), (target, target));
        }
    }
}
