//! Reads: every block from the fastest place that has it.
//!
//! A block comes from RAM, from a group in flight, from the SSD (checked against its checksum), or from the backing device. A cached block
//! with only some valid sectors is laid over what the backing device gives. A clean block that cannot be read or does not match
//! is a miss and is made void; a dirty one is an error, never replaced by stale data.

use super::along::Along;
use super::fetch::{Unfetched, Wanted};
use super::op::{ReadBlock, overlay};
use super::proof::Proof;
use super::route::reads_use_cache;
use super::{Context, Shard};
use crate::api::{IoError, IoKind, Origin, Outcome, Reply, Request, RequestError};
use crate::index::Slot;
use crate::key::Key;
use crate::locks::OpId;
use crate::mutants;
use crate::policy::{Access, Arrival, Place};
use crate::ram::RamBlock;
use crate::store::{Place as SsdPlace, RegionId};
use crate::trail::Happened;
use alloc::vec::Vec;
use page::{PageMut, PageMutVec, PageVec};
use smallvec::SmallVec;
use types::{Admission, BLOCK_BYTES, BLOCK_SECTORS, BypassReason};

/// A run of blocks being read from the SSD for a request.
pub struct SsdPart {
    pub(super) op: OpId,
    pub(super) first: usize,
    /// Only to be laid over the backing device's data.
    pub(super) overlay: bool,
    /// The region that is read.
    pub(super) region: RegionId,
    /// Where on the SSD.
    pub(super) offset_bytes: u64,
    pub(super) proofs: SmallVec<[Proof; 1]>,
}

/// A run of blocks being read from the backing device for a request.
pub struct BackingPart {
    op: OpId,
    first: usize,
    count: usize,
    /// When; `None` for what hearth reads for itself: destage need not make way for it.
    started_ns: Option<u64>,
    /// The volume ended within the last block: what lies behind was not read.
    cut: bool,
    /// Blocks beside the run that were read with it.
    along: Along,
}

/// Where a block of a read is.
enum Source {
    Here(page::Page),
    Ssd {
        slot: Slot,
        mask: u8,
        overlay: bool,
    },
    /// Packed on the SSD: to be fetched and decoded.
    Packed(Slot),
    Overlay(page::Page, u8),
    Backing,
}

impl Shard {
    /// Serves a read at once if RAM holds all of it and nobody is changing it.
    pub(super) fn read_from_ram(&mut self, request: &Request) -> bool {
        let first = Key::new(request.volume, request.start_sector / BLOCK_SECTORS);
        let blocks = (request.start_sector + u64::from(request.sectors)).div_ceil(BLOCK_SECTORS) - first.block();
        let volume = self.volumes.get(request.volume).expect("checked by refuse");
        if self.ram.is_empty() || !reads_use_cache(volume.options.mode) {
            return false;
        }
        // A look proves nothing.
        let admission = if request.origin == Origin::Warm { Admission::Always } else { volume.options.admission };
        let access = Access { write: false, request_blocks: blocks as u32, admission, own: request.origin.is_own() };
        let pages = if blocks == 1 {
            // Most are: without lists.
            let Some(block) = self.ram.get(first).filter(|_| self.locks.free_for_read(first)) else { return false };
            let pages = PageVec::from_buf([block.page.clone()]);
            if self.policy.on_access(first.0, Place::Ram(block.slot), access).was_along {
                self.came_along_for_good(first, 1);
            }
            pages
        } else {
            let keys = (first.0..first.0 + blocks).map(Key);
            let here = |key| self.ram.get(key).filter(|_| self.locks.free_for_read(key));
            let found: Option<Vec<(Key, &RamBlock)>> = keys.map(|key| Some((key, here(key)?))).collect();
            let Some(found) = found else { return false };
            let mut first_uses = 0;
            for (key, block) in &found {
                first_uses += u64::from(self.policy.on_access(key.0, Place::Ram(block.slot), access).was_along);
            }
            let pages = found.iter().map(|(_, block)| block.page.clone()).collect();
            if first_uses > 0 {
                self.came_along_for_good(first, first_uses);
            }
            pages
        };
        let volume = self.volumes.get_mut(request.volume).expect("checked by refuse");
        volume.stats.read_hits_ram += blocks;
        let Request { id, op, start_sector, sectors, .. } = *request;
        let outcome = Outcome::RamHit;
        if request.origin != Origin::Look {
            self.trail.note(self.now_ns, Happened { first, start_sector, sectors, op, outcome, reason: None });
        }
        self.out.reply(Reply { id, result: Ok(()), pages, outcome, range: None });
        true
    }

