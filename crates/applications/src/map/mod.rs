//! Which object each byte of a volume belongs to.
//!
//! * [`Map`]: extents of files and objects, each with who said so. Content is believed for
//!   its own bytes; where it contradicts an extent again and again, a refresh is asked for.
//! * [`Labels`]: one number for each MiB and a short list of exceptions, for files that share their
//!   extents among objects (the indexes of a table) or that no map knows.
//! * [`learn`]: extents found from recognised pages alone.
//!
//! All are bounded when they are made, never grow beyond and say what they hold.

mod doubts;
mod evidence;
mod labels;
pub mod learn;
mod runs;

pub use evidence::{Extent, Map, Outcome, Refresh, Source};
pub use labels::{LabelError, Labels};
pub use runs::Full;
