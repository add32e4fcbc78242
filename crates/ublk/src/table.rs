//! A queue's descriptors of requests, as the kernel shows them: memory that it writes and we read.

use crate::uapi::{Descriptor, table_offset};
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// The mapped table.
pub(crate) struct Table {
    at: *const [u8; Descriptor::BYTES],
    depth: u16,
    bytes: usize,
}

// SAFETY: the mapping belongs to this value alone, and is only read.
unsafe impl Send for Table {}

impl Table {
    pub(crate) fn map(device: impl AsFd, queue: u16, depth: u16) -> io::Result<Table> {
        let page_bytes = rustix::param::page_size();
        let bytes = (usize::from(depth) * Descriptor::BYTES).next_multiple_of(page_bytes);
        let (fd, offset) = (device.as_fd().as_raw_fd(), table_offset(queue, page_bytes) as libc::off_t);
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        // SAFETY: a new mapping at a place that the kernel chooses.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ, flags, fd, offset) };
        if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(Table { at: at.cast(), depth, bytes }) }
    }

    /// The request of a tag that the kernel has just handed over.
    ///
    /// # Panics
    /// If the queue has no such tag.
    pub(crate) fn descriptor(&self, tag: u16) -> Descriptor {
        assert!(tag < self.depth, "tag {tag} of {}", self.depth);
        // SAFETY: inside the mapping; the kernel does not write the descriptor of a tag that it has
        // handed over, and volatile, since it has written it behind the compiler's back.
        Descriptor::decode(&unsafe { self.at.add(usize::from(tag)).read_volatile() })
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // SAFETY: mapped in `map`, and nobody has a reference into it.
        unsafe { libc::munmap(self.at.cast_mut().cast(), self.bytes) };
    }
}
