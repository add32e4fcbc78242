//! Taking room back: what is dirty, and what was used, stays; the rest is forgotten.
//!
//! The store says what is next ([`Evict`]), and in which order a crash finds every block ([`crate::store`]). Here is what becomes of each
//! block: whether it stays, how packed ones are appended again out of slots that are nearly empty, and what leaves the index.

use super::packing::NewBlock;
use super::pins::Pins;
use super::{CLEAN_HOLD_NS, Context, Shard};
use crate::api::{IoError, IoKind};
use crate::index::{BYTES_PER_NUMBER, Encoding, Index, Slot, Stored};
use crate::key::Key;
use crate::mutants;
use crate::policy::{EvictVerdict, Heat};
use crate::store::{Batch, Evict, EvictTurn, Judge, Kept, PackedPayload, Purpose, Safety, Urgency};
use alloc::vec::Vec;
use core::ops::Range;
use format::{PayloadOwner, object_checksum, open_packed};
use page::{Page, PageMutVec};
use types::BLOCK_BYTES;

/// What is remembered of the region that is judged.
#[derive(Default)]
pub struct Evictor {
    /// Bytes of clean blocks that are kept, and how many may be.
    kept_clean_bytes: u64,
    clean_bytes_max: u64,
    /// What pinned blocks take.
    pub(super) pins: Pins,
}

impl Evictor {
    /// A region is judged from now on.
    fn begin(&mut self, judge: &Judge) {
        (self.kept_clean_bytes, self.clean_bytes_max) = (0, judge.clean_bytes_max);
        if judge.counts_pins() {
            self.pins.take_back(judge.region.at);
        }
    }

    /// Takes room for a clean block of the region, if there is any left.
    pub(super) fn may_keep_clean(&mut self, bytes: u64) -> bool {
        let fits = self.kept_clean_bytes < self.clean_bytes_max;
        self.kept_clean_bytes += if fits { bytes } else { 0 };
        fits
    }
}

impl Shard {
    /// Goes on with taking room back as far as it can now.
    pub(super) fn evict(&mut self) {
        self.policy.see_ssd(self.index.parts());
        if let Some((part, into)) = self.policy.merged() {
            self.index.merge_parts(part, into);
        }
        while self.restored.is_empty() {
            self.policy.see_ssd(self.index.parts());
            let turn = self.evict_turn();
            match self.store.evict(&turn, &self.index, &self.config.pool) {
                Evict::Rest => return,
                Evict::Judge(judge) => self.judge(&judge),
                // Duplicates and zeroes: their records are all there is.
                Evict::Read(batch, _, pages) if pages.is_empty() => self.batch_read(batch, Ok(()), pages),
                Evict::Read(batch, span, pages) => {
                    self.out.io(span, IoKind::Read(pages), Context::EvictRead(batch));
                }
                Evict::NoPages => {
                    self.short_of_pages = true;
                    return;
                }
            }
        }
    }

    fn evict_turn(&self) -> EvictTurn {
        EvictTurn { wanted_blocks: self.throttle.firsts().map(|id| self.ops.get(id).blocks).max(), part: self.policy.judged_next() }
    }

    /// Says of each block of a region whether it stays.
    #[inline(never)]
    fn judge(&mut self, judge: &Judge) {
        self.evictor.begin(judge);
        let mut gone = Vec::new();
        let mut rest = judge.region.plain_slots();
        while let Some(slot) = self.next_judged(judge, &mut rest) {
            let Some(key) = self.index.key_of(slot) else { continue };
            let heat = Heat::from_bits(self.index.meta(slot).frequency);
            let is_judged = judge.part.is_none_or(|part| part == heat.part());
            let verdict = if is_judged { self.verdict(slot) } else { Some(heat) };
            let stays = match verdict {
                // It was not the policy that let it stay.
                Some(same) if is_judged && same == heat => {
                    self.age_before_it_goes(slot);
                    self.policy.on_stays(heat)
                }
                Some(heat) => heat,
                // Until it has left the index it is of no part that would be judged for its sake once more.
                None => Heat::default(),
            };
            self.index.set_frequency(slot, stays.bits());
            match verdict {
                None if !judge.counts_pins() && self.volumes.is_pinned(key) => {
                    self.evictor.pins.leave(judge.region.at, BLOCK_BYTES);
                    gone.push(slot);
                }
                None => gone.push(slot),
                Some(_) if judge.counts_pins() => self.note_pinned(key),
                Some(_) => {}
            }
        }
        let mut moved = Vec::new();
        if self.index.is_wide() && judge.part.is_none_or(|part| part == 0) {
            self.judge_packed(judge, &mut gone, &mut moved);
        }
        self.store.eviction_mut().let_go(gone);
        self.store.eviction_mut().keep(moved);
    }

