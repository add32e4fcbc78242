//! Volumes attached to devices in use.

use super::volumes::VolumeName;
use super::{Answered, Shared, run};
use crate::asked::{Json, Name, Nothing};
use api::{Action, Attach, Done};
use axum::extract::State;

/// Attaches a volume to a mapped device or logical volume in use; nothing is unmounted.
#[utoipa::path(
    post, path = "/api/v1/attachments", tag = "volumes",
    request_body(content = Attach, example = json!({"name": "db", "device": "/dev/vg/db", "pool": "fast"})),
    responses((status = 200, description = "Its requests go through the new volume.", body = Done))
)]
pub async fn attach(State(app): Shared, Json(attach): Json<Attach>) -> Answered {
    run(&app, Action::Attach(attach)).await
}

/// Gives the device of a volume what it lay on before, and removes the volume; nothing is unmounted.
#[utoipa::path(
    delete, path = "/api/v1/attachments/{name}", tag = "volumes", params(VolumeName),
    responses((status = 200, description = "The device is as it was before.", body = Done))
)]
pub async fn detach(State(app): Shared, Name(name): Name, _: Nothing) -> Answered {
    run(&app, Action::Detach { name }).await
}
