//! Scatter and gather lists that the kernel reads while an entry is in flight.

use libc::{iovec, msghdr};

/// Pieces in one message; the kernel's own limit is 1024. 512 cover 2 MiB of scattered pages, more than a socket takes at once.
pub(crate) const PIECES_MAX: usize = 512;

/// A `msghdr` with its list, at a fixed place in memory.
pub(crate) struct Message {
    header: Box<msghdr>,
    pieces: Vec<iovec>,
}

// SAFETY: the pointers inside lead to the list itself and to memory owned by the same endpoint; they are followed by the
// kernel only, and the endpoint moves between threads only before its first entry.
unsafe impl Send for Message {}

impl Message {
    pub(crate) fn new() -> Message {
        // SAFETY: all-zero is a valid msghdr: null pointers and lengths of zero.
        let header = Box::new(unsafe { core::mem::zeroed::<msghdr>() });
        Message { header, pieces: Vec::with_capacity(PIECES_MAX) }
    }

    /// Empties the list. Not while an entry that names it is in flight.
    pub(crate) fn clear(&mut self) {
        self.pieces.clear();
    }

    /// Appends a piece; neighbours in memory become one. Says whether there was room.
    pub(crate) fn push(&mut self, start: *mut u8, length_bytes: usize) -> bool {
        if let Some(last) = self.pieces.last_mut()
            && last.iov_base.cast::<u8>().wrapping_add(last.iov_len) == start
        {
            last.iov_len += length_bytes;
            return true;
        }
        if self.pieces.len() == PIECES_MAX {
            return false;
        }
        self.pieces.push(iovec { iov_base: start.cast(), iov_len: length_bytes });
        true
    }

    /// The only piece, if there is just one.
    pub(crate) fn single(&self) -> Option<(*mut u8, u32)> {
        match self.pieces.as_slice() {
            [piece] => Some((piece.iov_base.cast(), piece.iov_len.min(u32::MAX as usize) as u32)),
            _ => None,
        }
    }

    /// Where the message lies, for an entry. Valid until the next change.
    pub(crate) fn pointer(&mut self) -> *mut msghdr {
        self.header.msg_iov = self.pieces.as_mut_ptr();
        self.header.msg_iovlen = self.pieces.len() as _;
        &raw mut *self.header
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_merged_and_the_limit_holds() {
        let mut memory = vec![0u8; 4 * PIECES_MAX];
        let start = memory.as_mut_ptr();
        let mut message = Message::new();
        assert!(message.push(start, 2) && message.push(start.wrapping_add(2), 3));
        assert_eq!(message.single(), Some((start, 5)));
        for index in 1..PIECES_MAX {
            assert!(message.push(start.wrapping_add(4 * index + 3), 1));
        }
        assert!(!message.push(start, 1));
        assert_eq!(message.single(), None);
        message.clear();
        assert!(message.push(start, 1));
    }
}
