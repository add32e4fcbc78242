//! A virtual machine without a machine: a vhost-user front end and the driver's side of its disk, in this process.
//!
//! For tests and measurements: what QEMU and a guest's kernel do, at the speed of the host. The front end is that of the crate `vhost`;
//! the driver is our own and does no more than a driver must, so that what is measured is the other side.
//!
//! Rooms: [`memory`] what both sides share; [`queue`] the driver's side of a queue; [`guest`] all of it together.

pub mod guest;
pub mod memory;
pub mod queue;

pub use guest::{Guest, Kind, Options, feature};
pub use memory::Memory;
pub use queue::{Buffers, Done, Queue};
