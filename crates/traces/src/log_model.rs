//! The engine's log as the cache policy sees it: a ring of segments, taken back in the order they were written, around
//! the shipping [`Policy`]. No data, no time, every I/O at once; a replay takes a second.
//!
//! What differs from the engine: no header pages, no free segments in reserve, no dirty blocks (write-through). Two other ways to treat
//! overwrites, and another order of taking back, show what the ring itself costs.

use crate::replay::Cache;
use crate::stream::BlockAccess;
use engine::policy::{Access, EvictVerdict, Heat, Place, Policy, RamSlot, Verdict};
use std::collections::VecDeque;
use types::Admission;

/// Segments of the log, unless they would have fewer than [`SEGMENT_BLOCKS_MIN`] or more than [`SEGMENT_BLOCKS_MAX`] blocks.
const SEGMENTS: u64 = 64;
/// Smallest segment.
const SEGMENT_BLOCKS_MIN: u64 = 8;
/// The engine's default segment, 2 MiB.
const SEGMENT_BLOCKS_MAX: u64 = 512;

/// What becomes of a block's record when the block is overwritten.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Overwrite {
    /// The record goes stale and occupies its slot until its segment is taken back; the new version goes through RAM to the head.
    Append,
    /// The new version is written into the slot of the old one.
    InPlace,
    /// No ring at all: a stale slot takes the next block that is admitted. When there is none, a hand goes round over the slots, and what the
    /// policy would append again stays where it is.
    Reuse,
    /// As [`Overwrite::Append`], but no ring: the segment that is worth least is taken back, not the oldest.
    AppendPick,
}

/// What an unused live block of a segment is worth beside a used one, when segments are compared. Of 0.1, 0.3 and 0.6, with the age to the powers of 0,
/// 0.5, 1 and 2, this and the first power were best.
const UNUSED_WORTH: f64 = 0.6;

/// The model's size and rules.
#[derive(Clone, Copy, Debug)]
pub struct LogModelConfig {
    /// Blocks of the RAM tier.
    pub ram_blocks: u64,
    /// Blocks of the log.
    pub ssd_blocks: u64,
    /// As the volume option.
    pub admission: Admission,
    /// As the engine does it, or might.
    pub overwrite: Overwrite,
}

impl LogModelConfig {
    /// RAM and SSD together `capacity_blocks`, `ram_percent` of them RAM.
    pub fn new(capacity_blocks: u64, ram_percent: u64, overwrite: Overwrite) -> LogModelConfig {
        let ram_blocks = (capacity_blocks * ram_percent / 100).max(1);
        LogModelConfig { ram_blocks, ssd_blocks: capacity_blocks - ram_blocks, admission: Admission::SecondTouch, overwrite }
    }
}

#[derive(Clone, Copy)]
enum State {
    Absent,
    Ram(RamSlot),
    Ssd { position: u64, heat: Heat },
}

struct Segment {
    /// Position of its first block.
    start: u64,
    blocks: Vec<u32>,
}

/// See the module.
pub struct LogModel {
    config: LogModelConfig,
    policy: Policy,
    states: Vec<State>,
    segments: VecDeque<Segment>,
    segment_blocks: u64,
    segments_max: u64,
    appended: u64,
    written: u64,
    slots: Slots,
}

/// The slots of [`Overwrite::Reuse`].
#[derive(Default)]
struct Slots {
    blocks: Vec<u32>,
    stale: Vec<u64>,
    hand: u64,
}

impl LogModel {
    /// An empty cache for blocks `0..footprint_blocks`.
    pub fn new(footprint_blocks: u64, config: LogModelConfig) -> LogModel {
        let segment_blocks = (config.ssd_blocks / SEGMENTS).clamp(SEGMENT_BLOCKS_MIN, SEGMENT_BLOCKS_MAX);
        LogModel {
            policy: Policy::new(config.ram_blocks, config.ssd_blocks),
            states: vec![State::Absent; footprint_blocks as usize],
            segments: VecDeque::from([Segment { start: 0, blocks: Vec::new() }]),
            segment_blocks,
            segments_max: (config.ssd_blocks / segment_blocks).max(2),
            appended: 0,
            written: 0,
            slots: Slots::default(),
            config,
        }
    }

