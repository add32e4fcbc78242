//! Failing on demand, and what clients write meanwhile.

use super::{Device, Inside};
use api::error::{ControlError, Kind};
use types::Mode;

impl Inside {
    pub(super) fn step(&mut self, path: &str) -> Result<(), ControlError> {
        self.steps += 1;
        if let Some((_, name, version)) = self.refresh_at.take_if(|(step, ..)| *step == self.steps) {
            self.refresh(&name, version);
        }
        let failed = || ControlError::Device {
            path: path.into(),
            problem: "an I/O failed".into(),
            remedy: "check the device".into(),
            kind: Kind::Failed,
        };
        if self.dead {
            return Err(failed());
        }
        if self.fail_at.is_some_and(|first| (first..=first + self.fail_more).contains(&self.steps)) {
            self.dead = self.crash;
            return Err(failed());
        }
        Ok(())
    }

    pub(super) fn device(&mut self, path: &str) -> Result<&mut Device, ControlError> {
        self.step(path)?;
        self.devices.get_mut(path).ok_or(ControlError::Unknown { named: "device", name: path.into() })
    }

    /// See [`super::World::write`].
    pub fn write(&mut self, volume: &str, version: u64) -> bool {
        let Some(attached) = self.attached.get(volume).cloned() else { return false };
        let dirty = attached.ssd.is_some() && attached.mode == Mode::WriteBack;
        if !dirty {
            self.devices.get_mut(&attached.backing).expect("it is there").version = version;
        }
        if let Some(ssd) = attached.ssd {
            self.devices.get_mut(&ssd).expect("it is there").log.insert(attached.id, (version, dirty));
        }
        true
    }

    /// The same of a client that comes by an export: who waits for one does not write.
    pub fn write_by_export(&mut self, volume: &str, version: u64) -> bool {
        self.exports.iter().any(|(name, _)| name == volume) && self.write(volume, version)
    }
}
