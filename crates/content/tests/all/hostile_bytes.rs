//! Promise: whatever bytes are given as an encoding, each decoder gives an error or a block, the same one each time, and never panics. It has
//! no more memory than that block by its signature; zstd's own is measured in `dense.rs`. Every loop takes bytes or makes them, so time is
//! bounded by both lengths. The seeds are fixed.

use content::encode::{Form, decode};
use content::{BLOCK_BYTES, Block, Malformed, dense, diff, lz};

/// Changed encodings of each form.
const CASES: u64 = 200_000;

/// Random numbers from a seed (xorshift).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() >> 8) as usize % bound
    }

    /// A block that compresses, some words again and again.
    fn text(&mut self) -> Block {
        let words: [u64; 5] = core::array::from_fn(|_| self.next());
        let mut block = [0; BLOCK_BYTES];
        for bytes in block.chunks_exact_mut(8) {
            bytes.copy_from_slice(&words[self.below(5)].to_le_bytes());
        }
        block
    }

    /// The block with some bytes changed.
    fn near(&mut self, block: &Block) -> Block {
        let mut near = *block;
        for _ in 0..1 + self.below(8) {
            let at = self.below(BLOCK_BYTES);
            let end = (at + 1 + self.below(40)).min(BLOCK_BYTES);
            near[at..end].iter_mut().for_each(|byte| *byte = self.next() as u8);
        }
        near
    }

    /// What an attacker or a decaying SSD might make of sound bytes.
    fn changed(&mut self, sound: &[u8], other: &[u8]) -> Vec<u8> {
        let mut bytes = sound.to_vec();
        match self.below(8) {
            0 => bytes.truncate(self.below(sound.len() + 1)),
            1 => bytes.extend((0..1 + self.below(40)).map(|_| self.next() as u8)),
            2 => bytes = (0..self.below(60)).map(|_| self.next() as u8).collect(),
            // The beginning of one and the end of another.
            3 => {
                bytes.truncate(self.below(sound.len() + 1));
                bytes.extend_from_slice(&other[self.below(other.len() + 1)..]);
            }
            4 => drop(bytes.drain(..self.below(sound.len().min(8) + 1))),
            _ => {}
        }
        if !bytes.is_empty() {
            for _ in 0..1 + self.below(4) {
                // Lengths and offsets stand at the beginning of what they are about.
                let at = if self.below(2) == 0 { self.below(bytes.len().min(16)) } else { self.below(bytes.len()) };
                bytes[at] = match self.below(4) {
                    0 => 0xff,
                    1 => 0,
                    2 => self.next() as u8,
                    _ => bytes[at] ^ 1 << self.below(8),
                };
            }
        }
        bytes
    }
}

struct Sound {
    base: Block,
    block: Block,
    bytes: Vec<u8>,
}

fn attack(form: Form, seed: u64, encode: impl Fn(&mut dense::Codec, &Block, &Block, &mut Vec<u8>) -> bool) {
    let (mut random, mut codec) = (Random(seed), dense::Codec::default());
    let sound: Vec<Sound> = (0..64)
        .map(|_| {
            let base = random.text();
            let (block, mut bytes) = (random.near(&base), Vec::new());
            assert!(encode(&mut codec, &base, &block, &mut bytes), "{form:?} suits such blocks");
            Sound { base, block, bytes }
        })
        .collect();
    let mut into = [0; BLOCK_BYTES];
    for Sound { base, block, bytes } in &sound {
        decode(form, bytes, Some(base), &mut codec, &mut into).expect("an encoding");
        assert!(into == *block);
    }
    let (mut blocks, mut errors) = (0, 0);
    for case in 0..CASES {
        let (from, other) = (&sound[random.below(sound.len())], &sound[random.below(sound.len())]);
        let bytes = random.changed(&from.bytes, &other.bytes);
        // `into` holds what the case before left there.
        match decode(form, &bytes, Some(&from.base), &mut codec, &mut into) {
            Err(Malformed) => errors += 1,
            Ok(()) => {
                blocks += 1;
                if case % 8 == 0 {
                    let mut again = [case as u8; BLOCK_BYTES];
                    decode(form, &bytes, Some(&from.base), &mut codec, &mut again).expect("as before");
                    assert!(again == into, "{form:?}, case {case}: what was in memory before shows");
                }
            }
        }
    }
    assert!(blocks > CASES / 1000 && errors > CASES / 20, "{form:?}: {blocks} blocks, {errors} errors");
    // What was refused leaves nothing behind.
    for Sound { base, block, bytes } in &sound {
        decode(form, bytes, Some(base), &mut codec, &mut into).expect("an encoding");
        assert!(into == *block);
    }
}

#[test]
fn differences() {
    attack(Form::Diff(0), 1, |_, base, block, bytes| diff::encode(base, block, BLOCK_BYTES, bytes));
}

#[test]
fn lz4() {
    attack(Form::Lz4, 2, |_, _, block, bytes| lz::encode(block, BLOCK_BYTES, bytes));
}

#[test]
fn lz4_with_a_base() {
    attack(Form::LzDelta(0), 3, |_, base, block, bytes| lz::encode_with(base, block, BLOCK_BYTES, bytes));
}

#[cfg(feature = "zstd")]
#[test]
fn zstd() {
    attack(Form::Zstd, 4, |codec, _, block, bytes| codec.encode(None, block, BLOCK_BYTES, bytes));
}

#[cfg(feature = "zstd")]
#[test]
fn zstd_with_a_base() {
    attack(Form::ZstdDelta(0), 5, |codec, base, block, bytes| codec.encode(Some(base), block, BLOCK_BYTES, bytes));
}

#[test]
fn forms_without_bytes_of_their_own() {
    let (mut random, mut codec) = (Random(6), dense::Codec::default());
    let base = random.text();
    for length in [0, 1, 4095, 4097, 8192] {
        let bytes: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
        let mut into = base;
        assert_eq!(decode(Form::Raw, &bytes, None, &mut codec, &mut into), Err(Malformed), "{length} bytes are no block");
        assert_eq!(decode(Form::Zero, &bytes, None, &mut codec, &mut into), Ok(()));
        assert_eq!(decode(Form::Duplicate(0), &bytes, Some(&base), &mut codec, &mut into), Ok(()));
        assert!(into == base);
    }
    for form in [Form::Unchanged, Form::Duplicate(0), Form::Diff(0), Form::LzDelta(0), Form::ZstdDelta(0)] {
        assert_eq!(decode(form, &[], None, &mut codec, &mut [0; BLOCK_BYTES]), Err(Malformed), "{form:?} without its base");
    }
}
