//! Shares on this machine: by the kernel's targets, or tgt.

use super::{Machine, failed};
use api::error::ControlError;
use datapath::Shares;
use records::state::{ShareRecord, VolumeRecord};
use records::store;
use std::path::Path;
use std::time::Duration;
use targets::{Access, Chap, Look, Offered, Protocol, Share, TargetError, Targets};

/// How long one target keeps a daemon that ends.
const ENDING_LIMIT: Duration = Duration::from_secs(5);

impl Machine {
    fn is_offered(&self, volume: &VolumeRecord, protocol: Protocol) -> bool {
        self.targets.is_offered(protocol, &volume.name, volume.uuid.into_bytes())
    }
}

/// All that initiators see of it, but for what they must know.
fn without_secrets(volume: &VolumeRecord, share: &ShareRecord, device: &str) -> Share {
    Share {
        protocol: share.protocol,
        uuid: volume.uuid.into_bytes(),
        volume: volume.name.clone(),
        device: device.to_owned(),
        read_only: volume.options.read_only,
        addresses: share.addresses.clone(),
        access: if share.initiators.is_empty() { Access::Anyone } else { Access::Only(share.initiators.clone()) },
        chap: None,
        is_alone: volume.shares.len() <= 1 && volume.exports.iter().all(|export| export.is_device()),
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

/// Removes the shares of all volumes and disks that a state directory knows. No daemon may run there.
/// `export_directory` is where its sockets and mounts lay.
///
/// # Errors
/// If the state cannot be read.
pub fn end_shares_of(state_directory: &Path, export_directory: &Path) -> Result<EndedShares, ControlError> {
    let mut done = EndedShares::default();
    let targets = targets_of(export_directory);
    for volume in store::look(state_directory)?.exported() {
        for share in &volume.shares {
            let (name, title) = (&volume.name, share.protocol.title());
            if !targets.is_offered(share.protocol, name, volume.uuid.into_bytes()) {
                continue;
            }
            match targets.remove(share.protocol, name, volume.uuid.into_bytes()) {
                Ok(()) => done.ended.push(format!("the {title} share of {name} is removed; it is back when the daemon serves the volume")),
                Err(error) => done.problems.push(format!("the {title} share of {name} remains: {error}")),
            }
        }
    }
    Ok(done)
}

/// Which entries of NVMe hosts are ours is remembered beside the exports: both go with a restart of
/// the machine.
pub(super) fn targets_of(export_directory: &Path) -> Targets {
    Targets::of_machine(&export_directory.join("nvmet-hosts"))
}

fn told(volume: &VolumeRecord, protocol: Protocol, error: &TargetError) -> ControlError {
    ControlError::share(&volume.name, protocol, &error.to_string(), &error.remedy())
}

impl Shares for Machine {
    fn share(&self, volume: &VolumeRecord, share: &ShareRecord, device: &str) -> Result<Offered, ControlError> {
        let chap = share.chap_file.as_ref().map(|path| {
            let wrong = |error: targets::chap::ChapError| ControlError::BadOption {
                option: "--chap",
                problem: format!("{path} {}", error.problem),
                remedy: error.remedy,
            };
            Chap::read(Path::new(path)).map_err(wrong)
        });
        let share = Share { chap: chap.transpose()?, ..without_secrets(volume, share, device) };
        let offered = self.targets.offer(&share).map_err(|error| told(volume, share.protocol, &error))?;
        self.exporters.note_shared(&super::exports::volume_of(volume), true);
        Ok(offered)
    }

    fn unshare(&self, volume: &VolumeRecord, protocol: Protocol) -> Result<(), ControlError> {
        // When the daemon ends, what still waits ends with the block device.
        let targets = match self.site.end_by.get() {
            Some(_) => self.targets.clone().with_limits(ENDING_LIMIT, ENDING_LIMIT),
            None => self.targets.clone(),
        };
        let removed = targets.remove(protocol, &volume.name, volume.uuid.into_bytes()).map_err(|error| told(volume, protocol, &error));
        let others = volume.shares.iter().any(|other| other.protocol != protocol && self.is_offered(volume, other.protocol));
        if !others {
            self.exporters.note_shared(&super::exports::volume_of(volume), false);
        }
        removed
    }

    fn look_at_share(&self, volume: &VolumeRecord, share: &ShareRecord, device: &str) -> Result<Look, ControlError> {
        let look = self.targets.look(&without_secrets(volume, share, device), share.chap_file.is_some());
        look.map_err(|error| told(volume, share.protocol, &error))
    }

    fn connected(&self, volume: &VolumeRecord, protocol: Protocol) -> Result<Option<Vec<String>>, ControlError> {
        self.targets.connected(protocol, volume.uuid.into_bytes()).map_err(|error| told(volume, protocol, &error))
    }

    fn refresh_share(&self, volume: &VolumeRecord, protocol: Protocol) -> Result<&'static str, ControlError> {
        self.targets.refresh(protocol, volume.uuid.into_bytes()).map_err(|error| {
            let remedy = error.remedy();
            failed(error, &remedy)
        })
    }
}
