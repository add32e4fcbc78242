//! A bounded number of slots, shared among peers: who gets one, who does not, and who gives way.
//!
//! Bookkeeping without sockets, clock or threads. A server holds one [`Table`] for connections that have not proved themselves
//! yet, where the oldest gives way to the newest, and another one for those that have; see the door of the NBD server and the
//! door of the API. [`Seldom`] keeps a flood of refusals from becoming a flood of log lines.
#![forbid(unsafe_code)]

mod seldom;
mod table;

pub use seldom::Seldom;
pub use table::{Entered, Full, Slot, Table};
