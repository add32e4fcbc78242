//! Writes into the store: acknowledged when their records are on the SSD, with the durability the client asked for.
//!
//! Whole blocks are appended as they came. A block that the request covers in part becomes a record with some valid sectors if nothing of
//! it is cached; otherwise it is first completed from its cached version, because the newest record of a block stands alone.

use super::fetch::{Unfetched, Wanted};
use super::op::{Edge, overlay};
use super::packing::NewBlock;
use super::proof::Proof;
use super::{CLIENTS_QUEUE, Context, Phase, Shard};
use crate::api::{IoError, IoKind, Op as OpKind, Outcome, Request, RequestError};
use crate::key::Key;
use crate::locks::OpId;
use crate::mutants;
use crate::policy::{Arrival, Heat};
use crate::store::{Place, RegionId, Urgency};
use core::ops::Range;
use page::{Page, PageMut, PageMutVec, PageVec};
use smallvec::SmallVec;
use types::{Admit, BLOCK_BYTES, BLOCK_SECTORS, BypassReason, SECTOR_BYTES};

/// Index entries with only some valid sectors are bounded to one in this many slots: their masks live in a side table. Beyond that, a
/// partial write fills its block from the backing device first.
const PARTIAL_ONE_IN: usize = 16;

/// Where blocks are packed, and a shard has so many requests, writes that no flush is expected to follow share groups.
const PACKED_SHARE_REQUESTS: usize = 4;

/// A cached version of an edge block, as it was when its reading began.
pub struct MergeBase {
    /// The region that is read.
    region: RegionId,
    proof: Proof,
    mask: u8,
}

/// The aligned units of a volume that a write covers whole: each goes into one group, and a group is found as a whole or not at all.
struct Units {
    /// Blocks of a unit.
    blocks: u32,
    /// From the first block of the first unit to the end of the last.
    covered: Range<u64>,
}

impl Units {
    fn of(unit_blocks: u32, first: Key, blocks: u32) -> Units {
        let (unit, end) = (u64::from(unit_blocks), first.block() + u64::from(blocks));
        Units { blocks: unit_blocks, covered: first.block().next_multiple_of(unit)..end / unit * unit }
    }

    /// Whether a request covers them and nothing else.
    fn are_all_of(&self, request: &Request) -> bool {
        let end_sector = request.start_sector + u64::from(request.sectors);
        self.covered.start * BLOCK_SECTORS == request.start_sector && self.covered.end * BLOCK_SECTORS == end_sector
    }

    /// Whether a unit begins with this block.
    fn begin(&self, key: Key) -> bool {
        self.covered.contains(&key.block()) && key.block().is_multiple_of(u64::from(self.blocks))
    }

    /// Whether this block belongs to the same unit as the one before it.
    fn go_on(&self, key: Key) -> bool {
        self.covered.contains(&key.block()) && !key.block().is_multiple_of(u64::from(self.blocks))
    }
}

impl Shard {
    /// How soon a dirty write goes: at once, or with those that arrive while another group is being written.
    fn commit_urgency(&self, first: Key) -> Urgency {
        let Some(volume) = self.volumes.get(first.volume()) else { return Urgency::Commit };
        let packed = self.packer.is_on() && self.requests() >= PACKED_SHARE_REQUESTS;
        let others_write = volume.backing.client_in_flight >= CLIENTS_QUEUE || packed;
        if others_write && !volume.awaited.expects(first.block()) { Urgency::Share } else { Urgency::Commit }
    }

    /// The write has its blocks and is to go into the store.
    pub(super) fn begin_store_write(&mut self, id: OpId) {
        self.ops.get_mut(id).phase = Phase::StoreRoom;
        let hindrance = self.hindrance(id);
        if let Some(reason) = hindrance.or_else(|| self.pace_until(id).map(|_| BypassReason::DirtyLimit)) {
            self.turn_away(id, reason);
        }
        let volume = self.ops.get(id).request.volume;
        if self.throttle.is_empty_of(volume) && hindrance.is_none() && self.pace_until(id).is_none() {
            self.let_in(id);
        } else {
            // Behind those of its volume who wait already, so that none waits forever.
            self.throttle.push(volume, id);
        }
    }

