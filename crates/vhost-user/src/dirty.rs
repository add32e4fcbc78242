//! Which of a guest's pages we have written, while it is being moved to another host.
//!
//! A bit for each 4 KiB, in memory that the front end gave. Bits are set after the bytes are written: whoever takes the bit away and
//! then copies the page has the bytes.

use crate::mapping::Mapping;
use std::sync::atomic::{AtomicU8, Ordering};

const PAGE_BYTES: u64 = 4096;

/// The front end's log.
#[derive(Debug)]
pub(crate) struct DirtyLog(pub(crate) Mapping);

impl DirtyLog {
    /// Bytes of the guest's memory were written.
    pub(crate) fn written(&self, guest: u64, bytes: u64) {
        let Some(last) = bytes.checked_sub(1) else { return };
        for page in guest / PAGE_BYTES..=guest.saturating_add(last) / PAGE_BYTES {
            if page / 8 >= self.0.bytes() {
                return;
            }
            // SAFETY: it lies within the mapping, and is reached as an atomic by everyone.
            let byte = unsafe { AtomicU8::from_ptr(self.0.start().add((page / 8) as usize).as_ptr()) };
            byte.fetch_or(1 << (page % 8), Ordering::AcqRel);
        }
    }

    /// Whether its file became shorter.
    pub(crate) fn is_struck(&self) -> bool {
        self.0.is_struck()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::tests::memfd;
    use std::os::unix::fs::FileExt;

    #[test]
    fn each_page_that_is_touched_has_its_bit_and_none_lies_outside() {
        let file = memfd(4096);
        let log = DirtyLog(Mapping::new(&file, 0, 4).expect("mapped"));
        log.written(0, 0);
        log.written(4095, 2);
        log.written(9 * 4096, 1);
        log.written(31 * 4096, u64::MAX);
        log.written(u64::MAX, 9);
        let mut bytes = [0; 5];
        std::fs::File::from(file).read_exact_at(&mut bytes, 0).expect("there");
        assert_eq!(bytes, [0b11, 0b10, 0, 0x80, 0]);
    }
}
