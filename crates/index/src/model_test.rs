//! Random use of both kinds of slot, beside a model that finds everything by looking at everything: writes, overwrites, moves by eviction,
//! objects given up, regions used anew, and recoveries from what the SSD would hold.

use super::*;
use crate::key::mix;
use alloc::collections::BTreeMap;
use types::VolumeIndex;

const REGIONS: u32 = 12;
const PAGES: u32 = 8;
/// Numbers of packed slots in a region.
const NUMBERS: u32 = PAGES << ORDINAL_BITS_OVER_PAGES;
/// Packed records after which a region is left for the next.
const PACKED_ENOUGH: u32 = 24;
const KEYS: u64 = 120;

#[derive(Clone, Copy)]
struct Block {
    slot: Slot,
    meta: SlotMeta,
    stored: Option<Stored>,
    dangles: bool,
    /// At home, and the SSD says it is dirty.
    holds: bool,
}

impl Block {
    fn rests_on(&self) -> Option<u64> {
        self.stored.filter(|stored| stored.encoding.rests_on_base()).map(|stored| stored.object)
    }

    fn full(&self) -> Option<u64> {
        self.stored.filter(|stored| stored.encoding.is_full()).map(|stored| stored.object)
    }
}

struct Object {
    slot: Slot,
    checksum: u32,
    stored: Stored,
    orphan: bool,
}

/// A record as a recovery would find it.
struct Written {
    slot: Slot,
    key: Option<Key>,
    meta: SlotMeta,
    stored: Option<Stored>,
}

struct World {
    index: Index,
    blocks: BTreeMap<Key, Block>,
    objects: BTreeMap<u64, Object>,
    written: Vec<Written>,
    random: u64,
    next_object: u64,
    newest: u32,
    pages_used: u32,
    packed_used: u32,
    /// How often something rare happened: the test must not be easier than it looks.
    moved: [u32; 3],
    dropped: [u32; 2],
}

impl World {
    fn new(seed: u64) -> World {
        World {
            index: Index::new(REGIONS * PAGES, PAGES),
            blocks: BTreeMap::new(),
            objects: BTreeMap::new(),
            written: Vec::new(),
            random: seed << 32,
            next_object: 1,
            newest: 0,
            pages_used: 0,
            packed_used: 0,
            moved: [0; 3],
            dropped: [0; 2],
        }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.random += 1;
        mix(self.random) % below
    }

    fn rests(&self, id: u64) -> References {
        let resting = || self.blocks.values().filter(|block| block.rests_on() == Some(id) && !block.dangles);
        References { all: resting().count() as u16, dirty: resting().filter(|block| block.meta.dirty || block.holds).count() as u16 }
    }

    fn meta(&mut self, partial: bool) -> SlotMeta {
        let random = self.random(1 << 40);
        let partial = partial && random.is_multiple_of(3);
        SlotMeta { dirty: random & 8 == 0, partial, frequency: (random >> 4 & 3) as u8, checksum: (random >> 8) as u32 }
    }

    fn region_of(slot: Slot) -> u32 {
        if slot.is_packed() { Index::page_of(slot) / PAGES } else { slot.0 / PAGES }
    }

    fn next_packed(&mut self) -> Slot {
        self.packed_used += 1;
        Slot(PACKED | (self.newest * NUMBERS + self.packed_used - 1))
    }

    /// How and where a record is stored: the slot says the latter.
    fn placed(slot: Slot, stored: Stored) -> Stored {
        Stored { place: (slot.0 & !PACKED) % NUMBERS * BYTES_PER_NUMBER / 16, ..stored }
    }

    /// What the end of a record means for objects; the new state of the block is in place.
    fn left(&mut self, old: Block) {
        if let Some(id) = old.full().filter(|id| self.objects.get(id).is_some_and(|object| object.slot == old.slot)) {
            self.objects.get_mut(&id).expect("looked at").orphan = true;
            self.bury(id);
        }
        if let Some(id) = old.rests_on().filter(|_| !old.dangles) {
            self.bury(id);
        }
    }

    fn bury(&mut self, id: u64) {
        if self.objects[&id].orphan && self.rests(id).all == 0 {
            self.objects.remove(&id);
        }
    }

    fn write_plain(&mut self, key: Key, meta: SlotMeta) {
        let slot = Slot(self.newest * PAGES + self.pages_used);
        self.pages_used += 1;
        let old = self.index.insert(key, slot, meta);
        self.put(key, Block { slot, meta, stored: None, dangles: false, holds: false }, old);
    }

    fn write_packed(&mut self, key: Key, meta: SlotMeta, stored: Stored) {
        let slot = self.next_packed();
        let old = self.index.insert_packed(key, slot, meta, stored);
        let stored = World::placed(slot, stored);
        let before = self.blocks.get(&key).and_then(Block::full);
        let was_dropped = before == Some(stored.object) && !self.objects.contains_key(&stored.object);
        if stored.encoding.is_full() && !was_dropped {
            self.objects.insert(stored.object, Object { slot, checksum: meta.checksum, stored, orphan: false });
        }
        self.put(key, Block { slot, meta, stored: Some(stored), dangles: false, holds: false }, old);
    }

