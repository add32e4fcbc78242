//! Loop devices: making one over our file, finding out who uses one, and taking it down.
//!
//! Every function here may block on I/O that a reactor of this very process must answer: call none of them on a reactor's thread.

use crate::error::FuseError;
use crate::loopsys::{self, LoopConfig};
use crate::patience::wait_until;
use crate::{loopusers, mounts};
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Another program may take the free device that the kernel named; this often the next one is asked for.
const ATTEMPTS: u32 = 64;
/// Detaching takes as long as the last I/O of the device.
const DETACH_PATIENCE: Duration = Duration::from_secs(10);

/// What a loop device is to be like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoopGeometry {
    /// 512 or 4096.
    pub(crate) block_bytes: u32,
    pub(crate) read_only: bool,
    /// Longest request that is worth sending in one piece.
    pub(crate) request_bytes_max: u32,
}

/// A configured loop device. Dropping it detaches the device (or leaves that to its last user).
#[derive(Debug)]
pub(crate) struct LoopDevice {
    number: u32,
    attached: bool,
    /// Queue settings as they were: the kernel keeps them for the next user of the same number.
    before: Vec<(PathBuf, String)>,
}

impl LoopDevice {
    /// Makes a loop device over `backing`.
    ///
    /// # Errors
    /// [`FuseError::NoLoop`], [`FuseError::NoFreeDevice`], [`FuseError::NoDirectIo`], or the system's.
    pub(crate) fn new(backing: &Path, geometry: &LoopGeometry) -> Result<LoopDevice, FuseError> {
        let control = OpenOptions::new().read(true).write(true).open("/dev/loop-control").map_err(|source| FuseError::NoLoop { source })?;
        let file = OpenOptions::new()
            .read(true)
            .write(!geometry.read_only)
            .custom_flags(libc::O_DIRECT | libc::O_CLOEXEC)
            .open(backing)
            .map_err(FuseError::system("open", backing))?;
        let config = LoopConfig::new(&file, geometry.block_bytes, geometry.read_only, backing.as_os_str().as_bytes());
        for _ in 0..ATTEMPTS {
            let number = loopsys::get_free(&control).map_err(FuseError::system("get a free device from", "/dev/loop-control"))?;
            // A device configured through a read-only descriptor would become read-only.
            let node = node(number, !geometry.read_only)?;
            match loopsys::configure(&node, &config) {
                Ok(()) => {
                    let mut device = LoopDevice { number, attached: true, before: Vec::new() };
                    device.settle(geometry)?;
                    return Ok(device);
                }
                // Taken by another program since.
                Err(error) if matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EAGAIN)) => {}
                Err(error) => return Err(FuseError::system("set up", device_path(number))(error)),
            }
        }
        Err(FuseError::NoFreeDevice { attempts: ATTEMPTS })
    }

    /// `/dev/loopN`.
    pub(crate) fn path(&self) -> PathBuf {
        device_path(self.number)
    }

    /// Checks that direct I/O is in effect and sets the queue up.
    fn settle(&mut self, geometry: &LoopGeometry) -> Result<(), FuseError> {
        let direct = std::fs::read_to_string(sysfs(self.number).join("loop/dio"));
        if !direct.is_ok_and(|text| text.trim() == "1") {
            return Err(FuseError::NoDirectIo { device: self.path() });
        }
        // Ordering and merging are the engine's business, and cost time here.
        for (name, value) in [("scheduler", "none"), ("max_sectors_kb", &(geometry.request_bytes_max / 1024).to_string())] {
            if let Err(error) = self.set(name, value) {
                tracing::debug!(device = self.number, name, value, %error, "a queue setting was not taken");
            }
        }
        Ok(())
    }

    fn setting(&self, name: &str) -> PathBuf {
        sysfs(self.number).join("queue").join(name)
    }

    fn set(&mut self, name: &str, value: &str) -> io::Result<()> {
        let path = self.setting(name);
        let before = std::fs::read_to_string(&path)?;
        std::fs::write(&path, value)?;
        // A choice is written as "[none] mq-deadline".
        let chosen = before.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or(before.trim(), |(chosen, _)| chosen);
        self.before.push((path, chosen.to_owned()));
        Ok(())
    }

    /// Puts the queue's settings back. Nobody depends on it, so what fails is only noted.
    fn put_settings_back(&mut self) {
        for (path, value) in self.before.drain(..).rev() {
            if let Err(error) = std::fs::write(&path, &value) {
                tracing::debug!(path = %path.display(), value, %error, "a queue setting was not put back");
            }
        }
    }

    /// Detaches the device if nobody uses it.
    ///
    /// # Errors
    /// [`FuseError::InUse`]: then the device goes on working. Or the system's.
    pub(crate) fn detach(&mut self) -> Result<(), FuseError> {
        if !self.attached {
            return Ok(());
        }
        loopusers::refuse_if_used(self.number)?;
        self.detach_now()
    }

    /// Brings home what mounted file systems and the page cache hold.
    pub(crate) fn write_back(&self) -> Result<(), FuseError> {
        for point in mount_points(self.number) {
            let root = File::open(&point).map_err(FuseError::system("open", &point))?;
            // SAFETY: the descriptor is open.
            if unsafe { libc::syncfs(root.as_raw_fd()) } != 0 {
                return Err(FuseError::system("sync", &point)(io::Error::last_os_error()));
            }
        }
        node(self.number, false)?.sync_all().map_err(FuseError::system("flush", self.path()))
    }

    /// Detaches the device even under its users; those that have it open keep a device that fails all I/O, which vanishes when they close it.
    pub(crate) fn abandon(&mut self) -> Result<(), FuseError> {
        if !self.attached {
            return Ok(());
        }
        self.attached = false;
        self.put_settings_back();
        clear(self.number, false)
    }

    fn detach_now(&mut self) -> Result<(), FuseError> {
        clear(self.number, true)?;
        if wait_until(DETACH_PATIENCE, || !is_attached(self.number)) {
            self.attached = false;
            self.put_settings_back();
            return Ok(());
        }
        // Someone opened it at the last moment: take the order back, so that the device goes on as it was.
        loopsys::keep(&node(self.number, false)?).map_err(FuseError::system("keep", self.path()))?;
        let mut by = loopusers::users(self.number);
        if by.is_empty() {
            by = "open in a process that the daemon may not look at".to_owned();
        }
        Err(FuseError::InUse { device: self.path(), by })
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        if let Err(error) = self.abandon() {
            tracing::warn!(%error, "a loop device stays behind");
        }
    }
}

