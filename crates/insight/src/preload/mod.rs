//! Preload: reading ranges of a volume into the cache, in the order of the disk and beside its clients.
//!
//! * [`plan`]: which bytes are read in which order, which of them are kept, and where a stopped job goes on.
//! * [`pace`]: how many bytes a second clients leave room for.
//! * [`note`]: what is remembered of a job over a restart of the daemon.
//!
//! Pure: no I/O, no clock, no threads. `manager/preload.rs` runs it as a job, `machine/warm.rs` reads.

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)]
mod modelled;
pub mod note;
pub mod pace;
pub mod plan;

pub use note::Note;
pub use pace::{Allowed, Pace, Seen};
pub use plan::Plan;
