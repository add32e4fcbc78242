//! The SSD as the engine's blocking code sees it, over the device crate's blocking handle.

use device::{BlockingDevice, BlockingFile, DeviceError};
use engine::medium::{Medium, MediumError};

/// A [`Medium`] on a real device.
pub struct SsdMedium {
    device: BlockingFile,
}

impl SsdMedium {
    /// Over an open device.
    pub fn new(device: BlockingFile) -> SsdMedium {
        SsdMedium { device }
    }
}

fn translated(operation: &'static str, offset_bytes: u64) -> impl Fn(DeviceError) -> MediumError {
    move |error| MediumError { operation, offset_bytes, errno: error.errno() }
}

impl Medium for SsdMedium {
    fn size_bytes(&self) -> u64 {
        self.device.geometry().size_bytes / types::BLOCK_BYTES * types::BLOCK_BYTES
    }

    fn read(&mut self, offset_bytes: u64, into: &mut [u8]) -> Result<(), MediumError> {
        self.device.read_at(offset_bytes, into).map_err(translated("read", offset_bytes))
    }

    fn write(&mut self, offset_bytes: u64, from: &[u8]) -> Result<(), MediumError> {
        self.device.write_at(offset_bytes, from).map_err(translated("write", offset_bytes))
    }

    fn flush(&mut self) -> Result<(), MediumError> {
        self.device.flush().map_err(translated("flush", 0))
    }

    fn discard(&mut self, offset_bytes: u64, length_bytes: u64) -> Result<(), MediumError> {
        self.device.discard(offset_bytes, length_bytes).map_err(translated("discard", offset_bytes))
    }
}
