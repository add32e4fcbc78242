//! The buffer that one message is received into, laid out so that written data lands where it is to stay.
//!
//! ```text
//!   prefix, 80 bytes          header and arguments of every frequent request
//!   pages, each 4096 bytes    the data of a WRITE: block-aligned writes leave here without a copy
//!   overflow, the rest        what is longer than the pages at hand; copied
//! ```
//! The kernel wants room for the longest possible message at every read, so a page list for all of it would be 257 pieces for the
//! kernel to look at, each time. Most writes are short: normally [`PAGES_SHORT`] pages are offered, and the full list only
//! while long writes are coming.

use crate::file::Work;
use crate::protocol::{Header, Malformed, Operation, WRITE_PREFIX_BYTES};
use page::{PAGE_BYTES, PageMut, PageMutVec, PageVec, for_each_piece_mut};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// With prefix and overflow this makes 8 pieces, what the kernel handles without allocating (`UIO_FASTIOV`).
const PAGES_SHORT: usize = 6;
/// After this many messages without a long write, the full list is given up.
const LONG_MODE_MESSAGES: u32 = 64;

/// Receives one message at a time.
pub(crate) struct Receiver {
    prefix: Box<[u8; WRITE_PREFIX_BYTES]>,
    /// The first of them is filled first.
    pages: Vec<PageMut>,
    overflow: Vec<u8>,
    pieces: Vec<libc::iovec>,
    /// Pages offered in the message at hand.
    offered: usize,
    pages_max: usize,
    /// Messages left before the short list is used again.
    long_mode: u32,
}

// SAFETY: `pieces` points only to memory that this value owns, and is written anew before each use.
unsafe impl Send for Receiver {}

impl Receiver {
    /// For messages with at most `request_bytes_max` bytes of data.
    pub(crate) fn new(request_bytes_max: usize) -> Receiver {
        Receiver {
            prefix: Box::new([0; WRITE_PREFIX_BYTES]),
            pages: Vec::new(),
            // Untouched memory costs nothing: it is touched only by writes longer than the pages offered.
            overflow: vec![0; request_bytes_max.max(2 * PAGE_BYTES)],
            pieces: Vec::new(),
            offered: 0,
            pages_max: request_bytes_max / PAGE_BYTES,
            long_mode: 0,
        }
    }

    /// How many more pages are needed before the next [`Receiver::receive`].
    pub(crate) fn pages_missing(&self) -> usize {
        self.pages_wanted().saturating_sub(self.pages.len())
    }

    fn pages_wanted(&self) -> usize {
        if self.long_mode > 0 { self.pages_max } else { PAGES_SHORT.min(self.pages_max) }
    }

    /// Takes pages to receive into.
    pub(crate) fn add_pages(&mut self, pages: PageMutVec) {
        self.pages.extend(pages);
    }

    /// Reads one message. `WouldBlock` when there is none.
    pub(crate) fn receive(&mut self, connection: BorrowedFd<'_>) -> io::Result<usize> {
        self.offered = self.pages_wanted().min(self.pages.len());
        if self.long_mode == 0 {
            self.pages.truncate(self.offered);
        }
        self.pieces.clear();
        self.pieces.push(piece(self.prefix.as_mut_ptr(), WRITE_PREFIX_BYTES));
        for page in &mut self.pages[..self.offered] {
            self.pieces.push(piece(page.as_mut_ptr(), PAGE_BYTES));
        }
        // As many bytes of the overflow as the pages lack of the longest message.
        let rest_bytes = self.overflow.len() - self.offered * PAGE_BYTES;
        if rest_bytes > 0 {
            self.pieces.push(piece(self.overflow.as_mut_ptr(), rest_bytes));
        }
        // SAFETY: every piece is memory of ours, writable and not otherwise used until the call returns.
        let received = unsafe { libc::readv(connection.as_raw_fd(), self.pieces.as_ptr(), self.pieces.len() as i32) };
        let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
        self.long_mode =
            if received > WRITE_PREFIX_BYTES + PAGES_SHORT * PAGE_BYTES { LONG_MODE_MESSAGES } else { self.long_mode.saturating_sub(1) };
        Ok(received)
    }

    /// The message of `received_bytes` bytes just received.
    pub(crate) fn decode(&self, received_bytes: usize) -> (Option<Header>, Result<Operation, Malformed>) {
        let header = match Header::decode_received(&self.prefix[..], received_bytes) {
            Ok(header) => header,
            Err(malformed) => return (Header::decode(&self.prefix[..received_bytes.min(WRITE_PREFIX_BYTES)]).ok(), Err(malformed)),
        };
        let head = crate::protocol::IN_HEADER_BYTES;
        let rest_bytes = received_bytes - head;
        if received_bytes <= WRITE_PREFIX_BYTES || header.opcode == crate::protocol::message::opcode::WRITE {
            return (Some(header), Operation::decode(&header, &self.prefix[head..], rest_bytes));
        }
        // Only rare requests are longer than the prefix: put their two parts together.
        let mut body = [0u8; 128];
        let first = WRITE_PREFIX_BYTES - head;
        body[..first].copy_from_slice(&self.prefix[head..]);
        body[first..].copy_from_slice(&self.first_bytes()[..128 - first]);
        (Some(header), Operation::decode(&header, &body, rest_bytes))
    }

    fn first_bytes(&self) -> &[u8] {
        if self.offered > 0 { &self.pages[0][..] } else { &self.overflow }
    }

