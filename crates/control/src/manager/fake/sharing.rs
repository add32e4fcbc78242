//! Targets in memory.

use super::World;
use api::error::ControlError;
use datapath::Shares;
use records::state::{ShareRecord, VolumeRecord};
use std::collections::BTreeSet;
use targets::{Look, Offered, Protocol, Server};

#[derive(Default)]
pub struct Sharing {
    /// Shares that stand: volume, protocol, device.
    pub stand: BTreeSet<(String, Protocol, String)>,
    /// Who serves them, if not the kernel.
    pub server: Option<Server>,
    /// Why a share cannot be offered.
    pub fail: Option<String>,
    /// Initiators that are connected to every share.
    pub initiators: Vec<String>,
    /// Targets answer nothing.
    pub silent: bool,
    /// They do what they are told, and do not answer in time.
    pub late: bool,
    /// What every target lacks, and gets when it is offered.
    pub lacks: Vec<String>,
    /// What cannot be put right while initiators are connected.
    pub note: Option<String>,
    /// How often something was offered.
    pub offers: u32,
}

impl Sharing {
    /// Whether no target has the volume's block device.
    pub fn is_alone(&self, volume: &str) -> bool {
        !self.stand.iter().any(|(name, ..)| name == volume)
    }
}

impl World {
    pub(super) fn put_share(&self, volume: &VolumeRecord, share: &ShareRecord, device: &str) -> Result<Offered, ControlError> {
        let mut inside = self.inside();
        inside.step(&volume.name)?;
        inside.sharing.offers += 1;
        inside.sharing.lacks.clear();
        assert!(inside.exports.iter().any(|(name, export)| *name == volume.name && export == "loop"), "only what has a block device");
        if let Some(problem) = &inside.sharing.fail {
            return Err(ControlError::share(&volume.name, share.protocol, problem, "fix it"));
        }
        let stand = &mut inside.sharing.stand;
        stand.retain(|(name, protocol, _)| (name, protocol) != (&volume.name, &share.protocol));
        stand.insert((volume.name.clone(), share.protocol, device.into()));
        if inside.sharing.late {
            return Err(ControlError::share(&volume.name, share.protocol, "it does not answer", "start it again"));
        }
        let server = inside.sharing.server.unwrap_or(Server::of_kernel(share.protocol));
        let note = inside.sharing.note.clone().filter(|_| !inside.sharing.initiators.is_empty());
        Ok(Offered { server, note })
    }

    pub(super) fn see_share(&self, volume: &VolumeRecord, share: &ShareRecord, device: &str) -> Result<Look, ControlError> {
        let connected = Some(self.see_initiators(volume, share.protocol)?);
        let sharing = &self.inside().sharing;
        let stands = sharing.stand.contains(&(volume.name.clone(), share.protocol, device.into()));
        let lacks = if stands { sharing.lacks.clone() } else { vec!["it is not there".into()] };
        Ok(Look { lacks, connected })
    }

    pub(super) fn see_initiators(&self, volume: &VolumeRecord, protocol: Protocol) -> Result<Vec<String>, ControlError> {
        match &self.inside().sharing {
            sharing if sharing.silent => Err(ControlError::share(&volume.name, protocol, "it does not answer", "start it again")),
            sharing => Ok(sharing.initiators.clone()),
        }
    }

    pub(super) fn end_share(&self, volume: &VolumeRecord, protocol: Protocol) -> Result<(), ControlError> {
        let mut inside = self.inside();
        inside.step(&volume.name)?;
        if inside.sharing.late {
            return Err(ControlError::share(&volume.name, protocol, "it does not answer", "start it again"));
        }
        inside.sharing.stand.retain(|(name, known, _)| (name, *known) != (&volume.name, protocol));
        Ok(())
    }
}

impl Shares for World {
    fn share(&self, volume: &VolumeRecord, share: &ShareRecord, device: &str) -> Result<Offered, ControlError> {
        self.put_share(volume, share, device)
    }

    fn unshare(&self, volume: &VolumeRecord, protocol: Protocol) -> Result<(), ControlError> {
        self.end_share(volume, protocol)
    }

    fn look_at_share(&self, volume: &VolumeRecord, share: &ShareRecord, device: &str) -> Result<Look, ControlError> {
        self.see_share(volume, share, device)
    }

    fn connected(&self, volume: &VolumeRecord, protocol: Protocol) -> Result<Option<Vec<String>>, ControlError> {
        self.see_initiators(volume, protocol).map(Some)
    }
}
