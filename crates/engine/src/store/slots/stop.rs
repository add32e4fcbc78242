//! A clean stop says once more of everything where it is, so that the next start reads only that.
//!
//! The stop writes one whole sweep behind the last group, flushes it, and stores a superblock that is *clean* and in which the ring begins with
//! that sweep. The next start reads these pages. Each slot is said once and is durable, so it goes straight into the index: no payload is
//! looked at, and nothing is said again. The ring goes on behind the sweep, in the session that it is of.
//!
//! Why that is safe:
//! * *Inside the stop.* The pages of the sweep are groups like any others. All but the last of them name the tail that the ring had, so a
//!   sweep of which a part is missing ends with the last page before that, and the start goes back to that tail. The last page names the
//!   first one: with it the sweep is whole, or pages are missing and it is not the end. Behind the sweep there is room for as much again: a
//!   start after a crash in the stop states everything, too.
//! * *Behind the sweep there is nothing.* The writer of the session was at rest: its last group was durable, and its process ended with this
//!   superblock. No page of the session has a higher number. So numbers and session go on, and no page can be met that looks like a
//!   later one and is not: what the new session of another start is for, which does not know what was under way.
//! * *Once.* The start makes the superblock unclean, durably, before anything is written to a ring. From then on the ring is what it
//!   says, and the next start reads all of it. A start that is interrupted before has written nothing that counts, and is repeated. So the
//!   session goes on in one life only for each time that it was stopped.
//! * *Where the SSD tells lies.* If it shows the clean superblock although it has confirmed a later one, the group behind the sweep is there,
//!   or one a round later at its place. Then, and if any page of the sweep is not as it should be, the start does without: it reads all
//!   of the ring, as after a kill. An image of the SSD that is put back as a whole is what it was. The host refuses it if it knows a later
//!   session.

use super::held::{SLOT_UNITS, is_base, units_said};
use super::recovery::{Expected, NewPages, Pager, Sink, count, is_ours, offset_of, runs_of};
use crate::medium::Medium;
use crate::mutants;
use crate::recovery::RecoveryReport;
use crate::superblock::{OpenError, PoolState};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use format::checkpoint::LogEnd;
use format::slots::{RingHead, RingPlace, Set, Statement};
use format::{LogStart, PAGE_BYTES, Superblock};
use types::{ShardIndex, VolumeId};

/// Pages of the ring that are read at once.
const CHUNK_PAGES: u64 = 256;

/// What a start may have to say beyond what the stop said, in pages: it may fill pages otherwise.
const PAGES_BEYOND: u64 = 2;

/// Says everything once more and calls the pool clean. All shards are at rest, and all they wrote is durable; `ends`: where their rings go on.
/// `all` gives what is in the slots of a shard, in the order of slots and places. False if a ring has no room for that: then nothing was
/// written, and the next start is as after a kill. Where nothing was said since the start, nothing is said again.
///
/// # Errors
/// What the medium says. The next start is as after a kill then.
pub fn write<'a>(
    medium: &mut dyn Medium,
    pool: &mut PoolState,
    ends: &[LogEnd],
    all: &dyn Fn(ShardIndex) -> Box<dyn Iterator<Item = Set> + 'a>,
) -> Result<bool, OpenError> {
    let superblock = &pool.superblock;
    assert_eq!(ends.len(), usize::from(superblock.layout.shards), "one end a shard");
    let ring_pages = u64::from(superblock.layout.ring_pages);
    let has_more = |(end, start): (&LogEnd, &LogStart)| end.next_group != start.first_group || end.tail_seq != start.first_seq;
    let shards = || (0..).map(ShardIndex).zip(ends.iter().zip(&superblock.log_starts));
    for (shard, (end, _)) in shards().filter(|(_, pair)| has_more(*pair)) {
        let (mut pages, mut sweep) = (1, Pager::new(all(shard)));
        while !sweep.fill() {
            pages += 1;
        }
        if end.next_group + 2 * pages + PAGES_BEYOND > end.tail_seq + ring_pages {
            return Ok(false);
        }
    }
    let mut ends_now: Vec<LogEnd> = Vec::new();
    for (shard, (end, start)) in shards() {
        let (first, mut next) = (end.next_group, start.first_group);
        if !has_more((end, start)) {
            ends_now.push(LogEnd { next_seq: start.first_seq, next_group: next, tail_seq: start.first_seq });
            continue;
        }
        let tail = if mutants::active(mutants::STOP_NAMES_TAIL_EARLY) { first } else { end.tail_seq };
        let sweep = NewPages { session: superblock.log_session, groups: first..end.tail_seq + ring_pages, tail };
        next = sweep.write(medium, superblock, shard, all(shard))? + 1;
        ends_now.push(LogEnd { next_seq: first, next_group: next, tail_seq: first });
    }
    if !mutants::active(mutants::CLEAN_STOP_UNFLUSHED) {
        pool.flush(medium)?;
    }
    pool.store_stopped(medium, &ends_now)?;
    Ok(true)
}

