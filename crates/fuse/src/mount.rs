//! Mounting a FUSE file system over a regular file, and clearing away what a killed daemon left behind.

use crate::error::FuseError;
use crate::mounts::{self, MountEntry};
use node::patience::within;
use std::ffi::CString;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a mount found in our way may take to say whether its server lives.
const PROBE_PATIENCE: Duration = Duration::from_secs(3);

/// A mounted file. Dropping it breaks the connection and detaches the mount.
#[derive(Debug)]
pub(crate) struct Mount {
    path: PathBuf,
    mounted: bool,
    /// The number of our file system, by which the mount is told from one that somebody else makes over it or in its place.
    device: String,
    /// Device and inode of the empty file below it; `None` if all is left to the next daemon. Then
    /// nobody may look at the path: nobody answers.
    below: Option<(u64, u64)>,
}

impl Mount {
    /// Mounts over the file `path` (made if missing) and gives the connection's end: `/dev/fuse`, non-blocking.
    ///
    /// # Errors
    /// [`FuseError::NotRoot`], [`FuseError::NoFuse`], [`FuseError::PathTaken`], or the system's.
    pub(crate) fn new(path: &Path, source: &str) -> Result<(Mount, OwnedFd), FuseError> {
        // SAFETY: `geteuid` has no preconditions.
        if unsafe { libc::geteuid() } != 0 {
            return Err(FuseError::NotRoot);
        }
        make_file(path)?;
        let below = identity_of(path).map_err(FuseError::system("look at", path))?;
        let connection = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open("/dev/fuse")
            .map_err(|source| FuseError::NoFuse { source })?;
        // The kernel's own permission check (default_permissions) suffices: the file is root's, and the loop driver acts as root. Without
        // allow_other only processes of that very group would get as far: the service has a group of its own.
        let options = format!("fd={},rootmode=100000,user_id=0,group_id=0,default_permissions,allow_other", connection.as_raw_fd());
        let (source, target) = (c_string(source.as_bytes()), c_string(path.as_os_str().as_bytes()));
        let (kind, options) = (c_string(mounts::OUR_KIND.as_bytes()), c_string(options.as_bytes()));
        let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC | libc::MS_NOATIME;
        // SAFETY: four NUL-terminated strings that live until the call returns.
        let result = unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, options.as_ptr().cast()) };
        if result != 0 {
            return Err(FuseError::system("mount a FUSE file over", path)(io::Error::last_os_error()));
        }
        match mounts::top(path) {
            Ok(Some(top)) if top.is_ours() => {
                Ok((Mount { path: path.to_owned(), mounted: true, device: top.device, below: Some(below) }, connection.into()))
            }
            Ok(_) => Err(FuseError::Covered { path: path.to_owned() }),
            Err(error) => {
                detach(path)?;
                Err(error)
            }
        }
    }

    /// A mount that an earlier daemon has made, as far as it is there: it may have gone with the
    /// mount namespace of that daemon, and the file system lives as long as the loop device holds
    /// it.
    pub(crate) fn taken_over(path: &Path, device: String, below: Option<(u64, u64)>) -> Result<Mount, FuseError> {
        let mut mount = Mount { path: path.to_owned(), mounted: false, device, below };
        mount.mounted = mounts::read()?.iter().any(|other| mount.is(other));
        Ok(mount)
    }

    /// The number of the file system, and device and inode of the file below it; `None` if all is
    /// left to the next daemon.
    pub(crate) fn facts(&self) -> (&str, Option<(u64, u64)>) {
        (&self.device, self.below)
    }

    /// Leaves the mount to the next daemon.
    pub(crate) fn leave(&mut self) {
        (self.mounted, self.below) = (false, None);
    }

    /// Whether it is this mount. Numbers of file systems are given out again: by itself the number says nothing.
    fn is(&self, mount: &MountEntry) -> bool {
        mount.is_ours() && mount.device == self.device && mount.point == self.path
    }

    /// Breaks the connection (whatever waits for an answer gets an error), detaches the mount, and removes the file.
    ///
    /// # Errors
    /// [`FuseError::Covered`] or the system's; what was not done is done by the next call.
    pub(crate) fn unmount(&mut self) -> Result<(), FuseError> {
        if self.mounted {
            match mounts::top(&self.path)? {
                Some(top) if self.is(&top) => detach(&self.path)?,
                Some(_) if mounts::read()?.iter().any(|mount| self.is(mount)) => {
                    return Err(FuseError::Covered { path: self.path.clone() });
                }
                // Somebody has unmounted it already; what is there now is not ours.
                Some(_) | None => {}
            }
            self.mounted = false;
        }
        if let Some(below) = self.below
            && identity_of(&self.path).is_ok_and(|now| now == below)
        {
            std::fs::remove_file(&self.path).map_err(FuseError::system("remove", &self.path))?;
        }
        Ok(())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Err(error) = self.unmount() {
            tracing::warn!(%error, "a FUSE mount was not removed");
        }
    }
}

