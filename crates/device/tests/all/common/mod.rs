//! What several test files share: loop devices and mounts that go away again.
#![allow(dead_code)] // Each test file uses a part.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A loop device on a file, detached when dropped.
pub struct LoopDevice {
    pub path: PathBuf,
}

impl LoopDevice {
    /// A loop device over `file`, or `None` (with a message) where this machine or user cannot make one.
    pub fn attach(file: &Path, options: &[&str]) -> Option<LoopDevice> {
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/loop-control").exists() {
            eprintln!("skipped: loop devices need root and /dev/loop-control");
            return None;
        }
        let output = match Command::new("losetup").args(["--find", "--show"]).args(options).arg(file).output() {
            Ok(output) => output,
            Err(error) => {
                eprintln!("skipped: losetup cannot be run: {error}");
                return None;
            }
        };
        if !output.status.success() {
            eprintln!("skipped: losetup: {}", String::from_utf8_lossy(&output.stderr));
            return None;
        }
        Some(LoopDevice { path: PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()) })
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let status = Command::new("losetup").arg("--detach").arg(&self.path).status();
        if !status.is_ok_and(|status| status.success()) {
            eprintln!("{} could not be detached", self.path.display());
        }
    }
}

/// A mounted file system, unmounted when dropped. Declare it after the device it lies on.
pub struct Mounted {
    pub point: PathBuf,
}

impl Mounted {
    /// Makes an ext4 on `device` and mounts it at `point`, a new directory; `None` (with a message) where that cannot be done.
    pub fn ext4(device: &Path, point: &Path) -> Option<Mounted> {
        Mounted::new("mkfs.ext4", device, point)
    }

    /// The same of any file system, by the program that makes it.
    pub fn new(mkfs: &str, device: &Path, point: &Path) -> Option<Mounted> {
        std::fs::create_dir(point).expect("a mount point");
        let run = |program: &str, arguments: &[&std::ffi::OsStr]| {
            Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
        };
        if !run(mkfs, &["-q".as_ref(), device.as_ref()]) || !run("mount", &[device.as_ref(), point.as_ref()]) {
            eprintln!("skipped: {mkfs} or mount fails here");
            return None;
        }
        Some(Mounted { point: point.to_path_buf() })
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Who looks at it may hold it a moment longer.
        for _ in 0..1200 {
            if Command::new("umount").arg(&self.point).output().is_ok_and(|output| output.status.success()) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        eprintln!("{} could not be unmounted", self.point.display());
    }
}

/// A directory for this test on a file system with direct I/O, or `None` with a message.
pub fn direct_directory() -> Option<tempfile::TempDir> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    match device::OpenDevice::create(&directory.path().join("probe"), 4096) {
        Err(device::OpenError::NoDirectIo { .. }) => {
            eprintln!("skipped: no direct I/O in {}", directory.path().display());
            None
        }
        _ => Some(directory),
    }
}
