//! Applications on volumes, and their objects.

use super::{Answered, Shared, run};
use crate::asked::{Asked, Json, Name, Nothing, Number};
use crate::callers::Caller;
use api::error::ControlError;
use api::names::{self, Named};
use api::{
    AppConnect, AppDisconnect, Connected, Done, InsightAction, JobView, ObjectPreload, ObjectQuery, ObjectSet, ObjectView, PolicyDone,
    PreloadView, Role, VolumeApplications,
};
use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;

/// Applications found on volumes by their pages and files.
#[utoipa::path(
    get, path = "/api/v1/applications", tag = "insight", params(OfVolume),
    responses((status = 200, description = "By volume.", body = Vec<VolumeApplications>))
)]
pub async fn application_list(State(app): Shared, caller: Caller, Asked(of): Asked<OfVolume>) -> Answered {
    check_volume(of.volume.as_ref())?;
    run(&app, InsightAction::ApplicationList { volume: of.volume, logins: caller.role >= Role::Operate }).await
}

/// Asks the server of an application for its names and sessions, with a login in a file that only root can read.
#[utoipa::path(
    post, path = "/api/v1/applications/{id}/connect", tag = "insight", params(ApplicationNumber),
    request_body(content = AppConnect, example = json!({"login": "/etc/hearth/shop.cnf"})),
    responses((status = 200, description = "What the server reported.", body = Connected))
)]
pub async fn application_connect(State(app): Shared, Number(id): Number, Json(connect): Json<AppConnect>) -> Answered {
    check_volume(connect.volume.as_ref())?;
    run(&app, InsightAction::ApplicationConnect { id: application(id)?, connect }).await
}

/// Asks it no more.
#[utoipa::path(
    post, path = "/api/v1/applications/{id}/disconnect", tag = "insight", params(ApplicationNumber),
    request_body(content = AppDisconnect, example = json!({})),
    responses((status = 200, description = "Done.", body = Done))
)]
pub async fn application_disconnect(State(app): Shared, Number(id): Number, Json(of): Json<AppDisconnect>) -> Answered {
    check_volume(of.volume.as_ref())?;
    run(&app, InsightAction::ApplicationDisconnect { id: application(id)?, volume: of.volume }).await
}

fn application(id: u64) -> crate::problem::Outcome<u32> {
    Ok(u32::try_from(id).map_err(|_| ControlError::Unknown { named: "application", name: id.to_string() })?)
}

/// Looks for the applications of a volume again.
#[utoipa::path(
    post, path = "/api/v1/volumes/{name}/discover", tag = "insight", params(super::VolumeName),
    responses((status = 200, description = "The job.", body = JobView))
)]
pub async fn volume_discover(State(app): Shared, Name(name): Name, _: Nothing) -> Answered {
    run(&app, InsightAction::ApplicationDiscover { volume: name }).await
}

/// Tables, indexes, logs: those that are read most first.
#[utoipa::path(
    get, path = "/api/v1/objects", tag = "insight", params(Objects),
    responses((status = 200, description = "Objects.", body = Vec<ObjectView>))
)]
pub async fn object_list(State(app): Shared, Asked(of): Asked<Objects>) -> Answered {
    check_volume(of.volume.as_ref())?;
    let Objects { volume, application, kind, object, sort, limit } = of;
    run(&app, InsightAction::ObjectList(ObjectQuery { volume, application, kind, object, sort, limit })).await
}

/// How objects are treated: whether they enter the cache, what becomes of writes, what scans may do.
#[utoipa::path(
    post, path = "/api/v1/objects/policy", tag = "insight",
    request_body(content = ObjectSet, example = json!({"kind": "temp", "admit": "never"})),
    responses((status = 200, description = "What it is for.", body = PolicyDone))
)]
pub async fn object_set(State(app): Shared, Json(set): Json<ObjectSet>) -> Answered {
    check_volume(set.volume.as_ref())?;
    run(&app, InsightAction::ObjectSet(set)).await
}

/// Reads objects into the cache, in the order of the disk: those parts first that are read again most, where there is a budget.
#[utoipa::path(
    post, path = "/api/v1/objects/preload", tag = "insight",
    request_body(content = ObjectPreload, example = json!({"objects": ["shop.orders"], "budget_bytes": 1_073_741_824})),
    responses((status = 200, description = "What is read, and the job that reads it.", body = PreloadView))
)]
pub async fn object_preload(State(app): Shared, Json(asked): Json<ObjectPreload>) -> Answered {
    check_volume(asked.volume.as_ref())?;
    run(&app, InsightAction::ObjectPreload(asked)).await
}

fn check_volume(volume: Option<&String>) -> crate::problem::Outcome<()> {
    Ok(volume.map_or(Ok(()), |volume| names::check(Named::Volume, volume))?)
}

/// Of which volume.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct OfVolume {
    /// A volume; absent: all.
    #[serde(default)]
    #[param(pattern = "^[A-Za-z0-9_][A-Za-z0-9._-]*$", min_length = 1, max_length = 64)]
    volume: Option<String>,
}

/// Which application.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[allow(dead_code)] // For the description only.
struct ApplicationNumber {
    /// The application's number.
    id: u32,
}

/// Which objects.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Objects {
    /// Of that volume.
    #[serde(default)]
    #[param(pattern = "^[A-Za-z0-9_][A-Za-z0-9._-]*$", min_length = 1, max_length = 64)]
    volume: Option<String>,
    /// Of the application of that number or data directory.
    #[serde(default)]
    application: Option<String>,
    /// Of that kind, for instance "table" or "index".
    #[serde(default)]
    kind: Option<String>,
    /// The one of that name or number.
    #[serde(default)]
    object: Option<String>,
    /// Order: "heat" (default), "gain" (of a volume), "size" or "name".
    #[serde(default)]
    #[param(pattern = "^(heat|gain|size|name)$")]
    sort: Option<String>,
    /// The first so many [default: 1000].
    #[serde(default, deserialize_with = "api::int64::or_none")]
    #[param(minimum = 1, maximum = 100_000)]
    limit: Option<u64>,
}
