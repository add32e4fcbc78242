//! The SSD for management code: blocking, over the device crate's handle.

use device::{BlockingDevice, DeviceError};
use engine::medium::{Medium, MediumError};
use types::BLOCK_BYTES;

/// A blocking device as format, recovery and checkpoints want it. Never used on the data path: while shards run on the same SSD, only
/// the superblock may be touched through it.
pub struct SsdMedium<D: BlockingDevice>(pub D);

fn told(operation: &'static str, offset_bytes: u64) -> impl Fn(DeviceError) -> MediumError {
    move |error| MediumError { operation, offset_bytes, errno: error.errno() }
}

impl<D: BlockingDevice> Medium for SsdMedium<D> {
    fn size_bytes(&self) -> u64 {
        let size_bytes = self.0.geometry().size_bytes;
        size_bytes - size_bytes % BLOCK_BYTES
    }

    fn read(&mut self, offset_bytes: u64, into: &mut [u8]) -> Result<(), MediumError> {
        self.0.read_at(offset_bytes, into).map_err(told("read", offset_bytes))
    }

    fn write(&mut self, offset_bytes: u64, from: &[u8]) -> Result<(), MediumError> {
        self.0.write_at(offset_bytes, from).map_err(told("write", offset_bytes))
    }

    fn flush(&mut self) -> Result<(), MediumError> {
        self.0.flush().map_err(told("flush", 0))
    }

    fn discard(&mut self, offset_bytes: u64, length_bytes: u64) -> Result<(), MediumError> {
        self.0.discard(offset_bytes, length_bytes).map_err(told("discard", offset_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use device::memory::MemoryDevice;

    #[test]
    fn what_was_written_is_read_and_errors_say_where() {
        let mut medium = SsdMedium(MemoryDevice::new(10 * BLOCK_BYTES + 512));
        assert_eq!(medium.size_bytes(), 10 * BLOCK_BYTES);
        let mut read = [0; 4096];
        medium.write(BLOCK_BYTES, &[7; 4096]).unwrap();
        medium.flush().unwrap();
        medium.read(BLOCK_BYTES, &mut read).unwrap();
        assert_eq!(read, [7; 4096]);
        let error = medium.read(11 * BLOCK_BYTES, &mut read).unwrap_err();
        assert_eq!((error.operation, error.offset_bytes), ("read", 11 * BLOCK_BYTES));
    }
}
