//! Pools.

use super::{Answered, Shared, run};
use crate::asked::{Asked, Json, Name, Nothing};
use api::{Action, Done, JobView, PoolCreate, PoolFoundView, PoolImport, PoolReplace, PoolSet, PoolView};
use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;

/// All pools.
#[utoipa::path(get, path = "/api/v1/pools", tag = "pools", responses((status = 200, description = "Pools by name.", body = Vec<PoolView>)))]
pub async fn pool_list(State(app): Shared) -> Answered {
    run(&app, Action::PoolList).await
}

/// Formats an SSD as a pool.
#[utoipa::path(
    post, path = "/api/v1/pools", tag = "pools",
    request_body(content = PoolCreate, example = json!({"name": "fast", "ssd": "/dev/nvme0n1", "ram_bytes": 268435456})),
    responses((status = 200, description = "The new pool.", body = PoolView))
)]
pub async fn pool_create(State(app): Shared, Json(create): Json<PoolCreate>) -> Answered {
    run(&app, Action::PoolCreate(create)).await
}

/// What an SSD holds whose pool is not known here; changes nothing.
#[utoipa::path(
    post, path = "/api/v1/pool-imports/look", tag = "pools",
    request_body(content = PoolImport, example = json!({"ssd": "/dev/nvme0n1"})),
    responses((status = 200, description = "What is there, and where its volumes' devices are.", body = PoolFoundView))
)]
pub async fn pool_look(State(app): Shared, Json(import): Json<PoolImport>) -> Answered {
    run(&app, Action::PoolLook(import)).await
}

/// Takes in the pool of an SSD that is not known here, and serves its volumes.
#[utoipa::path(
    post, path = "/api/v1/pool-imports", tag = "pools",
    request_body(content = PoolImport, example = json!({"ssd": "/dev/nvme0n1", "backings": {"data": "/dev/sdb"}})),
    responses((status = 200, description = "The pool.", body = PoolView))
)]
pub async fn pool_import(State(app): Shared, Json(import): Json<PoolImport>) -> Answered {
    run(&app, Action::PoolImport(import)).await
}

/// One pool.
#[utoipa::path(
    get, path = "/api/v1/pools/{name}", tag = "pools", params(PoolName),
    responses((status = 200, description = "The pool.", body = PoolView))
)]
pub async fn pool_show(State(app): Shared, Name(name): Name) -> Answered {
    run(&app, Action::PoolShow { name }).await
}

/// Changes options of a pool while I/O runs.
#[utoipa::path(
    patch, path = "/api/v1/pools/{name}", tag = "pools", params(PoolName),
    request_body(content = PoolSet, example = json!({"content": "dense"})),
    responses((status = 200, description = "The pool as it is now.", body = PoolView))
)]
pub async fn pool_set(State(app): Shared, Name(name): Name, Json(set): Json<PoolSet>) -> Answered {
    run(&app, Action::PoolSet { name, set }).await
}

/// Starts a pool that is not running, or that runs without its SSD. Its volumes must not be in use.
#[utoipa::path(
    post, path = "/api/v1/pools/{name}/start", tag = "pools", params(PoolName),
    responses((status = 200, description = "It runs.", body = Done))
)]
pub async fn pool_start(State(app): Shared, Name(name): Name, _: Nothing) -> Answered {
    run(&app, Action::PoolStart { name }).await
}

/// Wipes the SSD's superblock and forgets the pool.
#[utoipa::path(
    delete, path = "/api/v1/pools/{name}", tag = "pools", params(PoolName, Destroying),
    responses((status = 200, description = "It is gone.", body = Done))
)]
pub async fn pool_destroy(State(app): Shared, Name(name): Name, Asked(asked): Asked<Destroying>, _: Nothing) -> Answered {
    run(&app, Action::PoolDestroy { name, force: asked.force }).await
}

/// Moves a pool to another SSD; its volumes are kept.
#[utoipa::path(
    post, path = "/api/v1/pools/{name}/replace", tag = "pools", params(PoolName),
    request_body(content = PoolReplace, example = json!({"ssd": "/dev/nvme1n1"})),
    responses((status = 200, description = "The job that does it.", body = JobView))
)]
pub async fn pool_replace(State(app): Shared, Name(name): Name, Json(replace): Json<PoolReplace>) -> Answered {
    run(&app, Action::PoolReplace { name, replace }).await
}

/// Compares what the pool's SSD holds with its checksums.
#[utoipa::path(
    post, path = "/api/v1/pools/{name}/check", tag = "pools", params(PoolName),
    responses((status = 200, description = "The job that does it.", body = JobView))
)]
pub async fn pool_check(State(app): Shared, Name(name): Name, _: Nothing) -> Answered {
    run(&app, Action::PoolCheck { name }).await
}

/// Gives the cache the room back that no disk needs. It keeps what it has, but for one that was upgraded from a log: that begins empty.
#[utoipa::path(
    post, path = "/api/v1/pools/{name}/take-back", tag = "pools", params(PoolName),
    responses((status = 200, description = "The job that does it.", body = JobView))
)]
pub async fn pool_take_back(State(app): Shared, Name(name): Name, _: Nothing) -> Answered {
    run(&app, Action::PoolTakeBack { name }).await
}

/// Which pool.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[allow(dead_code)] // For the description only.
struct PoolName {
    /// The pool's name.
    #[param(pattern = "^[A-Za-z0-9_][A-Za-z0-9._-]*$", min_length = 1, max_length = 64)]
    name: String,
}

/// How a pool is destroyed.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Destroying {
    /// Also remove its volumes, and lose their dirty data.
    #[serde(default)]
    force: bool,
}
