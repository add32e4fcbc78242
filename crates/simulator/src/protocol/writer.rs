//! The shard at work: groups, slots, flushes, the sweep and the tail.

use super::medium::{Backing, Content, Medium, Payload, RingPage, Statement, Superblock, Write};
use super::tasks::Task;
use super::{BLOCKS, Harm, Mistake, RING_PAGES, SLOTS, Totals};
use crate::prng::Prng;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Where the index has a block.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    pub slot: usize,
    pub version: u64,
    pub dirty: bool,
    /// The group that said so.
    pub group: u64,
}

/// What a slot is used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    Free,
    Live(usize),
    /// Free when that group is durable.
    Pending(u64),
}

/// What the oracle knows of a block. Versions of all blocks are counted together.
#[derive(Clone, Copy, Default, Debug)]
pub struct Known {
    pub written: u64,
    pub acknowledged: u64,
    pub flushed: u64,
}

/// See the module.
pub struct World {
    pub prng: Prng,
    pub totals: Totals,
    pub(super) mistake: Option<Mistake>,
    /// Lives may end in order.
    pub stops: bool,
    pub(super) pages_per_segment: usize,
    pub(super) medium: Medium,
    pub(super) backing: Backing,
    pub(super) superblock: Superblock,
    /// Written, not flushed.
    pub(super) writes: Vec<Write>,
    pub(super) known: [Known; BLOCKS],
    pub(super) versions: u64,
    /// Versions that are units: both of their blocks have them.
    pub(super) units: BTreeSet<u64>,
    pub(super) index: [Option<Entry>; BLOCKS],
    pub(super) slots: [Use; SLOTS],
    pub(super) locked: [bool; BLOCKS],
    pub(super) coming_home: [bool; BLOCKS],
    /// The last group that said of a block that it is void.
    pub(super) voided: [u64; BLOCKS],
    pub(super) tasks: Vec<Task>,
    pub(super) session: u64,
    pub(super) head: usize,
    /// The next page of the head segment.
    pub(super) head_page: usize,
    pub(super) tail: usize,
    /// The tail that a durable group has named: what is before it may be written over.
    pub(super) durable_tail: usize,
    pub(super) complete: u64,
    pub(super) durable: u64,
    pub(super) last_group: u64,
    /// Writes of groups that are not done.
    missing: BTreeMap<u64, usize>,
    tails: BTreeMap<u64, usize>,
    /// The flush under way makes groups up to this one durable.
    flushing: Option<u64>,
    /// How far the sweep was when a segment was begun.
    begun: BTreeMap<usize, usize>,
    swept: usize,
    /// Which slots the maps name that recovery may choose: from the durable group's on.
    maps: VecDeque<(u64, [Option<usize>; SLOTS])>,
}

impl World {
    pub fn new(prng: Prng, pages_per_segment: usize, mistake: Option<Mistake>) -> World {
        assert!(RING_PAGES.is_multiple_of(pages_per_segment), "segments fill the ring");
        World {
            prng,
            totals: Totals::default(),
            mistake,
            stops: false,
            pages_per_segment,
            medium: Medium::default(),
            backing: Backing::default(),
            superblock: Superblock { session: 1, log_session: 1, first_segment: 1, first_group: 1, durable: 0, clean: false },
            writes: Vec::new(),
            known: [Known::default(); BLOCKS],
            versions: 0,
            units: BTreeSet::new(),
            index: [None; BLOCKS],
            slots: [Use::Free; SLOTS],
            locked: [false; BLOCKS],
            coming_home: [false; BLOCKS],
            voided: [0; BLOCKS],
            tasks: Vec::new(),
            session: 1,
            head: 0,
            head_page: pages_per_segment,
            tail: 1,
            durable_tail: 1,
            complete: 0,
            durable: 0,
            last_group: 0,
            missing: BTreeMap::new(),
            tails: BTreeMap::new(),
            flushing: None,
            begun: BTreeMap::new(),
            swept: 0,
            maps: VecDeque::from([(0, [None; SLOTS])]),
        }
    }

