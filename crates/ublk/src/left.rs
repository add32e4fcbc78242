//! Devices that a daemon has left: their users wait for the next one, or until somebody ends them.

use crate::control::{self, Control, block_path, numbers};
use crate::error::UblkError;
use crate::export::{is_served_device, on_control};
use crate::uapi::DeviceInfo;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The upper 16 bits of what the driver keeps for us: "hc", so that devices of other servers are not
/// taken for ours.
const MAGIC: u64 = 0x6863 << 48;

/// What a device of this volume is known by.
pub(crate) fn mark_of(owner: u128) -> u64 {
    let folded = (owner >> 64) as u64 ^ owner as u64;
    MAGIC | ((folded ^ folded >> 48) & ((1 << 48) - 1))
}

/// Whether it is a device of a volume of hearth's.
pub(crate) fn is_marked(info: &DeviceInfo) -> bool {
    info.mark >> 48 == MAGIC >> 48
}

/// A device that nobody serves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Left {
    number: u32,
    mark: u64,
    /// `/dev/ublkbN`.
    pub path: PathBuf,
}

/// The device of that mark.
pub(crate) fn find(mark: u64) -> Result<Option<DeviceInfo>, UblkError> {
    let numbers = numbers();
    if numbers.is_empty() {
        return Ok(None);
    }
    let mut control = Control::open()?;
    // One that goes meanwhile is not there.
    Ok(numbers.into_iter().filter_map(|number| control.info(number).ok()).find(|info| info.mark == mark))
}

/// The device that a daemon has left of this volume, if there is one and nobody serves it.
///
/// # Errors
/// If the driver does not tell.
pub fn left(owner: u128) -> Result<Option<Left>, UblkError> {
    let info = find(mark_of(owner))?.filter(|info| !control::is_served(info));
    Ok(info.map(|info| Left { number: info.number, mark: info.mark, path: block_path(info.number) }))
}

/// Whether there is a device of this volume, served or not.
///
/// # Errors
/// If the driver does not tell.
pub fn is_there(owner: u128) -> Result<bool, UblkError> {
    find(mark_of(owner)).map(|info| info.is_some())
}

/// Whether the block device of this kernel's name ("ublkb0") is one of this volume, served or not.
pub fn is_of(device: &str, owner: u128) -> bool {
    let Some(number) = device.strip_prefix("ublkb").and_then(|number| number.parse().ok()) else { return false };
    Control::open().and_then(|mut control| control.info(number)).is_ok_and(|info| info.mark == mark_of(owner))
}

/// Whether the block device of this kernel's name ("ublkb0") is one of a volume of hearth's, served or not.
pub fn is_ours(device: &str) -> bool {
    let Some(number) = device.strip_prefix("ublkb").and_then(|number| number.parse().ok()) else { return false };
    Control::open().and_then(|mut control| control.info(number)).is_ok_and(|info| is_marked(&info))
}

/// Whether the block device of this kernel's name is one of a volume of hearth's that nobody serves: its users wait for the daemon to come.
pub fn waits_for_a_daemon(device: &str) -> bool {
    let Some(number) = device.strip_prefix("ublkb").and_then(|number| number.parse().ok()) else { return false };
    let info = Control::open().and_then(|mut control| control.info(number));
    info.is_ok_and(|info| is_marked(&info) && !control::is_served(&info))
}

/// Ends a device that nobody serves: its users get errors.
///
/// # Errors
/// See [`UblkError`].
pub fn end_left(left: &Left, patience: Duration) -> Result<(), UblkError> {
    end(left.number, left.mark, patience)
}

/// Removes the stable name of a volume if it leads to a device that nobody serves. Gives whether it did.
///
/// # Errors
/// A sentence for the administrator.
pub fn forget_name(directory: &Path, name: &str) -> Result<bool, String> {
    node::link::forget_stale_name(directory, name, is_served_device)
}

/// Ends a device, served or not.
pub(crate) fn end(number: u32, mark: u64, patience: Duration) -> Result<(), UblkError> {
    on_control(patience, "ending a ublk device", move |control| control.end(number, mark))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_tell_volumes_apart_and_say_whose_they_are() {
        let owners = [0u128, 1, 1 << 64, 1 << 127, 0x0123_4567_89ab_cdef_0011_2233_4455_6677];
        let marks: std::collections::BTreeSet<u64> = owners.iter().map(|owner| mark_of(*owner)).collect();
        // Folded, so these two are one: volumes' UUIDs are random.
        assert_eq!(mark_of(1), mark_of(1 << 64));
        assert_eq!(marks.len(), owners.len() - 1);
        assert!(marks.iter().all(|mark| mark >> 48 == 0x6863));
    }
}
