//! May it enter the cache? Here: recognition of sequential streams. Size and mode are decided by the front, proof of re-use by the policy.

mod streams;

pub use streams::Streams;
