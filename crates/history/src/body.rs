//! A chunk as bytes in a row of the file.
//!
//! ```text
//! checksum   u64  XXH3 of all that follows; its seed is the XXH3 of the object's name with start and grain, so that a row in the wrong place is noticed too
//! raw bytes  u32  length before compression
//! LZ4 block of
//!   columns  u16
//!   for each column: name length u16, name,
//!                    the values (f32) byte by byte: first the lowest byte of each, then the next …,
//!                    and likewise the seconds (u16), except at the grain of a second
//! ```
//!
//! Bytes of equal weight lie together because the high ones of a series hardly change, which LZ4 then sees. All numbers are little-endian.

use crate::chunk::{Chunk, Column, is_wanted};
use crate::grain::Grain;
use lz4_flex::block;
use twox_hash::XxHash3_64;

const HEADER_BYTES: usize = 12;
/// No chunk is larger: 65535 columns of an hour's grain with long names would be, but nobody has a tenth of that.
const RAW_BYTES_MAX: usize = 64 << 20;

/// A row that is not what was written.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Damaged;

/// The bytes of a chunk of an object.
pub(crate) fn encode(object: &str, chunk: &Chunk) -> Vec<u8> {
    let points = chunk.grain.points();
    let columns = &chunk.columns[..chunk.columns.len().min(usize::from(u16::MAX))];
    let mut raw = Vec::with_capacity(chunk.bytes());
    raw.extend((columns.len() as u16).to_le_bytes());
    for column in columns {
        let name = &column.name.as_bytes()[..column.name.len().min(usize::from(u16::MAX))];
        raw.extend((name.len() as u16).to_le_bytes());
        raw.extend(name);
        for byte in 0..4 {
            raw.extend(column.values.iter().map(|value| value.to_le_bytes()[byte]));
        }
        for byte in 0..if chunk.grain == Grain::Second { 0 } else { 2 } {
            raw.extend(column.seconds.iter().map(|seconds| seconds.to_le_bytes()[byte]));
        }
        assert_eq!(column.values.len(), points, "a value for each point");
    }
    let mut body = vec![0; HEADER_BYTES + block::get_maximum_output_size(raw.len())];
    body[8..HEADER_BYTES].copy_from_slice(&(raw.len() as u32).to_le_bytes());
    let packed_bytes = block::compress_into(&raw, &mut body[HEADER_BYTES..]).expect("room for the worst case was made");
    body.truncate(HEADER_BYTES + packed_bytes);
    let checksum = checksum(object, chunk.grain, chunk.start_s, &body[8..]);
    body[..8].copy_from_slice(&checksum.to_le_bytes());
    body
}

/// The chunk in a row; only of the series that are asked for, if some are.
pub(crate) fn decode(object: &str, grain: Grain, start_s: u64, body: &[u8], wanted: Option<&[&str]>) -> Result<Chunk, Damaged> {
    if body.len() < HEADER_BYTES {
        return Err(Damaged);
    }
    let stored = u64::from_le_bytes(body[..8].try_into().map_err(|_| Damaged)?);
    if stored != checksum(object, grain, start_s, &body[8..]) {
        return Err(Damaged);
    }
    let raw_bytes = u32::from_le_bytes(body[8..HEADER_BYTES].try_into().map_err(|_| Damaged)?) as usize;
    if raw_bytes > RAW_BYTES_MAX {
        return Err(Damaged);
    }
    let mut raw = vec![0; raw_bytes];
    if block::decompress_into(&body[HEADER_BYTES..], &mut raw).ok() != Some(raw_bytes) {
        return Err(Damaged);
    }
    let mut rest = &raw[..];
    let points = grain.points();
    let mut chunk = Chunk::new(grain, start_s);
    for _ in 0..take_u16(&mut rest)? {
        let name_bytes = take_u16(&mut rest)?;
        let name = std::str::from_utf8(take(&mut rest, usize::from(name_bytes))?).map_err(|_| Damaged)?;
        let values = take(&mut rest, points * 4)?;
        let seconds = take(&mut rest, if grain == Grain::Second { 0 } else { points * 2 })?;
        if wanted.is_some_and(|wanted| !is_wanted(wanted, name)) {
            continue;
        }
        let value = |point: usize| f32::from_le_bytes([0, 1, 2, 3].map(|byte| values[byte * points + point]));
        let second = |point: usize| u16::from_le_bytes([0, 1].map(|byte| seconds[byte * points + point]));
        chunk.columns.push(Column {
            name: name.into(),
            values: (0..points).map(value).collect(),
            seconds: (0..seconds.len() / 2).map(second).collect(),
        });
    }
    // Earlier versions stored them as they came.
    chunk.columns.sort_by(|one, other| one.name.cmp(&other.name));
    if rest.is_empty() { Ok(chunk) } else { Err(Damaged) }
}

