//! The cache as a deterministic state machine.
//!
//! The engine does no I/O, reads no clock, draws no randomness and starts no thread. Requests, completions and the time
//! go in; I/Os to start and replies go out. So the same code runs under io_uring in production and under the simulator.
//!
//! Rooms: [`api`] the words spoken with the outside; [`front`] split by extent, ordered, joined; `shard` the machine that
//! owns a share of every volume. What is slow and rare (format, recovery, checkpoint) is plain sequential code over a
//! blocking [`medium::Medium`].
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

pub mod admission;
pub mod api;
pub mod disks;
pub mod flush_gate;
pub mod front;
pub mod locks;
pub mod medium;
mod neighbours;
mod numbered;
pub mod outbox;
pub mod packer;
pub mod policy;
pub mod presence;
pub mod ram;
pub mod records;
pub mod region_heat;
pub mod shard;
pub mod stats;
pub mod store;
pub mod superblock;
pub mod tap;
pub mod trail;
pub mod treatment;
pub mod unanimous;

pub use ::index;
pub use index::key;
pub use mistakes as mutants;
pub use store::{checkpoint, inspect, recovery};
