//! Taking back the oldest segment: what is dirty, and what was used, is appended again; the rest is forgotten.
//!
//! In three steps, so that a crash at any point finds every block: (1) what is kept is appended at the head; (2) a group publishes the
//! new tail and is made durable; (3) only then do the entries of forgotten blocks leave the index and the segment becomes free. Until (3) they
//! are served as before, and a write over them makes them void by a record like any other. Several segments can be between (2) and (3).

use super::cache::NewBlock;
use super::pins::Pins;
use super::{CLEAN_HOLD_NS, Context, RESERVE_SEGMENTS, Shard};
use crate::api::{IoError, IoKind, Target};
use crate::index::{Encoding, Slot, Stored};
use crate::key::{Key, Map};
use crate::log::{PackedPayload, Urgency};
use crate::mutants;
use crate::outbox::Span;
use crate::policy::{Heat, TailVerdict};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use format::{PayloadOwner, object_checksum, open_packed};
use page::{Page, PageMutVec};
use types::BLOCK_BYTES;

/// Pages read at once for appending again: one read of up to 256 KiB.
const BATCH_PAGES_MAX: u32 = 64;
/// Such reads at the same time.
const BATCHES_IN_FLIGHT_MAX: u32 = 4;
/// The same ahead of need, one at a time: a request that comes meanwhile waits until what was read is stored anew, about a millisecond.
const BATCH_PAGES_AHEAD: u32 = 16;

/// A dirty block that cannot be read is tried this often before its bad content is carried on: an SSD's read error may pass, and the
/// old place is given up afterwards.
const DIRTY_TRIES_MAX: u32 = 3;

/// Something of the segment that is to be kept.
#[derive(Clone, Copy)]
struct Kept {
    slot: Slot,
    heat: Heat,
    /// Pages of its segment that its stored bytes touch; none if it has none.
    first_page: u32,
    pages: u32,
    /// It is read by itself: a read of several has failed, and each is judged by its own pages.
    alone: bool,
}

/// A run of pages being read for appending again what is in them.
pub struct Batch {
    seq: u64,
    first_page: u32,
    keep: Vec<Kept>,
}

/// Where cleaning stands.
#[derive(Default)]
pub struct Cleaner {
    /// The segment being taken back.
    seq: Option<u64>,
    /// The first segment of this life.
    begun_seq: u64,
    /// Its blocks to be kept and not yet read.
    to_read: VecDeque<Kept>,
    reading: u32,
    stopped: bool,
    /// Dirty blocks of the segment that could not be read, and how often.
    tries: Map<Slot, u32>,
    /// Bytes of clean blocks appended again from the segment: bounded so that cleaning always gains room.
    kept_clean_bytes: u64,
    /// What pinned blocks take.
    pub(super) pins: Pins,
    /// The segment is taken back ahead of need, and everything in it is kept: see [`super::recompress`].
    ahead: bool,
}

impl Cleaner {
    /// Of a log that this life continues with that segment.
    pub fn new(begun_seq: u64) -> Cleaner {
        Cleaner { begun_seq, ..Cleaner::default() }
    }

    /// The log is lost: there is nothing to clean.
    pub fn stop(&mut self) {
        self.stopped = true;
        self.give_up();
    }

    /// What was not moved yet stays where it is.
    fn give_up(&mut self) {
        self.to_read.clear();
        (self.seq, self.ahead) = (None, false);
    }

    /// Whether a segment is being taken back ahead of need.
    pub fn is_ahead(&self) -> bool {
        self.ahead
    }

    /// The segment being taken back.
    pub fn seq(&self) -> Option<u64> {
        self.seq
    }

    /// Whether nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.seq.is_none() && self.reading == 0
    }
}

impl Shard {
    /// Free segments below which cleaning begins.
    pub(super) fn clean_below(&self) -> u64 {
        let margin = RESERVE_SEGMENTS + 1 + self.log.space().segments() / 64;
        // Whoever waits for room must get it, however much it wants.
        let wanted = self.throttle.firsts().map(|id| self.segments_needed(self.ops.get(id).blocks)).max().unwrap_or(0);
        margin.max(wanted)
    }

    /// Whether there are too few free segments. What is only waiting for its tail to become durable counts as free: no need to take back more.
    pub(super) fn must_clean(&self) -> bool {
        let space = self.log.space();
        space.free_segments() + (space.tail_seq() - space.tail_durable()) < self.clean_below()
    }

