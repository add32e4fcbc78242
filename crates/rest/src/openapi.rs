//! The API's description, made from the code.

use crate::routes;
use api::PREFIX;
use api::error::{Kind, Refusal};
use axum::response::Response;
use serde_json::Value;
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{ContentBuilder, Ref, RefOr, ResponseBuilder};
use utoipa::{Modify, OpenApi};

/// The OpenAPI document as text, as it is served and checked in: pretty, with a line break at its end.
pub fn document() -> String {
    let mut description = serde_json::to_value(Description::openapi()).expect("the description can be written as JSON");
    bound_integers(&mut description);
    serde_json::to_string_pretty(&description).expect("a value can be written as JSON") + "\n"
}

/// Gives every unsigned integer its largest value: what is beyond is refused, so the description has to say so.
fn bound_integers(value: &mut Value) {
    match value {
        Value::Object(members) => {
            let is = |key: &str, word: &str| {
                members.get(key).is_some_and(|v| v == word || v.as_array().is_some_and(|all| all.iter().any(|v| v == word)))
            };
            if is("type", "integer") && members.get("minimum") == Some(&Value::from(0)) && !members.contains_key("maximum") {
                let largest = if is("format", "int32") { u64::from(u32::MAX) } else { i64::MAX as u64 };
                members.insert("maximum".into(), Value::from(largest));
            }
            members.values_mut().for_each(bound_integers);
        }
        Value::Array(values) => values.iter_mut().for_each(bound_integers),
        _ => {}
    }
}

/// Answers with it.
pub(crate) async fn serve() -> routes::Answered {
    served()
}

fn served() -> routes::Answered {
    static TEXT: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    let body = TEXT.get_or_init(document).as_str();
    let mut response = Response::new(axum::body::Body::from(body));
    let json = axum::http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(axum::http::header::CONTENT_TYPE, json);
    Ok(response)
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "hearth",
        description = "Monitor and control the SSD cache of this machine. The same API is served on the Unix socket (the kernel identifies the user) and, if \
                       enabled, on TCP with TLS (a token or a browser's session). Every error is a problem document (RFC 9457). See docs/api.md.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    paths(
        routes::daemon, routes::session_show, routes::session_begin, routes::session_end, routes::session_code,
        routes::token_list, routes::token_create, routes::token_revoke, routes::device_list, routes::device_examine,
        routes::pool_list, routes::pool_create, routes::pool_show, routes::pool_set, routes::pool_start, routes::pool_destroy, routes::pool_replace, routes::pool_check, routes::pool_take_back, routes::pool_look, routes::pool_import,
        routes::disk_list, routes::disk_create, routes::disk_show, routes::disk_set, routes::disk_remove,
        routes::volume_list, routes::volume_add, routes::volume_show, routes::volume_set, routes::volume_remove, routes::volume_rename, routes::volume_start,
        routes::volume_stop, routes::volume_drop_cache, routes::volume_grow, routes::volume_destage,
        routes::volume_warm, routes::volume_why, routes::volume_map, routes::share_list, routes::share_add, routes::share_show, routes::share_remove, routes::stats_all, routes::stats, routes::sample,
        routes::analysis_list, routes::analysis_start, routes::analysis_show, routes::analysis_stop, routes::analysis_forget, routes::stream_list,
        routes::stream_rule_list, routes::stream_rule_add, routes::stream_rule_remove,
        routes::advise, routes::advice_show, routes::advice_apply, routes::advice_verify, routes::application_list, routes::application_connect, routes::application_disconnect, routes::volume_discover, routes::object_list, routes::object_set, routes::object_preload,
        routes::attach, routes::detach,
        routes::job_list, routes::job_show, routes::job_stop, routes::job_resume, routes::events, routes::history, routes::stream,
    ),
    components(schemas(Refusal, api::Hello)),
    tags(
        (name = "pools", description = "SSDs used as caches."),
        (name = "volumes", description = "Accelerated devices."),
        (name = "shares", description = "Volumes offered to other machines by iSCSI and NVMe/TCP."),
        (name = "disks", description = "Plain disks beside the caches, on the same SSDs."),
        (name = "jobs", description = "Long operations with progress; they can be stopped and resumed."),
        (name = "devices", description = "The disks of this machine."),
        (name = "insight", description = "What loads need: analyses, streams, and how much SSD brings which share of hits."),
        (name = "looking", description = "Counters, events and history."),
        (name = "session", description = "The caller and its rights."),
    ),
    modifiers(&Common),
)]
struct Description;

/// What all operations have: who may ask, and what can go wrong.
struct Common;

