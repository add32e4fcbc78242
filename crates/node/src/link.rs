//! The stable name of a device: a link such as `/dev/hearth/NAME`.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A link to a device. Dropping it removes the link, unless someone has pointed it elsewhere meanwhile.
#[derive(Debug)]
pub struct Link {
    path: PathBuf,
    /// Device and inode: a link of the same name, even to the same device, may be another's. `None`
    /// if it is to stay.
    identity: Option<(u64, u64)>,
}

/// Where links of ours lead.
const TARGETS: [&str; 2] = ["/dev/loop", "/dev/ublkb"];

impl Link {
    /// Makes `directory/name` a link to `target`, in place of a stale one. `is_anothers` says whether
    /// the device at a path is served, and as another export than this one.
    ///
    /// # Errors
    /// A sentence for the administrator: a missing name is no reason not to serve the device.
    pub fn new(directory: &Path, name: &str, target: &Path, is_anothers: impl Fn(&Path) -> bool) -> Result<Link, String> {
        Link::check(directory, name, target, is_anothers)?;
        Link::place(directory, name, target)
    }

    /// Whether the name may be made.
    fn check(directory: &Path, name: &str, target: &Path, is_anothers: impl Fn(&Path) -> bool) -> Result<(), String> {
        let path = directory.join(name);
        match std::fs::symlink_metadata(&path) {
            Ok(facts) if !facts.is_symlink() => {
                Err(format!("{} is not a link and was left alone: use {} instead", path.display(), target.display()))
            }
            Ok(_) if target_of_ours(&path).is_none() => {
                let [path, target] = [path.display(), target.display()];
                Err(format!("{path} leads to no device of a kind that hearth makes and was left alone: use {target} instead"))
            }
            Ok(_) if target_of_ours(&path).is_some_and(|device| is_anothers(&device)) => {
                Err(format!("{} belongs to another daemon: use {} instead", path.display(), target.display()))
            }
            _ => Ok(()),
        }
    }

    fn place(directory: &Path, name: &str, target: &Path) -> Result<Link, String> {
        let path = directory.join(name);
        let identity = make(directory, name, &path, target)
            .map_err(|error| format!("cannot make {} ({error}): use {} instead", path.display(), target.display()))?;
        Ok(Link { path, identity: Some(identity) })
    }

    /// Whether it is where it was made, and nobody has put anything else there.
    pub fn is_in_place(&self) -> bool {
        identity_of(&self.path).ok() == self.identity
    }

