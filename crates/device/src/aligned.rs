//! Zeroed memory at an alignment that O_DIRECT accepts.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// A buffer whose address is a multiple of a given alignment.
pub struct AlignedBuffer {
    bytes: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the buffer owns its memory; there is no shared state behind the pointer.
unsafe impl Send for AlignedBuffer {}
// SAFETY: as above; `&AlignedBuffer` gives read access only.
unsafe impl Sync for AlignedBuffer {}

impl AlignedBuffer {
    /// `length_bytes` zero bytes at a multiple of `alignment_bytes`.
    ///
    /// # Panics
    /// If `length_bytes` is zero or `alignment_bytes` is not a power of two: both are decided by our own code.
    pub fn zeroed(length_bytes: usize, alignment_bytes: usize) -> AlignedBuffer {
        assert!(length_bytes > 0, "an aligned buffer holds at least one byte");
        let layout = Layout::from_size_align(length_bytes, alignment_bytes).expect("the alignment is a power of two");
        // SAFETY: the layout's size is above zero, as asserted.
        let bytes = unsafe { alloc_zeroed(layout) };
        let Some(bytes) = NonNull::new(bytes) else { handle_alloc_error(layout) };
        AlignedBuffer { bytes, layout }
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        // SAFETY: allocated with this very layout, and nobody borrows it any more.
        unsafe { dealloc(self.bytes.as_ptr(), self.layout) }
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the memory is that long, initialized (zeroed at first), and borrowed through `self`.
        unsafe { std::slice::from_raw_parts(self.bytes.as_ptr(), self.layout.size()) }
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.bytes.as_ptr(), self.layout.size()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_aligned_zero_and_writable() {
        for alignment in [512, 4096, 1 << 16] {
            let mut buffer = AlignedBuffer::zeroed(8192, alignment);
            assert_eq!(buffer.as_ptr() as usize % alignment, 0);
            assert!(buffer.iter().all(|byte| *byte == 0));
            buffer[8191] = 7;
            assert_eq!((buffer.len(), buffer[8191]), (8192, 7));
        }
    }
}
