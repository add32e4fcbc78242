//! What loads need: analyses, streams and advice.

use super::{Answered, Shared, run};
use crate::asked::{Asked, Json, Name, Nothing, Number};
use api::{AdviceApplied, AdviceAsk, AdviceVerified, AdviceView, AnalysisStart, AnalysisView, Done};
use api::{InsightAction, StreamRuleNew, StreamRuleView, StreamRules, StreamView};
use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;

/// All that is watched: volumes and analyses.
#[utoipa::path(get, path = "/api/v1/analyses", tag = "insight", responses((status = 200, description = "Analyses by name.", body = Vec<AnalysisView>)))]
pub async fn analysis_list(State(app): Shared) -> Answered {
    run(&app, InsightAction::AnalysisList).await
}

/// Begins to watch a volume, a device or a recorded trace. A device is watched from outside, and nothing is written to it.
#[utoipa::path(
    post, path = "/api/v1/analyses", tag = "insight",
    request_body(content = AnalysisStart, example = json!({"name": "trial", "device": "/dev/sdb", "for_ms": 600000})),
    responses((status = 200, description = "The new analysis.", body = AnalysisView))
)]
pub async fn analysis_start(State(app): Shared, Json(start): Json<AnalysisStart>) -> Answered {
    run(&app, InsightAction::AnalysisStart(start)).await
}

/// One analysis, or the watch of a volume.
#[utoipa::path(
    get, path = "/api/v1/analyses/{name}", tag = "insight", params(AnalysisName),
    responses((status = 200, description = "The analysis.", body = AnalysisView))
)]
pub async fn analysis_show(State(app): Shared, Name(name): Name) -> Answered {
    run(&app, InsightAction::AnalysisShow { name }).await
}

/// Ends an analysis; what it found stays.
#[utoipa::path(
    post, path = "/api/v1/analyses/{name}/stop", tag = "insight", params(AnalysisName),
    responses((status = 200, description = "The analysis as it ended.", body = AnalysisView))
)]
pub async fn analysis_stop(State(app): Shared, Name(name): Name, _: Nothing) -> Answered {
    run(&app, InsightAction::AnalysisStop { name }).await
}

/// Forgets an analysis.
#[utoipa::path(
    delete, path = "/api/v1/analyses/{name}", tag = "insight", params(AnalysisName),
    responses((status = 200, description = "It is gone.", body = Done))
)]
pub async fn analysis_forget(State(app): Shared, Name(name): Name, _: Nothing) -> Answered {
    run(&app, InsightAction::AnalysisForget { name }).await
}

/// Who reads and writes: streams distinguished by what they do.
#[utoipa::path(
    get, path = "/api/v1/streams", tag = "insight", params(OfLoad),
    responses((status = 200, description = "Streams.", body = Vec<StreamView>))
)]
pub async fn stream_list(State(app): Shared, Asked(of): Asked<OfLoad>) -> Answered {
    if let Some(name) = &of.name {
        api::names::check(api::names::Named::Analysis, name)?;
    }
    run(&app, InsightAction::StreamList { name: of.name }).await
}

/// The rules for streams, in the order in which they are asked.
#[utoipa::path(get, path = "/api/v1/stream-rules", tag = "insight", responses((status = 200, description = "The rules.", body = StreamRules)))]
pub async fn stream_rule_list(State(app): Shared) -> Answered {
    run(&app, InsightAction::StreamRuleList).await
}

/// One more rule: whose requests have which class, whatever they look like.
#[utoipa::path(
    post, path = "/api/v1/stream-rules", tag = "insight",
    request_body(content = StreamRuleNew, example = json!({"subject": "process", "pattern": "restic", "class": "backup"})),
    responses((status = 200, description = "The new rule.", body = StreamRuleView))
)]
pub async fn stream_rule_add(State(app): Shared, Json(rule): Json<StreamRuleNew>) -> Answered {
    run(&app, InsightAction::StreamRuleAdd(rule)).await
}

/// A rule less.
#[utoipa::path(
    delete, path = "/api/v1/stream-rules/{id}", tag = "insight", params(RuleNumber),
    responses((status = 200, description = "It is gone.", body = Done))
)]
pub async fn stream_rule_remove(State(app): Shared, Number(id): Number, _: Nothing) -> Answered {
    run(&app, InsightAction::StreamRuleRemove { id }).await
}

/// How much SSD brings which share of hits. Takes some seconds of computing for each load.
#[utoipa::path(
    post, path = "/api/v1/advice", tag = "insight",
    request_body(content = AdviceAsk, example = json!({"name": "db", "targets_percent": [90.0]})),
    responses((status = 200, description = "Advice, one for each load.", body = Vec<AdviceView>))
)]
pub async fn advise(State(app): Shared, Json(ask): Json<AdviceAsk>) -> Answered {
    if let Some(name) = &ask.name {
        api::names::check(api::names::Named::Analysis, name)?;
    }
    run(&app, InsightAction::Advise(ask)).await
}

/// Advice that was given since the daemon's start; the latest 64.
#[utoipa::path(
    get, path = "/api/v1/advice/{id}", tag = "insight", params(AdviceNumber),
    responses((status = 200, description = "The advice.", body = AdviceView))
)]
pub async fn advice_show(State(app): Shared, Number(id): Number) -> Answered {
    run(&app, InsightAction::AdviceShow { id }).await
}

/// Applies an advice: sets policies of objects and reads the hot parts into the cache, as far as that needs no new hardware.
#[utoipa::path(
    post, path = "/api/v1/advice/{id}/apply", tag = "insight", params(AdviceNumber, How),
    responses((status = 200, description = "What changed, or would.", body = AdviceApplied))
)]
pub async fn advice_apply(State(app): Shared, Number(id): Number, Asked(how): Asked<How>, _: Nothing) -> Answered {
    run(&app, InsightAction::AdviceApply { id, dry_run: how.dry_run.unwrap_or(false), no_preload: how.no_preload.unwrap_or(false) }).await
}

/// Compares an advice's forecast with what came since it was given, or applied.
#[utoipa::path(
    get, path = "/api/v1/advice/{id}/verify", tag = "insight", params(AdviceNumber),
    responses((status = 200, description = "Forecast and outcome.", body = AdviceVerified))
)]
pub async fn advice_verify(State(app): Shared, Number(id): Number) -> Answered {
    run(&app, InsightAction::AdviceVerify { id }).await
}

/// How an advice is applied.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct How {
    /// Only tell what would change.
    #[serde(default)]
    dry_run: Option<bool>,
    /// Policies only: read nothing into the cache.
    #[serde(default)]
    no_preload: Option<bool>,
}

/// Which analysis.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[allow(dead_code)] // For the description only.
struct AnalysisName {
    /// An analysis' or a volume's name.
    #[param(pattern = "^[A-Za-z0-9_][A-Za-z0-9._-]*$", min_length = 1, max_length = 64)]
    name: String,
}

/// Of which load.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct OfLoad {
    /// A volume, a pool or an analysis; absent: all.
    #[serde(default)]
    #[param(pattern = "^[A-Za-z0-9_][A-Za-z0-9._-]*$", min_length = 1, max_length = 64)]
    name: Option<String>,
}

/// Which rule.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[allow(dead_code)] // For the description only.
struct RuleNumber {
    /// The rule's number.
    id: u64,
}

/// Which advice.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[allow(dead_code)] // For the description only.
struct AdviceNumber {
    /// The advice's number.
    id: u64,
}