/// Detaches loop devices over `backing` that a killed daemon left. Returns one sentence for each that is still used: such a device
/// fails all I/O and vanishes when its last user closes it.
pub(crate) fn clear_stale(backing: &Path) -> Result<Vec<String>, FuseError> {
    let mut warnings = Vec::new();
    for number in attached_to(backing)? {
        let used = loopusers::refuse_if_used(number).err();
        clear(number, false)?;
        match used {
            Some(error) => warnings.push(format!(
                "{} was left by a daemon that was killed, and every access to it fails; {error} and it will vanish",
                device_path(number).display()
            )),
            None => {
                wait_until(DETACH_PATIENCE, || !is_attached(number));
            }
        }
    }
    Ok(warnings)
}

/// Numbers of the loop devices over `backing`.
fn attached_to(backing: &Path) -> Result<Vec<u32>, FuseError> {
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir("/sys/block").map_err(FuseError::system("list", "/sys/block"))? {
        let entry = entry.map_err(FuseError::system("list", "/sys/block"))?;
        let Some(number) = number_of(&entry.file_name()) else { continue };
        // Devices without a backing file have no such attribute.
        if let Ok(mut file) = std::fs::read(entry.path().join("loop/backing_file")) {
            file.truncate(file.trim_ascii_end().len());
            if Path::new(OsStr::from_bytes(&file)) == backing || (file == b"/" && was_over(number, backing)) {
                numbers.push(number);
            }
        }
    }
    Ok(numbers)
}

/// Whether a device over a file that is nowhere any more was made over `backing`. A daemon with a mount namespace of its own takes its mounts along
/// when it is killed: what is left is the device, a file without a path, and the name that the device was given.
fn was_over(number: u32, backing: &Path) -> bool {
    let name = node(number, false).and_then(|device| loopsys::name_of(&device).map_err(FuseError::system("look at", device_path(number))));
    name.is_ok_and(|name| name == loopsys::cut_name(backing.as_os_str().as_bytes()))
}

fn number_of(name: &OsStr) -> Option<u32> {
    name.to_str()?.strip_prefix("loop")?.parse().ok()
}

fn is_attached(number: u32) -> bool {
    sysfs(number).join("loop/backing_file").exists()
}

/// Writes back what the device's page cache holds (if `sync`), then orders the detachment, which takes effect at the last close.
fn clear(number: u32, sync: bool) -> Result<(), FuseError> {
    let device = node(number, false)?;
    if sync {
        device.sync_all().map_err(FuseError::system("flush", device_path(number)))?;
    }
    match loopsys::clear(&device) {
        Err(error) if error.raw_os_error() != Some(libc::ENXIO) => Err(FuseError::system("detach", device_path(number))(error)),
        _ => Ok(()),
    }
}

pub(crate) fn device_path(number: u32) -> PathBuf {
    PathBuf::from(format!("/dev/loop{number}"))
}

pub(crate) fn sysfs(number: u32) -> PathBuf {
    PathBuf::from(format!("/sys/block/loop{number}"))
}

/// Opens `/dev/loopN`, making the node where no udev does.
fn node(number: u32, write: bool) -> Result<File, FuseError> {
    let path = device_path(number);
    let open = || OpenOptions::new().read(true).write(write).custom_flags(libc::O_CLOEXEC).open(&path);
    match open() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            loopsys::make_node(&path, &loopusers::device_numbers(number)).map_err(FuseError::system("make", &path))?;
            open().map_err(FuseError::system("open", &path))
        }
        result => result.map_err(FuseError::system("open", &path)),
    }
}

/// Where device `number` is mounted, in this mount namespace.
pub(crate) fn mount_points(number: u32) -> Vec<PathBuf> {
    let device = loopusers::device_numbers(number);
    let mounts = mounts::read().unwrap_or_default();
    mounts.into_iter().filter(|mount| mount.device == device).map(|mount| mount.point).collect()
}
