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
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use format::checkpoint::LogEnd;
use format::slots::{RingHead, STATEMENT_BYTES_MAX, Set, Statement};
use format::{PAGE_BYTES, Superblock};
use types::ShardIndex;

pub use super::found::is_base;

/// Pages of the ring that are read at once.
const CHUNK_PAGES: usize = 256;

/// The ring as it was found: which groups are there.
struct Pages {
    /// By group: the tail that it names.
    tails: BTreeMap<u64, u64>,
    /// All groups up to this one are durable.
    watermark: u64,
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
    sink: &mut dyn FnMut(&SlotFound),
) -> Result<(LogEnd, RecoveryReport), OpenError> {
    let Looked { held, first, tail, report } = look(medium, superblock, shard, force, sink)?;
    let room = (tail + u64::from(superblock.layout.ring_pages)).saturating_sub(first);
    let last = restate(medium, superblock, shard, session, first..first + room, held.all().map(|held| held.set))?;
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
    sink: &mut dyn FnMut(&SlotFound),
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
    look(medium, superblock, shard, false, &mut |_| ()).map(drop)
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
    sink: &mut dyn FnMut(&SlotFound),
) -> Result<Looked, OpenError> {
    let mut reader = Reader { medium, superblock, shard, force, report: RecoveryReport::default() };
    let found = reader.find()?;
    let (held, tail) = reader.choose(&found)?;
    let mut report = reader.report;
    for set in held.all().map(|held| &held.set) {
        report.dirty_blocks += u64::from(set.dirty);
        report.clean_blocks += u64::from(!set.dirty && !is_base(set));
        sink(set);
    }
    let start = &superblock.log_starts[usize::from(shard.0)];
    let first = found.tails.keys().next_back().map_or(start.first_group, |last| start.first_group.max(last + 1));
    Ok(Looked { held, first, tail, report })
}

