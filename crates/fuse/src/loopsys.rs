//! The loop driver's system calls (`include/uapi/linux/loop.h`).

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

const LOOP_CLR_FD: libc::c_ulong = 0x4C01;
const LOOP_SET_STATUS64: libc::c_ulong = 0x4C04;
const LOOP_GET_STATUS64: libc::c_ulong = 0x4C05;
const LOOP_SET_CAPACITY: libc::c_ulong = 0x4C07;
const LOOP_CONFIGURE: libc::c_ulong = 0x4C0A;
const LOOP_CTL_GET_FREE: libc::c_ulong = 0x4C82;
const FLAG_AUTOCLEAR: u32 = 4;
const FLAG_PARTITION_SCAN: u32 = 8;
const FLAG_DIRECT_IO: u32 = 16;

/// `struct loop_info64`.
#[derive(Clone)]
#[repr(C)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config`.
#[repr(C)]
pub(crate) struct LoopConfig {
    file: u32,
    block_bytes: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<LoopInfo>() == 232 && size_of::<LoopConfig>() == 304);

const NO_INFO: LoopInfo = LoopInfo {
    device: 0,
    inode: 0,
    rdevice: 0,
    offset: 0,
    size_limit: 0,
    number: 0,
    encrypt_type: 0,
    encrypt_key_size: 0,
    flags: 0,
    file_name: [0; 64],
    crypt_name: [0; 64],
    encrypt_key: [0; 32],
    init: [0; 2],
};

/// As much of a name as the kernel keeps.
pub(crate) const NAME_BYTES_MAX: usize = NO_INFO.file_name.len() - 1;

impl LoopConfig {
    /// Direct I/O over `file`, with the partitions that the kernel finds. `name` is what the kernel keeps with the device (cut at 63
    /// bytes). The file must stay open until the configuration is used.
    ///
    /// The driver is never told that the device is read-only: it would hold to that as long as the device is there.
    pub(crate) fn new(file: &File, block_bytes: u32, name: &[u8]) -> LoopConfig {
        let mut info = NO_INFO;
        info.flags = FLAG_DIRECT_IO | FLAG_PARTITION_SCAN;
        let name = cut_name(name);
        info.file_name[..name.len()].copy_from_slice(name);
        LoopConfig { file: file.as_raw_fd() as u32, block_bytes, info, reserved: [0; 8] }
    }
}

/// As much of a name as a loop device remembers.
pub(crate) fn cut_name(name: &[u8]) -> &[u8] {
    &name[..name.len().min(NAME_BYTES_MAX)]
}

/// What the kernel knows of a device: together, whose it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LoopFacts {
    /// The file's device and inode.
    pub(crate) file: (u64, u64),
    /// The name that it was configured with, cut as by [`cut_name`].
    pub(crate) name: Vec<u8>,
}

/// Asks about a device; `ENXIO` if there is nothing attached.
pub(crate) fn facts(device: &File) -> io::Result<LoopFacts> {
    let mut info = NO_INFO;
    // SAFETY: the kernel writes a `loop_info64`, for which this has room.
    check(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64, std::ptr::from_mut(&mut info)) })?;
    let name = info.file_name.into_iter().take_while(|byte| *byte != 0).collect();
    Ok(LoopFacts { file: (info.device, info.inode), name })
}

/// Reads the first page past the page cache.
pub(crate) fn read_first_page(device: &Path) -> io::Result<Box<[u8]>> {
    let file = std::fs::OpenOptions::new().read(true).custom_flags(libc::O_DIRECT | libc::O_CLOEXEC).open(device)?;
    let mut page = page_of_zeroes();
    file.read_exact_at(&mut page.0, 0)?;
    Ok(Box::new(page.0))
}

#[repr(align(4096))]
struct Page([u8; 4096]);

fn page_of_zeroes() -> Box<Page> {
    Box::new(Page([0; 4096]))
}

/// The number of a device that was free a moment ago.
pub(crate) fn get_free(control: &File) -> io::Result<u32> {
    // SAFETY: this request takes no argument.
    let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
    u32::try_from(number).map_err(|_| io::Error::last_os_error())
}

/// Attaches; `EBUSY` if the device has a file already.
pub(crate) fn configure(device: &File, config: &LoopConfig) -> io::Result<()> {
    // SAFETY: the kernel reads a `loop_config`, which this is.
    check(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, std::ptr::from_ref(config)) })
}

/// Detaches at the last close; `ENXIO` if there is nothing attached.
pub(crate) fn clear(device: &File) -> io::Result<()> {
    // SAFETY: this request takes no argument.
    check(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CLR_FD) })
}

/// Takes a [`clear`] back that has not come to effect because the device is open elsewhere.
pub(crate) fn keep(device: &File) -> io::Result<()> {
    let mut info = NO_INFO;
    // SAFETY: the kernel writes a `loop_info64`, for which this has room.
    check(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64, std::ptr::from_mut(&mut info)) })?;
    info.flags &= !FLAG_AUTOCLEAR;
    // SAFETY: the kernel reads a `loop_info64`, which this is.
    check(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_SET_STATUS64, std::ptr::from_ref(&info)) })
}

/// Has the driver look at the size of the file below, and make the device as large.
pub(crate) fn set_capacity(device: &File) -> io::Result<()> {
    // SAFETY: this request takes no argument.
    check(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_SET_CAPACITY, 0) })
}

/// How large the device is.
pub(crate) fn size_bytes(device: &File) -> io::Result<u64> {
    const BLKGETSIZE64: libc::c_ulong = 0x8008_1272;
    let mut size_bytes = 0_u64;
    // SAFETY: the kernel writes a `u64`, for which this has room.
    check(unsafe { libc::ioctl(device.as_raw_fd(), BLKGETSIZE64, std::ptr::from_mut(&mut size_bytes)) })?;
    Ok(size_bytes)
}

/// Makes the block device node `path` for `numbers` ("7:3").
pub(crate) fn make_node(path: &Path, numbers: &str) -> io::Result<()> {
    let parsed = numbers.split_once(':').and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    let (major, minor) = parsed.ok_or(io::ErrorKind::NotFound)?;
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: a NUL-terminated path.
    check(unsafe { libc::mknod(path.as_ptr(), libc::S_IFBLK | 0o600, libc::makedev(major, minor)) })
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
