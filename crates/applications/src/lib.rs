//! What the blocks of a volume belong to: pages of databases, their names, and the streams that
//! read them.
//!
//! No threads, no clock, no input or output: bytes and requests go in, findings come out. Nothing
//! here can change an answer to a client; a wrong finding costs speed.

#![forbid(unsafe_code)]

mod bytes;
mod dialects;
mod object_kind;
mod page;
mod recognise;

pub mod discovery;
pub mod filesystems;
pub mod map;
pub mod naming;
pub mod streams;

pub use dialects::{Engine, engine_of_file, innodb, mssql, oracle, postgres};
pub use object_kind::ObjectKind;
pub use page::{Certainty, Native, Page, PageKind, PageOwner};
pub use recognise::{STEP_BYTES, examine, pages, recognise, verify};
