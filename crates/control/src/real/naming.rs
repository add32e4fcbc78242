//! Names of block devices: the stable one that each has, and which volume a device is of, asked from outside of the daemon.

use super::{Machine, locked};
use crate::store;
use fuse::StableName;
use std::path::Path;

impl Machine {
    /// See [`crate::datapath::DataPath::stable_name`]. No export is kept during the look: what is in the place of the name may hang. It is while
    /// the name is made, so that it does not go meanwhile, nor another come in its place.
    pub(super) fn keep_stable_name(&self, volume: &str) -> Option<Result<String, String>> {
        let live = self.volume(volume).ok()?;
        let name = locked(&live.loop_export).as_ref().map(fuse::LoopExport::stable_name);
        let name = name.or_else(|| locked(&live.ublk_export).as_ref().map(ublk::UblkExport::stable_name))?;
        let wanted = match name {
            StableName::Off => return None,
            StableName::There(path) => return Some(Ok(path.display().to_string())),
            StableName::Missing(wanted) => wanted,
        };
        if let Err(problem) = wanted.check() {
            return Some(Err(problem));
        }
        let shown = wanted.directory.join(&wanted.name).display().to_string();
        // It may be another one by now, or have its name already.
        let wants_it =
            |name: StableName| matches!(name, StableName::Missing(now) if now.name == wanted.name && now.target == wanted.target);
        if let Some(export) = locked(&live.loop_export).as_mut().filter(|export| wants_it(export.stable_name())) {
            return Some(wanted.place().map(|link| {
                export.set_link(link);
                shown
            }));
        }
        if let Some(export) = locked(&live.ublk_export).as_mut().filter(|export| wants_it(export.stable_name())) {
            return Some(wanted.place().map(|link| {
                export.set_link(link);
                shown
            }));
        }
        None
    }
}

/// The volume of the state directory that the block device of this kernel's name ("ublkb0", "loop3")
/// is of, and whether it stands under a device that has the same content; `None` if it is no device of ours, or the state cannot
/// be read.
pub fn volume_of_device(device: &str, state_directory: &Path) -> Option<(String, bool)> {
    let volumes = store::look(state_directory).ok()?.exported();
    let uuid = fuse::owner_of(&Path::new("/dev").join(device));
    let is_of = |volume: &&crate::state::VolumeRecord| match &uuid {
        Some(uuid) => volume.uuid.to_string() == *uuid,
        None => ublk::is_of(device, u128::from_be_bytes(volume.uuid.0)),
    };
    volumes.iter().find(is_of).map(|volume| (volume.name.clone(), volume.attachment.is_some()))
}
