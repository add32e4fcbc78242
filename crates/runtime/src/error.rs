//! What can go wrong for those who manage the runtime.

use engine::api::CommandFailure;
use std::io;
use thiserror::Error;

/// A management call failed.
#[derive(Debug, Error)]
pub enum RuntimeError {
    /// No ring, thread or event counter could be made.
    #[error(
        "reactor {reactor} could not start: {source}; hearth needs io_uring of Linux 5.19 or later, not switched off by kernel.io_uring_disabled or seccomp"
    )]
    Start {
        /// Which reactor.
        reactor: u16,
        /// The system's answer.
        source: io::Error,
    },
    /// A reactor could not take a device in.
    #[error("device {device} could not be opened for a reactor: {source}")]
    Device {
        /// The device's name.
        device: String,
        /// The system's answer.
        source: io::Error,
    },
    /// A reactor did not answer in time.
    #[error("{what}: no answer within {waited_ms} ms; a device may hang")]
    Timeout {
        /// What was asked.
        what: &'static str,
        /// How long was waited.
        waited_ms: u64,
    },
    /// The kernel has not completed all I/O of a reactor, whose memory therefore stays.
    #[error("reactor {reactor} ends with I/O under way; a device may hang")]
    Stuck {
        /// Which reactor.
        reactor: u16,
    },
    /// A backing device is larger than a volume can be.
    #[error("{device} has {size_bytes} bytes, more than the 64 TiB that a volume can have")]
    TooLarge {
        /// The device's name.
        device: String,
        /// Its size.
        size_bytes: u64,
    },
    /// A shard refused or failed a command.
    #[error("{what}: {source}")]
    Command {
        /// What was asked.
        what: &'static str,
        /// Why.
        source: CommandFailure,
    },
    /// A backing device that came back is smaller than its volume, or has other blocks.
    #[error("attach the backing device again: {device} has changed its size")]
    Resized {
        /// The device's name.
        device: String,
    },
    /// The caller asked to stop waiting.
    #[error("{what} was cancelled")]
    Cancelled {
        /// What was asked.
        what: &'static str,
    },
}
