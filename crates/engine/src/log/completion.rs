//! What the completion of a log I/O changes: groups become complete and durable, the tail moves, or the SSD is given up.

use super::{Log, LogIo};
use crate::index::Slot;
use crate::mutants;
use alloc::vec::Vec;

/// What a completed log I/O changed.
#[derive(Default, Debug)]
pub struct Progress {
    /// Waiters whose group is complete or durable now, as they asked; all waiters if the SSD failed.
    pub ready: Vec<u32>,
    /// The durable tail moved from the first to the second segment.
    pub tail_moved: Option<(u64, u64)>,
    /// The SSD failed just now.
    pub failed: bool,
}

impl Log {
    /// The SSD is given up: gives who waited for it.
    pub fn fail(&mut self) -> Vec<u32> {
        self.failed = true;
        self.flush = None;
        self.waiters.take_all()
    }

    /// A log I/O completed.
    pub fn completed(&mut self, io: LogIo, ok: bool) -> Progress {
        let mut progress = Progress::default();
        if let LogIo::Footer(seq) = io {
            self.footers_in_flight -= 1;
            self.space.unpin(seq);
        }
        if self.failed {
            return progress;
        }
        if !ok && mutants::active(7) && io == LogIo::Flush {
            self.flush = None;
            return progress;
        }
        if !ok && !mutants::active(36) {
            return Progress { ready: self.fail(), tail_moved: None, failed: true };
        }
        match io {
            LogIo::Group(number) => self.group_written(number, &mut progress),
            LogIo::Footer(_) => {}
            LogIo::Flush => self.flushed(&mut progress),
        }
        progress
    }

    fn group_written(&mut self, number: u64, progress: &mut Progress) {
        let group = self.in_flight.iter_mut().find(|group| group.group == number).expect("a group in flight");
        assert!(!core::mem::replace(&mut group.done, true), "group {number} is written once");
        while self.in_flight.front().is_some_and(|group| group.done) {
            let group = self.in_flight.pop_front().expect("looked above");
            assert!(self.complete < group.group && self.complete_tail <= group.tail_seq, "the log goes forward");
            self.complete = group.group;
            self.complete_tail = group.tail_seq;
            self.complete_end = group.end;
            for slot in group.slots {
                self.pages.remove(&Slot(slot));
            }
            let physical = self.space.physical(group.end.0);
            for slot in group.packed.map(|ordinal| Slot::packed(physical, ordinal, self.ordinal_bits)) {
                self.pages.remove(&slot);
                self.bytes.remove(&slot);
            }
        }
        self.waiters.take_complete(self.complete, &mut progress.ready);
        if mutants::active(4) {
            self.tail_is_durable(self.complete_tail, progress);
        }
    }

    fn flushed(&mut self, progress: &mut Progress) {
        let (group, tail_seq, end) = self.flush.take().expect("a flush was running");
        assert!(group <= self.complete && tail_seq <= self.complete_tail, "what is durable was complete");
        self.durable = self.durable.max(group);
        self.durable_end = self.durable_end.max(end);
        self.waiters.take_durable(self.durable, &mut progress.ready);
        self.tail_is_durable(tail_seq, progress);
    }

    fn tail_is_durable(&mut self, tail_seq: u64, progress: &mut Progress) {
        let before = self.space.tail_durable();
        if tail_seq > before {
            self.space.tail_is_durable(tail_seq);
            progress.tail_moved = Some((before, tail_seq));
        }
    }
}