    fn put(&mut self, key: Key, block: Block, old: Option<Slot>) {
        let Block { slot, meta, stored, .. } = block;
        self.written.push(Written { slot, key: Some(key), meta, stored });
        let before = self.blocks.insert(key, block);
        assert_eq!(old, before.map(|before| before.slot));
        before.into_iter().for_each(|before| self.left(before));
    }

    fn remove(&mut self, key: Key) {
        let before = self.blocks.remove(&key);
        assert_eq!(self.index.remove(key), before.map(|before| before.slot));
        before.into_iter().for_each(|before| self.left(before));
        // A recovery would know that the block was made void; its full records may still be bases.
        self.written.retain(|written| written.key != Some(key) || written.stored.is_some_and(|stored| stored.encoding.is_full()));
        self.written.iter_mut().filter(|written| written.key == Some(key)).for_each(|written| written.key = None);
    }

    fn write(&mut self) {
        let key = Key::new(VolumeIndex(3), self.random(KEYS));
        let kind = self.random(10);
        let base = self.random(self.next_object);
        match kind {
            0 | 1 => {
                let meta = self.meta(true);
                self.write_plain(key, meta);
            }
            2..=4 => {
                let encoding = [Encoding::Raw, Encoding::Lz4, Encoding::Zstd][kind as usize - 2];
                let stored = Stored { encoding, place: 0, bytes: 1000, object: self.next_object };
                self.next_object += 1;
                let meta = self.meta(false);
                self.write_packed(key, meta, stored);
            }
            5 => {
                let meta = self.meta(false);
                let encoding = [Encoding::Zero, Encoding::Lost][self.random(2) as usize];
                self.write_packed(key, meta, Stored { encoding, place: 0, bytes: 0, object: 0 });
            }
            _ => {
                let Some((id, _)) = self.objects.range(base..).next() else { return };
                assert!(self.index.may_reference(*id));
                let encoding = [Encoding::Duplicate, Encoding::Diff, Encoding::LzDelta, Encoding::ZstdDelta][kind as usize - 6];
                let stored = Stored { encoding, place: 0, bytes: 77, object: *id };
                let meta = self.meta(false);
                self.write_packed(key, meta, stored);
            }
        }
    }

    fn drop_object(&mut self, id: u64) {
        assert_eq!(self.rests(id).dirty, 0);
        let object = self.objects.remove(&id).expect("there");
        self.dropped[usize::from(object.orphan)] += 1;
        self.index.drop_object(object.slot);
        self.blocks.values_mut().filter(|block| block.rests_on() == Some(id)).for_each(|block| block.dangles = true);
    }

    /// Takes all out of the oldest region, and makes it the newest.
    fn next_region(&mut self) {
        let oldest = (self.newest + 1) % REGIONS;
        let keys: Vec<Key> = self.blocks.iter().filter(|(_, block)| World::region_of(block.slot) == oldest).map(|(key, _)| *key).collect();
        for key in keys {
            let block = self.blocks[&key];
            let keep = self.random(3) > 0 && !block.dangles;
            match block.stored {
                None if keep && self.pages_used < PAGES => self.write_plain(key, block.meta),
                Some(stored) if keep => {
                    self.moved[if stored.encoding.is_full() { 0 } else { 1 }] += 1;
                    self.write_packed(key, block.meta, stored);
                }
                _ => self.remove(key),
            }
        }
        let orphans = self.objects.iter().filter(|(_, object)| object.orphan && World::region_of(object.slot) == oldest);
        for id in orphans.map(|(id, _)| *id).collect::<Vec<u64>>() {
            if self.rests(id).dirty == 0 && self.random(2) == 0 {
                self.drop_object(id);
                continue;
            }
            let slot = self.next_packed();
            let object = self.objects.get_mut(&id).expect("there");
            (object.slot, object.stored) = (slot, World::placed(slot, object.stored));
            let (stored, meta) = (object.stored, SlotMeta { dirty: false, partial: false, frequency: 0, checksum: object.checksum });
            self.index.insert_base(slot, meta.checksum, stored);
            self.written.push(Written { slot, key: None, meta, stored: Some(stored) });
            self.moved[2] += 1;
        }
        let written = core::mem::take(&mut self.written);
        self.written = written.into_iter().filter(|written| World::region_of(written.slot) != oldest).collect();
        assert_eq!(self.index.packed_in(oldest * PAGES..(oldest + 1) * PAGES).next(), None);
        (self.newest, self.pages_used, self.packed_used) = (oldest, 0, 0);
    }

