//! A block device around the page cache: every request is one request to the device.

use crate::registers::Port;
use std::fs::{File, OpenOptions};
use std::io::Result;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

/// What O_DIRECT asks of memory, on any device.
const ALIGNMENT_BYTES: usize = 4096;

/// Longest request.
const REQUEST_BYTES_MAX: usize = 64 << 10;

/// A device opened with O_DIRECT, and memory that is aligned as that demands.
#[derive(Debug)]
pub struct Direct {
    device: File,
    memory: Vec<u8>,
}

impl Direct {
    /// Opens a block device.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn open(path: &str) -> Result<Direct> {
        let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
        let device = OpenOptions::new().read(true).write(true).custom_flags(direct).open(path)?;
        Ok(Direct { device, memory: vec![0; REQUEST_BYTES_MAX + ALIGNMENT_BYTES] })
    }

    fn aligned(&mut self, bytes: usize) -> (&File, &mut [u8]) {
        let start = self.memory.as_ptr().align_offset(ALIGNMENT_BYTES);
        (&self.device, &mut self.memory[start..start + bytes])
    }
}

impl Port for Direct {
    fn read(&mut self, offset: u64, data: &mut [u8]) -> Result<()> {
        let (device, memory) = self.aligned(data.len());
        device.read_exact_at(memory, offset)?;
        data.copy_from_slice(memory);
        Ok(())
    }

    /// FUA is not asked for: a flush of its own follows often enough.
    fn write(&mut self, offset: u64, data: &[u8], _fua: bool) -> Result<()> {
        let (device, memory) = self.aligned(data.len());
        memory.copy_from_slice(data);
        device.write_all_at(memory, offset)
    }

    fn flush(&mut self) -> Result<()> {
        self.device.sync_data()
    }
}
