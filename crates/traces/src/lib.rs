//! Block traces: reading them, and replaying them through caches.
//!
//! Rooms: [`read`] files and formats; [`stream`] from requests to block accesses; [`reference`](mod@reference) LRU, FIFO and Belady, to
//! compare with; [`members`] the cache's policies without layout; [`shard_replay`] the shipping
//! engine itself over devices that answer at once; [`replay`](mod@replay) a cache over a trace, and how it compares.
#![forbid(unsafe_code)]

pub mod members;
pub mod read;
pub mod reference;
pub mod replay;
pub mod shard_replay;
pub mod stream;
