//! The stable name of a device: a link such as `/dev/hearth/NAME`.

use crate::mounts;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A link to a device. Dropping it removes the link, unless someone has pointed it elsewhere meanwhile.
#[derive(Debug)]
pub(crate) struct Link {
    path: PathBuf,
    target: PathBuf,
}

impl Link {
    /// Makes `directory/name` a link to `target`, a device over the file `own`, in place of a stale one.
    ///
    /// # Errors
    /// A sentence for the administrator: a missing name is no reason not to serve the device.
    pub(crate) fn new(directory: &Path, name: &str, target: &Path, own: &Path) -> Result<Link, String> {
        let path = directory.join(name);
        match std::fs::symlink_metadata(&path) {
            Ok(facts) if !facts.is_symlink() => {
                return Err(format!("{} is not a link and was left alone: use {} instead", path.display(), target.display()));
            }
            Ok(_) if is_served_by_another(&path, own) => {
                return Err(format!("{} belongs to another running daemon: use {} instead", path.display(), target.display()));
            }
            _ => {}
        }
        make(directory, name, &path, target)
            .map_err(|error| format!("cannot make {} ({error}): use {} instead", path.display(), target.display()))?;
        Ok(Link { path, target: target.to_owned() })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Made aside and moved into place, so that the name is never missing while it is replaced.
fn make(directory: &Path, name: &str, path: &Path, target: &Path) -> io::Result<()> {
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
    std::fs::rename(&aside, path).inspect_err(|_| {
        // The error that matters is being returned.
        let _ = std::fs::remove_file(&aside);
    })
}

/// Removes the stable name of a device that is not served any more, such as one that a killed daemon left: it leads nowhere, or to whoever
/// got the loop device since. A name that belongs to another running daemon, or that is no link, stays. `own` is the file that the device
/// was over.
///
/// # Errors
/// A sentence for the administrator.
pub fn forget_stale_name(directory: &Path, name: &str, own: &Path) -> Result<(), String> {
    let path = directory.join(name);
    let is_link = std::fs::symlink_metadata(&path).is_ok_and(|facts| facts.is_symlink());
    if !is_link || is_served_by_another(&path, own) {
        return Ok(());
    }
    std::fs::remove_file(&path).map_err(|error| format!("{} is stale and cannot be removed: {error}", path.display()))
}

/// Whether the link leads to a loop device over a file that a hearth daemon serves, and the file is not `own`: nobody else serves that one,
/// so what is over it was left by our own predecessor.
fn is_served_by_another(link: &Path, own: &Path) -> bool {
    let Ok(device) = std::fs::read_link(link) else { return false };
    let Some(device_name) = device.file_name() else { return false };
    let Ok(backing) = std::fs::read_to_string(Path::new("/sys/block").join(device_name).join("loop/backing_file")) else {
        return false;
    };
    let backing = Path::new(backing.trim_end());
    let mounts = mounts::read().unwrap_or_default();
    backing != own && mounts.iter().any(|mount| mount.is_ours() && mount.point == backing)
}

impl Drop for Link {
    fn drop(&mut self) {
        if std::fs::read_link(&self.path).is_ok_and(|target| target == self.target)
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "a link stays behind");
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
        let link = Link::new(directory.path(), "volume", Path::new("/dev/loop-of-now"), Path::new("/own")).expect("replaced");
        assert_eq!(std::fs::read_link(&path).expect("a link"), Path::new("/dev/loop-of-now"));
        drop(link);
        assert!(std::fs::symlink_metadata(&path).is_err(), "removed with its owner");
        std::fs::write(&path, "mine").expect("a file");
        assert!(
            Link::new(directory.path(), "volume", Path::new("/dev/x"), Path::new("/own")).expect_err("left alone").contains("not a link")
        );
    }

    #[test]
    fn the_name_of_a_device_that_is_gone_is_forgotten_and_a_file_is_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("volume");
        std::os::unix::fs::symlink("/dev/loop-of-old", &path).expect("a link");
        forget_stale_name(directory.path(), "volume", Path::new("/own")).expect("removed");
        assert!(std::fs::symlink_metadata(&path).is_err());
        std::fs::write(&path, "mine").expect("a file");
        forget_stale_name(directory.path(), "volume", Path::new("/own")).expect("left alone");
        assert_eq!(std::fs::read(&path).expect("the file"), b"mine");
        forget_stale_name(directory.path(), "another", Path::new("/own")).expect("nothing to do");
    }

    #[test]
    fn a_link_that_was_pointed_elsewhere_is_not_removed() {
        let directory = tempfile::tempdir().expect("a directory");
        let old = Link::new(directory.path(), "volume", Path::new("/dev/a"), Path::new("/own")).expect("made");
        let new = Link::new(directory.path(), "volume", Path::new("/dev/b"), Path::new("/own")).expect("replaced");
        drop(old);
        assert!(std::fs::read_link(directory.path().join("volume")).is_ok());
        drop(new);
        assert!(std::fs::read_link(directory.path().join("volume")).is_err());
    }
}