    /// Lets waiting writes into the store go on: of each volume in order of arrival, and the volumes in turns.
    pub(super) fn admit_throttled(&mut self) {
        if self.throttle.is_empty() {
            return;
        }
        let (mut stuck, mut next_ns) = (0, None);
        while stuck < self.throttle.volumes()
            && let Some(volume) = self.throttle.next_volume()
        {
            let id = self.throttle.first_of(volume).expect("a volume that waits has a write");
            let paced_until = self.pace_until(id);
            if self.backing_failed(id) {
                self.throttle.pop(volume);
                self.fail(id, RequestError::Io);
            } else if self.loss.is_ssd_failed() {
                self.throttle.pop(volume);
                self.go_past_ssd(id);
            } else if paced_until.is_none() && self.may_store(id) {
                self.throttle.pop(volume);
                self.let_in(id);
            } else {
                next_ns = [next_ns, paced_until].into_iter().flatten().min();
                stuck += 1;
                continue;
            }
            (stuck, next_ns) = (0, None);
        }
        self.throttle.set_deadline(next_ns);
    }

    /// The write has room: it goes on, and counts for the pace of those that follow.
    fn let_in(&mut self, id: OpId) {
        let volume = self.ops.get(id).request.volume;
        let (of_volume, of_all) = (self.dirty_and_limit(volume), (self.dirty_pages(), self.dirty_pages_max()));
        let blocks = self.becomes_dirty(id);
        self.throttle.took(self.now_ns, volume, blocks, of_volume, of_all);
        self.volumes.of(Key::new(volume, 0)).backing.client_stored_ns = self.now_ns;
        self.gather_edges(id);
    }

    fn backing_failed(&self, id: OpId) -> bool {
        self.volumes.get(self.ops.get(id).request.volume).is_some_and(|volume| volume.backing.failed)
    }

    /// Finds out which blocks need completing, and starts reading what they held.
    #[inline(never)]
    fn gather_edges(&mut self, id: OpId) {
        let op = self.ops.get(id);
        let last = op.blocks as usize - 1;
        let mut edges: SmallVec<[Edge; 2]> = SmallVec::new();
        for index in [0, last] {
            let known = edges.iter().any(|edge| edge.block == index);
            if op.mask(index) != u8::MAX && !known {
                edges.push(Edge { block: index, new_mask: op.mask(index), base: None, loading: false });
            }
        }
        let op = self.ops.get_mut(id);
        op.phase = Phase::Merging;
        op.edges = edges;
        for edge in 0..self.ops.get(id).edges.len() {
            self.load_edge(id, edge);
        }
        self.gather_bases(id);
        self.advance_store_write(id);
    }

