//! What can go wrong with a device, in one sentence each that also says what to do.

use std::io;
use std::path::PathBuf;

/// What was being done to a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Reading bytes.
    Read,
    /// Writing bytes.
    Write,
    /// Making completed writes durable.
    Flush,
    /// Giving up a range.
    Discard,
    /// Making a range read as zeroes.
    WriteZeroes,
}

impl Operation {
    /// The word used in messages; the same as in the engine's medium errors.
    pub const fn name(self) -> &'static str {
        match self {
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::Flush => "flush",
            Operation::Discard => "discard",
            Operation::WriteZeroes => "write zeroes",
        }
    }
}

impl std::fmt::Display for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A failed access to an open device.
#[derive(thiserror::Error, Debug)]
pub enum DeviceError {
    /// The operating system reported an error.
    #[error("{operation} of {length_bytes} bytes at byte {offset_bytes} of {} failed: {source}", device.display())]
    Io {
        /// What was being done.
        operation: Operation,
        /// To which device.
        device: PathBuf,
        /// Where.
        offset_bytes: u64,
        /// How much.
        length_bytes: u64,
        /// The operating system's reason.
        #[source]
        source: io::Error,
    },
    /// The device ended before the transfer did, although it was long enough when it was opened: it shrank.
    #[error("{} ended at byte {offset_bytes} during a {operation}: it is smaller than when it was opened", device.display())]
    UnexpectedEnd {
        /// What was being done.
        operation: Operation,
        /// To which device.
        device: PathBuf,
        /// Where the transfer stopped.
        offset_bytes: u64,
    },
    /// The range does not lie inside the device.
    #[error("{operation} of {length_bytes} bytes at byte {offset_bytes} reaches beyond the end of {} ({size_bytes} bytes)", device.display())]
    OutOfRange {
        /// What was asked for.
        operation: Operation,
        /// Of which device.
        device: PathBuf,
        /// Where.
        offset_bytes: u64,
        /// How much.
        length_bytes: u64,
        /// The device's size.
        size_bytes: u64,
    },
    /// A write, discard or zeroing that is not a multiple of the logical block size.
    #[error("{operation} of {length_bytes} bytes at byte {offset_bytes} of {} is not a multiple of its {alignment_bytes}-byte blocks", device.display())]
    Misaligned {
        /// What was asked for.
        operation: Operation,
        /// Of which device.
        device: PathBuf,
        /// Where.
        offset_bytes: u64,
        /// How much.
        length_bytes: u64,
        /// What both must be multiples of.
        alignment_bytes: u32,
    },
    /// An earlier flush of this handle failed. Which writes are on the medium is not known any more, and a later flush that
    /// succeeds says nothing about them, so the handle takes no more writes (reads still work).
    #[error("an earlier flush of {} failed: later writes may be lost; check the device and reopen it", device.display())]
    FlushFailedBefore {
        /// Which device.
        device: PathBuf,
    },
}

impl DeviceError {
    /// The operating system's error number; `EIO` where the cause is not an operating system error, `EINVAL` for requests
    /// that should not have been made.
    pub fn errno(&self) -> i32 {
        match self {
            DeviceError::Io { source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
            DeviceError::UnexpectedEnd { .. } | DeviceError::FlushFailedBefore { .. } => libc::EIO,
            DeviceError::OutOfRange { .. } | DeviceError::Misaligned { .. } => libc::EINVAL,
        }
    }
}