    /// How many pages beyond those received into [`Receiver::take_data`] needs for this WRITE.
    pub(crate) fn pages_needed(&self, work: &Work) -> usize {
        if work.skip_bytes == 0 { work.pages().saturating_sub(self.offered) } else { work.pages() }
    }

    /// The data of the WRITE just received, laid out in blocks. `extra` has [`Receiver::pages_needed`] pages.
    pub(crate) fn take_data(&mut self, work: &Work, mut extra: PageMutVec) -> PageVec {
        let data_bytes = work.data_bytes as usize;
        if work.skip_bytes == 0 {
            let in_place = work.pages().min(self.offered);
            let overflowed = &self.overflow[..data_bytes.saturating_sub(in_place * PAGE_BYTES)];
            for (page, bytes) in extra.iter_mut().zip(overflowed.chunks(PAGE_BYTES)) {
                page[..bytes.len()].copy_from_slice(bytes);
            }
            return self.pages.drain(..in_place).chain(extra).map(PageMut::freeze).collect();
        }
        // Data that begins within a block is shifted to its place.
        let overflow = &self.overflow;
        let received = self.pages[..self.offered].iter().map(|page| &page[..]).chain(std::iter::once(&overflow[..]));
        let mut source = received.flat_map(|bytes| bytes.chunks(types::SECTOR_BYTES as usize));
        for_each_piece_mut(&mut extra, work.skip_bytes, work.data_bytes, |piece| {
            for (sector, bytes) in piece.chunks_mut(types::SECTOR_BYTES as usize).zip(&mut source) {
                sector.copy_from_slice(bytes);
            }
        });
        extra.into_iter().map(PageMut::freeze).collect()
    }
}

fn piece(bytes: *mut u8, length: usize) -> libc::iovec {
    libc::iovec { iov_base: bytes.cast(), iov_len: length }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::api::Op;
    use page::PagePool;
    use std::io::Write;
    use std::os::fd::AsFd;

    const REQUEST_BYTES_MAX: usize = 16 * PAGE_BYTES;

    fn write_message(offset_bytes: u64, data: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0u8; WRITE_PREFIX_BYTES];
        bytes[0..4].copy_from_slice(&((WRITE_PREFIX_BYTES + data.len()) as u32).to_ne_bytes());
        bytes[4..8].copy_from_slice(&crate::protocol::message::opcode::WRITE.to_ne_bytes());
        bytes[48..56].copy_from_slice(&offset_bytes.to_ne_bytes());
        bytes[56..60].copy_from_slice(&(data.len() as u32).to_ne_bytes());
        bytes.extend_from_slice(data);
        bytes
    }

    fn take(pool: &PagePool, count: usize) -> PageMutVec {
        (0..count).map(|_| pool.allocate().expect("enough pages")).collect()
    }

    /// Writes of every length and position come out as they went in, whichever way their bytes took.
    #[test]
    fn written_data_arrives_in_its_blocks() {
        let pool = PagePool::new(256);
        let (input, mut output) = std::io::pipe().expect("a pipe");
        let mut receiver = Receiver::new(REQUEST_BYTES_MAX);
        let mut in_place = 0;
        for round in 0u32..400 {
            // A pipe holds 64 KiB, so a message must be shorter.
            let data_bytes = (round * 37 % 120 + 1) * 512;
            let offset_bytes = u64::from(round * 13 % 24) * 512;
            let data: Vec<u8> = (0..data_bytes).map(|i| (i / 7 + i + round) as u8).collect();
            receiver.add_pages(take(&pool, receiver.pages_missing()));
            output.write_all(&write_message(offset_bytes, &data)).expect("fits the pipe");
            let received = receiver.receive(input.as_fd()).expect("a message");
            let (header, operation) = receiver.decode(received);
            assert!(header.is_some());
            assert_eq!(operation, Ok(Operation::Write { offset_bytes, length_bytes: data_bytes }));
            let work = Work { op: Op::Write, start_sector: 0, sectors: 0, skip_bytes: (offset_bytes % 4096) as u32, data_bytes };
            let needed = receiver.pages_needed(&work);
            in_place += usize::from(needed == 0);
            let pages = receiver.take_data(&work, take(&pool, needed));
            assert_eq!(pages.len(), work.pages());
            let mut bytes = Vec::new();
            page::for_each_piece(&pages, work.skip_bytes, data_bytes, |piece| bytes.extend_from_slice(piece));
            assert!(bytes == data, "round {round}");
        }
        assert!(in_place > 10, "some writes need no copy: {in_place}");
    }

    #[test]
    fn a_long_rare_message_is_put_together() {
        let pool = PagePool::new(16);
        let (input, mut output) = std::io::pipe().expect("a pipe");
        let mut receiver = Receiver::new(REQUEST_BYTES_MAX);
        receiver.add_pages(take(&pool, receiver.pages_missing()));
        let mut bytes = vec![0u8; 128];
        bytes[0..4].copy_from_slice(&128u32.to_ne_bytes());
        bytes[4..8].copy_from_slice(&crate::protocol::message::opcode::SETATTR.to_ne_bytes());
        bytes[40..44].copy_from_slice(&8u32.to_ne_bytes());
        bytes[56..64].copy_from_slice(&77u64.to_ne_bytes());
        output.write_all(&bytes).expect("fits the pipe");
        let received = receiver.receive(input.as_fd()).expect("a message");
        assert_eq!(receiver.decode(received).1, Ok(Operation::SetAttributes { size_bytes: Some(77), access: false }));
    }
}
