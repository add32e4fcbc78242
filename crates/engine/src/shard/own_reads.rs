//! Reads that no client waits for: a look at what lies on a volume, the pieces of a warm-up and what lies between them.
//!
//! On a busy disk such a read takes a third of a second. A client's write to one of its blocks must not wait so long. So the read
//! takes no lock ([`crate::locks::Locks::glance`]). If a write, a discard or a range request asks for one of its blocks before it has
//! ended, whatever it has read is thrown away, and it begins again behind that request; with locks at last, so that it ends.

use super::Shard;
use super::op::{Op, Phase};
use crate::api::Op as OpKind;
use crate::locks::OpId;
use crate::mutants;

/// So often it takes no lock. A commit a millisecond in 64 MiB overtakes one look of 64 KiB in ten on a busy disk.
const GLANCES_MAX: u8 = 8;

fn is_unlocked(op: &Op) -> bool {
    mutants::active(mutants::OVERLAPS_UNORDERED) || mutants::active(mutants::READ_WITHOUT_LOCK) && op.request.op == OpKind::Read
}

impl Shard {
    /// Queues a request on its blocks, or lets it glance at them. True if it may begin.
    pub(super) fn lock(&mut self, id: OpId) -> bool {
        let op = self.ops.get_mut(id);
        if is_unlocked(op) {
            return true;
        }
        self.glance(id) || self.acquire(id)
    }

    fn acquire(&mut self, id: OpId) -> bool {
        let op = self.ops.get(id);
        self.locks.acquire(id, op.first, op.blocks, op.lock_kind())
    }

    fn glance(&mut self, id: OpId) -> bool {
        let op = self.ops.get_mut(id);
        if op.glances == GLANCES_MAX || !op.request.origin.is_own() {
            return false;
        }
        op.glances += 1;
        op.has_locks = !self.locks.glance(id, op.first, op.blocks);
        !op.has_locks
    }

    /// A request that was answered gives its blocks back.
    pub(super) fn unlock(&mut self, id: OpId, op: &Op) {
        if !op.has_locks {
            self.locks.end_glance(id);
        } else if op.blocks > 0 && !is_unlocked(op) {
            self.locks.release(op.first, op.blocks, op.lock_kind(), &mut self.ready);
        }
    }

    /// Whether nothing that a read brings counts any more.
    pub(super) fn is_overtaken(&self, id: OpId) -> bool {
        !self.ops.get(id).has_locks && self.locks.is_overtaken(id) && !mutants::active(mutants::OWN_READ_OVERTAKEN)
    }

    /// Whether a read that has its turn may begin. One of hearth's own gives its locks back first.
    pub(super) fn may_begin_read(&mut self, id: OpId) -> bool {
        if self.is_overtaken(id) {
            self.read_behind_the_writer(id);
            return false;
        }
        let op = self.ops.get(id);
        if !op.has_locks || op.glances == GLANCES_MAX || !op.request.origin.is_own() || is_unlocked(op) {
            return true;
        }
        // It waited for a writer. The next one need not wait for it.
        self.locks.release(op.first, op.blocks, op.lock_kind(), &mut self.ready);
        self.glance(id) || self.acquire(id)
    }

    /// A read that was overtaken, and has no I/O on its way, begins again when that writer has ended.
    pub(super) fn read_behind_the_writer(&mut self, id: OpId) {
        self.locks.end_glance(id);
        let op = self.ops.get_mut(id);
        assert_eq!(op.pending, 0, "its I/Os are done");
        op.read.clear();
        (op.has_locks, op.phase, op.error) = (true, Phase::Start, None);
        if self.acquire(id) {
            self.ready.push_back(id);
        }
    }
}