    /// Packed records stay where they are, too, if enough lies beside them.
    fn judge_packed(&mut self, judge: &Judge, gone: &mut Vec<Slot>, moved: &mut Vec<Kept>) {
        let packed: Vec<Slot> = self.index.packed_in(judge.region.plain_slots()).collect();
        for of_page in packed.chunk_by(|one, other| Index::page_of(*one) == Index::page_of(*other)) {
            let (mut stay, mut bytes) = (Vec::new(), 0);
            for slot in of_page.iter().copied() {
                let Some(heat) = self.verdict(slot) else {
                    gone.push(slot);
                    continue;
                };
                let before = Heat::from_bits(self.index.meta(slot).frequency);
                let heat = if heat == before { self.policy.on_stays(heat) } else { heat };
                self.index.set_frequency(slot, heat.bits());
                bytes += u32::from(self.index.stored(slot).bytes).max(BYTES_PER_NUMBER);
                let (first_page, pages) = self.pages_of(slot);
                stay.push(Kept { slot, heat, first_page, pages, alone: false });
                if let Some(key) = self.index.key_of(slot).filter(|_| judge.counts_pins()) {
                    self.age_before_it_goes(slot);
                    self.note_pinned(key);
                }
            }
            let is_complete = of_page.first().is_some_and(|slot| self.place_of(*slot).safety >= Safety::Complete)
                || mutants::active(mutants::MOVED_BEFORE_IT_IS_THERE);
            if bytes < judge.moves_below_bytes && is_complete {
                moved.append(&mut stay);
            }
        }
    }

    /// The next slot of a region to be judged, of those that are left.
    fn next_judged(&self, judge: &Judge, rest: &mut Range<u32>) -> Option<Slot> {
        let slot = match judge.part.filter(|part| *part != 0) {
            Some(part) => self.index.first_of_part(part, rest.clone()),
            None => Some(rest.start).filter(|slot| *slot < rest.end),
        }?;
        rest.start = slot + 1;
        Some(Slot(slot))
    }

    /// Slots are given up, durably: what they hold is forgotten.
    #[inline(never)]
    pub(super) fn forget_gone(&mut self, gone: Vec<Slot>) {
        for slot in gone {
            if slot.is_packed() && self.index.is_object(slot) {
                let unused = self.index.references(slot).dirty == 0;
                assert!(unused || mutants::active(mutants::BASE_DROPPED), "a base of dirty blocks is never forgotten");
                self.packer.forget(self.index.stored(slot).object);
                self.index.drop_object(slot);
            }
            let Some(key) = self.index.key_of(slot) else { continue };
            assert!(!self.index.meta(slot).dirty || mutants::active(mutants::DIRTY_EVICTED), "a dirty block is never forgotten");
            self.forget(key);
            if let Some(block) = self.ram.get(key) {
                self.policy.ram_set_copy(block.slot, false);
            }
            self.store.release(slot);
        }
    }

    /// Whether what is in a slot stays, and with which heat.
    fn verdict(&mut self, slot: Slot) -> Option<Heat> {
        let Some(key) = self.index.key_of(slot) else {
            // A base that has no address any more: dirty blocks must keep it; for clean ones it is kept as long as there is room.
            let kept = slot.is_packed()
                && self.index.is_orphan(slot)
                && (self.dirty_rest_on(slot) || self.evictor.may_keep_clean(stored_bytes(&self.index, slot)));
            return kept.then(Heat::default);
        };
        let meta = self.index.meta(slot);
        let heat = Heat::from_bits(meta.frequency);
        if meta.dirty && mutants::active(mutants::DIRTY_EVICTED) {
            return None;
        }
        if meta.dirty || self.dirty_rest_on(slot) {
            return Some(heat);
        }
        if self.volumes.of(key).state.is_detaching() || self.dangles(slot) || self.is_lost(slot) {
            return None;
        }
        if meta.partial {
            return None;
        }
        if let Some(verdict) = self.verdict_by_policy(key, slot, heat) {
            return verdict;
        }
        let heat = self.policy.heat_with_copy(heat, self.ram.get(key).map(|copy| copy.slot));
        let verdict = self.policy.on_evict(key.0, heat);
        let is_base = slot.is_packed() && self.index.references(slot).all > 0 && !mutants::active(mutants::BASE_DROPPED);
        match verdict {
            EvictVerdict::Reinsert(heat) if self.evictor.may_keep_clean(stored_bytes(&self.index, slot)) => Some(heat),
            EvictVerdict::Forget if is_base && self.evictor.may_keep_clean(stored_bytes(&self.index, slot)) => Some(heat),
            _ => None,
        }
    }

    fn pages_of(&self, slot: Slot) -> (u32, u32) {
        let stored = self.index.stored(slot);
        if stored.bytes == 0 { (0, 0) } else { super::fetch::pages_of(&stored) }
    }

