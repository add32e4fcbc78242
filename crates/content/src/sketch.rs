//! Features by which similar blocks meet although nothing lies at the same place: for content that is shifted.
//!
//! A rolling hash over the bytes (gear: shift left, add a value for the byte) is sampled where its high bits are zero, so that the same samples
//! are taken wherever the content lies. Each feature is the largest of the samples after a transform of its own; two blocks that share most
//! content share most features. Single features, not groups of them: groups are too strict at 4 KiB. (The sampling is that of Odess, Zou et al. 2021.)

use crate::Block;

/// Features of a block.
pub const FEATURES: usize = 8;
/// One position in so many is sampled, on average.
const SAMPLE_BITS: u32 = 5;

/// A value for each byte: the finaliser of SplitMix64 over the byte's number.
const GEAR: [u64; 256] = {
    let mut gear = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        gear[byte] = mix(byte as u64 + 1);
        byte += 1;
    }
    gear
};

const fn mix(value: u64) -> u64 {
    let value = value.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// The features of a block: keys, each with its number mixed in. `None` if nothing was sampled.
pub fn of(block: &Block) -> Option<[u64; FEATURES]> {
    let mut features = [0_u32; FEATURES];
    let mut hash = 0_u64;
    let mut sampled = false;
    for byte in block {
        hash = (hash << 1).wrapping_add(GEAR[usize::from(*byte)]);
        if hash >> (64 - SAMPLE_BITS) == 0 {
            sampled = true;
            let value = (hash >> 24) as u32;
            for (number, feature) in features.iter_mut().enumerate() {
                *feature = (*feature).max(value.wrapping_mul(MULTIPLIERS[number]).wrapping_add(ADDENDS[number]));
            }
        }
    }
    sampled.then(|| core::array::from_fn(|number| mix(u64::from(features[number]) << 8 | number as u64)))
}

const MULTIPLIERS: [u32; FEATURES] = {
    let mut values = [0; FEATURES];
    let mut number = 0;
    while number < FEATURES {
        values[number] = mix(1000 + number as u64) as u32 | 1;
        number += 1;
    }
    values
};
const ADDENDS: [u32; FEATURES] = {
    let mut values = [0; FEATURES];
    let mut number = 0;
    while number < FEATURES {
        values[number] = mix(2000 + number as u64) as u32;
        number += 1;
    }
    values
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BLOCK_BYTES;

    #[test]
    fn a_shifted_copy_shares_features_and_other_content_does_not() {
        let mut state = 1_u64;
        let text: alloc::vec::Vec<u8> = (0..3 * BLOCK_BYTES)
            .map(|_| {
                state = mix(state);
                b'a' + (state % 26) as u8
            })
            .collect();
        let block = |at: usize| -> Block { text[at..at + BLOCK_BYTES].try_into().expect("a block") };
        let shared = |a: &Block, b: &Block| {
            let (a, b) = (of(a).expect("samples"), of(b).expect("samples"));
            a.iter().zip(&b).filter(|(a, b)| a == b).count()
        };
        assert!(shared(&block(0), &block(300)) >= 5);
        assert_eq!(shared(&block(0), &block(2 * BLOCK_BYTES)), 0);
    }
}
