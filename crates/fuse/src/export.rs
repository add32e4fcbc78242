//! Exports as the control thread sees them: started and stopped as a whole, with nothing left behind half made.

use crate::connection::{Connection, SLOTS};
use crate::error::FuseError;
use crate::file::VolumeFile;
use crate::handshake::shake;
use crate::link::Link;
use crate::loopdev::{self, LoopDevice, LoopGeometry};
use crate::mount::{self, Mount};
use crate::patience::within;
use crate::protocol::{Limits, Negotiated};
use crate::ring::{self, RingConnection};
use runtime::{EndpointGroup, Runtime, VolumeRef};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Longest READ and WRITE asked for: an extent, which the engine handles as one piece, and what the kernel grants at most by default
/// (`fs.fuse.max_pages_limit` is 256).
const REQUEST_BYTES_MAX: u32 = 1 << 20;

/// How requests travel between kernel and server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Transport {
    /// Over `/dev/fuse`, on any kernel.
    Classic,
    /// Over io_uring, or not at all: Linux 6.14 or later, with `/sys/module/fuse/parameters/enable_uring` set.
    Ring,
    /// Over io_uring where the kernel offers it, else over `/dev/fuse`. The default by measurement (4 KiB random reads at queue
    /// depth 32, `loop_bare /dev/zero`, one busy machine, alternating): 2,230 to 2,440 ns of server CPU per read over io_uring, 2,490 to
    /// 2,730 over `/dev/fuse`, the 1-GiB stand-in for a device included.
    #[default]
    Best,
}

/// How an export is made.
#[derive(Clone, Debug)]
pub struct LoopOptions {
    /// How requests travel.
    pub transport: Transport,
    /// Set the kernel's switch for FUSE over io_uring first. It is off by default, holds for the whole machine, and is not put back.
    pub enable_ring: bool,
    /// Directory of the stable name, a link to the device; `None`: no stable name.
    pub link_directory: Option<PathBuf>,
    /// How long setting up and taking down may take. Both do I/O on the volume.
    pub patience: Duration,
}

impl Default for LoopOptions {
    fn default() -> LoopOptions {
        LoopOptions {
            transport: Transport::default(),
            enable_ring: false,
            link_directory: Some(PathBuf::from("/dev/hearth")),
            // A slow disk that spins up takes ten seconds; writing back a page cache may take longer.
            patience: Duration::from_secs(60),
        }
    }
}

/// A volume as a file: the lower half of a [`LoopExport`], of use by itself where no loop device is wanted.
#[derive(Debug)]
pub struct FileExport {
    mount: Mount,
    endpoints: EndpointGroup,
    path: PathBuf,
    negotiated: Negotiated,
}

impl FileExport {
    /// Mounts `volume` as the file `run_directory/name`. What a killed daemon left there is removed first.
    ///
    /// Blocks until the kernel has shaken hands; must not be called on a reactor's thread.
    ///
    /// # Errors
    /// See [`FuseError`]; nothing is left behind.
    pub fn start(
        runtime: &Runtime,
        volume: &VolumeRef,
        name: &str,
        run_directory: &Path,
        options: &LoopOptions,
    ) -> Result<FileExport, FuseError> {
        check_name(name)?;
        let path = canonical(run_directory)?.join(name);
        mount::clear_stale(&path)?;
        if options.enable_ring {
            ring::enable()?;
        }
        let (mount, device) = Mount::new(&path, name)?;
        let wants_ring = options.transport != Transport::Classic;
        let limits = Limits {
            request_bytes_max: REQUEST_BYTES_MAX.min(volume.request_bytes_max() / 4096 * 4096),
            ring_request_bytes_max: ring::REQUEST_BYTES_MAX,
            background_max: SLOTS as u16,
            over_io_uring: wants_ring,
        };
        let negotiated = shake(device.as_fd(), &limits, options.transport == Transport::Ring)?;
        let file =
            VolumeFile { size_bytes: volume.size_bytes(), block_bytes: volume.logical_block_bytes(), can_discard: volume.can_discard() };
        let request_bytes_max = negotiated.request_bytes_max;
        let second = device.try_clone().map_err(FuseError::system("duplicate", "/dev/fuse"))?;
        // With io_uring, too, something must read what the kernel says outside of requests: forgets and interrupts.
        let endpoints = runtime.add_endpoint(Box::new(Connection::new(device, volume.clone(), file, request_bytes_max)));
        if negotiated.over_io_uring {
            let connection = RingConnection::new(second, volume.clone(), file, request_bytes_max);
            runtime.add_endpoint_to(&endpoints, Box::new(connection));
        }
        Ok(FileExport { mount, endpoints, path, negotiated })
    }

    /// The mounted file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the kernel and we agreed on.
    pub fn negotiated(&self) -> Negotiated {
        self.negotiated
    }

    /// Unmounts and ends the connection. Requests that wait for an answer get an error, so see to it that there are none.
    ///
    /// # Errors
    /// The system's; or [`FuseError::TimedOut`] if the connection does not end. Calling it again goes on where it failed.
    pub fn stop(&mut self, runtime: &Runtime) -> Result<(), FuseError> {
        let unmounted = self.mount.unmount();
        let patience = Duration::from_secs(10);
        runtime
            .stop_endpoints(&self.endpoints, patience)
            .map_err(|_| FuseError::TimedOut { step: "ending the FUSE connection", seconds: patience.as_secs() })?;
        unmounted
    }
}

