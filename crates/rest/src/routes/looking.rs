//! Counters, events, and what was and is.

use super::{Answered, Shared, run};
use crate::asked::{Asked, Name};
use crate::callers::Caller;
use crate::problem::Problem;
use crate::stream as streaming;
use api::stats::{PoolStats, VolumeStats};
use api::{Action, DaemonView, EventView, HistoryQuery, HistoryView, Sample, StatsView};
use axum::extract::State;
use axum::http::HeaderMap;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

/// Most points of a history.
const POINTS_MAX: u32 = 5000;

/// What the daemon is.
#[utoipa::path(get, path = "/api/v1/daemon", tag = "looking", responses((status = 200, description = "The daemon.", body = DaemonView)))]
pub async fn daemon(State(app): Shared) -> Answered {
    run(&app, Action::Daemon).await
}

/// Counters of everything since the daemon's start.
#[utoipa::path(get, path = "/api/v1/stats", tag = "looking", responses((status = 200, description = "The counters.", body = StatsView)))]
pub async fn stats_all(State(app): Shared) -> Answered {
    run(&app, Action::StatsAll).await
}

/// Counters of a volume, or of the pool of that name if there is no such volume.
#[utoipa::path(
    get, path = "/api/v1/stats/{name}", tag = "looking", params(ObjectName),
    responses((status = 200, description = "The counters.", body = Counters))
)]
pub async fn stats(State(app): Shared, Name(name): Name) -> Answered {
    run(&app, Action::Stats { name }).await
}

/// Of a volume, or of a pool.
#[derive(ToSchema)]
#[serde(untagged)]
#[allow(dead_code)] // For the description only.
enum Counters {
    /// Of a volume.
    Volume(VolumeStats),
    /// Of a pool.
    Pool(PoolStats),
}

/// The newest second of everything.
#[utoipa::path(get, path = "/api/v1/sample", tag = "looking", responses((status = 200, description = "The sample.", body = Sample)))]
pub async fn sample(State(app): Shared) -> Answered {
    run(&app, Action::Sample).await
}

/// The latest events, oldest first.
#[utoipa::path(
    get, path = "/api/v1/events", tag = "looking", params(After),
    responses((status = 200, description = "The events.", body = Vec<EventView>))
)]
pub async fn events(State(app): Shared, Asked(asked): Asked<After>) -> Answered {
    run(&app, Action::Events { after: asked.after.unwrap_or(0) }).await
}

/// Series over time.
#[utoipa::path(
    get, path = "/api/v1/history", tag = "looking", params(Span),
    responses((status = 200, description = "The series.", body = HistoryView))
)]
pub async fn history(State(app): Shared, Asked(span): Asked<Span>) -> Answered {
    let Span { name, series, from_unix_s, to_unix_s, points } = span;
    api::names::check(api::names::Named::Volume, &name)?;
    if from_unix_s >= to_unix_s {
        return Err(Problem::usage("from_unix_s is not before to_unix_s", "ask for a span that begins before it ends"));
    }
    if points.is_some_and(|points| points == 0 || points > POINTS_MAX) {
        return Err(Problem::usage(format!("points is not between 1 and {POINTS_MAX}"), "ask for fewer points"));
    }
    run(&app, Action::History(HistoryQuery { name, series, from_unix_s, to_unix_s, points })).await
}

/// Samples, jobs and events as they occur, as server-sent events.
///
/// `hello` comes first, and again if the listener did not keep up: then it has missed something and should fetch everything again. `sample` comes each second,
/// `job` when a job begins, ends, or has run for another second, `event` with its number as `id:`, and `changed` when the lists of pools or volumes
/// should be fetched again. Comment lines keep the connection alive.
#[utoipa::path(
    get, path = "/api/v1/stream", tag = "looking", params(After, LastEvent),
    responses((status = 200, description = "The stream; it ends with the connection.", body = String, content_type = "text/event-stream"))
)]
pub async fn stream(State(app): Shared, caller: Caller, headers: HeaderMap, Asked(asked): Asked<After>) -> Answered {
    streaming::begin(&app, caller, &headers, asked.after)
}

/// Which volume or pool.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[allow(dead_code)] // For the description only.
struct ObjectName {
    /// A volume's or a pool's name.
    #[param(pattern = "^[A-Za-z0-9_][A-Za-z0-9._-]*$", min_length = 1, max_length = 64)]
    name: String,
}

/// From which event on.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct After {
    /// Only those with a larger number.
    #[serde(default, deserialize_with = "api::int64::or_none")]
    after: Option<u64>,
}

/// What a browser sends when it connects again.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[allow(dead_code)] // For the description only.
struct LastEvent {
    /// Number of the latest event that is known; counts more than `after`.
    #[param(rename = "last-event-id")]
    last_event_id: Option<u64>,
}

/// Which series of which object.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Span {
    /// A volume, or else a pool.
    #[param(pattern = "^[A-Za-z0-9_][A-Za-z0-9._-]*$", min_length = 1, max_length = 64)]
    name: String,
    /// Comma-separated names of series.
    series: String,
    /// Seconds since 1970.
    #[serde(deserialize_with = "api::int64::number")]
    from_unix_s: u64,
    /// Seconds since 1970, exclusive.
    #[serde(deserialize_with = "api::int64::number")]
    to_unix_s: u64,
    /// At most so many points; the step grows accordingly.
    #[serde(default)]
    #[param(minimum = 1, maximum = 5000)]
    points: Option<u32>,
}
