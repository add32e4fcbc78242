//! The disks of this machine.

use super::{Answered, Shared, run};
use crate::asked::Json;
use api::{Action, DeviceExamine, DeviceView};
use axum::extract::State;

/// All disks, partitions and loop devices, and whether each can be used.
#[utoipa::path(get, path = "/api/v1/devices", tag = "devices", responses((status = 200, description = "The devices.", body = Vec<DeviceView>)))]
pub async fn device_list(State(app): Shared) -> Answered {
    run(&app, Action::DeviceList).await
}

/// Looks at a device, a file, or `model:SET:FILE`; changes nothing.
#[utoipa::path(
    post, path = "/api/v1/devices/examine", tag = "devices",
    request_body(content = DeviceExamine, example = json!({"path": "/dev/sdb"})),
    responses((status = 200, description = "The device and its state.", body = DeviceView))
)]
pub async fn device_examine(State(app): Shared, Json(examine): Json<DeviceExamine>) -> Answered {
    run(&app, Action::DeviceExamine(examine)).await
}
