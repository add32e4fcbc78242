//! A device in memory, for tests.

use crate::blocking::check_range;
use crate::{BlockingDevice, DeviceError, Geometry, Operation};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// A device of zeroes in memory. Clones do not exist: share it by reference.
pub struct MemoryDevice {
    bytes: Mutex<Vec<u8>>,
    geometry: Geometry,
}

impl MemoryDevice {
    /// `size_bytes` of zeroes with 512-byte logical blocks.
    ///
    /// # Panics
    /// If the size is not a multiple of 512.
    pub fn new(size_bytes: u64) -> MemoryDevice {
        MemoryDevice::with_logical_block(size_bytes, 512)
    }

    /// The same with another logical block size.
    ///
    /// # Panics
    /// If the size is not a multiple of the logical block.
    pub fn with_logical_block(size_bytes: u64, logical_block_bytes: u32) -> MemoryDevice {
        assert!(size_bytes.is_multiple_of(u64::from(logical_block_bytes)), "whole logical blocks, not {size_bytes} bytes");
        MemoryDevice::from_bytes_with(vec![0; size_bytes as usize], logical_block_bytes)
    }

    /// A device with this content; zeroes are appended up to a whole 512-byte sector.
    pub fn from_bytes(mut bytes: Vec<u8>) -> MemoryDevice {
        bytes.resize(bytes.len().next_multiple_of(512), 0);
        MemoryDevice::from_bytes_with(bytes, 512)
    }

    fn from_bytes_with(bytes: Vec<u8>, logical_block_bytes: u32) -> MemoryDevice {
        let geometry = Geometry {
            size_bytes: bytes.len() as u64,
            logical_block_bytes,
            memory_alignment_bytes: 1,
            discard: true,
            discard_zeroes: true,
        };
        MemoryDevice { bytes: Mutex::new(bytes), geometry }
    }

    /// A copy of the whole content.
    pub fn to_vec(&self) -> Vec<u8> {
        self.with(|bytes| bytes.clone())
    }

    fn with<R>(&self, work: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        // A panic elsewhere cannot leave a `Vec<u8>` in a state that is not some bytes.
        work(&mut self.bytes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn range(
        &self,
        operation: Operation,
        offset_bytes: u64,
        length_bytes: u64,
        aligned: bool,
    ) -> Result<std::ops::Range<usize>, DeviceError> {
        check_range(operation, Path::new("memory"), self.geometry, offset_bytes, length_bytes, aligned)?;
        Ok(offset_bytes as usize..(offset_bytes + length_bytes) as usize)
    }
}

impl BlockingDevice for MemoryDevice {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn read_at(&self, offset_bytes: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let range = self.range(Operation::Read, offset_bytes, into.len() as u64, false)?;
        self.with(|bytes| into.copy_from_slice(&bytes[range]));
        Ok(())
    }

    fn write_at(&self, offset_bytes: u64, from: &[u8]) -> Result<(), DeviceError> {
        let range = self.range(Operation::Write, offset_bytes, from.len() as u64, true)?;
        self.with(|bytes| bytes[range].copy_from_slice(from));
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn discard(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), DeviceError> {
        let range = self.range(Operation::Discard, offset_bytes, length_bytes, true)?;
        self.with(|bytes| bytes[range].fill(0));
        Ok(())
    }

    fn write_zeroes(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), DeviceError> {
        let range = self.range(Operation::WriteZeroes, offset_bytes, length_bytes, true)?;
        self.with(|bytes| bytes[range].fill(0));
        Ok(())
    }
}
