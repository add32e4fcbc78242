//! How a destage ends in memory.

use super::World;
use api::error::ControlError;
use datapath::Pending;
use records::state::VolumeRecord;

/// The end of a destage: the volume's block is home. Ends at the second look, or never if the world is slow.
pub(super) struct Homecoming {
    pub(super) world: World,
    pub(super) volume: VolumeRecord,
    pub(super) looks: u32,
    pub(super) cancelled: bool,
}

impl Pending for Homecoming {
    fn poll(&mut self) -> Option<Result<(), ControlError>> {
        self.looks += 1;
        if self.cancelled {
            return Some(Err(ControlError::Stopped));
        }
        let mut inside = self.world.inside();
        if self.looks < 2 || inside.slow {
            return None;
        }
        let Some(attached) = inside.attached.get(&self.volume.name).cloned() else { return Some(Ok(())) };
        let Some(ssd) = attached.ssd else { return Some(Ok(())) };
        let Some((version, dirty)) = inside.devices[&ssd].log.get(&attached.id).copied() else { return Some(Ok(())) };
        if dirty {
            match inside.device(&attached.backing) {
                Ok(backing) => backing.version = version,
                Err(error) => return Some(Err(error)),
            }
            match inside.device(&ssd) {
                Ok(ssd) => ssd.log.insert(attached.id, (version, false)),
                Err(error) => return Some(Err(error)),
            };
        }
        Some(Ok(()))
    }

    fn cancel(&mut self) {
        self.cancelled = true;
    }
}

pub(super) struct AtOnce;

impl Pending for AtOnce {
    fn poll(&mut self) -> Option<Result<(), ControlError>> {
        Some(Ok(()))
    }

    fn cancel(&mut self) {}
}
