//! Who uses a loop device: what an administrator must undo before it can go.

use crate::error::FuseError;
use crate::loopdev::{device_path, mount_points, sysfs};
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Says no if the device is mounted, held by another device, or open in any process that this one may look at.
///
/// # Errors
/// [`FuseError::InUse`] with all that was found.
pub(crate) fn refuse_if_used(number: u32) -> Result<(), FuseError> {
    let device = device_path(number);
    let mut by = users(number);
    if by.is_empty() {
        // Mounts in other namespaces and holders inside the kernel show only by their exclusive claim.
        match OpenOptions::new().read(true).custom_flags(libc::O_EXCL | libc::O_CLOEXEC).open(&device) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => by = "claimed within the kernel".to_owned(),
            // Any other trouble is met again, and told, by the detachment itself.
            _ => return Ok(()),
        }
    }
    Err(FuseError::InUse { device, by })
}

/// Mount points, holders and processes, for a message; empty if there are none.
pub(crate) fn users(number: u32) -> String {
    let mounted = mount_points(number).into_iter().map(|point| format!("mounted at {}", point.display()));
    let held = holders(number).into_iter().map(|name| format!("held by {name}"));
    let opened = openers(&device_path(number)).into_iter().map(|(pid, name)| format!("open in {name}, process {pid}"));
    mounted.chain(held).chain(opened).collect::<Vec<_>>().join(", ")
}

/// "major:minor" of device `number`, as sysfs writes it; empty if there is no such device.
pub(crate) fn device_numbers(number: u32) -> String {
    std::fs::read_to_string(sysfs(number).join("dev")).unwrap_or_default().trim().to_owned()
}

/// Device mapper and RAID devices that stand on this one.
fn holders(number: u32) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(sysfs(number).join("holders")) else { return Vec::new() };
    entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Processes with an open descriptor of `device`. Processes vanish while one looks: what cannot be read is passed over.
fn openers(device: &Path) -> Vec<(u32, String)> {
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    let mut found = Vec::new();
    for process in processes.flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let Ok(descriptors) = std::fs::read_dir(process.path().join("fd")) else { continue };
        if descriptors.flatten().any(|fd| std::fs::read_link(fd.path()).is_ok_and(|target| target == device)) {
            let name = std::fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            found.push((pid, name.trim().to_owned()));
        }
    }
    found
}
