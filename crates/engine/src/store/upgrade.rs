//! From a log of segments to slots, in place: what a shard's log holds is stated in a ring, and all pages stay where they are.
//!
//! A page of a log is a slot of the same number. So a block that is stored as a page needs a statement and nothing else. Packed payloads begin
//! at any 16 bytes of a segment, and in slots at any 64: they are copied, verbatim, side by side. Headers and footers become free.
//!
//! The rules:
//! - Until the one store of the superblock that makes it a pool with slots it is the log that it was: nothing is written but to segments that
//!   the log calls free. What is free is so durably, before the first write: the log begins a session, as with any start.
//! - The ring lies in free segments, side by side. If there are not so many, the tail of the log passes its oldest segments, as far as they
//!   hold nothing that dirty blocks need. What the log forgets with that is not forgotten by the upgrade where its pages are still there.
//! - Packed payloads are copied into free segments beside the ring, for which the tail passes more. Of those that find no room the
//!   oldest are forgotten; if one is dirty, or dirty blocks rest on it, the log stays a log ([`UpgradeError::Dirty`]).
//! - What was written is read back as a start reads it, before the superblock is stored.
//!
//! Blocks that are lost, or rot, stay so: reading them is the error, or the miss, that it was.

use super::recovery::{self, Recovered, RecoveredBase, RecoveredItem, RecoveredRecord, RecoveryReport};
use super::slots;
use super::slots::recovery::NewPages;
use crate::medium::{Medium, MediumError};
use crate::superblock::{OpenError, PoolState};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use format::checkpoint::LogEnd;
use format::packed::PAGE_UNITS;
use format::slots::statement::{PLACE_BYTES, Stored, UNIT_BYTES};
use format::slots::{RingPlace, Set};
use format::{Encoding, Layout, LogStart, PAGE_BYTES, Packed, Superblock};
use types::{ShardIndex, VolumeId};

/// The tail of a log passes one in so many segments at a time, until there is room.
const TAIL_STEPS: usize = 64;

/// Why a pool stays a log.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UpgradeError {
    /// The log cannot be read, or the pool not be written.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// There is nothing to upgrade.
    #[error("the pool's blocks lie in slots already")]
    HasSlots,
    /// A volume may have lost dirty data.
    #[error("volume {name:?} may have lost dirty data in earlier damage")]
    DamagedVolume {
        /// Its name.
        name: String,
    },
    /// Parts of the log are missing, or cannot be read.
    #[error("the log of shard {shard} is damaged")]
    DamagedLog {
        /// Which one.
        shard: u16,
    },
    /// The segments that are free, or would be without clean blocks, are too few.
    #[error("dirty data takes the room that the upgrade needs in shard {shard}")]
    Dirty {
        /// The first shard of which that is so.
        shard: u16,
    },
    /// The log, or what was written, is read in another way than before.
    #[error(
        "the SSD does not give back what is on it: what shard {shard} has was read twice, and was not the same; the pool is what it was"
    )]
    NotAsWritten {
        /// Which one.
        shard: u16,
    },
}

impl From<MediumError> for UpgradeError {
    fn from(error: MediumError) -> UpgradeError {
        UpgradeError::Open(error.into())
    }
}

/// A packed record, and where it comes from.
#[derive(Clone, Copy, Debug)]
struct Source {
    /// As it will be said; the slot and the place in it are given when it is laid down.
    set: Set,
    /// The segment of the log.
    seq: u64,
    /// Where the payload begins there, in units of 16 bytes.
    place: u32,
}

impl Source {
    fn stored(&self) -> Stored {
        self.set.stored.expect("a packed record")
    }

    /// A page that stays where it is.
    fn is_page(&self) -> bool {
        self.stored().encoding == Encoding::Raw
    }

    /// What it is, if others may rest on it.
    fn object(&self) -> Option<u64> {
        Some(self.stored()).filter(|stored| stored.encoding.is_full()).map(|stored| stored.object)
    }

