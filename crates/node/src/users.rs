//! Who uses a block device: what an administrator must undo before it can go.

use device::stack::{self, Stack};
use device::system::SystemView;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
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
    let found: Vec<String> = stack.uses.iter().map(ToString::to_string).chain(opened).collect();
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

/// What stands on the device.
///
/// # Errors
/// If the kernel does not tell.
pub fn stack_on(number: u64) -> io::Result<Stack> {
    stack::stack(number, &SystemView::default()).map_err(io::Error::other)
}
