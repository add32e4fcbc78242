//! The difference of two blocks of the same address: runs of bytes that changed, at the places where they are.
//!
//! A database that rewrites a page changes its checksum, its sequence number and a few rows: 75 bytes in the middle of 4,096 that stay. The
//! form is a row of runs: how many bytes stay, how many follow, the new bytes; the counts in one byte below 128, else two (seven low bits and the
//! top bit set, then the rest).

use crate::{BLOCK_BYTES, Block, Malformed};
use alloc::vec::Vec;

/// Equal bytes between two runs that are cheaper to repeat than to skip: a skip costs two counts.
const GAP_MIN: usize = 3;

/// Appends the difference from `base` to `block`. False, with `out` as it was, if it would have more than `bytes_max` bytes.
pub fn encode(base: &Block, block: &Block, bytes_max: usize, out: &mut Vec<u8>) -> bool {
    let start = out.len();
    let mut at = 0;
    let mut written = 0;
    while let Some(begin) = next_difference(base, block, at) {
        let end = end_of_run(base, block, begin);
        put_count(out, begin - written);
        put_count(out, end - begin);
        if out.len() - start + (end - begin) > bytes_max {
            out.truncate(start);
            return false;
        }
        out.extend_from_slice(&block[begin..end]);
        (at, written) = (end, end);
    }
    true
}

/// Turns `block`, which holds the base, into what was encoded.
///
/// # Errors
/// Bytes that no encoder wrote. `block` is of no use then.
pub fn apply(mut bytes: &[u8], block: &mut Block) -> Result<(), Malformed> {
    let mut at = 0;
    while !bytes.is_empty() {
        at += take_count(&mut bytes)?;
        let length = take_count(&mut bytes)?;
        let (new, rest) = bytes.split_at_checked(length).ok_or(Malformed)?;
        block.get_mut(at..at + length).ok_or(Malformed)?.copy_from_slice(new);
        at += length;
        bytes = rest;
    }
    Ok(())
}

/// The first byte from `at` on that differs.
fn next_difference(base: &Block, block: &Block, mut at: usize) -> Option<usize> {
    while at < BLOCK_BYTES {
        if at.is_multiple_of(32) && base[at..at + 32] == block[at..at + 32] {
            at += 32;
        } else if base[at] != block[at] {
            return Some(at);
        } else {
            at += 1;
        }
    }
    None
}

/// Where a run that begins at `at` ends: before at least [`GAP_MIN`] equal bytes, or at the end of the block.
fn end_of_run(base: &Block, block: &Block, mut at: usize) -> usize {
    let mut end = at + 1;
    while at < BLOCK_BYTES && at < end + GAP_MIN {
        if base[at] != block[at] {
            end = at + 1;
        }
        at += 1;
    }
    end
}

fn put_count(out: &mut Vec<u8>, count: usize) {
    if count < 128 {
        out.push(count as u8);
    } else {
        out.extend([count as u8 | 0x80, (count >> 7) as u8]);
    }
}

fn take_count(bytes: &mut &[u8]) -> Result<usize, Malformed> {
    let (first, rest) = bytes.split_first().ok_or(Malformed)?;
    *bytes = rest;
    if *first < 128 {
        return Ok(usize::from(*first));
    }
    let (second, rest) = bytes.split_first().ok_or(Malformed)?;
    *bytes = rest;
    Ok(usize::from(first & 0x7f) | usize::from(*second) << 7)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(seed: u64) -> impl FnMut() -> u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        }
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        for seed in 0..2000 {
            let mut next = random(seed);
            let base: Block = core::array::from_fn(|_| next() as u8);
            let mut block = base;
            for _ in 0..next() % 40 {
                let at = next() as usize % BLOCK_BYTES;
                let end = (at + next() as usize % 200).min(BLOCK_BYTES);
                block[at..end].iter_mut().for_each(|byte| *byte = next() as u8);
            }
            let mut bytes = alloc::vec![1, 2, 3];
            let fits = encode(&base, &block, 2000, &mut bytes);
            assert_eq!(&bytes[..3], [1, 2, 3]);
            if !fits {
                assert_eq!(bytes.len(), 3);
                assert!(encode(&base, &block, 2 * BLOCK_BYTES, &mut bytes));
            }
            assert!(!fits || bytes.len() <= 2003);
            let mut decoded = base;
            apply(&bytes[3..], &mut decoded).expect("an encoding");
            assert!(decoded == block, "seed {seed}");
        }
    }

    #[test]
    fn equal_blocks_differ_by_nothing_and_the_ends_count() {
        let base = [7; BLOCK_BYTES];
        let mut bytes = Vec::new();
        assert!(encode(&base, &base, 0, &mut bytes) && bytes.is_empty());
        let mut block = base;
        (block[0], block[BLOCK_BYTES - 1]) = (1, 2);
        assert!(encode(&base, &block, 100, &mut bytes));
        assert_eq!(bytes.len(), 2 + 1 + 3 + 1);
    }

    #[test]
    fn hostile_bytes_are_an_error_or_a_block() {
        let mut next = random(5);
        for _ in 0..100_000 {
            let length = next() as usize % 60;
            let bytes: Vec<u8> = (0..length).map(|_| next() as u8).collect();
            let _ = apply(&bytes, &mut [0; BLOCK_BYTES]);
        }
        assert_eq!(apply(&[0xff, 0xff, 1, 9], &mut [0; BLOCK_BYTES]), Err(Malformed));
        assert_eq!(apply(&[0], &mut [0; BLOCK_BYTES]), Err(Malformed));
    }
}
