//! The FUSE wire: what the kernel says and how it wants to be answered.
//!
//! A pure codec without I/O and without `unsafe`. All numbers are in the machine's own byte order, as the protocol demands; layouts and
//! constants are those of the kernel's `include/uapi/linux/fuse.h`, protocol 7.31 to 7.45. Only what a single-file server meets is
//! decoded: everything else becomes [`Operation::Unknown`], which the server answers with `ENOSYS`.
//!
//! Rooms: [`message`] requests in, [`answer`] replies out, [`init`] the handshake, [`ring`] the headers of FUSE over io_uring.
#![forbid(unsafe_code)]

pub mod answer;
pub mod init;
pub mod message;
pub mod ring;

pub use answer::Answer;
pub use init::{Init, Limits, Negotiated};
pub use message::{Header, Malformed, Operation};

/// Bytes of the header before every request (`fuse_in_header`).
pub const IN_HEADER_BYTES: usize = 40;
/// Bytes of the header before every reply (`fuse_out_header`).
pub const OUT_HEADER_BYTES: usize = 16;
/// Bytes before the payload of a WRITE: the header and `fuse_write_in`. A page-aligned buffer after exactly this many
/// bytes receives the payload in place.
pub const WRITE_PREFIX_BYTES: usize = IN_HEADER_BYTES + 40;
/// The only file of a mount is its root.
pub const ROOT_NODE: u64 = 1;

/// The four bytes at `at`, as a number; callers have checked the length.
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("a range of four"))
}

/// The eight bytes at `at`, as a number; callers have checked the length.
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("a range of eight"))
}

#[cfg(test)]
/// The two bytes at `at`, as a number; callers have checked the length.
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes(bytes[at..at + 2].try_into().expect("a range of two"))
}
