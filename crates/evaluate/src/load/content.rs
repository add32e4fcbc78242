//! What blocks hold, made from seed, place and version whenever it is asked for: so that gigabytes can be written, read and compared without being
//! kept anywhere.
//!
//! Each block of 4 KiB begins with a stamp, which says whose it is:
//!
//! | bytes | what |
//! |---|---|
//! | 0..8 | its place on the device, mixed with the seed |
//! | 8..16 | its version, likewise: 0 from the fill, then 1, 2 … in the order in which a load wrote |
//!
//! Requests shorter than a block carry the beginning of one.

use super::Content;
use crate::random::Random;

/// Unit of content.
pub const BLOCK_BYTES: u64 = 4096;
/// Words of a block of compressible content, and their length: few enough to leave room for matches, long enough for a match to pay.
const WORDS: u64 = 12;
const WORD_BYTES: usize = 24;
const STAMP_BYTES: usize = 16;

/// What the blocks of one load hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Contents {
    content: Content,
    seed: u64,
}

impl Contents {
    /// Those of this seed.
    pub fn new(content: Content, seed: u64) -> Contents {
        Contents { content, seed }
    }

    /// Writes what lies at `offset_bytes` (a multiple of 512) into the buffer, all blocks in this version.
    pub fn write(&self, offset_bytes: u64, version: u64, into: &mut [u8]) {
        for (offset_bytes, block) in (offset_bytes..).step_by(BLOCK_BYTES as usize).zip(into.chunks_mut(BLOCK_BYTES as usize)) {
            self.write_block(offset_bytes, version, block);
        }
    }

    fn write_block(&self, offset_bytes: u64, version: u64, block: &mut [u8]) {
        // Each (seed, place, version) begins a sequence of its own.
        let mut random = Random::new(mix(self.seed ^ mix(offset_bytes)) ^ mix(version ^ 0x7665_7273));
        match self.content {
            Content::Incompressible => random_bytes(&mut random, block),
            Content::Compressible { percent } => words(&mut random, percent, block),
            Content::Similar { family, different_bytes } => {
                let family = offset_bytes / BLOCK_BYTES / u64::from(family.max(1));
                random_bytes(&mut Random::new(mix(self.seed ^ mix(family ^ 0x6661_6d69))), block);
                for _ in 0..different_bytes {
                    let at = random.below(block.len() as u64) as usize;
                    block[at] = random.bits() as u8;
                }
            }
        }
        let stamp = self.stamp(offset_bytes, version);
        let length = block.len().min(STAMP_BYTES);
        block[..length].copy_from_slice(&stamp[..length]);
    }

    fn stamp(&self, offset_bytes: u64, version: u64) -> [u8; STAMP_BYTES] {
        let mut stamp = [0; STAMP_BYTES];
        stamp[..8].copy_from_slice(&mix(self.seed ^ offset_bytes).to_le_bytes());
        stamp[8..].copy_from_slice(&mix(self.seed.rotate_left(32) ^ version).to_le_bytes());
        stamp
    }

    /// Whether the bytes are those of the block at `offset_bytes` in this version, all of them; if not, what they are: a clause.
    ///
    /// # Errors
    /// The clause.
    pub fn compare(&self, offset_bytes: u64, version: u64, bytes: &[u8]) -> Result<(), String> {
        let mut expected = vec![0; bytes.len()];
        self.write(offset_bytes, version, &mut expected);
        let Some(at) = expected.iter().zip(bytes).position(|(expected, found)| expected != found) else { return Ok(()) };
        let place = offset_bytes + at as u64;
        if bytes.iter().all(|byte| *byte == 0) {
            return Err(format!("there are only zeroes from byte {offset_bytes} on"));
        }
        let begin = at - at % BLOCK_BYTES as usize;
        let block = offset_bytes + begin as u64;
        let stamp = bytes.get(begin..begin + STAMP_BYTES).unwrap_or(&[]);
        let older = (0..version).rev().take(1000).find(|old| stamp == self.stamp(block, *old));
        Err(match older {
            Some(old) => format!("the block at byte {block} has version {old}, not {version}"),
            None => format!("byte {place} is not what was written there (version {version} of its block)"),
        })
    }
}

/// The finalizer of splitmix64: every bit of the result depends on all.
fn mix(bits: u64) -> u64 {
    Random::new(bits).bits()
}

fn random_bytes(random: &mut Random, into: &mut [u8]) {
    for chunk in into.chunks_mut(8) {
        chunk.copy_from_slice(&random.bits().to_le_bytes()[..chunk.len()]);
    }
}

