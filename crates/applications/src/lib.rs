//! What the blocks of a volume belong to: pages of databases, their names, and the streams that
//! read them.
//!
//! No threads, no clock, no input or output: bytes and requests go in, findings come out. Nothing
//! here can change an answer to a client; a wrong finding costs speed.

#![forbid(unsafe_code)]

mod bytes;
mod page;
mod recognise;

pub mod discovery;
pub mod filesystems;
pub mod innodb;
pub mod map;
pub mod mssql;
pub mod naming;
pub mod oracle;
mod other;
pub mod postgres;
pub mod streams;

pub use page::{Certainty, Engine, Native, Page, PageKind};
pub use recognise::{STEP_BYTES, examine, pages, recognise, verify};
