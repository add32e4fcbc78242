//! Content locality: what a block contains decides how it is stored.
//!
//! Pure functions and bounded tables over 4 KiB blocks; no I/O, no clock, no data of its own beyond hints. Every hint may be wrong or lost:
//! who takes one compares the content before believing it.
//!
//! Rooms: [`diff`], [`lz`] and [`dense`] turn a block into fewer bytes and back; [`fingerprint`] and [`sketch`] give keys by which equal and similar
//! blocks meet; [`hints`] remembers keys; [`encode`] chooses a form; [`gate`] says which steps pay and [`budget`] which can be afforded; [`measure`] is a store without a device
//! that tells what all this brings on given data.
//!
//! Invariants: a decoder never panics and never gives more than a block, whatever the bytes; a base is always a block in full, never another
//! delta; what is encoded decodes to the same bytes.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

pub mod budget;
pub mod dense;
pub mod diff;
pub mod encode;
pub mod fingerprint;
pub mod gate;
pub mod hints;
pub mod lz;
pub mod measure;
pub mod sketch;

/// Size of a block, in bytes.
pub const BLOCK_BYTES: usize = 4096;

/// A block's content.
pub type Block = [u8; BLOCK_BYTES];

/// Bytes that are no encoding of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the stored bytes of a block are no valid encoding")]
pub struct Malformed;

/// Whether all bytes are zero.
pub fn is_zero(block: &Block) -> bool {
    // Most blocks that are not zero show it at once.
    block[..64].iter().all(|byte| *byte == 0) && block.as_chunks::<64>().0.iter().all(|chunk| chunk == &[0; 64])
}