    fn load_edge(&mut self, id: OpId, edge: usize) {
        let op = self.ops.get(id);
        let (key, new_mask) = (op.key(op.edges[edge].block), op.edges[edge].new_mask);
        let slot = self.index.get(key);
        if let Some(block) = self.ram.get(key) {
            let base = (block.page.clone(), u8::MAX);
            self.ops.get_mut(id).edges[edge].base = Some(base);
        } else if let Some(slot) = slot {
            let mask = self.mask_of(key, slot);
            if mask & !new_mask == 0 {
                return;
            }
            let recent = self.store.in_flight().page(slot).cloned().or_else(|| self.edge_page(key, slot));
            if let Some(page) = recent {
                let base = (page, mask);
                self.ops.get_mut(id).edges[edge].base = Some(base);
                return;
            }
            if !self.is_page(slot) {
                if let Some(page) = self.packed_in_memory(slot) {
                    self.ops.get_mut(id).edges[edge].base = Some((page, u8::MAX));
                } else if let Some(mut buffers) = self.allocate(self.fetch_pages(slot)) {
                    self.edge_loading(id, edge);
                    self.fetch(Wanted::Edge { op: id, edge }, key, slot, false, &mut buffers);
                } else {
                    self.starve_edge(id);
                }
                return;
            }
            let Some(page) = self.config.pool.allocate() else { return self.starve_edge(id) };
            let Place { region, offset_bytes, .. } = self.place_of(slot);
            self.store.readers().begin(region);
            let span = self.store.ssds().read_span(offset_bytes, 1, false);
            let proof = self.proof_of(slot);
            self.edge_loading(id, edge);
            self.out.io(
                span,
                IoKind::Read(smallvec::smallvec![page]),
                Context::MergeSsd { op: id, edge, found: MergeBase { region, proof, mask } },
            );
        } else if self.partial.len() >= self.index.slots() as usize / PARTIAL_ONE_IN {
            self.load_edge_from_backing(id, edge);
        }
    }

    /// No page to read into: begin again when there may be one.
    fn starve_edge(&mut self, id: OpId) {
        self.ops.get_mut(id).starved = true;
    }

    fn edge_loading(&mut self, id: OpId, edge: usize) {
        let op = self.ops.get_mut(id);
        op.edges[edge].loading = true;
        op.pending += 1;
    }

    fn load_edge_from_backing(&mut self, id: OpId, edge: usize) {
        let op = self.ops.get(id);
        let key = op.key(op.edges[edge].block);
        let Some(mut page) = self.config.pool.allocate() else { return self.starve_edge(id) };
        let span = self.volumes.backing_span(key, 1);
        page[span.length_bytes as usize..].fill(0);
        let volume = self.volumes.of(key);
        volume.stats.backing_reads += 1;
        volume.stats.backing_read_bytes += span.length_bytes;
        self.edge_loading(id, edge);
        self.out.io(span, IoKind::Read(smallvec::smallvec![page]), Context::MergeBacking { op: id, edge, bytes: span.length_bytes });
    }

    /// What an edge block held has been read from the SSD.
    pub(super) fn merge_ssd_read(&mut self, id: OpId, edge: usize, found: MergeBase, result: Result<(), IoError>, mut pages: PageMutVec) {
        let MergeBase { region, proof, mask } = found;
        self.store.readers().end(region);
        let op = self.ops.get_mut(id);
        op.pending -= 1;
        op.edges[edge].loading = false;
        let key = op.key(op.edges[edge].block);
        let volume = self.volumes.of(key).id;
        let page = pages.pop().expect("the page that was to be filled");
        if result.is_ok() && proof.holds(volume, key.block(), &page) {
            self.ops.get_mut(id).edges[edge].base = Some((page.freeze(), mask));
        } else if self.cached_copy_is_bad(key, result.is_err()) {
            self.ops.get_mut(id).error.get_or_insert(RequestError::Io);
        }
        // A bad clean version is void now; the write stands alone as if nothing had been cached.
        self.ready.push_back(id);
    }

    /// What an edge block held has been fetched, or not.
    pub(super) fn packed_edge_read(&mut self, id: OpId, edge: usize, key: Key, result: Result<Page, Unfetched>) {
        let op = self.ops.get_mut(id);
        op.pending -= 1;
        op.edges[edge].loading = false;
        match result {
            Ok(page) => op.edges[edge].base = Some((page, u8::MAX)),
            Err(why) => {
                if self.packed_copy_is_bad(key, why) {
                    self.ops.get_mut(id).error.get_or_insert(RequestError::Io);
                }
            }
        }
        // Both edges may come in one turn, where nothing had to be read; who is ready twice would be answered before the store has the write.
        if self.ops.get(id).pending == 0 {
            self.ready.push_back(id);
        }
    }

