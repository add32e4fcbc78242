//! A pool that was made by an earlier release: its blocks lie in a log, and its first start makes that slots. What the log holds was acknowledged,
//! and flushed, long ago.

use std::collections::BTreeMap;

use engine::front::shard_of;
use format::{Layout, PAGE_BYTES};
use oldlog::{Block, Packing, Place, Writer, Written};
use types::{BLOCK_SECTORS, Mode, ShardIndex, VolumeId};

use super::World;
use super::devices::backing_of;
use crate::content::{self, SECTOR, Texture};
use crate::daemon::{self, packs};
use crate::oracle::Kind;
use crate::prng::Prng;

/// What the log says of a block.
#[derive(Clone)]
struct Held {
    mask: u8,
    dirty: bool,
    page: [u8; PAGE_BYTES],
}

/// How much of each shard's log may be filled, in segments.
struct Room {
    /// In all.
    all: u64,
    /// With what is dirty, and what that rests on: the ring, and copies of what is packed, need the rest.
    needed: u64,
}

impl Room {
    fn of(layout: &Layout, packed: bool) -> Room {
        let segments = u64::from(layout.segments_per_shard);
        let ring = u64::from(layout.upgraded(packed).ring_pages.div_ceil(layout.pages_per_segment()));
        // The segments of a ring lie side by side, and those that are free may lie round the end of the shard's part.
        Room { all: segments - 2, needed: (segments - 2 * ring - 1) / 2 }
    }
}

/// Acts of a log's life, at most.
const ACTS_MAX: u64 = 800;

/// What is being made up.
struct Before {
    prng: Prng,
    writers: Vec<Writer>,
    held: BTreeMap<(u16, u64), Held>,
}

