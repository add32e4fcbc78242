//! What a cached block must look like, whatever becomes of its index entry while it is being read.

use super::Shard;
use crate::index::{Encoding, Slot, Stored};
use crate::key::Key;
use crate::mutants;
use crate::store::{Place, Safety};
use alloc::vec::Vec;
use format::{object_checksum, payload_checksum};
use page::PageMut;
use types::{BLOCK_BYTES, VolumeId};

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Proof {
    checksum: u32,
    /// A block stored in full as an object stands under the object's checksum; 0: under its own address'.
    object: u64,
}

impl Proof {
    /// Of a block with that checksum, stored so (`None`: plainly).
    pub fn new(checksum: u32, stored: Option<&Stored>) -> Proof {
        let object = stored.filter(|stored| stored.encoding.is_full()).map_or(0, |stored| stored.object);
        Proof { checksum, object }
    }

    /// Whether this is the block.
    #[inline]
    pub fn holds(self, volume: VolumeId, block: u64, page: &[u8; BLOCK_BYTES as usize]) -> bool {
        if self.object == 0 { payload_checksum(volume, block, page) == self.checksum } else { self.holds_object(page) }
    }

    #[inline(never)]
    fn holds_object(self, page: &[u8; BLOCK_BYTES as usize]) -> bool {
        object_checksum(self.object, page) == self.checksum
    }
}

impl Shard {
    /// How the block in this slot is known.
    #[inline]
    pub(super) fn proof_of(&self, slot: Slot) -> Proof {
        let checksum = self.index.meta(slot).checksum;
        if slot.is_packed() { Proof::new(checksum, Some(&self.index.stored(slot))) } else { Proof { checksum, object: 0 } }
    }

    /// Whether the block in this slot is stored as a page, which is read as it is.
    #[inline]
    pub(super) fn is_page(&self, slot: Slot) -> bool {
        !slot.is_packed() || self.index.stored(slot).encoding == Encoding::Raw
    }

    /// Where a slot lies; of a packed block its stored bytes, as soon as they have a place.
    #[inline]
    pub(super) fn place_of(&self, slot: Slot) -> Place {
        self.store.place(slot)
    }

    /// Whether a block that is stored as a page lies `ahead` pages behind another: what lies in two regions does not follow each other.
    pub(super) fn lies_ahead(&self, slot: Slot, first: Slot, ahead: u32) -> bool {
        if !slot.is_packed() && !first.is_packed() {
            return slot.0 == first.0 + ahead && (slot.0 ^ first.0) < self.config.place.region_pages();
        }
        let (place, first) = (self.place_of(slot), self.place_of(first));
        self.is_page(slot) && place.at == first.at && place.page == first.page + ahead
    }

    /// Whether the record in this slot survives a power cut.
    pub(super) fn is_durable(&self, slot: Slot) -> bool {
        self.place_of(slot).safety == Safety::Durable
    }

    /// The valid sectors of a block in the index.
    pub(super) fn mask_of(&self, key: Key, slot: Slot) -> u8 {
        if self.index.meta(slot).partial { self.partial[&key] } else { u8::MAX }
    }

    pub(super) fn dirty_rest_on(&self, slot: Slot) -> bool {
        slot.is_packed() && self.index.references(slot).dirty > 0 && !mutants::active(mutants::BASE_DROPPED)
    }

    /// Whether the block rests on a base that is gone.
    pub(super) fn dangles(&self, slot: Slot) -> bool {
        if !slot.is_packed() {
            return false;
        }
        let stored = self.index.stored(slot);
        stored.encoding.rests_on_base() && self.index.object(stored.object).is_none()
    }

    /// Whether the block was carried on as lost, without content.
    pub(super) fn is_lost(&self, slot: Slot) -> bool {
        slot.is_packed() && self.index.stored(slot).encoding == Encoding::Lost
    }

    pub(super) fn allocate(&self, pages: usize) -> Option<Vec<PageMut>> {
        self.config.pool.allocate_many(pages).map(page::PageMutVec::into_vec)
    }
}
