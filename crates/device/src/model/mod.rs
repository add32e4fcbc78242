//! A slow disk, or an array of them, as a pure state machine: I/O descriptions and the time go in, completion times come out.
//!
//! Driving a [`DiskModel`]: the real data transfer is the caller's affair. [`submit`](DiskModel::submit) an I/O when the
//! client asks for it, and hold its completion back until [`pop_completed`](DiskModel::pop_completed) gives its token (and the
//! real transfer is done too). [`next_deadline_ns`](DiskModel::next_deadline_ns) says when to call `pop_completed` next; ask again
//! after every call of the other two. Being late is harmless: the model acts at the times it computed, and only the
//! completion is seen late.
//!
//! Invariants: same calls with the same times, same answers; time never goes back; every token submitted is popped exactly
//! once; the model reads no clock and does no I/O. Formulas, sets and measured figures: docs/disk-model.md.

mod set;

pub use set::{
    Layout, LinkParameters, ModelParameters, ModelSet, ParityUpdate, ReadCacheParameters, SpindleParameters, WriteCacheParameters,
};

use std::collections::BTreeSet;

/// What an I/O does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IoKind {
    /// Read bytes.
    Read,
    /// Write bytes (zeroes included).
    Write,
    /// Make acknowledged writes durable.
    Flush,
    /// Give up a range.
    Discard,
}

/// One I/O as the model sees it: no data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IoDescription {
    /// Chosen by the caller, unique among its I/Os in flight.
    pub token: u64,
    /// What is done.
    pub kind: IoKind,
    /// Where it starts; 0 for a flush.
    pub offset_bytes: u64,
    /// How long it is, inside the device; 0 for a flush.
    pub length_bytes: u64,
    /// For writes: past any volatile cache.
    pub fua: bool,
}

/// The model of one device.
pub struct DiskModel {
    parameters: ModelParameters,
    size_bytes: u64,
    pending: BTreeSet<(u64, u64)>,
    free_ns: u64,
}

impl DiskModel {
    /// A device of `size_bytes` made of the named set, idle, caches empty.
    pub fn new(set: ModelSet, size_bytes: u64) -> DiskModel {
        DiskModel::with_parameters(set.parameters(size_bytes), size_bytes)
    }

    /// The same with numbers of one's own.
    pub fn with_parameters(parameters: ModelParameters, size_bytes: u64) -> DiskModel {
        DiskModel { parameters, size_bytes, pending: BTreeSet::new(), free_ns: 0 }
    }

    /// The numbers in use.
    pub fn parameters(&self) -> &ModelParameters {
        &self.parameters
    }

    /// Size of the device.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Takes an I/O at `now_ns` (any monotonic scale, not before any time given earlier).
    ///
    /// # Panics
    /// If the range is not inside the device: the caller has checked it.
    pub fn submit(&mut self, now_ns: u64, io: IoDescription) {
        assert!(io.offset_bytes.checked_add(io.length_bytes).is_some_and(|end| end <= self.size_bytes), "{io:?} is outside");
        self.free_ns = self.free_ns.max(now_ns) + 10_000_000;
        self.pending.insert((self.free_ns, io.token));
    }

    /// When to call [`pop_completed`](DiskModel::pop_completed) next; `None` while no I/O is in flight.
    pub fn next_deadline_ns(&self) -> Option<u64> {
        self.pending.first().map(|(at_ns, _)| *at_ns)
    }

    /// The token of an I/O that is complete at `now_ns`, in order of completion. Call until it gives `None`.
    pub fn pop_completed(&mut self, now_ns: u64) -> Option<u64> {
        let first = self.pending.first().copied().filter(|(at_ns, _)| *at_ns <= now_ns)?;
        self.pending.remove(&first);
        Some(first.1)
    }

    /// I/Os submitted and not yet popped.
    pub fn in_flight(&self) -> usize {
        self.pending.len()
    }
}
