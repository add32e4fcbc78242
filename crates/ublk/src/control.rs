//! `/dev/ublk-control`: devices made, looked at, given a server, ended. Each call waits for the
//! kernel's answer, so none is made on a reactor's thread.

use crate::error::UblkError;
use crate::uapi::{self, DeviceInfo, Parameters, STATE_LIVE, control, control_command, flag};
use io_uring::squeue::Entry128;
use io_uring::{IoUring, cqueue, opcode, types};
use node::patience::begin;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where the driver takes commands.
const CONTROL: &str = "/dev/ublk-control";
/// Where it lists its devices.
const LIST: &str = "/sys/class/ublk-char";
/// What each device has: Linux 6.5.
pub(crate) const BASE: u64 = flag::CMD_IOCTL_ENCODE | flag::USER_COPY;
/// What makes it outlive its server.
pub(crate) const RECOVERY: u64 = flag::USER_RECOVERY | flag::USER_RECOVERY_REISSUE;
/// What the driver must be able to do.
const NEEDED: u64 = BASE | RECOVERY;

/// Before the ring is asked again when the kernel is short of memory.
const RING_PAUSE: Duration = Duration::from_millis(10);

/// The block device of that number.
pub(crate) fn block_path(number: u32) -> PathBuf {
    PathBuf::from(format!("/dev/ublkb{number}"))
}

/// Its other side, for the server.
pub(crate) fn char_path(number: u32) -> PathBuf {
    PathBuf::from(format!("/dev/ublkc{number}"))
}

/// A way to the driver.
pub(crate) struct Control {
    file: File,
    ring: IoUring<Entry128, cqueue::Entry>,
    /// What the driver can do.
    pub(crate) features: u64,
}

impl Control {
    /// # Errors
    /// [`UblkError::Unsupported`] if this kernel has no ublk, or one that is too old.
    pub(crate) fn open() -> Result<Control, UblkError> {
        let unsupported = |reason: String| UblkError::Unsupported { reason };
        let opened = OpenOptions::new().read(true).write(true).custom_flags(libc::O_CLOEXEC).open(CONTROL);
        let file = opened.map_err(|error| {
            unsupported(match error.raw_os_error() {
                Some(libc::ENOENT) => format!("there is no {CONTROL} (`modprobe ublk_drv` loads the driver, if the kernel has it)"),
                Some(libc::EACCES | libc::EPERM) => format!("the daemon may not open {CONTROL}"),
                _ => format!("{CONTROL} cannot be opened ({error})"),
            })
        })?;
        let ring = IoUring::<Entry128, cqueue::Entry>::builder().build(4);
        let ring = ring.map_err(|error| unsupported(format!("the ring for commands to {CONTROL} cannot be made ({error})")))?;
        let mut control = Control { file, ring, features: 0 };
        let mut features = [0u8; 8];
        let told = control.with_buffer(control::GET_FEATURES, uapi::ANY_DEVICE, &mut features, 0);
        control.features = match told {
            Ok(()) => u64::from_ne_bytes(features),
            Err(error) => return Err(unsupported(format!("this kernel's ublk is older than Linux 6.5 ({error})"))),
        };
        if control.features & NEEDED != NEEDED {
            return Err(unsupported(format!("this kernel's ublk cannot do what is needed: it has {:#x} of {NEEDED:#x}", control.features)));
        }
        Ok(control)
    }

    /// Makes a device, which has no block device yet. Gives it as the driver has made it.
    pub(crate) fn add(&mut self, wanted: &DeviceInfo) -> Result<DeviceInfo, UblkError> {
        let mut bytes = wanted.encode();
        self.with_buffer(control::ADD_DEV, wanted.number, &mut bytes, 0).map_err(UblkError::system("make a ublk device"))?;
        Ok(DeviceInfo::decode(&bytes))
    }

    pub(crate) fn info(&mut self, number: u32) -> Result<DeviceInfo, UblkError> {
        let mut bytes = [0; DeviceInfo::BYTES];
        let told = self.with_buffer(control::GET_DEV_INFO, number, &mut bytes, 0);
        told.map(|()| DeviceInfo::decode(&bytes)).map_err(UblkError::system(format!("look at ublk device {number}")))
    }

    pub(crate) fn parameters(&mut self, number: u32) -> Result<Parameters, UblkError> {
        let mut bytes = [0; Parameters::BYTES];
        bytes[..4].copy_from_slice(&(Parameters::BYTES as u32).to_ne_bytes());
        let told = self.with_buffer(control::GET_PARAMS, number, &mut bytes, 0);
        told.map(|()| Parameters::decode(&bytes)).map_err(UblkError::system(format!("look at ublk device {number}")))
    }

    pub(crate) fn set_parameters(&mut self, number: u32, parameters: &Parameters) -> Result<(), UblkError> {
        let mut bytes = parameters.encode();
        let done = self.with_buffer(control::SET_PARAMS, number, &mut bytes, 0);
        done.map_err(UblkError::system(format!("set up ublk device {number}")))
    }

    /// Makes the block device. All tags must be fetched, and the server must answer: the kernel looks
    /// for partitions.
    pub(crate) fn start(&mut self, number: u32) -> Result<(), UblkError> {
        let pid = std::process::id().into();
        self.plain(control::START_DEV, number, pid).map_err(UblkError::system(format!("start ublk device {number}")))
    }

