//! Whether the kernel takes writes to a block device at all. Users see it when they open or mount the device; that the volume refuses writes
//! they see only when they write.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// BLKROSET: the device, with its partitions, refuses writes from now on, or takes them. A driver that made it read-only by itself goes on
/// refusing them. What is set stays with the device's number: whoever gives the number back takes it back first.
///
/// # Errors
/// The system's.
pub fn set(device: &File, is_protected: bool) -> io::Result<()> {
    /// `_IO(0x12, 93)` of linux/fs.h.
    const BLKROSET: libc::Ioctl = 0x125d;
    let flag = libc::c_int::from(is_protected);
    // SAFETY: BLKROSET reads one int from the pointer, which lives across the call.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), BLKROSET, &raw const flag) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// BLKROGET: whether it refuses writes.
///
/// # Errors
/// The system's.
pub fn is_set(device: &File) -> io::Result<bool> {
    /// `_IO(0x12, 94)` of linux/fs.h.
    const BLKROGET: libc::Ioctl = 0x125e;
    let mut flag: libc::c_int = 0;
    // SAFETY: BLKROGET writes one int to the pointer, which lives across the call.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), BLKROGET, &raw mut flag) };
    if result == 0 { Ok(flag != 0) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_block_device_is_refused() {
        let file = tempfile::tempfile().expect("a file");
        assert!(set(&file, true).is_err() && is_set(&file).is_err());
    }
}
