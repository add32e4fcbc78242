//! From the ring on the SSD to what the slots hold.
//!
//! The rules:
//! - A page counts if it is of this pool, this shard and the session whose pages are the ring, stands where its number says, its number is
//!   not below the first that counts, and not a round above what it says to be durable.
//! - The *watermark* is the highest group that any page, or the superblock, says to be durable.
//! - The *end* is the last group, down to the watermark, for which all pages from its tail on are there and the dirty payloads are whole that
//!   lie in slots it still names, were said above the watermark, and not called settled. What was replaced since is not looked at: its
//!   slot may rightly hold something newer.
//! - What is in a slot is what the last statement about it says, in the order of groups. A statement about a block names the slot that the
//!   block had before.
//! - If there is no such end, pages at or below the watermark are lost. What they said is not known: clean blocks that were said
//!   before them are forgotten, dirty ones kept, and their volumes are reported.
//! - Then all that was found is said again, under a session number that was never used, behind the last page found, and flushed with what
//!   was found. [`PoolState::begin_session`](crate::superblock::PoolState::begin_session) makes that the ring, in one step. Interrupted
//!   before, all of it is done again from the ring that was.

use super::found::{Found, is_whole};
use crate::medium::Medium;
use crate::mutants;
use crate::recovery::RecoveryReport;
use crate::superblock::OpenError;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use format::checkpoint::LogEnd;
use format::slots::{RingHead, STATEMENT_BYTES_MAX, Set, Statement};
use format::{Layout, PAGE_BYTES, Superblock};
use types::ShardIndex;

pub use super::found::is_base;

/// Pages of the ring that are read at once.
const CHUNK_PAGES: usize = 256;

/// The pages of a ring of no more than so many (16 MiB) are kept in memory: they are read once. Of several shards that are read at the same time
/// this takes as much for each.
const KEPT_PAGES_MAX: u32 = 4096;

/// The ring as it was found: which groups are there.
struct Pages {
    /// Groups in order, and the tail that each names.
    tails: Vec<(u64, u64)>,
    /// All groups up to this one are durable.
    watermark: u64,
    /// All pages of the ring, if it is short.
    kept: Option<Vec<u8>>,
}

impl Pages {
    /// Where a group is among those that are there, or would be.
    fn find(&self, group: u64) -> Result<usize, usize> {
        self.tails.binary_search_by_key(&group, |(group, _)| *group)
    }

    fn has(&self, group: u64) -> bool {
        self.find(group).is_ok()
    }

    /// Whether none is missing of these, the last of which is there.
    fn has_all(&self, first: u64, last: u64) -> bool {
        match (self.find(first), self.find(last)) {
            (Ok(from), Ok(to)) => (to - from) as u64 == last - first,
            _ => false,
        }
    }

    fn last(&self) -> Option<u64> {
        self.tails.last().map(|(group, _)| *group)
    }
}

/// Reads one shard's part of a pool.
struct Reader<'a> {
    medium: &'a mut dyn Medium,
    superblock: &'a Superblock,
    shard: ShardIndex,
    force: bool,
    report: RecoveryReport,
}

/// A block that was found in a slot, or an object without a block ([`is_base`]).
pub type SlotFound = Set;

/// What a start will be given, where some of it is packed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Expected {
    /// Blocks, all of them.
    pub blocks: u32,
    /// Packed payloads that stand by themselves.
    pub objects: u32,
}

impl Expected {
    pub(super) fn add(&mut self, set: &Set) {
        self.blocks += u32::from(!is_base(set));
        self.objects += u32::from(set.stored.is_some_and(|stored| stored.encoding.is_full()));
    }
}

/// What takes in all that is found. Any function of a [`SlotFound`] does.
pub trait Sink {
    /// So much will come. Not said where nothing is packed.
    fn expect(&mut self, _expected: Expected) {}
    /// One more.
    fn take(&mut self, found: &SlotFound);
}

impl<F: FnMut(&SlotFound)> Sink for F {
    fn take(&mut self, found: &SlotFound) {
        self(found);
    }
}

