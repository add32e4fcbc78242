//! Block traces: reading them, and replaying them through caches.
//!
//! Rooms: [`read`] files and formats; [`stream`] from requests to block accesses; [`reference`](mod@reference) LRU, FIFO and Belady, to compare
//! with; [`log_model`] a light model of the engine's log around the shipping cache
//! policy; [`replay`](mod@replay) any of them over a trace, and what came out.
#![forbid(unsafe_code)]

pub mod log_model;
pub mod read;
pub mod reference;
pub mod replay;
pub mod stream;
