//! A backing device has grown under a volume that is served.

use super::volumes::LiveVolume;
use super::{Machine, failed, locked};
use api::error::ControlError;
use datapath::Growth;
use records::state::VolumeRecord;

impl Machine {
    /// The volume has grown, and requests behind its old end are served: every export that can informs its users.
    pub(super) fn capacity_changed(&self, live: &LiveVolume) -> Vec<String> {
        self.exporters.grow(live.owner, live.reference.size_bytes())
    }
}

impl Growth for Machine {
    /// How large the device is that the volume has open.
    fn backing_bytes(&self, volume: &str) -> Option<u64> {
        let live = self.volume(volume).ok()?;
        let backing = locked(&live.backing);
        backing.as_ref()?.opened.bytes_now().ok()
    }

    /// Serves the volume with the size of its record.
    fn grow(&self, record: &VolumeRecord) -> Result<Vec<String>, ControlError> {
        let live = self.volume(&record.name)?;
        let device = locked(&live.backing).as_ref().map(|backing| backing.device.clone());
        let device = device.ok_or_else(|| failed("the volume is going", ""))?;
        let size_bytes = record.size_bytes;
        if self.backing_bytes(&record.name).is_none_or(|bytes| bytes < size_bytes) {
            return Err(failed(format!("{} does not have {size_bytes} bytes", record.backing), "check the backing device"));
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
            grown.map_err(|e| failed(e, "see the log, then try again"))?;
        }
        Ok(self.capacity_changed(&live))
    }
}
