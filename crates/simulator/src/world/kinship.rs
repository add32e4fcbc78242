//! Which blocks rest on which objects of the log, as its records say; and which objects the SSD harmed. A block whose base was given up
//! can be an error long after the SSD did wrong, and without any further answer of it.

use std::collections::{BTreeMap, BTreeSet};

use engine::api::{Io, IoKind};
use format::Layout;
use format::slots::statement::UNIT_BYTES;
use format::slots::{RingHead, Statement};
use types::{BLOCK_BYTES, VolumeId};

/// A shard and the number of an object in it.
type Object = (u16, u64);
/// Place of a volume, and a block of it.
type Block = (u16, u64);

/// See the module.
#[derive(Default)]
pub struct Kinship {
    /// How the pool was made: where slots lie.
    layout: Option<Layout>,
    /// Blocks that ever were that object, or rested on it.
    resting: BTreeMap<Object, BTreeSet<Block>>,
    /// Objects by the pages of the SSD where their stored bytes were last written.
    stored_in: BTreeMap<u64, BTreeSet<Object>>,
    /// Blocks by the pages of the SSD where packed bytes of their own were last written: a whole block, or a difference.
    lies_in: BTreeMap<u64, BTreeSet<Block>>,
    /// What the SSD ever failed to give as it was written.
    harmed: Touched,
    /// What was read where a crash may have torn it.
    torn: Touched,
}

/// Objects, and blocks whose own bytes it were. One of these may have to wait for its base before it is told of, long after the bad answer: parts
/// of a read that failed are read one after the other.
#[derive(Default)]
struct Touched {
    objects: BTreeSet<Object>,
    blocks: BTreeSet<Block>,
}

impl Kinship {
    /// Of a pool in that layout.
    pub fn of(layout: &Layout) -> Kinship {
        Kinship { layout: Some(*layout), ..Kinship::default() }
    }

    /// Nothing is known of the pool any more.
    pub fn forget(&mut self) {
        *self = Kinship { layout: self.layout, ..Kinship::default() };
    }

    /// Takes in what a write to the log of this shard says. `places`: volumes by their numbers in the log.
    pub fn see(&mut self, lane: u16, io: &Io, places: &BTreeMap<VolumeId, u16>) {
        let IoKind::Write { pages, .. } = &io.kind else { return };
        let first_page = io.offset_bytes / BLOCK_BYTES;
        let end_page = (io.offset_bytes + io.length_bytes).div_ceil(BLOCK_BYTES);
        for page in first_page..end_page {
            self.stored_in.remove(&page);
            self.lies_in.remove(&page);
        }
        let Some(Ok(page)) = pages.first().map(|page| page[..].try_into()) else { return };
        let Ok((head, statements)) = RingHead::decode(page) else { return };
        let sets = statements.iter().filter_map(|said| if let Statement::Set(set) = said { Some((set, set.stored?)) } else { None });
        for (set, stored) in sets {
            let layout = self.layout.as_ref().expect("a pool was made");
            let of_segment = layout.pages_per_segment();
            let slot_bytes = layout.page_offset(head.shard, set.slot / of_segment, set.slot % of_segment);
            let start_bytes = slot_bytes + u64::from(stored.unit) * UNIT_BYTES as u64;
            let block = places.get(&set.volume).map(|place| (*place, set.block));
            self.see_stored(lane, block, start_bytes, stored.bytes, (stored.object, stored.encoding.is_full()));
        }
    }

    /// A block's stored bytes, or an object's, lie there on the SSD; it is this object, or rests on it.
    fn see_stored(&mut self, lane: u16, block: Option<Block>, start_bytes: u64, bytes: u16, (object, is_full): (u64, bool)) {
        let pages = start_bytes / BLOCK_BYTES..(start_bytes + u64::from(bytes)).div_ceil(BLOCK_BYTES);
        for page in pages.clone().filter(|_| bytes > 0) {
            self.lies_in.entry(page).or_default().extend(block);
        }
        if object > 0 {
            let object = (lane, object);
            self.resting.entry(object).or_default().extend(block);
            for page in pages.filter(|_| is_full) {
                self.stored_in.entry(page).or_default().insert(object);
            }
        }
    }

    /// The SSD did not give this page as it was written, or not at all.
    pub fn page_is_bad(&mut self, page: u64) {
        self.harmed.touch(self.stored_in.get(&page), self.lies_in.get(&page));
    }

    /// This page was read, and a crash may have torn it.
    pub fn page_is_torn(&mut self, page: u64) {
        self.torn.touch(self.stored_in.get(&page), self.lies_in.get(&page));
    }

    /// Whether the SSD harmed this block or what it rests on, or did.
    pub fn explains(&self, volume: u16, block: u64) -> bool {
        self.harmed.explains(&self.resting, (volume, block))
    }

    /// The same, or a crash may have torn it.
    pub fn explains_clean(&self, volume: u16, block: u64) -> bool {
        self.explains(volume, block) || self.torn.explains(&self.resting, (volume, block))
    }

    /// Whether it harmed any block of the volume or what one rests on, or did.
    pub fn explains_some(&self, volume: u16) -> bool {
        let all = (volume, 0)..=(volume, u64::MAX);
        let of_volume = |object| self.resting[object].range(all.clone()).next().is_some();
        self.harmed.blocks.range(all.clone()).next().is_some() || self.harmed.objects.iter().any(of_volume)
    }
}

impl Touched {
    fn touch(&mut self, objects: Option<&BTreeSet<Object>>, blocks: Option<&BTreeSet<Block>>) {
        self.objects.extend(objects.into_iter().flatten());
        self.blocks.extend(blocks.into_iter().flatten());
    }

    fn explains(&self, resting: &BTreeMap<Object, BTreeSet<Block>>, block: Block) -> bool {
        self.blocks.contains(&block) || self.objects.iter().any(|object| resting[object].contains(&block))
    }
}
