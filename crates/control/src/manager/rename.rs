//! Another name for a volume. Its cache stays: the log knows volumes by number.
//!
//! | rename | after a crash here, the start |
//! |---|---|
//! | 0. exports go, the backing device is let go | brings it up under the old name |
//! | 1. save it under the new name | brings it up under the new name |

use super::{LiveVolume, Manager};
use api::error::ControlError;
use api::names::{self, Named};
use api::{Health, Severity};
use insight::series;
use records::state::{VolumePhase, VolumeRecord};

impl Manager {
    /// Gives a volume that nobody uses another name. If it runs, it stops for a moment.
    ///
    /// # Errors
    /// If it is in use, attached, shared or being removed, or if the name is taken; nothing has changed then. If it does not start again, it
    /// has the new name and is failed, with the reason.
    pub(super) fn volume_rename(&self, name: &str, to: &str) -> Result<String, ControlError> {
        names::check(Named::Volume, to)?;
        let _claim = self.claim(&[(Named::Volume, name), (Named::Volume, to)], "its change of name")?;
        let before = self.volume_record(name)?;
        if name == to {
            return Ok("unchanged: it has that name already".into());
        }
        self.check_name_is_free(to)?;
        self.check_may_be_renamed(&before)?;
        let runs = self.volume_attached(name);
        if runs {
            self.unexport_all(&before)?;
            if let Err(error) = self.let_go(&before) {
                self.fail_volume(&before, &error);
                return Err(error);
            }
        }
        let renamed = self.save_new_name(name, to);
        let record = renamed.as_ref().unwrap_or(&before);
        if runs && let Err(error) = self.start_alone(record) {
            self.fail_volume(record, &error);
            return Err(renamed.map_or_else(|error| error, |_| error));
        }
        let record = renamed?;
        self.forget_history(&series::volume_object(name));
        self.events().note(Severity::Info, to, format!("its name was {name} until now"));
        let places = self.memory().volumes.get(to).and_then(|live| live.stable_path.clone());
        Ok(match places {
            Some(path) => format!("its name is {} now, and its block device {path}", record.name),
            None => format!("its name is {} now", record.name),
        })
    }

    fn check_may_be_renamed(&self, volume: &VolumeRecord) -> Result<(), ControlError> {
        let name = &volume.name;
        if volume.phase != VolumePhase::Ready {
            return Err(ControlError::Claimed { named: "volume", name: name.clone(), doing: "its removal" });
        }
        if let Some(attachment) = &volume.attachment {
            let problem = format!("the volume \"{name}\" is attached to {}, which leads to it by its name", attachment.device);
            let remedy = format!("end that with `hearth detach {name}`, and attach it under the new name: nothing needs to be unmounted");
            return Err(ControlError::BadCombination(problem, remedy));
        }
        self.check_unshared(volume)?;
        self.check_unused(volume)
    }

    /// # Errors
    /// Then it has its old name still.
    fn save_new_name(&self, name: &str, to: &str) -> Result<VolumeRecord, ControlError> {
        let saved = self.change(|state| {
            let volume = state.volume_mut(name)?;
            volume.name = to.into();
            Some(volume.clone())
        })?;
        let record = saved.ok_or(ControlError::Unknown { named: "volume", name: name.into() })?;
        let mut memory = self.memory();
        let live = memory.volumes.remove(name).unwrap_or_else(|| LiveVolume::new(Health::Stopped));
        memory.volumes.insert(to.into(), live);
        drop(memory);
        self.changed("volumes");
        Ok(record)
    }
}