    /// So many bytes of what an edge block held have been read from the backing device: less than the block where the volume ended
    /// then, which may have grown since.
    pub(super) fn merge_backing_read(&mut self, id: OpId, edge: usize, bytes: u64, result: Result<(), IoError>, mut pages: PageMutVec) {
        let key = self.ops.get(id).key(self.ops.get(id).edges[edge].block);
        let bytes = if mutants::active(mutants::CUT_EDGE_TRUSTED) { self.volumes.backing_span(key, 1).length_bytes } else { bytes };
        let op = self.ops.get_mut(id);
        op.pending -= 1;
        op.edges[edge].loading = false;
        match result {
            Ok(()) => {
                let page = pages.pop().expect("the page that was filled");
                let mask = ((1_u16 << (bytes / SECTOR_BYTES)) - 1) as u8;
                self.ops.get_mut(id).edges[edge].base = Some((page.freeze(), mask));
            }
            Err(_) => {
                op.error.get_or_insert(RequestError::Io);
            }
        }
        self.ready.push_back(id);
    }

    /// Appends when everything is there.
    pub(super) fn advance_store_write(&mut self, id: OpId) {
        let op = self.ops.get(id);
        if op.pending > 0 {
            return;
        }
        if let Some(error) = op.error {
            self.fail(id, error);
            return;
        }
        if self.backing_failed(id) {
            self.fail(id, RequestError::Io);
            return;
        }
        if self.loss.is_ssd_failed() {
            return self.go_past_ssd(id);
        }
        if self.ops.get(id).starved {
            return self.begin_anew(id);
        }
        // Others may have taken the room, or what the dirty limits allow, while the edges were read.
        if !self.may_store(id) {
            self.ops.get_mut(id).phase = Phase::StoreRoom;
            self.throttle.push_again(self.ops.get(id).request.volume, id);
            return;
        }
        let Some(merged) = self.merge_edges(id) else { return self.begin_anew(id) };
        self.append_all(id, merged);
    }

    /// There were no pages: the write does not keep those it has until there are some, or such writes together might hold all.
    fn begin_anew(&mut self, id: OpId) {
        let op = self.ops.get_mut(id);
        op.starved = false;
        op.edges.clear();
        op.phase = Phase::Start;
        self.starved.push_back(id);
    }

    /// The edge blocks' new content and valid sectors; `None` if there are no pages.
    fn merge_edges(&self, id: OpId) -> Option<SmallVec<[(usize, Page, u8); 2]>> {
        let op = self.ops.get(id);
        let merge = |edge: &Edge| {
            let mut page: PageMut = self.config.pool.allocate_zeroed()?;
            let mut mask = edge.new_mask;
            if let Some((base, base_mask)) = edge.base.as_ref().filter(|_| !mutants::active(mutants::PARTIAL_WRITE_FORGETS)) {
                overlay(&mut page, base, *base_mask);
                mask |= base_mask;
            }
            if op.request.op == OpKind::WriteZeroes {
                overlay(&mut page, &[0; BLOCK_BYTES as usize], edge.new_mask);
            } else {
                overlay(&mut page, &op.request.pages[edge.block], edge.new_mask);
            }
            Some((edge.block, page.freeze(), mask))
        };
        op.edges.iter().map(merge).collect()
    }

