//! `hearth evaluate`, a program of its own (`main.rs`): the tests of five published evaluations, rerun against hearth, and a report of what came out.
//!
//! Rooms that know nothing of disks and databases, so that all of it is tried on numbers whose truth is known: [`pairs`] (what pairs of runs say),
//! [`settled`] (when a run has reached a rate), [`pattern`] (which request comes next), [`again`] (which reads are of blocks used before), [`plot`] (charts), [`catalogue`] (the suites and what was
//! published), [`result`] (what an evaluation leaves behind), [`report`] (numbers, words and pages of that). Around them: [`stage`] (processes,
//! devices, and the commands that repeat a run), [`load`] (what makes block load), [`database`] (servers and what drives them), [`guests`] (virtual machines), [`suites`] and
//! [`run`] (what is run, and in which order), [`store`] (the directory in which all of it is kept).
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate self as evaluate;
#[cfg(test)]
#[path = "../tests/synthetic/mod.rs"]
mod synthetic;

pub mod again;
pub mod by_hand;
pub mod catalogue;
pub mod database;
pub mod guests;
pub mod load;
pub mod machine;
pub mod pairs;
pub mod pattern;
pub mod plot;
pub mod random;
pub mod report;
pub mod result;
pub mod run;
pub mod settled;
pub mod stage;
pub mod store;
pub mod suites;
pub mod tools;
pub mod trouble;
