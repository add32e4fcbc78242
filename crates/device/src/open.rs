//! Opening a device for good: O_DIRECT or not at all, alone, with its geometry found out.
//!
//! Invariants: no handle made here goes through the page cache; a block device is opened exclusively (O_EXCL: no mount, no
//! second user), and every device carries a lock that a second daemon runs into; a file that could not be made completely is
//! removed again.

use crate::blocking::{BlockingFile, Geometry, OsDevice};
use crate::identity::SERVED_FILE_SYSTEM;
use crate::spec::{DeviceKind, SpecError, kind_of};
use crate::system::{DeviceNumber, SystemView, read_line};
use crate::{AlignedBuffer, image_lock, space, sys};
use rustix::fs::FlockOperation;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What the opener will do with the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Read only; several readers may have the device at a time.
    ReadOnly,
    /// Read only, whoever else has the device: it is not locked, and nobody is kept from it.
    Beside,
    /// Read and write, alone.
    ReadWrite,
}

/// Why a device could not be opened or made.
#[derive(thiserror::Error, Debug)]
pub enum OpenError {
    /// The path leads nowhere, or to something else.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// Another program has the block device (EBUSY on an exclusive open).
    #[error("{} is in use by the system (mounted, swap, part of an array, or opened by another program): release it first", path.display())]
    Busy {
        /// Which device.
        path: PathBuf,
    },
    /// Another process holds the lock.
    #[error("{} is locked by another process: another hearth daemon or a program that uses it must stop first", path.display())]
    Locked {
        /// Which device.
        path: PathBuf,
    },
    /// A virtual machine, or another program that locks images as QEMU does, uses it.
    #[error("{} is open in {by}, which has locked the image: shut that down first", path.display())]
    ImageInUse {
        /// Which device.
        path: PathBuf,
        /// Who has it open, as far as that is to be seen.
        by: String,
    },
    /// The same of the file that a loop device shows.
    #[error("{} shows {}, an image that is open in {by} and locked by it: shut that down first", path.display(), file.display())]
    FileBelowInUse {
        /// Which device.
        path: PathBuf,
        /// The file below it.
        file: PathBuf,
        /// Who has that open, as far as that is to be seen.
        by: String,
    },
    /// No direct I/O there.
    #[error("{} does not support direct I/O (O_DIRECT), which hearth needs: use another file system", path.display())]
    NoDirectIo {
        /// Which file.
        path: PathBuf,
    },
    /// No permission.
    #[error("{} cannot be opened, permission denied: {}", path.display(), remedy_for_rights())]
    Permission {
        /// Which device.
        path: PathBuf,
    },
    /// Write-protected.
    #[error("{} is read-only: make it writable", path.display())]
    ReadOnlyDevice {
        /// Which device.
        path: PathBuf,
    },
    /// A file that the daemon may not write where it lies; what a service manager keeps from it looks the same.
    #[error(
        "{} lies on a file system that is read-only for hearth: mount it writable; hearth.service may write files below /srv and /var/lib/hearth \
         only: allow another directory with ReadWritePaths= (systemctl edit hearth, then restart it)",
        path.display()
    )]
    ReadOnlyFileSystem {
        /// Which file.
        path: PathBuf,
    },
    /// Nothing in it.
    #[error("{} is empty: give it a size first (a file: truncate -s SIZE {})", path.display(), path.display())]
    Empty {
        /// Which device.
        path: PathBuf,
    },
    /// Its end is inside a block.
    #[error("{} has {size_bytes} bytes, which is not a multiple of its {block_bytes}-byte blocks: choose another, or extend it if hearth may change it", path.display())]
    OddSize {
        /// Which device.
        path: PathBuf,
        /// Its size.
        size_bytes: u64,
        /// Its logical block.
        block_bytes: u32,
    },
    /// A new file was asked for where one is.
    #[error("{} exists already: choose another path, or leave out --size to use the existing file", path.display())]
    Exists {
        /// Which file.
        path: PathBuf,
    },
    /// A new file was asked for where a symbolic link is that leads nowhere.
    #[error("{} is a symbolic link to {}, which is not there: remove the link, or give the path of the file itself", path.display(), to.display())]
    LeadsNowhere {
        /// The link.
        path: PathBuf,
        /// Where it leads.
        to: PathBuf,
    },
    /// A new file did not fit.
    #[error("there is no room for {} at {}, {} are free: free some space or choose a smaller --size",
        crate::size::format_exact(*size_bytes), path.display(), crate::size::format_rounded(*free_bytes))]
    NoSpace {
        /// Which file.
        path: PathBuf,
        /// How large it was to be.
        size_bytes: u64,
        /// What the file system has left.
        free_bytes: u64,
    },
    /// A file has holes, and the file system has no room to fill them.
    #[error("{} has holes and needs {} more, its file system has {} free: free some space on it, or make the pool with a smaller --size",
        path.display(), crate::size::format_rounded(*needed_bytes), crate::size::format_rounded(*free_bytes))]
    HolesDoNotFit {
        /// Which file.
        path: PathBuf,
        /// Bytes that are still to be allocated.
        needed_bytes: u64,
        /// What the file system has left.
        free_bytes: u64,
    },
    /// The operating system refused.
    #[error("{} cannot be {what}: {source}", path.display())]
    System {
        /// Which device.
        path: PathBuf,
        /// "opened", "locked", "created" and so on.
        what: &'static str,
        /// The operating system's reason.
        #[source]
        source: io::Error,
    },
}