    fn append_all(&mut self, id: OpId, merged: SmallVec<[(usize, Page, u8); 2]>) {
        let (fua, blocks) = (self.ops.get(id).request.fua && !mutants::active(mutants::FUA_IGNORED), self.ops.get(id).blocks);
        if mutants::active(mutants::ZEROES_NOT_WRITTEN) && self.ops.get(id).request.op == OpKind::WriteZeroes {
            self.finish(id, Ok(()), PageVec::new(), Outcome::WriteBack);
            return;
        }
        let urgency = if fua { Urgency::Durable } else { self.commit_urgency(self.ops.get(id).first) };
        let mut group = 0;
        let content = |shard: &Shard, index: usize| match merged.iter().find(|(block, ..)| *block == index) {
            Some((_, page, mask)) => (page.clone(), *mask),
            None if shard.ops.get(id).request.op == OpKind::WriteZeroes => (shard.zero_page.clone(), u8::MAX),
            None => (shard.ops.get(id).request.pages[index].clone(), u8::MAX),
        };
        let mut arrivals: SmallVec<[Option<Arrival>; 4]> = SmallVec::new();
        self.store.expect(blocks);
        let first = self.ops.get(id).first;
        let units = self.volumes.of(first).options.atomic_blocks().map(|unit| Units::of(unit, first, blocks));
        for index in 0..blocks as usize {
            let key = self.ops.get(id).key(index);
            if let Some(units) = units.as_ref().filter(|units| units.begin(key) && !mutants::active(mutants::UNIT_IN_TWO_GROUPS)) {
                // Each block may be preceded by one that it rests on.
                self.store.keep_together(if self.packer.is_on() { 2 * units.blocks } else { units.blocks });
            }
            let (page, mask) = content(self, index);
            let advice = self.touch(key, true, blocks, false);
            let heat = self.index.get(key).map_or(advice.heat, |slot| Heat::from_bits(self.index.meta(slot).frequency));
            let block = NewBlock { key, page, mask, dirty: true, heat, checksum: None };
            let before = core::mem::replace(&mut group, self.store_block(block, urgency));
            let is_with_unit = before == group || mutants::active(mutants::UNIT_IN_TWO_GROUPS);
            assert!(is_with_unit || !units.as_ref().is_some_and(|units| units.go_on(key)), "{key:?} is in the group of its unit");
            self.destager.overtaken(key);
            if let Some((_, page, _)) = merged.iter().find(|(block, ..)| *block == index)
                && let Some(slot) = self.index.get(key)
            {
                self.edge_pages.keep(key, slot, page.clone());
            }
            arrivals.push(advice.enter.filter(|_| self.volumes.treatment_of(key).admit() != Admit::Never));
        }
        // Only now: what leaves RAM for these may go into the store, and would take the room that was made sure of for the blocks.
        for (index, arrival) in arrivals.into_iter().enumerate() {
            let key = self.ops.get(id).key(index);
            let (page, mask) = content(self, index);
            if mask == u8::MAX {
                self.keep_copy(key, &page, arrival);
            } else {
                self.drop_from_ram(key);
            }
        }
        let is_part = units.is_some_and(|units| !units.are_all_of(&self.ops.get(id).request));
        let volume = self.volumes.of(first);
        volume.stats.admitted_bytes += u64::from(blocks) * BLOCK_BYTES;
        volume.stats.partial_unit_writes += u64::from(is_part);
        let op = self.ops.get_mut(id);
        op.phase = Phase::Stored;
        op.group = group;
        let waits = if fua { self.store.commits_mut().wait_durable(group, id) } else { self.store.commits_mut().wait_complete(group, id) };
        if !waits {
            self.ready.push_back(id);
        }
    }

    /// The records are as safe as the client asked, or the SSD failed.
    pub(super) fn finish_store_write(&mut self, id: OpId) {
        let op = self.ops.get(id);
        let (volume, group, end_block) = (op.request.volume, op.group, op.first.block() + u64::from(op.blocks));
        let safe = if op.request.fua && !mutants::active(mutants::FUA_IGNORED) {
            self.store.commits().durable() >= group
        } else {
            self.store.commits().complete() >= group
        };
        if !safe {
            return self.go_past_ssd(id);
        }
        let now_ns = self.now_ns;
        let volume = self.volumes.of(Key::new(volume, 0));
        volume.stored_group = volume.stored_group.max(group);
        volume.awaited.written(end_block, now_ns);
        self.finish(id, Ok(()), PageVec::new(), Outcome::WriteBack);
    }
}