/// Recovers one shard: gives what its slots hold, and states it again in `session`, flushed. Gives where the ring goes on.
///
/// # Errors
/// What the medium says, [`OpenError::SuperblockOutdated`], [`OpenError::Contradiction`]. Recovery may then be repeated, except that a failed
/// flush is final.
pub fn recover(
    medium: &mut dyn Medium,
    superblock: &Superblock,
    shard: ShardIndex,
    session: u64,
    force: bool,
    sink: &mut dyn Sink,
) -> Result<(LogEnd, RecoveryReport), OpenError> {
    let Looked { held, first, tail, report } = look(medium, superblock, shard, force, sink)?;
    let room = (tail + u64::from(superblock.layout.ring_pages)).saturating_sub(first);
    let new = NewPages { session, groups: first..first + room, tail: first };
    let last = new.write(medium, superblock, shard, held.all())?;
    if !mutants::active(mutants::START_UNFLUSHED) {
        medium.flush()?;
    }
    Ok((LogEnd { next_seq: first, next_group: last + 1, tail_seq: first }, report))
}

/// As [`recover`] with force, but writes nothing. `next_seq` of the end is where a start would go on.
pub(crate) fn survey(
    medium: &mut dyn Medium,
    superblock: &Superblock,
    shard: ShardIndex,
    sink: &mut dyn Sink,
) -> Result<(LogEnd, RecoveryReport), OpenError> {
    let Looked { first, report, .. } = look(medium, superblock, shard, true, sink)?;
    Ok((LogEnd { next_seq: first, next_group: first, tail_seq: superblock.log_starts[usize::from(shard.0)].first_seq }, report))
}

/// Whether a shard may be cut where this superblock says that it ends: what its ring still names behind that is forgotten by the next start.
/// Writes nothing.
///
/// # Errors
/// [`OpenError::DirtyWhereItEnds`]; else as [`recover`].
pub(crate) fn may_cut(medium: &mut dyn Medium, superblock: &Superblock, shard: ShardIndex) -> Result<(), OpenError> {
    look(medium, superblock, shard, false, &mut |_: &SlotFound| ()).map(drop)
}

/// What was found.
struct Looked {
    held: Found,
    /// The number of the next group.
    first: u64,
    /// The first page that the state rests on: none from here on may be written over before the start has begun.
    tail: u64,
    report: RecoveryReport,
}

fn look(
    medium: &mut dyn Medium,
    superblock: &Superblock,
    shard: ShardIndex,
    force: bool,
    sink: &mut dyn Sink,
) -> Result<Looked, OpenError> {
    let mut reader = Reader { medium, superblock, shard, force, report: RecoveryReport::default() };
    let found = reader.find()?;
    let (held, tail) = reader.choose(&found)?;
    let mut report = reader.report;
    if held.has_packed() {
        let mut expected = Expected::default();
        held.all().for_each(|set| expected.add(&set));
        sink.expect(expected);
    }
    for set in held.all() {
        count(&mut report, &set);
        sink.take(&set);
    }
    report.newest = held.newest();
    let start = &superblock.log_starts[usize::from(shard.0)];
    let first = found.last().map_or(start.first_group, |last| start.first_group.max(last + 1));
    Ok(Looked { held, first, tail, report })
}

pub(super) fn count(report: &mut RecoveryReport, set: &Set) {
    report.dirty_blocks += u64::from(set.dirty);
    report.clean_blocks += u64::from(!set.dirty && !is_base(set));
}

/// Whether a page is of this pool and this shard.
///
/// # Errors
/// [`OpenError::SuperblockOutdated`] if it is of a session that the superblock does not know.
pub(super) fn is_ours(head: &RingHead, superblock: &Superblock, shard: ShardIndex, force: bool) -> Result<bool, OpenError> {
    let is_ours = head.uuid == superblock.uuid && head.shard == shard;
    if is_ours && head.session > superblock.session && !force {
        return Err(OpenError::SuperblockOutdated { found: head.session, known: superblock.session });
    }
    Ok(is_ours)
}

