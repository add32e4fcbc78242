//! `hearth evaluate`: the tests of five published evaluations, rerun against hearth, and a report of what came out.
//!
//! Rooms that know nothing of disks and databases, so that all of it is tried on numbers whose truth is known: [`pairs`] (what pairs of runs say),
//! [`settled`] (where a run is steady), [`pattern`] (which request comes next), [`plot`] (charts), [`catalogue`] (the suites and what was
//! published), [`result`] (what an evaluation leaves behind). [`report`] (numbers, words and pages of that). Around them: [`stage`] (processes, devices,
//! and the commands that repeat a run), [`store`] (the directory in which all of it is kept).
#![forbid(unsafe_code)]

pub mod catalogue;
pub mod pairs;
pub mod pattern;
pub mod plot;
mod random;
pub mod report;
pub mod result;
pub mod settled;
pub mod stage;
pub mod store;
pub mod trouble;