    /// Ends the device if it is still the one with that mark: requests that wait get errors, the block
    /// device goes, and so does all the rest of it.
    pub(crate) fn end(&mut self, number: u32, mark: u64) -> Result<(), UblkError> {
        self.stop(number, mark)?;
        if self.is_there(number, mark)? { self.delete(number) } else { Ok(()) }
    }

    /// Requests that wait get errors, and the block device goes. One that has another mark is not
    /// touched: it is another's.
    pub(crate) fn stop(&mut self, number: u32, mark: u64) -> Result<(), UblkError> {
        if !self.is_there(number, mark)? {
            return Ok(());
        }
        match self.plain(control::STOP_DEV, number, 0) {
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(()),
            done => done.map_err(UblkError::system(format!("stop ublk device {number}"))),
        }
    }

    /// Whether there is a device of that number and mark.
    pub(crate) fn is_there(&mut self, number: u32, mark: u64) -> Result<bool, UblkError> {
        match self.info(number) {
            Ok(info) => Ok(info.mark == mark),
            Err(error) if error.is(libc::ENODEV) || error.is(libc::ENOENT) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Forgets a device that is stopped; at once, or when the last user has closed its block device.
    /// Before Linux 6.9 a thread waits for that user.
    pub(crate) fn delete(&mut self, number: u32) -> Result<(), UblkError> {
        let asynchronous = self.plain(control::DEL_DEV_ASYNC, number, 0);
        let done = asynchronous.or_else(|error| match error.raw_os_error() {
            // Before Linux 6.9.
            Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ENOSYS) => {
                begin("ublk-delete", move || delete_and_wait(number));
                Ok(())
            }
            // Somebody else was faster.
            Some(libc::ENODEV | libc::ENOENT) => Ok(()),
            _ => Err(error),
        });
        done.map_err(UblkError::system(format!("remove ublk device {number}")))
    }

    /// This process is to be the server of a device whose server has gone. `EBUSY` while that one is
    /// still ending.
    pub(crate) fn begin_recovery(&mut self, number: u32) -> Result<(), UblkError> {
        let done = self.plain(control::START_USER_RECOVERY, number, 0);
        done.map_err(UblkError::system(format!("take ublk device {number} over")))
    }

    /// All tags are fetched: what waits comes now.
    pub(crate) fn end_recovery(&mut self, number: u32) -> Result<(), UblkError> {
        let pid = std::process::id().into();
        let done = self.plain(control::END_USER_RECOVERY, number, pid);
        done.map_err(UblkError::system(format!("take ublk device {number} over")))
    }

    /// Whether the size of devices can change.
    pub(crate) fn can_resize(&self) -> bool {
        self.features & flag::UPDATE_SIZE != 0
    }

    pub(crate) fn resize(&mut self, number: u32, size_bytes: u64) -> Result<(), UblkError> {
        let done = self.plain(control::UPDATE_SIZE, number, size_bytes / 512);
        done.map_err(UblkError::system(format!("set the size of ublk device {number}")))
    }

    fn plain(&mut self, command: u32, number: u32, value: u64) -> io::Result<()> {
        self.with_buffer(command, number, &mut [], value)
    }

    /// Carries one command out.
    fn with_buffer(&mut self, command: u32, number: u32, buffer: &mut [u8], value: u64) -> io::Result<()> {
        let address = if buffer.is_empty() { 0 } else { buffer.as_mut_ptr() as u64 };
        let bytes = control_command(number, (address, buffer.len() as u16), value);
        let entry: Entry128 = opcode::UringCmd80::new(types::Fd(self.file.as_raw_fd()), command).cmd(bytes).build();
        // SAFETY: the buffer is borrowed until the answer is here, which is waited for below without
        // giving up; the entry names nothing else.
        unsafe { self.ring.submission().push(&entry) }.map_err(io::Error::other)?;
        loop {
            if let Err(error) = self.ring.submit_and_wait(1) {
                // Memory is short, or a signal came. The entry may be with the kernel: what it names
                // must not go, so there is no way but to try again.
                match error.raw_os_error() {
                    Some(libc::EINTR) => {}
                    Some(libc::EAGAIN | libc::EBUSY) => std::thread::sleep(RING_PAUSE),
                    _ => panic!("the ring for commands to {CONTROL} is broken: {error}"),
                }
            }
            if let Some(done) = self.ring.completion().next() {
                return if done.result() < 0 { Err(io::Error::from_raw_os_error(-done.result())) } else { Ok(()) };
            }
        }
    }
}

/// Waits until no user has the block device open.
fn delete_and_wait(number: u32) {
    let deleted = Control::open().map_err(io::Error::other).and_then(|mut control| control.plain(control::DEL_DEV, number, 0));
    if let Err(error) = deleted {
        tracing::warn!(number, %error, "a ublk device that has ended was not forgotten");
    }
}

/// The numbers of all ublk devices of this machine.
pub(crate) fn numbers() -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir(LIST) else { return Vec::new() };
    let names = entries.flatten().map(|entry| entry.file_name());
    names.filter_map(|name| name.to_str()?.strip_prefix("ublkc")?.parse().ok()).collect()
}

/// Whether a process that lives serves the device.
pub(crate) fn is_served(info: &DeviceInfo) -> bool {
    info.state == STATE_LIVE && lives(info.server_pid)
}

/// Whether there is such a process, and it is not just waiting to be forgotten.
fn lives(pid: i32) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}
