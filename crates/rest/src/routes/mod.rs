//! The paths, and how an action gets its answer.

mod attachments;
mod devices;
mod disks;
mod insight;
mod jobs;
mod looking;
mod objects;
mod pools;
mod session;
mod shares;
mod tokens;
mod volumes;

pub use attachments::*;
pub use devices::*;
pub use disks::*;
pub use insight::*;
pub use jobs::*;
pub use looking::*;
pub use objects::*;
pub use pools::*;
pub use session::*;
pub use shares::*;
pub use tokens::*;
pub use volumes::*;

use crate::callers::ASKING;
use crate::gate;
use crate::metrics;
use crate::problem::{self, Outcome, PROBLEM_JSON, Problem};
use crate::server::App;
use crate::{assets, openapi};
use api::error::Kind;
use api::{Action, InsightAction, PREFIX};
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, delete, get, post};
use serde::Serialize;
use std::sync::Arc;

/// What handlers share.
pub type Shared = State<Arc<App>>;
/// What handlers give.
pub type Answered = Outcome<Response>;

/// The paths below [`PREFIX`], each with what it takes.
pub fn api() -> Vec<(&'static str, MethodRouter<Arc<App>>)> {
    vec![
        ("/daemon", get(daemon)),
        ("/session", get(session_show).post(session_begin).delete(session_end)),
        ("/session/code", post(session_code)),
        ("/tokens", get(token_list).post(token_create)),
        ("/tokens/{name}", delete(token_revoke)),
        ("/devices", get(device_list)),
        ("/devices/examine", post(device_examine)),
        ("/pools", get(pool_list).post(pool_create)),
        ("/pools/{name}", get(pool_show).patch(pool_set).delete(pool_destroy)),
        ("/pools/{name}/start", post(pool_start)),
        ("/pools/{name}/replace", post(pool_replace)),
        ("/pools/{name}/check", post(pool_check)),
        ("/pools/{name}/take-back", post(pool_take_back)),
        ("/pool-imports", post(pool_import)),
        ("/pool-imports/look", post(pool_look)),
        ("/disks", get(disk_list).post(disk_create)),
        ("/disks/{name}", get(disk_show).patch(disk_set).delete(disk_remove)),
        ("/volumes", get(volume_list).post(volume_add)),
        ("/volumes/{name}", get(volume_show).patch(volume_set).delete(volume_remove)),
        ("/volumes/{name}/rename", post(volume_rename)),
        ("/volumes/{name}/start", post(volume_start)),
        ("/volumes/{name}/stop", post(volume_stop)),
        ("/volumes/{name}/drop-cache", post(volume_drop_cache)),
        ("/volumes/{name}/grow", post(volume_grow)),
        ("/volumes/{name}/destage", post(volume_destage)),
        ("/volumes/{name}/warm", post(volume_warm)),
        ("/volumes/{name}/why", get(volume_why)),
        ("/volumes/{name}/map", get(volume_map)),
        ("/volumes/{name}/shares", post(share_add)),
        ("/volumes/{name}/shares/{protocol}", get(share_show).delete(share_remove)),
        ("/shares", get(share_list)),
        ("/attachments", post(attach)),
        ("/attachments/{name}", delete(detach)),
        ("/analyses", get(analysis_list).post(analysis_start)),
        ("/analyses/{name}", get(analysis_show).delete(analysis_forget)),
        ("/analyses/{name}/stop", post(analysis_stop)),
        ("/streams", get(stream_list)),
        ("/stream-rules", get(stream_rule_list).post(stream_rule_add)),
        ("/stream-rules/{id}", delete(stream_rule_remove)),
        ("/applications", get(application_list)),
        ("/applications/{id}/connect", post(application_connect)),
        ("/applications/{id}/disconnect", post(application_disconnect)),
        ("/volumes/{name}/discover", post(volume_discover)),
        ("/objects", get(object_list)),
        ("/objects/policy", post(object_set)),
        ("/objects/preload", post(object_preload)),
        ("/advice", post(advise)),
        ("/advice/{id}", get(advice_show)),
        ("/advice/{id}/apply", post(advice_apply)),
        ("/advice/{id}/verify", get(advice_verify)),
        ("/stats", get(stats_all)),
        ("/stats/{name}", get(stats)),
        ("/sample", get(sample)),
        ("/jobs", get(job_list)),
        ("/jobs/{id}", get(job_show).delete(job_stop)),
        ("/jobs/{id}/resume", post(job_resume)),
        ("/events", get(events)),
        ("/history", get(history)),
        ("/stream", get(stream)),
        ("/openapi.json", get(openapi::serve)),
    ]
}

/// All paths, behind the gate.
pub fn router(app: Arc<App>) -> Router {
    let mut router = Router::new();
    for (path, methods) in api() {
        router = router.route(&format!("{PREFIX}{path}"), methods);
    }
    router
        .route("/metrics", get(metrics::serve))
        .route("/problems/{kind}", get(problem_page))
        .method_not_allowed_fallback(async || problem::of_status(StatusCode::METHOD_NOT_ALLOWED))
        .fallback(elsewhere)
        .layer(from_fn_with_state(app.clone(), gate::pass))
        .with_state(app)
}

