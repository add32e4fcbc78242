//! When a device is given up. A failed flush (or log write) is final: nothing more that device says is believed.

use super::Shard;
use crate::api::{Event, RequestError};
use crate::key::Key;
use crate::locks::OpId;
use crate::mutants;
use types::VolumeIndex;

impl Shard {
    /// The log cannot be written any more. Clean blocks on the SSD count as absent from now on; dirty ones are read (and checked) as
    /// long as that works, and go home. Writes go to the backing device once the host has recorded that this cache is not to be trusted
    /// after a restart; volumes with dirty blocks take none until those are home.
    pub(super) fn ssd_failed(&mut self) {
        self.out.event(Event::SsdFailed);
        self.cleaner.stop();
    }

    /// The host has written down that the SSD failed.
    pub(super) fn degraded_is_recorded(&mut self) {
        self.degraded_recorded = true;
        self.destage_log_moved();
        self.ready.extend(self.waiting_degraded.drain(..));
    }

    /// Whether a backing write may go on although the log is lost. If not, it has been failed or set to wait.
    pub(super) fn may_write_degraded(&mut self, id: OpId) -> bool {
        let volume = self.ops.get(id).request.volume;
        if mutants::active(6) {
            return true;
        }
        if self.dirty.blocks_of(volume) > 0 {
            // After a restart the log's older version could be taken for the newest.
            self.fail(id, RequestError::Io);
            return false;
        }
        if !self.degraded_recorded {
            self.waiting_degraded.push(id);
            return false;
        }
        true
    }

    /// A flush of the backing device failed: what it had not flushed may be lost, whatever it says later.
    pub(super) fn backing_failed_now(&mut self, index: VolumeIndex) {
        let volume = self.volume_of(Key::new(index, 0));
        if volume.backing.failed {
            return;
        }
        volume.backing.failed = true;
        self.out.event(Event::BackingFailed(index));
        // Clean copies may be newer than what the device kept: they are void from now on, in RAM at once ...
        let of_volume = |key: &Key| key.volume() == index;
        let mut keys: alloc::vec::Vec<Key> = self.ram.keys().filter(of_volume).filter(|key| !self.dirty.contains(*key)).collect();
        keys.sort_unstable();
        for key in keys {
            self.drop_from_ram(key);
        }
        // ... and in the log by records. A log at rest for a stop gets none any more, and what it holds may stay: clean data enters the log only after
        // a flush of its device. Forgotten in memory alone, it would be missing in the checkpoint and come back with the log.
        if !self.is_quiesced() {
            self.drop_clean_of(index);
        }
    }
}
