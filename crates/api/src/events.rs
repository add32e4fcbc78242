//! Events, as people and programs see them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How grave an event is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Good to know.
    Info,
    /// Something works less well than it should.
    Warning,
    /// Data or service is in danger; somebody must act.
    Error,
}

impl Severity {
    /// The word on the wire.
    pub const fn word(self) -> &'static str {
        match self {
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
}

/// An event.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct EventView {
    /// Grows by one with each event of this daemon's life.
    pub number: u64,
    /// Seconds since 1970.
    pub unix_s: u64,
    /// How grave.
    pub severity: Severity,
    /// Pool or volume.
    pub object: String,
    /// What, as one sentence.
    pub message: String,
}
