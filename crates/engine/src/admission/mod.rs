//! May it enter the cache? Here: recognition of sequential streams and of logs. Size and mode are decided by the front, proof of re-use by the policy.

mod streams;
mod tails;

pub use streams::{LOG_WRITE_SECTORS_MAX, Seen, StreamToken, Streams};
