//! A backing device has grown under a volume that is served.

use super::{Machine, failed, locked};
use crate::error::ControlError;
use crate::state::VolumeRecord;
use fuse::LoopExport;
use ublk::UblkExport;
use vhost_user::VhostUserExport;

impl Machine {
    /// How large the device is that the volume has open.
    pub(super) fn bytes_of_backing(&self, volume: &str) -> Option<u64> {
        let live = self.volume(volume).ok()?;
        let backing = locked(&live.backing);
        backing.as_ref()?.opened.bytes_now().ok()
    }

    /// Serves the volume with the size of its record.
    pub(super) fn grow_volume(&self, record: &VolumeRecord) -> Result<Vec<String>, ControlError> {
        let live = self.volume(&record.name)?;
        let device = locked(&live.backing).as_ref().map(|backing| backing.device.clone());
        let device = device.ok_or_else(|| failed(&"the volume is going", ""))?;
        let size_bytes = record.size_bytes;
        if self.bytes_of_backing(&record.name).is_none_or(|bytes| bytes < size_bytes) {
            return Err(failed(&format!("{} does not have {size_bytes} bytes", record.backing), "check the backing device"));
        }
        // An earlier life may have served a size that the superblock has not.
        if let Some((pool, _)) = &live.cached {
            self.enter_volume(pool, record)?;
        }
        if size_bytes > live.reference.size_bytes() {
            let grown = match &live.cached {
                Some((pool, _)) => self.runtime.grow_volume(&pool.handle, &live.reference, &device, size_bytes),
                None => self.runtime.grow_bare_volume(&live.reference, &device, size_bytes),
            };
            grown.map_err(|e| failed(&e, "see the log, then try again"))?;
        }
        Ok(self.capacity_changed(&record.name))
    }

    /// The volume has grown, and requests behind its old end are served: every export that can tells its users. NBD has no word for that: its
    /// clients see the new size when they connect, or ask for it (`NBD_OPT_INFO`).
    pub(super) fn capacity_changed(&self, volume: &str) -> Vec<String> {
        let Ok(volume) = self.volume(volume) else { return Vec::new() };
        let size_bytes = volume.reference.size_bytes();
        locked(&volume.vhost_user).values().for_each(VhostUserExport::capacity_changed);
        let told = locked(&volume.loop_export).as_mut().map(|made: &mut LoopExport| made.capacity_changed(size_bytes));
        let device = locked(&volume.ublk_export).as_ref().map(UblkExport::handle);
        let told_ublk = device.and_then(|device| device.set_size(size_bytes).err());
        told.and_then(Result::err).into_iter().chain(told_ublk.map(|error| error.to_string())).collect()
    }
}
