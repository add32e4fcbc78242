//! A file behind a loop device of the kernel, with neither disk nor cache in between: what no cache on this machine can be faster than.

use super::{SHORT, Stage};
use crate::trouble::Trouble;
use std::fs::File;
use std::path::Path;

/// See the module. Ends with this guard, and with the process however it ends.
pub struct Plain {
    path: String,
    _open: File,
}

impl Plain {
    /// Attaches the file; `in_memory` lets the page cache serve it, else every I/O goes to the file system's device.
    ///
    /// # Errors
    /// If `losetup` cannot.
    pub fn open(stage: &Stage, file: &Path, in_memory: bool) -> Result<Plain, Trouble> {
        let direct = if in_memory { "--direct-io=off" } else { "--direct-io=on" };
        let file = file.display().to_string();
        let path = stage.run(&["losetup", "--find", "--show", direct, &file], SHORT)?.trim().to_string();
        let open = File::options().read(true).write(true).open(&path).map_err(|error| Trouble::io("open", path.as_ref(), &error));
        // Attached no longer than it is open: the kernel sees to that, whatever becomes of this process.
        stage.run(&["losetup", "--detach", &path], SHORT)?;
        Ok(Plain { path, _open: open? })
    }

    /// The block device.
    pub fn path(&self) -> &str {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn the_file_is_behind_the_device_until_the_guard_goes() {
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/loop-control").exists() {
            eprintln!("skipped: needs root and loop devices");
            return;
        }
        let place = tempfile::tempdir().expect("a directory");
        let file = place.path().join("file");
        std::fs::write(&file, vec![7; 1 << 20]).expect("writes");
        let stage = Stage::here(Path::new("hearth"));
        let (path, held) = {
            let plain = Plain::open(&stage, &file, true).expect("attaches");
            let mut bytes = [0; 4096];
            File::open(plain.path()).and_then(|device| device.read_exact_at(&mut bytes, 8192)).expect("reads");
            assert_eq!(bytes, [7; 4096]);
            let name = plain.path().trim_start_matches("/dev/").to_string();
            let held = std::fs::read_to_string(format!("/sys/block/{name}/loop/backing_file")).unwrap_or_default();
            (format!("/sys/block/{name}/loop/backing_file"), held)
        };
        assert_eq!(Path::new(held.trim()), file);
        assert_ne!(std::fs::read_to_string(path).unwrap_or_default(), held, "nothing stays attached");
    }
}
