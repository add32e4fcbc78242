//! Who uses a block device: what an administrator must undo before it can go.

use device::stack::{self, Stack};
use device::system::SystemView;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// What uses the device of that number (`st_rdev`) and path, for a message: partitions, mounts, swap,
/// devices on it, processes that have it open, as far as this one may look at them. Its caller sees
/// to it that the number stays the device's.
pub fn users_of(number: u64, device: &Path) -> Option<String> {
    let stack = match stack_on(number) {
        Ok(stack) => stack,
        // Nothing is taken away under somebody unseen.
        Err(error) => return Some(error.to_string()),
    };
    let opened = stack::openers(&stack.devices, &SystemView::default()).into_iter().map(|(pid, name, path)| {
        let which = if path == device { String::new() } else { format!("{} ", path.display()) };
        format!("{which}open in {name}, process {pid}")
    });
    let numbers: Vec<u64> = stack.devices.iter().map(|(number, _)| *number).chain([number]).collect();
    let shared = kernel_targets_on(&numbers, Path::new(CONFIGFS));
    let found: Vec<String> = stack.uses.iter().map(ToString::to_string).chain(opened).chain(shared).collect();
    if !found.is_empty() {
        return Some(found.join("; "));
    }
    // Some show only by their exclusive claim: file systems that were unmounted lazily, and mounts in
    // namespaces that we may not look at.
    match OpenOptions::new().read(true).custom_flags(libc::O_EXCL | libc::O_CLOEXEC).open(device) {
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
            Some("mounted in a way that is not shown here: in another mount namespace, or unmounted with `umount -l`".to_owned())
        }
        // Any other trouble is met again, and told, by what is done next.
        _ => None,
    }
}

/// Where the kernel's targets are set up.
const CONFIGFS: &str = "/sys/kernel/config";

/// Targets in the kernel that offer one of the devices of those numbers to other machines. nvmet, and LIO with a file, have it open without a claim
/// of their own and without a process.
fn kernel_targets_on(numbers: &[u64], configfs: &Path) -> Vec<String> {
    let text = |path: std::path::PathBuf| std::fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default();
    let is_it =
        |path: &str| std::fs::metadata(path).is_ok_and(|facts| facts.file_type().is_block_device() && numbers.contains(&facts.rdev()));
    let mut found = Vec::new();
    for subsystem in directories(&configfs.join("nvmet/subsystems")) {
        for namespace in directories(&subsystem.join("namespaces")) {
            if text(namespace.join("enable")) == "1" && is_it(&text(namespace.join("device_path"))) {
                found.push(format!("namespace {} of the NVMe subsystem {} of this machine", name_of(&namespace), name_of(&subsystem)));
            }
        }
    }
    for adapter in directories(&configfs.join("target/core")) {
        for backstore in directories(&adapter) {
            let info = text(backstore.join("info"));
            let named =
                |key: &str| info.split_once(key).and_then(|(_, rest)| rest.split_whitespace().next()).unwrap_or_default().to_owned();
            let paths = [named("File:"), named("UDEV PATH:"), text(backstore.join("udev_path"))];
            // One that was never switched on has nothing open.
            if text(backstore.join("enable")) != "0" && paths.iter().any(|path| is_it(path)) {
                found.push(format!("the backstore {}/{} of LIO", name_of(&adapter), name_of(&backstore)));
            }
        }
    }
    found
}

fn directories(of: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(of).into_iter().flatten().flatten();
    let mut found: Vec<_> = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()).collect();
    found.sort();
    found
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// What stands on the device.
///
/// # Errors
/// If the kernel does not tell.
pub fn stack_on(number: u64) -> io::Result<Stack> {
    stack::stack(number, &SystemView::default()).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{create_dir_all, read_dir, write};

    #[test]
    fn what_the_kernel_shares_has_a_user() {
        let devices = read_dir("/dev").expect("devices").flatten().map(|entry| entry.path());
        let Some(device) = devices.into_iter().find(|path| std::fs::metadata(path).is_ok_and(|facts| facts.file_type().is_block_device()))
        else {
            return println!("skipped: there is no block device");
        };
        let number = std::fs::metadata(&device).expect("facts").rdev();
        let tree = tempfile::tempdir().expect("a directory");
        let at = |path: &str| tree.path().join(path);
        assert_eq!(kernel_targets_on(&[1, number], tree.path()), Vec::<String>::new());
        let put = |path: &str, text: &str| {
            create_dir_all(at(path).parent().expect("a parent")).and_then(|()| write(at(path), text)).expect("written");
        };
        let path = device.to_str().expect("text");
        put("nvmet/subsystems/nqn.x/namespaces/1/device_path", &format!("{path}\n"));
        put("nvmet/subsystems/nqn.x/namespaces/1/enable", "0\n");
        put("nvmet/subsystems/nqn.x/namespaces/2/device_path", "/dev/null\n");
        put("nvmet/subsystems/nqn.x/namespaces/2/enable", "1\n");
        put("target/core/fileio_0/disk/info", "Status: DEACTIVATED  Max Queue Depth: 0\n  TCM FILEIO ID: 0  File: /dev/null  Size: 1\n");
        put("target/core/fileio_0/off/info", &format!("Status: DEACTIVATED  File: {path}  Size: 1\n"));
        put("target/core/fileio_0/off/enable", "0\n");
        put("target/core/alua/lu_gps/info", "");
        assert_eq!(kernel_targets_on(&[1, number], tree.path()), Vec::<String>::new(), "none of them is it and on");
        put("nvmet/subsystems/nqn.x/namespaces/1/enable", "1\n");
        put(
            "target/core/fileio_0/disk/info",
            &format!("Status: ACTIVATED  Max Queue Depth: 0\n  TCM FILEIO ID: 0  File: {path}  Size: 1\n"),
        );
        put("target/core/iblock_1/other/udev_path", &format!("{path}\n"));
        put("target/core/iblock_2/third/info", &format!("Status: DEACTIVATED\n  iBlock device: ublkb0  UDEV PATH: {path}  readonly: 0\n"));
        put("target/core/iblock_2/third/enable", "1\n");
        let expected = [
            "namespace 1 of the NVMe subsystem nqn.x of this machine",
            "the backstore fileio_0/disk of LIO",
            "the backstore iblock_1/other of LIO",
            "the backstore iblock_2/third of LIO",
        ];
        assert_eq!(kernel_targets_on(&[1, number], tree.path()), expected);
        assert_eq!(kernel_targets_on(&[number + 1], tree.path()), Vec::<String>::new());
    }
}
