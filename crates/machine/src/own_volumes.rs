//! Block devices of this very daemon, found below a path: what lies on one waits for the daemon, so the daemon must not wait for it.

use super::{Machine, devices, failed};
use api::error::{ControlError, Kind};
use device::below::{BlockBelow, FoundBelow, find_below};
use device::system::SystemView;
use fuse::MOUNTS;
use records::state::VolumeRecord;
use std::path::Path;
use targets::names;

impl Machine {
    /// Which of these volumes lies below a path, and the way to it.
    pub(super) fn volume_below(&self, spec: &str, volumes: &[VolumeRecord]) -> Result<Option<(String, String)>, ControlError> {
        let spec = devices::parse(spec)?;
        let mut is_it = |block: &BlockBelow| volume_of(block, &self.site.directory, volumes);
        let found = find_below(spec.path(), &SystemView::default(), &mut is_it);
        let found = found.map_err(|error| failed(error, "run the daemon where /proc and /sys are mounted"))?;
        Ok(found.map(|FoundBelow { found, way }| (found, way)))
    }
}

/// The volume of this daemon that a block device is, or is an initiator's disk of.
fn volume_of(block: &BlockBelow, exports: &Path, volumes: &[VolumeRecord]) -> Option<String> {
    if let Some(file) = block.loop_file() {
        if is_mounted_for(&file, exports) {
            return Some(file.file_name()?.to_string_lossy().into_owned());
        }
        // Seen from another mount namespace the file has no name.
        let owner = (file == Path::new("/")).then(|| fuse::owner_of(&Path::new("/dev").join(&block.name))).flatten()?;
        return volumes.iter().find(|volume| volume.uuid.to_string() == owner).map(|volume| volume.name.clone());
    }
    if block.name.starts_with("ublkb") {
        return volumes
            .iter()
            .find(|volume| ublk::is_of(&block.name, u128::from_be_bytes(volume.uuid.into_bytes())))
            .map(|volume| volume.name.clone());
    }
    if block.name.starts_with("nbd") {
        return block.nbd_pid().and_then(nbd::export_served_to);
    }
    // A share of ours that this machine itself is logged in to.
    let wwid = block.wwid()?;
    let is_of = |volume: &&VolumeRecord| is_share(&wwid, volume.uuid.into_bytes());
    volumes.iter().find(is_of).map(|volume| volume.name.clone())
}

/// Whether a file is what the daemon with that export directory mounts for a volume. Others may have theirs below it: a `hearth model` does.
fn is_mounted_for(file: &Path, exports: &Path) -> bool {
    file.parent() == Some(&exports.join(MOUNTS))
}

/// Whether a disk that calls itself so is the share of the volume of that UUID.
fn is_share(wwid: &str, uuid: [u8; 16]) -> bool {
    let uuid_is = |text: &str| text.chars().filter(|c| *c != '-').eq(names::nvme_uuid(uuid).chars().filter(|c| *c != '-'));
    match wwid.split_once('.') {
        Some(("naa", name)) => name == names::naa(uuid),
        Some(("uuid" | "eui", name)) => uuid_is(name),
        _ => false,
    }
}

/// Refuses a place that the daemon needs for itself, such as its state directory, on a block device of its own that it has not begun to
/// serve: it would wait for itself for ever.
///
/// # Errors
/// Which place, and the way to the device.
pub fn check_own_place(what: &str, path: &Path, exports: &Path) -> Result<(), ControlError> {
    let mut is_it = |block: &BlockBelow| {
        let is_ours = match block.loop_file() {
            Some(file) => {
                is_mounted_for(&file, exports) || file == Path::new("/") && fuse::waits_for_a_daemon(&Path::new("/dev").join(&block.name))
            }
            None => ublk::waits_for_a_daemon(&block.name),
        };
        is_ours.then_some(())
    };
    // Where the kernel tells nothing, nothing is known against it.
    let Ok(Some(FoundBelow { way, .. })) = find_below(path, &SystemView::default(), &mut is_it) else { return Ok(()) };
    Err(ControlError::Device {
        path: path.display().to_string(),
        problem: format!("{what} lies on a volume of hearth itself ({way})"),
        remedy: format!(
            "move it to a disk that is no volume of this daemon: hearth cannot wait for itself ({what} is needed to serve the volume)"
        ),
        kind: Kind::Conflict,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A modelled disk has its own directory, in that of the daemon.
    #[test]
    fn what_a_model_mounts_is_no_volume_of_the_daemon() {
        let exports = Path::new("/run/hearth");
        assert!(is_mounted_for(Path::new("/run/hearth/mounts/data"), exports));
        for other in ["/run/hearth/model-abf9cb0b/mounts/model", "/run/hearth/data", "/run/other/mounts/data", "/"] {
            assert!(!is_mounted_for(Path::new(other), exports), "{other}");
        }
    }

    #[test]
    fn a_share_of_ours_is_known_by_what_it_calls_itself() {
        let (one, other) = ([0xab; 16], [0xac; 16]);
        for wwid in [format!("naa.{}", names::naa(one)), format!("uuid.{}", names::nvme_uuid(one)), format!("eui.{}", "ab".repeat(16))] {
            assert!(is_share(&wwid, one) && !is_share(&wwid, other), "{wwid}");
        }
        assert!(!is_share("naa.5000c500a1b2c3d4", one) && !is_share("t10.ATA disk", one) && !is_share("", one));
    }
}
