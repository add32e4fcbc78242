//! Management: what may be done to pools, volumes and disks, and in which order so that nothing is lost.
//!
//! * [`manager`]: carries out every action of the API, over the traits of the crate `datapath`.
//! * [`rescue`]: attached devices go on without hearth.
#![forbid(unsafe_code)]

pub mod manager;
mod repeats;
pub mod rescue;
