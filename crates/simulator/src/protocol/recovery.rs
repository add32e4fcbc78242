//! Crashes, what a start makes of what they leave, and what the oracle says to that.

use super::medium::{Content, Medium, RingPage, Statement, Write};
use super::writer::{Entry, World, redo};
use super::{BLOCKS, Harm, Mistake, SLOTS};
use std::collections::BTreeMap;

/// A recovery is interrupted at most so often.
const INTERRUPTED_MAX: u32 = 3;

/// What is under way ends after so many rounds, or there is no clean stop.
const ROUNDS_MAX: u32 = 300;

/// What the statements from the tail to a group say of a block.
#[derive(Clone, Copy, Debug)]
struct Found {
    slot: usize,
    version: u64,
    dirty: bool,
    group: u64,
    settled: bool,
}

/// Of each block, where it was found.
type Places = [Option<Found>; BLOCKS];

/// The valid pages by group, and the highest segment among them.
struct Log {
    pages: BTreeMap<u64, (usize, RingPage)>,
    last_segment: usize,
    durable: u64,
}

impl World {
    /// The process is killed, or power fails; then a start.
    pub fn crash(&mut self) -> Result<(), Harm> {
        if self.stops && self.prng.below(2) == 0 {
            self.clean_stop()?;
        }
        self.totals.crashes += 1;
        let mut power = self.prng.below(2) == 0;
        let mut volatile = Vec::new();
        for write in std::mem::take(&mut self.writes) {
            // What was under way may have arrived.
            if write.done || self.prng.below(2) == 0 {
                volatile.push(write);
            }
        }
        if power {
            self.power_fails(&mut volatile);
        }
        for attempt in 0.. {
            if self.start(&mut volatile, &mut power, attempt < INTERRUPTED_MAX)? {
                break;
            }
            self.totals.interrupted += 1;
        }
        Ok(())
    }

    fn power_fails(&mut self, volatile: &mut Vec<Write>) {
        self.medium.cut(volatile, &mut self.prng);
        self.backing.cut(&mut self.prng);
    }

    /// Whether this recovery ends here, by a kill or because power fails.
    fn is_interrupted(&mut self, volatile: &mut Vec<Write>, power: &mut bool, may: bool) -> bool {
        if !may || self.prng.below(4) != 0 {
            return false;
        }
        if self.prng.below(2) == 0 {
            self.power_fails(volatile);
            *power = true;
        }
        true
    }

    /// False if it was interrupted.
    fn start(&mut self, volatile: &mut Vec<Write>, power: &mut bool, may_end: bool) -> Result<bool, Harm> {
        let view = seen(&self.medium, volatile);
        if let Some((found, head)) = self.read_last_sweep(&view)? {
            if self.is_interrupted(volatile, power, may_end) {
                return Ok(false);
            }
            self.superblock.session += 1;
            if self.is_interrupted(volatile, power, may_end) {
                return Ok(false);
            }
            self.superblock.clean = self.makes(Mistake::StaysClean);
            if self.is_interrupted(volatile, power, may_end) {
                return Ok(false);
            }
            self.totals.sweeps_read += 1;
            flush(&mut self.medium, volatile);
            let kept = self.judge(&found, *power)?;
            let superblock = self.superblock;
            self.begin_life(superblock.first_segment, head, superblock.durable, &kept);
            return Ok(true);
        }
        let log = self.read(&view)?;
        let (end, mut found) = self.choose(&view, &log)?;
        // Of clean blocks a start need not look at the payload: whoever reads one does, and forgets it by a statement.
        if !self.makes(Mistake::BadCopyForgottenSilently) {
            for (block, place) in found.iter_mut().enumerate() {
                *place = place.filter(|found| found.dirty || view.slots[found.slot].is(block, found.version));
            }
        }
        if self.is_interrupted(volatile, power, may_end) {
            return Ok(false);
        }
        let session = if self.makes(Mistake::SessionTwice) { self.superblock.log_session + 1 } else { self.superblock.session + 1 };
        self.superblock.session = self.superblock.session.max(session);
        if self.is_interrupted(volatile, power, may_end) {
            return Ok(false);
        }
        let (sweep, head, last_group) = self.whole_sweep(session, log.last_segment + 1, end + 1, &found);
        if may_end && self.prng.below(4) == 0 {
            // In the middle of it.
            volatile.extend(sweep.into_iter().filter(|_| self.prng.below(2) == 0));
            if self.prng.below(2) == 0 {
                self.power_fails(volatile);
                *power = true;
            }
            return Ok(false);
        }
        volatile.extend(sweep);
        // Of what was found, too: from here on nobody checks it again.
        if !self.makes(Mistake::SuperblockBeforeFlush) {
            flush(&mut self.medium, volatile);
        }
        if self.is_interrupted(volatile, power, may_end) {
            return Ok(false);
        }
        let first = log.last_segment + 1;
        (self.superblock.log_session, self.superblock.clean) = (session, false);
        (self.superblock.first_segment, self.superblock.first_group, self.superblock.durable) = (first, end + 1, last_group);
        if self.is_interrupted(volatile, power, may_end) {
            return Ok(false);
        }
        flush(&mut self.medium, volatile);
        let kept = self.judge(&found, *power)?;
        self.begin_life(first, head, last_group, &kept);
        Ok(true)
    }

