//! Preload: reading ranges of a volume into the cache, in the order of the disk and beside its clients.
//!
//! * [`plan`]: which bytes are read in which order, which of them are kept, and where a stopped job goes on.
//! * [`pace`]: how many bytes a second clients leave room for.
//! * [`note`]: what is remembered of a job over a restart of the daemon.
//!
//! Pure: no I/O, no clock, no threads. `manager/preload.rs` runs it as a job, `real/warm.rs` reads.

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)]
mod modelled;
pub mod note;
pub mod pace;
pub mod plan;

pub use note::Note;
pub use pace::{Allowed, Pace, Seen};
pub use plan::{Piece, Plan};

use std::ops::Range;
use std::sync::Arc;

/// What a preload was asked for, and how far it has come.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Asked {
    /// What is to be kept: [`Plan::ranges`].
    pub ranges: Arc<[Range<u64>]>,
    /// All of them below this byte has been read.
    pub at_bytes: u64,
    /// Most bytes a second.
    pub rate_bytes_s: Option<u64>,
    /// What it is for, in words: "advice 3".
    pub told: String,
}
