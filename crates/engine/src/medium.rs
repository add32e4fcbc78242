//! The SSD as management code sees it: blocking, one call at a time.
//!
//! Format, superblock updates, recovery and checkpoints are rare and sequential, so they are written as plain code over this
//! trait. The runtime implements it with O_DIRECT on the real device; the simulator with its modelled SSD, where any
//! call may fail, tear or be the last one before a crash.

/// A device opened for blocking access. Offsets and lengths are multiples of 4096 bytes.
pub trait Medium {
    /// Usable size in bytes, a multiple of 4096.
    fn size_bytes(&self) -> u64;
    /// Fills `into` from `offset_bytes`.
    fn read(&mut self, offset_bytes: u64, into: &mut [u8]) -> Result<(), MediumError>;
    /// Writes `from` at `offset_bytes`. Not durable before the next successful [`Medium::flush`].
    fn write(&mut self, offset_bytes: u64, from: &[u8]) -> Result<(), MediumError>;
    /// Makes every completed write durable. After one failure the device must not be trusted again (no retry).
    fn flush(&mut self) -> Result<(), MediumError>;
    /// Tells the device that the range's content is no longer needed. Content afterwards is undefined.
    fn discard(&mut self, offset_bytes: u64, length_bytes: u64) -> Result<(), MediumError>;
}

/// A failed access to a [`Medium`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MediumError {
    /// What was being done: "read", "write", "flush", "discard".
    pub operation: &'static str,
    /// Where, in bytes.
    pub offset_bytes: u64,
    /// The operating system's error number, 0 if there is none.
    pub errno: i32,
}

impl core::fmt::Display for MediumError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} at byte {} failed (errno {})", self.operation, self.offset_bytes, self.errno)
    }
}

impl core::error::Error for MediumError {}
