//! What was written to the logs, and what each shard knows to be durable of it, as far as it can be seen from outside.
//!
//! Data on an SSD may decay at any time; but only where a durable header says that what decayed had been durable can recovery tell
//! decay from a write that a power cut tore.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use engine::api::{Io, IoId};

/// Writes remembered, over all shards.
const REMEMBERED: usize = 200;

/// A write to a shard's log.
#[derive(Clone, Copy, Debug)]
pub struct LogWrite {
    /// Where, in bytes.
    pub offset: u64,
    /// How long, in bytes.
    pub length: u64,
    lane: u16,
    order: u64,
    /// Writes before this one were known to be durable when this one began: its header may say so.
    says: u64,
    /// It decayed, and says nothing for sure any more.
    decayed: bool,
}

impl LogWrite {
    fn overlaps(&self, other: &LogWrite) -> bool {
        self.offset < other.offset + other.length && other.offset < self.offset + self.length
    }
}

#[derive(Default)]
struct Lane {
    next: u64,
    incomplete: BTreeSet<u64>,
    under_way: BTreeMap<IoId, u64>,
    /// Flushes under way: writes before this one had completed when the shard asked.
    asked: BTreeMap<IoId, u64>,
    known_durable: u64,
}

/// See the module.
#[derive(Default)]
pub struct LogWrites {
    writes: VecDeque<LogWrite>,
    lanes: BTreeMap<u16, Lane>,
}

impl LogWrites {
    /// A shard hands out a write.
    pub fn begins(&mut self, lane: u16, io: &Io) {
        let state = self.lanes.entry(lane).or_default();
        let (order, says) = (state.next, state.known_durable);
        state.next += 1;
        state.incomplete.insert(order);
        state.under_way.insert(io.id, order);
        let written = LogWrite { offset: io.offset_bytes, length: io.length_bytes, lane, order, says, decayed: false };
        // What a later session writes over, with groups laid out otherwise, is as young as what was written over it.
        self.writes.retain(|other| !other.overlaps(&written));
        self.writes.push_back(written);
        if self.writes.len() > REMEMBERED {
            self.writes.pop_front();
        }
    }

    /// An I/O of the shard is done.
    pub fn ends(&mut self, lane: u16, id: IoId) {
        let state = self.lanes.entry(lane).or_default();
        if let Some(order) = state.under_way.remove(&id) {
            state.incomplete.remove(&order);
        }
    }

    /// Where the youngest write is, in bytes.
    pub fn youngest_bytes(&self) -> Option<u64> {
        self.writes.back().map(|write| write.offset)
    }

    /// A shard asks for a flush.
    pub fn flush_asked(&mut self, lane: u16, id: IoId) {
        let state = self.lanes.entry(lane).or_default();
        state.asked.insert(id, state.incomplete.first().copied().unwrap_or(state.next));
    }

    /// It is told how the flush ended.
    pub fn flush_answered(&mut self, lane: u16, id: IoId, ok: bool) {
        let state = self.lanes.entry(lane).or_default();
        if let Some(order) = state.asked.remove(&id).filter(|_| ok) {
            state.known_durable = state.known_durable.max(order);
        }
    }

    /// The process died: what was under way never ends.
    pub fn crash(&mut self) {
        for state in self.lanes.values_mut() {
            state.incomplete.clear();
            state.under_way.clear();
            state.asked.clear();
        }
    }

    /// Writes that may decay: a durable one that has not decayed says of them, and of all that have decayed, that they were durable.
    pub fn provably_durable(&self) -> Vec<LogWrite> {
        let durable = |write: &&LogWrite| write.order < self.lanes[&write.lane].known_durable;
        // By lane: the two writes that say most, and the youngest that decayed.
        let mut witnesses: BTreeMap<u16, [(u64, u64); 2]> = BTreeMap::new();
        let mut decayed: BTreeMap<u16, u64> = BTreeMap::new();
        for write in &self.writes {
            if write.decayed {
                let youngest = decayed.entry(write.lane).or_default();
                *youngest = write.order.max(*youngest);
            } else if durable(&write) {
                let most = witnesses.entry(write.lane).or_default();
                most[1] = most[1].max((write.says, write.order));
                most.sort_unstable_by(|one, other| other.cmp(one));
            }
        }
        let may_decay = |write: &&LogWrite| {
            let witness = witnesses.get(&write.lane).and_then(|most| most.iter().find(|(_, order)| *order != write.order));
            let needed = decayed.get(&write.lane).copied().unwrap_or(0).max(write.order);
            witness.is_some_and(|(says, _)| needed < *says)
        };
        self.writes.iter().filter(may_decay).copied().collect()
    }

    /// The write that lies there decayed.
    pub fn decays(&mut self, offset: u64) {
        self.writes.iter_mut().filter(|write| write.offset == offset).for_each(|write| write.decayed = true);
    }
}