    /// The pages that count.
    fn read(&self, view: &Medium) -> Result<Log, Harm> {
        let superblock = &self.superblock;
        let mut log = Log { pages: BTreeMap::new(), last_segment: superblock.first_segment - 1, durable: superblock.durable };
        for (at, page) in view.ring.iter().enumerate() {
            let counts = page.group >= superblock.first_group
                && page.session == superblock.log_session
                && page.segment >= superblock.first_segment
                && page.group > 0;
            if !counts {
                continue;
            }
            log.durable = log.durable.max(page.durable);
            log.last_segment = log.last_segment.max(page.segment);
            if log.pages.insert(page.group, (at, page.clone())).is_some() {
                return Err(Harm::GroupTwice);
            }
        }
        Ok(log)
    }

    /// The last group that may be the end, and where blocks are then.
    fn choose(&self, view: &Medium, log: &Log) -> Result<(u64, [Option<Found>; BLOCKS]), Harm> {
        for (end, (_, page)) in log.pages.iter().rev().take_while(|(group, _)| **group >= log.durable) {
            if !self.reaches_back(log, *end, page.tail) {
                continue;
            }
            let found = redo_all(log, page.tail, *end)?;
            let is_bad = |block: usize, found: &Found| {
                found.dirty && found.group > log.durable && !found.settled && !view.slots[found.slot].is(block, found.version)
            };
            let bad = if self.makes(Mistake::ChecksNothing) {
                false
            } else if self.makes(Mistake::ChecksReplaced) {
                has_bad_payload(view, log, *end)
            } else {
                found.iter().enumerate().any(|(block, found)| found.as_ref().is_some_and(|found| is_bad(block, found)))
            };
            if !bad {
                return Ok((*end, found));
            }
        }
        if log.durable == 0 { Ok((0, [None; BLOCKS])) } else { Err(Harm::NoEnd) }
    }

    /// Whether nothing is missing from the tail to this group.
    fn reaches_back(&self, log: &Log, end: u64, tail: usize) -> bool {
        let Some((first, (at, page))) = log.pages.range(..=end).find(|(_, (_, page))| page.segment >= tail) else { return false };
        let is_whole = (*first..=end).all(|group| log.pages.contains_key(&group));
        let has_first = page.segment == tail && *at == self.place_of(tail);
        is_whole && (has_first || self.makes(Mistake::FirstGroupMayMiss))
    }