impl Reader<'_> {
    /// The pages that count. Their statements are read again later: those of a large ring take much memory.
    fn find(&mut self) -> Result<Pages, OpenError> {
        let layout = self.superblock.layout;
        let start = self.superblock.log_starts[usize::from(self.shard.0)];
        let mut found = Pages { tails: BTreeMap::new(), watermark: start.first_group - 1 };
        let ring_pages = layout.ring_pages as usize;
        for first in (0..ring_pages).step_by(CHUNK_PAGES) {
            let bytes = self.read_pages(first as u32, CHUNK_PAGES.min(ring_pages - first))?;
            for (place, page) in (first as u64..).zip(bytes.as_chunks::<PAGE_BYTES>().0) {
                let Some((head, _)) = self.page_that_counts(page, place)? else { continue };
                found.tails.insert(head.group, head.tail);
                found.watermark = found.watermark.max(head.durable);
                self.report.groups += 1;
            }
        }
        self.report.durable_group = found.watermark;
        Ok(found)
    }

    /// The page as it stands in a place of the ring, if it counts.
    fn page_that_counts(&self, page: &[u8; PAGE_BYTES], place: u64) -> Result<Option<(RingHead, Vec<Statement>)>, OpenError> {
        let superblock = self.superblock;
        let Ok((head, statements)) = RingHead::decode(page) else { return Ok(None) };
        let is_ours = head.uuid == superblock.uuid && head.shard == self.shard;
        if is_ours && head.session > superblock.session && !self.force {
            return Err(OpenError::SuperblockOutdated { found: head.session, known: superblock.session });
        }
        let start = superblock.log_starts[usize::from(self.shard.0)];
        let ring_pages = u64::from(superblock.layout.ring_pages);
        // No writer comes round to what is not durable, or needed.
        let in_one_round = head.group - head.durable.max(head.tail - 1) <= ring_pages && head.group - head.tail < ring_pages;
        let counts = is_ours
            && head.session == superblock.log_session
            && head.group >= start.first_seq
            && head.group % ring_pages == place
            && in_one_round;
        Ok(counts.then_some((head, statements)))
    }

    /// Pages of the shard's part; those that cannot be read are zero where that is forced.
    fn read_pages(&mut self, first: u32, count: usize) -> Result<Vec<u8>, OpenError> {
        let mut bytes = vec![0; count * PAGE_BYTES];
        // Pages of one segment lie side by side.
        let of_segment = self.superblock.layout.pages_per_segment() as usize;
        let (mut at, mut left) = (first, &mut bytes[..]);
        while !left.is_empty() {
            let pages = (of_segment - at as usize % of_segment).min(left.len() / PAGE_BYTES);
            let (run, rest) = left.split_at_mut(pages * PAGE_BYTES);
            self.read_run(at, run)?;
            (at, left) = (at + pages as u32, rest);
        }
        Ok(bytes)
    }

    fn read_run(&mut self, first: u32, run: &mut [u8]) -> Result<(), OpenError> {
        match self.medium.read(self.offset_of(first), run) {
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

    fn offset_of(&self, slot: u32) -> u64 {
        offset_of(self.superblock, self.shard, slot)
    }

    /// What the slots hold at the end of the ring.
    fn choose(&mut self, found: &Pages) -> Result<(Found, u64), OpenError> {
        for (end, tail) in found.tails.iter().rev().take_while(|(group, _)| **group >= found.watermark) {
            let is_whole = (*tail..=*end).all(|group| found.tails.contains_key(&group));
            if !is_whole {
                continue;
            }
            let held = self.redo(*tail, *end, &[])?;
            if self.payloads_are_whole(&held, found.watermark)? {
                self.report.discarded_groups = found.tails.keys().next_back().expect("there is one") - end;
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
        let last = (watermark + 1..).find(|group| !found.tails.contains_key(group)).expect("groups end") - 1;
        for end in (watermark..=last).rev() {
            let named = found.tails.range(..=end).next_back().map(|(_, tail)| *tail);
            // Where no page is left, nothing is.
            let tail = named.unwrap_or(end + 1);
            let missing: Vec<u64> = (tail..=end).filter(|group| !found.tails.contains_key(group)).collect();
            let held = self.redo(tail, end, &missing)?;
            if end == watermark || self.payloads_are_whole(&held, watermark)? {
                return Ok((held, tail));
            }
        }
        unreachable!("the watermark is taken at last")
    }

    fn nothing(&self) -> Found {
        let layout = &self.superblock.layout;
        let named_slots = self.superblock.named_segments * layout.pages_per_segment();
        Found::new(named_slots, layout.ring_pages, layout.pages_per_segment())
    }

    /// Does the statements of the groups again, one after the other. Before each group that is missing, what is clean is forgotten.
    fn redo(&mut self, tail: u64, end: u64, missing: &[u64]) -> Result<Found, OpenError> {
        let ring_pages = u64::from(self.superblock.layout.ring_pages);
        let mut held = self.nothing();
        let mut missing = missing.iter().copied().peekable();
        let mut first = tail;
        while first <= end {
            let place = first % ring_pages;
            let count = (end + 1 - first).min(ring_pages - place).min(CHUNK_PAGES as u64);
            let bytes = self.read_pages(place as u32, count as usize)?;
            for (group, page) in (first..).zip(bytes.as_chunks::<PAGE_BYTES>().0) {
                if missing.next_if_eq(&group).is_some() {
                    self.report.forgotten_blocks += held.forget_clean();
                    continue;
                }
                let page = self.page_that_counts(page, group % ring_pages)?.filter(|(head, _)| head.group == group);
                let Some((_, statements)) = page else { return Err(OpenError::Contradiction { segment: group }) };
                self.report.records += statements.len() as u64;
                for statement in &statements {
                    held.redo(statement, group).map_err(|_| OpenError::Contradiction { segment: group })?;
                }
            }
            first += count;
        }
        if !held.settle(|volume| self.superblock.volume(volume).is_some()) {
            return Err(OpenError::Contradiction { segment: end });
        }
        let slots = self.superblock.layout.slots_per_shard();
        if held.cut(slots) { Ok(held) } else { Err(OpenError::DirtyWhereItEnds { shard: self.shard.0 }) }
    }

    /// Whether dirty payloads that may be torn are as they were written, and what they rest on.
    fn payloads_are_whole(&mut self, held: &Found, watermark: u64) -> Result<bool, OpenError> {
        if mutants::active(mutants::SLOTS_UNCHECKED) {
            return Ok(true);
        }
        for set in &held.to_verify(watermark) {
            match is_whole(self.medium, self.superblock, self.shard, set) {
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

pub(super) fn offset_of(superblock: &Superblock, shard: ShardIndex, slot: u32) -> u64 {
    let pages = superblock.layout.pages_per_segment();
    superblock.layout.page_offset(shard, slot / pages, slot % pages)
}

/// Writes pages that state everything anew, in these groups of one session; gives the last. At least one.
fn restate(
    medium: &mut dyn Medium,
    superblock: &Superblock,
    shard: ShardIndex,
    session: u64,
    groups: Range<u64>,
    all: impl Iterator<Item = Set>,
) -> Result<u64, OpenError> {
    let ring_pages = u64::from(superblock.layout.ring_pages);
    let mut all = all.map(|set| Statement::Set(Set { settled: true, old: None, ..set })).peekable();
    let first = groups.start;
    let mut group = first;
    let mut page = [0; PAGE_BYTES];
    loop {
        if !groups.contains(&group) {
            return Err(OpenError::RingFull);
        }
        let (mut statements, mut room) = (Vec::new(), STATEMENT_BYTES_MAX);
        while let Some(statement) = all.next_if(|statement| statement.bytes() <= room) {
            room -= statement.bytes();
            statements.push(statement);
        }
        let head = RingHead { uuid: superblock.uuid, session, shard, group, tail: first, durable: first - 1, epoch: 0 };
        head.encode(&statements, &mut page);
        medium.write(offset_of(superblock, shard, (group % ring_pages) as u32), &page)?;
        if all.peek().is_none() {
            return Ok(group);
        }
        group += 1;
    }
}
