//! A device that fails on command, for tests.

use crate::{BlockingDevice, DeviceError, Geometry, Operation};
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

/// Which operations fail, and how. An operation fails if it satisfies every condition that is set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Counted from 1 over all operations of the device.
    pub numbers: Range<u64>,
    /// Only operations of this kind; `None` for all.
    pub operation: Option<Operation>,
    /// Only operations that touch this byte range; `None` for all. A flush touches nothing.
    pub range_bytes: Option<Range<u64>>,
    /// The error number given.
    pub errno: i32,
}

impl Fault {
    /// Nothing fails; for counting operations.
    pub const fn never() -> Fault {
        Fault { numbers: 0..0, operation: None, range_bytes: None, errno: libc::EIO }
    }

    /// The `n`-th operation fails with EIO, all others work.
    pub const fn nth(n: u64) -> Fault {
        Fault { numbers: n..n + 1, ..Fault::never() }
    }

    /// The `n`-th operation and all after it fail with EIO.
    pub const fn from_nth(n: u64) -> Fault {
        Fault { numbers: n..u64::MAX, ..Fault::never() }
    }

    /// Every operation that touches the range fails with EIO.
    pub const fn in_range(range_bytes: Range<u64>) -> Fault {
        Fault { range_bytes: Some(range_bytes), ..Fault::from_nth(1) }
    }

    /// The same for operations of one kind only.
    pub const fn only(mut self, operation: Operation) -> Fault {
        self.operation = Some(operation);
        self
    }

    /// The same with another error number.
    pub const fn with_errno(mut self, errno: i32) -> Fault {
        self.errno = errno;
        self
    }

    fn strikes(&self, number: u64, operation: Operation, range: &Range<u64>) -> bool {
        let touches = |wanted: &Range<u64>| range.start < wanted.end && wanted.start < range.end;
        self.numbers.contains(&number)
            && self.operation.is_none_or(|wanted| wanted == operation)
            && self.range_bytes.as_ref().is_none_or(touches)
    }
}

/// A device in front of another that lets operations through or fails them. A failed operation does not reach the other.
pub struct FailingDevice<D: BlockingDevice> {
    inner: D,
    fault: Fault,
    operations: AtomicU64,
    failures: AtomicU64,
}

impl<D: BlockingDevice> FailingDevice<D> {
    /// Fails operations on `inner` as `fault` says.
    pub fn new(inner: D, fault: Fault) -> FailingDevice<D> {
        FailingDevice { inner, fault, operations: AtomicU64::new(0), failures: AtomicU64::new(0) }
    }

    /// Operations seen so far, failed ones included.
    pub fn operations(&self) -> u64 {
        self.operations.load(Ordering::Relaxed)
    }

    /// Operations failed so far: a test of the n-th failure is over when an attempt ends with none.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// The device behind, as it is after the failures.
    pub fn into_inner(self) -> D {
        self.inner
    }

    fn pass(&self, operation: Operation, offset_bytes: u64, length_bytes: u64) -> Result<(), DeviceError> {
        let number = self.operations.fetch_add(1, Ordering::Relaxed) + 1;
        let range = offset_bytes..offset_bytes.saturating_add(length_bytes);
        if !self.fault.strikes(number, operation, &range) {
            return Ok(());
        }
        self.failures.fetch_add(1, Ordering::Relaxed);
        let source = io::Error::from_raw_os_error(self.fault.errno);
        Err(DeviceError::Io { operation, device: PathBuf::from("failing"), offset_bytes, length_bytes, source })
    }
}

impl<D: BlockingDevice> BlockingDevice for FailingDevice<D> {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn read_at(&self, offset_bytes: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        self.pass(Operation::Read, offset_bytes, into.len() as u64)?;
        self.inner.read_at(offset_bytes, into)
    }

    fn write_at(&self, offset_bytes: u64, from: &[u8]) -> Result<(), DeviceError> {
        self.pass(Operation::Write, offset_bytes, from.len() as u64)?;
        self.inner.write_at(offset_bytes, from)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.pass(Operation::Flush, 0, 0)?;
        self.inner.flush()
    }

    fn discard(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), DeviceError> {
        self.pass(Operation::Discard, offset_bytes, length_bytes)?;
        self.inner.discard(offset_bytes, length_bytes)
    }

    fn write_zeroes(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), DeviceError> {
        self.pass(Operation::WriteZeroes, offset_bytes, length_bytes)?;
        self.inner.write_zeroes(offset_bytes, length_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryDevice;

    /// Which of ten operations (write, read, flush in turn, each on its own block) fail.
    fn failures(fault: Fault) -> Vec<u64> {
        let device = FailingDevice::new(MemoryDevice::new(1 << 20), fault);
        (1..=10)
            .filter(|number| {
                let offset = number * 4096;
                let result = match number % 3 {
                    0 => device.flush(),
                    1 => device.write_at(offset, &[*number as u8; 4096]),
                    _ => device.read_at(offset, &mut [0; 4096]),
                };
                result.is_err()
            })
            .collect()
    }

    #[test]
    fn faults_strike_where_they_should() {
        assert_eq!(failures(Fault::never()), [0; 0]);
        assert_eq!(failures(Fault::nth(4)), [4]);
        assert_eq!(failures(Fault::from_nth(8)), [8, 9, 10]);
        assert_eq!(failures(Fault::from_nth(1).only(Operation::Flush)), [3, 6, 9]);
        assert_eq!(failures(Fault::in_range(4 * 4096..5 * 4096 + 1)), [4, 5]);
        assert_eq!(failures(Fault::in_range(0..1 << 20).only(Operation::Write)), [1, 4, 7, 10]);
    }

    #[test]
    fn a_failed_write_does_not_arrive_and_is_counted() {
        let device = FailingDevice::new(MemoryDevice::new(8192), Fault::nth(2).with_errno(libc::ENOSPC));
        device.write_at(0, &[1; 512]).expect("the first works");
        assert_eq!(device.write_at(512, &[2; 512]).expect_err("the second fails").errno(), libc::ENOSPC);
        device.write_at(1024, &[3; 512]).expect("the third works");
        assert_eq!((device.operations(), device.failures()), (3, 1));
        let bytes = device.into_inner().to_vec();
        assert_eq!((bytes[0], bytes[512], bytes[1024]), (1, 0, 3));
    }
}
