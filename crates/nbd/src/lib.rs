//! The NBD export.

pub mod protocol;
