//! From repeated runs to a report: what pairs of runs say ([`pairs`]) and where a run has settled ([`settled`]). Knows
//! nothing of disks and databases: numbers come in, statements go out, so that all of it can be tried on numbers whose truth is known.
#![forbid(unsafe_code)]

pub mod catalogue;
pub mod pairs;
pub mod pattern;
pub mod plot;
mod random;
pub mod settled;
