//! Shares on this machine: by the kernel's targets.

use super::{Machine, failed};
use crate::error::ControlError;
use crate::manager::share_error;
use crate::state::{ShareRecord, VolumeRecord};
use crate::store;
use std::path::Path;
use targets::{Access, CONFIGFS, Chap, Configfs, DEBUGFS, PROC_NET, Protocol, Share, TargetError};

impl Machine {
    pub(super) fn offer_share(&self, volume: &VolumeRecord, share: &ShareRecord, device: &str) -> Result<(), ControlError> {
        let chap = share.chap_file.as_ref().map(|path| {
            let wrong = |error: targets::chap::ChapError| ControlError::BadOption {
                option: "--chap",
                problem: format!("{path} {}", error.problem),
                remedy: error.remedy,
            };
            Chap::read(Path::new(path)).map_err(wrong)
        });
        let share = Share {
            protocol: share.protocol,
            uuid: volume.uuid.0,
            volume: volume.name.clone(),
            device: device.to_owned(),
            read_only: volume.options.read_only,
            addresses: share.addresses.clone(),
            access: if share.initiators.is_empty() { Access::Anyone } else { Access::Only(share.initiators.clone()) },
            chap: chap.transpose()?,
        };
        targets::apply(&tree(), &share).map_err(|error| told(volume, share.protocol, &error))?;
        self.kept.note_shared(volume, true);
        Ok(())
    }

    pub(super) fn withdraw_share(&self, volume: &VolumeRecord, protocol: Protocol) -> Result<(), ControlError> {
        let removed = targets::remove(&tree(), protocol, &volume.name, volume.uuid.0).map_err(|error| told(volume, protocol, &error));
        let others = volume.shares.iter().any(|other| other.protocol != protocol && self.is_offered(volume, other.protocol));
        if !others {
            self.kept.note_shared(volume, false);
        }
        removed
    }

    pub(super) fn stands_share(&self, volume: &VolumeRecord, protocol: Protocol, device: &str) -> bool {
        targets::device_of(&tree(), protocol, &volume.name, volume.uuid.0).as_deref() == Some(device)
    }

    fn is_offered(&self, volume: &VolumeRecord, protocol: Protocol) -> bool {
        targets::device_of(&tree(), protocol, &volume.name, volume.uuid.0).is_some()
    }

    pub(super) fn connected_to(&self, volume: &VolumeRecord, protocol: Protocol) -> Option<Vec<String>> {
        targets::connected(&tree(), Path::new(DEBUGFS), Path::new(PROC_NET), protocol, volume.uuid.0)
    }

    pub(super) fn tell_new_size(&self, volume: &VolumeRecord, protocol: Protocol) -> Result<bool, ControlError> {
        targets::refresh(&tree(), protocol, volume.uuid.0).map_err(|error| failed(&error, &error.remedy()))
    }
}

/// What [`end_shares_of`] did, a sentence each.
#[derive(Default)]
pub struct EndedShares {
    /// Shares that are gone.
    pub ended: Vec<String>,
    /// What could not be removed.
    pub problems: Vec<String>,
}

/// Removes the shares of all volumes that a state directory knows. No daemon may run there.
///
/// # Errors
/// If the state cannot be read.
pub fn end_shares_of(state_directory: &Path) -> Result<EndedShares, ControlError> {
    let mut done = EndedShares::default();
    for volume in store::look(state_directory)?.volumes {
        for share in &volume.shares {
            let (name, title) = (&volume.name, share.protocol.title());
            if targets::device_of(&tree(), share.protocol, name, volume.uuid.0).is_none() {
                continue;
            }
            match targets::remove(&tree(), share.protocol, name, volume.uuid.0) {
                Ok(()) => done.ended.push(format!("the {title} share of {name} is removed; it is back when the daemon serves the volume")),
                Err(error) => done.problems.push(format!("the {title} share of {name} remains: {error}")),
            }
        }
    }
    Ok(done)
}

fn tree() -> Configfs {
    Configfs::new(CONFIGFS)
}

fn told(volume: &VolumeRecord, protocol: Protocol, error: &TargetError) -> ControlError {
    share_error(&volume.name, protocol, &error.to_string(), &error.remedy())
}
