//! zstd, alone and with another block as what came before: fewer bytes than LZ4 for some microseconds more.
//!
//! With the feature `zstd`, by the C library; without it nothing is made dense, and dense bytes are [`Malformed`]. All frames of a whole block
//! begin alike (magic number, descriptor, content size); these seven bytes are not stored.

use crate::{Block, Malformed};
use alloc::vec::Vec;

/// zstd's level. Higher ones cost twice the time for 3 % less.
#[cfg(feature = "zstd")]
const LEVEL: i32 = 1;
/// How the frame of a block begins (RFC 8878, 3.1.1): magic number; single segment, content size in two bytes; 4096 less 256.
#[cfg(feature = "zstd")]
const FRAME_START: [u8; 7] = [0x28, 0xb5, 0x2f, 0xfd, 0x60, 0x00, 0x0f];
/// A base that begins like this would be taken for a dictionary of another kind.
#[cfg(feature = "zstd")]
const DICTIONARY_MAGIC: [u8; 4] = [0x37, 0xa4, 0x30, 0xec];

/// Working memory, used again for each block.
#[derive(Default)]
pub struct Codec {
    #[cfg(feature = "zstd")]
    compressor: Option<zstd_safe::CCtx<'static>>,
    #[cfg(feature = "zstd")]
    decompressor: Option<zstd_safe::DCtx<'static>>,
    #[cfg(feature = "zstd")]
    frame: Vec<u8>,
}

/// Whether dense forms can be made and read.
pub const AVAILABLE: bool = cfg!(feature = "zstd");

#[cfg(feature = "zstd")]
impl Codec {
    /// Appends the block; `base`, if any, may be referred to as if it stood before it. False, with `out` as it was, if that has more than
    /// `bytes_max` bytes.
    pub fn encode(&mut self, base: Option<&Block>, block: &Block, bytes_max: usize, out: &mut Vec<u8>) -> bool {
        if base.is_some_and(|base| base.starts_with(&DICTIONARY_MAGIC)) {
            return false;
        }
        let Codec { compressor, frame, .. } = self;
        let Some(context) = made(compressor, zstd_safe::CCtx::try_create) else { return false };
        frame.resize(zstd_safe::compress_bound(block.len()), 0);
        let result = match base {
            None => context.compress(&mut frame[..], block, LEVEL),
            Some(base) => context.compress_using_dict(&mut frame[..], block, base, LEVEL),
        };
        let bytes = result.ok().and_then(|length| frame[..length].strip_prefix(&FRAME_START));
        let Some(bytes) = bytes.filter(|bytes| bytes.len() <= bytes_max) else { return false };
        out.extend_from_slice(bytes);
        true
    }

    /// What [`Codec::encode`] was given. Takes no more memory than a block, whatever the bytes.
    ///
    /// # Errors
    /// Bytes that are no frame of exactly one block.
    pub fn decode(&mut self, base: Option<&Block>, bytes: &[u8], into: &mut Block) -> Result<(), Malformed> {
        let Codec { decompressor, frame, .. } = self;
        let context = made(decompressor, zstd_safe::DCtx::try_create).ok_or(Malformed)?;
        if bytes.len() > zstd_safe::compress_bound(into.len()) || base.is_some_and(|base| base.starts_with(&DICTIONARY_MAGIC)) {
            return Err(Malformed);
        }
        frame.clear();
        frame.extend_from_slice(&FRAME_START);
        frame.extend_from_slice(bytes);
        let result = match base {
            None => context.decompress(&mut into[..], frame),
            Some(base) => context.decompress_using_dict(&mut into[..], frame, base),
        };
        if result == Ok(into.len()) { Ok(()) } else { Err(Malformed) }
    }
}

#[cfg(feature = "zstd")]
fn made<T>(place: &mut Option<T>, make: impl FnOnce() -> Option<T>) -> Option<&mut T> {
    if place.is_none() {
        *place = make();
    }
    place.as_mut()
}

#[cfg(not(feature = "zstd"))]
impl Codec {
    /// Cannot.
    pub fn encode(&mut self, _base: Option<&Block>, _block: &Block, _bytes_max: usize, _out: &mut Vec<u8>) -> bool {
        false
    }

    /// Cannot.
    ///
    /// # Errors
    /// Always.
    pub fn decode(&mut self, _base: Option<&Block>, _bytes: &[u8], _into: &mut Block) -> Result<(), Malformed> {
        Err(Malformed)
    }
}

#[cfg(all(test, feature = "zstd"))]
mod tests {
    use super::*;
    use crate::BLOCK_BYTES;

    fn text() -> Block {
        core::array::from_fn(|at| b"a line of a log with a number: "[at % 31].wrapping_add((at / 700) as u8))
    }

    #[test]
    fn content_survives_and_the_limit_holds() {
        let (mut codec, mut bytes, mut back) = (Codec::default(), Vec::new(), [0; BLOCK_BYTES]);
        assert!(!codec.encode(None, &text(), 10, &mut bytes) && bytes.is_empty());
        assert!(codec.encode(None, &text(), 2000, &mut bytes));
        codec.decode(None, &bytes, &mut back).expect("an encoding");
        assert!(back == text());
        let mut near = text();
        near.rotate_left(100);
        bytes.clear();
        assert!(codec.encode(Some(&text()), &near, 100, &mut bytes), "a shifted copy is small");
        codec.decode(Some(&text()), &bytes, &mut back).expect("an encoding");
        assert!(back == near);
        assert!(codec.decode(None, &bytes, &mut back).is_err(), "without its base");
    }

    #[test]
    fn a_base_that_looks_like_a_dictionary_is_left_alone() {
        let (mut codec, mut bytes) = (Codec::default(), Vec::new());
        let mut base = text();
        base[..4].copy_from_slice(&DICTIONARY_MAGIC);
        assert!(!codec.encode(Some(&base), &text(), BLOCK_BYTES, &mut bytes) && bytes.is_empty());
        assert!(codec.decode(Some(&base), &[], &mut [0; BLOCK_BYTES]).is_err());
    }

    #[test]
    fn hostile_bytes_are_an_error_or_a_block() {
        let mut state = 88_172_645_463_325_252_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let mut codec = Codec::default();
        let mut sound = Vec::new();
        assert!(codec.encode(None, &text(), 4000, &mut sound));
        for _ in 0..50_000 {
            let mut bytes = sound.clone();
            for _ in 0..1 + next() % 3 {
                let at = next() as usize % bytes.len();
                bytes[at] ^= 1 << (next() % 8);
            }
            bytes.truncate(next() as usize % (bytes.len() + 1));
            let _ = codec.decode(None, &bytes, &mut [0; BLOCK_BYTES]);
            let _ = codec.decode(Some(&[1; BLOCK_BYTES]), &bytes, &mut [0; BLOCK_BYTES]);
        }
    }
}
