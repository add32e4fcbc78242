//! CRC-32C (Castagnoli; "CRC-32/ISCSI" in the catalogues), which every structure and every payload stands under.
//!
//! Two forms with the same result: feature `simd` (the default) picks carry-less multiplication at run time, feature
//! `portable` uses tables and needs no operating system.

use crate::packed::Encoding;
use alloc::vec::Vec;
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
    if mistakes::active(mistakes::CHECKSUM_WITHOUT_ADDRESS) {
        return crc32c(data);
    }
    crc32c_continued(crc32c(data), &address(volume, block))
}

#[inline]
const fn address(volume: VolumeId, block: u64) -> [u8; 12] {
    let ([a, b, c, d], [e, f, g, h, i, j, k, l]) = (volume.0.to_le_bytes(), block.to_le_bytes());
    [a, b, c, d, e, f, g, h, i, j, k, l]
}

/// Whom a payload belongs to. It is covered by the checksums, so that no payload is taken for another's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PayloadOwner {
    /// The object of that number: it keeps its payload wherever it is moved, with a block's address or without.
    Object(u64),
    /// The block of that volume.
    Block(VolumeId, u64),
}

impl PayloadOwner {
    /// An object's number stands as (bits 32 and up u32, bits 0..32 u64) where a block's volume and number do. They need not differ from
    /// any block's: a record says which of the two it is.
    const fn parts(self) -> (VolumeId, u64) {
        match self {
            PayloadOwner::Object(object) => (VolumeId((object >> 32) as u32), object & 0xffff_ffff),
            PayloadOwner::Block(volume, block) => (volume, block),
        }
    }

    fn address(self) -> [u8; 12] {
        let (volume, block) = self.parts();
        address(volume, block)
    }
}

/// The checksum of the content of an object, as the records of full encodings keep it: as [`payload_checksum`], over the object's number in
/// place of volume and block. So it stays the same when the object loses its address.
#[inline]
pub fn object_checksum(object: u64, data: &[u8; crate::PAGE_BYTES]) -> u32 {
    let (volume, block) = PayloadOwner::Object(object).parts();
    payload_checksum(volume, block, data)
}

/// The checksum of a block's content, decoded, in whatever form it is stored: [`object_checksum`] in full encodings, else (`None`: plain
/// data) [`payload_checksum`].
#[inline]
pub fn block_checksum(encoding: Option<Encoding>, object: u64, volume: VolumeId, block: u64, data: &[u8; crate::PAGE_BYTES]) -> u32 {
    match encoding {
        Some(encoding) if encoding.is_full() => object_checksum(object, data),
        _ => payload_checksum(volume, block, data),
    }
}

/// Appends the packed payload to `out`: 4 bytes of checksum, then `encoded` as it is. The checksum (CRC-32C of `encoded`, the owner and the
/// checksum of the content) lets recovery tell a torn payload without its base, and an older one of the same owner that stood in its place.
pub fn seal_packed(owner: PayloadOwner, checksum: u32, encoded: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&packed_crc(owner, checksum, encoded).to_le_bytes());
    out.extend_from_slice(encoded);
}

/// The encoded bytes of a packed payload, without what follows it to the next place; `None` if it is not what [`seal_packed`] made for
/// this owner and content. They may be anything all the same: who decodes them believes the record's checksum only.
pub fn open_packed(owner: PayloadOwner, checksum: u32, payload: &[u8]) -> Option<&[u8]> {
    let (crc, encoded) = payload.split_first_chunk()?;
    (u32::from_le_bytes(*crc) == packed_crc(owner, checksum, encoded)).then_some(encoded)
}

fn packed_crc(owner: PayloadOwner, checksum: u32, encoded: &[u8]) -> u32 {
    if mistakes::active(mistakes::CHECKSUM_WITHOUT_ADDRESS) {
        return crc32c(encoded);
    }
    crc32c_continued(crc32c_continued(crc32c(encoded), &owner.address()), &checksum.to_le_bytes())
}