impl World<'_> {
    /// Makes up what the log of the pool holds, shard by shard; nothing, where the pool is made with slots.
    pub fn log_of_before(&mut self) -> Vec<Written> {
        if !self.plan.begins_as_log() || !self.builder.uses_ssd() {
            return Vec::new();
        }
        let layout = daemon::log_layout(self.plan);
        let mut prng = Prng::new(self.plan.seed).fork(36);
        let packed = packs(self.plan);
        let room = Room::of(&layout, packed);
        let writer = |shard: u16, prng: &mut Prng| {
            let place = Place { uuid: self.host.pool_uuid, session: 1, shard: ShardIndex(shard), layout };
            let first_seq = 1 + prng.below(3 * u64::from(layout.segments_per_shard));
            let packing = packed.then(|| if prng.percent(50) { Packing::fast(prng.bits()) } else { Packing::dense(prng.bits()) });
            Writer::new(place, first_seq, packing)
        };
        let writers = (0..layout.shards).map(|shard| writer(shard, &mut prng)).collect();
        let mut before = Before { prng, writers, held: BTreeMap::new() };
        if before.prng.percent(70) {
            self.fill_log(&mut before, false, room.all - room.needed);
            // What is dirty must not rest on what the tail passes.
            before.writers.iter_mut().for_each(Writer::forget_objects);
        }
        before.writers.iter_mut().for_each(Writer::end_segment);
        self.fill_log(&mut before, true, room.needed);
        before.writers.into_iter().map(Writer::finish).collect()
    }

    /// Adds to the logs until one of them has so many segments more.
    fn fill_log(&mut self, before: &mut Before, dirty: bool, segments_max: u64) {
        let begun: Vec<u64> = before.writers.iter().map(Writer::full_segments).collect();
        for _ in 0..before.prng.below(ACTS_MAX) {
            if before.writers.iter().zip(&begun).any(|(writer, begun)| writer.full_segments() - begun >= segments_max) {
                return;
            }
            self.act_on_log(before, dirty);
        }
    }

    fn act_on_log(&mut self, before: &mut Before, dirty: bool) {
        let prng = &mut before.prng;
        let volume = prng.below(self.volumes.len() as u64) as u16;
        let state = &self.volumes[usize::from(volume)];
        let blocks = state.sectors / BLOCK_SECTORS;
        if blocks == 0 || !matches!(state.options.mode, Mode::WriteBack | Mode::WriteThrough) {
            return;
        }
        let dirty = dirty && state.options.mode == Mode::WriteBack;
        let block = prng.below(blocks.min(self.plan.mix.hot_blocks.max(64)));
        let id = VolumeId(self.host.id_of(volume));
        let shards = before.writers.len() as u16;
        let writer = &mut before.writers[usize::from(shard_of(id, block * BLOCK_SECTORS, shards).0)];
        let old = before.held.get(&(volume, block)).cloned();
        let (all, act) = (u8::MAX, prng.below(10));
        let held = match (act, old) {
            // It comes home.
            (0 | 1, Some(old)) if old.dirty => {
                self.put_home(volume, block, &old);
                writer.note_home(id, block);
                before.held.insert((volume, block), Held { dirty: false, ..old });
                return;
            }
            // It is written past the cache.
            (2, Some(_)) => {
                let page = self.written_before(prng, volume, block, all, None);
                self.put_home(volume, block, &Held { mask: all, dirty: false, page });
                writer.void(id, block);
                before.held.remove(&(volume, block));
                return;
            }
            // It is read.
            (3, None) => {
                let at = (block * PAGE_BYTES as u64) as usize;
                let page = self.devices[backing_of(volume)].media.lay_out()[at..at + PAGE_BYTES].try_into().expect("a block");
                Held { mask: all, dirty: false, page }
            }
            (_, old) if dirty => {
                let mask = if prng.percent(20) { 1 << prng.below(BLOCK_SECTORS) } else { all };
                let page = self.written_before(prng, volume, block, mask, old.as_ref().map(|old| old.page));
                Held { mask: mask | old.map_or(0, |old| old.mask), dirty: true, page }
            }
            (_, Some(old)) if old.dirty => return,
            _ => {
                let page = self.written_before(prng, volume, block, all, None);
                let held = Held { mask: all, dirty: false, page };
                self.put_home(volume, block, &held);
                held
            }
        };
        let Held { mask, dirty, page } = &held;
        writer.add(&Block { volume: id, block, mask: *mask, dirty: *dirty, page });
        if prng.percent(40) {
            writer.end_group();
        }
        before.held.insert((volume, block), held);
    }

    /// A client wrote these sectors of a block, over what was there, and flushed.
    fn written_before(&mut self, prng: &mut Prng, volume: u16, block: u64, mask: u8, over: Option<[u8; PAGE_BYTES]>) -> [u8; PAGE_BYTES] {
        let mut page = over.unwrap_or([0; PAGE_BYTES]);
        let texture = self.plan.content.as_ref().map_or(Texture::Unique, |content| content.texture(volume, block, prng));
        let (first, count) = (mask.trailing_zeros(), mask.count_ones());
        let start = block * BLOCK_SECTORS + u64::from(first);
        let number = self.oracle.begin_write(volume, Kind::Data(texture), start, count, false);
        for (sector, bytes) in (start..).zip(page.chunks_exact_mut(SECTOR).skip(first as usize).take(count as usize)) {
            content::fill(texture, volume, sector, number, bytes);
        }
        self.oracle.end_write(number, true);
        let flush = self.oracle.begin_flush();
        self.oracle.end_flush(volume, flush);
        page
    }

    /// The backing device has what is valid of it.
    fn put_home(&mut self, volume: u16, block: u64, held: &Held) {
        let at = (block * PAGE_BYTES as u64) as usize;
        let home = &mut self.devices[backing_of(volume)].media.lay_out()[at..at + PAGE_BYTES];
        for (sector, (into, from)) in home.chunks_exact_mut(SECTOR).zip(held.page.chunks_exact(SECTOR)).enumerate() {
            if held.mask >> sector & 1 != 0 {
                into.copy_from_slice(from);
            }
        }
    }
}