    /// Finds every block's place and starts the I/Os.
    pub(super) fn begin_read(&mut self, id: OpId) {
        if !self.may_begin_read(id) {
            return;
        }
        let op = self.ops.get(id);
        let (first, count) = (op.first, op.blocks as usize);
        let sources: Vec<Source> = (0..count).map(|index| self.source(Key(first.0 + index as u64), op.mask(index))).collect();
        let pages_for = |source: &Source| match source {
            Source::Here(_) => 0,
            Source::Ssd { overlay: true, .. } => 2,
            Source::Ssd { .. } | Source::Overlay(..) | Source::Backing => 1,
            Source::Packed(slot) => self.fetch_pages(*slot),
        };
        let Some(buffers) = self.allocate(sources.iter().map(pages_for).sum()) else {
            self.starved.push_back(id);
            return;
        };
        let copies = self.count_read(id, &sources);
        let op = self.ops.get_mut(id);
        op.phase = super::Phase::Reading;
        op.read = copies.into_iter().map(|copy| ReadBlock { copy, ..ReadBlock::default() }).collect();
        op.missed =
            sources.iter().any(|source| matches!(source, Source::Backing | Source::Overlay(..) | Source::Ssd { overlay: true, .. }));
        op.ssd_hit = sources.iter().any(|source| matches!(source, Source::Ssd { .. } | Source::Packed(_)));
        self.start_read_ios(id, sources, buffers);
        if self.ops.get(id).pending == 0 {
            self.ready.push_back(id);
        }
    }

    fn source(&self, key: Key, need: u8) -> Source {
        let volume = self.volumes.get(key.volume()).expect("a request's volume is attached");
        let use_clean = reads_use_cache(volume.options.mode) && !volume.backing.failed;
        if let Some(block) = self.ram.get(key).filter(|_| use_clean || self.dirty.contains(key)) {
            return Source::Here(block.page.clone());
        }
        let Some(slot) = self.index.get(key) else { return Source::Backing };
        if !self.index.meta(slot).dirty && (!use_clean || self.loss.is_ssd_failed()) {
            return Source::Backing;
        }
        if !self.is_page(slot) {
            // Always whole. In flight it is still as it came.
            let in_memory = self.store.in_flight().page(slot).cloned().or_else(|| self.packed_in_memory(slot));
            return in_memory.map_or(Source::Packed(slot), Source::Here);
        }
        let mask = self.mask_of(key, slot);
        let whole = need & !mask == 0;
        match (self.store.in_flight().page(slot), whole) {
            (Some(page), true) => Source::Here(page.clone()),
            (Some(page), false) => Source::Overlay(page.clone(), mask),
            (None, _) => Source::Ssd { slot, mask, overlay: !whole },
        }
    }

    /// Counts hits and misses and tells the policy of the hits; gives what the policy wants copied into RAM.
    fn count_read(&mut self, id: OpId, sources: &[Source]) -> SmallVec<[Option<Arrival>; 1]> {
        let op = self.ops.get(id);
        let (first, blocks, bypass, own) = (op.first, op.blocks, op.request.bypass.is_some(), op.request.origin.is_own());
        let in_ram = (0..sources.len()).filter(|index| self.ram.get(Key(first.0 + *index as u64)).is_some()).count() as u64;
        let stats = &mut self.volumes.of(first).stats;
        let hits = sources
            .iter()
            .filter(|source| matches!(source, Source::Here(_) | Source::Packed(_) | Source::Ssd { overlay: false, .. }))
            .count() as u64;
        let in_ram = in_ram.min(hits);
        stats.read_hits_ram += in_ram;
        stats.read_hits_ssd += hits - in_ram;
        stats.read_misses += sources.len() as u64 - hits;
        let copy_of = |(index, source): (usize, &Source)| {
            // A miss is told to the policy when its data is there.
            if bypass || matches!(source, Source::Backing) {
                return None;
            }
            let advice = self.touch(Key(first.0 + index as u64), false, blocks, own);
            let may_enter = !own || self.ram_has_room_for_own();
            advice.enter.filter(|_| may_enter && matches!(source, Source::Packed(_) | Source::Ssd { overlay: false, .. }))
        };
        sources.iter().enumerate().map(copy_of).collect()
    }

