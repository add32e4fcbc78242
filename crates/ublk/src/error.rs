//! What can go wrong, each in one sentence that says what to do.

use std::io;
use std::path::PathBuf;

/// Why an export could not be made, or not be taken down.
#[derive(Debug, thiserror::Error)]
pub enum UblkError {
    /// This machine cannot, or must not, have ublk devices.
    #[error("{reason}; export it by `loop` instead")]
    Unsupported {
        /// Why.
        reason: String,
    },
    /// The device is mounted or opened.
    #[error("{device:?} is in use ({by}): unmount or close it first")]
    InUse {
        /// The block device.
        device: PathBuf,
        /// Mount points and processes.
        by: String,
    },
    /// The kernel cannot change the size of a device.
    #[error(
        "{device:?} keeps its size until it is created again, since changing it needs Linux 6.16: unmount it, then give `hearth volume grow`, or \
         of a disk `hearth disk resize`, again"
    )]
    KeepsSize {
        /// The block device.
        device: PathBuf,
    },
    /// The driver made the device read-only, and keeps it so.
    #[error("{device:?} stays read-only until it is created again: unmount it, then restart the daemon")]
    StaysReadOnly {
        /// The block device.
        device: PathBuf,
    },
    /// Another process serves the device of this volume.
    #[error("{device:?} is served by process {pid}: stop that daemon first")]
    ServedElsewhere {
        /// The block device.
        device: PathBuf,
        /// The process.
        pid: i32,
    },
    /// This process serves the device of this volume, for an export that was not withdrawn.
    #[error("{device:?} is still served by this daemon for an earlier export: withdraw that by force, or restart the daemon")]
    ServedHere {
        /// The block device.
        device: PathBuf,
    },
    /// The volume, as it is now, is not what the device promises its users; or the device is none any more.
    #[error("cannot go on with {device:?}: {problem}")]
    Unfit {
        /// The block device.
        device: PathBuf,
        /// Why.
        problem: String,
    },
    /// What lay in memory above the device may be lost.
    #[error("{device:?} went before all that lay in memory above it was written back: {problems}")]
    NotWrittenBack {
        /// The block device.
        device: PathBuf,
        /// What was not, and why.
        problems: String,
    },
    /// A step took too long.
    #[error("{step} took longer than {seconds} s: look for a slow or dead backing device, then try again")]
    TimedOut {
        /// What was being done.
        step: &'static str,
        /// The limit.
        seconds: u64,
    },
    /// A system call failed.
    #[error("cannot {action} ({source}); see the kernel's log (dmesg)")]
    System {
        /// What was being done.
        action: String,
        /// The system's reason.
        source: io::Error,
    },
}

impl UblkError {
    /// For `map_err`.
    pub(crate) fn system(action: impl Into<String>) -> impl FnOnce(io::Error) -> UblkError {
        move |source| UblkError::System { action: action.into(), source }
    }

    pub(crate) fn unfit(number: u32, problem: &str) -> UblkError {
        UblkError::Unfit { device: crate::control::block_path(number), problem: problem.to_owned() }
    }

    /// Whether nobody can ever go on with the device, so that it has to end. After any other failure to do so it waits: the next try may
    /// succeed, when descriptors or memory are there again.
    pub fn is_unfit(&self) -> bool {
        matches!(self, UblkError::Unfit { .. })
    }

    /// Whether an errno is this one.
    pub(crate) fn is(&self, errno: i32) -> bool {
        matches!(self, UblkError::System { source, .. } if source.raw_os_error() == Some(errno))
    }
}