/// The first version that stores the checksums of payloads masked.
const MASKED_FROM_VERSION: u32 = 3;

/// What the mask adds, and by how many bits it rotates: as LevelDB masks the checksums in its log
/// (`util/crc32c.h`).
const MASK_ADDS: u32 = 0xa282_ead8;
const MASK_ROTATES_BITS: u32 = 15;

/// A payload's checksum as records and checkpoint entries store it.
///
/// They stand under a CRC-32C themselves, right behind the address that theirs covers. Plain, the two
/// would add up to the same value for all blocks of the same content: a table of other blocks, say of
/// older ones after a torn write, would pass for the right one.
#[inline]
pub(crate) fn mask(checksum: u32) -> u32 {
    if mistakes::active(mistakes::CHECKSUMS_COLLIDE) {
        return checksum;
    }
    checksum.rotate_right(MASK_ROTATES_BITS).wrapping_add(MASK_ADDS)
}

/// The checksum of what a structure of that version stores.
#[inline]
pub(crate) fn unmask(stored: u32, version: u32) -> u32 {
    if mistakes::active(mistakes::CHECKSUMS_COLLIDE) {
        return stored;
    }
    if version < MASKED_FROM_VERSION { stored } else { stored.wrapping_sub(MASK_ADDS).rotate_left(MASK_ROTATES_BITS) }
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
    use alloc::vec;

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
        assert_eq!(checksum, block_checksum(None, 9, VolumeId(7), 123_456_789_012, &data));
        assert_eq!(checksum, block_checksum(Some(Encoding::Duplicate), 9, VolumeId(7), 123_456_789_012, &data));
        // Written down so that no later release computes another one.
        assert_eq!(payload_checksum(VolumeId(1), 2, &[0; 4096]), crc32c_continued(0x98f9_4189, &[1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]));
    }

    #[test]
    fn an_object_is_known_by_its_number_alone() {
        let data: [u8; 4096] = bytes(4096).try_into().expect("4096 bytes");
        let mut all = data.to_vec();
        all.extend(0x12u32.to_le_bytes());
        all.extend(0x3456_789au64.to_le_bytes());
        assert_eq!(object_checksum(0x12_3456_789a, &data), crc32c(&all));
        for encoding in Encoding::ALL {
            let [one, other] = [1, 2].map(|volume| block_checksum(Some(encoding), 5, VolumeId(volume), 6, &data));
            assert_eq!(one == other, encoding.is_full(), "{encoding:?}");
        }
    }

    #[test]
    fn a_packed_payload_opens_only_for_its_owner() {
        let owners = [
            PayloadOwner::Object(5),
            PayloadOwner::Object(5 << 32),
            PayloadOwner::Block(VolumeId(1), 7),
            PayloadOwner::Block(VolumeId(7), 1),
        ];
        for owner in owners {
            let mut out = vec![9];
            seal_packed(owner, 77, b"content", &mut out);
            assert_eq!(out.len(), 1 + 4 + 7);
            let sealed = &mut out[1..];
            for other in owners {
                assert_eq!(open_packed(other, 77, sealed), (owner == other).then_some(b"content".as_slice()), "{owner:?}, {other:?}");
            }
            assert_eq!(open_packed(owner, 77, &sealed[..10]), None);
            assert_eq!(open_packed(owner, 78, sealed), None, "of other content");
            for bit in 0..sealed.len() * 8 {
                sealed[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(open_packed(owner, 77, sealed), None, "bit {bit}");
                sealed[bit / 8] ^= 1 << (bit % 8);
            }
        }
        assert_eq!(open_packed(PayloadOwner::Object(1), 0, &[1, 2, 3]), None);
        let mut out = Vec::new();
        seal_packed(PayloadOwner::Block(VolumeId(1), 2), 0x1234_5678, b"123456789", &mut out);
        let crc = crc32c_continued(0xe306_9283, &[1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0x78, 0x56, 0x34, 0x12]);
        assert_eq!(out, [&crc.to_le_bytes(), b"123456789".as_slice()].concat());
    }
}
