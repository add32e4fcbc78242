//! What a sector holds: every write fills every sector with a value that names its origin, so that what was lost, torn, resurrected or
//! misdirected can be told apart.
//!
//! How much sectors have in common is the write's *texture*: nothing at all, or little that is not zero, or most of what was there before,
//! or whole sectors and blocks that are equal at several addresses and times. A [`Form`] stands in the first word of each sector, so that
//! every byte of it can be checked without knowing which write it was.

/// Bytes in a sector.
pub const SECTOR: usize = types::SECTOR_BYTES as usize;
/// Patterns there are: few, so that equal sectors meet.
pub const PATTERNS: u8 = 16;

const MAGIC: u64 = 0x4865_6172_7468_0000;
/// The first word: the magic, then the form, then the volume or the pattern. Volumes of a simulated pool are few.
const FORM_SHIFT: u32 = 12;
const BELOW_FORM: u64 = (1 << FORM_SHIFT) - 1;
/// Where a sector of form [`Form::Rows`] has its small field, and where forms but [`Form::Unique`] have their checksum, in bytes.
const FIELD: usize = 256;
const SUM: usize = SECTOR - 8;

/// What a write fills its sectors with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Texture {
    /// Nothing in common with any other sector, and nothing to compress.
    Unique,
    /// Zeroes but for a head and a checksum: small when compressed, and a few bytes from the version before.
    Sparse,
    /// Words that depend on the place only, but for a head, a small field and a checksum.
    Rows,
    /// Sectors 1 to 7 of each block are those of this pattern, sector 0 is sparse: a near copy of other blocks.
    Copy(u8),
    /// All sectors are those of this pattern: an exact copy of other blocks.
    Pattern(u8),
}

/// How a sector that names its write is laid out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// See [`Texture::Unique`].
    Unique,
    /// See [`Texture::Sparse`].
    Sparse,
    /// See [`Texture::Rows`].
    Rows,
}

/// The form in the first word of a sector of a pattern, behind those of [`Form`].
const PATTERN_FORM: u64 = 3;

/// What the bytes of a sector say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content {
    /// All zero.
    Zero,
    /// Written whole by this write for this place.
    Data {
        /// Volume it was written to.
        volume: u16,
        /// Sector it was written to.
        sector: u64,
        /// Number of the write.
        write: u32,
        /// How it is laid out.
        form: Form,
    },
    /// Of a pattern: any write of that pattern makes it, anywhere.
    Pattern {
        /// Which pattern.
        pattern: u8,
        /// Which sector of a block.
        index: u8,
    },
    /// No write ever made this: mixed or damaged.
    Garbage,
}

/// What a write of this texture makes of a sector.
pub fn of(texture: Texture, volume: u16, sector: u64, write: u32) -> Content {
    let index = (sector % types::BLOCK_SECTORS) as u8;
    let data = |form| Content::Data { volume, sector, write, form };
    match texture {
        Texture::Unique => data(Form::Unique),
        Texture::Sparse => data(Form::Sparse),
        Texture::Rows => data(Form::Rows),
        Texture::Copy(_) if index == 0 => data(Form::Sparse),
        Texture::Copy(pattern) | Texture::Pattern(pattern) => Content::Pattern { pattern, index },
    }
}

/// Fills `sector_bytes` with what a write of this texture makes of a sector.
pub fn fill(texture: Texture, volume: u16, sector: u64, write: u32, sector_bytes: &mut [u8]) {
    assert_eq!(sector_bytes.len(), SECTOR);
    match of(texture, volume, sector, write) {
        Content::Data { form: Form::Unique, .. } => fill_unique(volume, sector, write, sector_bytes),
        Content::Data { form, .. } => fill_named(form, volume, sector, write, sector_bytes),
        Content::Pattern { pattern, index } => fill_pattern(pattern, index, sector_bytes),
        Content::Zero | Content::Garbage => unreachable!("no texture makes this"),
    }
}