    fn rests_on(&self) -> Option<u64> {
        Some(self.stored()).filter(|stored| stored.encoding.rests_on_base()).map(|stored| stored.object)
    }
}

/// What a shard's log holds.
struct Held {
    plain: Vec<Set>,
    /// In the order of the log.
    packed: Vec<Source>,
    /// Segments with anything in them, ascending.
    segments: Vec<u64>,
    /// The first segment that dirty blocks need; the log's end, if they need none.
    needed_from: u64,
    /// Objects that dirty blocks rest on.
    vital: BTreeSet<u64>,
    end: LogEnd,
}

/// What the upgrade of one shard comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outlook {
    /// Where the log is to begin and end, durably, before anything is written.
    pub end: LogEnd,
    /// There are packed records: all rings of the pool must be long enough for them.
    pub has_packed: bool,
    /// Where the ring will lie.
    pub ring: RingPlace,
    /// Blocks that are carried over.
    pub blocks: u64,
    /// Of them, dirty ones.
    pub dirty_blocks: u64,
    /// Clean blocks that are forgotten: they are where the ring will be, or there is no room for a copy.
    pub forgotten_blocks: u64,
    /// Bytes of packed payloads that are copied.
    pub copied_bytes: u64,
}

/// How the log of one shard becomes slots. Nothing was written for it yet.
struct Plan {
    outlook: Outlook,
    shard: ShardIndex,
    layout: Layout,
    /// In the order of slots and places.
    sets: Vec<Set>,
    /// Payloads to be copied, in the order of the places that they get.
    copies: Vec<Copied>,
}

/// A payload to be copied.
#[derive(Clone, Copy, Debug)]
struct Copied {
    source: Source,
    /// In bytes, from the beginning of the shard's part.
    to_bytes: u64,
    /// It must not be lost.
    needed: bool,
}

/// What can be said before any log is read.
///
/// # Errors
/// [`UpgradeError`], with what is to be done.
pub fn check(state: &PoolState) -> Result<(), UpgradeError> {
    let superblock = &state.superblock;
    if superblock.layout.has_slots() {
        return Err(UpgradeError::HasSlots);
    }
    state.check_logs()?;
    if let Some(volume) = superblock.volumes.iter().find(|volume| volume.damaged) {
        return Err(UpgradeError::DamagedVolume { name: volume.name.clone() });
    }
    // The longer ring: whether it is needed is not known yet.
    Ok(superblock.layout.upgraded(true).check().map_err(OpenError::from)?)
}

/// What an upgrade would come to, shard by shard. Nothing is written. `packs`: blocks are to be packed.
///
/// # Errors
/// [`UpgradeError`].
pub fn look(medium: &mut dyn Medium, state: &PoolState, packs: bool) -> Result<Vec<Outlook>, UpgradeError> {
    check(state)?;
    Ok(outlooks(&state.superblock, packs, |shard, layout| survey(medium, &state.superblock, shard, layout))?.1)
}

/// Makes the log a pool with slots. No shard of it may run. `packs`: blocks are to be packed.
///
/// # Errors
/// [`UpgradeError`]; the pool must be loaded anew then. It is the log that it was, but for clean blocks of its oldest segments; only if the
/// store of the superblock fails, it may be what it was to become.
pub fn upgrade(medium: &mut dyn Medium, state: &mut PoolState, packs: bool) -> Result<Vec<Outlook>, UpgradeError> {
    check(state)?;
    let found = state.superblock.clone();
    let (layout, outlooks) = outlooks(&found, packs, |shard, layout| seal(medium, state, shard, layout))?;
    // From here on all that is not between these ends is free, whatever happens.
    let ends: Vec<LogEnd> = outlooks.iter().map(|outlook| outlook.end).collect();
    state.begin_session(medium, &ends, &[])?;
    let log_starts = outlooks.iter().map(|outlook| LogStart { ring_first: outlook.ring.first, ..LogStart::EMPTY }).collect();
    let mut upgraded = Superblock { layout, log_session: state.superblock.session, log_starts, ..state.superblock.clone() };
    for (shard, outlook) in (0..).map(ShardIndex).zip(&outlooks) {
        // As it was found: what the log forgets now need not be forgotten.
        let plan = survey(medium, &found, shard, layout)?;
        if plan.outlook != *outlook {
            return Err(UpgradeError::NotAsWritten { shard: shard.0 });
        }
        upgraded.log_starts[usize::from(shard.0)].first_group = plan.carry_out(medium, &upgraded)?;
        plan.read_back(medium, &upgraded)?;
    }
    state.become_slots(medium, upgraded)?;
    Ok(outlooks)
}

