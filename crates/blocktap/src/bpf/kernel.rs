//! The system calls behind the way `bpf`, and what they give: descriptors and mapped memory. All
//! `unsafe` of the crate is here.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// Commands of bpf(2), linux/bpf.h.
const BPF_MAP_CREATE: libc::c_long = 0;
const BPF_PROG_LOAD: libc::c_long = 5;
const BPF_OBJ_GET_INFO_BY_FD: libc::c_long = 15;
const BPF_ENABLE_STATS: libc::c_long = 32;

const BPF_MAP_TYPE_ARRAY: u32 = 2;
const BPF_MAP_TYPE_RINGBUF: u32 = 27;
const BPF_F_MMAPABLE: u32 = 1 << 10;
const BPF_PROG_TYPE_TRACEPOINT: u32 = 5;

/// `_IOW('$', 8, __u32)` and `_IO('$', 0)` of linux/perf_event.h.
const PERF_EVENT_IOC_SET_BPF: libc::Ioctl = 0x4004_2408;
const PERF_EVENT_IOC_ENABLE: libc::Ioctl = 0x2400;
const PERF_TYPE_TRACEPOINT: u32 = 2;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 1 << 3;

/// Shown by `bpftool`: whose these are.
const NAME: [u8; 16] = *b"hearth_tap\0\0\0\0\0\0";
/// The helpers that are called ask for a licence compatible with the GPL.
const LICENSE: &std::ffi::CStr = c"Dual MIT/GPL";
/// What the verifier may say when it refuses.
const LOG_BYTES: usize = 64 << 10;

/// Start of `union bpf_attr` for BPF_MAP_CREATE.
#[repr(C)]
#[derive(Default)]
struct MapAttributes {
    kind: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries_max: u32,
    flags: u32,
    inner_map: u32,
    numa_node: u32,
    name: [u8; 16],
}

/// For BPF_PROG_LOAD.
#[repr(C)]
#[derive(Default)]
struct ProgramAttributes {
    kind: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
}

/// For BPF_OBJ_GET_INFO_BY_FD.
#[repr(C)]
struct InfoAttributes {
    descriptor: u32,
    info_bytes: u32,
    info: u64,
}

/// Start of `struct bpf_prog_info`, as 64-bit words, up to what is read of it. Older kernels fill
/// less, and leave the rest as it was.
const INFO_WORDS: usize = 27;
const INFO_RUN_TIME_NS: usize = 192 / 8;
const INFO_RUNS: usize = 200 / 8;
const INFO_MISSES: usize = 208 / 8;

/// `struct perf_event_attr` in its first version, 64 bytes, which every kernel takes.
#[repr(C)]
#[derive(Default)]
struct PerfAttributes {
    kind: u32,
    bytes: u32,
    config: u64,
    rest: [u64; 6],
}

/// bpf(2). The attributes begin with what the command reads; the kernel takes what is behind them
/// as zeroes.
///
/// # Safety
/// Addresses in the attributes are valid for what the command does with them.
unsafe fn bpf<T>(command: libc::c_long, attributes: &mut T) -> io::Result<libc::c_int> {
    let (pointer, bytes) = (std::ptr::from_mut(attributes), size_of::<T>());
    // SAFETY: the kernel reads `bytes` bytes at the pointer, and for BPF_OBJ_GET_INFO_BY_FD writes
    // within them; what they point to is the caller's word.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, pointer, bytes) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as libc::c_int) }
}

/// A descriptor that a system call has just given us.
fn owned(descriptor: RawFd) -> OwnedFd {
    // SAFETY: it comes from a call that made it, and nothing else has it.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}

fn create_map(mut attributes: MapAttributes) -> io::Result<OwnedFd> {
    attributes.name = NAME;
    // SAFETY: the attributes of this command hold no address.
    unsafe { bpf(BPF_MAP_CREATE, &mut attributes) }.map(owned)
}

/// A ring buffer of `bytes`: a power of two, and whole pages.
pub fn create_ring(bytes: u32) -> io::Result<OwnedFd> {
    create_map(MapAttributes { kind: BPF_MAP_TYPE_RINGBUF, entries_max: bytes, ..Default::default() })
}

/// An array of one 64-bit number that can be mapped.
pub fn create_counter() -> io::Result<OwnedFd> {
    let kind = BPF_MAP_TYPE_ARRAY;
    create_map(MapAttributes { kind, key_bytes: 4, value_bytes: 8, entries_max: 1, flags: BPF_F_MMAPABLE, ..Default::default() })
}

/// Loads a program for tracepoints. What the verifier has against it comes as the error's text.
pub fn load_program(code: &[[u8; 8]]) -> io::Result<OwnedFd> {
    let attributes = |log: &mut [u8]| ProgramAttributes {
        kind: BPF_PROG_TYPE_TRACEPOINT,
        instruction_count: code.len() as u32,
        instructions: code.as_ptr() as u64,
        license: LICENSE.as_ptr() as u64,
        log_level: u32::from(!log.is_empty()),
        log_bytes: log.len() as u32,
        log: if log.is_empty() { 0 } else { log.as_mut_ptr() as u64 },
        name: NAME,
        ..Default::default()
    };
    // SAFETY: code and licence live across the call, with the lengths that are given; there is no
    // log.
    let error = match unsafe { bpf(BPF_PROG_LOAD, &mut attributes(&mut [])) } {
        Ok(descriptor) => return Ok(owned(descriptor)),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EACCES)) => error,
        Err(error) => return Err(error),
    };
    let mut log = vec![0; LOG_BYTES];
    // SAFETY: as above, and the kernel writes at most the length of the log to it.
    match unsafe { bpf(BPF_PROG_LOAD, &mut attributes(&mut log)) } {
        Ok(descriptor) => Ok(owned(descriptor)),
        Err(_) => {
            let text = String::from_utf8_lossy(&log);
            let said = text.trim_end_matches('\0').lines().rev().find(|line| !line.is_empty() && !line.starts_with("processed"));
            Err(said.map_or(error, |said| io::Error::new(io::ErrorKind::InvalidInput, said.to_owned())))
        }
    }
}

