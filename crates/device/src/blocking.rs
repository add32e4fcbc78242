//! One call at a time: the device as format, recovery, checks and tests use it.
//!
//! Invariants: a call transfers everything or fails; EINTR and short transfers never reach the caller; nothing goes through
//! the page cache; once a flush has failed, the handle refuses further writes and flushes for good.

use crate::{AlignedBuffer, DeviceError, Operation};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Transfers larger than this are cut, so that a bounce buffer stays small. 1 MiB is the largest request devices take well.
const TRANSFER_BYTES_MAX: usize = 1 << 20;

/// What a device is, as far as its users must know.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Geometry {
    /// Usable size, a multiple of `logical_block_bytes`.
    pub size_bytes: u64,
    /// Writes must be multiples of this and start at one; what the device writes atomically. 512 or 4096, usually.
    pub logical_block_bytes: u32,
    /// Addresses of buffers must be multiples of this.
    pub memory_alignment_bytes: u32,
    /// Whether ranges can be given up. What a discarded range reads as afterwards is undefined but stable.
    pub discard: bool,
    /// Whether a discarded range is known to read as zeroes: files, whose discard is a hole, and block devices that can
    /// zero a range without a transfer. The system call is then fallocate(2) with PUNCH_HOLE and KEEP_SIZE for both.
    pub discard_zeroes: bool,
}

/// A device that does one thing at a time and returns when it is done. Calls from several threads are allowed; overlapping
/// ranges are then the callers' affair.
pub trait BlockingDevice: Send + Sync {
    /// Size and rules of this device; does not change while it is open.
    fn geometry(&self) -> Geometry;
    /// Fills `into` from `offset_bytes`, any offset and length inside the device.
    fn read_at(&self, offset_bytes: u64, into: &mut [u8]) -> Result<(), DeviceError>;
    /// Writes `from` at `offset_bytes`, both multiples of the logical block. Not durable before the next successful flush.
    fn write_at(&self, offset_bytes: u64, from: &[u8]) -> Result<(), DeviceError>;
    /// Makes all completed writes durable. A failure is final: see [`DeviceError::FlushFailedBefore`].
    fn flush(&self) -> Result<(), DeviceError>;
    /// Says that the range's content is no longer needed. Content afterwards is undefined; does nothing where the device
    /// cannot discard.
    fn discard(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), DeviceError>;
    /// Makes the range read as zeroes, cheaply if the device can. Durable after the next flush.
    fn write_zeroes(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), DeviceError>;
}

/// Refuses ranges outside the device, and (`aligned`) such as are not whole logical blocks.
pub(crate) fn check_range(
    operation: Operation,
    device: &Path,
    geometry: Geometry,
    offset_bytes: u64,
    length_bytes: u64,
    aligned: bool,
) -> Result<(), DeviceError> {
    let size_bytes = geometry.size_bytes;
    if offset_bytes.checked_add(length_bytes).is_none_or(|end| end > size_bytes) {
        let device = device.to_path_buf();
        return Err(DeviceError::OutOfRange { operation, device, offset_bytes, length_bytes, size_bytes });
    }
    let alignment_bytes = geometry.logical_block_bytes;
    if aligned && !(offset_bytes | length_bytes).is_multiple_of(u64::from(alignment_bytes)) {
        let device = device.to_path_buf();
        return Err(DeviceError::Misaligned { operation, device, offset_bytes, length_bytes, alignment_bytes });
    }
    Ok(())
}