    fn start_read_ios(&mut self, id: OpId, sources: Vec<Source>, mut buffers: Vec<PageMut>) {
        let mut index = 0;
        while index < sources.len() {
            match &sources[index] {
                Source::Here(page) => self.ops.get_mut(id).read[index].page = Some(page.clone()),
                Source::Overlay(page, mask) => {
                    self.ops.get_mut(id).read[index].overlay = Some((Some(page.clone()), *mask));
                    self.read_backing_run(id, index, 1, &mut buffers);
                }
                Source::Ssd { slot, mask, overlay: true } => {
                    self.ops.get_mut(id).read[index].overlay = Some((None, *mask));
                    self.read_ssd_run(id, index, core::iter::once(*slot), true, &mut buffers);
                    self.read_backing_run(id, index, 1, &mut buffers);
                }
                Source::Ssd { slot, overlay: false, .. } => {
                    let first = *slot;
                    let follows = |ahead: usize| {
                        let next = sources.get(index + ahead);
                        matches!(next, Some(Source::Ssd { slot, overlay: false, .. }) if self.lies_ahead(*slot, first, ahead as u32))
                    };
                    let count = (1..).find(|ahead| !follows(*ahead)).expect("a run ends");
                    let slots = sources[index..index + count].iter().map(|source| match source {
                        Source::Ssd { slot, .. } => *slot,
                        _ => unreachable!("only these follow"),
                    });
                    self.read_ssd_run(id, index, slots, false, &mut buffers);
                    index += count - 1;
                }
                Source::Packed(slot) => {
                    let op = self.ops.get_mut(id);
                    op.pending += 1;
                    let key = op.key(index);
                    self.fetch(Wanted::Read { op: id, index }, key, *slot, false, &mut buffers);
                }
                Source::Backing => {
                    let count = sources[index..].iter().take_while(|source| matches!(source, Source::Backing)).count();
                    if count == sources.len() {
                        self.read_missed(id, count, &mut buffers);
                    } else {
                        self.read_backing_run(id, index, count, &mut buffers);
                    }
                    index += count - 1;
                }
            }
            index += 1;
        }
    }

    /// Reads neighbours that are stored as pages.
    fn read_ssd_run(
        &mut self,
        id: OpId,
        first: usize,
        slots: impl Iterator<Item = Slot> + Clone,
        overlay: bool,
        buffers: &mut Vec<PageMut>,
    ) {
        let slot = slots.clone().next().expect("a run has blocks");
        let SsdPlace { region, offset_bytes, .. } = self.place_of(slot);
        self.store.readers().begin(region);
        let proofs: SmallVec<[Proof; 1]> = slots.map(|slot| self.proof_of(slot)).collect();
        let count = proofs.len();
        let pages: PageMutVec = buffers.drain(buffers.len() - count..).collect();
        let span = self.store.ssds().read_span(offset_bytes, count, false);
        self.ops.get_mut(id).pending += 1;
        let part = SsdPart { op: id, first, overlay, region, offset_bytes, proofs };
        self.out.io(span, IoKind::Read(pages), Context::ReadSsd(part));
    }

    /// Reads all blocks of a request, with others beside them if these are likely to be wanted, too.
    fn read_missed(&mut self, id: OpId, count: usize, buffers: &mut Vec<PageMut>) {
        let (along, pages) = self.look_along(id);
        buffers.extend(pages);
        self.read_backing_run_along(id, 0, count, along, buffers);
    }

    fn read_backing_run(&mut self, id: OpId, first: usize, count: usize, buffers: &mut Vec<PageMut>) {
        self.read_backing_run_along(id, first, count, Along::default(), buffers);
    }

    fn read_backing_run_along(&mut self, id: OpId, first: usize, count: usize, along: Along, buffers: &mut Vec<PageMut>) {
        let all = count + along.count();
        let mut pages: PageMutVec = buffers.drain(buffers.len() - all..).collect();
        let key = Key(self.ops.get(id).key(first).0 - along.before as u64);
        let span = self.volumes.backing_span(key, all as u64);
        let cut = span.length_bytes < all as u64 * BLOCK_BYTES;
        if cut {
            // The volume ends within its last block: what lies behind reads as zeroes and is never sent to a client.
            pages.last_mut().expect("a run has blocks").fill(0);
        }
        let request = &self.ops.get(id).request;
        let started_ns = (!request.origin.is_own()).then_some(self.now_ns);
        let volume = self.volumes.of(key);
        volume.stats.backing_reads += 1;
        volume.stats.backing_read_bytes += span.length_bytes;
        if started_ns.is_some() {
            volume.backing.client_began();
        }
        let part = BackingPart { op: id, first, count, started_ns, cut, along };
        self.ops.get_mut(id).pending += 1;
        self.out.io(span, IoKind::Read(pages), Context::ReadBacking(part));
    }

