//! Threads, rings, devices and endpoints: where the engine meets a real machine.
//!
//! Rooms: [`endpoint`] the seam that exports implement; [`volume`] what an endpoint sees of a volume.

pub mod endpoint;
pub mod volume;

pub use endpoint::{Context, Endpoint, Refused};
pub use volume::VolumeRef;
