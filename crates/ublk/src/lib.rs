//! The `ublk` export: a volume as a block device of the kernel's ublk driver, served on the reactors.
//!
//! ```text
//!   /dev/hearth/NAME ─▶ /dev/ublkbN ─▶ ublk driver ─▶ commands on a reactor's ring, data by /dev/ublkcN ─▶ volume
//! ```
//! The device outlives its server: the kernel keeps its requests when the daemon ends or is killed,
//! also those that were under way, and hands them to the next one. A write may be carried out twice
//! by that, always before its answer. So of two that overlap and are under way at once, the one that
//! was done first may be done last, too: a request names only its queue and tag, which a new one may
//! have as well, so what was done cannot be told from what is new.
//!
//! Rooms: `uapi` the kernel's interface; `kernels` and [`support`] whether it can be used; `control`
//! commands to the driver; `table`, `queue` and `switch` the data path; [`export`] all of it
//! together; `left` devices that have no server.

mod control;
mod error;
pub mod export;
mod exporter;
mod kernels;
mod left;
mod queue;
mod succession;
pub mod support;
mod switch;
mod table;
mod uapi;

pub use error::UblkError;
pub use export::{SERVER_PATIENCE, UblkExport, UblkOptions};
pub use exporter::{KIND, UblkExporter, end_left_device};
pub use left::{Left, end_left, forget_name, is_of, is_ours, is_there, left, waits_for_a_daemon};
pub use support::Probe;