    /// Leaves the link where it is.
    pub fn leave(mut self) {
        self.identity = None;
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// How a device's stable name is.
pub enum Name {
    /// It is to have none.
    Off,
    /// It is there.
    There(PathBuf),
    /// It is to be made: somebody has removed it, or something is in its place.
    Missing(Wanted),
}

impl Name {
    /// Of a device that has this link, and wants that one.
    pub fn of(link: Option<&Link>, wanted: Option<Wanted>) -> Name {
        match (link.filter(|link| link.is_in_place()), wanted) {
            (_, None) => Name::Off,
            (Some(link), _) => Name::There(link.path.clone()),
            (None, Some(wanted)) => Name::Missing(wanted),
        }
    }
}

/// Makes a device's stable name again if it is missing. `look` says how the name is; `place` makes it while the device is held, so that
/// the device does not go meanwhile, nor another come in its place: it asks its first argument whether the name is still missing. Nothing is
/// held during the look at what is in the place of the name: that may hang. Gives the name; `None`: there is to be none.
///
/// # Errors
/// A sentence for the administrator.
pub fn keep(
    look: impl FnOnce() -> Option<Name>,
    place: impl FnOnce(&dyn Fn(&Name) -> bool, &Wanted) -> Option<Result<(), String>>,
) -> Option<Result<String, String>> {
    let wanted = match look()? {
        Name::Off => return None,
        Name::There(path) => return Some(Ok(path.display().to_string())),
        Name::Missing(wanted) => wanted,
    };
    if let Err(problem) = wanted.check() {
        return Some(Err(problem));
    }
    let shown = wanted.directory.join(&wanted.name).display().to_string();
    // It may be another one by now, or have its name already.
    let wants_it = |name: &Name| matches!(name, Name::Missing(now) if now.name == wanted.name && now.target == wanted.target);
    place(&wants_it, &wanted).map(|placed| placed.map(|()| shown))
}

/// A stable name to be made: first looked at with [`Wanted::check`], which may take a while and does not need the export, then made with
/// [`Wanted::place`], which is quick.
pub struct Wanted {
    /// See [`Link::new`].
    pub directory: PathBuf,
    /// The same.
    pub name: String,
    /// The same.
    pub target: PathBuf,
    /// The same.
    pub is_anothers: Box<dyn Fn(&Path) -> bool + Send>,
}

impl Wanted {
    /// Makes it.
    ///
    /// # Errors
    /// A sentence for the administrator.
    pub fn make(&self) -> Result<Link, String> {
        Link::new(&self.directory, &self.name, &self.target, &self.is_anothers)
    }

    /// Looks at what is in its place.
    ///
    /// # Errors
    /// A sentence for the administrator: it stays.
    pub fn check(&self) -> Result<(), String> {
        Link::check(&self.directory, &self.name, &self.target, &self.is_anothers)
    }

    /// Makes it in place of what was looked at.
    ///
    /// # Errors
    /// A sentence for the administrator.
    pub fn place(&self) -> Result<Link, String> {
        Link::place(&self.directory, &self.name, &self.target)
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

/// Where a link of a kind that we make leads: what an administrator points elsewhere is the
/// administrator's.
fn target_of_ours(path: &Path) -> Option<PathBuf> {
    let target = std::fs::read_link(path).ok()?;
    TARGETS.iter().any(|kind| target.as_os_str().as_bytes().starts_with(kind.as_bytes())).then_some(target)
}

/// Removes a stable name that leads to no device that a hearth daemon serves: a killed one may have
/// left it, and whoever gets the device's number next must not be found under it. What is no link to
/// a device of such a kind stays. Mounts of the dead are cleared before. Gives whether there was one.
///
/// # Errors
/// A sentence for the administrator.
pub fn forget_stale_name(directory: &Path, name: &str, is_served: impl Fn(&Path) -> bool) -> Result<bool, String> {
    let path = directory.join(name);
    if target_of_ours(&path).is_none_or(|device| is_served(&device)) {
        return Ok(false);
    }
    let removed = std::fs::remove_file(&path).map(|()| true);
    removed.map_err(|error| format!("{} is stale and cannot be removed: {error}", path.display()))
}

/// Whether a device of a kind that we make is there, for who cannot ask it whose it is.
pub fn is_there(device: &Path) -> bool {
    let Some(name) = device.file_name() else { return false };
    let sysfs = Path::new("/sys/block").join(name);
    // A loop device that is free is there, and is nobody's.
    if name.as_bytes().starts_with(b"loop") { sysfs.join("loop/backing_file").exists() } else { sysfs.exists() }
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
        let link = Link::new(directory.path(), "volume", Path::new("/dev/loop-of-now"), |_| false).expect("replaced");
        assert_eq!(std::fs::read_link(&path).expect("a link"), Path::new("/dev/loop-of-now"));
        drop(link);
        assert!(std::fs::symlink_metadata(&path).is_err(), "removed with its owner");
        std::fs::write(&path, "mine").expect("a file");
        assert!(Link::new(directory.path(), "volume", Path::new("/dev/x"), |_| false).expect_err("left alone").contains("not a link"));
        std::fs::remove_file(&path).and_then(|()| std::os::unix::fs::symlink("/dev/sdb", &path)).expect("an administrator's link");
        let error = Link::new(directory.path(), "volume", Path::new("/dev/loop1"), |_| false).expect_err("left alone");
        assert!(error.contains("leads to no device of a kind that hearth makes"), "{error}");
        forget_stale_name(directory.path(), "volume", |_| false).expect("left alone");
        assert_eq!(std::fs::read_link(&path).expect("a link"), Path::new("/dev/sdb"));
    }

    /// The look may wait for a server that is gone. Nothing is made by it, so nobody has to be kept from the export meanwhile.
    #[test]
    fn a_look_at_a_name_makes_nothing() {
        let directory = tempfile::tempdir().expect("a directory");
        let wanted = |is_anothers: bool| Wanted {
            directory: directory.path().to_owned(),
            name: "volume".into(),
            target: "/dev/loop-of-now".into(),
            is_anothers: Box::new(move |_| is_anothers),
        };
        let path = directory.path().join("volume");
        wanted(false).check().expect("it is free");
        assert!(std::fs::symlink_metadata(&path).is_err());
        std::os::unix::fs::symlink("/dev/loop-of-old", &path).expect("a link");
        assert!(wanted(true).check().expect_err("left alone").contains("another daemon"));
        wanted(false).check().expect("it is stale");
        assert_eq!(std::fs::read_link(&path).expect("a link"), Path::new("/dev/loop-of-old"));
        let link = wanted(false).place().expect("replaced");
        assert!(link.is_in_place() && std::fs::read_link(&path).expect("a link") == Path::new("/dev/loop-of-now"));
    }

    #[test]
    fn the_name_of_a_device_that_is_gone_is_forgotten_and_a_file_is_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("volume");
        std::os::unix::fs::symlink("/dev/loop-of-old", &path).expect("a link");
        forget_stale_name(directory.path(), "volume", |_| false).expect("removed");
        assert!(std::fs::symlink_metadata(&path).is_err());
        std::fs::write(&path, "mine").expect("a file");
        forget_stale_name(directory.path(), "volume", |_| false).expect("left alone");
        assert_eq!(std::fs::read(&path).expect("the file"), b"mine");
        forget_stale_name(directory.path(), "another", |_| false).expect("nothing to do");
    }

    #[test]
    fn a_link_that_another_made_is_not_removed_even_to_the_same_device() {
        let directory = tempfile::tempdir().expect("a directory");
        let old = Link::new(directory.path(), "volume", Path::new("/dev/loop-a"), |_| false).expect("made");
        let new = Link::new(directory.path(), "volume", Path::new("/dev/loop-a"), |_| false).expect("replaced");
        drop(old);
        assert!(std::fs::read_link(directory.path().join("volume")).is_ok());
        drop(new);
        assert!(std::fs::read_link(directory.path().join("volume")).is_err());
    }
}