    /// States again all that was found, under a number of its own; gives the last segment and group.
    fn whole_sweep(&mut self, session: u64, first: usize, first_group: u64, found: &[Option<Found>; BLOCKS]) -> (Vec<Write>, usize, u64) {
        let set = |(block, found): (usize, &Option<Found>)| {
            let Found { slot, version, dirty, .. } = (*found)?;
            Some(Statement::Set { block, slot, version, dirty, settled: true, old: None })
        };
        let mut left: Vec<Statement> = found.iter().enumerate().filter_map(set).collect();
        let (mut segment, mut page, mut group, mut writes) = (first, 0, first_group, Vec::new());
        loop {
            let count = left.len().min(1 + self.prng.below(2) as usize);
            let statements = left.drain(..count).collect();
            let content = RingPage { session, segment, group, tail: first, durable: 0, statements };
            let at = self.place_of(segment) + page;
            writes.push(Write { group, done: true, in_flush: false, content: Content::Page(at, content) });
            if left.is_empty() {
                return (writes, segment, group);
            }
            (page, group) = (page + 1, group + 1);
            if page == self.pages_per_segment {
                (page, segment) = (0, segment + 1);
            }
        }
    }

    /// What is there now against what must be; gives the blocks whose copies are good.
    fn judge(&mut self, found: &[Option<Found>; BLOCKS], power: bool) -> Result<[Option<Entry>; BLOCKS], Harm> {
        let mut kept = [None; BLOCKS];
        let mut content = self.backing.shown;
        for (block, found) in found.iter().enumerate() {
            let Some(Found { slot, version, dirty, group, .. }) = *found else { continue };
            if !self.medium.slots[slot].is(block, version) {
                if dirty {
                    return Err(Harm::DirtyLost);
                }
                continue;
            }
            if !dirty && version != self.backing.shown[block] {
                return Err(Harm::CleanDiffers);
            }
            content[block] = version;
            kept[block] = Some(Entry { slot, version, dirty, group });
        }
        for (block, (known, version)) in self.known.iter_mut().zip(content).enumerate() {
            let least = if power { known.flushed } else { known.flushed.max(known.acknowledged) };
            if version < least {
                return Err(Harm::Older);
            }
            if version > known.written {
                return Err(Harm::Newer);
            }
            (known.written, known.acknowledged) = (version, version);
            // What a kill leaves in the backing device's memory is not safe from a power cut.
            if kept[block].is_some() || self.backing.is_safe(block) {
                known.flushed = version;
            }
        }
        let torn = |one: usize, other: usize| self.units.contains(&content[one]) && content[other] < content[one];
        if torn(0, 1) || torn(1, 0) {
            return Err(Harm::UnitTorn);
        }
        Ok(kept)
    }
}

impl World {
    /// The process ends in order, or dies while it does.
    fn clean_stop(&mut self) -> Result<(), Harm> {
        let most = 2 * (BLOCKS.div_ceil(self.pages_per_segment) + 1);
        if !self.comes_to_rest()? || !self.has_room(most) {
            return Ok(());
        }
        let in_index = |entry: Entry| {
            let Entry { slot, version, dirty, group } = entry;
            Found { slot, version, dirty, group, settled: true }
        };
        let found = self.index.map(|entry| entry.map(in_index));
        let (first, first_group) = (self.head + 1, self.last_group + 1);
        let (mut sweep, _, last_group) = self.whole_sweep(self.session, first, first_group, &found);
        let named = if self.makes(Mistake::StopNamesTailEarly) { first } else { self.tail.min(self.head) };
        let count = sweep.len();
        for (nth, write) in sweep.iter_mut().enumerate() {
            let Content::Page(_, page) = &mut write.content else { unreachable!("a sweep has no payloads") };
            (page.tail, page.durable) = (if nth + 1 < count { named } else { first }, self.durable);
        }
        if self.prng.below(4) == 0 {
            // In the middle of it.
            sweep.iter_mut().for_each(|write| write.done = self.prng.below(2) == 0);
            self.writes.extend(sweep);
            return Ok(());
        }
        self.writes.extend(sweep);
        if self.prng.below(6) == 0 {
            return Ok(());
        }
        if !self.makes(Mistake::CleanStopUnflushed) {
            for write in std::mem::take(&mut self.writes) {
                self.medium.apply(&write, false);
            }
        }
        let superblock = &mut self.superblock;
        (superblock.first_segment, superblock.first_group, superblock.durable) = (first, first_group, last_group);
        superblock.clean = true;
        self.totals.stops += 1;
        Ok(())
    }

