//! Replies of the transmission phase, as bytes.

use super::request::Session;
use super::wire::{Errno, SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC, chunk};

/// Longest reply header: a block status chunk with one extent.
pub const REPLY_BYTES_MAX: usize = 32;

/// The number by which base:allocation is known on a connection; ours to choose.
pub const ALLOCATION_CONTEXT: u32 = 1;

/// A reply, or the part of it before the data, in a fixed space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplyBytes {
    bytes: [u8; REPLY_BYTES_MAX],
    length: u8,
}

impl ReplyBytes {
    fn empty() -> ReplyBytes {
        ReplyBytes { bytes: [0; REPLY_BYTES_MAX], length: 0 }
    }

    fn push(&mut self, field: &[u8]) {
        let start = usize::from(self.length);
        self.bytes[start..start + field.len()].copy_from_slice(field);
        self.length += field.len() as u8;
    }

    /// The bytes to send.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

/// A simple reply: success (`None`) or an error, without data.
pub fn simple(cookie: u64, error: Option<Errno>) -> ReplyBytes {
    let mut reply = ReplyBytes::empty();
    reply.push(&SIMPLE_REPLY_MAGIC.to_be_bytes());
    reply.push(&error.map_or(0, |error| error as u32).to_be_bytes());
    reply.push(&cookie.to_be_bytes());
    reply
}

fn chunk_header(flags: u16, kind: u16, cookie: u64, length_bytes: u32) -> ReplyBytes {
    let mut reply = ReplyBytes::empty();
    reply.push(&STRUCTURED_REPLY_MAGIC.to_be_bytes());
    reply.push(&flags.to_be_bytes());
    reply.push(&kind.to_be_bytes());
    reply.push(&cookie.to_be_bytes());
    reply.push(&length_bytes.to_be_bytes());
    reply
}

fn final_chunk(kind: u16, cookie: u64, length_bytes: u32) -> ReplyBytes {
    chunk_header(chunk::FLAG_DONE, kind, cookie, length_bytes)
}

impl Session {
    /// What precedes the data of a successful read; `length_bytes` of data must follow. A read of nothing gets a reply
    /// without data.
    pub fn read_reply(&self, cookie: u64, offset_bytes: u64, length_bytes: u32) -> ReplyBytes {
        if !self.structured {
            return simple(cookie, None);
        }
        if length_bytes == 0 {
            return final_chunk(chunk::NONE, cookie, 0);
        }
        self.read_chunk(cookie, offset_bytes, length_bytes, true)
    }

    /// What precedes some of the data of a read, in a session with structured replies; `last` if it is all or the rest.
    pub fn read_chunk(&self, cookie: u64, offset_bytes: u64, length_bytes: u32, last: bool) -> ReplyBytes {
        assert!(self.structured, "only structured replies come in parts");
        let flags = if last { chunk::FLAG_DONE } else { 0 };
        // A data chunk's length counts the offset, too. `length_bytes` is at most PAYLOAD_BYTES_MAX: no overflow.
        let mut reply = chunk_header(flags, chunk::OFFSET_DATA, cookie, length_bytes + 8);
        reply.push(&offset_bytes.to_be_bytes());
        reply
    }

    /// Success of anything but a read or a block status. Simple replies are allowed for those in every session.
    pub fn done_reply(&self, cookie: u64) -> ReplyBytes {
        simple(cookie, None)
    }

    /// Failure of any request.
    pub fn error_reply(&self, cookie: u64, error: Errno) -> ReplyBytes {
        if !self.structured {
            return simple(cookie, Some(error));
        }
        let mut reply = final_chunk(chunk::ERROR, cookie, 6);
        reply.push(&(error as u32).to_be_bytes());
        reply.push(&0u16.to_be_bytes());
        reply
    }

    /// One extent: allocated data.
    pub fn allocated_reply(&self, cookie: u64, length_bytes: u32) -> ReplyBytes {
        let mut reply = final_chunk(chunk::BLOCK_STATUS, cookie, 12);
        reply.push(&ALLOCATION_CONTEXT.to_be_bytes());
        reply.push(&length_bytes.to_be_bytes());
        reply.push(&0u32.to_be_bytes());
        reply
    }
}

#[cfg(test)]
mod tests {
    use super::super::handshake::ExportInfo;
    use super::*;

    fn session(structured: bool) -> Session {
        Session { export: ExportInfo::new("disk", 1 << 20), structured, allocation_context: structured }
    }

    #[test]
    fn simple_replies() {
        let cookie = 0x1122_3344_5566_7788;
        let ok = b"\x67\x44\x66\x98\0\0\0\0\x11\x22\x33\x44\x55\x66\x77\x88";
        assert_eq!(session(false).done_reply(cookie).as_slice(), ok);
        assert_eq!(session(false).read_reply(cookie, 4096, 512).as_slice(), ok);
        assert_eq!(session(true).done_reply(cookie).as_slice(), ok);
        let failed = b"\x67\x44\x66\x98\0\0\0\x1c\x11\x22\x33\x44\x55\x66\x77\x88";
        assert_eq!(session(false).error_reply(cookie, Errno::NoSpc).as_slice(), failed);
    }

    #[test]
    fn structured_replies() {
        let session = session(true);
        let data = b"\x66\x8e\x33\xef\0\x01\0\x01\0\0\0\0\0\0\0\x05\0\0\x02\x08\0\0\0\0\0\0\x10\0";
        assert_eq!(session.read_reply(5, 4096, 512).as_slice(), data);
        let part = b"\x66\x8e\x33\xef\0\0\0\x01\0\0\0\0\0\0\0\x05\0\0\x02\x08\0\0\0\0\0\0\x10\0";
        assert_eq!(session.read_chunk(5, 4096, 512, false).as_slice(), part);
        let none = b"\x66\x8e\x33\xef\0\x01\0\0\0\0\0\0\0\0\0\x05\0\0\0\0";
        assert_eq!(session.read_reply(5, 4096, 0).as_slice(), none);
        let error = b"\x66\x8e\x33\xef\0\x01\x80\x01\0\0\0\0\0\0\0\x05\0\0\0\x06\0\0\0\x05\0\0";
        assert_eq!(session.error_reply(5, Errno::Io).as_slice(), error);
        let status = b"\x66\x8e\x33\xef\0\x01\0\x05\0\0\0\0\0\0\0\x05\0\0\0\x0c\0\0\0\x01\0\0\x10\0\0\0\0\0";
        assert_eq!(session.allocated_reply(5, 4096).as_slice(), status);
    }
}
