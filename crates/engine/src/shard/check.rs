//! The whole state, recounted. Run by the simulator (after each 64th step, in short runs after each) and by tests; too slow for production.

use super::Shard;
use crate::key::{Key, Map};
use alloc::format;
use alloc::string::String;
use core::fmt::Write;

impl Shard {
    /// Checks the invariants written at the top of this module and of the rooms it uses.
    ///
    /// # Panics
    /// If one does not hold: our reasoning was wrong.
    pub fn check_invariants(&self) {
        self.index.check_invariants();
        let mut cached: Map<u16, u64> = Map::default();
        let mut dirty = 0;
        for slot in self.index.every_slot() {
            let Some(key) = self.index.key_of(slot) else { continue };
            let meta = self.index.meta(slot);
            *cached.entry(key.volume().0).or_default() += 1;
            dirty += u64::from(meta.dirty);
            assert_eq!(meta.dirty, self.dirty.contains(key), "dirty set and index disagree about {key:?}");
            assert_eq!(meta.partial, self.partial.contains_key(&key), "masks and index disagree about {key:?}");
        }
        assert_eq!(dirty, self.dirty.blocks());
        self.check_candidates();
        self.check_policies();
        assert!(self.partial.keys().all(|key| self.index.get(*key).is_some()), "a mask without a block");
        for (index, ..) in self.attached() {
            let volume = self.volumes.get(index).expect("attached");
            assert_eq!(volume.cached_blocks, cached.get(&index.0).copied().unwrap_or(0), "cached blocks of {index:?}");
            let ram = self.ram.keys().filter(|key| key.volume() == index).count() as u64;
            assert_eq!(volume.ram_blocks, ram, "blocks in RAM of {index:?}");
        }
        assert_eq!(self.policy.ram_len(), self.ram.len(), "policy and RAM hold the same blocks");
        assert!(self.ram.keys().all(|key| !self.partial.contains_key(&key)), "RAM holds whole blocks only");
        let in_index = self.index.every_slot().filter_map(|slot| self.index.key_of(slot));
        self.presence.check(in_index.chain(self.ram.keys()));
        let quick: u32 = self.volumes.attached().iter().filter_map(|index| Some(self.volumes.get(*index)?.quick_reads)).sum();
        assert_eq!(quick, self.quick_reads, "quick reads of all volumes");
        for op in self.ops.iter().filter(|op| op.blocks > 0) {
            assert!(op.blocks as usize <= 256 && op.key(op.blocks as usize - 1) >= Key(op.first.0));
        }
    }

    /// Where one block is, in words.
    pub fn describe_block(&self, volume: types::VolumeIndex, block: u64) -> String {
        let key = Key::new(volume, block);
        let ram = if self.ram.get(key).is_some() { "in RAM" } else { "not in RAM" };
        let Some(slot) = self.index.get(key) else { return format!("{ram}, not on the SSD") };
        let (meta, place) = (self.index.meta(slot), self.place_of(slot));
        let state = if meta.dirty { "dirty" } else { "clean" };
        let flight = if self.store.in_flight().page(slot).is_some() { ", still in flight" } else { "" };
        format!("{ram}, {state} in region {} slot {}, valid sectors {:08b}{flight}", place.at, slot.0, self.mask_of(key, slot))
    }

    /// Whether a block, or sectors of it, can be served from RAM or the SSD. Changes nothing.
    pub fn holds(&self, volume: types::VolumeIndex, block: u64) -> bool {
        let key = Key::new(volume, block);
        self.ram.get(key).is_some() || self.index.get(key).is_some()
    }

    /// What is going on inside, in words for a person who wonders why something waits.
    pub fn describe(&self) -> String {
        let mut text = format!("{}\n", *self.store);
        let eviction = if self.store.eviction().is_idle() { "idle" } else { "at work" };
        let _ = writeln!(
            text,
            "blocks: {} cached, {} dirty in {} pages of at most {}, {} in RAM; eviction {eviction}; {} I/Os in flight, {} throttled, {} starved, {} quick reads",
            self.index.live_blocks(),
            self.dirty.blocks(),
            self.dirty_pages(),
            self.dirty_pages_max(),
            self.ram.len(),
            self.out.in_flight(),
            self.throttle.len(),
            self.starved.len(),
            self.quick_reads,
        );
        self.describe_destage(&mut text);
        self.describe_ranges(&mut text);
        self.describe_commands(&mut text);
        if self.loss.is_ssd_failed() {
            let _ = writeln!(text, "SSD lost, recorded: {}; {} requests wait", self.loss.recorded, self.loss.waiting());
        }
        for op in self.ops.iter() {
            let (request, phase) = (&op.request, op.phase);
            let _ = writeln!(
                text,
                "request: {:?} volume {} sectors {}+{}, {phase:?}, {} I/Os pending, group {}",
                request.op, request.volume.0, request.start_sector, request.sectors, op.pending, op.group
            );
        }
        text
    }
}