/// The plans of all shards, by turns, and the layout that they are for: all rings have one length.
fn outlooks(
    log: &Superblock,
    packs: bool,
    mut plan: impl FnMut(ShardIndex, Layout) -> Result<Plan, UpgradeError>,
) -> Result<(Layout, Vec<Outlook>), UpgradeError> {
    let mut of = |layout| (0..log.layout.shards).map(|shard| Ok(plan(ShardIndex(shard), layout)?.outlook)).collect();
    let layout = log.layout.upgraded(packs);
    let outlooks: Result<Vec<Outlook>, UpgradeError> = of(layout);
    if !packs && !outlooks.as_ref().is_ok_and(|outlooks| outlooks.iter().all(|outlook| !outlook.has_packed)) {
        let layout = log.layout.upgraded(true);
        return Ok((layout, of(layout)?));
    }
    Ok((layout, outlooks?))
}

/// Reads a log and seals it, as a start does; sees how it can be upgraded to that layout.
fn seal(medium: &mut dyn Medium, state: &PoolState, shard: ShardIndex, layout: Layout) -> Result<Plan, UpgradeError> {
    let (mut held, of_log) = (Held::new(), &state.superblock.layout);
    let recovered = recovery::recover(medium, &mut state.clone(), shard, false, &mut |item| held.add(of_log, &item))?;
    held.plan_if_whole(&recovered, layout, shard)
}

/// The same, and nothing is written.
fn survey(medium: &mut dyn Medium, superblock: &Superblock, shard: ShardIndex, layout: Layout) -> Result<Plan, UpgradeError> {
    let mut held = Held::new();
    let surveyed = recovery::survey(medium, superblock, shard, &mut |item| held.add(&superblock.layout, &item))?;
    held.plan_if_whole(&surveyed.recovery, layout, shard)
}

impl Plan {
    /// Writes the ring of the shard, and copies what is packed, all of it where the log has nothing. `superblock` is the one that the pool is to
    /// have. Gives the number of the group behind the last one. Not flushed.
    fn carry_out(&self, medium: &mut dyn Medium, superblock: &Superblock) -> Result<u64, UpgradeError> {
        self.copy(medium)?;
        let tail = superblock.log_starts[usize::from(self.shard.0)].first_seq;
        let pages = NewPages { session: superblock.log_session, groups: tail..tail + u64::from(self.outlook.ring.pages), tail };
        Ok(pages.write(medium, superblock, self.shard, self.sets.iter().copied())? + 1)
    }

    /// Whether a start would find what the plan says, `superblock` being the one that is about to be stored.
    fn read_back(&self, medium: &mut dyn Medium, superblock: &Superblock) -> Result<(), UpgradeError> {
        let (mut sets, mut all_same) = (self.sets.iter(), true);
        let mut sink = |found: &Set| all_same &= sets.next().is_some_and(|set| *found == Set { settled: true, ..*set });
        let (_, report) = slots::recovery::survey(medium, superblock, self.shard, &mut sink)?;
        let is_same = all_same && sets.next().is_none() && report.damaged_places == 0 && report.unreadable_pages == 0;
        if is_same { Ok(()) } else { Err(UpgradeError::NotAsWritten { shard: self.shard.0 }) }
    }

