//! What a handler takes out of a request, each with a problem of its own if it is not there as it must be.

use crate::callers::Caller;
use crate::problem::{Outcome, Problem};
use crate::server::App;
use api::PREFIX;
use api::error::Kind;
use api::names::{self, Named};
use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::header;
use axum::http::request::Parts;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::Arc;

const SEE: &str = "see GET /api/v1/openapi.json for its parameters";

/// The name in the path, of a pool, a volume or a token; well formed.
pub struct Name(pub String);

impl FromRequestParts<Arc<App>> for Name {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Outcome<Name> {
        let Path(name) = Path::<String>::from_request_parts(parts, app).await.map_err(|_| bad_path())?;
        let path = parts.uri.path();
        let below = |what: &str| path.strip_prefix(PREFIX).is_some_and(|rest| rest.starts_with(what));
        let named = match () {
            () if below("/pools/") => Named::Pool,
            () if below("/tokens/") => Named::Token,
            () if below("/analyses/") => Named::Analysis,
            () => Named::Volume,
        };
        names::check(named, &name)?;
        Ok(Name(name))
    }
}

/// The number in the path.
pub struct Number(pub u64);

impl FromRequestParts<Arc<App>> for Number {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Outcome<Number> {
        let Path(text) = Path::<String>::from_request_parts(parts, app).await.map_err(|_| bad_path())?;
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let number = text.parse().ok().filter(|_| digits);
        let of = parts.uri.path().strip_prefix(PREFIX).and_then(|path| path.split('/').nth(1));
        number.map(Number).ok_or_else(|| match of {
            Some("applications") => {
                Problem::usage("the application in the path is not a number", "list them with GET /api/v1/applications")
            }
            Some("stream-rules") => Problem::usage("the rule in the path is not a number", "list the rules with GET /api/v1/stream-rules"),
            Some("advice") => Problem::usage("the advice in the path is not a number", "ask for advice with POST /api/v1/advice"),
            _ => Problem::usage("the job number in the path is not a number", "list the jobs with GET /api/v1/jobs"),
        })
    }
}

fn bad_path() -> Problem {
    Problem::usage("the path is not UTF-8", "encode names as UTF-8")
}

/// What stands behind the question mark.
pub struct Asked<T>(pub T);

impl<T: DeserializeOwned> FromRequestParts<Arc<App>> for Asked<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<App>) -> Outcome<Asked<T>> {
        let Query(asked) = Query::<T>::try_from_uri(&parts.uri).map_err(|e| {
            let inner = std::error::Error::source(&e).map_or_else(|| e.to_string(), ToString::to_string);
            Problem::usage(format!("the query is invalid ({inner})"), SEE)
        })?;
        Ok(Asked(asked))
    }
}

/// A body in JSON.
pub struct Json<T>(pub T);

impl<T: DeserializeOwned + Serialize> FromRequest<Arc<App>> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<App>) -> Outcome<Json<T>> {
        let kind = request.headers().get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
        let essence = kind.split(';').next().unwrap_or_default().trim();
        if !essence.eq_ignore_ascii_case("application/json") {
            let detail = if kind.is_empty() { "the request has no content type".into() } else { format!("the content type is {kind:?}") };
            return Err(Problem::new(Kind::MediaType, detail, "send JSON, with the header `Content-Type: application/json`"));
        }
        let body = taken(request, app).await?;
        let wrong = |e: String| Problem::usage(format!("the body does not match this path ({e})"), SEE);
        let parsed: T = serde_json::from_slice(&body).map_err(|e| wrong(e.to_string()))?;
        let (sent, meant) = (serde_json::from_slice(&body).unwrap_or_default(), serde_json::to_value(&parsed).unwrap_or_default());
        if !alike(&sent, &meant) {
            return Err(wrong("a list was found where an object or a string is expected".into()));
        }
        Ok(Json(parsed))
    }
}

/// Whether what was sent has the form of what was understood. The library below also takes a list for an object (its members in order) and an
/// object for a word; the API's description does not, and what is written so is a mistake.
fn alike(sent: &Value, meant: &Value) -> bool {
    match (sent, meant) {
        (Value::Object(sent), Value::Object(meant)) => {
            sent.iter().all(|(key, value)| meant.get(key).is_none_or(|meant| alike(value, meant)))
        }
        (Value::Array(sent), Value::Array(meant)) => sent.iter().zip(meant).all(|(sent, meant)| alike(sent, meant)),
        (Value::Object(_) | Value::Array(_), _) => false,
        _ => true,
    }
}

/// No body at all.
pub struct Nothing;

impl FromRequest<Arc<App>> for Nothing {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<App>) -> Outcome<Nothing> {
        if taken(request, app).await?.is_empty() {
            return Ok(Nothing);
        }
        Err(Problem::usage("this path does not accept a body", "send none"))
    }
}

async fn taken(request: Request, app: &Arc<App>) -> Outcome<Bytes> {
    Bytes::from_request(request, app).await.map_err(|_| Problem::usage("the request's body is incomplete", "send it completely"))
}

impl FromRequestParts<Arc<App>> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<App>) -> Outcome<Caller> {
        parts.extensions.get::<Caller>().cloned().ok_or_else(Problem::internal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::VolumeAdd;
    use serde_json::json;

    #[test]
    fn forms_that_only_the_library_takes_are_told_apart() {
        let check = |sent: Value, expected| {
            let parsed: VolumeAdd = serde_json::from_value(sent.clone()).expect("the library takes it");
            assert_eq!(alike(&sent, &serde_json::to_value(&parsed).expect("JSON")), expected, "{sent}");
        };
        let whole = |options: Value| json!({"name": "v", "pool": "p", "backing": "/x", "exports": ["nbd"], "options": options});
        check(whole(json!({"mode": "write-back", "dirty_limit": {"bytes": 5}, "read_only": null})), true);
        check(whole(json!({"dirty_limit": "off"})), true);
        check(whole(json!({"dirty_limit": {"off": null}})), false);
        check(whole(json!(["write-back"])), false);
        check(json!(["v", "p", "/x", [], null, {}]), false);
        check(json!({"name": "v", "pool": "p", "backing": "/x"}), true);
    }
}
