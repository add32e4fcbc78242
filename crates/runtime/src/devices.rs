//! Devices as the runtime knows them: an open file with its rules, shared by the reactors.

use crate::refusals::{DeviceTrouble, Refusals};
use crate::write_streams::{StreamsInUse, WriteStreams};
use device::Geometry;
use device::model::DiskModel;
use engine::flush_gate::FlushGate;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// A device to be taken into the runtime.
pub struct DeviceOptions {
    /// For messages.
    pub name: String,
    /// The file or block device, open with O_DIRECT.
    pub file: File,
    /// Its size and rules.
    pub geometry: Geometry,
    /// A model whose times the device is to have: completions are held back until the model gives them.
    pub model: Option<DiskModel>,
}

/// A handle to a device of the runtime, cheap to clone. The file stays open until the device is removed and the last handle is gone.
#[derive(Clone)]
pub struct DeviceRef(pub(crate) Arc<DeviceShared>);

/// An I/O that waits for a flush: its reactor and its slot there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlushWaiter {
    pub(crate) reactor: u16,
    pub(crate) slot: u32,
}

pub(crate) struct DeviceShared {
    /// The runtime's own number of the device; never reused.
    pub(crate) number: u32,
    pub(crate) name: String,
    pub(crate) file: File,
    /// As it was opened.
    geometry: Geometry,
    /// See [`device::physical_block_bytes`].
    pub(crate) physical_block_bytes: u32,
    /// Its size, which may grow.
    size_bytes: AtomicU64,
    /// Who waits for its flushes: one flush at a time, whichever reactor asks.
    pub(crate) gate: Mutex<FlushGate<FlushWaiter>>,
    /// A flush has failed: final. The gate knows it too; this can be read on the way of every I/O.
    pub(crate) failed: AtomicBool,
    /// What it refused lately.
    pub(crate) refusals: Refusals,
    /// The streams that writes to it may name.
    pub(crate) streams: WriteStreams,
    /// A modelled device is driven by one reactor, since the model must see all I/O in one order.
    pub(crate) model_home: Option<u16>,
}

impl DeviceShared {
    /// A device that was just opened.
    pub(crate) fn new(number: u32, name: String, file: File, geometry: Geometry, model_home: Option<u16>) -> DeviceShared {
        DeviceShared {
            number,
            name,
            physical_block_bytes: device::physical_block_bytes(&file, geometry.logical_block_bytes),
            streams: WriteStreams::new(device::write_streams(&file)),
            file,
            geometry,
            size_bytes: AtomicU64::new(geometry.size_bytes),
            gate: Mutex::default(),
            failed: AtomicBool::new(false),
            refusals: Refusals::default(),
            model_home,
        }
    }

    /// Its size and rules.
    pub(crate) fn geometry(&self) -> Geometry {
        Geometry { size_bytes: self.size_bytes.load(Ordering::Acquire), ..self.geometry }
    }

    /// I/O up to there is let through from now on.
    pub(crate) fn grow(&self, size_bytes: u64) {
        self.size_bytes.fetch_max(size_bytes, Ordering::AcqRel);
    }
}

impl DeviceRef {
    /// Whether both are the same opening of a device.
    pub fn is(&self, other: &DeviceRef) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The name it was given.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Its size and rules.
    pub fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    /// Whether a flush of it has ever failed. Then all writes and flushes fail until it is opened anew.
    pub fn has_failed(&self) -> bool {
        self.0.failed.load(Ordering::Acquire)
    }

    /// What it refuses, if that lasts.
    pub fn trouble(&self) -> Option<DeviceTrouble> {
        self.0.refusals.trouble()
    }

    /// How write streams of it are used; `None` if it has none.
    pub fn write_streams(&self) -> Option<StreamsInUse> {
        self.0.streams.in_use()
    }
}

impl std::fmt::Debug for DeviceRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DeviceRef({})", self.0.name)
    }
}

/// The same file, opened anew: a write-back error of a file is told once to each *open* of it, so every reactor that flushes needs its
/// own to be sure to hear (see "errseq" in the kernel's documentation of fsync(2) errors).
pub(crate) fn reopen(file: &File) -> io::Result<File> {
    // SAFETY: F_GETFL has no memory argument.
    let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
    if flags < 0 {
        return Err(io::Error::last_os_error());
    }
    let access = flags & libc::O_ACCMODE;
    OpenOptions::new()
        .read(access != libc::O_WRONLY)
        .write(access != libc::O_RDONLY)
        .custom_flags(flags & libc::O_DIRECT)
        .open(format!("/proc/self/fd/{}", file.as_raw_fd()))
}