/// Words of letters and random pieces, mixed piece by piece. Words of one block are not those of another: blocks compress each for itself.
fn words(random: &mut Random, percent: u32, into: &mut [u8]) {
    let mut vocabulary = [[0u8; WORD_BYTES]; WORDS as usize];
    for word in &mut vocabulary {
        random_bytes(random, word);
        word.iter_mut().for_each(|byte| *byte = b'a' + *byte % 26);
    }
    // Of a hundred pieces so many are words. lz4 saves about 85 % of each word, but nothing of the first of its kind: 12 of 170 pieces. Measured; see the test.
    let odds = if percent == 0 { 0 } else { u64::from(percent.min(75)) * 118 / 100 + 9 };
    for piece in into.chunks_mut(WORD_BYTES) {
        if random.below(100) < odds {
            let word = &vocabulary[random.below(WORDS) as usize];
            piece.copy_from_slice(&word[..piece.len()]);
        } else {
            random_bytes(random, piece);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(content: Content, count: u64) -> Vec<Vec<u8>> {
        let contents = Contents::new(content, 5);
        let block = |index| {
            let mut block = vec![0; 4096];
            contents.write(index * BLOCK_BYTES, 0, &mut block);
            block
        };
        (0..count).map(block).collect()
    }

    fn saved_percent(block: &[u8]) -> f64 {
        let mut room = vec![0; lz4_flex::block::get_maximum_output_size(block.len())];
        let bytes = lz4_flex::block::compress_into(block, &mut room).expect("there is room");
        100.0 - bytes as f64 * 100.0 / block.len() as f64
    }

    #[test]
    fn every_block_compresses_about_as_it_was_asked_for_and_has_no_runs() {
        for percent in [0, 10, 25, 50, 66, 75] {
            let content = if percent == 0 { Content::Incompressible } else { Content::Compressible { percent } };
            let blocks = blocks(content, 64);
            let saved: Vec<f64> = blocks.iter().map(|block| saved_percent(block)).collect();
            let mean = saved.iter().sum::<f64>() / 64.0;
            assert!((mean - f64::from(percent)).abs() < 4.0, "{percent} %: {mean:.1}");
            assert!(saved.iter().all(|saved| (saved - mean).abs() < 15.0), "{percent} %: all blocks alike: {saved:?}");
            assert!(blocks.iter().all(|block| !block.windows(8).any(|run| run.iter().all(|byte| *byte == run[0]))), "no runs");
            // Neither half has all the order.
            let halves = |half: std::ops::Range<usize>| blocks.iter().map(|block| saved_percent(&block[half.clone()])).sum::<f64>() / 64.0;
            assert!((halves(0..2048) - halves(2048..4096)).abs() < 6.0, "{percent} %");
            // Two blocks together compress no better than each for itself.
            let two = saved_percent(&[&blocks[0][..], &blocks[1][..]].concat());
            assert!(two < f64::max(saved[0], saved[1]) + 3.0, "{percent} %: {two} together");
        }
    }

    #[test]
    fn similar_blocks_differ_in_few_bytes_and_families_in_all() {
        let content = Content::Similar { family: 4, different_bytes: 40 };
        let different = |a: &[u8], b: &[u8]| a.iter().zip(b).filter(|(a, b)| a != b).count();
        let found = blocks(content, 8);
        assert!((20..=100).contains(&different(&found[0], &found[3])), "{}", different(&found[0], &found[3]));
        assert!(different(&found[3], &found[4]) > 3900);
        let contents = Contents::new(content, 5);
        let mut new = vec![0; 4096];
        contents.write(0, 1, &mut new);
        assert!((20..=100).contains(&different(&found[0], &new)));
    }

    #[test]
    fn a_block_in_the_wrong_place_or_version_is_found_out() {
        for content in [Content::Incompressible, Content::Compressible { percent: 50 }, Content::Similar { family: 8, different_bytes: 3 }]
        {
            let contents = Contents::new(content, 9);
            let mut bytes = vec![0; 8192];
            contents.write(8192, 3, &mut bytes);
            assert_eq!(contents.compare(8192, 3, &bytes), Ok(()));
            assert_eq!(contents.compare(12288, 3, &bytes[4096..]), Ok(()));
            let told = |result: Result<(), String>| result.expect_err("it differs");
            assert!(told(contents.compare(8192, 4, &bytes)).contains("has version 3, not 4"));
            assert!(told(contents.compare(0, 3, &bytes)).contains("byte 0 is not what was written"));
            assert!(told(Contents::new(content, 10).compare(8192, 3, &bytes)).contains("not what was written"));
            bytes[5000] ^= 1;
            assert!(told(contents.compare(8192, 3, &bytes)).contains("byte 13192 is not"));
            assert!(told(contents.compare(8192, 3, &vec![0; 8192])).contains("only zeroes"));
        }
        let mut sector = vec![0; 512];
        let contents = Contents::new(Content::Incompressible, 9);
        contents.write(512, 1, &mut sector);
        assert_eq!(contents.compare(512, 1, &sector), Ok(()));
    }
}
