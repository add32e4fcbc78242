//! Shares on this machine: by the kernel's targets.

use super::{Machine, failed};
use crate::error::ControlError;
use crate::manager::share_error;
use crate::state::{ShareRecord, VolumeRecord};
use std::path::Path;
use targets::{Access, CONFIGFS, Chap, Configfs, DEBUGFS, Protocol, Share, TargetError};

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
        targets::apply(&tree(), &share).map_err(|error| told(volume, share.protocol, &error))
    }

    pub(super) fn withdraw_share(&self, volume: &VolumeRecord, protocol: Protocol) -> Result<(), ControlError> {
        targets::remove(&tree(), protocol, &volume.name, volume.uuid.0).map_err(|error| told(volume, protocol, &error))
    }

    pub(super) fn stands_share(&self, volume: &VolumeRecord, protocol: Protocol, device: &str) -> bool {
        targets::device_of(&tree(), protocol, &volume.name, volume.uuid.0).as_deref() == Some(device)
    }

    pub(super) fn connected_to(&self, volume: &VolumeRecord, protocol: Protocol) -> Option<Vec<String>> {
        targets::connected(&tree(), Path::new(DEBUGFS), protocol, volume.uuid.0)
    }

    pub(super) fn tell_new_size(&self, volume: &VolumeRecord, protocol: Protocol) -> Result<bool, ControlError> {
        targets::refresh(&tree(), protocol, volume.uuid.0).map_err(|error| failed(&error, &error.remedy()))
    }
}

fn tree() -> Configfs {
    Configfs::new(CONFIGFS)
}

fn told(volume: &VolumeRecord, protocol: Protocol, error: &TargetError) -> ControlError {
    share_error(&volume.name, protocol, &error.to_string(), &error.remedy())
}
