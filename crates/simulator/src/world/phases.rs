//! What is going on right now, as far as it can be seen from outside: for the coverage table.

use std::collections::BTreeSet;

use engine::api::{Io, IoKind, Op};
use types::Mode;

use super::World;
use super::operator::Purpose;
use crate::coverage::Phase;

/// Places on the SSD that log writes went to: which, and which more than once.
#[derive(Default)]
pub(crate) struct Places {
    pub written: BTreeSet<u64>,
    pub reused: BTreeSet<u64>,
}

impl World<'_> {
    /// Remembers where the log was written, to know segments that are written again and data that is old.
    pub fn see_log_write(&mut self, lane: u16, io: &Io) {
        if let IoKind::Write { .. } = io.kind {
            // The log goes on in order; a write at a place written before is another lap.
            if !self.places.written.insert(io.offset_bytes) {
                self.places.reused.insert(io.offset_bytes);
            }
            self.log_writes.begins(lane, io);
            if self.plan.ssd_faults.lies || self.plan.ssd_faults.corrupt_write_per_10k > 0 {
                self.blame.see_records(io);
            }
            if self.plan.content.is_some() {
                self.blame.see_kinship(lane, io);
            }
        }
    }

    pub fn phases(&self) -> Vec<Phase> {
        let mut phases = Vec::new();
        let client_flush = self.clients.pending.values().any(|one| one.draft.op == Op::Flush);
        let client_write = self.clients.pending.values().any(|one| one.draft.op == Op::Write);
        let client_read = self.clients.pending.values().any(|one| one.draft.op == Op::Read);
        let mut ssd_write = false;
        for flight in self.devices[0].flights() {
            if let IoKind::Write { .. } = flight.io.kind {
                ssd_write = true;
                if self.writes_again(&flight.io) {
                    phases.push(Phase::Reuse);
                }
            }
        }
        let mut destage = Vec::new();
        for (index, device) in self.devices.iter().enumerate().skip(1) {
            for flight in device.flights() {
                match flight.io.kind {
                    IoKind::Read(_) if client_read => phases.push(Phase::ReadMiss),
                    IoKind::Write { .. } if flight.io.background => {
                        phases.push(Phase::Destage);
                        destage.push((index as u16 - 1, flight.io.offset_bytes, flight.io.length_bytes));
                    }
                    IoKind::Flush if !client_flush => phases.push(Phase::DestageFlush),
                    _ => {}
                }
            }
        }
        if ssd_write {
            phases.push(Phase::Append);
            if client_write {
                phases.push(Phase::WriteAllocate);
            }
        }
        for one in self.clients.pending.values().filter(|one| one.draft.op == Op::Write) {
            let (start, end) = (one.draft.start_sector * 512, (one.draft.start_sector + u64::from(one.draft.sectors)) * 512);
            let meets =
                |(volume, offset, length): &(u16, u64, u64)| *volume == one.draft.volume && *offset < end && start < *offset + *length;
            if destage.iter().any(meets) {
                phases.push(Phase::OverwriteDestage);
            }
            let dirty = self.system.as_ref().is_some_and(|system| system.facts().dirty_bytes > 0);
            if self.volumes[usize::from(one.draft.volume)].options.mode == Mode::WriteBack && dirty {
                phases.push(Phase::OverwriteDirty);
            }
        }
        if client_flush {
            phases.push(Phase::Flush);
        }
        for waiting in self.operator.waiting.values() {
            phases.push(match waiting.purpose {
                Purpose::SetOptions => Phase::SetOptions,
                Purpose::Destage | Purpose::DestageQuiet | Purpose::DropClean | Purpose::DropStale | Purpose::VoidPast | Purpose::Check => {
                    Phase::DestageCommand
                }
                Purpose::DestageToDetach | Purpose::Detach | Purpose::Release => Phase::Detach,
                Purpose::Quiesce => Phase::Stop,
                Purpose::DestageToReplace | Purpose::QuiesceToReplace => Phase::Replace,
            });
        }
        if phases.is_empty() && self.clients.pending.is_empty() {
            phases.push(Phase::Idle);
        }
        phases.sort_by_key(|phase| *phase as usize);
        phases.dedup();
        phases
    }

    fn writes_again(&self, io: &Io) -> bool {
        self.places.reused.contains(&io.offset_bytes)
    }
}
