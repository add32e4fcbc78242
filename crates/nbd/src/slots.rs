//! Requests of one connection between header and reply.
//!
//! A request becomes one or more parts for the volume: a large write is handed over in pieces as its payload arrives, a large read
//! as pages allow. A part's id names its slot, its place in the request and its length, so that a reply needs no search.
//!
//! Other exports do not use this table. Their requests have a place of their own: the kernel's tag or
//! entry, the guest's chain, or memory that the next daemon reads. A cookie may be any number.

use crate::protocol::Errno;
use crate::protocol::wire::PAYLOAD_BYTES_MAX;

/// What the client wants, as far as the reply needs it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Read { offset_bytes: u64, length_bytes: u32 },
    Other,
}

#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) cookie: u64,
    pub(crate) kind: Kind,
    /// Parts at the volume.
    parts: u32,
    /// More parts will follow.
    pub(crate) incomplete: bool,
    /// The first error of a part.
    pub(crate) error: Option<Errno>,
}

/// Name of a part, unique among those in flight: parts of one request begin at different places.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PartId {
    pub(crate) slot: u16,
    /// Where it begins within the request's data.
    pub(crate) from_byte: u32,
    /// Its data.
    pub(crate) data_bytes: u32,
}

/// In a part's id, place and length are sectors of 24 bits: 8 GiB, far above the longest READ or WRITE.
const SECTORS_BITS: u32 = 24;
const SECTOR_BYTES: u32 = types::SECTOR_BYTES as u32;
const _: () = assert!(PAYLOAD_BYTES_MAX / SECTOR_BYTES < 1 << SECTORS_BITS);

impl PartId {
    pub(crate) fn to_u64(self) -> u64 {
        let sectors = |bytes: u32| u64::from(bytes / SECTOR_BYTES);
        sectors(self.data_bytes) << (16 + SECTORS_BITS) | sectors(self.from_byte) << 16 | u64::from(self.slot)
    }

    pub(crate) fn from_u64(id: u64) -> PartId {
        let bytes = |sectors: u64| (sectors as u32 & ((1 << SECTORS_BITS) - 1)) * SECTOR_BYTES;
        PartId { slot: id as u16, from_byte: bytes(id >> 16), data_bytes: bytes(id >> (16 + SECTORS_BITS)) }
    }
}

/// The table. Grows to the number of requests that a client really has in flight.
#[derive(Default)]
pub(crate) struct Slots {
    slots: Vec<Option<Slot>>,
    free: Vec<u16>,
    parts: usize,
}

impl Slots {
    /// Requests that have not been answered.
    pub(crate) fn used(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Parts at the volume, over all requests.
    pub(crate) fn parts(&self) -> usize {
        self.parts
    }

    pub(crate) fn insert(&mut self, cookie: u64, kind: Kind, incomplete: bool) -> u16 {
        let slot = Some(Slot { cookie, kind, parts: 0, incomplete, error: None });
        match self.free.pop() {
            Some(index) => {
                self.slots[usize::from(index)] = slot;
                index
            }
            None => {
                self.slots.push(slot);
                u16::try_from(self.slots.len() - 1).expect("`Limits::requests_max` is 16 bits wide")
            }
        }
    }

    pub(crate) fn get(&mut self, index: u16) -> &mut Slot {
        self.slots[usize::from(index)].as_mut().expect("a part's slot is in use until the part is answered")
    }

    /// Begins a part of the request.
    pub(crate) fn begin_part(&mut self, index: u16, from_byte: u32, data_bytes: u32) -> PartId {
        self.parts += 1;
        self.get(index).parts += 1;
        PartId { slot: index, from_byte, data_bytes }
    }

    /// A part is answered; gives the whole request back if that was all.
    pub(crate) fn end_part(&mut self, index: u16, error: Option<Errno>) -> Option<Slot> {
        self.parts -= 1;
        let slot = self.get(index);
        slot.parts -= 1;
        slot.error = slot.error.or(error);
        if slot.parts > 0 || slot.incomplete {
            return None;
        }
        self.free.push(index);
        self.slots[usize::from(index)].take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_over_with_its_last_part_and_its_first_error_stays() {
        let mut slots = Slots::default();
        let index = slots.insert(77, Kind::Other, true);
        let first = slots.begin_part(index, 0, 4096);
        let second = slots.begin_part(index, 4096, 512);
        assert_ne!(first, second);
        assert_eq!(PartId::from_u64(second.to_u64()), second);
        assert!(slots.end_part(index, Some(Errno::Io)).is_none());
        slots.get(index).incomplete = false;
        let slot = slots.end_part(index, Some(Errno::NoSpc)).expect("the last part");
        assert_eq!((slot.cookie, slot.error), (77, Some(Errno::Io)));
        assert_eq!((slots.used(), slots.parts()), (0, 0));
        assert_eq!(slots.insert(78, Kind::Other, false), index);
        assert_eq!(slots.used(), 1);
    }
}
