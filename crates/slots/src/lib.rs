//! The books of the slot layout: which slots of the SSD are free, and what of the ring is needed no more.
//!
//! Pure: no I/O, no format, no clock. [`places`] and [`rounds`] know nothing of each other. [`flash`]: what the SSD itself writes for all that.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

pub mod flash;
pub mod places;
pub mod rounds;

pub use places::{Places, Run, SHELF_SLOTS};
pub use rounds::Rounds;
