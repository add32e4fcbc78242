//! What the completion of a log I/O changes: groups become complete and durable, the tail moves, or the SSD is given up.

use super::{Progress, RegionId, Ring, RingIo};
use crate::index::Slot;
use crate::mutants;

impl Ring {
    /// A log I/O completed.
    pub(super) fn has_completed(&mut self, io: RingIo, ok: bool) -> Progress {
        let mut progress = Progress { flushed: io == RingIo::Flush, ..Progress::default() };
        if let RingIo::Footer(seq) = io {
            self.footers_in_flight -= 1;
            self.common.readers.end(RegionId(seq));
        }
        if self.common.commits.is_failed() {
            return progress;
        }
        if !ok && mutants::active(mutants::FAILED_FLUSH_RETRIED) && io == RingIo::Flush {
            self.flush = None;
            return progress;
        }
        if !ok && !mutants::active(mutants::FAILED_STORE_WRITE_DONE) {
            return Progress { ready: self.common.commits.fail(), failed: true, ..progress };
        }
        match io {
            RingIo::Group(number) => self.group_written(number, &mut progress),
            RingIo::Footer(_) => {}
            RingIo::Flush => self.flushed(&mut progress),
        }
        progress
    }

    fn group_written(&mut self, number: u64, progress: &mut Progress) {
        let group = self.writing.iter_mut().find(|group| group.group == number).expect("a group in flight");
        assert!(!core::mem::replace(&mut group.done, true), "group {number} is written once");
        while self.writing.front().is_some_and(|group| group.done) {
            let group = self.writing.pop_front().expect("looked above");
            assert!(self.complete_tail <= group.tail_seq, "the log goes forward");
            self.common.commits.completed(group.group);
            self.complete_tail = group.tail_seq;
            self.complete_end = group.end;
            let physical = self.space.physical(group.end.0);
            let packed = group.packed.map(|ordinal| Slot::packed(physical, ordinal, self.ordinal_bits));
            self.common.in_flight.landed(group.slots.map(Slot), packed);
        }
        self.common.commits.take_complete(&mut progress.ready);
        if mutants::active(mutants::REUSED_BEFORE_DURABLE) {
            self.tail_is_durable(self.complete_tail, progress);
        }
    }

    fn flushed(&mut self, progress: &mut Progress) {
        let (group, tail_seq, end) = self.flush.take().expect("a flush was running");
        assert!(tail_seq <= self.complete_tail, "what is durable was complete");
        self.common.commits.flushed(group);
        self.durable_end = self.durable_end.max(end);
        self.common.commits.take_durable(&mut progress.ready);
        self.tail_is_durable(tail_seq, progress);
    }

    fn tail_is_durable(&mut self, tail_seq: u64, progress: &mut Progress) {
        let before = self.space.tail_durable();
        if tail_seq > before {
            self.space.tail_is_durable(tail_seq);
            progress.freed = (before..tail_seq).map(|seq| self.region_of(seq)).collect();
        }
    }
}
