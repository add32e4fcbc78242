//! The `loop` export: a volume as a real block device, by way of FUSE and the loop driver.
//!
//! ```text
//!   /dev/hearth/NAME ─▶ /dev/loopN ─▶ loop driver, direct I/O ─▶ the file RUN_DIR/NAME ─▶ FUSE ─▶ an endpoint on a reactor ─▶ volume
//! ```
//! Our own server of a single mounted *file* (its mount point is a file, so there are no names and directories), on any kernel with FUSE and
//! the loop driver, without a module of ours.
//!
//! Rooms: [`protocol`] the wire; `file` what operations mean for the volume; `handshake`,
//! `receiver` and `connection` the classic transport over `/dev/fuse`; `ring` the one over
//! io_uring; `mount` and `mounts`, `ownloop`, `loopdev`, `loopsys` and `loopusers` the kernel's
//! objects, `parts` partitions, `takeover` and `table` what the next daemon needs to go on;
//! `export` all of it together. What holds for any block device of ours is in the crate `node`.
//!
//! Invariants: nothing here caches or reorders data; a request is answered once, when the volume has answered; I/O on our own devices
//! is never done on a reactor's thread, which would wait for itself.

mod connection;
mod error;
mod export;
mod exporter;
mod file;
mod growth;
mod handshake;
mod loopdev;
mod loopsys;
mod loopusers;
mod mount;
mod mounts;
mod ownloop;
mod parts;
pub mod protocol;
mod receiver;
mod ring;
mod table;
mod takeover;

pub use error::FuseError;
pub use export::{Cleared, FileExport, LoopExport, LoopHandle, LoopOptions, Transport, clear_leftovers};
pub use exporter::{KIND, LoopExporter, clear_export, clear_killed_export, waits_for_a_daemon};
pub use node::link::Name as StableName;
pub use ownloop::owner_of;
pub use takeover::{end_kept, volume_of_kept};
