//! Watches the requests to a block device that is not hearth's, from outside: it reads what the
//! kernel tells about them and touches neither the device nor its users.
//!
//! ```text
//!   program ─▶ submit_bio ─▶ tracepoint block_bio_queue ─▶ the device
//!                               ├ way `bpf`: our instructions copy 56 bytes into a ring we have mapped
//!                               └ way `tracefs`: an instance of our own, read as text
//! ```
//! A request is seen when it is queued, by the thread that asks, before any driver has it. Issue
//! events would show whoever emptied the queue. The kernel gives sectors of the whole disk;
//! partitions are subtracted here.
//!
//! What it does not see: who wrote a page that the kernel writes back later (a `kworker` does), and
//! programs behind iSCSI or inside a virtual machine (their host's thread does). A device below
//! another sees that one's requests as its own, from the same thread while none waits in between
//! (looked at with dm linear, md raid0 and raid1 on Linux 6.12): watch the one whose content
//! counts.
//!
//! Rooms: [`tap`] what users have; [`watched`] which requests are of a device; [`event`] what is
//! told of each; `bpf` and `text` the two ways; `tracefs` and `format` where the kernel
//! describes its tracepoints; `rights` and [`refused`] why a way may be closed.
//!
//! `unsafe` is confined to `bpf/kernel.rs`: system calls and mappings that have no safe form.

mod bpf;
pub mod event;
mod format;
pub mod refused;
mod rights;
pub mod tap;
mod text;
mod tracefs;
pub mod watched;

pub use bpf::Cost;
pub use event::{Comm, Event, Op};
pub use refused::Refused;
pub use tap::{Drained, Tap, Way, Ways};
pub use watched::Watched;
