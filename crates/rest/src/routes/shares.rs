//! Volumes and disks offered to other machines.

use super::{Answered, Shared, run};
use crate::asked::{Asked, Json, Nothing};
use crate::problem::{self, Problem};
use api::names::{self, Named};
use api::{Action, Done, ShareAdd, ShareView};
use axum::extract::{Path, State};
use serde::Deserialize;
use targets::Protocol;
use utoipa::IntoParams;

/// All shares.
#[utoipa::path(get, path = "/api/v1/shares", tag = "shares", responses((status = 200, description = "Shares by volume or disk.", body = Vec<ShareView>)))]
pub async fn share_list(State(app): Shared) -> Answered {
    run(&app, Action::ShareList).await
}

/// Offers the block device of a volume or disk to other machines.
#[utoipa::path(
    post, path = "/api/v1/volumes/{name}/shares", tag = "shares", params(Sharing),
    request_body(
        content = ShareAdd,
        example = json!({"protocol": "iscsi", "addresses": ["192.0.2.1"], "initiators": ["iqn.1993-08.org.debian:01:abc"]})
    ),
    responses((status = 200, description = "The new share.", body = ShareView))
)]
pub async fn share_add(State(app): Shared, crate::asked::Name(volume): crate::asked::Name, Json(add): Json<ShareAdd>) -> Answered {
    run(&app, Action::ShareAdd { volume, add }).await
}

/// One share of a volume or disk.
#[utoipa::path(
    get, path = "/api/v1/volumes/{name}/shares/{protocol}", tag = "shares", params(WhichShare),
    responses((status = 200, description = "The share.", body = ShareView))
)]
pub async fn share_show(State(app): Shared, path: Path<(String, String)>) -> Answered {
    let (volume, protocol) = which(path)?;
    run(&app, Action::ShareShow { volume, protocol }).await
}

/// Takes the offer of a volume or disk away.
#[utoipa::path(
    delete, path = "/api/v1/volumes/{name}/shares/{protocol}", tag = "shares", params(WhichShare, Ending),
    responses((status = 200, description = "It is gone.", body = Done))
)]
pub async fn share_remove(State(app): Shared, path: Path<(String, String)>, Asked(asked): Asked<Ending>, _: Nothing) -> Answered {
    let (volume, protocol) = which(path)?;
    run(&app, Action::ShareRemove { volume, protocol, force: asked.force }).await
}

fn which(Path((volume, protocol)): Path<(String, String)>) -> Result<(String, Protocol), Problem> {
    names::check(Named::Volume, &volume)?;
    let protocol = Protocol::from_name(&protocol).ok_or_else(problem::no_path)?;
    Ok((volume, protocol))
}

/// Which volume or disk.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[allow(dead_code)] // For the description only.
struct Sharing {
    /// The name of the volume or disk.
    #[param(pattern = "^[A-Za-z0-9_][A-Za-z0-9._-]*$", min_length = 1, max_length = 64)]
    name: String,
}

/// Which share.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[allow(dead_code)] // For the description only.
struct WhichShare {
    /// The name of the volume or disk.
    #[param(pattern = "^[A-Za-z0-9_][A-Za-z0-9._-]*$", min_length = 1, max_length = 64)]
    name: String,
    /// "iscsi" or "nvme-tcp".
    #[param(pattern = "^(iscsi|nvme-tcp)$")]
    protocol: String,
}

/// How a share ends.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Ending {
    /// Also while initiators are connected.
    #[serde(default)]
    force: bool,
}
