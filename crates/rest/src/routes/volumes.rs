//! Volumes.

use super::{Answered, Shared, run};
use crate::asked::{Asked, Json, Name, Nothing};
use crate::problem::Problem;
use api::{
    Action, Done, JobView, MAP_CELLS_MAX, MapView, VolumeAdd, VolumeRename, VolumeSet, VolumeView, VolumeWarm, WHY_BYTES_MAX, WhyView,
};
use axum::extract::State;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

/// Cells of a map where the request does not say how many.
const MAP_CELLS: u32 = 1024;
/// Bytes that `why` looks at where the request does not say how many: a block.
const WHY_BYTES: u64 = types::BLOCK_BYTES;

/// All volumes.
#[utoipa::path(get, path = "/api/v1/volumes", tag = "volumes", responses((status = 200, description = "Volumes by name.", body = Vec<VolumeView>)))]
pub async fn volume_list(State(app): Shared) -> Answered {
    run(&app, Action::VolumeList).await
}

/// Creates an accelerated volume.
#[utoipa::path(
    post, path = "/api/v1/volumes", tag = "volumes",
    request_body(
        content = VolumeAdd,
        example = json!({"name": "db", "pool": "fast", "backing": "/dev/sdb", "exports": ["loop"], "options": {"mode": "write-back"}})
    ),
    responses((status = 200, description = "The new volume.", body = VolumeView))
)]
pub async fn volume_add(State(app): Shared, Json(add): Json<VolumeAdd>) -> Answered {
    run(&app, Action::VolumeAdd(add)).await
}

/// One volume.
#[utoipa::path(
    get, path = "/api/v1/volumes/{name}", tag = "volumes", params(VolumeName),
    responses((status = 200, description = "The volume.", body = VolumeView))
)]
pub async fn volume_show(State(app): Shared, Name(name): Name) -> Answered {
    run(&app, Action::VolumeShow { name }).await
}

/// Changes options of a volume while I/O runs.
#[utoipa::path(
    patch, path = "/api/v1/volumes/{name}", tag = "volumes", params(VolumeName),
    request_body(content = VolumeSet, example = json!({"options": {"mode": "write-through", "dirty_limit": {"bytes": 1073741824}}})),
    responses((status = 200, description = "Done at once, or the job that leaves write-back.", body = Changed))
)]
pub async fn volume_set(State(app): Shared, Name(name): Name, Json(set): Json<VolumeSet>) -> Answered {
    run(&app, Action::VolumeSet { name, set }).await
}

/// The result of a change.
#[derive(ToSchema)]
#[serde(untagged)]
#[allow(dead_code)] // For the description only.
enum Changed {
    /// It continues.
    Job(JobView),
    /// It is done.
    Done(Done),
}

/// Destages and forgets a volume.
#[utoipa::path(
    delete, path = "/api/v1/volumes/{name}", tag = "volumes", params(VolumeName, Removing),
    responses((status = 200, description = "The job that does it.", body = JobView))
)]
pub async fn volume_remove(State(app): Shared, Name(name): Name, Asked(asked): Asked<Removing>, _: Nothing) -> Answered {
    run(&app, Action::VolumeRemove { name, drop_dirty: asked.drop_dirty }).await
}

/// Gives a volume that is not in use another name; its cache is kept.
#[utoipa::path(
    post, path = "/api/v1/volumes/{name}/rename", tag = "volumes", params(VolumeName),
    request_body(content = VolumeRename, example = json!({"name": "orders"})),
    responses((status = 200, description = "It has that name.", body = Done))
)]
pub async fn volume_rename(State(app): Shared, Name(name): Name, Json(rename): Json<VolumeRename>) -> Answered {
    run(&app, Action::VolumeRename { name, to: rename.name }).await
}

/// Starts a volume that is not running.
#[utoipa::path(
    post, path = "/api/v1/volumes/{name}/start", tag = "volumes", params(VolumeName),
    responses((status = 200, description = "It runs.", body = Done))
)]
pub async fn volume_start(State(app): Shared, Name(name): Name, _: Nothing) -> Answered {
    run(&app, Action::VolumeStart { name }).await
}

/// Stops a volume that is not in use; its cache is kept.
#[utoipa::path(
    post, path = "/api/v1/volumes/{name}/stop", tag = "volumes", params(VolumeName, Stopping),
    responses((status = 200, description = "It is stopped, and its backing device is free.", body = Done))
)]
pub async fn volume_stop(State(app): Shared, Name(name): Name, Asked(asked): Asked<Stopping>, _: Nothing) -> Answered {
    run(&app, Action::VolumeStop { name, give_up: asked.give_up, force: asked.force }).await
}

/// Drops the clean cache of a volume.
#[utoipa::path(
    post, path = "/api/v1/volumes/{name}/drop-cache", tag = "volumes", params(VolumeName),
    responses((status = 200, description = "The clean cache is dropped; dirty data is kept.", body = Done))
)]
pub async fn volume_drop_cache(State(app): Shared, Name(name): Name, _: Nothing) -> Answered {
    run(&app, Action::VolumeDropCache { name }).await
}