    /// All that is under way ends, and all is durable.
    fn comes_to_rest(&mut self) -> Result<bool, Harm> {
        for _ in 0..ROUNDS_MAX {
            while self.writes.iter().any(|write| !write.done) {
                self.finish_write();
            }
            if self.is_flushing() {
                self.flush();
            }
            self.flush();
            self.flush();
            if self.tasks.is_empty() && self.writes.is_empty() && self.durable == self.last_group {
                return Ok(true);
            }
            if !self.tasks.is_empty() {
                self.advance_task()?;
            }
        }
        Ok(false)
    }

    /// What the last sweep says, and its last segment, if a clean stop was the last that happened.
    fn read_last_sweep(&self, view: &Medium) -> Result<Option<(Places, usize)>, Harm> {
        if !self.superblock.clean {
            return Ok(None);
        }
        let Log { mut pages, .. } = self.read(view)?;
        let behind = pages.split_off(&(self.superblock.durable + 1));
        let is_whole = (self.superblock.first_group..=self.superblock.durable).all(|group| pages.contains_key(&group));
        if !is_whole || !behind.is_empty() && !self.makes(Mistake::StaysClean) {
            return Ok(None);
        }
        let last_segment = pages.values().map(|(_, page)| page.segment).max().expect("a sweep has a page");
        let log = Log { pages, last_segment, durable: self.superblock.durable };
        Ok(Some((redo_all(&log, self.superblock.first_segment, self.superblock.durable)?, last_segment)))
    }
}

/// What reads give: the medium, and what its cache holds.
fn seen(medium: &Medium, volatile: &[Write]) -> Medium {
    let mut view = medium.clone();
    volatile.iter().for_each(|write| view.apply(write, false));
    view
}

fn flush(medium: &mut Medium, volatile: &mut Vec<Write>) {
    volatile.drain(..).for_each(|write| medium.apply(&write, false));
}

/// The statements from the tail to a group, by slot: who is where is known at the end.
fn redo_all(log: &Log, tail: usize, end: u64) -> Result<[Option<Found>; BLOCKS], Harm> {
    let mut named = [None; SLOTS];
    let mut facts: [Option<Found>; SLOTS] = [None; SLOTS];
    for (group, (_, page)) in log.pages.range(..=end).filter(|(_, (_, page))| page.segment >= tail) {
        for statement in &page.statements {
            redo(&mut named, statement);
            match *statement {
                Statement::Set { slot, version, dirty, settled, .. } => {
                    facts[slot] = Some(Found { slot, version, dirty, group: *group, settled });
                }
                Statement::Home { block, slot, version } => {
                    if let Some(fact) = facts[slot].as_mut().filter(|fact| named[slot] == Some(block) && fact.version == version) {
                        fact.dirty = false;
                    }
                }
                Statement::Gone { .. } => {}
            }
        }
    }
    let mut found = [None; BLOCKS];
    for (named, fact) in named.iter().zip(facts) {
        if let Some(block) = *named
            && found[block].replace(fact.expect("it was named with its facts")).is_some()
        {
            return Err(Harm::BlockTwice);
        }
    }
    Ok(found)
}

/// Whether any dirty payload that was ever stated since what is durable is not there.
fn has_bad_payload(view: &Medium, log: &Log, end: u64) -> bool {
    let later = log.pages.iter().filter(|(group, _)| (log.durable + 1..=end).contains(*group)).flat_map(|(_, (_, page))| &page.statements);
    later.into_iter().any(|statement| match *statement {
        Statement::Set { block, slot, version, dirty: true, settled: false, .. } => !view.slots[slot].is(block, version),
        _ => false,
    })
}
