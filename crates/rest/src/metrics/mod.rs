//! Counters for Prometheus.

use crate::routes::{Answered, Shared};
use axum::extract::State;

/// Answers a scrape.
pub async fn serve(State(_app): Shared) -> Answered {
    Err(crate::problem::no_path())
}
