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
        // One frame, of which the beginning is ours: nothing behind it may claim a content or a window of its own.
        if zstd_safe::find_frame_compressed_size(frame) != Ok(frame.len()) {
            return Err(Malformed);
        }
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
    fn what_follows_the_frame_is_refused_whatever_it_claims() {
        let (mut codec, mut sound) = (Codec::default(), Vec::new());
        assert!(codec.encode(None, &text(), 4000, &mut sound));
        codec.decode(None, &sound, &mut [0; BLOCK_BYTES]).expect("an encoding");
        let memory_bytes = codec.decompressor.as_ref().map(|context| context.sizeof());
        // Magic number, descriptor, window or content size, then one last block that is raw and empty; and a frame to be skipped.
        let window_of_a_terabyte: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xf0, 0x01, 0x00, 0x00];
        let content_of_a_terabyte: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0, 0, 0, 0, 0, 1, 0, 0, 0x01, 0x00, 0x00];
        let empty: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd, 0x20, 0x00, 0x01, 0x00, 0x00];
        let skipped: &[u8] = &[0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0];
        for more in [window_of_a_terabyte, content_of_a_terabyte, empty, skipped, &[0]] {
            let bytes = [&sound[..], more].concat();
            for base in [None, Some(&text())] {
                assert_eq!(codec.decode(base, &bytes, &mut [0; BLOCK_BYTES]), Err(Malformed), "{more:?}");
                assert_eq!(codec.decode(base, more, &mut [0; BLOCK_BYTES]), Err(Malformed), "{more:?}");
            }
        }
        assert_eq!(codec.decompressor.as_ref().map(|context| context.sizeof()), memory_bytes);
        let mut bytes = Vec::new();
        (0..3000).for_each(|_| bytes.extend([0, 0, 0]));
        assert!(codec.decode(None, &bytes, &mut [0; BLOCK_BYTES]).is_err(), "more than a block ever takes");
        // A block of repeated bytes that is larger than the content.
        assert_eq!(codec.decode(None, &[0x03, 0xff, 0x0f, 7], &mut [0; BLOCK_BYTES]), Err(Malformed));
        assert!(codec.decode(None, &[0x03, 0x80, 0x00, 7], &mut [0; BLOCK_BYTES]).is_ok(), "4096 of them are a block");
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
        let memory_bytes = codec.decompressor.as_ref().map_or(0, |context| context.sizeof());
        let fresh = zstd_safe::DCtx::create().sizeof();
        assert_eq!(memory_bytes, fresh, "frames of a block need no window beside it");
    }
}