    fn copy(&self, medium: &mut dyn Medium) -> Result<(), UpgradeError> {
        let segment_bytes = u64::from(self.layout.segment_bytes);
        let begin = self.layout.segment_offset(self.shard, 0);
        let mut from = Segment::default();
        // Places are given segment by segment.
        for of_segment in self.copies.chunk_by(|one, other| one.to_bytes / segment_bytes == other.to_bytes / segment_bytes) {
            let segment_at = of_segment[0].to_bytes / segment_bytes * segment_bytes;
            let mut bytes = vec![0; segment_bytes as usize];
            let mut used = vec![false; segment_bytes as usize / PAGE_BYTES];
            for copied in of_segment {
                let Source { seq, place, .. } = copied.source;
                let (at, length) = ((copied.to_bytes - segment_at) as usize, usize::from(copied.source.stored().bytes));
                from.read(medium, &self.layout, self.shard, seq)?;
                let payload = from.payload(place as usize * UNIT_BYTES, length, copied.needed)?;
                bytes[at..at + length].copy_from_slice(payload);
                used[at / PAGE_BYTES..(at + length).div_ceil(PAGE_BYTES)].fill(true);
            }
            let mut page = 0;
            for run in used.chunk_by(|one, other| one == other) {
                if run[0] {
                    let at = page * PAGE_BYTES;
                    medium.write(begin + segment_at + at as u64, &bytes[at..at + run.len() * PAGE_BYTES])?;
                }
                page += run.len();
            }
        }
        Ok(())
    }
}

/// A segment of the log, read as a whole.
#[derive(Default)]
struct Segment {
    seq: u64,
    bytes: Vec<u8>,
    /// Pages that could not be read, and why not.
    unread: BTreeMap<usize, MediumError>,
}

impl Segment {
    fn read(&mut self, medium: &mut dyn Medium, layout: &Layout, shard: ShardIndex, seq: u64) -> Result<(), UpgradeError> {
        if self.seq == seq {
            return Ok(());
        }
        let offset_bytes = layout.segment_offset(shard, layout.physical(seq));
        (self.seq, self.unread) = (seq, BTreeMap::new());
        self.bytes.resize(layout.segment_bytes as usize, 0);
        if medium.read(offset_bytes, &mut self.bytes).is_err() {
            for (nth, page) in self.bytes.chunks_exact_mut(PAGE_BYTES).enumerate() {
                if let Err(error) = medium.read(offset_bytes + (nth * PAGE_BYTES) as u64, page) {
                    page.fill(0);
                    self.unread.insert(nth, error);
                }
            }
        }
        Ok(())
    }

    /// A payload. Of one that is clean what cannot be read is zero: it does not match its checksum then, and is a miss.
    fn payload(&self, at: usize, length: usize, needed: bool) -> Result<&[u8], UpgradeError> {
        let mut unread = self.unread.range(at / PAGE_BYTES..(at + length).div_ceil(PAGE_BYTES));
        match unread.next() {
            Some((_, error)) if needed => Err((*error).into()),
            _ => Ok(&self.bytes[at..at + length]),
        }
    }
}

impl Held {
    fn new() -> Held {
        let end = LogEnd { next_seq: 1, next_group: 1, tail_seq: 1 };
        Held { plain: Vec::new(), packed: Vec::new(), segments: Vec::new(), needed_from: u64::MAX, vital: BTreeSet::new(), end }
    }

