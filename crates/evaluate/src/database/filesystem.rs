//! An ext4 file system on the device that is tried.

use super::LONG;
use crate::stage::{SHORT, Stage, unhurried};
use crate::trouble::Trouble;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often unmounting is tried while processes that were killed still let go of their files.
const TRIES: u32 = 60;

/// A mounted file system; unmounted with this guard.
pub struct FileSystem {
    stage: Stage,
    at: PathBuf,
    // Where the stage's own directory cannot be reached by other users; goes last.
    _elsewhere: Option<tempfile::TempDir>,
}

impl FileSystem {
    /// Makes one; all of its tables are written now, so that no kernel thread writes them during a run.
    ///
    /// # Errors
    /// As of [`Stage::run`].
    pub fn make(stage: &Stage, device: &str) -> Result<(), Trouble> {
        stage.run(&["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", device], LONG).map(drop)
    }

    /// Mounts a device at `NAME` in the stage's directory; if the servers' users could not reach that, in one for temporary files.
    /// What a run that was cut off left mounted there is unmounted first.
    ///
    /// # Errors
    /// As of [`Stage::run`].
    pub fn mount(stage: &Stage, name: &str, device: &str) -> Result<FileSystem, Trouble> {
        let (at, elsewhere) = place(stage, name)?;
        let mounted = FileSystem { stage: stage.clone(), at, _elsewhere: elsewhere };
        std::fs::create_dir_all(&mounted.at).map_err(|error| Trouble::io("make", &mounted.at, &error))?;
        let at = mounted.at.display().to_string();
        if is_mount(&mounted.at) {
            stage.run(&["umount", &at], LONG)?;
        }
        stage.run(&["mount", "-o", "noatime", device, &at], SHORT)?;
        Ok(mounted)
    }

    /// Its root.
    pub fn path(&self) -> &Path {
        &self.at
    }

    /// Unmounts it: all that was written is on the device then.
    ///
    /// # Errors
    /// As of [`Stage::run`].
    pub fn unmount(self) -> Result<(), Trouble> {
        self.stage.run(&["umount", &self.at.display().to_string()], LONG).map(drop)
    }
}

impl Drop for FileSystem {
    fn drop(&mut self) {
        let at = self.at.display().to_string();
        // Looked at, not remembered: a command that was ended may have done its work.
        if is_mount(&self.at) {
            let left = (0..TRIES).any(|_| {
                unhurried(&["umount", &at]) || {
                    std::thread::sleep(Duration::from_millis(500));
                    false
                }
            });
            if !left {
                // Somebody's shell is in it: it goes with the last that lets go.
                unhurried(&["umount", "-l", &at]);
            }
        }
        // Of a temporary directory the guard does it.
        let _ = std::fs::remove_dir(&self.at);
    }
}

/// Where to mount, and the guard of a temporary directory if it lies in one.
fn place(stage: &Stage, name: &str) -> Result<(PathBuf, Option<tempfile::TempDir>), Trouble> {
    let own = stage.path(name);
    let open = |path: &Path| std::fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o001 != 0);
    let whole = std::path::absolute(&own).unwrap_or_else(|_| own.clone());
    if whole.ancestors().skip(1).all(open) {
        return Ok((own, None));
    }
    let elsewhere = tempfile::tempdir().map_err(|error| Trouble::Failed(format!("cannot make a directory to mount at: {error}")))?;
    std::fs::set_permissions(elsewhere.path(), std::fs::Permissions::from_mode(0o711))
        .map_err(|error| Trouble::io("open to others", elsewhere.path(), &error))?;
    Ok((elsewhere.path().join(name), Some(elsewhere)))
}

fn is_mount(at: &Path) -> bool {
    let device = |path: &Path| std::fs::metadata(path).map(|metadata| metadata.dev()).ok();
    at.parent().is_some_and(|above| device(above) != device(at))
}