/// Detaches dead mounts of ours at `path`, left by a daemon that was killed. Gives whether there were any.
///
/// # Errors
/// [`FuseError::ServedElsewhere`] if someone answers there, or takes long to, and [`FuseError::Covered`] if the mount is no hearth's.
pub(crate) fn clear_stale(path: &Path) -> Result<bool, FuseError> {
    let mut were_there = false;
    while let Some(top) = mounts::top(path)? {
        if !top.is_ours() {
            return Err(FuseError::Covered { path: path.to_owned() });
        }
        let probed = path.to_owned();
        // STATFS is never answered from a cache, so a dead connection cannot hide.
        match within(PROBE_PATIENCE, "fuse-probe", move || statfs(&probed)) {
            // A server that is stopped or hangs is there all the same; the end of a process closes its connection.
            Some(Ok(())) | None => return Err(FuseError::ServedElsewhere { path: path.to_owned() }),
            Some(Err(error)) if !matches!(error.raw_os_error(), Some(libc::ENOTCONN | libc::ECONNABORTED)) => {
                return Err(FuseError::system("look at the mount", path)(error));
            }
            Some(Err(_)) => detach(path)?,
        }
        were_there = true;
    }
    Ok(were_there)
}

fn identity_of(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|facts| (facts.dev(), facts.ino()))
}

/// Whether a mount of a hearth daemon is on top there; it may be dead.
pub(crate) fn is_one_of_ours(path: &Path) -> bool {
    mounts::top(path).is_ok_and(|top| top.is_some_and(|top| top.is_ours()))
}

/// Whether a mount of a hearth daemon is on top there, and answers.
pub(crate) fn answers(path: &Path) -> bool {
    is_one_of_ours(path) && statfs(path).is_ok()
}

fn statfs(path: &Path) -> io::Result<()> {
    let path = c_string(path.as_os_str().as_bytes());
    let mut facts = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: a NUL-terminated path and room for the answer.
    if unsafe { libc::statfs(path.as_ptr(), facts.as_mut_ptr()) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// MNT_FORCE aborts the connection, so nothing can hang on it; MNT_DETACH takes the mount from the tree even while something holds it.
fn detach(path: &Path) -> Result<(), FuseError> {
    let target = c_string(path.as_os_str().as_bytes());
    let mut result = Err(io::Error::from_raw_os_error(libc::EINVAL));
    for flags in [libc::MNT_FORCE | libc::UMOUNT_NOFOLLOW, libc::MNT_DETACH | libc::UMOUNT_NOFOLLOW] {
        // SAFETY: a NUL-terminated path.
        let code = unsafe { libc::umount2(target.as_ptr(), flags) };
        result = if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
        if result.is_ok() {
            break;
        }
    }
    result.map_err(FuseError::system("unmount", path))
}

/// Makes the empty file that is mounted over.
fn make_file(path: &Path) -> Result<(), FuseError> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let facts = std::fs::symlink_metadata(path).map_err(FuseError::system("look at", path))?;
            if facts.is_file() && facts.len() == 0 { Ok(()) } else { Err(FuseError::PathTaken { path: path.to_owned() }) }
        }
        Err(error) => Err(FuseError::system("make", path)(error)),
    }
}

/// Paths and names come from places that have refused NUL already; one that slips through is cut there.
fn c_string(bytes: &[u8]) -> CString {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    CString::new(&bytes[..end]).expect("cut before the first NUL")
}