    /// Takes in what recovery gives.
    fn add(&mut self, layout: &Layout, item: &RecoveredItem) {
        let (seq, first_slot) = (item.segment_seq(), layout.slot(layout.physical(item.segment_seq()), 0));
        if self.segments.last() != Some(&seq) {
            self.segments.push(seq);
        }
        let (volume, block, mask, dirty, checksum) = match *item {
            RecoveredItem::Block(RecoveredRecord { volume, block, mask, dirty, checksum, .. }) => (volume, block, mask, dirty, checksum),
            RecoveredItem::Base(RecoveredBase { checksum, .. }) => (VolumeId(0), 0, u8::MAX, false, checksum),
        };
        let set = Set { volume, block, mask, dirty, settled: true, lost: false, vital: false, checksum, slot: 0, old: None, stored: None };
        let Some(Packed { encoding, place, bytes, object, vital }) = item.stored() else {
            self.plain.push(Set { slot: first_slot + item.ordinal(), ..set });
            self.needed_from = if dirty { self.needed_from.min(seq) } else { self.needed_from };
            return;
        };
        let lost = encoding == Encoding::Lost;
        if lost && !dirty {
            // What is lost and came home after all is a miss.
            return;
        }
        let slot = if encoding == Encoding::Raw { first_slot + place / PAGE_UNITS } else { 0 };
        let stored = Some(Stored { encoding, object, bytes, unit: 0 });
        let source = Source { set: Set { lost, vital, slot, stored, ..set }, seq, place };
        if dirty {
            self.needed_from = self.needed_from.min(seq);
            self.vital.extend(source.rests_on());
        }
        self.packed.push(source);
    }

    /// All was given: the plan, if that can be.
    fn plan_if_whole(mut self, recovered: &Recovered, layout: Layout, shard: ShardIndex) -> Result<Plan, UpgradeError> {
        let RecoveryReport { damaged_places, unreadable_pages, .. } = recovered.report;
        if damaged_places > 0 || unreadable_pages > 0 {
            return Err(UpgradeError::DamagedLog { shard: shard.0 });
        }
        self.is_complete(recovered.end);
        self.plan(layout, shard).ok_or(UpgradeError::Dirty { shard: shard.0 })
    }

    fn is_complete(&mut self, end: LogEnd) {
        self.end = end;
        let is_vital = |source: &&Source| source.object().is_some_and(|object| self.vital.contains(&object));
        let of_bases = self.packed.iter().filter(is_vital).map(|source| source.seq).min();
        self.needed_from = self.needed_from.min(of_bases.unwrap_or(u64::MAX)).min(end.next_seq);
    }

    fn is_needed(&self, source: &Source) -> bool {
        source.set.dirty || source.object().is_some_and(|object| self.vital.contains(&object))
    }

    /// The plan that keeps most, with the tail as far back as that allows. `None` if what dirty blocks need has no room in any.
    fn plan(self, layout: Layout, shard: ShardIndex) -> Option<Plan> {
        // Segments where the log may begin: none that lies in a hole, and none behind what dirty blocks need.
        let begins = self.segments.iter().copied().chain([self.end.next_seq]);
        let begins: Vec<u64> = begins.filter(|seq| (self.end.tail_seq + 1..=self.needed_from).contains(seq)).collect();
        let step = begins.len().div_ceil(TAIL_STEPS).max(1);
        let tried =
            [self.end.tail_seq].into_iter().chain(begins.iter().copied().skip(step - 1).step_by(step)).chain(begins.last().copied());
        let mut best: Option<(u64, Laid)> = None;
        for tail_seq in tried {
            let Some(laid) = self.lay(&layout, tail_seq) else { continue };
            let has_all = laid.has_all;
            if best.as_ref().is_none_or(|(_, other)| other.records < laid.records) {
                best = Some((tail_seq, laid));
            }
            if has_all {
                break;
            }
        }
        let (tail_seq, laid) = best?;
        Some(self.finish(layout, shard, tail_seq, laid))
    }