/// Serves a volume with the size that its backing device has grown to, while I/O runs.
#[utoipa::path(
    post, path = "/api/v1/volumes/{name}/grow", tag = "volumes", params(VolumeName),
    responses((status = 200, description = "All of its backing device is served. A device that has shrunk is refused.", body = Done))
)]
pub async fn volume_grow(State(app): Shared, Name(name): Name, _: Nothing) -> Answered {
    run(&app, Action::VolumeGrow { name }).await
}

/// Destages all dirty data.
#[utoipa::path(
    post, path = "/api/v1/volumes/{name}/destage", tag = "volumes", params(VolumeName),
    responses((status = 200, description = "The job that does it.", body = JobView))
)]
pub async fn volume_destage(State(app): Shared, Name(name): Name, _: Nothing) -> Answered {
    run(&app, Action::VolumeDestage { name }).await
}

/// Reads a range into the cache.
#[utoipa::path(
    post, path = "/api/v1/volumes/{name}/warm", tag = "volumes", params(VolumeName),
    request_body(content = VolumeWarm, example = json!({"start_bytes": 0, "end_bytes": 1073741824})),
    responses((status = 200, description = "The job that does it.", body = JobView))
)]
pub async fn volume_warm(State(app): Shared, Name(name): Name, Json(warm): Json<VolumeWarm>) -> Answered {
    run(&app, Action::VolumeWarm { name, warm }).await
}

/// Why a range is, or is not, cached.
#[utoipa::path(
    get, path = "/api/v1/volumes/{name}/why", tag = "volumes", params(VolumeName, Asking),
    responses((status = 200, description = "What is cached there, and the latest requests with their outcome.", body = WhyView))
)]
pub async fn volume_why(State(app): Shared, Name(name): Name, Asked(asked): Asked<Asking>) -> Answered {
    let length_bytes = asked.length_bytes.unwrap_or(WHY_BYTES);
    if length_bytes == 0 || length_bytes > WHY_BYTES_MAX {
        return Err(Problem::usage("length_bytes is not between 1 byte and 1 GiB", "ask for a smaller range"));
    }
    run(&app, Action::VolumeWhy { name, start_bytes: asked.start_bytes, length_bytes }).await
}

/// The address space in cells: heat, what is cached, what is dirty.
#[utoipa::path(
    get, path = "/api/v1/volumes/{name}/map", tag = "volumes", params(VolumeName, Mapping),
    responses((status = 200, description = "The cells.", body = MapView))
)]
pub async fn volume_map(State(app): Shared, Name(name): Name, Asked(asked): Asked<Mapping>) -> Answered {
    let cells = asked.cells.unwrap_or(MAP_CELLS);
    if cells == 0 || cells > MAP_CELLS_MAX {
        return Err(Problem::usage(format!("cells is not between 1 and {MAP_CELLS_MAX}"), "ask for fewer cells"));
    }
    run(&app, Action::VolumeMap { name, start_bytes: asked.start_bytes, end_bytes: asked.end_bytes, cells }).await
}

/// Which volume.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[allow(dead_code)] // For the description only.
pub struct VolumeName {
    /// The volume's name.
    #[param(pattern = "^[A-Za-z0-9_][A-Za-z0-9._-]*$", min_length = 1, max_length = 64)]
    name: String,
}

/// How a volume is removed.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Removing {
    /// Lose the dirty data instead of destaging it.
    #[serde(default)]
    drop_dirty: bool,
}

/// How a volume is stopped, and what is lost.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Stopping {
    /// Also if its backing device does not answer: requests in flight fail; dirty data stays on the SSD.
    #[serde(default)]
    give_up: bool,
    /// Also if its backing file, or its SSD's with dirty data, was deleted meanwhile, and is lost by that.
    #[serde(default)]
    force: bool,
}

/// Which range.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Asking {
    /// First byte; rounded down to a block of 4096 bytes.
    #[serde(deserialize_with = "api::int64::number")]
    start_bytes: u64,
    /// How many bytes; rounded up to blocks, cut at the volume's end; a block if it is not given.
    #[serde(default)]
    #[param(minimum = 1, maximum = 1073741824)]
    length_bytes: Option<u64>,
}

/// Which part, how fine.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Mapping {
    /// First byte; rounded down to a MiB.
    #[serde(default, deserialize_with = "api::int64::number")]
    start_bytes: u64,
    /// End, exclusive; the volume's end if it is not given.
    #[serde(default, deserialize_with = "api::int64::or_none")]
    end_bytes: Option<u64>,
    /// At most so many cells; 1024 if it is not given.
    #[serde(default)]
    #[param(minimum = 1, maximum = 16384)]
    cells: Option<u32>,
}
