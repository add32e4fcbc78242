//! Deterministic simulation: the engine that ships, on modelled devices, in virtual time, from one seed.
#![forbid(unsafe_code)]

pub mod content;
pub mod disk;
pub mod oracle;
pub mod prng;
pub mod scheduler;