/// What became of the name of a file that is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Strayed {
    /// It has no name any more: its content goes when nobody has it open.
    Deleted,
    /// It has names, and its path is none of them: it leads nowhere, or to another file.
    Elsewhere,
}

/// An open device: what the runtime's rings and [`BlockingFile`] work on. Dropping it gives up the lock.
#[derive(Debug)]
pub struct OpenDevice {
    file: File,
    path: PathBuf,
    kind: DeviceKind,
    geometry: Geometry,
    access: Access,
    /// Which disk it was when it was opened: the kernel counts them (since 5.15). `None` where it does not tell.
    sequence: Option<String>,
}

/// The kernel's count of a disk, or of the one that a partition is on.
fn sequence(file: &File) -> Option<String> {
    let number = DeviceNumber::from_raw(file.metadata().ok()?.rdev());
    let directory = SystemView::default().block_directory(number)?;
    read_line(&directory.join("diskseq")).or_else(|| read_line(&directory.parent()?.join("diskseq")))
}

impl OpenDevice {
    /// Opens the block device or file at `path`.
    pub fn open(path: &Path, access: Access) -> Result<OpenDevice, OpenError> {
        let kind = kind_of(path)?;
        let exclusive = if kind == DeviceKind::BlockDevice && access == Access::ReadWrite { libc::O_EXCL } else { 0 };
        let mut options = OpenOptions::new();
        options.read(true).write(access == Access::ReadWrite).custom_flags(libc::O_DIRECT | libc::O_CLOEXEC | exclusive);
        let mut tries = PATIENCE_TRIES;
        let file = loop {
            tries -= 1;
            match options.open(path) {
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) && tries > 0 => std::thread::sleep(PATIENCE_PAUSE),
                other => break other.map_err(|error| open_error(path, error))?,
            }
        };
        // The kernel opens a write-protected device for writing, and refuses each write.
        if kind == DeviceKind::BlockDevice && access == Access::ReadWrite && is_write_protected(&file, path)? {
            return Err(OpenError::ReadOnlyDevice { path: path.to_path_buf() });
        }
        OpenDevice::over(file, path, kind, access)
    }

    /// Makes a new file of `size_bytes`, all of it allocated, and opens it. If anything fails, no file is left behind.
    pub fn create(path: &Path, size_bytes: u64) -> Result<OpenDevice, OpenError> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600).custom_flags(libc::O_DIRECT | libc::O_CLOEXEC);
        let file = options.open(path).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => match std::fs::read_link(path) {
                Ok(to) if !path.exists() => OpenError::LeadsNowhere { path: path.to_path_buf(), to },
                _ => OpenError::Exists { path: path.to_path_buf() },
            },
            io::ErrorKind::NotFound => system(path, "created (is its directory there?)", error),
            _ => open_error(path, error),
        });
        let file = match file {
            // Some file systems make the file before they refuse O_DIRECT.
            Err(error @ OpenError::NoDirectIo { .. }) => {
                remove_if_empty(path);
                return Err(error);
            }
            other => other?,
        };
        let device = space::allocate_new(&file, path, size_bytes)
            .and_then(|()| OpenDevice::over(file, path, DeviceKind::RegularFile, Access::ReadWrite))
            .and_then(|device| sync_directory(path).map(|()| device));
        device.inspect_err(|_| {
            // It is ours: `create_new` made it. What made us fail matters more than a failure to remove it.
            drop(std::fs::remove_file(path));
        })
    }

    fn over(file: File, path: &Path, kind: DeviceKind, access: Access) -> Result<OpenDevice, OpenError> {
        lock(&file, path, access)?;
        image_lock::take(&file, path, access)?;
        if kind == DeviceKind::BlockDevice {
            image_lock::ask_below(&file, path, access)?;
        }
        let geometry = geometry(&file, path, kind, access)?;
        let sequence = if kind == DeviceKind::BlockDevice { sequence(&file) } else { None };
        let device = OpenDevice { file, path: path.to_path_buf(), kind, geometry, access, sequence };
        device.try_direct_read()?;
        Ok(device)
    }

    /// One real direct read: some file systems accept the flag and refuse the transfer.
    fn try_direct_read(&self) -> Result<(), OpenError> {
        let length_bytes = self.geometry.logical_block_bytes as usize;
        let mut buffer = AlignedBuffer::zeroed(length_bytes, (self.geometry.memory_alignment_bytes as usize).max(4096));
        match self.file.read_at(&mut buffer, 0) {
            Ok(_) => Ok(()),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Err(OpenError::NoDirectIo { path: self.path.clone() }),
            Err(error) => Err(system(&self.path, "read", error)),
        }
    }

    /// The open file, with O_DIRECT set.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it is.
    pub fn kind(&self) -> DeviceKind {
        self.kind
    }

    /// Its size and rules, as found when it was opened.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// How large it is now. It may have grown since it was opened.
    ///
    /// # Errors
    /// The operating system's.
    pub fn bytes_now(&self) -> io::Result<u64> {
        match self.kind {
            DeviceKind::BlockDevice => sys::block_size_bytes(&self.file),
            DeviceKind::RegularFile => self.file.metadata().map(|metadata| metadata.len()),
        }
    }

    /// What it was opened for.
    pub fn access(&self) -> Access {
        self.access
    }

    /// The same open file (and lock) once more.
    pub fn another_handle(&self) -> Result<OpenDevice, OpenError> {
        let file = self.file.try_clone().map_err(|error| system(&self.path, "opened a second time", error))?;
        let (path, sequence) = (self.path.clone(), self.sequence.clone());
        Ok(OpenDevice { file, path, kind: self.kind, geometry: self.geometry, access: self.access, sequence })
    }

    /// Allocates all of the first `size_bytes` of a file, so that no write there can fail for want
    /// of space. What the file holds stays. Nothing is to be done for a block device.
    ///
    /// # Errors
    /// [`OpenError::HolesDoNotFit`] if the file system has no room; nothing is changed if it says
    /// so beforehand.
    pub fn allocate(&self, size_bytes: u64) -> Result<(), OpenError> {
        self.fill_holes(size_bytes, true)
    }

    /// The same where the file system can do it by itself, in moments.
    ///
    /// # Errors
    /// As [`OpenDevice::allocate`], and if the file system cannot.
    pub fn allocate_at_once(&self, size_bytes: u64) -> Result<(), OpenError> {
        self.fill_holes(size_bytes, false)
    }

    fn fill_holes(&self, size_bytes: u64, by_hand: bool) -> Result<(), OpenError> {
        match self.kind {
            DeviceKind::RegularFile => space::fill_holes(&self.file, &self.path, size_bytes.min(self.geometry.size_bytes), by_hand),
            DeviceKind::BlockDevice => Ok(()),
        }
    }

    /// Gives up a range of a block device, which it then need not keep. `false`: it cannot, or this is a file, whose room stays allocated.
    ///
    /// # Errors
    /// The kernel's or the device's.
    pub fn give_up(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<bool> {
        if self.kind == DeviceKind::RegularFile || !self.geometry.discard {
            return Ok(false);
        }
        match sys::block_discard(&self.file, offset_bytes, length_bytes) {
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(false),
            other => other.map(|()| true),
        }
    }

    /// Whether it is a block device that the machine has no more: it was unplugged, or its loop device was given another file. What comes back
    /// under the same name is another open away.
    pub fn is_gone(&self) -> bool {
        self.kind == DeviceKind::BlockDevice
            && (self.sequence != sequence(&self.file) || sys::block_size_bytes(&self.file).unwrap_or(0) == 0)
    }

    /// Whether its path leads to it no more, though it is open; `None` if it does, or that is not known. A block device: see
    /// [`OpenDevice::is_gone`].
    pub fn strayed(&self) -> Option<Strayed> {
        if self.kind == DeviceKind::BlockDevice {
            return None;
        }
        let open = self.file.metadata().ok()?;
        if open.nlink() == 0 {
            return Some(Strayed::Deleted);
        }
        // Programs that serve files number them as they like, anew at each look.
        if rustix::fs::fstatfs(&self.file).ok()?.f_type as u32 == SERVED_FILE_SYSTEM {
            return None;
        }
        match std::fs::metadata(&self.path) {
            Ok(named) => ((named.dev(), named.ino()) != (open.dev(), open.ino())).then_some(Strayed::Elsewhere),
            Err(error) => (error.kind() == io::ErrorKind::NotFound).then_some(Strayed::Elsewhere),
        }
    }

    /// The name by which other programs can open what this process has open, whatever became of its path.
    pub fn descriptor_path(&self) -> PathBuf {
        use std::os::fd::AsRawFd;
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()))
    }

    /// Whether it could be written now, had it been opened for that: a block device by its own word; a file by its permissions, its attributes
    /// and the mount it is on.
    pub fn is_writable(&self) -> Result<bool, OpenError> {
        match self.kind {
            DeviceKind::BlockDevice => is_write_protected(&self.file, &self.path).map(|protected| !protected),
            DeviceKind::RegularFile => match rustix::fs::access(&self.path, rustix::fs::Access::WRITE_OK) {
                Ok(()) => Ok(true),
                Err(rustix::io::Errno::ROFS | rustix::io::Errno::ACCESS | rustix::io::Errno::PERM) => Ok(false),
                Err(errno) => Err(system(&self.path, "looked at", errno.into())),
            },
        }
    }

    /// A blocking handle on the same open file (and lock).
    pub fn blocking(&self) -> Result<BlockingFile, OpenError> {
        let file = self.file.try_clone().map_err(|error| system(&self.path, "opened a second time", error))?;
        let is_block_device = self.kind == DeviceKind::BlockDevice;
        let raw = OsDevice::new(file, is_block_device, self.geometry.discard_zeroes);
        Ok(BlockingFile::new(raw, self.path.clone(), self.geometry))
    }
}

