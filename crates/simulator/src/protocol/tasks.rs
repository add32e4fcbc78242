//! What clients and background work do, in steps that anything may come between.

use super::medium::{Payload, Statement};
use super::writer::{Use, World};
use super::{BLOCKS, Harm, Mistake};

/// Something under way.
#[derive(Clone, Debug)]
pub enum Task {
    /// A write into the cache; acknowledged when its group is complete.
    Write { blocks: Vec<usize>, version: u64, group: u64 },
    /// A flush: what was acknowledged when it came is safe at its end.
    Flush { acknowledged: [u64; BLOCKS], group: u64 },
    /// A write past the cache, which must not keep what is older.
    Past { block: usize, version: u64, void: u64, step: u32 },
    /// A dirty block comes home.
    Home { block: usize, slot: usize, version: u64, step: u32 },
    /// A clean block is given up.
    Evict { block: usize, slot: usize, group: u64 },
}

impl World {
    pub(super) fn is_evicting(&self, of: usize) -> bool {
        self.tasks.iter().any(|task| matches!(task, Task::Evict { block, .. } if *block == of))
    }

    /// A client or background work begins something, if it can.
    pub(super) fn begin_task(&mut self) -> Result<(), Harm> {
        let block = self.prng.below(BLOCKS as u64) as usize;
        let what = self.prng.below(9);
        if !self.has_room_for_clients() || self.locked[block] && what != 4 {
            return Ok(());
        }
        match what {
            0..=2 => self.begin_write(&[block]),
            3 if !self.locked[0] && !self.locked[1] => self.begin_write(&[0, 1]),
            3 => Ok(()),
            4 => {
                self.tasks.push(Task::Flush { acknowledged: self.known.map(|known| known.acknowledged), group: self.complete });
                Ok(())
            }
            5 => self.begin_past(block),
            6 => {
                self.begin_home(block);
                Ok(())
            }
            7 => self.begin_evict(block),
            _ => self.fill(block),
        }
    }

    fn next_version(&mut self, blocks: &[usize]) -> u64 {
        self.versions += 1;
        for block in blocks {
            self.known[*block].written = self.versions;
        }
        self.versions
    }

    fn begin_write(&mut self, blocks: &[usize]) -> Result<(), Harm> {
        let mut slots = Vec::new();
        for _ in blocks {
            match self.allocate() {
                Some(slot) => {
                    // Not given out again.
                    let before = std::mem::replace(&mut self.slots[slot], Use::Live(usize::MAX));
                    slots.push((slot, before));
                }
                None => break,
            }
        }
        slots.iter().for_each(|(slot, before)| self.slots[*slot] = *before);
        if slots.len() < blocks.len() {
            return Ok(());
        }
        let version = self.next_version(blocks);
        let (mut statements, mut payloads, mut group) = (Vec::new(), Vec::new(), 0);
        for (block, (slot, _)) in blocks.iter().zip(&slots) {
            let old = self.index[*block].map(|entry| entry.slot).filter(|_| !self.makes(Mistake::OldSlotForgotten));
            statements.push(Statement::Set { block: *block, slot: *slot, version, dirty: true, settled: false, old });
            payloads.push((*slot, Payload { of: Some((*block, version)), torn: false }));
            if self.makes(Mistake::UnitInParts) {
                group = self.group(std::mem::take(&mut statements), &std::mem::take(&mut payloads))?;
                self.set(*block, *slot, version, true, group);
            }
            self.locked[*block] = true;
        }
        if !statements.is_empty() {
            group = self.group(statements, &payloads)?;
            for (block, (slot, _)) in blocks.iter().zip(&slots) {
                self.set(*block, *slot, version, true, group);
            }
        }
        if blocks.len() > 1 {
            self.units.insert(version);
        }
        self.tasks.push(Task::Write { blocks: blocks.to_vec(), version, group });
        Ok(())
    }

    fn begin_past(&mut self, block: usize) -> Result<(), Harm> {
        if self.index[block].is_some_and(|entry| entry.dirty) || self.coming_home[block] {
            return Ok(());
        }
        let version = self.next_version(&[block]);
        self.locked[block] = true;
        if let Some(entry) = self.index[block].take() {
            let slot = (!self.makes(Mistake::VoidWithoutSlot)).then_some(entry.slot);
            let group = self.group(vec![Statement::Gone { slot }], &[])?;
            self.slots[entry.slot] = Use::Pending(group);
            self.voided[block] = group;
        }
        self.tasks.push(Task::Past { block, version, void: self.voided[block], step: 0 });
        Ok(())
    }

