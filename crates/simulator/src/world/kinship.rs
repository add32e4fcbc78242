//! Which blocks rest on which objects of the log, as its records say; and which objects the SSD harmed. A block whose base was given up
//! can be an error long after the SSD did wrong, and without any further answer of it.

use std::collections::{BTreeMap, BTreeSet};

use engine::api::{Io, IoKind};
use format::packed::PLACE_UNIT_BYTES;
use format::{GroupHead, Packed, Record};
use types::{BLOCK_BYTES, VolumeId};

/// A shard and the number of an object in it.
type Object = (u16, u64);

/// See the module.
#[derive(Default)]
pub struct Kinship {
    /// Blocks that ever were that object, or rested on it: place of the volume, and block.
    resting: BTreeMap<Object, BTreeSet<(u16, u64)>>,
    /// Objects by the pages of the SSD where their stored bytes were last written.
    stored_in: BTreeMap<u64, BTreeSet<Object>>,
    /// Objects that the SSD ever failed to give as they were written.
    harmed: BTreeSet<Object>,
    /// Objects that were read where a crash may have torn them.
    torn: BTreeSet<Object>,
}

impl Kinship {
    /// Takes in what a write to the log of this shard says. `places`: volumes by their numbers in the log.
    pub fn see(&mut self, lane: u16, io: &Io, places: &BTreeMap<VolumeId, u16>) {
        let IoKind::Write { pages, .. } = &io.kind else { return };
        let first_page = io.offset_bytes / BLOCK_BYTES;
        let end_page = (io.offset_bytes + io.length_bytes).div_ceil(BLOCK_BYTES);
        let over: Vec<u64> = self.stored_in.range(first_page..end_page).map(|(page, _)| *page).collect();
        over.iter().for_each(|page| drop(self.stored_in.remove(page)));
        let Some(Ok(page)) = pages.first().map(|page| page[..].try_into()) else { return };
        let Ok((head, records)) = GroupHead::decode(page) else { return };
        let segment_page = first_page - u64::from(head.page);
        for record in &records {
            if let Some(packed) = record.packed.filter(|packed| packed.object > 0) {
                self.see_record(lane, record, packed, segment_page, places.get(&record.volume).copied());
            }
        }
    }

    fn see_record(&mut self, lane: u16, record: &Record, packed: Packed, segment_page: u64, place: Option<u16>) {
        let object = (lane, packed.object);
        let resting = self.resting.entry(object).or_default();
        resting.extend(place.map(|place| (place, record.block)));
        if packed.encoding.is_full() {
            let start_bytes = u64::from(packed.place) * u64::from(PLACE_UNIT_BYTES);
            let end_bytes = start_bytes + u64::from(packed.bytes);
            for page in start_bytes / BLOCK_BYTES..end_bytes.div_ceil(BLOCK_BYTES) {
                self.stored_in.entry(segment_page + page).or_default().insert(object);
            }
        }
    }

    /// The SSD did not give this page as it was written, or not at all.
    pub fn page_is_bad(&mut self, page: u64) {
        self.harmed.extend(self.stored_in.get(&page).into_iter().flatten());
    }

    /// This page was read, and a crash may have torn it.
    pub fn page_is_torn(&mut self, page: u64) {
        self.torn.extend(self.stored_in.get(&page).into_iter().flatten());
    }

    /// Whether the SSD harmed what this block rests on, or did.
    pub fn explains(&self, volume: u16, block: u64) -> bool {
        self.harmed.iter().any(|object| self.resting[object].contains(&(volume, block)))
    }

    /// The same, or a crash may have torn it.
    pub fn explains_clean(&self, volume: u16, block: u64) -> bool {
        self.explains(volume, block) || self.torn.iter().any(|object| self.resting[object].contains(&(volume, block)))
    }

    /// Whether it harmed what any block of the volume rests on, or did.
    pub fn explains_some(&self, volume: u16) -> bool {
        let of_volume = |object| self.resting[object].range((volume, 0)..=(volume, u64::MAX)).next().is_some();
        self.harmed.iter().any(of_volume)
    }
}
