//! Memory that is shared with the device.

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

/// What the guest calls its first byte. Not 0, so that addresses and offsets are not mistaken for each other unnoticed.
pub const GUEST_BASE: u64 = 0x10_0000;
/// What the front end says that it calls the first byte.
pub const USER_BASE: u64 = 0x7000_0000_0000;

/// A memfd, mapped. Offsets are from its beginning.
#[derive(Debug)]
pub struct Memory {
    file: OwnedFd,
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the memory is shared with another process anyway; this side writes to disjoint parts by its own order.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// New memory, all zeroes.
    ///
    /// # Errors
    /// The system's.
    pub fn new(bytes: usize) -> io::Result<Memory> {
        let file = memfd_create("guest-memory", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, bytes as u64)?;
        // SAFETY: a new mapping, at a place that the kernel chooses.
        let start = unsafe { mmap(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &file, 0)? };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Memory { file, start, bytes })
    }

    /// The file behind it.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Its length.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where an offset lies.
    ///
    /// # Panics
    /// If `bytes` bytes from there on are not inside.
    pub fn at(&self, offset: usize, bytes: usize) -> NonNull<u8> {
        assert!(offset.checked_add(bytes).is_some_and(|end| end <= self.bytes), "{bytes} bytes at {offset} of {}", self.bytes);
        // SAFETY: just checked.
        unsafe { self.start.add(offset) }
    }

    /// Copies in.
    pub fn write(&self, offset: usize, from: &[u8]) {
        // SAFETY: inside, and `from` is memory of its own.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), self.at(offset, from.len()).as_ptr(), from.len()) }
    }

    /// Copies out.
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        // SAFETY: inside, and `into` is memory of its own.
        unsafe { std::ptr::copy_nonoverlapping(self.at(offset, into.len()).as_ptr(), into.as_mut_ptr(), into.len()) }
    }

    /// A word that both sides use.
    ///
    /// # Panics
    /// If it lies between words.
    pub fn word(&self, offset: usize) -> &AtomicU16 {
        assert!(offset.is_multiple_of(2), "a word at {offset}");
        // SAFETY: inside and aligned, and reached as an atomic by both sides.
        unsafe { AtomicU16::from_ptr(self.at(offset, 2).as_ptr().cast()) }
    }

    /// A word's value now.
    pub fn load(&self, offset: usize) -> u16 {
        u16::from_le(self.word(offset).load(Ordering::Acquire))
    }

    /// Changes a word.
    pub fn store(&self, offset: usize, value: u16) {
        self.word(offset).store(value.to_le(), Ordering::Release);
    }

    /// Reads four bytes as a number.
    pub fn load_u32(&self, offset: usize) -> u32 {
        let mut bytes = [0; 4];
        self.read(offset, &mut bytes);
        u32::from_le_bytes(bytes)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped with this length; nothing refers into it any more.
        if let Err(error) = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) } {
            eprintln!("guest memory stays mapped: {error}");
        }
    }
}
