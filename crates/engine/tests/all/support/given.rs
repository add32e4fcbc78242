//! What recovery gives, gathered; and whether the medium holds what it says.

use super::disk::Disk;
use engine::recovery::{RecoveredBase, RecoveredItem, RecoveredRecord};
use format::{Encoding, Layout, PayloadOwner, block_checksum, open_packed};
use std::collections::BTreeMap;
use types::{ShardIndex, VolumeId};

/// Blocks by volume and number, bases by the number of the object.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Given {
    pub blocks: BTreeMap<(u32, u64), RecoveredRecord>,
    pub bases: BTreeMap<u64, RecoveredBase>,
}

impl Given {
    pub fn add(&mut self, item: RecoveredItem) {
        match item {
            RecoveredItem::Block(record) => {
                assert!(self.blocks.insert((record.volume.0, record.block), record).is_none(), "a block given twice");
            }
            RecoveredItem::Base(base) => {
                assert!(self.bases.insert(base.stored.object, base).is_none(), "a base given twice");
            }
        }
    }

    /// Where the object is, as a block or as a base.
    pub fn object(&self, object: u64) -> Option<RecoveredItem> {
        let is_it = |item: &&RecoveredRecord| item.stored.is_some_and(|stored| stored.encoding.is_full() && stored.object == object);
        let block = self.blocks.values().find(is_it).map(|record| RecoveredItem::Block(*record));
        block.or_else(|| self.bases.get(&object).map(|base| RecoveredItem::Base(*base)))
    }

    /// The base of a block, if it has one and it was given.
    pub fn base_of(&self, record: &RecoveredRecord) -> Option<RecoveredItem> {
        let stored = record.stored.filter(|stored| stored.encoding.rests_on_base())?;
        self.object(stored.object)
    }
}

/// Where it stands: segment and ordinal.
pub fn place_of(item: &RecoveredItem) -> (u64, u32) {
    match item {
        RecoveredItem::Block(record) => (record.segment_seq, record.ordinal),
        RecoveredItem::Base(base) => (base.segment_seq, base.ordinal),
    }
}

/// Whether a reader would take the payload for good, as far as it has one of its own; what it rests on is not looked at.
pub fn is_readable(disk: &Disk, layout: &Layout, item: &RecoveredItem) -> bool {
    let (seq, ordinal) = place_of(item);
    let (volume, block, checksum) = match item {
        RecoveredItem::Block(record) => (record.volume, record.block, record.checksum),
        RecoveredItem::Base(base) => (VolumeId(0), 0, base.checksum),
    };
    let first_page = layout.segment_offset(ShardIndex(0), layout.physical(seq)) / 4096;
    let page = |page: u32| disk.page(first_page + u64::from(page));
    match item.stored() {
        None => block_checksum(None, 0, volume, block, &page(ordinal)) == checksum,
        Some(stored) if stored.encoding == Encoding::Raw => {
            block_checksum(Some(Encoding::Raw), stored.object, volume, block, &page(stored.place / 256)) == checksum
        }
        Some(stored) if !stored.encoding.has_packed_payload() => true,
        Some(stored) => {
            let owner = if stored.encoding.is_full() { PayloadOwner::Object(stored.object) } else { PayloadOwner::Block(volume, block) };
            let bytes = [page(stored.place / 256), page(stored.place / 256 + 1)].concat();
            let at = stored.place as usize % 256 * 16;
            open_packed(owner, checksum, &bytes[at..at + usize::from(stored.bytes)]).is_some()
        }
    }
}