fn is_write_protected(device: &File, path: &Path) -> Result<bool, OpenError> {
    sys::block_is_read_only(device).map_err(|error| system(path, "looked at", error))
}

pub(crate) fn system(path: &Path, what: &'static str, source: io::Error) -> OpenError {
    OpenError::System { path: path.to_path_buf(), what, source }
}

/// Root is refused by what a file system, or the service's sandbox, does not allow at all.
fn remedy_for_rights() -> &'static str {
    match rustix::process::geteuid().is_root() {
        true => "choose a place where root may do that (not /sys or /proc; a service: see `systemctl cat hearth`)",
        false => "run as root, or as a user with access to it",
    }
}

fn open_error(path: &Path, error: io::Error) -> OpenError {
    let path_buf = path.to_path_buf();
    match error.raw_os_error() {
        Some(libc::EBUSY) => OpenError::Busy { path: path_buf },
        Some(libc::EINVAL) => OpenError::NoDirectIo { path: path_buf },
        Some(libc::EACCES | libc::EPERM) => OpenError::Permission { path: path_buf },
        Some(libc::EROFS) => OpenError::ReadOnlyFileSystem { path: path_buf },
        _ => system(path, "opened", error),
    }
}

/// Some holders go away by themselves within moments: udev looking at a block device, the kernel tidying up the rings of a
/// killed daemon, a process between fork and exec. So "busy" and "locked" are believed after this many tries.
pub(crate) const PATIENCE_TRIES: u32 = 20;
pub(crate) const PATIENCE_PAUSE: Duration = Duration::from_millis(50);

