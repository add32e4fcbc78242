//! One mapping of a file that a front end gave.

use crate::guard::Guard;
use rustix::fs::{FileType, fstat, fstatfs};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;

const TMPFS_MAGIC: u64 = 0x0102_1994;
const HUGETLBFS_MAGIC: u64 = 0x9584_58f6;

/// A part of a shared file, mapped for reading and writing. What others do to its content and its length is their affair: all
/// access is by copies of plain bytes or by atomics, and a file that became shorter is the guard's.
#[derive(Debug)]
pub(crate) struct Mapping {
    /// Ends before the memory is unmapped.
    guard: Option<Guard>,
    mapped: NonNull<u8>,
    mapped_bytes: usize,
    start: NonNull<u8>,
    bytes: u64,
}

// SAFETY: the memory is shared with other processes anyway; see the type.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `bytes` bytes of `file` from `offset` on.
    ///
    /// # Errors
    /// If the file is none in memory (a page of any other could take as long to come as its server likes), or is too short, or the system
    /// refuses.
    pub(crate) fn new(file: &OwnedFd, offset: u64, bytes: u64) -> io::Result<Mapping> {
        let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, what.to_owned());
        let facts = fstat(file)?;
        if FileType::from_raw_mode(facts.st_mode) != FileType::RegularFile {
            return Err(invalid("is no file in memory: give the virtual machine a memory backend of kind memfd with share=on"));
        }
        let system = fstatfs(file)?;
        let granule = match system.f_type as u64 {
            TMPFS_MAGIC => rustix::param::page_size() as u64,
            HUGETLBFS_MAGIC => system.f_bsize as u64,
            _ => return Err(invalid("lies on a disk: give the virtual machine a memory backend of kind memfd with share=on")),
        };
        let end = offset.checked_add(bytes).filter(|end| *end <= facts.st_size as u64);
        let Some(end) = end.filter(|_| bytes > 0 && granule.is_power_of_two()) else {
            return Err(invalid("is shorter than what is to be used of it"));
        };
        let first = offset / granule * granule;
        let mapped_bytes = usize::try_from((end - first).next_multiple_of(granule)).map_err(|_| invalid("is too long"))?;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::NORESERVE);
        // SAFETY: a new mapping, at a place that the kernel chooses.
        let mapped = unsafe { mmap(std::ptr::null_mut(), mapped_bytes, protection, flags, file, first)? };
        let mapped = NonNull::new(mapped.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: the offset lies within what was mapped.
        let start = unsafe { mapped.add((offset - first) as usize) };
        let mut mapping = Mapping { guard: None, mapped, mapped_bytes, start, bytes };
        mapping.guard = Some(Guard::new(mapped.as_ptr() as usize, mapped_bytes)?);
        // Guests' memory is not ours to dump. SAFETY: no effect on what the memory holds.
        let advised = unsafe { madvise(mapped.as_ptr().cast(), mapped_bytes, Advice::LinuxDontDump) };
        if let Err(error) = advised {
            tracing::debug!(%error, "guest memory will be part of core dumps");
        }
        Ok(mapping)
    }

    /// Where it begins, and for how long it may be accessed.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether its file became shorter than it.
    pub(crate) fn is_struck(&self) -> bool {
        self.guard.as_ref().is_some_and(Guard::is_struck)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.guard = None;
        // SAFETY: it was mapped with this length, and nothing holds a pointer into it longer than this value.
        if let Err(error) = unsafe { munmap(self.mapped.as_ptr().cast(), self.mapped_bytes) } {
            tracing::warn!(%error, "guest memory stays mapped");
        }
    }
}
