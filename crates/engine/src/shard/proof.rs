//! What a cached block must look like, whatever becomes of its index entry while it is being read.

use super::Shard;
use crate::index::{Encoding, PLACE_UNKNOWN, Slot, Stored};
use crate::mutants;
use format::{object_checksum, payload_checksum};
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

    /// Segment of a slot.
    #[inline]
    pub(super) fn seq_of(&self, slot: Slot) -> u64 {
        self.log.space().seq_at(self.physical_of(slot))
    }

    #[inline]
    fn physical_of(&self, slot: Slot) -> u32 {
        if slot.is_packed() { self.index.packed_place_of(slot).0 } else { self.log.physical_of_page(slot) }
    }

    /// Page of its segment where a block that is stored as a page lies, and for any other the page where its stored bytes begin.
    #[inline]
    pub(super) fn page_of(&self, slot: Slot) -> u32 {
        if slot.is_packed() { self.index.stored(slot).place / UNITS_A_PAGE } else { self.log.page_of(slot) }
    }

    /// Where a block that is stored as a page lies on the SSD, in bytes.
    #[inline]
    pub(super) fn offset_bytes(&self, slot: Slot) -> u64 {
        if slot.is_packed() { self.log.page_offset_bytes(self.seq_of(slot), self.page_of(slot)) } else { self.log.offset_bytes(slot) }
    }

    /// Whether a block that is stored as a page lies `ahead` pages behind another.
    pub(super) fn lies_ahead(&self, slot: Slot, first: Slot, ahead: u32) -> bool {
        if !slot.is_packed() && !first.is_packed() {
            return slot.0 == first.0 + ahead;
        }
        self.is_page(slot) && self.physical_of(slot) == self.physical_of(first) && self.page_of(slot) == self.page_of(first) + ahead
    }

    /// Whether the record in this slot survives a power cut.
    pub(super) fn is_durable(&self, slot: Slot) -> bool {
        let placed = !slot.is_packed() || self.index.stored(slot).place != PLACE_UNKNOWN;
        placed && self.log.is_page_durable(self.seq_of(slot), self.page_of(slot))
    }

    /// The slots of a segment that can hold something, plain ones first.
    pub(super) fn slots_of(&self, seq: u64) -> impl Iterator<Item = Slot> + use<> {
        let physical = self.log.space().physical(seq);
        let packed_len = self.index.packed_len(physical);
        let first = self.index.packed_slot(physical, 0);
        self.log.slots_of(seq).map(Slot).chain((0..packed_len).map(move |ordinal| Slot(first.0 + ordinal)))
    }

    /// The number of a record in its segment, as notes name it.
    pub(super) fn ordinal_of(&self, slot: Slot) -> u32 {
        if !slot.is_packed() {
            return self.log.page_of(slot);
        }
        let ordinal = self.index.packed_place_of(slot).1;
        format::packed::PACKED_ORDINAL | if mutants::active(62) { ordinal.saturating_sub(1) } else { ordinal }
    }
}

/// Places of packed payloads count in these.
const UNITS_A_PAGE: u32 = BLOCK_BYTES as u32 / format::packed::PLACE_UNIT_BYTES;
