//! Block traces: reading them, and replaying them through caches.
//!
//! Rooms: [`read`] files and formats; [`stream`] from requests to block accesses; [`reference`](mod@reference) LRU, FIFO and Belady, to
//! compare with; [`log_model`] a light model of the engine's log around the shipping cache policy; [`members`] the policies of the slot layout without layout; [`shard_replay`] the shipping
//! engine itself over devices that answer at once; [`replay`](mod@replay) a cache over a trace, and how it compares.
#![forbid(unsafe_code)]

pub mod log_model;
pub mod members;
pub mod read;
pub mod reference;
pub mod replay;
pub mod shard_replay;
pub mod stream;
