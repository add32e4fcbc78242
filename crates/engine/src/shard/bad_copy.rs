//! A cached copy that cannot be read, or is not what was written: a clean one is made void, a dirty one is reported.

use super::Shard;
use super::fetch::Unfetched;
use crate::api::Event;
use crate::key::Key;
use crate::mutants;
use crate::store::{Purpose, Urgency};

impl Shard {
    /// A cached block cannot be read or is not what was written. True if that is an error for the client (dirty); a clean one is made void.
    pub(super) fn cached_copy_is_bad(&mut self, key: Key, unreadable: bool) -> bool {
        let volume = self.volumes.of(key);
        // Of a volume that waits to be attached nobody asks for it, and a start may yet say that it was written past the SSD, and so is whole
        // at home. If not, whoever reads it once the volume is attached hears of it: a client, or destage.
        let is_told = !volume.state.is_held();
        let stats = &mut volume.stats;
        if unreadable {
            stats.ssd_read_errors += 1;
        } else {
            stats.checksum_errors += 1;
        }
        if self.dirty.contains(key) && !mutants::active(mutants::UNREADABLE_DIRTY_REPLACED) {
            if is_told {
                self.out.event(Event::DirtyBlockUnreadable(key.volume(), key.block()));
            }
            self.condemn_object(key);
            return true;
        }
        self.out.event(Event::ChecksumMismatch(key.volume(), key.block()));
        self.condemn_object(key);
        self.void_bad_copy(key);
        false
    }

    /// The record of a clean block must not come back after a restart over a backing device that changed meanwhile.
    pub(super) fn void_bad_copy(&mut self, key: Key) {
        if self.index.get(key).is_some() && self.store.has_room(Purpose::Any) {
            let group = self.store_void(key, Urgency::By(self.now_ns));
            self.unsettled.insert(key, group);
        }
    }

    /// Nothing new is to rest on what could not be read.
    fn condemn_object(&mut self, key: Key) {
        if let Some(slot) = self.index.get(key).filter(|slot| slot.is_packed() && self.index.is_object(*slot)) {
            self.packer.condemn(self.index.stored(slot).object);
        }
    }

    /// A packed block is not to be had. True if that is an error for the client; a clean one is made void.
    pub(super) fn packed_copy_is_bad(&mut self, key: Key, why: Unfetched) -> bool {
        if why == Unfetched::Gone && !self.dirty.contains(key) {
            self.void_bad_copy(key);
            return false;
        }
        self.cached_copy_is_bad(key, why == Unfetched::Unreadable)
    }
}