    /// A run has been read from the SSD.
    pub(super) fn ssd_read(&mut self, part: SsdPart, result: Result<(), IoError>, pages: PageMutVec) {
        if result.is_err() && pages.len() > 1 && !mutants::active(mutants::FAILED_READ_BLAMES_ALL) {
            self.read_part_singly(&part, pages);
            self.store.readers().end(part.region);
            return self.part_done(part.op);
        }
        self.store.readers().end(part.region);
        if self.is_overtaken(part.op) {
            return self.part_done(part.op);
        }
        let mut missing: SmallVec<[usize; 1]> = SmallVec::new();
        for (ahead, (page, proof)) in pages.into_iter().zip(&part.proofs).enumerate() {
            let index = part.first + ahead;
            let key = self.ops.get(part.op).key(index);
            let id = self.volumes.of(key).id;
            if result.is_ok() && proof.holds(id, key.block(), &page) {
                let block = &mut self.ops.get_mut(part.op).read[index];
                let page = page.freeze();
                match (&mut block.overlay, part.overlay) {
                    (Some((held, _)), true) => *held = Some(page),
                    _ => block.page = Some(page),
                }
            } else if self.cached_copy_is_bad(key, result.is_err()) {
                self.ops.get_mut(part.op).error.get_or_insert(RequestError::Io);
            } else if part.overlay {
                // Clean by now, so the backing device has it all; but what was read there may be from before it came home.
                self.ops.get_mut(part.op).read[index].again = true;
            } else {
                missing.push(index);
            }
        }
        self.read_missing(part.op, &missing);
        self.part_done(part.op);
    }

    /// A packed block has been fetched, or not.
    pub(super) fn packed_read(&mut self, id: OpId, index: usize, result: Result<page::Page, Unfetched>) {
        match result {
            // Whatever it is, it is of a version that may be gone.
            _ if self.is_overtaken(id) => {}
            Ok(page) => self.ops.get_mut(id).read[index].page = Some(page),
            Err(why) => {
                let key = self.ops.get(id).key(index);
                if self.packed_copy_is_bad(key, why) {
                    self.ops.get_mut(id).error.get_or_insert(RequestError::Io);
                } else {
                    self.read_missing(id, &[index]);
                }
            }
        }
        self.part_done(id);
    }

    fn read_missing(&mut self, id: OpId, missing: &[usize]) {
        if missing.is_empty() || self.ops.get(id).error.is_some() {
            return;
        }
        match self.allocate(missing.len()) {
            Some(mut buffers) => {
                for index in missing {
                    self.read_backing_run(id, *index, 1, &mut buffers);
                }
                self.ops.get_mut(id).missed = true;
            }
            // When nothing else is read for it, the request asks again.
            None => missing.iter().for_each(|index| self.ops.get_mut(id).read[*index].again = true),
        }
    }

    /// A run has been read from the backing device.
    pub(super) fn backing_read(&mut self, part: BackingPart, result: Result<(), IoError>, pages: PageMutVec) {
        let now_ns = self.now_ns;
        let key = self.ops.get(part.op).key(part.first);
        if let Some(started_ns) = part.started_ns {
            self.volumes.of(key).backing.client_ended(now_ns, Some(now_ns - started_ns));
        }
        let Along { before, .. } = part.along;
        assert!(pages.len() == part.count + part.along.count() || result.is_err(), "a read brings its pages");
        let keeps_along = part.along.count() > 0 && self.has_come_along(part.op) && result.is_ok();
        let op = self.ops.get_mut(part.op);
        if result.is_err() && part.along.count() > 0 {
            // It may be the neighbours that cannot be read: what was asked for is read without them.
            op.read[part.first..part.first + part.count].iter_mut().for_each(|block| block.again = true);
            return self.part_done(part.op);
        }
        if result.is_err() {
            op.error.get_or_insert(RequestError::Io);
        }
        let mut came_along: SmallVec<[(Key, page::Page); 7]> = SmallVec::new();
        for (nth, page) in pages.into_iter().enumerate() {
            let Some(ahead) = nth.checked_sub(before).filter(|ahead| *ahead < part.count) else {
                if keeps_along {
                    came_along.push((Key(key.0 + nth as u64 - before as u64), page.freeze()));
                }
                continue;
            };
            // Zeroes behind an end that may have moved since are not what the device holds.
            let is_cut = part.cut && ahead + 1 == part.count && !mutants::active(mutants::CUT_BLOCK_CACHED);
            let block = &mut op.read[part.first + ahead];
            block.fill = block.overlay.is_none() && !is_cut;
            block.page = Some(page.freeze());
        }
        came_along.into_iter().for_each(|(key, page)| self.keep_along(key, page));
        self.part_done(part.op);
    }

