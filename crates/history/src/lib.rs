//! Series over time: what the counters of volumes and pools said each second of the last hour, each minute of the last week and each hour of the last year.
//!
//! ```text
//! record ─► object.rs: the open chunks ─► state.rs: closed chunks that wait ─► writer.rs (a thread) ─► store/: SQLite
//!                        └──────────────── query.rs ◄───┴────────────────────────────────────────────────┘
//! ```
//!
//! [`History::record`] touches memory only, so a slow disk never makes the caller wait. Queries join what is stored with what is not yet. The file
//! may be lost or damaged at any moment: it is set aside, a new one is begun, and it is told; recording goes on. docs/internals/history.md has the rest.
#![forbid(unsafe_code)]

mod body;
mod chunk;
mod error;
mod grain;
mod history;
mod object;
mod query;
mod state;
mod store;
mod writer;

pub use error::HistoryError;
pub use history::{History, HistoryOptions, Status};
pub use query::Answer;