    pub(super) fn makes(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    pub(super) fn segments(&self) -> usize {
        RING_PAGES / self.pages_per_segment
    }

    /// The place of a segment's first page.
    pub(super) fn place_of(&self, segment: usize) -> usize {
        (segment - 1) % self.segments() * self.pages_per_segment
    }

    /// Something happens.
    pub fn step(&mut self) -> Result<(), Harm> {
        self.totals.steps += 1;
        match self.prng.below(20) {
            0..=5 => self.begin_task()?,
            6..=11 => self.finish_write(),
            12..=15 => self.advance_task()?,
            16..=17 => self.flush(),
            18 => self.sweep()?,
            _ => self.move_tail()?,
        }
        Ok(())
    }

    pub(super) fn has_room(&self, segments: usize) -> bool {
        self.head_page < self.pages_per_segment || self.durable_tail + self.segments() - 1 - self.head >= segments
    }

    /// Whether there is room for a group that makes room: behind it the sweep of a start must still fit.
    fn has_room_for_the_sweep(&self) -> bool {
        self.has_room(3.max(BLOCKS.div_ceil(self.pages_per_segment) + 1))
    }

    /// Whether there is room for a group that can wait.
    pub(super) fn has_room_for_clients(&self) -> bool {
        self.has_room(4.max(BLOCKS.div_ceil(self.pages_per_segment) + 2))
    }

    /// Writes a group; gives its number.
    pub(super) fn group(&mut self, statements: Vec<Statement>, payloads: &[(usize, Payload)]) -> Result<u64, Harm> {
        if self.head_page == self.pages_per_segment {
            if !self.has_room(1) {
                return Err(Harm::RingFull);
            }
            self.head += 1;
            self.head_page = 0;
            self.begun.insert(self.head, self.swept);
        }
        self.last_group += 1;
        let group = self.last_group;
        for (slot, payload) in payloads {
            if self.maps.iter().any(|(_, named)| named[*slot].is_some()) {
                return Err(Harm::NamedSlotWritten);
            }
            self.writes.push(Write { group, done: false, in_flush: false, content: Content::Slot(*slot, *payload) });
        }
        let mut named = self.maps.back().expect("one at least").1;
        statements.iter().for_each(|statement| redo(&mut named, statement));
        self.maps.push_back((group, named));
        let tail = self.tail.min(self.head);
        let page = RingPage { session: self.session, segment: self.head, group, tail, durable: self.durable, statements };
        let at = self.place_of(self.head) + self.head_page;
        self.head_page += 1;
        self.tails.insert(group, tail);
        self.missing.insert(group, 1 + payloads.len());
        self.writes.push(Write { group, done: false, in_flush: false, content: Content::Page(at, page) });
        Ok(group)
    }

    /// The index points to the slot from now on.
    pub(super) fn set(&mut self, block: usize, slot: usize, version: u64, dirty: bool, group: u64) {
        if let Some(old) = self.index[block] {
            self.slots[old.slot] = Use::Pending(group);
        }
        self.index[block] = Some(Entry { slot, version, dirty, group });
        self.slots[slot] = Use::Live(block);
    }

    /// A free slot, taken.
    pub(super) fn allocate(&mut self) -> Option<usize> {
        let first = self.prng.below(SLOTS as u64) as usize;
        let is_free = |slot: &usize| match self.slots[*slot] {
            Use::Free => true,
            Use::Pending(group) => group <= self.durable || self.makes(Mistake::SlotReusedEarly),
            Use::Live(_) => false,
        };
        (0..SLOTS).map(|at| (first + at) % SLOTS).find(is_free)
    }

    /// One write under way is done.
    pub(super) fn finish_write(&mut self) {
        let open: Vec<usize> = (0..self.writes.len()).filter(|at| !self.writes[*at].done).collect();
        if open.is_empty() {
            return;
        }
        let at = self.prng.pick(&open);
        self.writes[at].done = true;
        let (group, is_page) = (self.writes[at].group, matches!(self.writes[at].content, Content::Page(..)));
        let counts_at_once = is_page && self.makes(Mistake::CompleteWithoutPayload);
        let missing = self.missing.get_mut(&group).expect("it was begun");
        *missing = if counts_at_once { 0 } else { missing.saturating_sub(1) };
        while self.missing.get(&(self.complete + 1)) == Some(&0) {
            self.complete += 1;
        }
    }

    pub(super) fn is_flushing(&self) -> bool {
        self.flushing.is_some()
    }

    /// A flush begins, or ends.
    pub(super) fn flush(&mut self) {
        let Some(durable) = self.flushing.take() else {
            self.flushing = Some(if self.makes(Mistake::FlushCountsAll) { self.last_group } else { self.complete });
            self.writes.iter_mut().for_each(|write| write.in_flush = write.done);
            return;
        };
        for write in self.writes.extract_if(.., |write| write.in_flush) {
            self.medium.apply(&write, false);
        }
        self.durable = self.durable.max(durable);
        self.durable_tail = self.durable_tail.max(self.tails.get(&self.durable).copied().unwrap_or(0));
        self.maps.retain(|(group, _)| *group >= self.durable);
    }

    /// States again what lives in the next slots.
    fn sweep(&mut self) -> Result<(), Harm> {
        if !self.has_room_for_the_sweep() {
            return Ok(());
        }
        let mut statements = Vec::new();
        for _ in 0..=self.prng.below(SLOTS as u64) {
            let slot = self.swept % SLOTS;
            self.swept += 1;
            let Use::Live(block) = self.slots[slot] else { continue };
            let entry = self.index[block].expect("what lives is in the index");
            if self.is_evicting(block) && !self.makes(Mistake::SweepStatesEvicted) {
                continue;
            }
            let settled = entry.group <= self.durable;
            if !settled && self.makes(Mistake::SweepLeavesOut) {
                continue;
            }
            let settled = settled || self.makes(Mistake::SweepSettlesAll);
            statements.push(Statement::Set { block, slot, version: entry.version, dirty: entry.dirty, settled, old: None });
        }
        if !statements.is_empty() {
            self.group(statements, &[])?;
        }
        Ok(())
    }

    /// The tail passes a segment, if the sweep has been round since the next was begun.
    fn move_tail(&mut self) -> Result<(), Harm> {
        if self.tail >= self.head {
            return Ok(());
        }
        let since = if self.makes(Mistake::TailTooEarly) { self.tail } else { self.tail + 1 };
        let Some(begun) = self.begun.get(&since) else { return Ok(()) };
        if self.swept - begun < SLOTS && !self.makes(Mistake::TailWithoutSweep) {
            return Ok(());
        }
        self.tail += 1;
        self.totals.tails += 1;
        if self.has_room_for_the_sweep() {
            self.group(Vec::new(), &[])?;
        }
        Ok(())
    }

    /// A start has made this the log: its segments, its last group, and where blocks are.
    pub(super) fn begin_life(&mut self, first: usize, head: usize, last_group: u64, found: &[Option<Entry>; BLOCKS]) {
        self.session = self.superblock.log_session;
        (self.head, self.head_page, self.tail, self.durable_tail) = (head, self.pages_per_segment, first, first);
        (self.complete, self.durable, self.last_group) = (last_group, last_group, last_group);
        (self.missing, self.tails, self.flushing) = (BTreeMap::new(), BTreeMap::new(), None);
        (self.locked, self.coming_home, self.voided) = ([false; BLOCKS], [false; BLOCKS], [0; BLOCKS]);
        self.tasks.clear();
        self.index = found.map(|entry| entry.map(|entry| Entry { group: 0, ..entry }));
        self.slots = [Use::Free; SLOTS];
        let mut named = [None; SLOTS];
        for (block, entry) in found.iter().enumerate() {
            if let Some(entry) = entry {
                self.slots[entry.slot] = Use::Live(block);
                named[entry.slot] = Some(block);
            }
        }
        self.maps = VecDeque::from([(last_group, named)]);
        self.swept = 0;
        self.begun = (first..=head).map(|segment| (segment, 0)).collect();
    }
}

/// What a statement does to the slots that a map names. As recovery does it.
pub(super) fn redo(named: &mut [Option<usize>; SLOTS], statement: &Statement) {
    match *statement {
        Statement::Set { block, slot, old, .. } => {
            if let Some(old) = old.filter(|old| *old != slot && named[*old] == Some(block)) {
                named[old] = None;
            }
            named[slot] = Some(block);
        }
        Statement::Gone { slot: Some(slot) } => named[slot] = None,
        Statement::Gone { slot: None } | Statement::Home { .. } => {}
    }
}