fn checksum(object: &str, grain: Grain, start_s: u64, bytes: &[u8]) -> u64 {
    let place = XxHash3_64::oneshot_with_seed(start_s << 12 | grain.step_s(), object.as_bytes());
    XxHash3_64::oneshot_with_seed(place, bytes)
}

fn take<'a>(rest: &mut &'a [u8], bytes: usize) -> Result<&'a [u8], Damaged> {
    let (taken, left) = rest.split_at_checked(bytes).ok_or(Damaged)?;
    *rest = left;
    Ok(taken)
}

fn take_u16(rest: &mut &[u8]) -> Result<u16, Damaged> {
    Ok(u16::from_le_bytes(take(rest, 2)?.try_into().map_err(|_| Damaged)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::Cell;

    fn some_chunk(grain: Grain) -> Chunk {
        let mut chunk = Chunk::new(grain, grain.chunk_s() * 5);
        for (index, name) in ["reads_s", "hit_ratio", "all_p99_us"].into_iter().enumerate() {
            for point in (index..grain.points()).step_by(3) {
                chunk.put(point, name, Cell { value: (point * 7 + index) as f32 * 0.3, seconds: 1 });
            }
        }
        chunk
    }

    /// Debug form: NaN is equal to itself there.
    fn same(one: &Chunk, other: &Chunk) {
        assert_eq!(format!("{one:?}"), format!("{other:?}"));
    }

    #[test]
    fn what_goes_in_comes_out() {
        for grain in Grain::ALL {
            let chunk = some_chunk(grain);
            let body = encode("volume:a", &chunk);
            same(&decode("volume:a", grain, chunk.start_s, &body, None).unwrap(), &chunk);
            let one = decode("volume:a", grain, chunk.start_s, &body, Some(&["hit_ratio"])).unwrap();
            same(&one, &chunk.only(&["hit_ratio"]));
            let empty = Chunk::new(grain, 0);
            same(&decode("x", grain, 0, &encode("x", &empty), None).unwrap(), &empty);
        }
    }

    #[test]
    fn any_flipped_bit_and_any_wrong_place_is_noticed() {
        let chunk = some_chunk(Grain::Minute);
        let body = encode("volume:a", &chunk);
        for bit in 0..body.len() * 8 {
            let mut flipped = body.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode("volume:a", Grain::Minute, chunk.start_s, &flipped, None), Err(Damaged), "bit {bit}");
        }
        for length in 0..body.len() {
            assert_eq!(decode("volume:a", Grain::Minute, chunk.start_s, &body[..length], None), Err(Damaged), "{length} bytes");
        }
        assert_eq!(decode("volume:b", Grain::Minute, chunk.start_s, &body, None), Err(Damaged));
        assert_eq!(decode("volume:a", Grain::Minute, chunk.start_s + 3600, &body, None), Err(Damaged));
        assert_eq!(decode("volume:a", Grain::Second, chunk.start_s, &body, None), Err(Damaged));
    }
}