    /// Goes on with cleaning as far as it can now.
    pub(super) fn clean(&mut self) {
        while !self.cleaner.stopped && self.restored.is_empty() {
            if self.cleaner.seq.is_none() {
                let space = self.log.space();
                if !self.must_clean() || space.tail_seq() >= space.head_seq() || self.quiescing {
                    return;
                }
                let seq = space.tail_seq();
                // In a tiny ring the tail can still be on its way to the device; the completion comes back here.
                if !self.log.is_segment_complete(seq) {
                    return;
                }
                self.begin_cleaning(seq);
            }
            if self.cleaner.ahead && self.quiescing && !self.must_clean() {
                // A stop does not wait for it.
                self.note_written_ahead();
                self.cleaner.give_up();
                return;
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

    /// Begins to take back a segment with everything in it kept, although there is room.
    pub(super) fn begin_cleaning_ahead(&mut self, seq: u64) {
        self.cleaner.ahead = true;
        self.begin_cleaning(seq);
    }

    #[inline(never)]
    fn begin_cleaning(&mut self, seq: u64) {
        self.cleaner.seq = Some(seq);
        self.cleaner.kept_clean_bytes = 0;
        self.cleaner.pins.take_back(self.log.space().physical(seq));
        self.cleaner.tries.clear();
        let mut keep: Vec<Kept> = Vec::new();
        for slot in self.slots_of(seq) {
            if let Some(heat) = self.verdict(slot) {
                let (first_page, pages) = self.pages_of(slot);
                keep.push(Kept { slot, heat, first_page, pages, alone: false });
            }
        }
        // In the order of their places, so that neighbours are read together. Plain blocks are already.
        keep.sort_by_key(|kept| kept.first_page);
        self.cleaner.to_read.extend(keep);
    }

    /// Whether what is in a slot of the segment being taken back is appended again, and with which heat.
    fn verdict(&mut self, slot: Slot) -> Option<Heat> {
        let Some(key) = self.index.key_of(slot) else {
            // A base that has no address any more: dirty blocks must keep it; for clean ones it is kept as long as there is room.
            let kept = slot.is_packed()
                && self.index.is_orphan(slot)
                && (self.dirty_rest_on(slot) || self.cleaner.ahead || self.may_keep_clean(self.stored_bytes(slot)));
            return kept.then(Heat::default);
        };
        let meta = self.index.meta(slot);
        let heat = Heat::from_bits(meta.frequency);
        if meta.dirty && mutants::active(23) {
            return None;
        }
        if meta.dirty || self.dirty_rest_on(slot) {
            return Some(heat);
        }
        if self.volume_of(key).detaching || self.dangles(slot) || self.is_lost(slot) {
            return None;
        }
        if self.cleaner.ahead {
            return Some(heat);
        }
        if meta.partial {
            return None;
        }
        if let Some(verdict) = self.verdict_by_policy(key, slot, heat) {
            return verdict;
        }
        let verdict = self.policy.on_tail_block(key.0, heat);
        let is_base = slot.is_packed() && self.index.references(slot).all > 0;
        match verdict {
            TailVerdict::Reinsert(heat) if self.may_keep_clean(self.stored_bytes(slot)) => Some(heat),
            TailVerdict::Forget if is_base && self.may_keep_clean(self.stored_bytes(slot)) => Some(heat),
            _ => None,
        }
    }

    pub(super) fn dirty_rest_on(&self, slot: Slot) -> bool {
        slot.is_packed() && self.index.references(slot).dirty > 0 && !mutants::active(51)
    }

    /// Whether the block rests on a base that is gone.
    fn dangles(&self, slot: Slot) -> bool {
        if !slot.is_packed() {
            return false;
        }
        let stored = self.index.stored(slot);
        stored.encoding.rests_on_base() && self.index.object(stored.object).is_none()
    }

    /// Whether the block was carried on as lost, without content.
    pub(super) fn is_lost(&self, slot: Slot) -> bool {
        slot.is_packed() && self.index.stored(slot).encoding == Encoding::Lost
    }

    /// Takes room for a clean block of the segment, if there is any left.
    pub(super) fn may_keep_clean(&mut self, bytes: u64) -> bool {
        let most_bytes = u64::from(self.log.space().data_pages()) * BLOCK_BYTES * 3 / 4;
        let fits = self.log.space().free_segments() >= RESERVE_SEGMENTS && self.cleaner.kept_clean_bytes < most_bytes;
        self.cleaner.kept_clean_bytes += if fits { bytes } else { 0 };
        fits
    }

    /// Bytes a block takes in the log, its records in group and footer included.
    pub(super) fn stored_bytes(&self, slot: Slot) -> u64 {
        if slot.is_packed() { 2 * format::record::RECORD_BYTES as u64 + u64::from(self.index.stored(slot).bytes) } else { BLOCK_BYTES }
    }

    fn pages_of(&self, slot: Slot) -> (u32, u32) {
        if !slot.is_packed() {
            return (self.page_of(slot), 1);
        }
        let stored = self.index.stored(slot);
        if stored.bytes == 0 { (0, 0) } else { super::fetch::pages_of(&stored) }
    }

    #[inline(never)]
    fn read_batches(&mut self) {
        let ahead = self.cleaner.ahead && !self.must_clean();
        let (batches_max, pages_max) = if ahead { (1, BATCH_PAGES_AHEAD) } else { (BATCHES_IN_FLIGHT_MAX, BATCH_PAGES_MAX) };
        while self.cleaner.reading < batches_max && (!ahead || self.cleaner.to_read.is_empty() || self.goes_on_ahead()) {
            let Some(first) = self.cleaner.to_read.front().copied() else { return };
            let first_page = first.first_page;
            let mut end_page = first_page;
            let mut keep = Vec::new();
            // Gaps of forgotten blocks are read over: cheaper than another read.
            while let Some(next) = self.cleaner.to_read.front()
                && (next.pages == 0 || next.first_page >= first_page && next.first_page + next.pages <= first_page + pages_max)
                && (first.pages > 0 || next.pages == 0)
                && (keep.is_empty() || !first.alone && !next.alone)
            {
                end_page = end_page.max(next.first_page + next.pages);
                keep.extend(self.cleaner.to_read.pop_front());
            }
            let seq = self.cleaner.seq.expect("cleaning");
            let pages: Option<PageMutVec> = (first_page..end_page).map(|_| self.config.pool.allocate()).collect();
            let Some(pages) = pages else {
                for kept in keep.into_iter().rev() {
                    self.cleaner.to_read.push_front(kept);
                }
                self.short_of_pages = true;
                return;
            };
            let batch = Batch { seq, first_page, keep };
            self.log.space_mut().pin(seq);
            self.cleaner.reading += 1;
            if pages.is_empty() {
                // Duplicates and zeroes: their records are all there is.
                self.clean_batch_read(batch, Ok(()), pages);
                continue;
            }
            let span = Span {
                target: Target::Ssd,
                offset_bytes: self.log.page_offset_bytes(seq, first_page),
                length_bytes: pages.len() as u64 * BLOCK_BYTES,
                background: true,
            };
            self.out.io(span, IoKind::Read(pages), Context::CleanRead(batch));
        }
    }

    /// What is to be kept has been read.
    pub(super) fn clean_batch_read(&mut self, batch: Batch, result: Result<(), IoError>, pages: PageMutVec) {
        self.log.space_mut().unpin(batch.seq);
        self.cleaner.reading -= 1;
        if self.cleaner.stopped {
            return;
        }
        if result.is_err() && batch.keep.len() > 1 && !mutants::active(71) {
            let alone = batch.keep.into_iter().rev().map(|kept| Kept { alone: true, ..kept });
            alone.for_each(|kept| self.cleaner.to_read.push_front(kept));
            return;
        }
        let pages: Vec<Page> = pages.into_iter().map(page::PageMut::freeze).collect();
        for kept in batch.keep {
            if !self.log.has_room() {
                // Cannot be while the reserve holds; the block keeps its place and the segment is tried again.
                self.cleaner.to_read.push_back(kept);
                continue;
            }
            // A newer version may have come, or the block gone, while this was read.
            let from = (kept.first_page.wrapping_sub(batch.first_page)) as usize;
            let read = result.is_ok().then(|| pages.get(from..from + kept.pages as usize).unwrap_or(&[]));
            self.void_if_dropped(kept.slot);
            if self.leaves_with_its_volume(kept.slot) {
                continue;
            }
            match self.index.key_of(kept.slot) {
                Some(key) if kept.slot.is_packed() => self.keep_packed(key, kept, read),
                Some(key) => self.keep_plain(key, kept, read),
                None if kept.slot.is_packed() && self.index.is_orphan(kept.slot) => self.keep_base(kept, read),
                None => {}
            }
        }
    }

    /// A clean block of a volume whose clean blocks are being made void is not carried on: the sweep may have passed the place it would get.
    fn void_if_dropped(&mut self, slot: Slot) {
        let dropped = |key: &Key| self.drops_clean_of(key.volume()) && !self.index.meta(slot).dirty;
        if let Some(key) = self.index.key_of(slot).filter(dropped) {
            self.void_bad_copy(key);
        }
    }

    /// A clean block of a volume that is being detached stays for the sweep, which may have passed the place it would get.
    fn leaves_with_its_volume(&mut self, slot: Slot) -> bool {
        let Some(key) = self.index.key_of(slot) else { return false };
        self.volume_of(key).detaching && !self.index.meta(slot).dirty && !self.dirty_rest_on(slot)
    }

    fn keep_plain(&mut self, key: Key, kept: Kept, read: Option<&[Page]>) {
        let Kept { slot, heat, .. } = kept;
        let meta = self.index.meta(slot);
        let mask = self.mask_of(key, slot);
        let proof = self.proof_of(slot);
        let volume = self.volume_of(key).id;
        let found = read.and_then(|pages| pages.first()).filter(|page| proof.holds(volume, key.block(), page)).cloned();
        let of_ram = |copy: &crate::ram::RamBlock| mask == u8::MAX && proof.holds(volume, key.block(), &copy.page);
        let found = found.or_else(|| self.ram.get(key).filter(|copy| of_ram(copy)).map(|copy| copy.page.clone()));
        let lost = found.is_none();
        if lost && self.give_up_unread(key, kept, read.is_none()) {
            return;
        }
        // An unreadable dirty block is kept with its true checksum: it stays an error, after a restart too. The record says so, or recovery would
        // take the group for torn and end the log before it.
        let page = found.unwrap_or_else(|| self.zero_page.clone());
        // A good whole block may be stored in another form now.
        let as_it_is = lost || mask != u8::MAX || !self.packer.is_on() || self.cleaner.ahead;
        let checksum = as_it_is.then_some(meta.checksum);
        let block = NewBlock { key, page, mask, dirty: meta.dirty, heat, checksum, lost };
        self.append_again(key, slot, block);
    }

    /// Whether a block that could not be read is not appended: it is tried again, or clean and void now. A dirty one is, at last, as lost.
    fn give_up_unread(&mut self, key: Key, kept: Kept, unreadable: bool) -> bool {
        if self.index.meta(kept.slot).dirty {
            let tries = self.cleaner.tries.entry(kept.slot).or_default();
            *tries += 1;
            if *tries < DIRTY_TRIES_MAX {
                self.cleaner.to_read.push_back(kept);
                return true;
            }
        }
        !self.cached_copy_is_bad(key, unreadable)
    }

    fn append_again(&mut self, key: Key, slot: Slot, block: NewBlock) {
        let (lost, dirty) = (block.lost, block.dirty);
        self.log_block(block, Urgency::By(self.now_ns + CLEAN_HOLD_NS));
        if !dirty {
            self.note_pinned(key);
        }
        if lost && let Some(moved) = self.index.get(key) {
            self.log.hide_page_in_flight(moved);
        }
        self.destage_moved(key, slot);
        self.volume_of(key).stats.reinserted_bytes += BLOCK_BYTES;
    }

    fn keep_packed(&mut self, key: Key, kept: Kept, read: Option<&[Page]>) {
        let Kept { slot, heat, .. } = kept;
        let (meta, stored) = (self.index.meta(slot), self.index.stored(slot));
        if !meta.dirty && (self.is_lost(slot) || self.dangles(slot)) {
            // Its content came home after all; or its base, clean like it, was forgotten while this was read. What is gone with the segment is a miss.
            return;
        }
        let volume = self.volume_of(key).id;
        let owner = if stored.encoding.is_full() { PayloadOwner::Object(stored.object) } else { PayloadOwner::Block(volume, key.block()) };
        let bytes = read.and_then(|pages| sound_bytes(&stored, owner, meta.checksum, pages)).filter(|_| !self.dangles(slot));
        if let Some(bytes) = bytes {
            self.log_packed_again(key, slot, heat, bytes);
            if !meta.dirty {
                self.note_pinned(key);
            }
            self.destage_moved(key, slot);
            self.volume_of(key).stats.reinserted_bytes += BLOCK_BYTES;
            return;
        }
        let proof = self.proof_of(slot);
        let copy = self.ram.get(key).map(|copy| copy.page.clone()).filter(|page| proof.holds(volume, key.block(), page));
        if copy.is_none() && self.give_up_unread(key, kept, read.is_none()) {
            // The block is void, but dirty ones rest on it: perhaps it can be read yet.
            if self.index.is_orphan(slot) && self.dirty_rest_on(slot) {
                self.keep_base(kept, None);
            }
            return;
        }
        // Others cannot rest on it any more.
        if self.index.is_object(slot) {
            self.index.drop_object(slot);
        }
        match copy {
            Some(page) => {
                let block = NewBlock { key, page, mask: u8::MAX, dirty: meta.dirty, heat, checksum: None, lost: false };
                self.append_again(key, slot, block);
            }
            None if mutants::active(70) => {
                let (page, checksum) = (self.zero_page.clone(), Some(meta.checksum));
                let block = NewBlock { key, page, mask: u8::MAX, dirty: meta.dirty, heat, checksum, lost: true };
                self.append_again(key, slot, block);
            }
            None => {
                // Not as a page: where many were small, the log would grow by what is lost.
                self.log_lost(key, slot, heat);
                self.destage_moved(key, slot);
            }
        }
    }

    fn keep_base(&mut self, kept: Kept, read: Option<&[Page]>) {
        let slot = kept.slot;
        let (checksum, stored) = (self.index.meta(slot).checksum, self.index.stored(slot));
        match read.and_then(|pages| sound_bytes(&stored, PayloadOwner::Object(stored.object), checksum, pages)) {
            Some(bytes) => self.log_base_again(slot, bytes),
            None => {
                let tries = self.cleaner.tries.entry(slot).or_default();
                *tries += 1;
                if *tries < DIRTY_TRIES_MAX {
                    self.cleaner.to_read.push_back(kept);
                    return;
                }
                match self.packer.contents().get(stored.object).cloned() {
                    Some(page) => self.log_base_whole(slot, page),
                    // What rests on it is lost: clean blocks are misses now, dirty ones errors.
                    None => self.index.drop_object(slot),
                }
            }
        }
    }

    /// Everything to be kept of the segment is appended: publish the new tail. False if there is no room to.
    #[inline(never)]
    fn retire_cleaned(&mut self) -> bool {
        if !self.log.has_room() {
            return false;
        }
        let seq = self.cleaner.seq.take().expect("cleaning");
        assert_eq!(seq, self.log.space().tail_seq(), "segments are taken back in order");
        self.log.space_mut().retire_tail();
        let published = self.log.publish_tail().is_some();
        // Of what an earlier life left, the tail never rests on a segment with nothing in it: recovery may have found it unreadable, and what marks
        // such a hole has just been passed. The next start might read it, and believe what is long void. (The group that says where the tail is
        // has been begun, in a segment of this life; it takes the tail along when it is closed.)
        while self.log.space().tail_seq() < self.cleaner.begun_seq && self.is_empty(self.log.space().tail_seq()) {
            self.log.space_mut().retire_tail();
        }
        if core::mem::take(&mut self.cleaner.ahead) {
            self.ended_ahead();
        }
        published
    }

    /// Whether nothing in a segment is of use.
    fn is_empty(&self, seq: u64) -> bool {
        self.slots_of(seq).all(|slot| self.index.key_of(slot).is_none() && !(slot.is_packed() && self.index.is_object(slot)))
    }

    /// The durable tail has passed these segments: what still points there is forgotten.
    pub(super) fn forget_segments(&mut self, from: u64, to: u64) {
        for seq in from..to {
            for slot in self.slots_of(seq) {
                if slot.is_packed() && self.index.is_object(slot) {
                    let unused = self.index.references(slot).dirty == 0;
                    assert!(unused || mutants::active(51), "a base of dirty blocks is never forgotten");
                    self.packer.forget(self.index.stored(slot).object);
                    self.index.drop_object(slot);
                }
                if let Some(key) = self.index.key_of(slot) {
                    assert!(!self.index.meta(slot).dirty || mutants::active(23), "a dirty block is never forgotten");
                    self.forget(key);
                    if let Some(block) = self.ram.get(key) {
                        self.policy.ram_set_copy(block.slot, false);
                    }
                }
            }
            self.index.clear_segment(self.log.space().physical(seq));
        }
        self.go_on_after_segment();
    }
}

/// The stored bytes of a packed record, if they are as they were written.
fn sound_bytes(stored: &Stored, owner: PayloadOwner, checksum: u32, pages: &[Page]) -> Option<PackedPayload> {
    let mut payload = PackedPayload::default();
    if stored.bytes == 0 {
        return Some(payload);
    }
    if let (Encoding::Raw, PayloadOwner::Object(object), [page]) = (stored.encoding, owner, pages) {
        payload.page = Some(page.clone());
        return (object_checksum(object, page) == checksum).then_some(payload);
    }
    let mut skip = super::fetch::skip_of(stored);
    let length = usize::from(stored.bytes);
    payload.bytes.reserve_exact(length);
    for page in pages {
        let end = page.len().min(skip + length - payload.bytes.len());
        payload.bytes.extend_from_slice(&page[skip..end]);
        skip = 0;
    }
    (payload.bytes.len() == length && open_packed(owner, checksum, &payload.bytes).is_some()).then_some(payload)
}
