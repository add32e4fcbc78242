//! Disks beside a pool's cache.

use super::{Answered, Shared, run};
use crate::asked::{Asked, Json, Name, Nothing};
use api::{Action, DiskCreate, DiskSet, DiskView, Done, JobView};
use axum::extract::State;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

/// All disks.
#[utoipa::path(get, path = "/api/v1/disks", tag = "disks", responses((status = 200, description = "Disks by name.", body = Vec<DiskView>)))]
pub async fn disk_list(State(app): Shared) -> Answered {
    run(&app, Action::DiskList).await
}

/// Makes a disk beside a pool's cache.
#[utoipa::path(
    post, path = "/api/v1/disks", tag = "disks",
    request_body(content = DiskCreate, example = json!({"name": "scratch", "pool": "fast", "size_bytes": 10737418240i64, "exports": ["loop"]})),
    responses((status = 200, description = "The new disk; or the job that makes it, if the cache has to give room first.", body = MadeDisk))
)]
pub async fn disk_create(State(app): Shared, Json(create): Json<DiskCreate>) -> Answered {
    run(&app, Action::DiskCreate(create)).await
}

/// The result of a disk's creation or growth.
#[derive(ToSchema)]
#[serde(untagged)]
#[allow(dead_code)] // For the description only.
enum MadeDisk {
    /// The cache gives room.
    Job(JobView),
    /// It is there.
    Disk(DiskView),
}

/// One disk.
#[utoipa::path(
    get, path = "/api/v1/disks/{name}", tag = "disks", params(DiskName),
    responses((status = 200, description = "The disk.", body = DiskView))
)]
pub async fn disk_show(State(app): Shared, Name(name): Name) -> Answered {
    run(&app, Action::DiskShow { name }).await
}

/// Changes a disk's size, or how it is offered.
#[utoipa::path(
    patch, path = "/api/v1/disks/{name}", tag = "disks", params(DiskName),
    request_body(content = DiskSet, example = json!({"size_bytes": 21474836480i64})),
    responses((status = 200, description = "The disk as it is now; or the job that grows it, if the cache has to give room first.", body = MadeDisk))
)]
pub async fn disk_set(State(app): Shared, Name(name): Name, Json(set): Json<DiskSet>) -> Answered {
    run(&app, Action::DiskSet { name, set }).await
}

/// Removes a disk and its content.
#[utoipa::path(
    delete, path = "/api/v1/disks/{name}", tag = "disks", params(DiskName, LosingContent),
    responses((status = 200, description = "It is gone.", body = Done))
)]
pub async fn disk_remove(State(app): Shared, Name(name): Name, Asked(asked): Asked<LosingContent>, _: Nothing) -> Answered {
    run(&app, Action::DiskRemove { name, lose_content: asked.lose_content }).await
}

/// Which disk.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[allow(dead_code)] // For the description only.
struct DiskName {
    /// The disk's name.
    #[param(pattern = "^[A-Za-z0-9_][A-Za-z0-9._-]*$", min_length = 1, max_length = 64)]
    name: String,
}

/// How a disk is removed.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct LosingContent {
    /// Its content may be lost.
    #[serde(default)]
    lose_content: bool,
}
