//! Numbers and field access of the protocol, big-endian throughout.

use rustix::io;

/// First 8 bytes of every server ("NBDMAGIC").
pub const SERVER_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// Second 8 bytes of a newstyle server, and first 8 of every option ("IHAVEOPT").
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// First 8 bytes of the answer to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// First 4 bytes of a request in the transmission phase.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// First 4 bytes of a simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// First 4 bytes of a structured reply chunk.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Length of a compact request header.
pub const REQUEST_HEADER_BYTES: usize = 28;
/// Length of an option's header (magic, option, length).
pub const OPTION_HEADER_BYTES: usize = 16;

/// Longest export name or meta context query, in bytes ("Values", string limit).
pub const NAME_BYTES_MAX: usize = 4096;
/// Longest option data read into memory; the longest sensible option (GO with a name of 4096 bytes) is far below.
pub const OPTION_BYTES_MAX: usize = 64 << 10;
/// Longest READ or WRITE, announced as the maximum block size. 32 MiB is what clients assume when nothing is announced
/// ("Block size constraints").
pub const PAYLOAD_BYTES_MAX: u32 = 32 << 20;
/// Announced as the preferred block size: the cache's own block.
pub const PREFERRED_BLOCK_BYTES: u32 = 4096;
/// Queries in one LIST or SET of meta contexts; a client needs one for each context it knows, and few exist.
pub const QUERIES_MAX: u32 = 1024;

/// Handshake flags ("Flag fields").
pub mod handshake_flag {
    /// Fixed newstyle.
    pub const FIXED_NEWSTYLE: u16 = 1;
    /// No 124 zero bytes after an EXPORT_NAME answer.
    pub const NO_ZEROES: u16 = 2;
}

/// Transmission flags.
pub mod transmission_flag {
    /// Always set.
    pub const HAS_FLAGS: u16 = 1 << 0;
    /// No writes.
    pub const READ_ONLY: u16 = 1 << 1;
    /// FLUSH is understood.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// The FUA flag is understood.
    pub const SEND_FUA: u16 = 1 << 3;
    /// TRIM is understood.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// WRITE_ZEROES is understood.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// The DF flag is understood.
    pub const SEND_DF: u16 = 1 << 7;
    /// A FLUSH on one connection covers the writes of all.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    /// The FAST_ZERO flag is understood.
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Options a client may send during the handshake.
pub mod option {
    /// Choose an export, old form without an error answer.
    pub const EXPORT_NAME: u32 = 1;
    /// End the session.
    pub const ABORT: u32 = 2;
    /// List exports.
    pub const LIST: u32 = 3;
    /// Begin TLS.
    pub const STARTTLS: u32 = 5;
    /// Ask about an export.
    pub const INFO: u32 = 6;
    /// Choose an export.
    pub const GO: u32 = 7;
    /// Use structured replies.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// List meta contexts.
    pub const LIST_META_CONTEXT: u32 = 9;
    /// Choose meta contexts.
    pub const SET_META_CONTEXT: u32 = 10;
    /// Use 64-bit headers.
    pub const EXTENDED_HEADERS: u32 = 11;
}

/// Kinds of answers to options.
pub mod option_reply {
    /// Done.
    pub const ACK: u32 = 1;
    /// One export of a list.
    pub const SERVER: u32 = 2;
    /// One fact about an export.
    pub const INFO: u32 = 3;
    /// One meta context.
    pub const META_CONTEXT: u32 = 4;
    /// Unknown option.
    pub const ERR_UNSUPPORTED: u32 = (1 << 31) + 1;
    /// Known but not allowed here.
    pub const ERR_POLICY: u32 = (1 << 31) + 2;
    /// Malformed.
    pub const ERR_INVALID: u32 = (1 << 31) + 3;
    /// TLS must come first.
    pub const ERR_TLS_REQUIRED: u32 = (1 << 31) + 5;
    /// No such export.
    pub const ERR_UNKNOWN: u32 = (1 << 31) + 6;
    /// Too large.
    pub const ERR_TOO_BIG: u32 = (1 << 31) + 9;
}

/// Kinds of facts in an INFO answer.
pub mod info {
    /// Size and transmission flags.
    pub const EXPORT: u16 = 0;
    /// Name.
    pub const NAME: u16 = 1;
    /// Text for people.
    pub const DESCRIPTION: u16 = 2;
    /// Minimum, preferred and maximum block size.
    pub const BLOCK_SIZE: u16 = 3;
}

/// Request types.
pub mod command {
    /// Read.
    pub const READ: u16 = 0;
    /// Write.
    pub const WRITE: u16 = 1;
    /// Disconnect.
    pub const DISCONNECT: u16 = 2;
    /// Flush.
    pub const FLUSH: u16 = 3;
    /// Trim.
    pub const TRIM: u16 = 4;
    /// Write zeroes.
    pub const WRITE_ZEROES: u16 = 6;
    /// Block status.
    pub const BLOCK_STATUS: u16 = 7;
}

/// Flags of a request.
pub mod command_flag {
    /// Durable when answered.
    pub const FUA: u16 = 1 << 0;
    /// Zeroes must not punch holes.
    pub const NO_HOLE: u16 = 1 << 1;
    /// The answer to a read must be one chunk.
    pub const DF: u16 = 1 << 2;
    /// Block status: one extent, within the range.
    pub const REQ_ONE: u16 = 1 << 3;
    /// Zeroes only if faster than writing.
    pub const FAST_ZERO: u16 = 1 << 4;
}

/// Structured reply chunk types and their flag.
pub mod chunk {
    /// Last chunk of a reply.
    pub const FLAG_DONE: u16 = 1;
    /// Nothing but the flag.
    pub const NONE: u16 = 0;
    /// Offset and data.
    pub const OFFSET_DATA: u16 = 1;
    /// Extents of one meta context.
    pub const BLOCK_STATUS: u16 = 5;
    /// Error number and text.
    pub const ERROR: u16 = (1 << 15) + 1;
}

/// Error numbers of the transmission phase ("Error values").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Errno {
    /// Not permitted (a write to a read-only export).
    Perm = 1,
    /// A device failed.
    Io = 5,
    /// Malformed, unaligned or out of range.
    Inval = 22,
    /// No space, or a write beyond the end.
    NoSpc = 28,
    /// Longer than the announced maximum.
    Overflow = 75,
    /// Not supported, or not fast.
    NotSup = 95,
    /// The export is going away.
    Shutdown = 108,
}

impl Errno {
    /// The same in NBD's words. What it has no word for is a failure of the device.
    pub fn of(errno: io::Errno) -> Errno {
        match errno {
            io::Errno::PERM => Errno::Perm,
            io::Errno::INVAL => Errno::Inval,
            io::Errno::NOSPC => Errno::NoSpc,
            io::Errno::SHUTDOWN => Errno::Shutdown,
            _ => Errno::Io,
        }
    }
}

/// The `u16` at `at`. The caller has checked the length.
pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// The `u32` at `at`. The caller has checked the length.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// The `u64` at `at`. The caller has checked the length.
pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) << 32 | u64::from(u32_at(bytes, at + 4))
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::api::RequestError;

    #[test]
    fn failures_of_requests_keep_their_numbers() {
        for error in [RequestError::Io, RequestError::NoSpace, RequestError::ReadOnly, RequestError::Invalid, RequestError::Shutdown] {
            let errno = export::errno_of(error);
            assert_eq!(Errno::of(errno) as i32, errno.raw_os_error(), "{error:?}");
        }
        assert_eq!(Errno::of(io::Errno::NOMEM), Errno::Io, "NBD has no word for it");
    }
}
