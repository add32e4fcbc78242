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
use format::{PAGE_BYTES, Superblock, payload_checksum};
use types::{ShardIndex, VolumeId};

/// Pages of the ring that are read at once.
const CHUNK_PAGES: usize = 256;

/// What a slot holds.
#[derive(Clone, Copy, Debug)]
struct Held {
    set: Set,
    /// The group that said so first, in this ring.
    group: u64,
}

/// The ring as it was found: which groups are there.
struct Found {
    /// By group: the tail that it names.
    pages: BTreeMap<u64, u64>,
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

/// A block that was found in a slot.
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
    let last = restate(medium, superblock, shard, session, first..first + room, held.iter().flatten().map(|held| held.set))?;
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

/// What was found.
struct Looked {
    held: Vec<Option<Held>>,
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
    for set in held.iter().flatten().map(|held| &held.set) {
        *(if set.dirty { &mut report.dirty_blocks } else { &mut report.clean_blocks }) += 1;
        sink(set);
    }
    let start = &superblock.log_starts[usize::from(shard.0)];
    let first = found.pages.keys().next_back().map_or(start.first_group, |last| start.first_group.max(last + 1));
    Ok(Looked { held, first, tail, report })
}

impl Reader<'_> {
    /// The pages that count. Their statements are read again later: those of a large ring take much memory.
    fn find(&mut self) -> Result<Found, OpenError> {
        let layout = self.superblock.layout;
        let start = self.superblock.log_starts[usize::from(self.shard.0)];
        let mut found = Found { pages: BTreeMap::new(), watermark: start.first_group - 1 };
        let ring_pages = layout.ring_pages as usize;
        for first in (0..ring_pages).step_by(CHUNK_PAGES) {
            let bytes = self.read_pages(first as u32, CHUNK_PAGES.min(ring_pages - first))?;
            for (place, page) in (first as u64..).zip(bytes.as_chunks::<PAGE_BYTES>().0) {
                let Some((head, _)) = self.page_that_counts(page, place)? else { continue };
                found.pages.insert(head.group, head.tail);
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
        match self.medium.read(self.offset_of(first), &mut bytes) {
            Ok(()) => {}
            Err(_) if count > 1 => {
                for (at, page) in (first..).zip(bytes.chunks_exact_mut(PAGE_BYTES)) {
                    page.copy_from_slice(&self.read_pages(at, 1)?);
                }
            }
            Err(error) if !self.force => return Err(error.into()),
            Err(_) => {
                self.report.unreadable_pages += 1;
                bytes.fill(0);
            }
        }
        Ok(bytes)
    }

    fn offset_of(&self, slot: u32) -> u64 {
        offset_of(self.superblock, self.shard, slot)
    }

    /// What the slots hold at the end of the ring.
    fn choose(&mut self, found: &Found) -> Result<(Vec<Option<Held>>, u64), OpenError> {
        for (end, tail) in found.pages.iter().rev().take_while(|(group, _)| **group >= found.watermark) {
            let is_whole = (*tail..=*end).all(|group| found.pages.contains_key(&group));
            if !is_whole {
                continue;
            }
            let held = self.redo(*tail, *end, &[])?;
            if self.payloads_are_whole(&held, found.watermark)? {
                self.report.discarded_groups = found.pages.keys().next_back().expect("there is one") - end;
                return Ok((held, *tail));
            }
        }
        if found.pages.is_empty() && found.watermark + 1 == self.superblock.log_starts[usize::from(self.shard.0)].first_seq {
            // Nothing was ever written.
            return Ok((vec![None; self.superblock.layout.slots_per_shard() as usize], found.watermark + 1));
        }
        self.choose_damaged(found)
    }

    /// Pages at or below the watermark are lost.
    fn choose_damaged(&mut self, found: &Found) -> Result<(Vec<Option<Held>>, u64), OpenError> {
        self.report.damaged_places += 1;
        let with_dirty = self.superblock.volumes.iter().filter(|volume| volume.may_have_dirty);
        self.report.damaged_volumes = with_dirty.map(|volume| volume.id).collect();
        // Above the watermark nothing may be missing, as ever: what was freed there may be written over.
        let watermark = found.watermark;
        let last = (watermark + 1..).find(|group| !found.pages.contains_key(group)).expect("groups end") - 1;
        for end in (watermark..=last).rev() {
            let named = found.pages.range(..=end).next_back().map(|(_, tail)| *tail);
            // Where no page is left, nothing is.
            let tail = named.unwrap_or(end + 1);
            let missing: Vec<u64> = (tail..=end).filter(|group| !found.pages.contains_key(group)).collect();
            let held = self.redo(tail, end, &missing)?;
            if end == watermark || self.payloads_are_whole(&held, watermark)? {
                return Ok((held, tail));
            }
        }
        unreachable!("the watermark is taken at last")
    }

    /// Does the statements of the groups again, one after the other. Before each group that is missing, what is clean is forgotten.
    fn redo(&mut self, tail: u64, end: u64, missing: &[u64]) -> Result<Vec<Option<Held>>, OpenError> {
        let ring_pages = u64::from(self.superblock.layout.ring_pages);
        let mut held: Vec<Option<Held>> = vec![None; self.superblock.layout.slots_per_shard() as usize];
        let mut missing = missing.iter().copied().peekable();
        let mut first = tail;
        while first <= end {
            let place = first % ring_pages;
            let count = (end + 1 - first).min(ring_pages - place).min(CHUNK_PAGES as u64);
            let bytes = self.read_pages(place as u32, count as usize)?;
            for (group, page) in (first..).zip(bytes.as_chunks::<PAGE_BYTES>().0) {
                if missing.next_if_eq(&group).is_some() {
                    let clean = held.iter_mut().filter(|held| held.as_ref().is_some_and(|held| !held.set.dirty));
                    self.report.forgotten_blocks += clean.map(Option::take).count() as u64;
                    continue;
                }
                let page = self.page_that_counts(page, group % ring_pages)?.filter(|(head, _)| head.group == group);
                let Some((_, statements)) = page else { return Err(OpenError::Contradiction { segment: group }) };
                self.report.records += statements.len() as u64;
                for statement in &statements {
                    self.redo_one(&mut held, statement, group)?;
                }
            }
            first += count;
        }
        self.check_blocks(&mut held, end)?;
        Ok(held)
    }

    fn redo_one(&self, held: &mut [Option<Held>], statement: &Statement, group: u64) -> Result<(), OpenError> {
        let wrong = OpenError::Contradiction { segment: group };
        let usable = self.superblock.layout.ring_pages as usize..held.len();
        match statement {
            Statement::Set(set) => {
                let same = |held: &Held| held.set.volume == set.volume && held.set.block == set.block;
                if let Some(old) = set.old {
                    let old = held.get_mut(old as usize).ok_or(wrong.clone())?;
                    if old.as_ref().is_some_and(same) {
                        *old = None;
                    }
                }
                if !usable.contains(&(set.slot as usize)) {
                    return Err(wrong);
                }
                let slot = &mut held[set.slot as usize];
                let group = slot.as_ref().filter(|held| same(held) && held.set.checksum == set.checksum).map_or(group, |held| held.group);
                *slot = Some(Held { set: *set, group });
            }
            Statement::Home { slot, checksum } => {
                let slot = held.get_mut(*slot as usize).ok_or(wrong)?;
                if let Some(held) = slot.as_mut().filter(|held| held.set.checksum == *checksum) {
                    held.set.dirty = false;
                }
            }
            Statement::Gone { slot, .. } => *held.get_mut(*slot as usize).ok_or(wrong)? = None,
            Statement::GoneOfShelf { shelf, slots } => {
                let first = *shelf as usize * ::slots::SHELF_SLOTS as usize;
                for at in (0..::slots::SHELF_SLOTS as usize).filter(|at| slots[at / 64] >> (at % 64) & 1 != 0) {
                    *held.get_mut(first + at).ok_or(wrong.clone())? = None;
                }
            }
        }
        Ok(())
    }

    /// No block is in two slots, and blocks of volumes that are gone are left out.
    fn check_blocks(&self, held: &mut [Option<Held>], end: u64) -> Result<(), OpenError> {
        let is_known = |volume: VolumeId| self.superblock.volume(volume).is_some();
        for slot in held.iter_mut() {
            if slot.as_ref().is_some_and(|held| !is_known(held.set.volume)) {
                *slot = None;
            }
        }
        let mut keys: Vec<(u32, u64)> = held.iter().flatten().map(|held| (held.set.volume.0, held.set.block)).collect();
        keys.sort_unstable();
        if keys.array_windows().any(|[one, other]| one == other) {
            return Err(OpenError::Contradiction { segment: end });
        }
        Ok(())
    }

    /// Whether dirty payloads that may be torn are as they were written.
    fn payloads_are_whole(&mut self, held: &[Option<Held>], watermark: u64) -> Result<bool, OpenError> {
        if mutants::active(mutants::SLOTS_UNCHECKED) {
            return Ok(true);
        }
        for Held { set, group } in held.iter().flatten() {
            if !set.dirty || set.settled || set.lost || *group <= watermark {
                continue;
            }
            let bytes = self.read_pages(set.slot, 1)?;
            let page: &[u8; PAGE_BYTES] = bytes.as_slice().try_into().expect("a page");
            if payload_checksum(set.volume, set.block, page) != set.checksum {
                return Ok(false);
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
