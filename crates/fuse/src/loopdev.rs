//! Loop devices: making one over our file, and taking it down.
//!
//! Every function here may block on I/O that a reactor of this very process must answer: call none of them on a reactor's thread.

use crate::error::FuseError;
use crate::loopsys::{self, LoopConfig};
use crate::ownloop::{self, OwnLoop, clear, device_path, node, sysfs};
use crate::{loopusers, parts};
use node::patience::wait_until;
use node::write_protect;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Another program may take the free device that the kernel named; this often the next one is asked for.
const ATTEMPTS: u32 = 64;
/// Detaching takes as long as the last I/O of the device.
const DETACH_PATIENCE: Duration = Duration::from_secs(10);

/// A configured loop device. Dropping it detaches the device (or leaves that to its last user).
#[derive(Debug)]
pub(crate) struct LoopDevice {
    own: OwnLoop,
    /// The driver made it read-only, as earlier versions had it do, and keeps it so.
    stays_read_only: bool,
    attached: bool,
    /// Queue settings as they were: the kernel keeps them for the next user of the same number.
    before: Vec<(PathBuf, String)>,
}

impl LoopDevice {
    /// Makes a loop device over `backing`, known by `mark`, that refuses writes if `is_protected`: not by the driver, which would never take
    /// any then.
    ///
    /// # Errors
    /// [`FuseError::NoLoop`], [`FuseError::NoFreeDevice`], [`FuseError::NoDirectIo`], or the system's.
    pub(crate) fn new(backing: &Path, mark: &[u8], block_bytes: u32, is_protected: bool) -> Result<LoopDevice, FuseError> {
        let control = OpenOptions::new().read(true).write(true).open("/dev/loop-control").map_err(|source| FuseError::NoLoop { source })?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_DIRECT | libc::O_CLOEXEC)
            .open(backing)
            .map_err(FuseError::system("open", backing))?;
        let config = LoopConfig::new(&file, block_bytes, mark);
        for _ in 0..ATTEMPTS {
            let number = loopsys::get_free(&control).map_err(FuseError::system("get a free device from", "/dev/loop-control"))?;
            // A device configured through a read-only descriptor would become read-only.
            let node = node(number, true)?;
            match loopsys::configure(&node, &config) {
                Ok(()) => {
                    let own = OwnLoop::new(number, &node, backing).inspect_err(|_| {
                        // The error that matters is being returned; through this descriptor the device is ours without a look.
                        let _ = loopsys::clear(&node);
                    });
                    let own = own.map_err(FuseError::system("look at", device_path(number)))?;
                    let mut device = LoopDevice { own, stays_read_only: false, attached: true, before: Vec::new() };
                    // Whoever had the number before may have left it otherwise.
                    write_protect::set(&node, is_protected).map_err(FuseError::system("set up", device_path(number)))?;
                    device.settle()?;
                    drop(node);
                    match loopsys::read_first_page(&device.own.path()) {
                        Ok(first_blocks) => parts::tell_kernel(&device.own, &first_blocks),
                        Err(error) => tracing::debug!(device = number, %error, "no look at its partitions"),
                    }
                    return Ok(device);
                }
                // Taken by another program since.
                Err(error) if matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EAGAIN)) => {}
                Err(error) => return Err(FuseError::system("set up", device_path(number))(error)),
            }
        }
        Err(FuseError::NoFreeDevice { attempts: ATTEMPTS })
    }

    /// A device that an earlier daemon has made, with the settings of its queue as they were
    /// before.
    pub(crate) fn taken_over(own: OwnLoop, stays_read_only: bool, before: Vec<(PathBuf, String)>) -> LoopDevice {
        LoopDevice { own, stays_read_only, attached: true, before }
    }

    /// Whether it can never take writes.
    pub(crate) fn stays_read_only(&self) -> bool {
        self.stays_read_only
    }

    /// Settings of its queue as they were before.
    pub(crate) fn settings_before(&self) -> &[(PathBuf, String)] {
        &self.before
    }

    /// Leaves the device as it is.
    pub(crate) fn let_be(&mut self) {
        self.attached = false;
    }

    /// The device refuses writes from now on, or takes them.
    ///
    /// # Errors
    /// [`FuseError::StaysReadOnly`], or the system's.
    pub(crate) fn set_protected(&mut self, is_protected: bool) -> Result<(), FuseError> {
        if self.stays_read_only {
            return if is_protected { Ok(()) } else { Err(FuseError::StaysReadOnly { device: self.own.path() }) };
        }
        let Some(node) = self.open()? else { return Ok(()) };
        write_protect::set(&node, is_protected).map_err(FuseError::system("set up", self.own.path()))
    }

    /// Leaves the device to the next daemon. If there is none, it goes when its last user does.
    pub(crate) fn leave(&mut self) -> Result<(), FuseError> {
        let Some(node) = self.open()? else { return Ok(()) };
        self.attached = false;
        clear(&node, self.own.number())
    }

    /// Takes [`LoopDevice::leave`] back.
    pub(crate) fn stay(&mut self) -> Result<(), FuseError> {
        let goes = std::fs::read_to_string(sysfs(self.own.number()).join("loop/autoclear")).is_ok_and(|text| text.trim() == "1");
        let Some(node) = self.open()?.filter(|_| goes) else { return Ok(()) };
        loopsys::keep(&node).map_err(FuseError::system("keep", self.own.path()))
    }

    /// Makes the device as large as its file has become; gives its size, `None` if it is not ours any more.
    pub(crate) fn grow(&mut self) -> Result<Option<u64>, FuseError> {
        let Some(node) = self.open()? else { return Ok(None) };
        loopsys::set_capacity(&node).map_err(FuseError::system("grow", self.own.path()))?;
        loopsys::size_bytes(&node).map(Some).map_err(FuseError::system("measure", self.own.path()))
    }

    /// What it is known by.
    pub(crate) fn own(&self) -> &OwnLoop {
        &self.own
    }

    /// Checks that direct I/O is in effect and sets the queue up. Its caller holds the device open.
    fn settle(&mut self) -> Result<(), FuseError> {
        let direct = std::fs::read_to_string(sysfs(self.own.number()).join("loop/dio"));
        if !direct.is_ok_and(|text| text.trim() == "1") {
            return Err(FuseError::NoDirectIo { device: self.own.path() });
        }
        self.set_queue_up();
        Ok(())
    }

    /// Ordering and merging are the engine's business, and cost time here. Nothing else is set: what is set stays with the number, also
    /// when the daemon and its keeper are killed and nobody is left to put it back.
    fn set_queue_up(&mut self) {
        if let Err(error) = self.choose_no_scheduler() {
            tracing::debug!(device = self.own.number(), %error, "the scheduler of its queue stays");
        }
    }

    /// No scheduler is what loop devices have by themselves: most often there is nothing to do, nor to put back.
    fn choose_no_scheduler(&mut self) -> io::Result<()> {
        const NONE: &str = "none";
        let path = sysfs(self.own.number()).join("queue/scheduler");
        let before = std::fs::read_to_string(&path)?;
        // A choice is written as "[none] mq-deadline".
        let chosen = before.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or(before.trim(), |(chosen, _)| chosen);
        if chosen != NONE {
            std::fs::write(&path, NONE)?;
            self.before.push((path, chosen.to_owned()));
        }
        Ok(())
    }

    /// Puts the queue's settings back. Nobody depends on it, so what fails is only noted. Its caller holds the device open.
    fn put_settings_back(&mut self) {
        for (path, value) in self.before.drain(..).rev() {
            if let Err(error) = std::fs::write(&path, &value) {
                tracing::debug!(path = %path.display(), value, %error, "a queue setting was not put back");
            }
        }
    }

    /// Opens the device if it is still attached and still ours. If it is not, it has been taken from us: nothing is left to do.
    fn open(&mut self) -> Result<Option<File>, FuseError> {
        if !self.attached {
            return Ok(None);
        }
        let node = self.own.open()?;
        if node.is_none() {
            tracing::warn!(device = %self.own.path().display(), "the loop device was detached by somebody else and is left alone");
            self.attached = false;
            self.before.clear();
        }
        Ok(node)
    }

    /// Detaches the device if nobody uses it and `may_go` says yes, which is asked last. `going` is called when it is certain but for users
    /// of the last moment, while the number is still ours. Gives why what the page cache held could not be flushed: the kernel has dropped it
    /// then, and keeping the device would bring nothing of it back.
    ///
    /// # Errors
    /// [`FuseError::InUse`]: then the device goes on working. [`FuseError::TimedOut`] if it may not go any more. Or the system's.
    pub(crate) fn detach(
        &mut self,
        may_go: impl FnOnce() -> Result<(), FuseError>,
        going: impl FnOnce(),
    ) -> Result<Option<io::Error>, FuseError> {
        let Some(node) = self.open()? else {
            may_go()?;
            going();
            return Ok(None);
        };
        loopusers::refuse_if_used(&self.own)?;
        // What the page cache of the device holds goes home first. An error may be of long ago; then the second try flushes the rest.
        let unflushed = node.sync_all().err();
        if unflushed.is_some()
            && let Err(error) = node.sync_all()
        {
            tracing::debug!(device = %self.own.path().display(), %error, "the second flush failed, too");
        }
        may_go()?;
        let was_protected = write_protect::is_set(&node).unwrap_or(false);
        clear(&node, self.own.number())?;
        self.put_settings_back();
        going();
        drop(node);
        if wait_until(DETACH_PATIENCE, || !self.own.is_attached()) {
            self.attached = false;
            return Ok(unflushed);
        }
        // Someone opened it at the last moment: take the order back, so that the device goes on as it was.
        let Some(node) = self.open()? else { return Ok(unflushed) };
        loopsys::keep(&node).map_err(FuseError::system("keep", self.own.path()))?;
        self.set_queue_up();
        if was_protected {
            self.set_protected(true)?;
        }
        let by = loopusers::users(&self.own).unwrap_or_else(|| "open in a process that the daemon may not look at".to_owned());
        Err(FuseError::InUse { device: self.own.path(), by })
    }

    /// Detaches the device even under its users; those that have it open keep a device that fails all I/O, which vanishes when they close it.
    pub(crate) fn abandon(&mut self) -> Result<(), FuseError> {
        let Some(node) = self.open()? else { return Ok(()) };
        self.attached = false;
        let cleared = clear(&node, self.own.number());
        self.put_settings_back();
        cleared
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        if let Err(error) = self.abandon() {
            tracing::warn!(%error, "a loop device was not removed");
        }
    }
}

/// What [`clear_stale`] found.
#[derive(Debug, Default)]
pub(crate) struct Stale {
    /// Devices that are free again.
    pub(crate) detached: Vec<PathBuf>,
    /// One sentence for each that is still used: such a device fails all I/O and vanishes when its last user closes it.
    pub(crate) warnings: Vec<String>,
}

/// Detaches what a daemon that was killed, or stopped while it was used, left of the export with that mark over `backing`, and nothing else.
pub(crate) fn clear_stale(mark: &[u8], backing: &Path) -> Result<Stale, FuseError> {
    let mut found = Stale::default();
    for left in ownloop::leftovers(mark, backing)? {
        let number = left.number;
        let used = loopusers::users_of(number);
        left.detach()?;
        let device = device_path(number);
        match used {
            Some(by) => found.warnings.push(format!(
                "{} was left by a daemon that ended, and every access to it fails; it is in use ({by}): unmount or close it, and it vanishes",
                device.display()
            )),
            None => {
                wait_until(DETACH_PATIENCE, || ownloop::backing_of(number).is_none_or(|shown| shown != backing));
                found.detached.push(device);
            }
        }
    }
    Ok(found)
}