/// A volume as a block device.
///
/// Dropping it without [`LoopExport::stop`] takes everything away that can be: users of the device then get errors.
#[derive(Debug)]
pub struct LoopExport {
    // In the order in which they must go.
    link: Option<Link>,
    device: Arc<Mutex<LoopDevice>>,
    device_path: PathBuf,
    file: FileExport,
    warnings: Vec<String>,
    patience: Duration,
}

impl LoopExport {
    /// Makes a block device of `volume`. The mounted file goes to `run_directory`, which must be ours alone.
    ///
    /// Blocks until the device is there; must not be called on a reactor's thread, which has to answer the device's I/O meanwhile.
    ///
    /// # Errors
    /// See [`FuseError`]; nothing is left behind.
    pub fn start(
        runtime: &Runtime,
        volume: &VolumeRef,
        name: &str,
        run_directory: &Path,
        options: &LoopOptions,
    ) -> Result<LoopExport, FuseError> {
        check_name(name)?;
        let patience = options.patience;
        let backing = canonical(run_directory)?.join(name);
        let timed_out = |step| move || FuseError::TimedOut { step, seconds: patience.as_secs() };
        // The dead devices go before the dead mount: afterwards their files have no name any more by which they could be found.
        let stale = backing.clone();
        let mut warnings = within(patience, "loop-clear", move || loopdev::clear_stale(&stale))
            .ok_or_else(timed_out("detaching an old loop device"))??;
        let file = FileExport::start(runtime, volume, name, run_directory, options)?;
        let geometry = LoopGeometry {
            block_bytes: volume.logical_block_bytes(),
            read_only: volume.read_only(),
            request_bytes_max: file.negotiated.request_bytes_max,
        };
        // On failure and timeout, `file` is dropped: that breaks the connection and frees whoever waits for it.
        let own = backing.clone();
        let device = within(patience, "loop-setup", move || LoopDevice::new(&backing, &geometry))
            .ok_or_else(timed_out("setting up the loop device"))??;
        let device_path = device.path();
        let link = match &options.link_directory {
            None => None,
            Some(directory) => match Link::new(directory, name, &device_path, &own) {
                Ok(link) => Some(link),
                Err(warning) => {
                    warnings.push(warning);
                    None
                }
            },
        };
        let device = Arc::new(Mutex::new(device));
        Ok(LoopExport { link, device, device_path, file, warnings, patience })
    }

    /// `/dev/loopN`.
    pub fn device_path(&self) -> &Path {
        &self.device_path
    }

    /// The stable name, if it could be made.
    pub fn link_path(&self) -> Option<&Path> {
        self.link.as_ref().map(Link::path)
    }

    /// What an administrator should know, one sentence each: devices left by a killed daemon that are still in use, a stable name
    /// that could not be made.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The file below the device.
    pub fn file(&self) -> &FileExport {
        &self.file
    }

    /// Writes back what the page cache holds for the device, then takes everything away. Must not be called on a reactor's thread.
    ///
    /// # Errors
    /// [`FuseError::InUse`], and nothing has changed: the device goes on working. After any other error, call it again or drop the export.
    pub fn stop(&mut self, runtime: &Runtime) -> Result<(), FuseError> {
        let device = self.device.clone();
        let detach = move || device.lock().unwrap_or_else(PoisonError::into_inner).detach();
        within(self.patience, "loop-detach", detach)
            .ok_or(FuseError::TimedOut { step: "detaching the loop device", seconds: self.patience.as_secs() })??;
        self.link = None;
        self.file.stop(runtime)
    }

    /// The end of the daemon: as [`LoopExport::stop`], but users of the device do not hold it up. What file systems and the page
    /// cache hold is written back as far as its options' patience, and this one, allow; users that are left get errors from then on.
    ///
    /// # Errors
    /// What went wrong first; everything has been tried.
    pub fn abandon(mut self, runtime: &Runtime, patience: Duration) -> Result<(), FuseError> {
        let patience = patience.min(self.patience);
        let device = self.device.clone();
        let give_up = move || {
            let mut device = device.lock().unwrap_or_else(PoisonError::into_inner);
            let written_back = device.write_back();
            device.abandon().and(written_back)
        };
        let abandoned = within(patience, "loop-abandon", give_up)
            .unwrap_or(Err(FuseError::TimedOut { step: "writing the page cache back", seconds: patience.as_secs() }));
        self.link = None;
        let stopped = self.file.stop(runtime);
        abandoned.and(stopped)
    }
}

/// A name that can be a file's.
fn check_name(name: &str) -> Result<(), FuseError> {
    let bad = name.is_empty() || name.len() > 128 || name.contains(['/', '\0']) || name.bytes().all(|byte| byte == b'.');
    if bad { Err(FuseError::BadName { name: name.to_owned() }) } else { Ok(()) }
}

/// The path as the kernel will name it in the mount table and in sysfs.
fn canonical(directory: &Path) -> Result<PathBuf, FuseError> {
    directory.canonicalize().map_err(FuseError::system("find the run directory", directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_no_file_names_are_refused() {
        for bad in ["", ".", "..", "a/b", "a\0b", &"x".repeat(129)] {
            assert!(matches!(check_name(bad), Err(FuseError::BadName { .. })), "{bad:?}");
        }
        for good in ["vol1", "with space", "ünï", ".hidden"] {
            assert!(check_name(good).is_ok(), "{good:?}");
        }
    }
}