fn lock(file: &File, path: &Path, access: Access) -> Result<(), OpenError> {
    let operation = match access {
        Access::Beside => return Ok(()),
        Access::ReadOnly => FlockOperation::NonBlockingLockShared,
        Access::ReadWrite => FlockOperation::NonBlockingLockExclusive,
    };
    let mut tries = PATIENCE_TRIES;
    loop {
        tries -= 1;
        match rustix::fs::flock(file, operation) {
            Ok(()) => return Ok(()),
            Err(rustix::io::Errno::INTR) => tries += 1,
            Err(rustix::io::Errno::WOULDBLOCK) if tries == 0 => return Err(OpenError::Locked { path: path.to_path_buf() }),
            Err(rustix::io::Errno::WOULDBLOCK) => std::thread::sleep(PATIENCE_PAUSE),
            Err(errno) => return Err(system(path, "locked", errno.into())),
        }
    }
}

fn geometry(file: &File, path: &Path, kind: DeviceKind, access: Access) -> Result<Geometry, OpenError> {
    let metadata = file.metadata().map_err(|error| system(path, "looked at", error))?;
    let alignment = sys::direct_alignment(file).map_err(|error| system(path, "looked at", error))?;
    if alignment.is_some_and(|alignment| alignment.offset_bytes == 0) {
        return Err(OpenError::NoDirectIo { path: path.to_path_buf() });
    }
    let (size_bytes, logical_block_bytes) = match kind {
        DeviceKind::RegularFile => {
            let told = alignment.map(|alignment| alignment.offset_bytes.max(512));
            let told = told.map(|bytes| if bytes > 512 && moves_sectors_of_shared_blocks(file, path) { 512 } else { bytes });
            (metadata.len(), told.unwrap_or_else(|| untold_alignment(file, path, metadata.dev())))
        }
        DeviceKind::BlockDevice => {
            let size_bytes = sys::block_size_bytes(file).map_err(|error| system(path, "measured", error))?;
            let block = rustix::fs::ioctl_blksszget(file).map_err(|errno| system(path, "measured", errno.into()))?;
            (size_bytes, block)
        }
    };
    if size_bytes == 0 {
        return Err(OpenError::Empty { path: path.to_path_buf() });
    }
    if !size_bytes.is_multiple_of(u64::from(logical_block_bytes)) {
        return Err(OpenError::OddSize { path: path.to_path_buf(), size_bytes, block_bytes: logical_block_bytes });
    }
    let memory_alignment_bytes = alignment.map_or(logical_block_bytes, |alignment| alignment.memory_bytes.max(1));
    let (discard, discard_zeroes) = match kind {
        _ if access != Access::ReadWrite => (false, false),
        DeviceKind::RegularFile => {
            let holes = punches_holes(file);
            (holes, holes)
        }
        DeviceKind::BlockDevice => block_discard_limits(metadata.rdev()),
    };
    Ok(Geometry { size_bytes, logical_block_bytes, memory_alignment_bytes, discard, discard_zeroes })
}

