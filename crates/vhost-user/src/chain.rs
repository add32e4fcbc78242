//! A chain of descriptors: what the driver gives to read from, and what to write to.

use crate::memory::GuestMemory;
use crate::ring::{Broken, Descriptor, ENTRIES_MAX, Ring};
use smallvec::SmallVec;

/// A piece of the guest's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Piece {
    pub(crate) guest: u64,
    pub(crate) bytes: u32,
}

/// Pieces, in order. A request of one page has one for its data and one for header or status.
pub(crate) type Pieces = SmallVec<[Piece; 4]>;

/// Pieces of mapped memory that the buffers of one chain may touch: four for each buffer of the longest.
const LOOKS_MAX: u32 = 5 * ENTRIES_MAX as u32;

/// All pieces of a chain. Together they are shorter than 4 GiB, and each lies in the guest's memory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Chain {
    /// Written by the driver.
    pub(crate) readable: Pieces,
    /// To be written by us.
    pub(crate) writable: Pieces,
    /// What it cost: descriptors that were looked at, and pieces of memory that they name.
    pub(crate) looks: u32,
}

impl Chain {
    /// Follows the chain that begins at `head`.
    ///
    /// # Errors
    /// [`Broken`] if it does not end, leaves the guest's memory, or breaks another rule. It costs no more than the longest
    /// chain that is allowed.
    pub(crate) fn walk(ring: &Ring, head: u16) -> Result<Chain, Broken> {
        let mut chain = Chain::default();
        let (mut index, mut total) = (head, 0);
        for _ in 0..ring.entries() {
            let descriptor = ring.descriptor(index);
            if descriptor.flags & Descriptor::INDIRECT != 0 {
                if descriptor.flags & Descriptor::NEXT != 0 {
                    return Err(Broken("a chain goes on behind an indirect descriptor"));
                }
                chain.walk_table(&ring.memory, &descriptor, &mut total)?;
                return Ok(chain);
            }
            chain.add(&ring.memory, &descriptor, &mut total)?;
            if descriptor.flags & Descriptor::NEXT == 0 {
                return Ok(chain);
            }
            index = descriptor.next;
            if index >= ring.entries() {
                return Err(Broken("a chain leaves its table"));
            }
        }
        Err(Broken("a chain does not end"))
    }

    fn walk_table(&mut self, memory: &GuestMemory, table: &Descriptor, total: &mut u64) -> Result<(), Broken> {
        let entries = table.bytes / Descriptor::BYTES as u32;
        if entries == 0 || !u64::from(table.bytes).is_multiple_of(Descriptor::BYTES) || entries > u32::from(ENTRIES_MAX) {
            return Err(Broken("an indirect table is empty, too long or no whole number of descriptors"));
        }
        let mut index = 0;
        for _ in 0..entries {
            let mut bytes = [0; 16];
            let guest = table.guest.checked_add(Descriptor::BYTES * u64::from(index));
            let read = guest.is_some_and(|guest| memory.read(guest, &mut bytes).is_ok());
            if !read {
                return Err(Broken("an indirect table lies outside of the guest's memory"));
            }
            let descriptor = Descriptor::decode(&bytes);
            if descriptor.flags & Descriptor::INDIRECT != 0 {
                return Err(Broken("an indirect table names another"));
            }
            self.add(memory, &descriptor, total)?;
            if descriptor.flags & Descriptor::NEXT == 0 {
                return Ok(());
            }
            index = u32::from(descriptor.next);
            if index >= entries {
                return Err(Broken("a chain leaves its table"));
            }
        }
        Err(Broken("a chain does not end"))
    }

    fn add(&mut self, memory: &GuestMemory, descriptor: &Descriptor, total: &mut u64) -> Result<(), Broken> {
        let pieces = memory.pieces(descriptor.guest, u64::from(descriptor.bytes));
        self.looks += 1 + pieces.map_err(|_| Broken("a buffer lies outside of the guest's memory"))?;
        if self.looks > LOOKS_MAX {
            return Err(Broken("a chain touches too many pieces of the guest's memory"));
        }
        *total += u64::from(descriptor.bytes);
        if *total > u64::from(u32::MAX) {
            return Err(Broken("a chain is longer than 4 GiB"));
        }
        let is_writable = descriptor.flags & Descriptor::WRITE != 0;
        if !is_writable && !self.writable.is_empty() {
            return Err(Broken("a buffer to read from follows one to write to"));
        }
        if descriptor.bytes > 0 {
            let pieces = if is_writable { &mut self.writable } else { &mut self.readable };
            pieces.push(Piece { guest: descriptor.guest, bytes: descriptor.bytes });
        }
        Ok(())
    }
}