    fn place(&self, block: u32) -> Place {
        match self.states[block as usize] {
            State::Absent => Place::Absent,
            State::Ram(slot) => Place::Ram(slot),
            State::Ssd { position, heat } => {
                let age_regions = (self.appended.saturating_sub(position) / self.segment_blocks) as u32;
                Place::Ssd { heat, age_regions }
            }
        }
    }

    fn make_room_in_ram(&mut self) {
        while self.policy.ram_len() > self.config.ram_blocks {
            let victim = self.policy.ram_evict().expect("RAM is not empty");
            let block = victim.key as u32;
            self.states[block as usize] = State::Absent;
            match victim.verdict {
                Verdict::Admit(heat) if self.config.overwrite == Overwrite::Reuse => self.put_into_slot(block, heat),
                Verdict::Admit(heat) => self.append(block, heat),
                Verdict::Forget => {}
                Verdict::DropCopy => unreachable!("the model keeps no copies"),
            }
        }
    }

    /// Appends a block, and whatever must be appended again to make room for it.
    fn append(&mut self, block: u32, heat: Heat) {
        let mut waiting = VecDeque::from([(block, heat)]);
        while let Some((block, heat)) = waiting.pop_front() {
            let open = self.segments.back().expect("one segment is open");
            if open.blocks.len() as u64 == self.segment_blocks {
                if self.segments.len() as u64 == self.segments_max {
                    self.take_back_tail(&mut waiting);
                }
                self.segments.push_back(Segment { start: self.appended, blocks: Vec::new() });
                self.policy.on_region_begun();
            }
            self.segments.back_mut().expect("one segment is open").blocks.push(block);
            self.states[block as usize] = State::Ssd { position: self.appended, heat };
            self.appended += 1;
            self.written += 1;
        }
    }

    fn put_into_slot(&mut self, block: u32, heat: Heat) {
        let slot = match self.slots.stale.pop() {
            Some(slot) => slot,
            None if (self.slots.blocks.len() as u64) < self.config.ssd_blocks => {
                self.slots.blocks.push(block);
                self.slots.blocks.len() as u64 - 1
            }
            None => self.free_slot(),
        };
        self.slots.blocks[slot as usize] = block;
        self.states[block as usize] = State::Ssd { position: slot, heat };
        self.written += 1;
    }

    fn free_slot(&mut self) -> u64 {
        loop {
            let slot = self.slots.hand;
            self.slots.hand = (slot + 1) % self.config.ssd_blocks;
            if slot.is_multiple_of(self.segment_blocks) {
                self.policy.on_region_begun();
            }
            let block = self.slots.blocks[slot as usize];
            let State::Ssd { heat, .. } = self.states[block as usize] else { unreachable!("stale slots are taken first") };
            match self.policy.on_evict(u64::from(block), heat) {
                EvictVerdict::Reinsert(heat) => self.states[block as usize] = State::Ssd { position: slot, heat },
                EvictVerdict::Forget => {
                    self.states[block as usize] = State::Absent;
                    return slot;
                }
            }
        }
    }

    /// The segment to take back.
    fn victim(&self) -> usize {
        if self.config.overwrite != Overwrite::AppendPick {
            return 0;
        }
        let closed = self.segments.iter().take(self.segments.len() - 1).map(|segment| self.worth(segment));
        let least = closed.enumerate().min_by(|(_, a), (_, b)| a.total_cmp(b));
        least.expect("segments are never all gone").0
    }

    /// Cost over age: what would be forgotten or appended again, and how long ago it was written.
    fn worth(&self, segment: &Segment) -> f64 {
        let live = segment.blocks.iter().zip(segment.start..).filter_map(|(&block, at)| match self.states[block as usize] {
            State::Ssd { position, heat } if position == at => Some(if heat.is_used() { 1.0 } else { UNUSED_WORTH }),
            _ => None,
        });
        live.sum::<f64>() / (self.appended - segment.start) as f64
    }

