//! The lock that LVM's commands hold on a volume group while they change it: a file that is locked by flock(2), and removed by the
//! command that held it for changes. Its holder can be sure that no command of LVM's is between the load of a table and the resumption of its
//! device.

use api::error::{ControlError, Kind};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

/// LVM's `locking_dir`.
const DIRECTORY: &str = "/run/lock/lvm";
/// How long a command of LVM's may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The lock of one volume group; given back when dropped.
#[derive(Debug)]
pub(super) struct VolumeGroupLock {
    _file: File,
}

/// The volume group of a mapped device that LVM has made, by the device's name and UUID. LVM doubles the hyphens within names.
pub(super) fn volume_group(name: &str, uuid: &str) -> Option<String> {
    if !uuid.starts_with("LVM-") {
        return None;
    }
    let (mut group, mut characters) = (String::new(), name.chars().peekable());
    while let Some(character) = characters.next() {
        if character == '-' && characters.next_if_eq(&'-').is_none() {
            return Some(group);
        }
        group.push(character);
    }
    None
}

impl VolumeGroupLock {
    /// Waits for it, but not for ever.
    pub fn take(group: &str) -> Result<VolumeGroupLock, ControlError> {
        take_in(Path::new(DIRECTORY), group, PATIENCE)
    }
}

fn take_in(directory: &Path, group: &str, patience: Duration) -> Result<VolumeGroupLock, ControlError> {
    let path = directory.join(format!("V_{group}"));
    let failed = |error: io::Error| ControlError::Device {
        path: path.display().to_string(),
        problem: format!("LVM's lock of the volume group {group} cannot be taken ({error})"),
        remedy: "see whether the directory can be written".into(),
        kind: Kind::Failed,
    };
    match DirBuilder::new().recursive(true).mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
        _ => {}
    }
    let until = Instant::now() + patience;
    loop {
        let file = OpenOptions::new().append(true).read(true).create(true).mode(0o600).open(&path).map_err(failed)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            // Whoever had it may have removed the file: then this lock keeps nobody out.
            Ok(()) if is_at(&file, &path) => return Ok(VolumeGroupLock { _file: file }),
            Ok(()) => {}
            Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < until => std::thread::sleep(Duration::from_millis(20)),
            Err(Errno::WOULDBLOCK | Errno::INTR) => {
                return Err(ControlError::Device {
                    path: group.into(),
                    problem: "a command of LVM's is at work on the volume group".into(),
                    remedy: "try again when it is done".into(),
                    kind: Kind::Busy,
                });
            }
            Err(error) => return Err(failed(error.into())),
        }
    }
}

fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(ours), Ok(there)) = (file.metadata(), std::fs::metadata(path)) else { return false };
    (ours.dev(), ours.ino()) == (there.dev(), there.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_told_by_the_names_of_their_devices() {
        let check = |name: &str, expected: Option<&str>| assert_eq!(volume_group(name, "LVM-abc").as_deref(), expected, "{name}");
        check("vg-lv", Some("vg"));
        check("my--vg-lv--1", Some("my-vg"));
        check("a----b-c", Some("a--b"));
        check("vg-lv-real", Some("vg"));
        check("nothing", None);
        assert_eq!(volume_group("vg-lv", "CRYPT-abc"), None);
    }

    #[test]
    fn one_has_it_at_a_time_also_where_the_file_is_removed() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let directory = directory.path().join("lvm");
        let take = || take_in(&directory, "vg", Duration::from_millis(1));
        let held = take().expect("free");
        assert_eq!(take().expect_err("held").kind(), Kind::Busy);
        drop(held);
        let held = take().expect("free again");
        std::fs::remove_file(directory.join("V_vg")).expect("as LVM does");
        assert!(!is_at(&held._file, &directory.join("V_vg")));
        take().expect("another file");
    }
}