    /// Where everything goes if the log begins with that segment. `None` if there is no room for the ring, or for what dirty blocks need.
    fn lay(&self, layout: &Layout, tail_seq: u64) -> Option<Laid> {
        let free = Free::of(layout, tail_seq, self.end.next_seq);
        let ring = free.ring(layout)?;
        let mut taken = Bits::of(layout.slots_per_shard());
        let pages = self.packed.iter().filter(|source| source.is_page()).map(|source| source.set.slot);
        self.plain.iter().map(|set| set.slot).chain(pages).filter(|slot| !ring.contains(*slot)).for_each(|slot| taken.set(slot));
        let mut bins = Bins { runs: free.runs(layout, ring, &taken), at: 0, used_bytes: 0 };
        let records_max = slots::packed_records_max(layout);
        let mut places = vec![None; self.packed.len()];
        let (mut records, mut has_all) = (0, true);
        // What must not be lost first, then what was written last.
        for wanted in [true, false] {
            let of_one_segment = self.packed.chunk_by(|one, other| one.seq == other.seq);
            let mut end = self.packed.len();
            for sources in of_one_segment.rev() {
                let first = end - sources.len();
                end = first;
                for (at, source) in (first..).zip(sources).filter(|(_, source)| self.is_needed(source) == wanted) {
                    let slot = source.set.slot;
                    let is_there = match source.is_page() {
                        true => !ring.contains(slot),
                        false => source.seq >= tail_seq || !source.stored().encoding.has_packed_payload(),
                    };
                    if !is_there {
                        continue;
                    }
                    let place = match source.is_page() {
                        _ if records >= records_max => None,
                        true => Some(u64::from(slot) * PAGE_BYTES as u64),
                        false => bins.lay(usize::from(source.stored().bytes)),
                    };
                    if wanted && place.is_none() {
                        return None;
                    }
                    records += u64::from(place.is_some());
                    has_all &= place.is_some();
                    places[at] = place;
                }
            }
        }
        Some(Laid { ring, places, records, has_all })
    }

    fn finish(self, layout: Layout, shard: ShardIndex, tail_seq: u64, laid: Laid) -> Plan {
        let Laid { ring, places, .. } = laid;
        let slot_bytes = PAGE_BYTES as u64;
        let is_block = |set: &Set| set.volume != VolumeId(0);
        let blocks_found = self.plain.len() + self.packed.iter().filter(|source| is_block(&source.set)).count();
        let mut packed: Vec<(Set, Option<Copied>)> = Vec::with_capacity(self.packed.len());
        for (source, to_bytes) in self.packed.iter().zip(&places) {
            let Some(to_bytes) = *to_bytes else { continue };
            let unit = (to_bytes % slot_bytes / UNIT_BYTES as u64) as u8;
            let set = Set { slot: (to_bytes / slot_bytes) as u32, stored: Some(Stored { unit, ..source.stored() }), ..source.set };
            let copied = Copied { source: *source, to_bytes, needed: self.is_needed(source) };
            packed.push((set, Some(copied).filter(|_| source.stored().encoding.has_packed_payload())));
        }
        keep_what_has_its_base(&mut packed);
        packed.sort_unstable_by_key(|(set, _)| (set.slot, set.stored.map(|stored| stored.unit)));
        let copies: Vec<Copied> = packed.iter().filter_map(|(_, copied)| *copied).collect();
        let has_packed = !self.packed.is_empty();
        let mut sets = self.plain;
        sets.retain(|set| !ring.contains(set.slot));
        sets.extend(packed.into_iter().map(|(set, _)| set));
        sets.sort_unstable_by_key(|set| (set.slot, set.stored.map(|stored| stored.unit)));
        let blocks = sets.iter().filter(|set| is_block(set)).count() as u64;
        let outlook = Outlook {
            end: LogEnd { tail_seq, ..self.end },
            has_packed,
            ring,
            blocks,
            dirty_blocks: sets.iter().filter(|set| set.dirty).count() as u64,
            forgotten_blocks: blocks_found as u64 - blocks,
            copied_bytes: copies.iter().map(|copied| u64::from(copied.source.stored().bytes)).sum(),
        };
        Plan { outlook, shard, layout, sets, copies }
    }
}

