//! How much cache a load needs: hit-rate curves from a sample of its references, with their error.
//!
//! ```text
//! references ─▶ line_hash ─▶ Stack (a sample, its reuse distances) ─▶ Profile ─▶ Curve ─▶ Size with a band
//! ```
//!
//! The method is SHARDS with a fixed number of sampled lines (Waldspurger and others, "Efficient MRC
//! Construction with SHARDS", FAST 2015), with its correction of the number of references
//! (SHARDS-adj). The error is estimated from the sample itself, see [`curve`].
//!
//! No threads, no clock, no input or output.

#![forbid(unsafe_code)]

pub mod advice;
pub mod buckets;
pub mod curve;
pub mod joint;
pub mod kept;
pub mod load;
pub mod miniature;
pub mod parts;
pub mod profile;
pub mod regions;
pub mod saved;
pub mod shares;
mod slices;
mod stack;
pub mod watch;

pub use curve::{Curve, Size};
pub use engine::tap::line_hash;
pub use kept::Kept;
pub use load::{Load, NotYet, Writes};
pub use profile::Profile;
pub use stack::{Reused, Stack};
pub use watch::Watch;
