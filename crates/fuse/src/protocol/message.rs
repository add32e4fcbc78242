//! Requests, as the kernel sends them.

use super::init::Init;
use super::{IN_HEADER_BYTES, u32_at, u64_at};

/// Request numbers (`enum fuse_opcode`).
pub mod opcode {
    #![allow(missing_docs)]
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const FLUSH: u32 = 25;
    pub const INIT: u32 = 26;
    pub const ACCESS: u32 = 34;
    pub const INTERRUPT: u32 = 36;
    pub const DESTROY: u32 = 38;
    pub const BATCH_FORGET: u32 = 42;
    pub const FALLOCATE: u32 = 43;
}

/// `FATTR_SIZE`: SETATTR wants to change the size.
const ATTRIBUTE_SIZE: u32 = 1 << 3;
/// `FATTR_MODE`, `FATTR_UID`, `FATTR_GID`: SETATTR wants to change who may do what.
const ATTRIBUTE_ACCESS: u32 = 0b111;

/// A message that does not follow the protocol. It can be answered (with `EIO`) if its header was readable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Malformed {
    /// Fewer bytes than a header, or than the header says.
    #[error("a FUSE message of {got_bytes} bytes where {want_bytes} were announced")]
    Length {
        /// Bytes received.
        got_bytes: usize,
        /// Bytes announced, or needed for a header.
        want_bytes: usize,
    },
    /// The body is too short for its operation.
    #[error("a FUSE request of kind {opcode} with a body of {got_bytes} bytes where {want_bytes} are needed")]
    Body {
        /// The operation.
        opcode: u32,
        /// Bytes of body received.
        got_bytes: usize,
        /// Bytes needed.
        want_bytes: usize,
    },
    /// A WRITE whose payload is not as long as it says.
    #[error("a FUSE write with {got_bytes} bytes of data where {want_bytes} were announced")]
    Payload {
        /// Bytes of payload received.
        got_bytes: usize,
        /// Bytes announced.
        want_bytes: usize,
    },
}

/// What precedes every request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Length of the whole message in bytes, header included.
    pub length_bytes: u32,
    /// What is asked; see [`opcode`].
    pub opcode: u32,
    /// Names the request in its reply.
    pub unique: u64,
    /// The file it is about.
    pub node: u64,
    /// The process that asked; 0 for the kernel's own requests.
    pub pid: u32,
}

impl Header {
    /// The header at the beginning of `bytes`.
    ///
    /// # Errors
    /// [`Malformed::Length`] if there are not enough bytes for one, or if it announces less than itself.
    pub fn decode(bytes: &[u8]) -> Result<Header, Malformed> {
        if bytes.len() < IN_HEADER_BYTES {
            return Err(Malformed::Length { got_bytes: bytes.len(), want_bytes: IN_HEADER_BYTES });
        }
        let header = Header {
            length_bytes: u32_at(bytes, 0),
            opcode: u32_at(bytes, 4),
            unique: u64_at(bytes, 8),
            node: u64_at(bytes, 16),
            pid: u32_at(bytes, 32),
        };
        if (header.length_bytes as usize) < IN_HEADER_BYTES {
            return Err(Malformed::Length { got_bytes: header.length_bytes as usize, want_bytes: IN_HEADER_BYTES });
        }
        Ok(header)
    }

    /// The header of a message that came in one piece of `received_bytes` bytes, the first of which are in `bytes`.
    ///
    /// # Errors
    /// As [`Header::decode`], and [`Malformed::Length`] if the announced length is not the received one.
    pub fn decode_received(bytes: &[u8], received_bytes: usize) -> Result<Header, Malformed> {
        let header = Header::decode(&bytes[..bytes.len().min(received_bytes)])?;
        let want_bytes = header.length_bytes as usize;
        if want_bytes == received_bytes { Ok(header) } else { Err(Malformed::Length { got_bytes: received_bytes, want_bytes }) }
    }
}

/// What is asked, with the arguments that matter to a single-file server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// The handshake.
    Init(Init),
    /// The file's attributes.
    GetAttributes,
    /// Change attributes.
    SetAttributes {
        /// The new size in bytes, if the size is to change.
        size_bytes: Option<u64>,
        /// Whether owner, group or permissions are to change.
        access: bool,
    },
    /// Open the file.
    Open,
    /// Read bytes.
    Read {
        /// First byte.
        offset_bytes: u64,
        /// Count of bytes.
        length_bytes: u32,
    },
    /// Write bytes; the payload is not part of this value.
    Write {
        /// First byte.
        offset_bytes: u64,
        /// Count of bytes.
        length_bytes: u32,
    },
    /// Size and block size of the file system.
    StatFs,
    /// The last user of an open has gone.
    Release,
    /// Make acknowledged writes durable.
    Fsync,
    /// Somebody closed a descriptor.
    Flush,
    /// May this user do that?
    Access,
    /// Deallocate or zero a range.
    Fallocate {
        /// First byte.
        offset_bytes: u64,
        /// Count of bytes.
        length_bytes: u64,
        /// `FALLOC_FL_*`.
        mode: u32,
    },
    /// Forget about nodes, or interrupt a request: never answered.
    Silent,
    /// The file system is being unmounted.
    Destroy,
    /// Anything else.
    Unknown,
}

