//! The kernel's descriptions of its tracepoints, wherever they are mounted. Where they are not,
//! they are mounted for this process alone: a mount without a place, which is gone with its
//! descriptor.

use crate::refused::Refused;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// `TRACEFS_MAGIC` of linux/magic.h.
const MAGIC: u64 = 0x7472_6163;
/// No file that is read as a whole is longer.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// What it is opened for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    /// Its files are read.
    Reading,
    /// Files are written and directories made: mounts that are read-only do not serve.
    Changing,
}

/// An open tracefs; paths are below its root.
pub struct Tracefs {
    root: OwnedFd,
}

impl Tracefs {
    /// The one that is mounted, else one of our own.
    pub fn open(purpose: Use) -> Result<Tracefs, Refused> {
        let mounts = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
        let places = mount_points(&mounts, purpose);
        if let Some(root) = places.iter().find_map(|place| open_root(Path::new(place)).ok()) {
            return Ok(Tracefs { root });
        }
        let root = mount_privately().map_err(|source| Refused::TracefsAbsent { source })?;
        Ok(Tracefs { root })
    }

    pub fn read(&self, path: impl AsRef<Path>) -> io::Result<String> {
        let mut text = String::new();
        self.open_file(path, OFlags::RDONLY)?.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
        Ok(text)
    }

    /// One write, since the kernel takes each as a command.
    pub fn write(&self, path: impl AsRef<Path>, text: &str) -> io::Result<()> {
        self.open_file(path, OFlags::WRONLY | OFlags::TRUNC)?.write_all(text.as_bytes())
    }

    pub fn open_file(&self, path: impl AsRef<Path>, flags: OFlags) -> io::Result<File> {
        Ok(File::from(rustix::fs::openat(&self.root, path.as_ref(), flags | OFlags::CLOEXEC, Mode::empty())?))
    }

    pub fn make_directory(&self, path: impl AsRef<Path>) -> io::Result<()> {
        Ok(rustix::fs::mkdirat(&self.root, path.as_ref(), Mode::RWXU)?)
    }

    pub fn remove_directory(&self, path: impl AsRef<Path>) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.root, path.as_ref(), AtFlags::REMOVEDIR)?)
    }

    /// Names in a directory.
    pub fn names(&self, path: impl AsRef<Path>) -> io::Result<Vec<OsString>> {
        let directory = self.open_file(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let name = |entry: rustix::fs::DirEntry| OsString::from_vec(entry.file_name().to_bytes().to_vec());
        rustix::fs::Dir::read_from(directory)?.map(|entry| Ok(name(entry?))).collect()
    }
}

fn open_root(place: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(place, flags, Mode::empty())?;
    // Another mount may lie above it.
    if rustix::fs::fstatfs(&root)?.f_type as u64 == MAGIC { Ok(root) } else { Err(io::ErrorKind::NotFound.into()) }
}

fn mount_privately() -> io::Result<OwnedFd> {
    let context = rustix::mount::fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    Ok(rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

/// Where whole tracefs are mounted, by `/proc/self/mountinfo` (proc(5)).
fn mount_points(mountinfo: &[u8], purpose: Use) -> Vec<OsString> {
    let place = |line: &[u8]| {
        let mut fields = line.split(|byte| *byte == b' ');
        let (root, place, options) = (fields.nth(3)?, fields.next()?, fields.next()?);
        let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
        let read_only = options.split(|byte| *byte == b',').any(|option| option == b"ro");
        (kind == b"tracefs" && root == b"/" && !(purpose == Use::Changing && read_only)).then(|| unescaped(place))
    };
    mountinfo.split(|byte| *byte == b'\n').filter_map(place).collect()
}

/// The kernel writes blanks and backslashes as `\` and three octal digits.
fn unescaped(text: &[u8]) -> OsString {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, others @ ..] = rest {
        let code = others.get(..3).filter(|_| *first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                plain.push(byte);
                rest = &others[3..];
            }
            None => {
                plain.push(*first);
                rest = others;
            }
        }
    }
    std::ffi::OsStr::from_bytes(&plain).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_it_is_mounted() {
        let mounts = b"22 28 0:21 / /sys rw,nosuid - sysfs sysfs rw\n\
            30 22 0:11 / /sys/kernel/tracing ro,nosuid shared:9 - tracefs tracefs rw\n\
            31 22 0:11 /instances /other rw - tracefs tracefs rw\n\
            32 22 0:11 / /a\\040b\\134c rw master:1 propagate_from:2 - tracefs none rw\n\
            33 22 0:11 / /tracefs rw - ext4 tracefs rw\n\
            34 22 0:11 / /short\n\n\xff \xff\n";
        assert_eq!(mount_points(mounts, Use::Reading), ["/sys/kernel/tracing", "/a b\\c"]);
        assert_eq!(mount_points(mounts, Use::Changing), ["/a b\\c"]);
        assert!(mount_points(b"", Use::Reading).is_empty());
    }

    #[test]
    fn odd_escapes_stay_as_they_are() {
        assert_eq!(unescaped(b"\\"), "\\");
        assert_eq!(unescaped(b"\\04"), "\\04");
        assert_eq!(unescaped(b"\\999\\777"), "\\999\\777");
    }
}
