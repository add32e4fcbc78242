//! An allocator for the whole program: what is large gets huge pages, where the kernel has them.
//!
//! A hit touches the index and 4 KiB of data at random places in gigabytes. With 4 KiB pages each touch also misses the processor's address
//! translation cache, which in a virtual machine costs a walk through two page tables. Nothing depends on it: where the kernel refuses, pages are small.

use core::alloc::{GlobalAlloc, Layout};
use core::ptr::{NonNull, null_mut};
use std::alloc::System;

/// Size and alignment of a huge page on x86-64, and on 64-bit ARM with 4 KiB pages. Allocations from this size on are mapped by themselves.
const HUGE_BYTES: usize = 2 << 20;

/// The system's allocator for what is small, own mappings for what is large.
#[derive(Clone, Copy, Debug, Default)]
pub struct HugePages;

// SAFETY: an allocation is the system allocator's or a mapping of its own by its layout alone, so it goes back where it came from.
unsafe impl GlobalAlloc for HugePages {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are those asked for.
        if is_large(layout) { map(layout.size()) } else { unsafe { System.alloc(layout) } }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above; fresh mappings are zeroes.
        if is_large(layout) { map(layout.size()) } else { unsafe { System.alloc_zeroed(layout) } }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        if is_large(layout) {
            unmap(start, round_up(layout.size()));
        } else {
            // SAFETY: it came from there, with this layout.
            unsafe { System.dealloc(start, layout) }
        }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, new_bytes: usize) -> *mut u8 {
        // SAFETY: the caller promises that `new_bytes`, rounded up to the alignment, is no overflow.
        let new_layout = unsafe { Layout::from_size_align_unchecked(new_bytes, layout.align()) };
        match (is_large(layout), is_large(new_layout)) {
            // SAFETY: it came from there, with this layout.
            (false, false) => unsafe { System.realloc(start, layout, new_bytes) },
            (true, true) if round_up(layout.size()) == round_up(new_bytes) => start,
            _ => {
                // SAFETY: two allocations of at least as many bytes as are copied, and the old one is not used any more.
                unsafe {
                    let new = self.alloc(new_layout);
                    if !new.is_null() {
                        new.copy_from_nonoverlapping(start, layout.size().min(new_bytes));
                        self.dealloc(start, layout);
                    }
                    new
                }
            }
        }
    }
}

fn is_large(layout: Layout) -> bool {
    layout.size() >= HUGE_BYTES && layout.align() <= HUGE_BYTES
}

fn round_up(bytes: usize) -> usize {
    bytes.next_multiple_of(HUGE_BYTES)
}

/// Zeroed memory, aligned to huge pages; null if there is none.
fn map(bytes: usize) -> *mut u8 {
    let Some(bytes) = bytes.checked_next_multiple_of(HUGE_BYTES) else { return null_mut() };
    let Some(reserved) = bytes.checked_add(HUGE_BYTES) else { return null_mut() };
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new anonymous mapping touches nothing that is there.
    let start = unsafe { libc::mmap(null_mut(), reserved, protection, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return null_mut();
    }
    let start = start.cast::<u8>();
    let before = start.align_offset(HUGE_BYTES);
    let aligned = start.wrapping_add(before);
    unmap(start, before);
    unmap(aligned.wrapping_add(bytes), HUGE_BYTES - before);
    // SAFETY: the mapping is ours. Advice only: it may be refused.
    unsafe { libc::madvise(aligned.cast(), bytes, libc::MADV_HUGEPAGE) };
    aligned
}

fn unmap(start: *mut u8, bytes: usize) {
    if let Some(start) = NonNull::new(start).filter(|_| bytes > 0) {
        // SAFETY: called with a mapping, or a part of one, that nobody uses. A failure would leak it, nothing else.
        unsafe { libc::munmap(start.as_ptr().cast(), bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes, 4096).expect("a layout")
    }

    #[test]
    fn content_survives_every_change_of_size() {
        let sizes = [100, 4096, HUGE_BYTES - 1, HUGE_BYTES, HUGE_BYTES + 1, 5 * HUGE_BYTES, 2 * HUGE_BYTES, 3000, HUGE_BYTES, 10];
        let mut now = layout(sizes[0]);
        // SAFETY: each block is written within its size and given back with its layout.
        unsafe {
            let mut start = HugePages.alloc_zeroed(now);
            start.write_bytes(7, now.size());
            for bytes in sizes {
                let kept = now.size().min(bytes);
                start = HugePages.realloc(start, now, bytes);
                now = layout(bytes);
                assert_eq!(start.align_offset(4096), 0);
                let content = core::slice::from_raw_parts_mut(start, bytes);
                assert!(content[..kept].iter().all(|byte| *byte == 7), "{bytes} bytes");
                content.fill(7);
            }
            HugePages.dealloc(start, now);
        }
    }

    #[test]
    fn large_memory_is_aligned_and_zero() {
        let wanted = layout(3 * HUGE_BYTES + 5);
        // SAFETY: read within its size, and given back with its layout.
        unsafe {
            let start = HugePages.alloc_zeroed(wanted);
            assert_eq!(start.align_offset(HUGE_BYTES), 0);
            assert!(core::slice::from_raw_parts(start, wanted.size()).iter().all(|byte| *byte == 0));
            HugePages.dealloc(start, wanted);
        }
    }

    #[test]
    fn memory_that_cannot_be_is_refused() {
        let absurd = Layout::from_size_align(isize::MAX as usize - HUGE_BYTES, 4096).expect("a layout");
        // SAFETY: null is what comes back.
        assert!(unsafe { HugePages.alloc(absurd) }.is_null());
    }
}