    fn part_done(&mut self, id: OpId) {
        let op = self.ops.get_mut(id);
        op.pending -= 1;
        if op.pending == 0 {
            self.ready.push_back(id);
        }
    }

    /// All I/Os are done: overlay, fill the cache, reply.
    pub(super) fn finish_read(&mut self, id: OpId) {
        if self.is_overtaken(id) {
            return self.read_behind_the_writer(id);
        }
        let op = self.ops.get_mut(id);
        if let Some(error) = op.error {
            self.fail(id, error);
            return;
        }
        let mut again: SmallVec<[usize; 1]> = SmallVec::new();
        for (index, block) in op.read.iter_mut().enumerate().filter(|(_, block)| block.again) {
            (block.again, block.overlay) = (false, None);
            again.push(index);
        }
        if !again.is_empty() {
            self.read_missing(id, &again);
            if self.ops.get(id).pending == 0 {
                // No pages. It does not keep those it has until there are some, or such reads together might hold all: it begins anew.
                let op = self.ops.get_mut(id);
                op.read.clear();
                op.phase = super::Phase::Start;
                self.starved.push_back(id);
            }
            return;
        }
        let mut pages = PageVec::new();
        for block in &mut op.read {
            let page = block.page.take().expect("a block of a finished read is there");
            match block.overlay.take() {
                Some((Some(cached), mask)) => {
                    let mut merged = page.try_into_mut().expect("read for this request alone");
                    overlay(&mut merged, &cached, mask);
                    pages.push(merged.freeze());
                }
                _ => pages.push(page),
            }
        }
        let (first, blocks) = (op.first, op.blocks);
        let (bypass, own) = (op.request.bypass.is_some(), op.request.origin.is_own());
        let outcome = match (op.missed, op.ssd_hit) {
            _ if bypass && op.missed => Outcome::Bypass,
            (true, _) => Outcome::Miss,
            (false, true) => Outcome::SsdHit,
            (false, false) => Outcome::RamHit,
        };
        let blocks_read = core::mem::take(&mut op.read);
        if op.missed && !bypass && self.loss.is_ssd_failed() {
            self.turn_away(id, BypassReason::Degraded);
        }
        self.note(id, outcome);
        let volume = self.volumes.get(first.volume()).expect("a request's volume is attached");
        let may_fill = !bypass && reads_use_cache(volume.options.mode) && !volume.backing.failed && !volume.state.is_detaching();
        if may_fill {
            for (index, page) in pages.iter().enumerate() {
                let key = Key(first.0 + index as u64);
                if blocks_read[index].fill {
                    self.fill(key, page.clone(), blocks, own);
                } else if let Some(arrival) = blocks_read[index].copy
                    && self.index.get(key).is_some_and(|slot| !self.index.meta(slot).partial)
                {
                    self.keep_copy(key, page, Some(arrival));
                }
            }
        }
        self.finish(id, Ok(()), pages, outcome);
    }

    /// A block came from the backing device: the cache may take it.
    fn fill(&mut self, key: Key, page: page::Page, request_blocks: u32, own: bool) {
        // Two readers may have missed together; and a partial block in the index is newer than what was read.
        if self.ram.get(key).is_some() || self.index.get(key).is_some() || !self.is_whole(key) {
            return;
        }
        let advice = self.touch(key, false, request_blocks, own);
        match advice.enter {
            Some(arrival) if own => self.ram_insert_own(key, page, arrival),
            Some(arrival) => self.ram_insert(key, page, arrival),
            None => self.turn_away_block(key, BypassReason::FirstTouch),
        }
    }

    /// Whether the volume has all eight sectors of the block: its last block may be cut short and is then not cached.
    pub(super) fn is_whole(&self, key: Key) -> bool {
        let volume = self.volumes.get(key.volume()).expect("a cached block's volume is attached");
        (key.block() + 1) * BLOCK_BYTES <= volume.size_bytes
    }
}