/// Whether it is a file on XFS to which sectors can be written though its blocks are shared with another file (`cp` makes such copies by
/// itself). XFS then tells that direct I/O moves whole blocks, and carries out a write of less all the same: by reading the block, under its
/// lock of the file, into a new place (fs/xfs/xfs_file.c). A flush and `RWF_DSYNC` mean there what they mean elsewhere, and the sectors
/// beside are written with what they held. Only what XFS does is known so. On a disk with larger sectors the read fails.
fn moves_sectors_of_shared_blocks(file: &File, path: &Path) -> bool {
    const XFS: u32 = 0x5846_5342;
    let disk_does = || file.metadata().is_ok_and(|metadata| untold_alignment(file, path, metadata.dev()) <= 512);
    rustix::fs::fstatfs(file).is_ok_and(|answer| answer.f_type as u32 == XFS) && reads_sectors(file).unwrap_or_else(disk_does)
}

/// What direct I/O to a file moves whole, where the kernel (before 6.1) or the file system does not tell: as the disk below has it; of one that
/// is not known, what it does with a small read of data, be it of another file beside this one: what a file holds changes, and the answer
/// must not. File systems where neither can be had have no disk of their own (NFS), and move any bytes.
fn untold_alignment(file: &File, path: &Path, file_system: u64) -> u32 {
    let disk = SystemView::default().block_directory(DeviceNumber::from_raw(file_system));
    let limit = disk.and_then(|directory| {
        let own = read_line(&directory.join("queue/logical_block_size"));
        own.or_else(|| read_line(&directory.parent()?.join("queue/logical_block_size")))?.parse::<u32>().ok()
    });
    limit.map_or_else(
        || {
            let reads = reads_sectors(file).or_else(|| reads_sectors(&file_of_data(path).ok()?));
            if reads.unwrap_or(true) { 512 } else { 4096 }
        },
        |limit| limit.max(512),
    )
}