impl Modify for Common {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let components = openapi.components.get_or_insert_default();
        let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some("A token of `hearth token create`.")).build();
        components.add_security_scheme("token", SecurityScheme::Http(bearer));
        let cookie = ApiKeyValue::with_description(
            crate::callers::COOKIE,
            "A browser's session, created by POST /api/v1/session. Requests that change something also need the header `x-hearth-csrf`.",
        );
        components.add_security_scheme("session", SecurityScheme::ApiKey(ApiKey::Cookie(cookie)));
        for (path, item) in &mut openapi.paths.paths {
            for (operation, changes) in operations(item) {
                describe(path, operation, changes);
            }
        }
    }
}

/// The operations of a path, and whether each changes something.
fn operations(item: &mut PathItem) -> Vec<(&mut Operation, bool)> {
    let all = [(&mut item.get, false), (&mut item.post, true), (&mut item.patch, true), (&mut item.delete, true)];
    all.into_iter().filter_map(|(operation, changes)| Some((operation.as_mut()?, changes))).collect()
}

fn describe(path: &str, operation: &mut Operation, changes: bool) {
    let login = path.strip_prefix(PREFIX) == Some("/session") && operation.request_body.is_some();
    if !login {
        operation.security =
            Some(["token", "session"].map(|scheme| utoipa::openapi::security::SecurityRequirement::new(scheme, [""; 0])).into());
    }
    let mut kinds = vec![Kind::Unauthenticated, Kind::TooMany, Kind::Failed, Kind::Overloaded, Kind::Late, Kind::Usage, Kind::Forbidden];
    // What is named in the query may not be there either.
    let named = ["/history", "/streams", "/applications", "/objects"].iter().any(|end| path.ends_with(end));
    if path.contains('{') || named || operation.request_body.is_some() {
        kinds.push(Kind::NotFound);
    }
    if operation.request_body.is_some() {
        kinds.extend([Kind::TooLarge, Kind::MediaType, Kind::Slow]);
    }
    // Whatever has a name may be in a state in which it cannot answer.
    if changes || path.contains('{') || path.ends_with("/streams") {
        kinds.push(Kind::Conflict);
    }
    if changes {
        kinds.push(Kind::Busy);
    }
    for kind in kinds {
        let schema = RefOr::Ref(Ref::from_schema_name("Problem"));
        let content = ContentBuilder::new().schema(Some(schema)).build();
        let response = ResponseBuilder::new().description(kind.title()).content(crate::problem::PROBLEM_JSON, content).build();
        operation.responses.responses.insert(kind.status().to_string(), RefOr::T(response));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_description_checked_in_is_that_of_the_code() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
        let checked_in = std::fs::read_to_string(path).unwrap_or_default();
        assert!(checked_in == document(), "docs/openapi.json is not what the code says: run `hearth openapi > docs/openapi.json`");
    }

    #[test]
    fn every_path_served_is_described_and_every_error_is_a_problem() {
        let description: Value = serde_json::from_str(&document()).expect("JSON");
        let described: BTreeSet<&str> = description["paths"].as_object().expect("paths").keys().map(String::as_str).collect();
        let served: BTreeSet<String> = routes::api().iter().map(|(path, _)| format!("{PREFIX}{path}")).collect();
        let own = format!("{PREFIX}/openapi.json");
        let missing: Vec<&String> = served.iter().filter(|path| !described.contains(path.as_str()) && **path != own).collect();
        assert!(missing.is_empty(), "served and not described: {missing:?}");
        assert!(described.iter().all(|path| served.contains(*path)), "described and not served: {described:?}");
        for (path, item) in description["paths"].as_object().expect("paths") {
            for (method, operation) in item.as_object().expect("operations") {
                let responses = operation["responses"].as_object().expect("responses");
                for (status, response) in responses.iter().filter(|(status, _)| status.as_str() >= "400") {
                    let reference = &response["content"][crate::problem::PROBLEM_JSON]["schema"]["$ref"];
                    assert_eq!(reference, "#/components/schemas/Problem", "{method} {path} {status}");
                }
                assert!(responses.contains_key("200") && responses.contains_key("401"), "{method} {path}");
                assert!(operation["summary"].is_string() && operation["security"].is_array(), "{method} {path}");
                assert!(
                    operation["requestBody"].is_null() || operation["requestBody"]["content"]["application/json"]["example"].is_object()
                );
            }
        }
    }

    #[test]
    fn references_lead_somewhere() {
        let text = document();
        let description: Value = serde_json::from_str(&text).expect("JSON");
        let named = text.match_indices("#/components/schemas/").map(|(at, start)| &text[at + start.len()..]);
        for name in named.map(|rest| rest.split('"').next().unwrap_or_default()) {
            assert!(description["components"]["schemas"][name].is_object(), "{name}");
        }
    }
}