/// Carries out an action on a thread that may wait. Who asked waits for its answer for a while; the action goes on all the same.
pub(crate) async fn run(app: &Arc<App>, action: impl Into<Action>) -> Answered {
    let action = action.into();
    let looks = only_looks(&action);
    let (places, deadline) = if looks { (&app.looks, app.limits.look) } else { (&app.changes, app.limits.change) };
    let place = places.take(ASKING.get()).map_err(|there| {
        let detail = format!("{there} requests are already in progress");
        Problem::new(Kind::Overloaded, detail, "try again in a moment").retry_after(1)
    })?;
    let remedy = where_to_look(&action);
    let manager = app.manager.clone();
    let work = tokio::task::spawn_blocking(move || {
        let answer = manager.handle(action);
        drop(place);
        answer
    });
    match tokio::time::timeout(deadline, work).await {
        Ok(Ok(answer)) => json(&answer?),
        Ok(Err(_panicked)) => Err(Problem::internal()),
        Err(_) if looks => Err(Problem::new(Kind::Late, "no answer in time: a device or a thread is busy", "try again in a moment")),
        Err(_) => Err(Problem::new(Kind::Late, "it is still in progress and continues", remedy)),
    }
}

fn only_looks(action: &Action) -> bool {
    !matches!(
        action,
        Action::PoolCreate(_)
            | Action::PoolSet { .. }
            | Action::PoolReplace { .. }
            | Action::PoolStart { .. }
            | Action::PoolDestroy { .. }
            | Action::PoolCheck { .. }
            | Action::PoolTakeBack { .. }
            | Action::PoolImport(_)
            // It changes nothing, and reads what says where blocks lie.
            | Action::PoolLook(_)
            | Action::DiskCreate(_)
            | Action::DiskSet { .. }
            | Action::DiskRemove { .. }
            | Action::VolumeAdd(_)
            | Action::Attach(_)
            | Action::Detach { .. }
            | Action::VolumeSet { .. }
            | Action::VolumeRename { .. }
            | Action::VolumeStart { .. }
            | Action::VolumeStop { .. }
            | Action::VolumeDropCache { .. }
            | Action::VolumeGrow { .. }
            | Action::VolumeDestage { .. }
            | Action::VolumeWarm { .. }
            | Action::VolumeRemove { .. }
            | Action::ShareAdd { .. }
            | Action::ShareRemove { .. }
            | Action::JobResume { .. }
            | Action::Insight(
                InsightAction::AnalysisStart(_)
                    | InsightAction::AnalysisStop { .. }
                    | InsightAction::AnalysisForget { .. }
                    | InsightAction::ApplicationConnect { .. }
                    | InsightAction::ApplicationDisconnect { .. }
                    | InsightAction::ApplicationDiscover { .. }
                    | InsightAction::ObjectSet(_)
                    | InsightAction::ObjectPreload(_)
                    | InsightAction::AdviceApply { .. }
                    // It changes nothing, and takes seconds.
                    | InsightAction::Advise(_)
            )
    )
}

fn where_to_look(action: &Action) -> String {
    match action {
        Action::PoolCreate(create) => format!("check with `hearth pool show {}`", create.name),
        Action::PoolSet { name, .. } | Action::PoolStart { name } | Action::PoolReplace { name, .. } => {
            format!("check with `hearth pool show {name}`")
        }
        Action::VolumeAdd(add) => format!("check with `hearth volume show {}`", add.name),
        Action::Attach(attach) => format!("check with `hearth volume show {}`", attach.name),
        Action::VolumeSet { name, .. }
        | Action::VolumeRename { to: name, .. }
        | Action::VolumeStart { name }
        | Action::VolumeStop { name, .. }
        | Action::VolumeDropCache { name }
        | Action::VolumeGrow { name } => {
            format!("check with `hearth volume show {name}`")
        }
        Action::ShareAdd { .. } | Action::ShareRemove { .. } => "check with `hearth share list`".into(),
        Action::PoolImport(_) | Action::PoolLook(_) => "check with `hearth pool list`".into(),
        Action::PoolTakeBack { name } => format!("check with `hearth pool show {name}`"),
        Action::DiskCreate(_) | Action::DiskSet { .. } | Action::DiskRemove { .. } => "check with `hearth disk list`".into(),
        Action::Insight(InsightAction::ApplicationConnect { id, .. } | InsightAction::ApplicationDisconnect { id, .. }) => {
            format!("check with `hearth app show {id}`")
        }
        Action::PoolDestroy { .. } => "check with `hearth pool list`".into(),
        _ => "check with `hearth volume list`".into(),
    }
}

/// An answer in JSON.
pub(crate) fn json(content: &impl Serialize) -> Answered {
    let body = serde_json::to_vec(content).map_err(|_| Problem::internal())?;
    Ok(([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response())
}

/// Work on small files of the daemon's own, on a thread that may wait.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Outcome<T> + Send + 'static) -> Outcome<T> {
    tokio::task::spawn_blocking(work).await.map_err(|_| Problem::internal())?
}

/// What a kind of problem means, for people who follow its type.
async fn problem_page(axum::extract::Path(kind): axum::extract::Path<String>) -> Answered {
    let kind = Kind::ALL.into_iter().find(|k| k.word() == kind).ok_or_else(problem::no_path)?;
    let text = format!(
        "{} ({}, HTTP status {})\n\nThe member \"detail\" of the document ({PROBLEM_JSON}) says what is wrong, \"remedy\" what to do next.\n",
        kind.title(),
        kind.word(),
        kind.status()
    );
    Ok(([(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"))], text).into_response())
}

/// Everything that is no path of the API: the console's files.
async fn elsewhere(State(app): Shared, request: Request) -> Answered {
    let path = request.uri().path();
    let looks = matches!(*request.method(), Method::GET | Method::HEAD);
    if !looks || path.starts_with(PREFIX) {
        return Err(problem::no_path());
    }
    assets::respond(&app.assets, path, request.headers())
}