/// The system calls a [`BlockingFile`] makes; the seam where tests inject short transfers and errors.
pub trait RawDevice: Send + Sync {
    /// As pread(2): may be short, may be interrupted.
    fn pread(&self, into: &mut [u8], offset_bytes: u64) -> io::Result<usize>;
    /// As pwrite(2): may be short, may be interrupted.
    fn pwrite(&self, from: &[u8], offset_bytes: u64) -> io::Result<usize>;
    /// As fdatasync(2).
    fn sync(&self) -> io::Result<()>;
    /// Gives up a range.
    fn discard(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<()>;
    /// Zeroes a range without a transfer; `Unsupported` makes the caller write zeroes instead.
    fn zero(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<()>;
}

/// A real file or block device, opened with O_DIRECT (see [`crate::open`]).
pub struct BlockingFile<R: RawDevice = OsDevice> {
    raw: R,
    path: PathBuf,
    geometry: Geometry,
    flush_failed: AtomicBool,
}

impl<R: RawDevice> BlockingFile<R> {
    /// A handle over `raw`, which must follow `geometry`; `path` is for messages.
    pub fn new(raw: R, path: PathBuf, geometry: Geometry) -> BlockingFile<R> {
        BlockingFile { raw, path, geometry, flush_failed: AtomicBool::new(false) }
    }

    /// The path given when it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn fail(&self, operation: Operation, offset_bytes: u64, length_bytes: u64, source: io::Error) -> DeviceError {
        DeviceError::Io { operation, device: self.path.clone(), offset_bytes, length_bytes, source }
    }

    fn check_not_failed(&self) -> Result<(), DeviceError> {
        if self.flush_failed.load(Ordering::Acquire) {
            return Err(DeviceError::FlushFailedBefore { device: self.path.clone() });
        }
        Ok(())
    }

    /// Both ends must be multiples of this for a transfer.
    fn transfer_alignment(&self) -> usize {
        self.geometry.logical_block_bytes as usize
    }

    fn is_direct(&self, address: *const u8, offset_bytes: u64, length_bytes: usize) -> bool {
        let alignment = self.transfer_alignment();
        (address as usize).is_multiple_of(self.geometry.memory_alignment_bytes as usize)
            && offset_bytes.is_multiple_of(alignment as u64)
            && length_bytes.is_multiple_of(alignment)
    }

    fn bounce(&self, length_bytes: usize) -> AlignedBuffer {
        AlignedBuffer::zeroed(length_bytes, (self.geometry.memory_alignment_bytes as usize).max(4096))
    }

    /// Reads exactly `into`, an aligned range into an aligned buffer.
    fn read_whole(&self, mut offset_bytes: u64, mut into: &mut [u8]) -> Result<(), DeviceError> {
        while !into.is_empty() {
            match self.raw.pread(into, offset_bytes) {
                Ok(0) => {
                    let device = self.path.clone();
                    return Err(DeviceError::UnexpectedEnd { operation: Operation::Read, device, offset_bytes });
                }
                Ok(count_bytes) => {
                    // A short transfer that ends inside a block is redone from that block's start, as O_DIRECT wants.
                    let done = whole_blocks(count_bytes, into.len(), self.transfer_alignment());
                    if done == 0 {
                        let device = self.path.clone();
                        return Err(DeviceError::UnexpectedEnd { operation: Operation::Read, device, offset_bytes });
                    }
                    offset_bytes += done as u64;
                    into = &mut into[done..];
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.fail(Operation::Read, offset_bytes, into.len() as u64, error)),
            }
        }
        Ok(())
    }

    /// Writes exactly `from`, an aligned range from an aligned buffer.
    fn write_whole(&self, mut offset_bytes: u64, mut from: &[u8]) -> Result<(), DeviceError> {
        while !from.is_empty() {
            match self.raw.pwrite(from, offset_bytes) {
                Ok(count_bytes) => {
                    let done = whole_blocks(count_bytes, from.len(), self.transfer_alignment());
                    if done == 0 {
                        let error = io::Error::new(io::ErrorKind::WriteZero, "the device took less than one block");
                        return Err(self.fail(Operation::Write, offset_bytes, from.len() as u64, error));
                    }
                    offset_bytes += done as u64;
                    from = &from[done..];
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.fail(Operation::Write, offset_bytes, from.len() as u64, error)),
            }
        }
        Ok(())
    }
}

/// How much of a transfer of `count_bytes` out of `wanted_bytes` counts: all, or the whole blocks of it.
fn whole_blocks(count_bytes: usize, wanted_bytes: usize, block_bytes: usize) -> usize {
    if count_bytes >= wanted_bytes { wanted_bytes } else { count_bytes - count_bytes % block_bytes }
}

impl<R: RawDevice> BlockingDevice for BlockingFile<R> {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn read_at(&self, offset_bytes: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        check_range(Operation::Read, &self.path, self.geometry, offset_bytes, into.len() as u64, false)?;
        if self.is_direct(into.as_ptr(), offset_bytes, into.len()) {
            return self.read_whole(offset_bytes, into);
        }
        let alignment = self.transfer_alignment() as u64;
        let (mut at, mut rest) = (offset_bytes, into);
        while !rest.is_empty() {
            let start = at - at % alignment;
            let head = (at - start) as usize;
            let piece = rest.len().min(TRANSFER_BYTES_MAX - head);
            let mut bounce = self.bounce((head + piece).next_multiple_of(alignment as usize));
            self.read_whole(start, &mut bounce)?;
            rest[..piece].copy_from_slice(&bounce[head..head + piece]);
            at += piece as u64;
            rest = &mut rest[piece..];
        }
        Ok(())
    }

