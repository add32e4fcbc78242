//! Who uses a loop device: what an administrator must undo before it can go.

use crate::error::FuseError;
use crate::ownloop::{OwnLoop, device_path, raw_number};

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
    match raw_number(number) {
        Some(raw) => node::users::users_of(raw, &device_path(number)),
        // Nothing is taken away under somebody unseen.
        None => Some(format!("loop{number} is no device of this machine")),
    }
}
