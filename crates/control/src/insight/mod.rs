//! What loads need: watches over volumes, devices and traces, and the advice made of them.
//!
//! ```text
//! reactors ── samples, requests ──▶ observer (a thread, once a second) ──▶ watched.rs, one of each volume and analysis
//! blocktap, traces ────────────────▶ source.rs ──────────────────────────▶      └──▶ advising.rs ──▶ AdviceView
//! ```
//!
//! Nothing here is on the way of a request, and no lock of the data path is held. What is found is told to people; nothing
//! is decided by it.

pub mod advising;
pub mod askers;
mod began;
pub mod changes;
pub mod hidden;
mod marks;
pub mod objects;
mod observer;
pub mod passed;
pub mod policies;
mod presence;
mod read_time;
pub mod shares;
mod source;
pub mod untouched;
mod watched;
mod witness;

pub use observer::{Came, Insight, InsightOptions, LoadNamed, Look, LookedAt};
pub use source::{Source, SourceOf};
pub use watched::{Step, Watched, writes_in};
pub use witness::Witness;

/// Milliseconds of the clock that all watches use: the monotonic one, as the reactors' times are.
pub(crate) fn now_ms() -> u64 {
    runtime::monotonic_ns() / 1_000_000
}
