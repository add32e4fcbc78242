//! Taking back the oldest segment: what is dirty, and what was used, is appended again; the rest is forgotten.
//!
//! In three steps, so that a crash at any point finds every block: (1) what is kept is appended at the head; (2) a group publishes the
//! new tail and is made durable; (3) only then do the entries of forgotten blocks leave the index and the segment becomes free. Until (3) they
//! are served as before, and a write over them makes them void by a record like any other. Several segments can be between (2) and (3).

use super::cache::NewBlock;
use super::{CLEAN_HOLD_NS, Context, RESERVE_SEGMENTS, Shard};
use crate::api::{IoError, IoKind, Target};
use crate::index::Slot;
use crate::key::{Key, Map};
use crate::log::Urgency;
use crate::mutants;
use crate::outbox::Span;
use crate::policy::{Heat, TailVerdict};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use format::payload_checksum;
use page::PageMutVec;
use types::BLOCK_BYTES;

/// Blocks read at once for appending again: one read of up to 256 KiB.
const BATCH_BLOCKS_MAX: usize = 64;
/// Such reads at the same time.
const BATCHES_IN_FLIGHT_MAX: u32 = 4;

/// A dirty block that cannot be read is tried this often before its bad content is carried on: an SSD's read error may pass, and the
/// old place is given up afterwards.
const DIRTY_TRIES_MAX: u32 = 3;

/// A run of blocks being read for appending again.
pub struct Batch {
    seq: u64,
    first: Slot,
    keep: Vec<(Key, Slot, Heat)>,
}

/// Where cleaning stands.
#[derive(Default)]
pub struct Cleaner {
    /// The segment being taken back.
    seq: Option<u64>,
    /// Its blocks to be kept and not yet read.
    to_read: VecDeque<(Key, Slot, Heat)>,
    reading: u32,
    stopped: bool,
    /// Dirty blocks of the segment that could not be read, and how often.
    tries: Map<Slot, u32>,
    /// Clean blocks appended again from the segment: bounded so that cleaning always gains room.
    kept_clean: u32,
}

impl Cleaner {
    /// The log is lost: there is nothing to clean.
    pub fn stop(&mut self) {
        self.stopped = true;
        self.to_read.clear();
        self.seq = None;
    }

    /// Whether nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.seq.is_none() && self.reading == 0
    }
}

impl Shard {
    /// Free segments below which cleaning begins.
    fn clean_below(&self) -> u64 {
        let margin = RESERVE_SEGMENTS + 1 + self.log.space().segments() / 64;
        // Whoever waits for room must get it, however much it wants.
        let wanted = self.throttled.front().map_or(0, |id| self.segments_needed(self.ops.get(*id).blocks));
        margin.max(wanted)
    }

    /// Goes on with cleaning as far as it can now.
    pub(super) fn clean(&mut self) {
        while !self.cleaner.stopped && self.restored.is_empty() {
            if self.cleaner.seq.is_none() {
                let space = self.log.space();
                // Count what is only waiting for its tail to become durable as free: no need to take back more.
                let coming = space.tail_seq() - space.tail_durable();
                if space.free_segments() + coming >= self.clean_below() || space.tail_seq() >= space.head_seq() || self.quiescing {
                    return;
                }
                let seq = space.tail_seq();
                // In a tiny ring the tail can still be on its way to the device; the completion comes back here.
                if !self.log.is_segment_complete(seq) {
                    return;
                }
                self.begin_cleaning(seq);
            }
            self.read_batches();
            if !self.cleaner.to_read.is_empty() || self.cleaner.reading > 0 {
                return;
            }
            if !self.retire_cleaned() {
                return;
            }
        }
    }

    fn begin_cleaning(&mut self, seq: u64) {
        self.cleaner.seq = Some(seq);
        self.cleaner.kept_clean = 0;
        self.cleaner.tries.clear();
        let keep_clean_max = self.log.space().data_pages() * 3 / 4;
        let pressed = self.log.space().free_segments() < RESERVE_SEGMENTS;
        for slot in self.log.slots_of(seq) {
            let slot = Slot(slot);
            let Some(key) = self.index.key_of(slot) else { continue };
            let meta = self.index.meta(slot);
            if meta.dirty && mutants::active(23) {
                continue;
            }
            if meta.dirty {
                self.cleaner.to_read.push_back((key, slot, Heat::from_bits(meta.frequency)));
                continue;
            }
            if self.volume_of(key).detaching || meta.partial {
                continue;
            }
            let verdict = self.policy.on_tail_block(key.0, Heat::from_bits(meta.frequency));
            if let TailVerdict::Reinsert(heat) = verdict
                && !pressed
                && self.cleaner.kept_clean < keep_clean_max
            {
                self.cleaner.kept_clean += 1;
                self.cleaner.to_read.push_back((key, slot, heat));
            }
        }
    }