    fn begin_home(&mut self, block: usize) {
        let Some(entry) = self.index[block].filter(|entry| entry.dirty) else { return };
        if self.coming_home[block] || entry.group > self.durable && !self.makes(Mistake::HomeBeforeDurable) {
            return;
        }
        self.coming_home[block] = true;
        self.tasks.push(Task::Home { block, slot: entry.slot, version: entry.version, step: 0 });
    }

    fn begin_evict(&mut self, block: usize) -> Result<(), Harm> {
        let Some(entry) = self.index[block].filter(|entry| !entry.dirty || self.makes(Mistake::DirtyEvicted)) else { return Ok(()) };
        let group = self.group(vec![Statement::Gone { slot: Some(entry.slot) }], &[])?;
        if self.makes(Mistake::EvictedSlotFreeAtOnce) || self.makes(Mistake::EvictedBlockLeavesEarly) {
            self.index[block] = None;
            self.slots[entry.slot] = if self.makes(Mistake::EvictedSlotFreeAtOnce) { Use::Free } else { Use::Pending(group) };
            return Ok(());
        }
        self.locked[block] = true;
        self.tasks.push(Task::Evict { block, slot: entry.slot, group });
        Ok(())
    }

    /// A block is cached as the backing device has it.
    fn fill(&mut self, block: usize) -> Result<(), Harm> {
        let settled = self.backing.is_safe(block) || self.makes(Mistake::FillBeforeFlush);
        if self.index[block].is_some() || !settled {
            return Ok(());
        }
        let Some(slot) = self.allocate() else { return Ok(()) };
        let version = self.backing.shown[block];
        let statement = Statement::Set { block, slot, version, dirty: false, settled: false, old: None };
        let group = self.group(vec![statement], &[(slot, Payload { of: Some((block, version)), torn: false })])?;
        self.set(block, slot, version, false, group);
        Ok(())
    }

    /// One thing under way goes on, if it can.
    pub(super) fn advance_task(&mut self) -> Result<(), Harm> {
        if self.tasks.is_empty() {
            return Ok(());
        }
        let at = self.prng.below(self.tasks.len() as u64) as usize;
        let mut task = self.tasks[at].clone();
        if self.goes_on(&mut task)? {
            self.tasks[at] = task;
        } else {
            self.tasks.remove(at);
        }
        Ok(())
    }

    /// Whether it goes on after this step.
    fn goes_on(&mut self, task: &mut Task) -> Result<bool, Harm> {
        match task {
            Task::Write { blocks, version, group } => {
                if self.complete < *group {
                    return Ok(true);
                }
                for block in blocks {
                    let known = &mut self.known[*block];
                    known.acknowledged = known.acknowledged.max(*version);
                    self.locked[*block] = false;
                }
                Ok(false)
            }
            Task::Flush { acknowledged, group } => {
                if self.durable < *group {
                    return Ok(true);
                }
                self.backing.flush();
                for (known, version) in self.known.iter_mut().zip(acknowledged) {
                    known.flushed = known.flushed.max(*version);
                }
                Ok(false)
            }
            Task::Past { block, version, void, step } => {
                let (block, version) = (*block, *version);
                if *step == 0 {
                    *step = u32::from(self.durable >= *void || self.makes(Mistake::VoidNotAwaited));
                } else if *step == 1 {
                    self.backing.shown[block] = version;
                    *step = 2;
                } else {
                    self.known[block].acknowledged = self.known[block].acknowledged.max(version);
                    self.locked[block] = false;
                    return Ok(false);
                }
                Ok(true)
            }
            Task::Home { block, slot, version, step } => self.comes_home(*block, *slot, *version, step),
            Task::Evict { block, slot, group } => {
                if self.durable < *group {
                    return Ok(true);
                }
                self.index[*block] = None;
                self.slots[*slot] = Use::Free;
                self.locked[*block] = false;
                Ok(false)
            }
        }
    }

    /// A dirty block is written to the backing device, which flushes it, and then that is noted.
    fn comes_home(&mut self, block: usize, slot: usize, version: u64, step: &mut u32) -> Result<bool, Harm> {
        match *step {
            0 => self.backing.shown[block] = version,
            1 if self.makes(Mistake::HomeNotedEarly) => {}
            1 => self.backing.flush(),
            _ => {
                let is_current = self.index[block].is_some_and(|entry| entry.slot == slot && entry.version == version);
                if is_current {
                    if !self.has_room_for_clients() {
                        return Ok(true);
                    }
                    self.group(vec![Statement::Home { block, slot, version }], &[])?;
                    self.index[block].as_mut().expect("it is there").dirty = false;
                }
                self.coming_home[block] = false;
                return Ok(false);
            }
        }
        *step += 1;
        Ok(true)
    }
}
