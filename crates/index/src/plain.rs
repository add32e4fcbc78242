//! What is known of a plain slot, in ten bytes.
//!
//! An empty slot is all zeroes, as memory comes from the system: slots of regions that hold packed records only are never touched, and cost
//! nothing but addresses.

use super::SlotMeta;
use crate::key::{KEY_BITS, Key};

const KEY_HIGH: u16 = 0x0fff;
const FLAG_DIRTY: u16 = 1 << 12;
const FLAG_PARTIAL: u16 = 1 << 13;
const FREQUENCY_SHIFT: u32 = 14;
const FLAGS: u16 = 0xf000;

const _: () = assert!(KEY_BITS == 32 + 12);

/// What is known of a slot, without padding: low and high half of the key's lower 32 bits, inverted; bits 0..12 the key's upper bits, inverted,
/// 12 dirty, 13 partial, 14..16 frequency; low and high half of the checksum. No key has all bits set, so no block's entry is zero.
pub(super) type Entry = [u16; 5];

/// Nothing.
pub(super) const NONE: Entry = [0; 5];

/// Of a block.
#[inline]
pub(super) fn entry(key: Key, meta: SlotMeta) -> Entry {
    assert!(meta.frequency < 4, "two bits");
    let flags = if meta.dirty { FLAG_DIRTY } else { 0 } | if meta.partial { FLAG_PARTIAL } else { 0 };
    let high = !((key.0 >> 32) as u16) & KEY_HIGH | flags | u16::from(meta.frequency) << FREQUENCY_SHIFT;
    [!(key.0 as u16), !((key.0 >> 16) as u16), high, meta.checksum as u16, (meta.checksum >> 16) as u16]
}

/// The fields of an [`Entry`].
pub(super) trait Fields {
    fn key(&self) -> Option<Key>;
    fn meta(&self) -> SlotMeta;
    fn set_clean(&mut self);
    fn set_frequency(&mut self, frequency: u8);
    fn has_flags(&self) -> bool;
}

impl Fields for Entry {
    #[inline]
    fn key(&self) -> Option<Key> {
        let high = u64::from(self[2] & KEY_HIGH);
        let inverted = high << 32 | u64::from(self[1]) << 16 | u64::from(self[0]);
        if inverted == 0 { None } else { Some(Key(!inverted & ((1 << KEY_BITS) - 1))) }
    }

    #[inline]
    fn meta(&self) -> SlotMeta {
        let [_, _, high, checksum_low, checksum_high] = *self;
        SlotMeta {
            dirty: high & FLAG_DIRTY != 0,
            partial: high & FLAG_PARTIAL != 0,
            frequency: (high >> FREQUENCY_SHIFT) as u8,
            checksum: u32::from(checksum_low) | u32::from(checksum_high) << 16,
        }
    }

    #[inline]
    fn set_clean(&mut self) {
        self[2] &= !FLAG_DIRTY;
    }

    #[inline]
    fn set_frequency(&mut self, frequency: u8) {
        let high = &mut self[2];
        *high = (*high & 0x3fff) | (u16::from(frequency.min(3)) << FREQUENCY_SHIFT);
    }

    fn has_flags(&self) -> bool {
        self[2] & FLAGS != 0
    }
}