    fn write_at(&self, offset_bytes: u64, from: &[u8]) -> Result<(), DeviceError> {
        check_range(Operation::Write, &self.path, self.geometry, offset_bytes, from.len() as u64, true)?;
        self.check_not_failed()?;
        if self.is_direct(from.as_ptr(), offset_bytes, from.len()) {
            return self.write_whole(offset_bytes, from);
        }
        let mut at = offset_bytes;
        for piece in from.chunks(TRANSFER_BYTES_MAX) {
            let mut bounce = self.bounce(piece.len());
            bounce.copy_from_slice(piece);
            self.write_whole(at, &bounce)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.check_not_failed()?;
        // No retry, not even after EINTR: a flush that did not succeed may have dropped what it was to save.
        self.raw.sync().map_err(|error| {
            self.flush_failed.store(true, Ordering::Release);
            self.fail(Operation::Flush, 0, self.geometry.size_bytes, error)
        })
    }

    fn discard(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), DeviceError> {
        check_range(Operation::Discard, &self.path, self.geometry, offset_bytes, length_bytes, true)?;
        self.check_not_failed()?;
        if !self.geometry.discard || length_bytes == 0 {
            return Ok(());
        }
        self.raw.discard(offset_bytes, length_bytes).map_err(|error| self.fail(Operation::Discard, offset_bytes, length_bytes, error))
    }

    fn write_zeroes(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), DeviceError> {
        check_range(Operation::WriteZeroes, &self.path, self.geometry, offset_bytes, length_bytes, true)?;
        self.check_not_failed()?;
        if length_bytes == 0 {
            return Ok(());
        }
        match self.raw.zero(offset_bytes, length_bytes) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {}
            Err(error) => return Err(self.fail(Operation::WriteZeroes, offset_bytes, length_bytes, error)),
        }
        let zeroes = self.bounce(length_bytes.min(TRANSFER_BYTES_MAX as u64) as usize);
        let end = offset_bytes + length_bytes;
        let mut at = offset_bytes;
        while at < end {
            let piece = (end - at).min(zeroes.len() as u64);
            self.write_whole(at, &zeroes[..piece as usize])?;
            at += piece;
        }
        Ok(())
    }
}

/// The operating system's own calls on an open file or block device.
pub struct OsDevice {
    file: File,
    is_block_device: bool,
    punches_zeroes: bool,
}

impl OsDevice {
    /// Calls on `file`. `punches_zeroes`: [`Geometry::discard_zeroes`].
    pub fn new(file: File, is_block_device: bool, punches_zeroes: bool) -> OsDevice {
        OsDevice { file, is_block_device, punches_zeroes }
    }

    /// The open file, for those who submit I/O in their own way.
    pub fn file(&self) -> &File {
        &self.file
    }
}

impl RawDevice for OsDevice {
    fn pread(&self, into: &mut [u8], offset_bytes: u64) -> io::Result<usize> {
        Ok(rustix::io::pread(&self.file, into, offset_bytes)?)
    }

