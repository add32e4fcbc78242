//! Which object each byte of a volume belongs to.
//!
//! * [`Map`]: extents of files and objects, as their file system has them.
//! * [`Labels`]: one number for each MiB and a short list of exceptions, for files that share their
//!   extents among objects (the indexes of a table) or that no map knows.
//!
//! Both are bounded when they are made, never grow beyond and say what they hold.

mod extents;
mod labels;
mod runs;

pub use extents::{Extent, Map};
pub use labels::{LabelError, Labels};
pub use runs::Full;
