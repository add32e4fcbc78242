//! Devices: what a backing device or an SSD is, how it is opened and recognised, and the modelled slow disk.
//!
//! * [`spec`], [`size`]: what a user writes for a device and a size.
//! * [`open`]: opening with O_DIRECT, locked against a second daemon, with the geometry found out.
//! * [`identity`], [`signature`], [`busy`]: is it the device it was, does it hold something else, does somebody use it; they
//!   ask [`system`].
//! * [`openers`]: which programs have a device or file open.
//! * [`drive`]: what kind of drive it is. `streams`: how many write streams it has.
//! * [`lvm`]: whether a volume group is used by several machines.
//! * [`stack`]: what stands on a device, up to the mount points; [`below`]: what a path lies on, without asking any file system.
//! * [`discover`]: which block devices there are.
//! * [`blocking`], [`memory`], [`failing`]: one call at a time, for management code and tests.
//! * [`model`]: a hard disk or array as a pure state machine over time.
//!
//! Everything asynchronous lives in the runtime; nothing here starts a thread. `unsafe` is confined to `sys`, a few
//! system calls that have no safe form, and to the aligned buffer.

mod aligned;
pub mod below;
pub mod blocking;
pub mod busy;
mod content_ids;
pub mod discover;
pub mod drive;
mod error;
mod extent;
pub mod failing;
pub mod identity;
mod image_lock;
pub mod lvm;
pub mod memory;
pub mod model;
pub mod open;
pub mod openers;
mod physical;
pub mod signature;
pub mod size;
mod space;
pub mod spec;
pub mod stack;
mod streams;
mod sys;
pub mod system;

pub use aligned::AlignedBuffer;
pub use blocking::{BlockingDevice, BlockingFile, Geometry};
pub use drive::Drive;
pub use error::{DeviceError, Operation};
pub use open::{Access, OpenDevice, OpenError, Strayed};
pub use physical::physical_block_bytes;
pub use spec::{DeviceKind, DeviceSpec, SpecError};
pub use streams::write_streams;
