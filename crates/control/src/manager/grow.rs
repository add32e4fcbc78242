//! A volume whose backing device has grown gets that size while it is served.
//!
//! Durable steps, and what a start does after a crash behind each:
//!
//! | grow | after a crash here, the start |
//! |---|---|
//! | 0. the device has grown | finds that, and serves all of it |
//! | 1. save the new size | serves it |
//! | 2. the superblock has it, the shards, and then the exports | – |
//!
//! Nothing behind the old end is cached, dirty or known to a client before the last step. A volume never shrinks: its clients were told that all of it is there.

use super::{Manager, verdict};
use api::Severity;
use api::error::{ControlError, Kind};
use api::human;
use api::names::Named;
use records::state::{ShareRecord, VolumeRecord};
use types::VOLUME_BYTES_MAX;

impl Manager {
    /// Serves a volume with the size that its backing device has now. Says what was done.
    pub(super) fn volume_grow(&self, name: &str) -> Result<String, ControlError> {
        let _claim = self.claim(&[(Named::Volume, name)], "its growth")?;
        let record = self.volume_record(name)?;
        if !self.volume_attached(name) {
            return Ok("it is not being served: it gets the size of its backing device when it starts".into());
        }
        let device_bytes = self.data().backing_bytes(name).ok_or_else(|| {
            refused(&record, "its size cannot be read".into(), format!("check the device, then give `hearth volume grow {name}` again"))
        })?;
        if let Some(problem) = verdict::too_large(device_bytes) {
            let remedy = format!("the volume keeps its size; use a device of at most {}", human::bytes(VOLUME_BYTES_MAX));
            return Err(refused(&record, format!("it {problem}"), remedy));
        }
        let (was, is) = (record.size_bytes, record.bytes_of(device_bytes));
        if is < was {
            let problem = format!("it has {} now, and a volume does not shrink from {}", human::bytes(is), human::bytes(was));
            let remedy = "make it as large as it was; for a smaller volume, remove this one and add it again".into();
            return Err(refused(&record, problem, remedy));
        }
        // What is on record may not be served yet, or users of an export may not have it: an earlier try ended half way.
        let reach = self.grow_to(&record, device_bytes)?;
        let told = match is == was {
            true => format!("its size is {}, as that of its backing device", human::bytes(is)),
            false => {
                let told = match (human::bytes(is), human::bytes(was)) {
                    (now, before) if now == before => format!("its size is {is} bytes now (it was {was})"),
                    (now, before) => format!("its size is {now} now (it was {before})"),
                };
                self.events().note(Severity::Info, name, &told);
                told
            }
        };
        Ok([vec![told], reach].concat().join("; "))
    }

    /// Steps 1 and 2, of a volume that is claimed. Gives who has the new size, and who gets it when, a clause each.
    pub(super) fn grow_to(&self, record: &VolumeRecord, device_bytes: u64) -> Result<Vec<String>, ControlError> {
        let set = |size_bytes: u64, identity_bytes: u64| {
            self.change(|state| {
                let volume = state.volume_mut(&record.name)?;
                (volume.size_bytes, volume.identity.size_bytes) = (size_bytes, identity_bytes);
                Some(volume.clone())
            })
        };
        let unknown = || ControlError::Unknown { named: "volume", name: record.name.clone() };
        let grown = set(record.bytes_of(device_bytes), device_bytes)?.ok_or_else(unknown)?;
        match self.data().grow(&grown) {
            Ok(warnings) => {
                let reach = self.reach_of_size(&grown, &warnings);
                for warning in warnings.into_iter().filter(|_| !reach.has_device) {
                    self.events().note(Severity::Warning, &record.name, warning);
                }
                self.set_live_volume(&record.name, |live| live.backing_bytes = None);
                Ok(reach.told)
            }
            Err(error) => {
                set(record.size_bytes, record.identity.size_bytes)?;
                Err(error)
            }
        }
    }

    /// The exports of a volume or disk have been told its size; `warnings` say which block device did not take it. That one is made anew if
    /// nobody uses it. Whoever asks again has all that can have it now get it.
    pub(super) fn reach_of_size(&self, volume: &VolumeRecord, warnings: &[String]) -> Reach {
        let has_device = warnings.is_empty() || self.renew_idle_device(volume);
        let mut told = if has_device { Vec::new() } else { warnings.to_vec() };
        for export in self.offered(volume) {
            match export.way().growth {
                Some(how) if told.iter().any(|known| known == how) => {}
                Some(how) => told.push(how.to_owned()),
                None if has_device => {
                    let place = self.memory().volumes.get(&volume.name).and_then(|live| live.exports.get(&export).cloned());
                    told.push(format!("users of {} have it", place.unwrap_or_else(|| format!("the export {export}"))));
                }
                None => {}
            }
        }
        if has_device {
            told.extend(self.refresh_shares(volume));
        } else {
            // A block device that keeps its size has nothing that initiators could be told.
            let keep = |share: &ShareRecord| format!("{} initiators keep the old size as long as the device does", share.protocol.title());
            told.extend(volume.shares.iter().map(keep));
        }
        Reach { has_device, told }
    }

    /// Whether the backing device of a running volume has another size than the volume. Told once for each size.
    pub(super) fn look_at_size(&self, volume: &VolumeRecord) {
        let device_bytes = self.data().backing_bytes(&volume.name).filter(|bytes| volume.bytes_of(*bytes) != volume.size_bytes);
        let known = self.memory().volumes.get(&volume.name).and_then(|live| live.backing_bytes);
        // The record may have been read before a growth that has ended since.
        let is_same = self.volume_record(&volume.name).is_ok_and(|now| now.size_bytes == volume.size_bytes);
        if device_bytes == known || !is_same {
            return;
        }
        self.set_live_volume(&volume.name, |live| live.backing_bytes = device_bytes);
        let Some(bytes) = device_bytes else { return };
        let severity = if bytes < volume.size_bytes { Severity::Error } else { Severity::Info };
        let (problem, remedy) = other_size(volume, bytes);
        self.events().note(severity, &volume.name, format!("{problem}: {remedy}"));
    }
}

/// Whom a new size has reached.
pub(super) struct Reach {
    /// The block device, if there is one, has it.
    pub(super) has_device: bool,
    /// Who has it, and who gets it when, a clause each.
    pub(super) told: Vec<String>,
}

/// What to tell of a volume that is served over a device of another size, and what to do.
pub(super) fn other_size(volume: &VolumeRecord, device_bytes: u64) -> (String, String) {
    let (backing, name) = (&volume.backing, &volume.name);
    let (was, is) = (human::bytes(volume.size_bytes), human::bytes(device_bytes));
    if device_bytes < volume.size_bytes {
        let problem = format!("its backing device {backing} shrank from {was} to {is} while it was served, and I/O beyond that fails");
        return (problem, "make the device as large as it was".into());
    }
    (format!("its backing device {backing} has grown from {was} to {is}"), format!("serve all of it with `hearth volume grow {name}`"))
}

fn refused(volume: &VolumeRecord, problem: String, remedy: String) -> ControlError {
    ControlError::Device { path: volume.backing.clone(), problem, remedy, kind: Kind::Conflict }
}
