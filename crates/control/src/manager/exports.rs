//! Exports of a volume, all or none, and its stable name.

use super::Manager;
use crate::api::Severity;
use crate::error::ControlError;
use crate::state::VolumeRecord;
use crate::words::Export;
use std::path::Path;

impl Manager {
    /// Makes all exports of an attached volume, and the link `/dev/hearth/NAME` to the first block device among them.
    ///
    /// # Errors
    /// Then none is left.
    pub(super) fn export_all(&self, volume: &VolumeRecord) -> Result<(), ControlError> {
        let mut made: Vec<(Export, String)> = Vec::new();
        for export in &volume.exports {
            match self.data().export(volume, export) {
                Ok(place) => made.push((*export, place)),
                Err(error) => {
                    for (export, _) in &made {
                        if let Err(also) = self.data().unexport(volume, export) {
                            self.events().note(Severity::Warning, &volume.name, format!("the export {export} is left over: {also}"));
                        }
                    }
                    return Err(error);
                }
            }
        }
        let device = made.iter().find(|(e, _)| *e == Export::Loop).map(|(_, place)| place.clone());
        let stable_path = device.and_then(|device| self.make_stable(&volume.name, &device));
        self.set_live_volume(&volume.name, |live| {
            live.exports = made.into_iter().collect();
            live.stable_path = stable_path;
        });
        Ok(())
    }

    /// Takes all exports back.
    ///
    /// # Errors
    /// If one is in use: then those that went already are offered again, under new places where need be.
    pub(super) fn unexport_all(&self, volume: &VolumeRecord) -> Result<(), ControlError> {
        self.check_unused(volume)?;
        let offered: Vec<Export> = self.memory().volumes.get(&volume.name).map(|v| v.exports.keys().copied().collect()).unwrap_or_default();
        for export in offered {
            if let Err(error) = self.data().unexport(volume, &export) {
                self.offer_again(volume);
                return Err(error);
            }
            self.set_live_volume(&volume.name, |live| {
                live.exports.remove(&export);
            });
        }
        self.remove_stable(&volume.name);
        self.set_live_volume(&volume.name, |live| live.stable_path = None);
        Ok(())
    }

    /// Offers again what is missing of a volume's exports.
    pub(super) fn offer_again(&self, volume: &VolumeRecord) {
        for export in &volume.exports {
            let offered = self.memory().volumes.get(&volume.name).is_some_and(|v| v.exports.contains_key(export));
            if offered {
                continue;
            }
            match self.data().export(volume, export) {
                Ok(place) => {
                    let stable = (*export == Export::Loop).then(|| self.make_stable(&volume.name, &place)).flatten();
                    self.set_live_volume(&volume.name, |live| {
                        live.exports.insert(*export, place);
                        live.stable_path = stable.or(live.stable_path.take());
                    });
                }
                Err(error) => {
                    self.events().note(Severity::Error, &volume.name, format!("the export {export} could not be made again: {error}"));
                }
            }
        }
    }

    /// # Errors
    /// [`ControlError::Export`] with who uses it.
    pub(super) fn check_unused(&self, volume: &VolumeRecord) -> Result<(), ControlError> {
        let offered = self.memory().volumes.get(&volume.name).map(|v| v.exports.clone()).unwrap_or_default();
        for (export, place) in offered {
            if let Some(user) = self.data().export_in_use(volume, &export) {
                return Err(ControlError::Export {
                    export: place,
                    problem: format!("it is in use ({user})"),
                    remedy: "unmount it or close what uses it, then ask again".into(),
                });
            }
        }
        Ok(())
    }

    /// Makes `/dev/hearth/NAME`; `None` where it may not be made.
    fn make_stable(&self, name: &str, device: &str) -> Option<String> {
        let directory = self.shared.stable_directory.as_deref()?;
        match link(directory, name, device) {
            Ok(path) => Some(path),
            Err(error) => {
                self.events().note(
                    Severity::Info,
                    name,
                    format!("{} cannot be made ({error}): use {device}", directory.join(name).display()),
                );
                None
            }
        }
    }

    fn remove_stable(&self, name: &str) {
        let Some(directory) = self.shared.stable_directory.as_deref() else {
            return;
        };
        let path = directory.join(name);
        let ours = std::fs::symlink_metadata(&path).is_ok_and(|m| m.file_type().is_symlink());
        if ours && let Err(error) = std::fs::remove_file(&path) {
            self.events().note(Severity::Warning, name, format!("{} is left over ({error})", path.display()));
        }
    }
}

/// Makes or replaces the symbolic link, never anything else of that name.
fn link(directory: &Path, name: &str, device: &str) -> std::io::Result<String> {
    std::fs::create_dir_all(directory)?;
    let (path, fresh) = (directory.join(name), directory.join(format!(".{name}.new")));
    match std::fs::symlink_metadata(&path) {
        Ok(there) if !there.file_type().is_symlink() => {
            return Err(std::io::Error::new(std::io::ErrorKind::AlreadyExists, "something else has this name"));
        }
        _ => {}
    }
    match std::fs::remove_file(&fresh) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    std::os::unix::fs::symlink(device, &fresh)?;
    std::fs::rename(&fresh, &path)?;
    Ok(path.display().to_string())
}
