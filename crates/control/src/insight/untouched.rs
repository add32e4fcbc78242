//! A device that a trial watches, read for names of databases and tables.
//!
//! It is opened for reading alone, and not locked: whoever uses it does not notice. What is read goes past the page cache. The
//! tap sees these reads, too: [`Untouched::is_reader`] tells them from the load.

use device::open::{Access, OpenDevice};
use device::{BlockingDevice, BlockingFile};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

/// See the module.
pub struct Untouched {
    device: BlockingFile,
    /// The thread that read last; 0: none yet.
    reader: AtomicU32,
}

impl Untouched {
    /// Opens it.
    ///
    /// # Errors
    /// In words.
    pub fn open(path: &str) -> Result<Untouched, String> {
        let opened = OpenDevice::open(Path::new(path), Access::Beside).map_err(|error| error.to_string())?;
        let device = opened.blocking().map_err(|error| error.to_string())?;
        Ok(Untouched { device, reader: AtomicU32::new(0) })
    }

    /// How large it is.
    pub fn size_bytes(&self) -> u64 {
        self.device.geometry().size_bytes
    }

    /// Fills `bytes` from there.
    ///
    /// # Errors
    /// In words.
    pub fn read(&self, offset_bytes: u64, bytes: &mut [u8]) -> Result<(), String> {
        self.reader.store(rustix::thread::gettid().as_raw_nonzero().get() as u32, Ordering::Relaxed);
        self.device.read_at(offset_bytes, bytes).map_err(|error| error.to_string())
    }

    /// Whether that thread reads for names.
    pub fn is_reader(&self, tid: u32) -> bool {
        tid != 0 && self.reader.load(Ordering::Relaxed) == tid
    }
}
