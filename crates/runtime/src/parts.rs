//! Volumes that are parts of a device, one behind the other.

use std::sync::{PoisonError, RwLock};
use types::BLOCK_BYTES;

/// A run of bytes of a device. Both are multiples of 4096.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// Its first byte on the device.
    pub from_bytes: u64,
    /// Its length; not 0.
    pub length_bytes: u64,
}

impl Part {
    /// Behind its last byte on the device.
    pub const fn end_bytes(&self) -> u64 {
        self.from_bytes.saturating_add(self.length_bytes)
    }
}

/// The parts that a volume consists of, in order; none: it is the whole device. Only ever appended to, or the last becomes longer.
#[derive(Default)]
pub(crate) struct Parts(RwLock<Vec<Part>>);

impl Parts {
    pub(crate) fn new(parts: Vec<Part>) -> Parts {
        let parts_of_device = Parts::default();
        parts_of_device.set(parts);
        parts_of_device
    }

    /// All parts from now on.
    ///
    /// # Panics
    /// If one is empty or no multiple of 4096, or if a byte would be somewhere else than before.
    pub(crate) fn set(&self, parts: Vec<Part>) {
        let is_sound = |part: &Part| part.length_bytes > 0 && (part.from_bytes | part.length_bytes).is_multiple_of(BLOCK_BYTES);
        assert!(parts.iter().all(is_sound), "parts of a device: {parts:?}");
        let mut now = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let stays = |(before, after): (&Part, &Part)| before.from_bytes == after.from_bytes && before.length_bytes <= after.length_bytes;
        assert!(now.len() <= parts.len() && now.iter().zip(&parts).all(stays), "{now:?} does not become {parts:?}");
        let last = now.len().saturating_sub(1);
        assert!(now.iter().take(last).eq(parts.iter().take(last)), "{now:?} does not become {parts:?}");
        *now = parts;
    }

    /// Where that byte of the volume is on the device, and how many bytes from it on lie in a row.
    pub(crate) fn place_of(&self, offset_bytes: u64) -> (u64, u64) {
        let parts = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if parts.is_empty() {
            return (offset_bytes, u64::MAX);
        }
        let mut before_bytes = 0;
        for part in &*parts {
            let within_bytes = offset_bytes - before_bytes;
            if within_bytes < part.length_bytes {
                return (part.from_bytes + within_bytes, part.length_bytes - within_bytes);
            }
            before_bytes += part.length_bytes;
        }
        panic!("byte {offset_bytes} is behind the last part of the volume");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn part(from_bytes: u64, length_bytes: u64) -> Part {
        Part { from_bytes, length_bytes }
    }

    #[test]
    fn bytes_are_found_in_their_parts() {
        let parts = Parts::new(vec![part(1 << 20, 8192), part(4096, 4096)]);
        assert_eq!(parts.place_of(0), (1 << 20, 8192));
        assert_eq!(parts.place_of(8191), ((1 << 20) + 8191, 1));
        assert_eq!(parts.place_of(8192), (4096, 4096));
        parts.set(vec![part(1 << 20, 8192), part(4096, 8192), part(0, 4096)]);
        assert_eq!(parts.place_of(12288), (8192, 4096));
        assert_eq!(parts.place_of(16384), (0, 4096));
        assert_eq!(Parts::default().place_of(5), (5, u64::MAX));
    }

    #[test]
    #[should_panic(expected = "does not become")]
    fn a_byte_stays_where_it_is() {
        Parts::new(vec![part(0, 8192), part(1 << 20, 4096)]).set(vec![part(0, 12288), part(1 << 20, 4096)]);
    }
}
