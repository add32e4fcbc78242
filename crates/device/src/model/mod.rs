//! A slow disk, or an array of them, as a pure state machine: I/O descriptions and the time go in, completion times come out.
//!
//! Driving a [`DiskModel`]: the real data transfer is the caller's affair. [`submit`](DiskModel::submit) an I/O when the
//! client asks for it, and hold its completion back until [`pop_completed`](DiskModel::pop_completed) gives its token (and the
//! real transfer is done too). [`next_deadline_ns`](DiskModel::next_deadline_ns) says when to call `pop_completed` next; ask again
//! after every call of the other two. Being late is harmless: the model acts at the times it computed, and only the
//! completion is seen late. Nothing needs to be called while no I/O is in flight: background work is caught up with later.
//!
//! Invariants: same calls with the same times, same answers; time never goes back; every token submitted is popped exactly
//! once; the model reads no clock and does no I/O. Formulas, sets and measured figures: docs/disk-model.md.
//!
//! Rooms, from the host inwards: [`disk`](DiskModel) (link, controller, jobs), `cache` (write-back and read cache), `layout`
//! (stripes and parity), `spindle` (queue, head, read-ahead), `platter` (seek, rotation, rate), `set` (all numbers; an SSD is no more than those);
//! [`workload`] drives a model in virtual time.

mod cache;
mod disk;
mod layout;
mod platter;
mod set;
mod spindle;
#[cfg(test)]
mod tests;
pub mod workload;

pub use disk::{DiskModel, IoDescription, IoKind, ModelCounters};
pub use set::{
    FlashParameters, Layout, LinkParameters, ModelParameters, ModelSet, ParityUpdate, ReadCacheParameters, SpindleParameters,
    WriteCacheParameters,
};
