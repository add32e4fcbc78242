//! Block devices of this very daemon, found below a path: what lies on one waits for the daemon, so the daemon must not wait for it.

use super::exports::volumes_of;
use super::{Machine, devices, failed};
use api::error::{ControlError, Kind};
use device::below::{BlockBelow, FoundBelow, find_below};
use device::system::SystemView;
use records::state::VolumeRecord;
use std::path::Path;
use targets::names;

impl Machine {
    /// Which of these volumes lies below a path, and the way to it.
    pub(super) fn volume_below(&self, spec: &str, volumes: &[VolumeRecord]) -> Result<Option<(String, String)>, ControlError> {
        let spec = devices::parse(spec)?;
        let mut is_it = |device: &BlockBelow| self.volume_on(device, volumes);
        let found = find_below(spec.path(), &SystemView::default(), &mut is_it);
        let found = found.map_err(|error| failed(error, "run the daemon where /proc and /sys are mounted"))?;
        Ok(found.map(|FoundBelow { found, way }| (found, way)))
    }

    /// The volume of this daemon that a block device is, or is an initiator's disk of.
    pub(super) fn volume_on(&self, device: &BlockBelow, volumes: &[VolumeRecord]) -> Option<String> {
        self.exporters.volume_on(device, &volumes_of(volumes)).or_else(|| {
            // A share of ours that this machine itself is logged in to.
            let wwid = device.wwid()?;
            let is_of = |volume: &&VolumeRecord| is_share(&wwid, volume.uuid.into_bytes());
            volumes.iter().find(is_of).map(|volume| volume.name.clone())
        })
    }
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
    // By kind: there are no exporters yet, which would begin to serve.
    let waits = |device: &BlockBelow| fuse::waits_for_a_daemon(device, exports) || ublk::waits_for_a_daemon(&device.name);
    let mut is_it = |device: &BlockBelow| waits(device).then_some(());
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

    #[test]
    fn a_share_of_ours_is_known_by_what_it_calls_itself() {
        let (one, other) = ([0xab; 16], [0xac; 16]);
        for wwid in [format!("naa.{}", names::naa(one)), format!("uuid.{}", names::nvme_uuid(one)), format!("eui.{}", "ab".repeat(16))] {
            assert!(is_share(&wwid, one) && !is_share(&wwid, other), "{wwid}");
        }
        assert!(!is_share("naa.5000c500a1b2c3d4", one) && !is_share("t10.ATA disk", one) && !is_share("", one));
    }
}