    fn read_batches(&mut self) {
        while self.cleaner.reading < BATCHES_IN_FLIGHT_MAX {
            let Some((_, first, _)) = self.cleaner.to_read.front().copied() else { return };
            let mut keep = Vec::new();
            while let Some(next) = self.cleaner.to_read.front() {
                // Gaps of forgotten blocks are read over: cheaper than another read.
                if next.1.0 - first.0 >= BATCH_BLOCKS_MAX as u32 {
                    break;
                }
                keep.extend(self.cleaner.to_read.pop_front());
            }
            let blocks = keep.last().expect("at least one").1.0 - first.0 + 1;
            let pages: Option<PageMutVec> = (0..blocks).map(|_| self.config.pool.allocate()).collect();
            let Some(pages) = pages else {
                for block in keep.into_iter().rev() {
                    self.cleaner.to_read.push_front(block);
                }
                self.short_of_pages = true;
                return;
            };
            let seq = self.cleaner.seq.expect("cleaning");
            self.log.space_mut().pin(seq);
            self.cleaner.reading += 1;
            let span = Span {
                target: Target::Ssd,
                offset_bytes: self.log.offset_bytes(first),
                length_bytes: u64::from(blocks) * BLOCK_BYTES,
                background: true,
            };
            self.out.io(span, IoKind::Read(pages), Context::CleanRead(Batch { seq, first, keep }));
        }
    }

    /// Blocks to be kept have been read.
    pub(super) fn clean_batch_read(&mut self, batch: Batch, result: Result<(), IoError>, pages: PageMutVec) {
        self.log.space_mut().unpin(batch.seq);
        self.cleaner.reading -= 1;
        if self.cleaner.stopped {
            return;
        }
        let pages: Vec<page::Page> = pages.into_iter().map(page::PageMut::freeze).collect();
        for (key, slot, heat) in batch.keep {
            // A newer version may have come, or the block gone, while this was read.
            if self.index.get(key) != Some(slot) {
                continue;
            }
            let meta = self.index.meta(slot);
            let mask = self.mask_of(key, slot);
            let mut page = pages[(slot.0 - batch.first.0) as usize].clone();
            let volume = self.volume_of(key).id;
            let mut good = result.is_ok() && payload_checksum(volume, key.block(), &page) == meta.checksum;
            if !good
                && mask == u8::MAX
                && let Some(copy) = self.ram.get(key).filter(|copy| payload_checksum(volume, key.block(), &copy.page) == meta.checksum)
            {
                (page, good) = (copy.page.clone(), true);
            }
            if !good && meta.dirty {
                let tries = self.cleaner.tries.entry(slot).or_default();
                *tries += 1;
                if *tries < DIRTY_TRIES_MAX {
                    self.cleaner.to_read.push_back((key, slot, heat));
                    continue;
                }
            }
            if !good && !self.cached_copy_is_bad(key, result.is_err()) {
                continue;
            }
            if !self.log.has_room() {
                // Cannot be while the reserve holds; the block keeps its place and the segment is tried again.
                self.cleaner.to_read.push_back((key, slot, heat));
                continue;
            }
            // An unreadable dirty block is kept with its true checksum: it stays an error, after a restart too. The record says so, or recovery would
            // take the group for torn and end the log before it.
            let block = NewBlock { key, page, mask, dirty: meta.dirty, heat, checksum: Some(meta.checksum), lost: !good };
            let oldest_ns = self.now_ns;
            self.log_block(block, Urgency::By(oldest_ns + CLEAN_HOLD_NS));
            if !good && let Some(moved) = self.index.get(key) {
                self.log.hide_page_in_flight(moved);
            }
            self.destage_moved(key, slot);
            self.volume_of(key).stats.reinserted_bytes += BLOCK_BYTES;
        }
    }

    /// Everything to be kept of the segment is appended: publish the new tail. False if there is no room to.
    fn retire_cleaned(&mut self) -> bool {
        if !self.log.has_room() {
            return false;
        }
        let seq = self.cleaner.seq.take().expect("cleaning");
        assert_eq!(seq, self.log.space().tail_seq(), "segments are taken back in order");
        self.log.space_mut().retire_tail();
        self.log.publish_tail().is_some()
    }

    /// The durable tail has passed these segments: what still points there is forgotten.
    pub(super) fn forget_segments(&mut self, from: u64, to: u64) {
        for seq in from..to {
            for slot in self.log.slots_of(seq) {
                let slot = Slot(slot);
                if let Some(key) = self.index.key_of(slot) {
                    assert!(!self.index.meta(slot).dirty || mutants::active(23), "a dirty block is never forgotten");
                    self.forget(key);
                    if let Some(block) = self.ram.get(key) {
                        self.policy.ram_set_copy(block.slot, false);
                    }
                }
            }
        }
    }
}