impl Reader<'_> {
    /// The pages that count. Their statements are read again later: those of a large ring take much memory.
    fn find(&mut self) -> Result<Pages, OpenError> {
        let start = self.superblock.log_starts[usize::from(self.shard.0)];
        let ring = self.superblock.ring(self.shard);
        let ring_pages = ring.pages as usize;
        let mut found = Pages { tails: Vec::new(), watermark: start.first_group - 1, kept: None };
        let mut kept = (ring.pages <= KEPT_PAGES_MAX).then(|| vec![0; ring_pages * PAGE_BYTES]);
        let mut buffer = vec![0; CHUNK_PAGES.min(ring_pages) * PAGE_BYTES];
        for first in (0..ring_pages).step_by(CHUNK_PAGES) {
            let count = CHUNK_PAGES.min(ring_pages - first);
            let bytes = match &mut kept {
                Some(kept) => &mut kept[first * PAGE_BYTES..(first + count) * PAGE_BYTES],
                None => &mut buffer[..count * PAGE_BYTES],
            };
            self.read_pages(ring.first + first as u32, bytes)?;
            for (place, page) in (first as u64..).zip(bytes.as_chunks::<PAGE_BYTES>().0) {
                let Some(head) = self.page_that_counts(page, place, |_| {})? else { continue };
                found.tails.push((head.group, head.tail));
                found.watermark = found.watermark.max(head.durable);
                self.report.groups += 1;
            }
        }
        found.tails.sort_unstable();
        found.kept = kept;
        self.report.durable_group = found.watermark;
        Ok(found)
    }

    /// Reads the page as it stands in a place of the ring, if it counts.
    fn page_that_counts(&self, page: &[u8; PAGE_BYTES], place: u64, each: impl FnMut(&Statement)) -> Result<Option<RingHead>, OpenError> {
        let superblock = self.superblock;
        let Ok(head) = RingHead::decode_each(page, each) else { return Ok(None) };
        let is_ours = is_ours(&head, superblock, self.shard, self.force)?;
        let start = superblock.log_starts[usize::from(self.shard.0)];
        let ring_pages = u64::from(superblock.layout.ring_pages);
        // No writer comes round to what is not durable, or needed.
        let in_one_round = head.group - head.durable.max(head.tail - 1) <= ring_pages && head.group - head.tail < ring_pages;
        let counts = is_ours
            && head.session == superblock.log_session
            && head.group >= start.first_seq
            && head.group % ring_pages == place
            && in_one_round;
        Ok(counts.then_some(head))
    }

    /// Pages of the shard's part; those that cannot be read are zero where that is forced.
    fn read_pages(&mut self, first: u32, into: &mut [u8]) -> Result<(), OpenError> {
        for (at, run) in runs_of(&self.superblock.layout, first, into) {
            self.read_run(at, run)?;
        }
        Ok(())
    }

    fn read_run(&mut self, first: u32, run: &mut [u8]) -> Result<(), OpenError> {
        match self.medium.read(offset_of(self.superblock, self.shard, first), run) {
            Ok(()) => {}
            Err(_) if run.len() > PAGE_BYTES => {
                for (at, page) in (first..).zip(run.chunks_exact_mut(PAGE_BYTES)) {
                    self.read_run(at, page)?;
                }
            }
            Err(error) if !self.force => return Err(error.into()),
            Err(_) => {
                self.report.unreadable_pages += 1;
                run.fill(0);
            }
        }
        Ok(())
    }

    /// What the slots hold at the end of the ring.
    fn choose(&mut self, found: &Pages) -> Result<(Found, u64), OpenError> {
        for (end, tail) in found.tails.iter().rev().take_while(|(group, _)| *group >= found.watermark) {
            if !found.has_all(*tail, *end) {
                continue;
            }
            let held = self.redo(found, *tail, *end, &[])?;
            if self.payloads_are_whole(&held)? {
                self.report.discarded_groups = found.last().expect("there is one") - end;
                return Ok((held, *tail));
            }
        }
        if found.tails.is_empty() && found.watermark + 1 == self.superblock.log_starts[usize::from(self.shard.0)].first_seq {
            // Nothing was ever written.
            return Ok((self.nothing(), found.watermark + 1));
        }
        self.choose_damaged(found)
    }

    /// Pages at or below the watermark are lost.
    fn choose_damaged(&mut self, found: &Pages) -> Result<(Found, u64), OpenError> {
        self.report.damaged_places += 1;
        let with_dirty = self.superblock.volumes.iter().filter(|volume| volume.may_have_dirty);
        self.report.damaged_volumes = with_dirty.map(|volume| volume.id).collect();
        // Above the watermark nothing may be missing, as ever: what was freed there may be written over.
        let watermark = found.watermark;
        let last = (watermark + 1..).find(|group| !found.has(*group)).expect("groups end") - 1;
        for end in (watermark..=last).rev() {
            let behind = found.tails.partition_point(|(group, _)| *group <= end);
            let named = found.tails[..behind].last().map(|(_, tail)| *tail);
            // Where no page is left, nothing is.
            let tail = named.unwrap_or(end + 1);
            let missing: Vec<u64> = (tail..=end).filter(|group| !found.has(*group)).collect();
            let held = self.redo(found, tail, end, &missing)?;
            if end == watermark || self.payloads_are_whole(&held)? {
                return Ok((held, tail));
            }
        }
        unreachable!("the watermark is taken at last")
    }

    fn nothing(&self) -> Found {
        let (layout, volumes) = (&self.superblock.layout, &self.superblock.volumes);
        let named_slots = self.superblock.named_segments * layout.pages_per_segment();
        Found::new(named_slots, self.superblock.ring(self.shard), layout.pages_per_segment(), volumes.iter().map(|volume| volume.id))
    }

    /// Does the statements of the groups again, one after the other. Before each group that is missing, what is clean is forgotten.
    fn redo(&mut self, found: &Pages, tail: u64, end: u64, missing: &[u64]) -> Result<Found, OpenError> {
        let ring = self.superblock.ring(self.shard);
        let ring_pages = u64::from(ring.pages);
        let mut held = self.nothing();
        let mut missing = missing.iter().copied().peekable();
        let mut first = tail;
        let mut buffer = vec![0; if found.kept.is_some() { 0 } else { CHUNK_PAGES * PAGE_BYTES }];
        while first <= end {
            let place = first % ring_pages;
            let count = (end + 1 - first).min(ring_pages - place).min(CHUNK_PAGES as u64);
            let bytes = match &found.kept {
                Some(kept) => &kept[place as usize * PAGE_BYTES..(place + count) as usize * PAGE_BYTES],
                None => {
                    let bytes = &mut buffer[..count as usize * PAGE_BYTES];
                    self.read_pages(ring.page_of(first), bytes)?;
                    bytes
                }
            };
            for (group, page) in (first..).zip(bytes.as_chunks::<PAGE_BYTES>().0) {
                if missing.next_if_eq(&group).is_some() {
                    self.report.forgotten_blocks += held.forget_clean();
                    continue;
                }
                let contradiction = || OpenError::Contradiction { segment: group };
                let (mut records, mut is_redone) = (0, true);
                let redo = |statement: &Statement| {
                    records += 1;
                    is_redone = is_redone && held.redo(statement, group > found.watermark).is_ok();
                };
                let head = self.page_that_counts(page, group % ring_pages, redo)?;
                head.filter(|head| head.group == group && is_redone).ok_or_else(contradiction)?;
                self.report.records += records;
            }
            first += count;
        }
        if !held.settle() {
            return Err(OpenError::Contradiction { segment: end });
        }
        let slots = self.superblock.layout.slots_per_shard();
        if held.cut(slots) { Ok(held) } else { Err(OpenError::DirtyWhereItEnds { shard: self.shard.0 }) }
    }

    /// Whether dirty payloads that may be torn are as they were written, and what they rest on.
    fn payloads_are_whole(&mut self, held: &Found) -> Result<bool, OpenError> {
        if mutants::active(mutants::SLOTS_UNCHECKED) {
            return Ok(true);
        }
        for set in held.to_verify() {
            match is_whole(self.medium, self.superblock, self.shard, &set) {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(_) if self.force => {
                    self.report.unreadable_pages += 1;
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

/// The parts of pages from this one on that lie side by side on the SSD: those of one segment do.
pub(super) fn runs_of<'a>(layout: &Layout, first: u32, pages: &'a mut [u8]) -> impl Iterator<Item = (u32, &'a mut [u8])> {
    let of_segment = layout.pages_per_segment();
    let (mut at, mut left) = (first, pages);
    core::iter::from_fn(move || {
        let pages = ((of_segment - at % of_segment) as usize).min(left.len() / PAGE_BYTES);
        let (run, rest) = core::mem::take(&mut left).split_at_mut(pages * PAGE_BYTES);
        let first = at;
        (at, left) = (at + pages as u32, rest);
        (pages > 0).then_some((first, run))
    })
}

pub(super) fn offset_of(superblock: &Superblock, shard: ShardIndex, slot: u32) -> u64 {
    let pages = superblock.layout.pages_per_segment();
    superblock.layout.page_offset(shard, slot / pages, slot % pages)
}

/// Pages that are to state everything anew.
pub(in crate::store) struct NewPages {
    /// The session that they are of.
    pub session: u64,
    /// Their groups are the first of these.
    pub groups: Range<u64>,
    /// The tail that all but the last of them name; that names the first of them.
    pub tail: u64,
}

impl NewPages {
    /// Writes them, at least one; gives the last group.
    ///
    /// # Errors
    /// What the medium says, [`OpenError::RingFull`].
    pub fn write(
        &self,
        medium: &mut dyn Medium,
        superblock: &Superblock,
        shard: ShardIndex,
        all: impl Iterator<Item = Set>,
    ) -> Result<u64, OpenError> {
        let (first, ring) = (self.groups.start, superblock.ring(shard));
        let mut pages = Pager::new(all);
        let mut chunk: Vec<u8> = Vec::with_capacity(CHUNK_PAGES * PAGE_BYTES);
        let mut page = [0; PAGE_BYTES];
        for group in self.groups.clone() {
            let is_last = pages.fill();
            let tail = if is_last { first } else { self.tail };
            let head = RingHead { uuid: superblock.uuid, session: self.session, shard, group, tail, durable: first - 1, epoch: 0 };
            head.encode_said(pages.said(), &mut page);
            chunk.extend_from_slice(&page);
            let pages_in_chunk = (chunk.len() / PAGE_BYTES) as u64;
            // Pages of one segment lie side by side.
            let next = ring.page_of(group + 1);
            let is_over = next == ring.first || next.is_multiple_of(superblock.layout.pages_per_segment());
            if is_last || is_over || pages_in_chunk == CHUNK_PAGES as u64 {
                let place = ring.page_of(group + 1 - pages_in_chunk);
                medium.write(offset_of(superblock, shard, place), &chunk)?;
                chunk.clear();
            }
            if is_last {
                return Ok(group);
            }
        }
        Err(OpenError::RingFull)
    }
}

/// Statements that everything is where it is, by pages.
pub(super) struct Pager<I: Iterator<Item = Set>> {
    all: core::iter::Peekable<I>,
    said: Vec<u8>,
}

impl<I: Iterator<Item = Set>> Pager<I> {
    pub fn new(all: I) -> Pager<I> {
        Pager { all: all.peekable(), said: Vec::with_capacity(STATEMENT_BYTES_MAX) }
    }

    /// Fills the next page; gives whether it is the last.
    pub fn fill(&mut self) -> bool {
        self.said.clear();
        let restated = |set: &Set| Statement::Set(Set { settled: true, old: None, ..*set });
        while let Some(set) = self.all.next_if(|set| self.said.len() + restated(set).bytes() <= STATEMENT_BYTES_MAX) {
            restated(&set).append_to(&mut self.said);
        }
        self.all.peek().is_none()
    }

    /// What the page says.
    pub fn said(&self) -> &[u8] {
        &self.said
    }
}