impl Operation {
    /// The operation of `header`, from the bytes after it. For a WRITE, `body` needs to hold the 40 bytes of
    /// arguments only; `rest_bytes` is the length of all that follows the header, payload included.
    ///
    /// # Errors
    /// [`Malformed::Body`] and [`Malformed::Payload`].
    pub fn decode(header: &Header, body: &[u8], rest_bytes: usize) -> Result<Operation, Malformed> {
        let need = |want_bytes: usize| {
            let got_bytes = body.len().min(rest_bytes);
            if got_bytes >= want_bytes { Ok(()) } else { Err(Malformed::Body { opcode: header.opcode, got_bytes, want_bytes }) }
        };
        Ok(match header.opcode {
            opcode::INIT => {
                need(Init::BYTES_MIN)?;
                Operation::Init(Init::decode(&body[..body.len().min(rest_bytes)]))
            }
            opcode::GETATTR => Operation::GetAttributes,
            opcode::SETATTR => {
                need(88)?;
                let valid = u32_at(body, 0);
                let size_bytes = (valid & ATTRIBUTE_SIZE != 0).then(|| u64_at(body, 16));
                Operation::SetAttributes { size_bytes, access: valid & ATTRIBUTE_ACCESS != 0 }
            }
            opcode::OPEN => Operation::Open,
            opcode::READ => {
                need(40)?;
                Operation::Read { offset_bytes: u64_at(body, 8), length_bytes: u32_at(body, 16) }
            }
            opcode::WRITE => {
                need(40)?;
                let (got_bytes, want_bytes) = (rest_bytes - 40, u32_at(body, 16) as usize);
                if got_bytes != want_bytes {
                    return Err(Malformed::Payload { got_bytes, want_bytes });
                }
                Operation::Write { offset_bytes: u64_at(body, 8), length_bytes: u32_at(body, 16) }
            }
            opcode::STATFS => Operation::StatFs,
            opcode::RELEASE => Operation::Release,
            opcode::FSYNC => Operation::Fsync,
            opcode::FLUSH => Operation::Flush,
            opcode::ACCESS => Operation::Access,
            opcode::FALLOCATE => {
                need(32)?;
                Operation::Fallocate { offset_bytes: u64_at(body, 8), length_bytes: u64_at(body, 16), mode: u32_at(body, 24) }
            }
            opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT => Operation::Silent,
            opcode::DESTROY => Operation::Destroy,
            _ => Operation::Unknown,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(opcode: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&((IN_HEADER_BYTES + body.len()) as u32).to_ne_bytes());
        bytes.extend_from_slice(&opcode.to_ne_bytes());
        bytes.extend_from_slice(&77u64.to_ne_bytes());
        bytes.extend_from_slice(&1u64.to_ne_bytes());
        bytes.resize(IN_HEADER_BYTES, 0);
        bytes.extend_from_slice(body);
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Operation, Malformed> {
        let header = Header::decode_received(bytes, bytes.len())?;
        Operation::decode(&header, &bytes[IN_HEADER_BYTES..], bytes.len() - IN_HEADER_BYTES)
    }

    #[test]
    fn a_write_is_understood_and_its_payload_length_is_checked() {
        let mut body = vec![0u8; 40 + 512];
        body[8..16].copy_from_slice(&4096u64.to_ne_bytes());
        body[16..20].copy_from_slice(&512u32.to_ne_bytes());
        assert_eq!(decode(&message(opcode::WRITE, &body)), Ok(Operation::Write { offset_bytes: 4096, length_bytes: 512 }));
        body.pop();
        assert_eq!(decode(&message(opcode::WRITE, &body)), Err(Malformed::Payload { got_bytes: 511, want_bytes: 512 }));
    }

    #[test]
    fn short_bodies_and_wrong_lengths_are_refused() {
        assert!(matches!(decode(&message(opcode::READ, &[0; 39])), Err(Malformed::Body { want_bytes: 40, .. })));
        assert!(matches!(decode(&[0; 12]), Err(Malformed::Length { .. })));
        let mut bytes = message(opcode::GETATTR, &[0; 16]);
        bytes[0] += 1;
        assert!(matches!(decode(&bytes), Err(Malformed::Length { .. })));
        assert_eq!(decode(&message(999, &[])), Ok(Operation::Unknown));
    }

    /// Whatever the bytes, decoding ends with a value or an error. Mutations of valid messages reach deeper than noise.
    #[test]
    fn no_bytes_make_the_decoder_panic() {
        let mut state = 0x9E37_79B9_7F4A_7C15u64;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let (mut understood, mut refused) = (0, 0);
        for _ in 0..200_000 {
            let body = vec![0u8; (random() % 120) as usize];
            let mut bytes = message((random() % 48) as u32, &body);
            for _ in 0..random() % 4 {
                let at = (random() % bytes.len() as u64) as usize;
                bytes[at] = random() as u8;
            }
            let cut = if random() % 4 == 0 { (random() % (bytes.len() as u64 + 1)) as usize } else { bytes.len() };
            match decode(&bytes[..cut]) {
                Ok(_) => understood += 1,
                Err(_) => refused += 1,
            }
        }
        assert!(understood > 1000 && refused > 1000, "both outcomes are exercised: {understood} and {refused}");
    }
}
