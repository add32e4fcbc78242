//! A pool's host half, without I/O: how its shards are made from what is on the SSD, and how fronts and shards are driven.
//!
//! The daemon, the simulator, the modelled data path of management's tests and the replicas of analyses drive pools by this code.
//!
//! * [`part`]: one thread's part of a pool, a front and the shards that live there. What it wants of the outside goes to a [`Host`].
//! * [`commands`]: what a command is for fronts, and who answers it. The only place where commands are told apart. [`Answers`]: those awaited.
//! * [`devices`]: which device an I/O is for.
//! * [`root`]: the superblock while the pool runs. [`restart`]: from the SSD to shards.
//! * [`content`]: how shards treat content.
//! * [`alone`]: a shard over devices that answer at once.
#![forbid(unsafe_code)]

pub mod alone;
pub mod answers;
pub mod commands;
pub mod content;
pub mod devices;
pub mod part;
pub mod restart;
pub mod root;
pub mod slab;

pub use answers::Answers;
pub use devices::Devices;
pub use part::{Feeder, Host, Origin, Part, Place};
