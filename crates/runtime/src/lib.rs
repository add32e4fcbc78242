//! Threads, rings, devices and endpoints: where the engine meets a real machine.
//!
//! ```text
//!   endpoint ──submit──▶ reactor ──▶ bare: one I/O            ──▶ device_io ──▶ ring ──▶ kernel
//!   (NBD, FUSE …)           │   └──▶ cached: front ▶ shards ──▶     │ flush_gate, model
//!      ◀──reply─────────────┴──────────────────────────────────────┘
//! ```
//!
//! Rooms: [`endpoint`] the seam that exports implement, with [`backlog`] and [`turn`], which they use; [`volume`] what they see of a volume; [`runtime`] the seam for the control
//! thread; `reactor` the loop, with `ring`, `inbox` and timers; `device_io` (and the engine's flush gate) what happens to an I/O;
//! `reactor::bare` and `cached` who serves a volume, the latter by the crate `pool`; [`content`] how shards
//! store what blocks contain; `waits` which devices are waited for, and giving them up; `write_streams` which
//! stream of an SSD a write names; [`latency`] and [`stats`] what is counted;
//! [`tapped`] what those who watch loads get to see.

mod all_stats;
pub mod backlog;
pub mod cached;
pub mod clients;
mod command;
pub mod content;
mod device_io;
mod devices;
pub mod endpoint;
mod error;
mod group;
mod huge_pages;
mod inbox;
pub mod latency;
mod medium;
mod message;
mod parts;
mod pools;
mod reactor;
mod refusals;
mod ring;
pub mod runtime;
pub mod stats;
pub mod tapped;
pub mod turn;
mod user_data;
pub mod volume;
mod waits;
mod write_streams;

pub use all_stats::AllStats;
pub use backlog::Backlog;
pub use cached::EventSink;
pub use command::CommandTicket;
pub use devices::{DeviceOptions, DeviceRef};
pub use endpoint::{ANY_VOLUME, Context, Endpoint, Refused};
pub use error::RuntimeError;
pub use group::EndpointGroup;
pub use huge_pages::HugePages;
pub use latency::{Histogram, LatencySummary};
pub use medium::SsdMedium;
pub use parts::Part;
pub use pools::{AttachOptions, PoolOptions, PoolRef};
pub use reactor::{CpuLatency, CpuLatencyWish, Precedence, Standing, monotonic_ns};
pub use refusals::{Asked, DeviceTrouble};
pub use runtime::{BareVolumeOptions, EndpointAdder, Runtime, RuntimeOptions};
pub use stats::{DeviceStats, RequestClass, VolumeStats};
pub use tapped::{PageSeen, Recognise, Sight, Tapped};
pub use turn::Turn;
pub use volume::VolumeRef;
pub use waits::WaitingDevice;
pub use write_streams::{StreamUses, StreamsInUse};
