//! When a backing device is given up. A failed flush is final: nothing more that device says is believed.

use super::Shard;
use crate::api::Event;
use crate::key::Key;
use types::VolumeIndex;

impl Shard {
    /// A flush of the backing device failed: what it had not flushed may be lost, whatever it says later.
    pub(super) fn backing_failed_now(&mut self, index: VolumeIndex) {
        let volume = self.volumes.of(Key::new(index, 0));
        if volume.backing.failed {
            return;
        }
        volume.backing.failed = true;
        self.out.event(Event::BackingFailed(index));
        self.wake_lost();
        // Clean copies may be newer than what the device kept: they are void from now on, in RAM at once ...
        let of_volume = |key: &Key| key.volume() == index;
        let mut keys: alloc::vec::Vec<Key> = self.ram.keys().filter(of_volume).filter(|key| !self.dirty.contains(*key)).collect();
        keys.sort_unstable();
        for key in keys {
            self.drop_from_ram(key);
        }
        // ... and in the store by records. A store at rest for a stop gets none any more, and what it holds may stay: clean data enters the store only after
        // a flush of its device. Forgotten in memory alone, it would be missing in the checkpoint and come back with the store.
        if !self.is_quiesced() {
            self.commands.drop_clean_of(index);
        }
    }
}
