//! Targets in memory.

use super::World;
use crate::error::ControlError;
use crate::state::{ShareRecord, VolumeRecord};
use std::collections::BTreeSet;
use targets::{Protocol, Server};

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
}

impl Sharing {
    /// Whether no target has the volume's block device.
    pub fn is_alone(&self, volume: &str) -> bool {
        !self.stand.iter().any(|(name, ..)| name == volume)
    }
}

impl World {
    pub(super) fn put_share(&self, volume: &VolumeRecord, share: &ShareRecord, device: &str) -> Result<Server, ControlError> {
        let mut inside = self.inside();
        inside.step(&volume.name)?;
        assert!(inside.exports.iter().any(|(name, export)| *name == volume.name && export == "loop"), "only what has a block device");
        if let Some(problem) = &inside.sharing.fail {
            return Err(crate::manager::share_error(&volume.name, share.protocol, problem, "fix it"));
        }
        let stand = &mut inside.sharing.stand;
        stand.retain(|(name, protocol, _)| (name, protocol) != (&volume.name, &share.protocol));
        stand.insert((volume.name.clone(), share.protocol, device.into()));
        Ok(inside.sharing.server.unwrap_or(Server::of_kernel(share.protocol)))
    }

    pub(super) fn end_share(&self, volume: &VolumeRecord, protocol: Protocol) -> Result<(), ControlError> {
        let mut inside = self.inside();
        inside.step(&volume.name)?;
        inside.sharing.stand.retain(|(name, known, _)| (name, *known) != (&volume.name, protocol));
        Ok(())
    }
}