/// Bytes of all pieces.
pub(crate) fn total_bytes(pieces: &[Piece]) -> u32 {
    pieces.iter().map(|piece| piece.bytes).sum()
}

/// Takes `bytes` bytes off the front; there are as many.
pub(crate) fn cut_front(pieces: &mut Pieces, mut bytes: u32) {
    let mut gone = 0;
    for piece in pieces.iter_mut() {
        let count = piece.bytes.min(bytes);
        piece.guest += u64::from(count);
        piece.bytes -= count;
        bytes -= count;
        gone += usize::from(piece.bytes == 0);
        if bytes == 0 {
            break;
        }
    }
    pieces.drain(..gone);
}

/// Takes the last byte off; there is one. Gives its address.
pub(crate) fn cut_last(pieces: &mut Pieces) -> Option<u64> {
    let last = pieces.last_mut()?;
    last.bytes -= 1;
    let guest = last.guest + u64::from(last.bytes);
    if last.bytes == 0 {
        pieces.pop();
    }
    Some(guest)
}

/// Calls `visit` with the parts of the pieces that hold `bytes` bytes from `offset` on.
pub(crate) fn for_each_part(pieces: &[Piece], mut offset: u32, mut bytes: u32, mut visit: impl FnMut(u64, usize)) {
    for piece in pieces {
        if bytes == 0 {
            return;
        }
        let skip = piece.bytes.min(offset);
        offset -= skip;
        let count = (piece.bytes - skip).min(bytes);
        if count > 0 {
            visit(piece.guest + u64::from(skip), count as usize);
        }
        bytes -= count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::tests::region;
    use crate::ring::Place;
    use std::sync::Arc;

    /// A ring whose memory has so many neighbouring regions of a page each, after one for ring and table, and its first chain: a table
    /// of `entries` descriptors that name `bytes` bytes each.
    fn table(regions: u64, entries: u16, bytes: u32) -> Result<Chain, Broken> {
        let table = 0x1000;
        let (pages, first) = (0x10_0000, 0x1_0000);
        let neighbours = (0..regions).map(|index| region(pages + 4096 * index, pages + 4096 * index, 4096));
        let memory = GuestMemory::new([region(0, 0, first)].into_iter().chain(neighbours).collect()).expect("apart");
        let describe = |at: u64, guest: u64, bytes: u32, flags: u16, next: u16| {
            let words = [&guest.to_le_bytes()[..], &bytes.to_le_bytes(), &flags.to_le_bytes(), &next.to_le_bytes()].concat();
            memory.write(at, &words).expect("inside");
        };
        describe(0, table, 16 * u32::from(entries), Descriptor::INDIRECT, 0);
        for index in 0..entries {
            let flags = if index + 1 < entries { Descriptor::NEXT } else { 0 };
            describe(table + 16 * u64::from(index), pages, bytes, flags, index + 1);
        }
        let place = Place { descriptors: 0, available: 0x8000, used: 0x9000, used_logged: None };
        Chain::walk(&Ring::new(Arc::new(memory), place, 8, false, 0, None).expect("a queue"), 0)
    }

    #[test]
    fn what_a_chain_costs_is_counted_and_has_an_end() {
        assert_eq!(table(1, 3, 16).expect("a chain").looks, 6);
        assert_eq!(table(1, ENTRIES_MAX, 1).expect("a chain").looks, 2 * u32::from(ENTRIES_MAX));
        assert_eq!(table(100, 2, 100 * 4096).expect("a chain").looks, 202);
        assert!(table(100, ENTRIES_MAX, 100 * 4096).is_err(), "each buffer lies in a hundred pieces");
    }

    #[test]
    fn pieces_are_cut_at_both_ends_and_visited_in_part() {
        let mut pieces: Pieces = [(100, 10), (200, 6), (300, 20)].map(|(guest, bytes)| Piece { guest, bytes }).into_iter().collect();
        let mut seen = Vec::new();
        for_each_part(&pieces, 8, 10, |guest, bytes| seen.push((guest, bytes)));
        assert_eq!(seen, [(108, 2), (200, 6), (300, 2)]);
        cut_front(&mut pieces, 16);
        assert_eq!(pieces[..], [Piece { guest: 300, bytes: 20 }]);
        assert_eq!(cut_last(&mut pieces), Some(319));
        assert_eq!(total_bytes(&pieces), 19);
        cut_front(&mut pieces, 18);
        assert_eq!((cut_last(&mut pieces), pieces.len()), (Some(318), 0));
        assert_eq!(cut_last(&mut pieces), None);
    }
}
