//! What loads need: watches over volumes, devices and traces, and the advice made of them.
//!
//! ```text
//! reactors ── samples, requests ──▶ observer (a thread, once a second) ──▶ watched.rs, one of each volume and analysis
//! blocktap, traces ────────────────▶ source.rs ──────────────────────────▶   │  └──▶ advising.rs ──▶ AdviceView
//!                                                                            └─ saved.rs ─▶ files.rs, over a restart
//! ```
//!
//! Nothing here is on the way of a request, and no lock of the data path is held. What is found is shown to people; policies of objects act
//! on it (`manager/policies.rs`, `manager/objects.rs`).

pub mod advising;
pub mod askers;
mod began;
pub mod changes;
mod contradictions;
pub mod files;
pub mod hidden;
mod marks;
pub mod objects;
mod observer;
pub mod passed;
pub mod policies;
pub mod preload;
mod presence;
mod read_time;
pub mod same_device;
pub mod sampler;
pub mod saved;
pub mod series;
pub mod shares;
mod source;
pub mod untouched;
mod watched;
mod witness;

pub use observer::{Came, FOR_MS_MAX, Insight, InsightOptions, Known, LoadNamed, Look, LookedAt};
pub use saved::{Key, Saved};
pub use source::{DeviceAsked, Source};
pub use watched::{Step, Watched, writes_in};
pub use witness::Witness;

/// Where the clock of the watches begins at a start of the machine: 34 years on, so that a window that was saved before that start begins
/// behind zero. A multiple of 2^32, so that the low bits, which the reactors tell, are those of their clock.
const CLOCK_FROM_MS: u64 = 1 << 40;

/// Milliseconds of the clock that all watches use.
pub fn now_ms() -> u64 {
    clock_ms(runtime::monotonic_ns())
}

/// The same, of a time of the kernel's monotonic clock.
pub fn clock_ms(monotonic_ns: u64) -> u64 {
    CLOCK_FROM_MS + monotonic_ns / 1_000_000
}

/// Milliseconds since 1970; 0 on a clock set before.
pub fn unix_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}