/// Whether a direct read of the second sector of the first data is done; `None` if there is no data. A hole says nothing: some file systems
/// do not ask the disk for it.
fn reads_sectors(file: &File) -> Option<bool> {
    let data_bytes = rustix::fs::seek(file, rustix::fs::SeekFrom::Data(0)).ok()?;
    let mut sector = AlignedBuffer::zeroed(512, 4096);
    Some(file.read_at(&mut sector, data_bytes / 4096 * 4096 + 512).is_ok_and(|bytes| bytes == 512))
}

/// A file without a name in the same directory, of two blocks of data, opened as the one there is.
fn file_of_data(path: &Path) -> io::Result<File> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let file = File::options().read(true).write(true).custom_flags(libc::O_TMPFILE | libc::O_DIRECT).open(directory)?;
    let mut data = AlignedBuffer::zeroed(8192, 4096);
    data.fill(1);
    file.write_all_at(&data, 0)?;
    file.sync_data()?;
    Ok(file)
}

/// File systems that punch holes into files, by the type statfs(2) gives (linux/magic.h). Trying it out would change the file's
/// modification time, by which others' writes are noticed.
const HOLE_PUNCHING_FILE_SYSTEMS: [(&str, u32); 7] = [
    ("ext4", 0xef53),
    ("xfs", 0x5846_5342),
    ("btrfs", 0x9123_683e),
    ("tmpfs", 0x0102_1994),
    ("f2fs", 0xf2f5_2010),
    ("bcachefs", 0xca45_1a4e),
    ("zfs", 0x2fc1_2fc1),
];

fn punches_holes(file: &File) -> bool {
    let kind = rustix::fs::fstatfs(file).map(|answer| answer.f_type as u32);
    kind.is_ok_and(|kind| HOLE_PUNCHING_FILE_SYSTEMS.iter().any(|(_, known)| *known == kind))
}

/// Whether a block device can discard, and whether it can zero a range without a transfer.
fn block_discard_limits(device_number: u64) -> (bool, bool) {
    let Some(directory) = SystemView::default().block_directory(DeviceNumber::from_raw(device_number)) else {
        return (false, false);
    };
    let limit = |name: &str| {
        // A partition has no queue of its own; its disk's is one up.
        let own = read_line(&directory.join("queue").join(name));
        let text = own.or_else(|| read_line(&directory.parent()?.join("queue").join(name)));
        text.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0)
    };
    (limit("discard_max_bytes") > 0, limit("discard_max_bytes") > 0 && limit("write_zeroes_max_bytes") > 0)
}

/// Makes the new name durable.
fn sync_directory(path: &Path) -> Result<(), OpenError> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent).and_then(|directory| directory.sync_all()).map_err(|error| system(path, "made durable", error))
}

fn remove_if_empty(path: &Path) {
    if std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.len() == 0) {
        drop(std::fs::remove_file(path));
    }
}
