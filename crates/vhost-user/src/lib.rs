//! The `vhost-user` export: a volume as a virtio disk for virtual machines on this host.
//!
//! ```text
//!   guest ─▶ queues in the guest's memory ─▶ endpoints on reactors ─▶ volume
//!   QEMU, cloud-hypervisor ─▶ socket ─▶ session: memory, queues, features ─▶ wishes of each queue
//! ```
//! Rooms: `export` the socket and whose turn it is; `session` one front end, with `message` and `socket` what it says; `wishes` between
//! it and `queue`, the endpoint; `ring` and `chain` the queue in memory; `slot` what is under way in it; `block` what requests mean; `inflight` requests that
//! outlive the daemon, and `resumption` in which order they end, and `succession` and `own_notes` who may go on with them; `dirty` what a migration must know; `memory`, `mapping` and `guard` memory that is a guest's.
//!
//! Protocol and queues are written here and not taken from the crates `vhost` and `virtio-queue`: the first has no word for a changed
//! configuration and waits without limit, the second ends a malformed chain silently, and neither knows what is in flight or dirty. The tests'
//! front end is built on `vhost`, so that two hands have written the protocol.
//!
//! Invariants: an address of a guest becomes a pointer in `memory` only; whatever a front end or guest writes is read once and checked
//! before it is used; nothing of theirs is waited for on a reactor.

mod block;
mod chain;
mod dirty;
mod error;
mod export;
mod exporter;
mod guard;
mod inflight;
mod mapping;
mod memory;
mod message;
mod own_notes;
mod queue;
mod resumption;
mod ring;
mod session;
mod slot;
mod socket;
mod succession;
mod wishes;

pub use block::QUEUES_MAX;
pub use error::VhostUserError;
pub use export::{ExportOptions, VhostUserExport};
pub use exporter::VhostUserExporter;
