//! Little-endian fields at fixed offsets.

/// Reads the `N` bytes at `at`. Callers pass constants inside the buffer.
fn array<const N: usize>(from: &[u8], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&from[at..at + N]);
    bytes
}

pub(crate) fn get_u16(from: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array(from, at))
}

pub(crate) fn get_u32(from: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(from, at))
}

pub(crate) fn get_u64(from: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(from, at))
}

pub(crate) fn get_uuid(from: &[u8], at: usize) -> [u8; 16] {
    array(from, at)
}

pub(crate) fn put(into: &mut [u8], at: usize, bytes: &[u8]) {
    into[at..at + bytes.len()].copy_from_slice(bytes);
}

pub(crate) fn put_u16(into: &mut [u8], at: usize, value: u16) {
    put(into, at, &value.to_le_bytes());
}

pub(crate) fn put_u32(into: &mut [u8], at: usize, value: u32) {
    put(into, at, &value.to_le_bytes());
}

pub(crate) fn put_u64(into: &mut [u8], at: usize, value: u64) {
    put(into, at, &value.to_le_bytes());
}

pub(crate) fn all_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}
