//! Which volume a block device is of, asked from outside of the daemon.

use records::store;
use std::path::Path;

/// The volume of the state directory that the block device of this kernel's name ("ublkb0", "loop3")
/// is of, and whether it stands under a device that has the same content; `None` if it is no device of ours, or the state cannot
/// be read.
pub fn volume_of_device(device: &str, state_directory: &Path) -> Option<(String, bool)> {
    let volumes = store::look(state_directory).ok()?.exported();
    let uuid = fuse::owner_of(&Path::new("/dev").join(device));
    let is_of = |volume: &&records::state::VolumeRecord| match &uuid {
        Some(uuid) => volume.uuid.to_string() == *uuid,
        None => ublk::is_of(device, u128::from_be_bytes(volume.uuid.into_bytes())),
    };
    volumes.iter().find(is_of).map(|volume| (volume.name.clone(), volume.attachment.is_some()))
}
