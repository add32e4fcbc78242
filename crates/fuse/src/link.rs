//! The stable name of a device: a link such as `/dev/hearth/NAME`.

use crate::ownloop;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A link to a device. Dropping it removes the link, unless someone has pointed it elsewhere meanwhile.
#[derive(Debug)]
pub(crate) struct Link {
    path: PathBuf,
    /// Device and inode: a link of the same name, even to the same device, may be another's. `None`
    /// if it is to stay.
    identity: Option<(u64, u64)>,
}

/// Where links of ours lead.
const TARGETS: &str = "/dev/loop";

impl Link {
    /// Makes `directory/name` a link to `target`, a device with that mark, in place of a stale one.
    ///
    /// # Errors
    /// A sentence for the administrator: a missing name is no reason not to serve the device.
    pub(crate) fn new(directory: &Path, name: &str, target: &Path, mark: &[u8]) -> Result<Link, String> {
        let path = directory.join(name);
        match std::fs::symlink_metadata(&path) {
            Ok(facts) if !facts.is_symlink() => {
                return Err(format!("{} is not a link and was left alone: use {} instead", path.display(), target.display()));
            }
            Ok(_) if !is_to_a_loop_device(&path) => {
                return Err(format!("{} leads to no loop device and was left alone: use {} instead", path.display(), target.display()));
            }
            Ok(_) if is_served_by_another(&path, mark) => {
                return Err(format!("{} belongs to another running daemon: use {} instead", path.display(), target.display()));
            }
            _ => {}
        }
        let identity = make(directory, name, &path, target)
            .map_err(|error| format!("cannot make {} ({error}): use {} instead", path.display(), target.display()))?;
        Ok(Link { path, identity: Some(identity) })
    }

    /// Leaves the link where it is.
    pub(crate) fn leave(mut self) {
        self.identity = None;
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Made aside and moved into place, so that the name is never missing while it is replaced. Gives the link's device and inode.
fn make(directory: &Path, name: &str, path: &Path, target: &Path) -> io::Result<(u64, u64)> {
    if !directory.is_dir() {
        std::fs::create_dir_all(directory)?;
        // The daemon's umask keeps others out, but everybody may look for the names of devices.
        std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o755))?;
    }
    let aside = directory.join(format!(".{name}.{}", std::process::id()));
    match std::fs::remove_file(&aside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    std::os::unix::fs::symlink(target, &aside)?;
    let moved = identity_of(&aside).and_then(|identity| std::fs::rename(&aside, path).map(|()| identity));
    moved.inspect_err(|_| {
        // The error that matters is being returned.
        let _ = std::fs::remove_file(&aside);
    })
}

fn identity_of(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|facts| (facts.dev(), facts.ino()))
}

/// Whether it is a link of a kind that we make: what an administrator points elsewhere is the administrator's.
fn is_to_a_loop_device(path: &Path) -> bool {
    std::fs::read_link(path).is_ok_and(|target| target.as_os_str().as_bytes().starts_with(TARGETS.as_bytes()))
}

/// Removes a stable name that leads to no device that a hearth daemon serves: a killed one may have left it, and whoever gets the loop device
/// next must not be found under it. What is no link to a loop device stays. Mounts of the dead are cleared before.
///
/// # Errors
/// A sentence for the administrator.
pub(crate) fn forget_stale_name(directory: &Path, name: &str) -> Result<(), String> {
    let path = directory.join(name);
    if !is_to_a_loop_device(&path) || mark_behind(&path).is_some() {
        return Ok(());
    }
    std::fs::remove_file(&path).map_err(|error| format!("{} is stale and cannot be removed: {error}", path.display()))
}

/// Whether the link leads to a loop device that lives and is another export's. One of the same mark was left by our own predecessor.
fn is_served_by_another(link: &Path, mark: &[u8]) -> bool {
    mark_behind(link).is_some_and(|other| other != mark)
}

/// The mark of the living device of a hearth daemon that the link leads to; of one in another mount namespace, too.
fn mark_behind(link: &Path) -> Option<Vec<u8>> {
    let device = std::fs::read_link(link).ok()?;
    ownloop::living_mark(device.file_name()?.to_str()?.strip_prefix("loop")?.parse().ok()?)
}

impl Drop for Link {
    fn drop(&mut self) {
        if self.identity.is_some()
            && identity_of(&self.path).ok() == self.identity
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "a link was not removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_link_is_replaced_and_a_foreign_file_is_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("volume");
        std::os::unix::fs::symlink("/dev/loop-of-old", &path).expect("a link");
        let link = Link::new(directory.path(), "volume", Path::new("/dev/loop-of-now"), b"own").expect("replaced");
        assert_eq!(std::fs::read_link(&path).expect("a link"), Path::new("/dev/loop-of-now"));
        drop(link);
        assert!(std::fs::symlink_metadata(&path).is_err(), "removed with its owner");
        std::fs::write(&path, "mine").expect("a file");
        assert!(Link::new(directory.path(), "volume", Path::new("/dev/x"), b"own").expect_err("left alone").contains("not a link"));
        std::fs::remove_file(&path).and_then(|()| std::os::unix::fs::symlink("/dev/sdb", &path)).expect("an administrator's link");
        let error = Link::new(directory.path(), "volume", Path::new("/dev/loop1"), b"own").expect_err("left alone");
        assert!(error.contains("leads to no loop device"), "{error}");
        forget_stale_name(directory.path(), "volume").expect("left alone");
        assert_eq!(std::fs::read_link(&path).expect("a link"), Path::new("/dev/sdb"));
    }

    #[test]
    fn the_name_of_a_device_that_is_gone_is_forgotten_and_a_file_is_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("volume");
        std::os::unix::fs::symlink("/dev/loop-of-old", &path).expect("a link");
        forget_stale_name(directory.path(), "volume").expect("removed");
        assert!(std::fs::symlink_metadata(&path).is_err());
        std::fs::write(&path, "mine").expect("a file");
        forget_stale_name(directory.path(), "volume").expect("left alone");
        assert_eq!(std::fs::read(&path).expect("the file"), b"mine");
        forget_stale_name(directory.path(), "another").expect("nothing to do");
    }

    #[test]
    fn a_link_that_another_made_is_not_removed_even_to_the_same_device() {
        let directory = tempfile::tempdir().expect("a directory");
        let old = Link::new(directory.path(), "volume", Path::new("/dev/loop-a"), b"own").expect("made");
        let new = Link::new(directory.path(), "volume", Path::new("/dev/loop-a"), b"own").expect("replaced");
        drop(old);
        assert!(std::fs::read_link(directory.path().join("volume")).is_ok());
        drop(new);
        assert!(std::fs::read_link(directory.path().join("volume")).is_err());
    }
}
