//! The stable name of a device: a link such as `/dev/hearth/NAME`.

use crate::mounts;
use std::io;
use std::path::{Path, PathBuf};

/// A link to a device. Dropping it removes the link, unless someone has pointed it elsewhere meanwhile.
#[derive(Debug)]
pub(crate) struct Link {
    path: PathBuf,
    target: PathBuf,
}

impl Link {
    /// Makes `directory/name` a link to `target`, in place of a stale one.
    ///
    /// # Errors
    /// A sentence for the administrator: a missing name is no reason not to serve the device.
    pub(crate) fn new(directory: &Path, name: &str, target: &Path) -> Result<Link, String> {
        let path = directory.join(name);
        match std::fs::symlink_metadata(&path) {
            Ok(facts) if !facts.is_symlink() => {
                return Err(format!("{} is not a link and was left alone: use {} instead", path.display(), target.display()));
            }
            Ok(_) if is_served(&path) => {
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
    std::fs::create_dir_all(directory)?;
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

/// Whether the link leads to a loop device over a file that a hearth daemon serves. Our own leftovers were cleared before.
fn is_served(link: &Path) -> bool {
    let Ok(device) = std::fs::read_link(link) else { return false };
    let Some(device_name) = device.file_name() else { return false };
    let Ok(backing) = std::fs::read_to_string(Path::new("/sys/block").join(device_name).join("loop/backing_file")) else {
        return false;
    };
    let mounts = mounts::read().unwrap_or_default();
    mounts.iter().any(|mount| mount.is_ours() && mount.point == Path::new(backing.trim_end()))
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
        let link = Link::new(directory.path(), "volume", Path::new("/dev/loop-of-now")).expect("replaced");
        assert_eq!(std::fs::read_link(&path).expect("a link"), Path::new("/dev/loop-of-now"));
        drop(link);
        assert!(std::fs::symlink_metadata(&path).is_err(), "removed with its owner");
        std::fs::write(&path, "mine").expect("a file");
        assert!(Link::new(directory.path(), "volume", Path::new("/dev/x")).expect_err("left alone").contains("not a link"));
    }

    #[test]
    fn a_link_that_was_pointed_elsewhere_is_not_removed() {
        let directory = tempfile::tempdir().expect("a directory");
        let old = Link::new(directory.path(), "volume", Path::new("/dev/a")).expect("made");
        let new = Link::new(directory.path(), "volume", Path::new("/dev/b")).expect("replaced");
        drop(old);
        assert!(std::fs::read_link(directory.path().join("volume")).is_ok());
        drop(new);
        assert!(std::fs::read_link(directory.path().join("volume")).is_err());
    }
}
