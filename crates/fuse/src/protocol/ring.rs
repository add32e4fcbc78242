//! The headers of FUSE over io_uring (`fuse_uring_req_header`, `fuse_uring_cmd_req`).
//!
//! ```text
//!   0    in_out        fuse_in_header from the kernel, fuse_out_header to it
//! 128    operation     the first argument of the request
//! 256    entry         flags u64, commit id u64, payload length u32, padding, reserved u64
//! 288
//! ```
//! Further arguments of a request, data, and the whole body of a reply travel in the entry's payload buffer.

use super::{IN_HEADER_BYTES, OUT_HEADER_BYTES, u32_at, u64_at};

/// Bytes of an entry's header area.
pub const HEADER_BYTES: usize = 288;
/// Where the operation's arguments begin, and how many bytes they may take.
pub const OPERATION_AT: usize = 128;
const ENTRY_AT: usize = 256;
/// The kernel refuses payload buffers shorter than this (`FUSE_MIN_READ_BUFFER`).
pub const PAYLOAD_BYTES_MIN: usize = 8192;
/// Command number: hand an entry to the kernel for the first time.
pub const COMMAND_REGISTER: u32 = 1;
/// Command number: hand over the reply that is in the entry and wait for the next request in it.
pub const COMMAND_COMMIT_AND_FETCH: u32 = 2;

const _: () = assert!(IN_HEADER_BYTES <= OPERATION_AT && OUT_HEADER_BYTES <= OPERATION_AT);

/// An entry's header area, shared with the kernel in turns.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub struct EntryHeader(pub [u8; HEADER_BYTES]);

impl EntryHeader {
    /// What names the request in the commit.
    pub fn commit_id(&self) -> u64 {
        u64_at(&self.0, ENTRY_AT + 8)
    }

    /// Bytes in the payload buffer.
    pub fn payload_bytes(&self) -> usize {
        u32_at(&self.0, ENTRY_AT + 16) as usize
    }

    /// The bytes of the request's header.
    pub fn in_header(&self) -> &[u8] {
        &self.0[..IN_HEADER_BYTES]
    }

    /// The bytes of the operation's arguments.
    pub fn operation(&self) -> &[u8] {
        &self.0[OPERATION_AT..ENTRY_AT]
    }

    /// Makes this the header of a reply whose body of `body_bytes` bytes is in the payload buffer.
    pub fn set_reply(&mut self, unique: u64, error: i32, body_bytes: usize) {
        self.0[..OUT_HEADER_BYTES].copy_from_slice(&super::answer::out_header(unique, error, body_bytes));
        let payload_bytes = body_bytes as u32;
        self.0[ENTRY_AT + 16..ENTRY_AT + 20].copy_from_slice(&payload_bytes.to_ne_bytes());
    }
}

/// The command bytes of a ring entry for `queue`.
pub fn command(commit_id: u64, queue: u16) -> [u8; 80] {
    let mut bytes = [0; 80];
    bytes[8..16].copy_from_slice(&commit_id.to_ne_bytes());
    bytes[16..18].copy_from_slice(&queue.to_ne_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_replaces_the_request_but_keeps_the_commit_id() {
        let mut header = EntryHeader([0; HEADER_BYTES]);
        header.0[264..272].copy_from_slice(&42u64.to_ne_bytes());
        header.set_reply(7, 0, 4096);
        assert_eq!((header.commit_id(), header.payload_bytes()), (42, 4096));
        assert_eq!(u32_at(&header.0, 0), 4112);
        assert_eq!(command(42, 3)[8..18], [42, 0, 0, 0, 0, 0, 0, 0, 3, 0]);
    }
}
