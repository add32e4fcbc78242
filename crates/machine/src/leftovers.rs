//! What is left of exports of a daemon that is gone and does not come back, and how it is ended. No daemon runs meanwhile.
//!
//! By kind of export: an exporter needs the threads that serve requests, and here there are none. What is left, and how it ends, is
//! different in each kind: a loop device has descriptors, a ublk device is the kernel's own.

use super::failed;
use api::error::ControlError;
use export::Owner;
use export::kept::{kind_of, owner_of, text_of};
use export::site::STABLE_DIRECTORY;
use fuse::Cleared;
use keeper::{Keeper, Kept};
use records::store;
use std::path::{Path, PathBuf};

/// Ends the ublk devices of volumes, which have no server. Gives the devices' paths.
fn end_ublk_devices(owners: impl IntoIterator<Item = Owner>) -> Vec<Result<PathBuf, String>> {
    let ended = owners.into_iter().filter_map(|owner| ublk::end_left_device(owner).map_err(|error| error.to_string()).transpose());
    ended.collect()
}

/// Ends the ublk devices of the volumes that a state directory knows. Their stable names go, too.
///
/// # Errors
/// If the state cannot be read.
pub fn end_ublk_devices_of(state_directory: &Path) -> Result<Vec<Result<PathBuf, String>>, ControlError> {
    let volumes = store::look(state_directory)?.exported();
    for volume in &volumes {
        // A name that cannot go leads to a device that is gone: no reason not to end it.
        if let Err(problem) = ublk::forget_name(Path::new(STABLE_DIRECTORY), &volume.name) {
            tracing::warn!("{problem}");
        }
    }
    Ok(end_ublk_devices(volumes.iter().map(super::exports::owner)))
}

/// What `end_kept_exports` did.
#[derive(Default)]
pub struct EndedExports {
    /// The devices that give errors now.
    pub devices: Vec<String>,
    /// What users still have to do about them, a sentence each: a device that is open stays until it
    /// is closed.
    pub remains: Vec<String>,
    /// What could not be ended, a sentence each.
    pub problems: Vec<String>,
}

impl EndedExports {
    /// Adds what came of ublk devices.
    pub fn add_ublk(&mut self, ended: Vec<Result<PathBuf, String>>) {
        for device in ended {
            match device {
                Ok(device) => self.devices.push(device.display().to_string()),
                Err(problem) => self.problems.push(problem),
            }
        }
    }
}

/// Ends what a keeper holds when it gives up, and takes the names of the devices away: they would lead to whoever gets those numbers next.
/// `keep_out` keeps daemons away as long as what it gives lives. Where it gives nothing, one has come: that goes on with ublk devices, which are the
/// kernel's own, and clears the rest away itself.
pub fn end_held_exports<T>(held: Kept, export_directory: &Path, keep_out: impl FnOnce() -> Option<T>) -> EndedExports {
    let mut ended = EndedExports::default();
    let (mut loops, mut signs) = (Vec::new(), Vec::new());
    for (name, set) in held {
        if kind_of(&name) == fuse::KIND {
            loops.extend(owner_of(&name).zip(fuse::volume_of_kept(&set)));
            // First of all, and of all: a daemon that was killed may wait for this to be gone.
            match fuse::end_kept(&name, set, || ()) {
                Ok((device, _)) => ended.devices.push(device.display().to_string()),
                Err(error) => tracing::debug!("{error}"),
            }
        } else if kind_of(&name) == ublk::KIND {
            signs.extend(owner_of(&name).map(|owner| (owner, text_of(&set))));
        }
    }
    let Some(_kept_out) = keep_out() else { return ended };
    for (owner, volume) in loops {
        ended.problems.extend(fuse::clear_export(&owner.to_string(), &volume, export_directory).problems);
    }
    for (owner, volume) in signs {
        ended.problems.extend(ublk::forget_name(Path::new(STABLE_DIRECTORY), &volume).err());
        ended.add_ublk(end_ublk_devices([owner]));
    }
    ended
}

/// Clears away what is left of the block devices of the volumes of a state directory that nobody serves or keeps: dead devices and mounts, and
/// stable names that lead to none of them. No daemon runs.
///
/// # Errors
/// If the state cannot be read.
pub fn clear_left_exports(state_directory: &Path, export_directory: &Path) -> Result<Cleared, ControlError> {
    let mut cleared = Cleared::default();
    let volumes = store::look(state_directory)?.exported();
    for volume in volumes.iter().filter(|volume| volume.exports.iter().any(|export| export.is_device())) {
        let of_it = fuse::clear_export(&volume.uuid.to_string(), &volume.name, export_directory);
        cleared.gone.extend(of_it.gone);
        cleared.problems.extend(of_it.problems);
    }
    Ok(cleared)
}

/// Ends all exports that a daemon has left to another one, which does not come, and clears their dead
/// mounts and stable names away.
///
/// # Errors
/// If it cannot be found out what was left.
pub fn end_kept_exports(keeper: &Keeper, export_directory: &Path) -> Result<EndedExports, ControlError> {
    let kept = keeper.take().map_err(|e| failed(format!("who holds the exports does not answer ({e})"), "end that process by its id"))?;
    let mut ended = EndedExports::default();
    for (name, set) in kept {
        if kind_of(&name) == ublk::KIND {
            ended.remains.extend(ublk::forget_name(Path::new(STABLE_DIRECTORY), &text_of(&set)).err());
            ended.add_ublk(end_ublk_devices(owner_of(&name)));
            keeper.forget(&name);
            continue;
        }
        match fuse::end_kept(&name, set, || keeper.forget(&name)) {
            Ok((device, volume)) => {
                ended.devices.push(device.display().to_string());
                let owner = owner_of(&name).map(|owner| owner.to_string()).unwrap_or_default();
                ended.remains.extend(fuse::clear_export(&owner, &volume, export_directory).problems);
            }
            Err(error) => ended.problems.push(error.to_string()),
        }
    }
    Ok(ended)
}
