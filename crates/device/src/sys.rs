//! The system calls that have no safe form elsewhere.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// BLKDISCARD: gives up a range of a block device.
pub fn block_discard(file: &File, offset_bytes: u64, length_bytes: u64) -> io::Result<()> {
    /// `_IO(0x12, 119)` of linux/fs.h.
    const BLKDISCARD: libc::Ioctl = 0x1277;
    let range = [offset_bytes, length_bytes];
    // SAFETY: BLKDISCARD reads two u64 from the pointer, which lives across the call.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), BLKDISCARD, range.as_ptr()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
