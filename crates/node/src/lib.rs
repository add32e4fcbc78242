//! A block device that hearth serves, as the machine sees it: [`link`] its stable name, [`users`]
//! who uses it, [`writeback`] what lies in memory above it, [`write_protect`] whether it takes writes,
//! [`patience`] calls on it that may hang.
//!
//! Whether a device is still the one that was made is its export's affair: a number may be another's
//! by now. So what is done to a device here asks for that first.

pub mod link;
pub mod patience;
pub mod users;
pub mod write_protect;
pub mod writeback;
