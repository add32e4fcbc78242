//! May it enter the cache? Here: recognition of sequential streams, of logs, and of bursts that somebody waits for. Size and mode are decided by the front, proof of re-use by the policy.

mod bursts;
mod streams;
mod tails;

pub use bursts::Bursts;
pub use streams::{LOG_WRITE_SECTORS_MAX, Seen, StreamToken, Streams};
