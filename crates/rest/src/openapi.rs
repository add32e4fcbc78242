//! The API's description, made from the code.

use crate::routes;
use axum::response::Response;
use control::api::PREFIX;
use control::error::{Kind, Refusal};
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{ContentBuilder, Ref, RefOr, ResponseBuilder};
use utoipa::{Modify, OpenApi};

/// The OpenAPI document as text, as it is served and checked in: pretty, with a line break at its end.
pub fn document() -> String {
    Description::openapi().to_pretty_json().expect("the description can be written as JSON") + "\n"
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
        description = "Look at the SSD cache of this machine, and steer it. The same API is served on the Unix socket (the kernel says who asks) and, if \
                       asked for, on TCP with TLS (a token says it, or a browser's session). Every error is a problem document (RFC 9457). See docs/api.md.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    paths(
        routes::daemon, routes::session_show, routes::session_begin, routes::session_end, routes::session_code,
        routes::token_list, routes::token_create, routes::token_revoke, routes::device_list, routes::device_examine,
        routes::pool_list, routes::pool_create, routes::pool_show, routes::pool_set, routes::pool_destroy, routes::pool_replace, routes::pool_check,
        routes::volume_list, routes::volume_add, routes::volume_show, routes::volume_set, routes::volume_remove, routes::volume_destage,
        routes::volume_warm, routes::volume_why, routes::volume_map, routes::stats_all, routes::stats, routes::sample,
        routes::job_list, routes::job_show, routes::job_stop, routes::job_resume, routes::events, routes::history, routes::stream,
    ),
    components(schemas(Refusal, control::api::Hello)),
    tags(
        (name = "pools", description = "SSDs that cache."),
        (name = "volumes", description = "Accelerated devices."),
        (name = "jobs", description = "Long work, with progress; it can be stopped and resumed."),
        (name = "devices", description = "The disks of this machine."),
        (name = "looking", description = "Counters, events, and what was and is."),
        (name = "session", description = "Who asks, and what they may."),
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
            "A browser's session, begun by POST /api/v1/session. What changes something needs the header `x-hearth-csrf` too.",
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
    if path.contains('{') || path.ends_with("/history") || operation.request_body.is_some() {
        kinds.push(Kind::NotFound);
    }
    if operation.request_body.is_some() {
        kinds.extend([Kind::TooLarge, Kind::MediaType, Kind::Slow]);
    }
    if changes {
        kinds.extend([Kind::Conflict, Kind::Busy]);
    }
    for kind in kinds {
        let schema = RefOr::Ref(Ref::from_schema_name("Problem"));
        let content = ContentBuilder::new().schema(Some(schema)).build();
        let response = ResponseBuilder::new().description(kind.title()).content(crate::problem::PROBLEM_JSON, content).build();
        operation.responses.responses.insert(kind.status().to_string(), RefOr::T(response));
    }
}
