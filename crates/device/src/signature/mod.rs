//! Does a device already hold something? The marks that file systems, arrays, volume managers and tables leave.
//!
//! Invariants: looking is read-only; a device of zeroes or of random data carries no signature (marks of two bytes count
//! only together with the structure around them). What each mark is and where it stands: `table`.

mod table;
#[cfg(test)]
mod tests;

use crate::{BlockingDevice, DeviceError};
use std::fmt;

/// A mark that was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Signature {
    /// What it is the mark of, with its article: "an ext4 file system".
    pub what: String,
    /// The name given to it by its owner, if it has one.
    pub label: Option<String>,
    /// Where the mark stands.
    pub offset_bytes: u64,
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.label {
            Some(label) => write!(f, "{} (label {label:?})", self.what),
            None => f.write_str(&self.what),
        }
    }
}

/// A mark of ours: the caller knows its format, this crate does not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OwnMark {
    /// With its article: "a hearth pool".
    pub what: &'static str,
    /// Where it stands.
    pub offset_bytes: u64,
    /// Its bytes.
    pub magic: &'static [u8],
}

/// All marks on the device, in the order of the table, ours in each copy; empty for a device that may be taken.
pub fn find(device: &dyn BlockingDevice, own: &[OwnMark]) -> Result<Vec<Signature>, DeviceError> {
    let mut found = Vec::new();
    let view = View::new(device)?;
    for mark in own {
        if view.bytes(mark.offset_bytes, mark.magic.len())?.is_some_and(|bytes| bytes == mark.magic) {
            found.push(Signature { what: mark.what.to_string(), label: None, offset_bytes: mark.offset_bytes });
        }
    }
    table::find_foreign(&view, &mut found)?;
    Ok(found)
}

/// Overwrites the marks, so that no other program takes the device for what it was. For use after the owner has agreed to
/// lose the content; flushed when it returns.
pub fn erase(device: &dyn BlockingDevice, signatures: &[Signature]) -> Result<(), DeviceError> {
    let geometry = device.geometry();
    let block_bytes = u64::from(geometry.logical_block_bytes).max(512);
    for signature in signatures {
        // A mark is at most 64 bytes long, so it touches at most two blocks.
        let start = signature.offset_bytes / block_bytes * block_bytes;
        let end = (signature.offset_bytes + 64).next_multiple_of(block_bytes).min(geometry.size_bytes);
        device.write_zeroes(start, end - start)?;
    }
    device.flush()
}

/// One sentence on what a device holds, or `None` if it holds nothing known.
pub fn describe(signatures: &[Signature]) -> Option<String> {
    let mut names: Vec<String> = Vec::new();
    for name in signatures.iter().map(Signature::to_string) {
        // A mark may stand in more than one copy.
        if !names.contains(&name) {
            names.push(name);
        }
    }
    match names.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        [first @ .., last] => Some(format!("{} and {last}", first.join(", "))),
    }
}

/// How much of the device's start is read at once; nearly all marks stand there.
const HEAD_BYTES: u64 = 128 << 10;

/// The device's bytes, its start kept.
struct View<'a> {
    device: &'a dyn BlockingDevice,
    size_bytes: u64,
    head: Vec<u8>,
}

impl<'a> View<'a> {
    fn new(device: &'a dyn BlockingDevice) -> Result<View<'a>, DeviceError> {
        let size_bytes = device.geometry().size_bytes;
        let mut head = vec![0; size_bytes.min(HEAD_BYTES) as usize];
        device.read_at(0, &mut head)?;
        Ok(View { device, size_bytes, head })
    }

    /// The bytes there; `None` where the device ends before them.
    fn bytes(&self, offset_bytes: u64, length: usize) -> Result<Option<Vec<u8>>, DeviceError> {
        let Some(end) = offset_bytes.checked_add(length as u64).filter(|end| *end <= self.size_bytes) else {
            return Ok(None);
        };
        if let Some(bytes) = self.head.get(offset_bytes as usize..end as usize) {
            return Ok(Some(bytes.to_vec()));
        }
        let mut bytes = vec![0; length];
        self.device.read_at(offset_bytes, &mut bytes)?;
        Ok(Some(bytes))
    }

    /// Bytes of the kept start; zeroes where the device is shorter.
    fn head<const N: usize>(&self, offset: usize) -> [u8; N] {
        let mut bytes = [0; N];
        let have = self.head.get(offset..).unwrap_or_default();
        let length = have.len().min(N);
        bytes[..length].copy_from_slice(&have[..length]);
        bytes
    }

    fn u16_le(&self, offset: usize) -> u16 {
        u16::from_le_bytes(self.head(offset))
    }

    fn u32_le(&self, offset: usize) -> u32 {
        u32::from_le_bytes(self.head(offset))
    }

    fn u32_be(&self, offset: usize) -> u32 {
        u32::from_be_bytes(self.head(offset))
    }

    /// A name in the kept start, up to its first zero byte or trailing blanks; `None` if empty.
    fn label(&self, offset: usize, length: usize) -> Option<String> {
        let bytes = self.head.get(offset..offset + length)?;
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(length);
        let text = String::from_utf8_lossy(&bytes[..end]).trim_end().to_string();
        if text.is_empty() { None } else { Some(text) }
    }
}