    fn step(&mut self) {
        if self.pages_used == PAGES || self.packed_used >= PACKED_ENOUGH {
            self.next_region();
        }
        let key = Key::new(VolumeIndex(3), self.random(KEYS));
        match self.random(16) {
            0..=8 => self.write(),
            9 | 10 => self.remove(key),
            11 | 12 => {
                if let Some(block) = self.blocks.get_mut(&key) {
                    block.holds |= block.meta.dirty;
                    block.meta.dirty = false;
                    self.index.set_clean(block.slot);
                    if key.block().is_multiple_of(2) || block.meta.frequency == 3 {
                        block.holds = false;
                        self.index.let_go_of_base(block.slot);
                    }
                }
            }
            13 => {
                if let Some(block) = self.blocks.get_mut(&key) {
                    block.meta.frequency = 3;
                    self.index.set_frequency(block.slot, 3);
                }
            }
            14 if self.random(4) == 0 => {
                let from = self.random(self.next_object);
                if let Some((id, _)) = self.objects.range(from..).next().filter(|(id, _)| self.rests(**id).dirty == 0) {
                    self.drop_object(*id);
                }
            }
            // Numbers are left out.
            _ => self.packed_used += 1,
        }
    }

    fn compare(&self) {
        self.index.check_invariants();
        for key in (0..KEYS).map(|block| Key::new(VolumeIndex(3), block)) {
            let block = self.blocks.get(&key);
            assert_eq!(self.index.get(key), block.map(|block| block.slot));
            let Some(block) = block else { continue };
            assert_eq!((self.index.key_of(block.slot), self.index.meta(block.slot)), (Some(key), block.meta));
            assert!(!self.index.is_orphan(block.slot));
            if let Some(stored) = block.stored {
                assert_eq!(self.index.stored(block.slot), stored);
            }
        }
        for id in 0..self.next_object {
            let object = self.objects.get(&id);
            assert_eq!(self.index.object(id), object.map(|object| object.slot), "object {id}");
            let Some(object) = object else { continue };
            assert_eq!((self.index.stored(object.slot), self.index.references(object.slot)), (object.stored, self.rests(id)));
            assert_eq!((self.index.is_orphan(object.slot), self.index.key_of(object.slot).is_none()), (object.orphan, object.orphan));
            assert_eq!(self.index.meta(object.slot).checksum, object.checksum);
        }
        let of = |encodings: &[Encoding]| {
            let stored = self.blocks.values().filter_map(|block| block.stored);
            stored.filter(|stored| encodings.contains(&stored.encoding)).count() as u64
        };
        let census = Census {
            raw: of(&[Encoding::Raw]),
            lz4: of(&[Encoding::Lz4]),
            zstd: of(&[Encoding::Zstd]),
            zero: of(&[Encoding::Zero]),
            lost: of(&[Encoding::Lost]),
            duplicate: of(&[Encoding::Duplicate]),
            delta: of(&[Encoding::Diff, Encoding::LzDelta, Encoding::ZstdDelta]),
            orphans: self.objects.values().filter(|object| object.orphan).count() as u64,
            references: self.objects.keys().filter(|id| self.rests(**id).all > 0).count() as u64,
            stored_bytes: self.index.census().stored_bytes,
        };
        assert_eq!(self.index.census(), census);
        assert_eq!(self.index.live_blocks() as usize, self.blocks.len());
    }

    /// An index from all records that a recovery would find, old ones included, is the same; except that objects given up are back.
    fn recover(&self) {
        let mut index = Index::new(REGIONS * PAGES, PAGES);
        for written in &self.written {
            match written.stored {
                None => index.insert(written.key.expect("a plain record has a block"), written.slot, written.meta),
                Some(stored) => index.restore_packed(written.slot, written.key, written.meta, stored),
            };
        }
        index.check_invariants();
        index.recount_references();
        for key in (0..KEYS).map(|block| Key::new(VolumeIndex(3), block)) {
            assert_eq!(index.get(key), self.index.get(key));
        }
        let dirty = |id: u64| self.written.iter().filter(|written| written.meta.dirty && self.is_newest(written, id)).count();
        for (id, object) in &self.objects {
            assert_eq!((index.object(*id), index.is_orphan(object.slot)), (Some(object.slot), object.orphan), "object {id}");
            let References { all, dirty: found } = index.references(object.slot);
            assert_eq!((all, usize::from(found)), (self.rests(*id).all, dirty(*id)));
        }
    }

    /// Whether the record is what a block has now, and rests on the object. Its flags are those of the writing.
    fn is_newest(&self, written: &Written, id: u64) -> bool {
        written.key.and_then(|key| self.blocks.get(&key)).is_some_and(|block| block.slot == written.slot && block.rests_on() == Some(id))
    }
}

#[test]
fn agrees_with_a_model_that_looks_at_everything() {
    let (mut moved, mut dropped) = ([0; 3], [0; 2]);
    for seed in 0..8 {
        let mut world = World::new(seed);
        for step in 0..12_000 {
            world.step();
            if step % 200 == 0 {
                world.compare();
                world.recover();
            }
        }
        world.compare();
        world.recover();
        (0..3).for_each(|at| moved[at] += world.moved[at]);
        (0..2).for_each(|at| dropped[at] += world.dropped[at]);
    }
    assert!(moved.iter().chain(&dropped).all(|times| *times > 100), "moved {moved:?}, dropped {dropped:?}");
}
