//! Who uses a loop device: what an administrator must undo before it can go.

use crate::error::FuseError;
use crate::ownloop::{OwnLoop, device_numbers, device_path};
use device::stack::{self, Stack};
use device::system::SystemView;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;

/// Says no if the device, or a partition of it, is mounted, swap, held by another device, below one, or open in any process that this one
/// may look at. Its caller holds the device open, so that it stays ours.
///
/// # Errors
/// [`FuseError::InUse`] with all that was found.
pub(crate) fn refuse_if_used(own: &OwnLoop) -> Result<(), FuseError> {
    match users_of(own.number()) {
        Some(by) => Err(FuseError::InUse { device: own.path(), by }),
        None => Ok(()),
    }
}

/// What uses the device, for a message; `None` also if it is not ours any more.
pub(crate) fn users(own: &OwnLoop) -> Option<String> {
    // Held open while others are looked for.
    let _node = own.open().ok()??;
    users_of(own.number())
}

/// The same of the device that has this number.
pub(crate) fn users_of(number: u32) -> Option<String> {
    let stack = match stack_on(number) {
        Ok(stack) => stack,
        // Nothing is taken away under somebody unseen.
        Err(error) => return Some(error.to_string()),
    };
    let device = device_path(number);
    let opened = stack::openers(&stack.devices, &SystemView::default()).into_iter().map(|(pid, name, path)| {
        let which = if path == device { String::new() } else { format!("{} ", path.display()) };
        format!("{which}open in {name}, process {pid}")
    });
    let found: Vec<String> = stack.uses.iter().map(ToString::to_string).chain(opened).collect();
    if !found.is_empty() {
        return Some(found.join("; "));
    }
    // Some show only by their exclusive claim: file systems that were unmounted lazily, and mounts in namespaces that we may not look at.
    match OpenOptions::new().read(true).custom_flags(libc::O_EXCL | libc::O_CLOEXEC).open(&device) {
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
            Some("mounted in a way that is not shown here: in another mount namespace, or unmounted with `umount -l`".to_owned())
        }
        // Any other trouble is met again, and told, by the detachment itself.
        _ => None,
    }
}

/// What stands on the device.
///
/// # Errors
/// If the kernel does not tell.
pub(crate) fn stack_on(number: u32) -> io::Result<Stack> {
    let numbers = device_numbers(number);
    let parsed = numbers.split_once(':').and_then(|(major, minor)| Some(libc::makedev(major.parse().ok()?, minor.parse().ok()?)));
    let parsed = parsed.ok_or_else(|| io::Error::other(format!("loop{number} is no device of this machine")))?;
    stack::stack(parsed, &SystemView::default()).map_err(io::Error::other)
}