    fn take_back_tail(&mut self, again: &mut VecDeque<(u32, Heat)>) {
        let tail = self.segments.remove(self.victim()).expect("segments are never all gone");
        // As the engine: cleaning always gains room.
        let keep_max = self.segment_blocks * 3 / 4;
        let mut kept = 0;
        for (offset, &block) in tail.blocks.iter().enumerate() {
            let State::Ssd { position, heat } = self.states[block as usize] else { continue };
            if position != tail.start + offset as u64 {
                continue;
            }
            self.states[block as usize] = State::Absent;
            if let EvictVerdict::Reinsert(heat) = self.policy.on_evict(u64::from(block), heat)
                && kept < keep_max
            {
                kept += 1;
                again.push_back((block, heat));
            }
        }
    }
}

impl Cache for LogModel {
    fn access(&mut self, access: BlockAccess) -> bool {
        let BlockAccess { block, write } = access;
        let place = self.place(block);
        let touch = Access { write, request_blocks: 1, admission: self.config.admission, own: false };
        let advice = self.policy.on_access(u64::from(block), place, touch);
        match (&mut self.states[block as usize], advice.enter) {
            (State::Ssd { heat, .. }, _) if !write || self.config.overwrite == Overwrite::InPlace => {
                *heat = advice.heat;
                self.written += u64::from(write);
            }
            (state @ (State::Absent | State::Ssd { .. }), Some(arrival)) => {
                if let State::Ssd { position, .. } = *state
                    && self.config.overwrite == Overwrite::Reuse
                {
                    self.slots.stale.push(position);
                }
                let slot = self.policy.ram_insert(u64::from(block), arrival);
                self.states[block as usize] = State::Ram(slot);
                self.make_room_in_ram();
            }
            _ => {}
        }
        place != Place::Absent
    }

    fn ssd_blocks_written(&self) -> u64 {
        self.written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(block: u32) -> BlockAccess {
        BlockAccess { block, write: false }
    }

    #[test]
    fn what_fits_is_hit_ever_after() {
        let mut model = LogModel::new(100, LogModelConfig::new(200, 10, Overwrite::Append));
        assert!((0..100).all(|block| !model.access(read(block))));
        assert!((0..100).all(|block| model.access(read(block))));
        assert_eq!(model.ssd_blocks_written(), 80, "all but the 20 in RAM");
    }

    #[test]
    fn no_more_blocks_are_cached_than_there_is_room_for() {
        let mut model = LogModel::new(10_000, LogModelConfig::new(1000, 10, Overwrite::Append));
        (0..10_000).for_each(|block| {
            model.access(read(block));
        });
        let cached = model.states.iter().filter(|state| !matches!(state, State::Absent)).count();
        assert!(cached <= 1000, "{cached} blocks cached");
        assert!(model.segments.iter().map(|segment| segment.blocks.len()).sum::<usize>() <= 900);
    }

    #[test]
    fn a_stale_slot_takes_the_next_block_where_slots_are_reused() {
        let mut model = LogModel::new(100, LogModelConfig::new(100, 10, Overwrite::Reuse));
        (0..100).for_each(|block| {
            model.access(read(block));
        });
        assert!((0..5).all(|_| (0..20).all(|block| model.access(BlockAccess { block, write: true }))));
        assert!((0..100).all(|block| model.access(read(block))), "all 90 slots and RAM are in use, and nothing went");
        assert_eq!(model.slots.blocks.len(), 90);
    }

    #[test]
    fn an_overwritten_block_leaves_a_stale_record_only_in_the_appending_log() {
        for (overwrite, appended) in [(Overwrite::Append, 100), (Overwrite::InPlace, 80)] {
            let mut model = LogModel::new(100, LogModelConfig::new(200, 10, overwrite));
            (0..100).for_each(|block| {
                model.access(read(block));
            });
            // Blocks 0 to 19 are on the SSD. Overwritten, they enter RAM again and push out the 20 that are there.
            assert!((0..20).all(|block| model.access(BlockAccess { block, write: true })));
            assert_eq!(model.appended, appended, "{overwrite:?}");
            assert_eq!(model.ssd_blocks_written(), 100, "{overwrite:?}");
        }
    }
}