/// What the kernel counts of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProgramCounts {
    /// Time in it; only while statistics are on.
    pub run_time_ns: u64,
    /// Runs; likewise.
    pub runs: u64,
    /// Runs that were left out because another program ran on that processor; 0 on old kernels.
    pub misses: u64,
}

/// What the kernel counts of a program.
pub fn program_counts(program: BorrowedFd<'_>) -> io::Result<ProgramCounts> {
    let mut info = [0u64; INFO_WORDS];
    let (descriptor, info_bytes) = (program.as_raw_fd() as u32, size_of_val(&info) as u32);
    let mut attributes = InfoAttributes { descriptor, info_bytes, info: info.as_mut_ptr() as u64 };
    // SAFETY: the kernel writes at most `info_bytes` to `info`, which is that long. It reads it
    // too: as addresses of further buffers, which are all 0 with length 0.
    unsafe { bpf(BPF_OBJ_GET_INFO_BY_FD, &mut attributes) }?;
    Ok(ProgramCounts { run_time_ns: info[INFO_RUN_TIME_NS], runs: info[INFO_RUNS], misses: info[INFO_MISSES] })
}

/// Time of all programs of the machine is measured as long as the descriptor is open (Linux 5.8).
pub fn enable_statistics() -> io::Result<OwnedFd> {
    // BPF_STATS_RUN_TIME.
    let mut kind = 0u32;
    // SAFETY: the attributes of this command hold no address.
    unsafe { bpf(BPF_ENABLE_STATS, &mut kind) }.map(owned)
}

/// Runs the program at each event of the tracepoint `id`, on all processors, while the descriptor
/// is open. The perf event itself is of one processor and samples nothing.
pub fn attach(program: BorrowedFd<'_>, id: u64, processor: u32) -> io::Result<OwnedFd> {
    let mut attributes = PerfAttributes { kind: PERF_TYPE_TRACEPOINT, config: id, ..Default::default() };
    attributes.bytes = size_of::<PerfAttributes>() as u32;
    let (all_processes, no_group): (libc::pid_t, RawFd) = (-1, -1);
    let (pointer, processor) = (&raw mut attributes, processor as libc::c_int);
    // SAFETY: the kernel reads as many bytes at the pointer as the attributes say, which is their
    // size.
    let result = unsafe { libc::syscall(libc::SYS_perf_event_open, pointer, all_processes, processor, no_group, PERF_FLAG_FD_CLOEXEC) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    let event = owned(result as RawFd);
    // SAFETY: this ioctl takes a descriptor as its argument, no address.
    if unsafe { libc::ioctl(event.as_raw_fd(), PERF_EVENT_IOC_SET_BPF, program.as_raw_fd()) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: this ioctl takes no argument.
    if unsafe { libc::ioctl(event.as_raw_fd(), PERF_EVENT_IOC_ENABLE, 0) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(event)
}

/// Memory that is shared with the kernel, as 64-bit words.
pub struct Mapping {
    start: NonNull<AtomicU64>,
    bytes: usize,
}

// SAFETY: it is only memory, reached by atomic accesses; no thread has a part in it.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `bytes` of a map's memory from `offset` on; both are whole pages.
    pub fn new(map: BorrowedFd<'_>, offset: usize, bytes: usize, writable: bool) -> io::Result<Mapping> {
        assert!(bytes > 0 && bytes.is_multiple_of(rustix::param::page_size()), "{bytes} bytes are no whole pages");
        let protection = if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        let (anywhere, descriptor) = (std::ptr::null_mut(), map.as_raw_fd());
        let offset = libc::off_t::try_from(offset).expect("a small offset");
        // SAFETY: the kernel chooses the address, so no other memory of ours is replaced.
        let address = unsafe { libc::mmap(anywhere, bytes, protection, libc::MAP_SHARED, descriptor, offset) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Mapping { start: NonNull::new(address.cast()).expect("no mapping is at 0"), bytes })
    }

    /// The memory. Words of a read-only mapping must only be loaded.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is that long, begins at a page and lives as long as `self`. The
        // kernel changes it meanwhile, which atomics allow. A map's memory never becomes shorter.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes / size_of::<AtomicU64>()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and no reference into it outlives `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