fn mixed(volume: u16, sector: u64, write: u32) -> u64 {
    let mut z = (u64::from(write) << 32) ^ sector.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (u64::from(volume) << 17);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z ^ (z >> 27)
}

fn word(base: u64, index: u64) -> u64 {
    base.wrapping_add(index.wrapping_mul(0xA24B_AED4_963E_E407))
}

fn put(bytes: &mut [u8], at: usize, word: u64) {
    bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
}

fn fill_head(form: Form, volume: u16, sector: u64, write: u32, bytes: &mut [u8]) {
    assert!(u64::from(volume) <= BELOW_FORM, "a simulated pool has few volumes");
    put(bytes, 0, MAGIC | (form as u64) << FORM_SHIFT | u64::from(volume));
    put(bytes, 8, sector);
    put(bytes, 16, u64::from(write));
}

fn fill_unique(volume: u16, sector: u64, write: u32, bytes: &mut [u8]) {
    let base = mixed(volume, sector, write);
    for (index, bytes) in bytes.chunks_exact_mut(8).enumerate() {
        bytes.copy_from_slice(&word(base, index as u64).to_le_bytes());
    }
    fill_head(Form::Unique, volume, sector, write, bytes);
}

fn fill_named(form: Form, volume: u16, sector: u64, write: u32, bytes: &mut [u8]) {
    if form == Form::Rows {
        fill_words(mixed(volume, sector, u32::MAX), bytes);
        put(bytes, FIELD, u64::from(write) << 8);
    } else {
        bytes.fill(0);
    }
    fill_head(form, volume, sector, write, bytes);
    put(bytes, SUM, mixed(volume, sector, write) ^ form as u64);
}

/// Patterns of even number are noise, those of odd number words: the first do not compress, the others do.
fn fill_pattern(pattern: u8, index: u8, bytes: &mut [u8]) {
    let seed = mixed(u16::from(pattern), u64::from(index), u32::MAX - 1);
    if pattern.is_multiple_of(2) {
        for (at, bytes) in bytes.chunks_exact_mut(8).enumerate() {
            bytes.copy_from_slice(&word(seed, at as u64).to_le_bytes());
        }
    } else {
        fill_words(seed, bytes);
    }
    put(bytes, 0, MAGIC | PATTERN_FORM << FORM_SHIFT | u64::from(pattern) << 3 | u64::from(index));
    put(bytes, SUM, seed);
}

const WORDS: [&[u8]; 16] = [
    b"segment ",
    b"of ",
    b"the ",
    b"log, ",
    b"block ",
    b"and ",
    b"volume\n",
    b"cache ",
    b"1970-01-01 ",
    b"is ",
    b"dirty; ",
    b"clean ",
    b"at home ",
    b"00000000 ",
    b"not ",
    b"yet.\n",
];

fn fill_words(seed: u64, bytes: &mut [u8]) {
    let (mut state, mut at) = (seed, 0);
    while at < bytes.len() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let word = WORDS[(state >> 60) as usize];
        let length = word.len().min(bytes.len() - at);
        bytes[at..at + length].copy_from_slice(&word[..length]);
        at += length;
    }
}

fn word_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Reads a sector back: every byte of it is checked.
pub fn read(sector_bytes: &[u8]) -> Content {
    assert_eq!(sector_bytes.len(), SECTOR);
    let head = word_at(sector_bytes, 0);
    if head == 0 {
        return if sector_bytes.iter().all(|byte| *byte == 0) { Content::Zero } else { Content::Garbage };
    }
    if head & !0xFFFF != MAGIC {
        return Content::Garbage;
    }
    let below = head & BELOW_FORM;
    match (head & 0xFFFF) >> FORM_SHIFT {
        0 => read_named(Form::Unique, below as u16, sector_bytes),
        1 => read_named(Form::Sparse, below as u16, sector_bytes),
        2 => read_named(Form::Rows, below as u16, sector_bytes),
        PATTERN_FORM if below >> 3 < u64::from(PATTERNS) => {
            let (pattern, index) = ((below >> 3) as u8, (below & 7) as u8);
            let mut whole = [0; SECTOR];
            fill_pattern(pattern, index, &mut whole);
            if whole == sector_bytes { Content::Pattern { pattern, index } } else { Content::Garbage }
        }
        _ => Content::Garbage,
    }
}

