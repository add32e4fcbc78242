//! What a sector holds: every write fills every sector with a value of its own, so that whatever comes back names its
//! origin, and what was lost, torn, resurrected or misdirected can be told apart.

/// Bytes in a sector.
pub const SECTOR: usize = types::SECTOR_BYTES as usize;

const MAGIC: u64 = 0x4865_6172_7468_0000;

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
    },
    /// No write ever made this: mixed or damaged.
    Garbage,
}

fn mixed(volume: u16, sector: u64, write: u32) -> u64 {
    let mut z = (u64::from(write) << 32) ^ sector.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (u64::from(volume) << 17);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z ^ (z >> 27)
}

fn word(base: u64, index: u64) -> u64 {
    base.wrapping_add(index.wrapping_mul(0xA24B_AED4_963E_E407))
}

/// Fills `sector_bytes` with the value of that write for that place.
pub fn fill(volume: u16, sector: u64, write: u32, sector_bytes: &mut [u8]) {
    assert_eq!(sector_bytes.len(), SECTOR);
    let base = mixed(volume, sector, write);
    for (index, bytes) in sector_bytes.chunks_exact_mut(8).enumerate() {
        bytes.copy_from_slice(&word(base, index as u64).to_le_bytes());
    }
    sector_bytes[0..8].copy_from_slice(&(MAGIC | u64::from(volume)).to_le_bytes());
    sector_bytes[8..16].copy_from_slice(&sector.to_le_bytes());
    sector_bytes[16..24].copy_from_slice(&u64::from(write).to_le_bytes());
}

fn word_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Reads a sector back.
pub fn read(sector_bytes: &[u8]) -> Content {
    assert_eq!(sector_bytes.len(), SECTOR);
    let head = word_at(sector_bytes, 0);
    if head == 0 {
        return if sector_bytes.iter().all(|byte| *byte == 0) { Content::Zero } else { Content::Garbage };
    }
    let (volume, sector) = ((head & 0xFFFF) as u16, word_at(sector_bytes, 8));
    let number = word_at(sector_bytes, 16);
    let Ok(write) = u32::try_from(number) else { return Content::Garbage };
    if head & !0xFFFF != MAGIC {
        return Content::Garbage;
    }
    let base = mixed(volume, sector, write);
    let whole = sector_bytes
        .chunks_exact(8)
        .enumerate()
        .skip(3)
        .fold(0, |wrong, (index, bytes)| wrong | (word_at(bytes, 0) ^ word(base, index as u64)));
    if whole == 0 { Content::Data { volume, sector, write } } else { Content::Garbage }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_names_its_origin_and_damage_is_seen() {
        let mut bytes = [0; SECTOR];
        assert_eq!(read(&bytes), Content::Zero);
        fill(3, 77, 12, &mut bytes);
        assert_eq!(read(&bytes), Content::Data { volume: 3, sector: 77, write: 12 });
        for at in [0, 9, 17, 30, 511] {
            let mut damaged = bytes;
            damaged[at] ^= 0x40;
            assert_ne!(read(&damaged), read(&bytes), "byte {at}");
        }
        let mut other = [0; SECTOR];
        fill(3, 77, 13, &mut other);
        bytes[256..].copy_from_slice(&other[256..]);
        assert_eq!(read(&bytes), Content::Garbage);
    }
}
