//! Flushes of a backing device: one at a time, and who waits for them.

use super::volume::FlushWaiter;
use super::{Context, Shard};
use crate::api::{IoKind, Target};
use crate::key::Key;
use crate::locks::OpId;
use crate::mutants;
use crate::outbox::Span;
use types::VolumeIndex;

impl Shard {
    /// `id` is to be woken when the first `written` writes of the volume's backing device are durable. False if they are, or if
    /// the device failed.
    pub(super) fn wait_backing_flushed(&mut self, index: VolumeIndex, written: u64, id: OpId) -> bool {
        let backing = &mut self.volumes.of(Key::new(index, 0)).backing;
        let written = match backing.flushing {
            Some(covered) if mutants::active(mutants::FLUSH_BEGUN_EARLIER) => written.min(covered),
            _ => written,
        };
        if backing.flushed >= written || backing.failed {
            return false;
        }
        backing.waiters.push(FlushWaiter { written, op: id });
        self.flush_backing(index);
        true
    }

    /// Starts a flush of the backing device unless one runs (then the next one follows it, if still needed).
    pub(super) fn flush_backing(&mut self, index: VolumeIndex) {
        let backing = &mut self.volumes.of(Key::new(index, 0)).backing;
        if backing.flushing.is_none() && !backing.failed {
            backing.flushing = Some(backing.written);
            let span = Span { target: Target::Backing(index), offset_bytes: 0, length_bytes: 0, background: false };
            self.out.io(span, IoKind::Flush, Context::BackingFlush(index));
        }
    }
}