fn read_named(form: Form, volume: u16, bytes: &[u8]) -> Content {
    let sector = word_at(bytes, 8);
    let Ok(write) = u32::try_from(word_at(bytes, 16)) else { return Content::Garbage };
    let is_whole = if form == Form::Unique {
        let base = mixed(volume, sector, write);
        let words = bytes.chunks_exact(8).enumerate().skip(3);
        words.fold(0, |wrong, (index, bytes)| wrong | (word_at(bytes, 0) ^ word(base, index as u64))) == 0
    } else {
        let mut whole = [0; SECTOR];
        fill_named(form, volume, sector, write, &mut whole);
        whole == bytes
    };
    if is_whole { Content::Data { volume, sector, write, form } } else { Content::Garbage }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXTURES: [Texture; 7] = [
        Texture::Unique,
        Texture::Sparse,
        Texture::Rows,
        Texture::Copy(4),
        Texture::Copy(5),
        Texture::Pattern(PATTERNS - 1),
        Texture::Pattern(0),
    ];

    fn filled(texture: Texture, volume: u16, sector: u64, write: u32) -> [u8; SECTOR] {
        let mut bytes = [0xEE; SECTOR];
        fill(texture, volume, sector, write, &mut bytes);
        bytes
    }

    #[test]
    fn content_names_its_origin_and_damage_is_seen() {
        assert_eq!(read(&[0; SECTOR]), Content::Zero);
        for texture in TEXTURES {
            for sector in [72, 77] {
                let bytes = filled(texture, 3, sector, 12);
                assert_eq!(read(&bytes), of(texture, 3, sector, 12));
                for at in 0..SECTOR {
                    let mut damaged = bytes;
                    damaged[at] ^= 0x40;
                    assert_ne!(read(&damaged), read(&bytes), "byte {at} of {texture:?}");
                }
            }
        }
    }

    #[test]
    fn a_mixture_of_two_versions_is_garbage() {
        for texture in [Texture::Unique, Texture::Sparse, Texture::Rows] {
            let mut bytes = filled(texture, 3, 77, 12);
            bytes[256..].copy_from_slice(&filled(texture, 3, 77, 13)[256..]);
            assert_eq!(read(&bytes), Content::Garbage, "{texture:?}");
        }
        let mut bytes = filled(Texture::Pattern(3), 0, 5, 1);
        bytes[256..].copy_from_slice(&filled(Texture::Pattern(5), 0, 5, 1)[256..]);
        assert_eq!(read(&bytes), Content::Garbage);
    }

    #[test]
    fn textures_have_in_common_what_they_promise() {
        let differing = |one: [u8; SECTOR], other: [u8; SECTOR]| one.iter().zip(&other).filter(|(a, b)| a != b).count();
        for texture in [Texture::Sparse, Texture::Rows] {
            assert!(differing(filled(texture, 1, 77, 12), filled(texture, 1, 77, 4_000)) < 16, "{texture:?}: the version before");
        }
        assert!(differing(filled(Texture::Rows, 1, 77, 12), filled(Texture::Rows, 1, 85, 12)) > 200);
        assert_eq!(filled(Texture::Pattern(7), 1, 77, 12), filled(Texture::Copy(7), 2, 13, 900), "sector 5 of a block");
        assert_ne!(filled(Texture::Pattern(7), 1, 77, 12), filled(Texture::Pattern(7), 1, 78, 12));
        assert_ne!(filled(Texture::Pattern(7), 1, 77, 12), filled(Texture::Pattern(8), 1, 77, 12));
    }
}