    fn pwrite(&self, from: &[u8], offset_bytes: u64) -> io::Result<usize> {
        Ok(rustix::io::pwrite(&self.file, from, offset_bytes)?)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fdatasync(&self.file)?)
    }

    fn discard(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<()> {
        use rustix::fs::FallocateFlags;
        if self.is_block_device && !self.punches_zeroes {
            return crate::sys::block_discard(&self.file, offset_bytes, length_bytes);
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(&self.file, flags, offset_bytes, length_bytes) {
            // It was a hint: a device that cannot take it keeps the content.
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => Ok(()),
            other => Ok(other?),
        }
    }

    fn zero(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<()> {
        use rustix::fs::FallocateFlags;
        // On a block device the kernel turns this into a zero-out, on a file into unwritten extents.
        let flags = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(&self.file, flags, offset_bytes, length_bytes) {
            Ok(()) => Ok(()),
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => Err(io::ErrorKind::Unsupported.into()),
            Err(errno) => Err(errno.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::workload::Random;
    use std::sync::Mutex;

    const GEOMETRY: Geometry =
        Geometry { size_bytes: 64 << 10, logical_block_bytes: 512, memory_alignment_bytes: 512, discard: true, discard_zeroes: false };

    /// Bytes in memory behind calls that are short, interrupted, and checked for alignment.
    struct Flaky {
        bytes: Mutex<Vec<u8>>,
        random: Mutex<Random>,
        sync_errors: Mutex<Vec<i32>>,
    }

    impl Flaky {
        fn handle(seed: u64) -> BlockingFile<Flaky> {
            let bytes = Mutex::new((0..GEOMETRY.size_bytes).map(|at| (at / 7) as u8).collect());
            let raw = Flaky { bytes, random: Mutex::new(Random::new(seed)), sync_errors: Mutex::new(Vec::new()) };
            BlockingFile::new(raw, PathBuf::from("flaky"), GEOMETRY)
        }

        /// How much of a transfer happens: an error, a few bytes, a few blocks, or everything.
        fn draw(&self, address: *const u8, offset_bytes: u64, length_bytes: usize) -> io::Result<usize> {
            assert!((address as usize).is_multiple_of(512) && (offset_bytes | length_bytes as u64).is_multiple_of(512));
            let mut random = self.random.lock().unwrap();
            match random.below(4) {
                0 => Err(io::ErrorKind::Interrupted.into()),
                1 => Ok((512 + random.below(length_bytes as u64) as usize).min(length_bytes)),
                2 => Ok(512),
                _ => Ok(length_bytes),
            }
        }
    }

    impl RawDevice for Flaky {
        fn pread(&self, into: &mut [u8], offset_bytes: u64) -> io::Result<usize> {
            let count = self.draw(into.as_ptr(), offset_bytes, into.len())?;
            into[..count].copy_from_slice(&self.bytes.lock().unwrap()[offset_bytes as usize..][..count]);
            Ok(count)
        }

        fn pwrite(&self, from: &[u8], offset_bytes: u64) -> io::Result<usize> {
            let count = self.draw(from.as_ptr(), offset_bytes, from.len())?;
            self.bytes.lock().unwrap()[offset_bytes as usize..][..count].copy_from_slice(&from[..count]);
            Ok(count)
        }

        fn sync(&self) -> io::Result<()> {
            self.sync_errors.lock().unwrap().pop().map_or(Ok(()), |errno| Err(io::Error::from_raw_os_error(errno)))
        }

        fn discard(&self, _offset_bytes: u64, _length_bytes: u64) -> io::Result<()> {
            Ok(())
        }

        fn zero(&self, _offset_bytes: u64, _length_bytes: u64) -> io::Result<()> {
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    #[test]
    fn short_and_interrupted_transfers_are_completed() {
        for seed in 0..200 {
            let device = Flaky::handle(seed);
            let mut random = Random::new(seed + 1000);
            let mut expected: Vec<u8> = device.raw.bytes.lock().unwrap().clone();
            for _ in 0..20 {
                let start = random.below(GEOMETRY.size_bytes / 512);
                let blocks = 1 + random.below(GEOMETRY.size_bytes / 512 - start);
                let range = (start * 512) as usize..((start + blocks) * 512) as usize;
                match random.below(3) {
                    0 => {
                        let data: Vec<u8> = range.clone().map(|_| random.bits() as u8).collect();
                        device.write_at(range.start as u64, &data).expect("written");
                        expected[range].copy_from_slice(&data);
                    }
                    1 => {
                        device.write_zeroes(range.start as u64, range.len() as u64).expect("zeroed");
                        expected[range].fill(0);
                    }
                    _ => {
                        let cut = random.below(range.len() as u64) as usize;
                        let range = range.start + cut..range.end;
                        let mut data = vec![0; range.len()];
                        device.read_at(range.start as u64, &mut data).expect("read");
                        assert!(data == expected[range], "seed {seed}");
                    }
                }
            }
            assert!(*device.raw.bytes.lock().unwrap() == expected, "seed {seed}");
        }
    }

    #[test]
    fn ranges_outside_and_half_blocks_are_refused() {
        let device = Flaky::handle(1);
        let end = GEOMETRY.size_bytes;
        assert!(matches!(device.read_at(end - 1, &mut [0; 2]), Err(DeviceError::OutOfRange { .. })));
        assert!(matches!(device.read_at(u64::MAX, &mut [0; 2]), Err(DeviceError::OutOfRange { .. })));
        assert!(matches!(device.write_at(end, &[0; 512]), Err(DeviceError::OutOfRange { .. })));
        assert!(matches!(device.write_at(0, &[0; 100]), Err(DeviceError::Misaligned { .. })));
        assert!(matches!(device.discard(256, 512), Err(DeviceError::Misaligned { .. })));
        assert!(device.read_at(end, &mut []).is_ok());
    }

    #[test]
    fn a_failed_flush_is_final() {
        for errno in [libc::EIO, libc::ENOSPC, libc::EINTR] {
            let device = Flaky::handle(1);
            device.write_at(0, &[1; 512]).expect("written");
            device.raw.sync_errors.lock().unwrap().push(errno);
            assert_eq!(device.flush().expect_err("injected").errno(), errno);
            // The device would say yes now; the handle does not ask.
            assert!(matches!(device.flush(), Err(DeviceError::FlushFailedBefore { .. })));
            assert!(matches!(device.write_at(0, &[1; 512]), Err(DeviceError::FlushFailedBefore { .. })));
            assert!(matches!(device.write_zeroes(0, 512), Err(DeviceError::FlushFailedBefore { .. })));
            assert!(matches!(device.discard(0, 512), Err(DeviceError::FlushFailedBefore { .. })));
            assert!(device.read_at(0, &mut [0; 512]).is_ok(), "what is there can be saved");
        }
    }

    #[test]
    fn a_device_that_shrank_is_noticed() {
        struct Shrunk;
        impl RawDevice for Shrunk {
            fn pread(&self, _: &mut [u8], _: u64) -> io::Result<usize> {
                Ok(0)
            }
            fn pwrite(&self, _: &[u8], _: u64) -> io::Result<usize> {
                Err(io::Error::from_raw_os_error(libc::ENOSPC))
            }
            fn sync(&self) -> io::Result<()> {
                Ok(())
            }
            fn discard(&self, _: u64, _: u64) -> io::Result<()> {
                Ok(())
            }
            fn zero(&self, _: u64, _: u64) -> io::Result<()> {
                Ok(())
            }
        }
        let device = BlockingFile::new(Shrunk, PathBuf::from("shrunk"), GEOMETRY);
        let error = device.read_at(4096, &mut [0; 4096]).expect_err("it ended");
        assert!(error.to_string().contains("smaller than when it was opened"), "{error}");
        assert_eq!(device.write_at(0, &[0; 512]).expect_err("no room").errno(), libc::ENOSPC);
    }
}
