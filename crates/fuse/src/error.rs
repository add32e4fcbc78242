//! What can go wrong, each in one sentence that says what to do.

use std::io;
use std::path::PathBuf;

/// Why an export could not be made, or not be taken down.
#[derive(Debug, thiserror::Error)]
pub enum FuseError {
    /// An export that an earlier daemon has left cannot be gone on with.
    #[error("the block device that an earlier daemon has made of {name} cannot be taken over: {problem}")]
    NotTakenOver {
        /// The name of the volume.
        name: String,
        /// Why.
        problem: String,
    },
    /// Not root.
    #[error("the loop export needs root: run the daemon as root, or export it by NBD instead")]
    NotRoot,
    /// The kernel has no FUSE, or the device is hidden from us.
    #[error("cannot open /dev/fuse ({source}): load the fuse module (modprobe fuse) or export it by NBD instead")]
    NoFuse {
        /// The system's reason.
        source: io::Error,
    },
    /// The kernel has no loop driver, or the device is hidden from us.
    #[error("cannot open /dev/loop-control ({source}): load the loop module (modprobe loop) or export it by NBD instead")]
    NoLoop {
        /// The system's reason.
        source: io::Error,
    },
    /// The kernel's FUSE is too old.
    #[error("this kernel speaks FUSE 7.{minor}, but 7.31 (Linux 5.4) is needed: export it by NBD instead")]
    TooOld {
        /// Its minor version.
        minor: u32,
    },
    /// A name that cannot be a file's name.
    #[error("{name:?} cannot name an export: use 1 to 128 characters without '/' that are not just dots")]
    BadName {
        /// The name.
        name: String,
    },
    /// The file that is to be mounted over has content.
    #[error("{path:?} blocks the export: it is not an empty regular file; move it away")]
    PathTaken {
        /// The path.
        path: PathBuf,
    },
    /// Another server serves a mount at that path.
    #[error("{path:?} is served by another running process: stop the other daemon first")]
    ServedElsewhere {
        /// The path.
        path: PathBuf,
    },
    /// Somebody else has mounted something there.
    #[error("something that is not hearth's is mounted over {path:?}: unmount it first")]
    Covered {
        /// The path.
        path: PathBuf,
    },
    /// The device is mounted or opened.
    #[error("{device:?} is in use ({by}): unmount or close it first")]
    InUse {
        /// The block device.
        device: PathBuf,
        /// Mount points and processes.
        by: String,
    },
    /// The driver made the device read-only, and keeps it so.
    #[error("{device:?} stays read-only until it is created again: unmount it, then stop and start its volume")]
    StaysReadOnly {
        /// The block device.
        device: PathBuf,
    },
    /// The device has gone, and what lay in memory above it is lost.
    #[error("{device:?} went away before all was written back: {problems}")]
    NotWrittenBack {
        /// The block device.
        device: PathBuf,
        /// One sentence each.
        problems: String,
    },
    /// Other programs took every loop device that was free.
    #[error("no free loop device after {attempts} attempts, other programs took them: try again")]
    NoFreeDevice {
        /// How often it was tried.
        attempts: u32,
    },
    /// Direct I/O is not in effect.
    #[error(
        "the kernel refuses direct I/O on {device:?}, so the page cache would stand between it and the volume: export it by NBD instead"
    )]
    NoDirectIo {
        /// The block device.
        device: PathBuf,
    },
    /// FUSE over io_uring was demanded, but the kernel does not offer it.
    #[error(
        "this kernel does not offer FUSE over io_uring: it needs Linux 6.14 or later and 'Y' in /sys/module/fuse/parameters/enable_uring, or use the classic transport"
    )]
    NoRing,
    /// A step took too long.
    #[error("{step} took longer than {seconds} seconds and was abandoned: check the backing device, then try again")]
    TimedOut {
        /// What was being done.
        step: &'static str,
        /// How long it was waited for.
        seconds: u64,
    },
    /// The runtime is being stopped.
    #[error("the daemon is stopping: no new export is made")]
    Stopping,
    /// A system call failed.
    #[error("cannot {what} {path:?}: {source}")]
    System {
        /// What was being done.
        what: &'static str,
        /// To what.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

impl FuseError {
    /// For `map_err` on a failed call.
    pub(crate) fn system(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> FuseError {
        let path = path.into();
        move |source| FuseError::System { what, path, source }
    }
}
