//! The slot layout, version 4: blocks lie in *slots*, pages of the SSD that are used one by one, and a small *ring* of pages says what is
//! where.
//!
//! Rooms: [`statement`] what is said of a slot; [`page`] a page of the ring, which is what becomes complete and durable together;
//! [`RingPlace`] which pages are the ring.

pub mod page;
mod ring;
pub mod statement;

pub use page::{RingHead, STATEMENT_BYTES_MAX};
pub use ring::RingPlace;
pub use statement::{Set, Statement};

/// The version that pages of the ring bear, and the newest that is read.
pub const SLOTS_VERSION: u32 = 4;