    /// What is to be moved has been read.
    pub(super) fn batch_read(&mut self, batch: Batch, result: Result<(), IoError>, pages: PageMutVec) {
        self.store.readers().end(batch.region);
        if !self.store.eviction_mut().has_read() {
            return;
        }
        if result.is_err() && batch.keep.len() > 1 && !mutants::active(mutants::FAILED_READ_BLAMES_ALL) {
            return self.store.eviction_mut().read_alone(batch.keep);
        }
        let pages: Vec<Page> = pages.into_iter().map(page::PageMut::freeze).collect();
        for kept in batch.keep {
            if !self.store.has_room(Purpose::Any) {
                // They are moved another time.
                return;
            }
            // A newer version may have come, or the block gone, while this was read.
            let from = (kept.first_page.wrapping_sub(batch.first_page)) as usize;
            let read = result.is_ok().then(|| pages.get(from..from + kept.pages as usize).unwrap_or(&[]));
            self.void_if_dropped(kept.slot);
            if self.leaves_with_its_volume(kept.slot) {
                continue;
            }
            match self.index.key_of(kept.slot) {
                Some(key) => self.move_packed(key, kept, read),
                None if self.index.is_orphan(kept.slot) => self.move_base(kept, read),
                None => {}
            }
        }
    }

    /// A clean block of a volume whose clean blocks are being made void is not carried on: the sweep may have passed the place it would get.
    fn void_if_dropped(&mut self, slot: Slot) {
        let dropped = |key: &Key| self.commands.drops_clean_of(key.volume()) && !self.index.meta(slot).dirty;
        if let Some(key) = self.index.key_of(slot).filter(dropped) {
            self.void_bad_copy(key);
        }
    }

    /// A clean block of a volume that is being detached stays for the sweep, which may have passed the place it would get.
    fn leaves_with_its_volume(&mut self, slot: Slot) -> bool {
        let Some(key) = self.index.key_of(slot) else { return false };
        self.volumes.of(key).state.is_detaching() && !self.index.meta(slot).dirty && !self.dirty_rest_on(slot)
    }

    fn move_packed(&mut self, key: Key, kept: Kept, read: Option<&[Page]>) {
        let Kept { slot, heat, .. } = kept;
        let (meta, stored) = (self.index.meta(slot), self.index.stored(slot));
        if !meta.dirty && (self.is_lost(slot) || self.dangles(slot)) {
            // Its content came home after all; or its base, clean like it, was forgotten while this was read.
            return;
        }
        let volume = self.volumes.of(key).id;
        let owner = if stored.encoding.is_full() { PayloadOwner::Object(stored.object) } else { PayloadOwner::Block(volume, key.block()) };
        let bytes = read.and_then(|pages| sound_bytes(&stored, owner, meta.checksum, pages)).filter(|_| !self.dangles(slot));
        if let Some(bytes) = bytes {
            self.store_packed_again(key, slot, heat, bytes);
            return self.has_moved(key, slot, meta.dirty);
        }
        let proof = self.proof_of(slot);
        let copy = self.ram.get(key).map(|copy| copy.page.clone()).filter(|page| proof.holds(volume, key.block(), page));
        match copy {
            Some(page) => {
                // Others cannot rest on it any more.
                if self.index.is_object(slot) {
                    self.index.drop_object(slot);
                }
                let block = NewBlock { key, page, mask: u8::MAX, dirty: meta.dirty, heat, checksum: None };
                self.store_block(block, Urgency::By(self.now_ns + CLEAN_HOLD_NS));
                self.has_moved(key, slot, meta.dirty);
            }
            // A dirty one need not move, and an SSD's read error may pass.
            None if meta.dirty => {}
            None => drop(self.cached_copy_is_bad(key, read.is_none())),
        }
    }

    fn has_moved(&mut self, key: Key, from: Slot, dirty: bool) {
        if !dirty {
            self.note_pinned(key);
        }
        self.destage_moved(key, from);
        self.volumes.of(key).stats.reinserted_bytes += BLOCK_BYTES;
    }

    fn move_base(&mut self, kept: Kept, read: Option<&[Page]>) {
        let slot = kept.slot;
        let (checksum, stored) = (self.index.meta(slot).checksum, self.index.stored(slot));
        if let Some(bytes) = read.and_then(|pages| sound_bytes(&stored, PayloadOwner::Object(stored.object), checksum, pages)) {
            self.store_base_again(slot, bytes);
        }
    }
}

/// Bytes a block takes on the SSD, its records included.
pub(super) fn stored_bytes(index: &Index, slot: Slot) -> u64 {
    if slot.is_packed() { 2 * format::record::RECORD_BYTES as u64 + u64::from(index.stored(slot).bytes) } else { BLOCK_BYTES }
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
