//! LZ4, alone and with another block as what came before.

use crate::{Block, Malformed};
use alloc::vec::Vec;
use lz4_flex::block;

/// Appends the block as LZ4. False, with `out` as it was, if that has more than `bytes_max` bytes.
pub fn encode(content: &Block, bytes_max: usize, out: &mut Vec<u8>) -> bool {
    limited(bytes_max, out, |room| block::compress_into(content, room))
}

/// Appends the block as LZ4 that may refer to `base` as if it stood before it. False, with `out` as it was, if that has more than `bytes_max` bytes.
pub fn encode_with(base: &Block, content: &Block, bytes_max: usize, out: &mut Vec<u8>) -> bool {
    limited(bytes_max, out, |room| block::compress_into_with_dict(content, room, base))
}

fn limited(bytes_max: usize, out: &mut Vec<u8>, work: impl FnOnce(&mut [u8]) -> Result<usize, block::CompressError>) -> bool {
    let start = out.len();
    out.resize(start + block::get_maximum_output_size(crate::BLOCK_BYTES), 0);
    let length = work(&mut out[start..]).unwrap_or(usize::MAX);
    let fits = length <= bytes_max;
    out.truncate(if fits { start + length } else { start });
    fits
}

/// What [`encode`] was given.
///
/// # Errors
/// Bytes that are no LZ4, or not of exactly one block.
pub fn decode(bytes: &[u8], into: &mut Block) -> Result<(), Malformed> {
    let length = block::decompress_into(bytes, into).map_err(|_| Malformed)?;
    if length == into.len() { Ok(()) } else { Err(Malformed) }
}

/// What [`encode_with`] was given.
///
/// # Errors
/// As [`decode`].
pub fn decode_with(base: &Block, bytes: &[u8], into: &mut Block) -> Result<(), Malformed> {
    let length = block::decompress_into_with_dict(bytes, into, base).map_err(|_| Malformed)?;
    if length == into.len() { Ok(()) } else { Err(Malformed) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BLOCK_BYTES;

    #[test]
    fn content_survives_and_the_limit_holds() {
        let text: Block = core::array::from_fn(|at| b"a line of a log with a number: "[at % 31].wrapping_add((at / 700) as u8));
        let mut bytes = Vec::new();
        assert!(!encode(&text, 10, &mut bytes) && bytes.is_empty());
        assert!(encode(&text, 2000, &mut bytes));
        let mut back = [0; BLOCK_BYTES];
        decode(&bytes, &mut back).expect("an encoding");
        assert!(back == text);
        let mut near = text;
        near.rotate_left(100);
        bytes.clear();
        assert!(encode_with(&text, &near, 200, &mut bytes), "a shifted copy is small");
        decode_with(&text, &bytes, &mut back).expect("an encoding");
        assert!(back == near);
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
        for _ in 0..50_000 {
            let length = next() as usize % 80;
            let bytes: Vec<u8> = (0..length).map(|_| next() as u8).collect();
            let _ = decode(&bytes, &mut [0; BLOCK_BYTES]);
            let _ = decode_with(&[1; BLOCK_BYTES], &bytes, &mut [0; BLOCK_BYTES]);
        }
    }
}
