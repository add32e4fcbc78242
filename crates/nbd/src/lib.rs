//! The NBD export.

mod connection;
mod exports;
mod limits;
mod message;
pub mod protocol;
mod receiver;
mod sender;
mod slots;
mod transmission;

pub use exports::{Counters, ExportError, ExportOptions};
pub use limits::Limits;
