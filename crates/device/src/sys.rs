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

/// What O_DIRECT asks for on a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirectAlignment {
    /// Buffers' addresses are multiples of this.
    pub memory_bytes: u32,
    /// Offsets and lengths are.
    pub offset_bytes: u32,
}

/// STATX_DIOALIGN: `None` where the kernel or the file system does not tell (before 6.1), zeroes where O_DIRECT is not
/// supported.
pub fn direct_alignment(file: &File) -> io::Result<Option<DirectAlignment>> {
    // SAFETY: `statx` is a plain structure of integers, of which all zeroes is a value.
    let mut answer: libc::statx = unsafe { std::mem::zeroed() };
    let (fd, flags, mask) = (file.as_raw_fd(), libc::AT_EMPTY_PATH, libc::STATX_DIOALIGN);
    // SAFETY: the path is an empty C string, which AT_EMPTY_PATH allows, and `answer` is writable and of the right type.
    if unsafe { libc::statx(fd, c"".as_ptr(), flags, mask, &raw mut answer) } != 0 {
        return Err(io::Error::last_os_error());
    }
    if answer.stx_mask & libc::STATX_DIOALIGN == 0 {
        return Ok(None);
    }
    Ok(Some(DirectAlignment { memory_bytes: answer.stx_dio_mem_align, offset_bytes: answer.stx_dio_offset_align }))
}

/// BLKROGET: whether a block device, or the disk it is a partition of, refuses writes.
pub fn block_is_read_only(file: &File) -> io::Result<bool> {
    /// `_IO(0x12, 94)` of linux/fs.h.
    const BLKROGET: libc::Ioctl = 0x125e;
    let mut flag: libc::c_int = 0;
    // SAFETY: BLKROGET writes one int to the pointer, which lives across the call.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), BLKROGET, &raw mut flag) };
    if result == 0 { Ok(flag != 0) } else { Err(io::Error::last_os_error()) }
}

/// BLKGETSIZE64: size of a block device.
pub fn block_size_bytes(file: &File) -> io::Result<u64> {
    /// `_IOR(0x12, 114, size_t)` of linux/fs.h on a 64-bit machine.
    const BLKGETSIZE64: libc::Ioctl = 0x8008_1272_u32 as libc::Ioctl;
    let mut size_bytes = 0u64;
    // SAFETY: BLKGETSIZE64 writes one u64 to the pointer, which lives across the call.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), BLKGETSIZE64, &raw mut size_bytes) };
    if result == 0 { Ok(size_bytes) } else { Err(io::Error::last_os_error()) }
}

/// LOOP_GET_STATUS64: device and inode of the file below a loop device. Asks that file's file system.
pub fn loop_file(device: &File) -> io::Result<(u64, u64)> {
    const LOOP_GET_STATUS64: libc::Ioctl = 0x4C05;
    // A `loop_info64` of linux/loop.h has 232 bytes. Device and inode are its first two words.
    let mut info = [0u64; 29];
    // SAFETY: LOOP_GET_STATUS64 writes one `loop_info64` to the pointer, which has room for it and lives across the call.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64, info.as_mut_ptr()) };
    if result == 0 { Ok((info[0], info[1])) } else { Err(io::Error::last_os_error()) }
}

/// F_OFD_SETLK: a shared lock of this open file description on one byte.
pub fn lock_byte(file: &File, byte: u64) -> io::Result<()> {
    let lock = byte_lock(libc::F_RDLCK, byte);
    // SAFETY: F_OFD_SETLK reads one `flock` from the pointer, which lives across the call.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// F_OFD_GETLK: whether another open file description has a lock on one byte.
pub fn is_byte_locked(file: &File, byte: u64) -> io::Result<bool> {
    let mut lock = byte_lock(libc::F_WRLCK, byte);
    // SAFETY: F_OFD_GETLK reads and writes one `flock` at the pointer, which lives across the call.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
    if result == 0 { Ok(lock.l_type != libc::F_UNLCK as libc::c_short) } else { Err(io::Error::last_os_error()) }
}

fn byte_lock(kind: libc::c_int, byte: u64) -> libc::flock {
    // SAFETY: `flock` is a plain structure of integers, of which all zeroes is a value; a process number of 0 is asked for.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    (lock.l_start, lock.l_len) = (byte as libc::off_t, 1);
    lock
}