/// Forgets clean blocks whose base is not there, and then objects without a block on which nothing rests.
fn keep_what_has_its_base(packed: &mut Vec<(Set, Option<Copied>)>) {
    let stored = |set: &Set| set.stored.expect("a packed record");
    let full = packed.iter().filter(|(set, _)| stored(set).encoding.is_full());
    let objects: BTreeSet<u64> = full.map(|(set, _)| stored(set).object).collect();
    let has_base = |set: &Set| !stored(set).encoding.rests_on_base() || objects.contains(&stored(set).object);
    packed.retain(|(set, _)| set.dirty || has_base(set));
    let resting = packed.iter().filter(|(set, _)| stored(set).encoding.rests_on_base());
    let rested_on: BTreeSet<u64> = resting.map(|(set, _)| stored(set).object).collect();
    packed.retain(|(set, _)| set.volume != VolumeId(0) || rested_on.contains(&stored(set).object));
}

/// Where everything goes.
struct Laid {
    ring: RingPlace,
    /// Of each packed record: its place, in bytes from the beginning of the shard's part.
    places: Vec<Option<u64>>,
    /// How many have one.
    records: u64,
    /// All have one that are still there.
    has_all: bool,
}

/// Segments of the shard's part that are free: from one on, round the end of the part.
struct Free {
    first: u32,
    count: u32,
}

impl Free {
    /// Those of a log from `tail_seq` up to `next_seq`, from the one that would be written next: what was given up last is last.
    fn of(layout: &Layout, tail_seq: u64, next_seq: u64) -> Free {
        Free { first: layout.physical(next_seq), count: layout.segments_per_shard - (next_seq - tail_seq) as u32 }
    }

    /// A place for the ring: the first segments that lie side by side.
    fn ring(&self, layout: &Layout) -> Option<RingPlace> {
        let wanted = layout.ring_pages.div_ceil(layout.pages_per_segment());
        let to_end = (layout.segments_per_shard - self.first).min(self.count);
        let (first, found) = if to_end >= wanted { (self.first, to_end) } else { (0, self.count - to_end) };
        (found >= wanted).then(|| RingPlace { first: layout.slot(first, 0), pages: layout.ring_pages })
    }

    /// Pages side by side for payloads. Not those of headers and footers, whatever happens there: a start of the log that looks there for
    /// headers must not find the data of clients.
    fn runs(&self, layout: &Layout, ring: RingPlace, taken: &Bits) -> Vec<(u32, u32)> {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        let physical = (0..self.count).map(|nth| (self.first + nth) % layout.segments_per_shard);
        for segment in physical {
            let mut last = None;
            for slot in (1..layout.group_pages()).map(|page| layout.slot(segment, page)) {
                if ring.contains(slot) || taken.get(slot) {
                    continue;
                }
                match runs.last_mut().filter(|_| slot.checked_sub(1) == last) {
                    Some((_, pages)) => *pages += 1,
                    None => runs.push((slot, 1)),
                }
                last = Some(slot);
            }
        }
        runs
    }
}

/// Where packed payloads are laid side by side.
struct Bins {
    runs: Vec<(u32, u32)>,
    /// The run that is filled, and how far it is.
    at: usize,
    used_bytes: usize,
}

impl Bins {
    /// A place for a payload, in bytes from the beginning of the shard's part. What has no payload has a place, too.
    fn lay(&mut self, bytes: usize) -> Option<u64> {
        let length = bytes.max(1).next_multiple_of(PLACE_BYTES);
        loop {
            let (slot, pages) = *self.runs.get(self.at)?;
            if self.used_bytes + length <= pages as usize * PAGE_BYTES {
                let place = u64::from(slot) * PAGE_BYTES as u64 + self.used_bytes as u64;
                self.used_bytes += length;
                return Some(place);
            }
            (self.at, self.used_bytes) = (self.at + 1, 0);
        }
    }
}

/// One bit a slot.
struct Bits(Vec<u64>);

impl Bits {
    fn of(slots: u32) -> Bits {
        Bits(vec![0; slots.div_ceil(u64::BITS) as usize])
    }

    fn set(&mut self, slot: u32) {
        self.0[(slot / u64::BITS) as usize] |= 1 << (slot % u64::BITS);
    }

    fn get(&self, slot: u32) -> bool {
        self.0[(slot / u64::BITS) as usize] >> (slot % u64::BITS) & 1 != 0
    }
}