/// Reads what a clean stop has left of one shard: gives what its slots hold, and where the ring goes on. `None` if there was no clean stop, or
/// what it left is not as it should be: what was given until then must be forgotten, and all of the ring be read.
///
/// # Errors
/// What the medium says, [`OpenError::SuperblockOutdated`].
pub fn read(
    medium: &mut dyn Medium,
    superblock: &Superblock,
    shard: ShardIndex,
    sink: &mut dyn Sink,
) -> Result<Option<(LogEnd, RecoveryReport)>, OpenError> {
    let ring = superblock.ring(shard);
    let ring_pages = u64::from(ring.pages);
    let LogStart { first_seq: first, first_group: next, .. } = superblock.log_starts[usize::from(shard.0)];
    let has_sweep = superblock.clean && superblock.named_segments == superblock.layout.segments_per_shard;
    if !has_sweep || first >= next || next - first >= ring_pages {
        return Ok(None);
    }
    let mut sweep = Sweep { superblock, ring, behind: 0, known: None, objects: Vec::new(), report: report(next) };
    let part = Part { superblock, shard, groups: first..next };
    if let Some(expected) = part.expected(medium)? {
        sink.expect(expected);
    }
    let is_whole = part.read(medium, |page, group| sweep.take(page, shard, group, (group + 1 == next).then_some(first), sink))?;
    if !is_whole || !sweep.has_each_object_once() {
        return Ok(None);
    }
    // If the ring went on, it is here.
    let page = &mut vec![0; PAGE_BYTES][..];
    medium.read(offset_of(superblock, shard, ring.page_of(next)), page)?;
    if let Ok(head) = RingHead::decode_each(page.as_chunks::<PAGE_BYTES>().0.first().expect("a page"), |_| ())
        && is_ours(&head, superblock, shard, false)?
        && head.session == superblock.log_session
        && head.group >= next
        && !mutants::active(mutants::STAYS_CLEAN)
    {
        return Ok(None);
    }
    Ok(Some((LogEnd { next_seq: first, next_group: next, tail_seq: first }, sweep.report)))
}

/// Pages of a sweep that show whether anything is packed.
const PAGES_LOOKED_AT: u64 = 16;

/// The pages of a sweep.
#[derive(Clone)]
struct Part<'a> {
    superblock: &'a Superblock,
    shard: ShardIndex,
    groups: Range<u64>,
}

