//! Deterministic simulation: the engine that ships, on modelled devices, in virtual time, from one seed.
#![forbid(unsafe_code)]

pub mod content;
pub mod course;
pub mod coverage;
pub mod daemon;
pub mod disk;
pub mod exhaustive;
pub mod looking;
#[cfg(feature = "mutants")]
pub mod mutants;
pub mod oracle;
pub mod plan;
pub mod prng;
pub mod protocol;
pub mod scheduler;
pub mod shrink;
pub mod soak;
pub mod standin;
pub mod system;
pub mod tape;
pub mod workload;
pub mod world;
