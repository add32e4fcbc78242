//! CRC-32C (Castagnoli; "CRC-32/ISCSI" in the catalogues), which every structure and every payload stands under.
//!
//! Two forms with the same result: feature `simd` (the default) picks carry-less multiplication at run time, feature
//! `portable` uses tables and needs no operating system.

use types::VolumeId;

#[cfg(not(any(feature = "simd", feature = "portable")))]
compile_error!("the format crate needs the feature `simd` or the feature `portable`");

/// The reflected polynomial of CRC-32C (RFC 3720, section 12.1).
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// One step per byte, for the few bytes that follow a payload.
static TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut value = index as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { (value >> 1) ^ POLYNOMIAL } else { value >> 1 };
            bit += 1;
        }
        table[index] = value;
        index += 1;
    }
    table
}

/// The CRC-32C of `data`.
#[cfg(feature = "simd")]
#[inline]
pub fn crc32c(data: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(data)
}

/// The CRC-32C of `data`.
#[cfg(all(feature = "portable", not(feature = "simd")))]
pub fn crc32c(data: &[u8]) -> u32 {
    static CRC: crc::Crc<u32, crc::Table<16>> = crc::Crc::<u32, crc::Table<16>>::new(&crc::CRC_32_ISCSI);
    CRC.checksum(data)
}

/// The CRC-32C of what `crc` was computed over, followed by `tail`. Byte by byte: for short tails.
#[inline]
pub fn crc32c_continued(crc: u32, tail: &[u8]) -> u32 {
    let mut state = !crc;
    for byte in tail {
        state = TABLE[usize::from(state as u8 ^ byte)] ^ (state >> 8);
    }
    !state
}

/// The checksum of a block's payload, as its record keeps it: CRC-32C over the data, the volume (4 bytes) and the block
/// (8 bytes). So a payload that was misdirected, or read from the wrong place, does not match. Sequence numbers are not in
/// it: they guard the record, which holds this checksum.
#[inline]
pub fn payload_checksum(volume: VolumeId, block: u64, data: &[u8; crate::PAGE_BYTES]) -> u32 {
    #[cfg(feature = "mutants")]
    if crate::mutants::active(13) {
        return crc32c(data);
    }
    let mut address = [0; 12];
    address[..4].copy_from_slice(&volume.0.to_le_bytes());
    address[4..].copy_from_slice(&block.to_le_bytes());
    crc32c_continued(crc32c(data), &address)
}

/// Where every stored structure keeps its CRC-32C, whatever its version; it covers all bytes after itself. Before it
/// stands the magic number, which is compared as it is.
pub(crate) const HEADER_CRC_AT: usize = 8;

/// Puts the checksum over `structure[12..]` at its place.
pub(crate) fn seal_header(structure: &mut [u8]) {
    let crc = crc32c(&structure[HEADER_CRC_AT + 4..]);
    crate::bytes::put_u32(structure, HEADER_CRC_AT, crc);
}

/// Whether the checksum at its place matches `structure[12..]`.
pub(crate) fn header_matches(structure: &[u8]) -> bool {
    crate::bytes::get_u32(structure, HEADER_CRC_AT) == crc32c(&structure[HEADER_CRC_AT + 4..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn bytes(count: usize) -> Vec<u8> {
        (0..count).map(|i| (i * 7 + i / 251) as u8).collect()
    }

    #[test]
    fn known_values() {
        // RFC 3720, appendix B.4.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn both_forms_agree() {
        let portable = crc::Crc::<u32, crc::Table<16>>::new(&crc::CRC_32_ISCSI);
        for count in (0..300).chain([511, 512, 4095, 4096, 4108, 65536]) {
            let data = bytes(count);
            assert_eq!(crc32c(&data), portable.checksum(&data), "{count} bytes");
            assert_eq!(crc32c_continued(0, &data), portable.checksum(&data), "{count} bytes");
        }
    }

    #[test]
    fn a_payload_checksum_covers_data_then_address() {
        let data: [u8; 4096] = bytes(4096).try_into().expect("4096 bytes");
        let mut all = data.to_vec();
        all.extend(7u32.to_le_bytes());
        all.extend(123_456_789_012u64.to_le_bytes());
        let checksum = payload_checksum(VolumeId(7), 123_456_789_012, &data);
        assert_eq!(checksum, crc32c(&all));
        assert_ne!(checksum, payload_checksum(VolumeId(8), 123_456_789_012, &data));
        assert_ne!(checksum, payload_checksum(VolumeId(7), 123_456_789_013, &data));
        // Written down so that no later release computes another one.
        assert_eq!(payload_checksum(VolumeId(1), 2, &[0; 4096]), crc32c_continued(0x98f9_4189, &[1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]));
    }
}