impl Part<'_> {
    /// Gives each page with its number, until one is refused. Whether none was.
    fn read(
        &self,
        medium: &mut dyn Medium,
        mut take: impl FnMut(&[u8; PAGE_BYTES], u64) -> Result<bool, OpenError>,
    ) -> Result<bool, OpenError> {
        let ring = self.superblock.ring(self.shard);
        let ring_pages = u64::from(ring.pages);
        let mut buffer = vec![0; (self.groups.end - self.groups.start).min(CHUNK_PAGES) as usize * PAGE_BYTES];
        let mut group = self.groups.start;
        while group < self.groups.end {
            let place = group % ring_pages;
            let pages = (self.groups.end - group).min(ring_pages - place).min(CHUNK_PAGES);
            for (at, run) in runs_of(&self.superblock.layout, ring.page_of(group), &mut buffer[..pages as usize * PAGE_BYTES]) {
                medium.read(offset_of(self.superblock, self.shard, at), run)?;
                for page in run.as_chunks::<PAGE_BYTES>().0 {
                    if !take(page, group)? {
                        return Ok(false);
                    }
                    group += 1;
                }
            }
        }
        Ok(true)
    }

    /// How much the pages say of, if some of it is packed, as a few of them show. Reading all twice takes less than tables that grow many times.
    fn expected(&self, medium: &mut dyn Medium) -> Result<Option<Expected>, OpenError> {
        let (mut expected, mut has_packed) = (Expected::default(), false);
        // A page that is none is told when it is read for good.
        let look = |page: &[u8; PAGE_BYTES], expected: &mut Expected| {
            let mut has_packed = false;
            let _ = RingHead::decode_each(page, |statement| {
                if let Statement::Set(set) = statement {
                    expected.add(set);
                    has_packed |= set.stored.is_some();
                }
            });
            has_packed
        };
        let Range { start, end } = self.groups;
        for nth in 0..PAGES_LOOKED_AT {
            let group = start + (end - 1 - start) * nth / (PAGES_LOOKED_AT - 1);
            let part = Part { groups: group..group + 1, ..self.clone() };
            part.read(medium, |page, _| {
                has_packed |= look(page, &mut Expected::default());
                Ok(true)
            })?;
        }
        if has_packed {
            self.read(medium, |page, _| {
                look(page, &mut expected);
                Ok(true)
            })?;
        }
        Ok(has_packed.then_some(expected))
    }
}

fn report(next: u64) -> RecoveryReport {
    RecoveryReport { after_clean_stop: true, durable_group: next - 1, ..RecoveryReport::default() }
}

/// A sweep while it is read.
struct Sweep<'a> {
    superblock: &'a Superblock,
    ring: RingPlace,
    /// All that was said lies before this unit of the slots.
    behind: u64,
    /// The volume met last, if it is known.
    known: Option<VolumeId>,
    /// Of packed payloads that stand by themselves.
    objects: Vec<u64>,
    report: RecoveryReport,
}

impl Sweep<'_> {
    /// A page; `last_names`: it is the last one, and names this tail. False if it is none of the sweep.
    fn take(
        &mut self,
        page: &[u8; PAGE_BYTES],
        shard: ShardIndex,
        group: u64,
        last_names: Option<u64>,
        sink: &mut dyn Sink,
    ) -> Result<bool, OpenError> {
        let mut is_sound = true;
        let decoded = RingHead::decode_each(page, |statement| {
            is_sound = is_sound && self.says(statement);
            if let (true, Statement::Set(set)) = (is_sound, statement) {
                count(&mut self.report, set);
                self.report.records += 1;
                sink.take(set);
            }
        });
        let Ok(head) = decoded else { return Ok(false) };
        self.report.groups += 1;
        let is_of_it = head.session == self.superblock.log_session && head.group == group;
        Ok(is_sound && is_ours(&head, self.superblock, shard, false)? && is_of_it && last_names.is_none_or(|tail| head.tail == tail))
    }

    /// Whether a sweep of a clean stop says that, behind what it said before.
    fn says(&mut self, statement: &Statement) -> bool {
        let Statement::Set(set) = statement else { return false };
        let Some(units) = units_said(set, self.superblock.layout.pages_per_segment()) else { return false };
        if !set.settled || set.old.is_some() || units.start < self.behind || set.slot >= self.superblock.layout.slots_per_shard() {
            return false;
        }
        if self.ring.contains(set.slot) || self.ring.contains(((units.end - 1) / SLOT_UNITS) as u32) {
            return false;
        }
        self.behind = units.end;
        if let Some(stored) = set.stored.filter(|stored| stored.encoding.is_full()) {
            self.objects.push(stored.object);
        }
        if !is_base(set) && self.known != Some(set.volume) {
            self.known = self.superblock.volume(set.volume).map(|volume| volume.id);
            return self.known.is_some();
        }
        true
    }

    fn has_each_object_once(&mut self) -> bool {
        self.objects.sort_unstable();
        self.objects.array_windows().all(|[one, other]| one != other)
    }
}
