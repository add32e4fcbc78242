//! The files of the console, which the program that starts the server provides.

use crate::problem::{Outcome, no_path};
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use std::sync::Arc;

/// A file of the console.
#[derive(Clone, Debug)]
pub struct Asset {
    /// Its content.
    pub bytes: &'static [u8],
    /// Its media type.
    pub content_type: &'static str,
    /// The same content, compressed by Brotli.
    pub brotli: Option<&'static [u8]>,
    /// Changes with the content; with its quotes.
    pub etag: &'static str,
    /// Whether its name changes with the content, so that browsers may keep it for ever.
    pub immutable: bool,
}

/// Finds the file of that path (without the leading slash; empty: the first page).
pub type Assets = Arc<dyn Fn(&str) -> Option<Asset> + Send + Sync>;

/// A server without a console.
pub fn none() -> Assets {
    Arc::new(|_| None)
}

/// Answers a request for a file.
pub fn respond(assets: &Assets, path: &str, headers: &HeaderMap) -> Outcome<Response> {
    let name = path.trim_start_matches('/');
    let asset = assets(if name.is_empty() { "index.html" } else { name }).ok_or_else(no_path)?;
    let mut response = Response::new(Body::empty());
    let out = response.headers_mut();
    out.insert(header::ETAG, HeaderValue::from_static(asset.etag));
    out.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    let kept = if asset.immutable { "public, max-age=31536000, immutable" } else { "no-cache" };
    out.insert(header::CACHE_CONTROL, HeaderValue::from_static(kept));
    if has(headers, header::IF_NONE_MATCH.as_str(), |one| one.trim_start_matches("W/") == asset.etag || one == "*") {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        return Ok(response);
    }
    out.insert(header::CONTENT_TYPE, HeaderValue::from_static(asset.content_type));
    match asset.brotli.filter(|_| has(headers, header::ACCEPT_ENCODING.as_str(), takes_brotli)) {
        Some(brotli) => {
            out.insert(header::CONTENT_ENCODING, HeaderValue::from_static("br"));
            *response.body_mut() = Body::from(brotli);
        }
        None => *response.body_mut() = Body::from(asset.bytes),
    }
    Ok(response)
}

/// Whether one of the comma-separated values of a header is such.
fn has(headers: &HeaderMap, name: &str, such: impl Fn(&str) -> bool) -> bool {
    headers.get_all(name).iter().filter_map(|v| v.to_str().ok()).flat_map(|v| v.split(',')).any(|one| such(one.trim()))
}

fn takes_brotli(coding: &str) -> bool {
    let (name, quality) = coding.split_once(';').unwrap_or((coding, ""));
    let refused = quality.trim().strip_prefix("q=").is_some_and(|q| q.trim().parse() == Ok(0.0));
    name.trim().eq_ignore_ascii_case("br") && !refused
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assets() -> Assets {
        Arc::new(|path| {
            let asset = |brotli, immutable| Asset { bytes: b"plain", content_type: "text/html", brotli, etag: "\"1\"", immutable };
            match path {
                "index.html" => Some(asset(None, false)),
                "app-1.js" => Some(asset(Some(b"small"), true)),
                _ => None,
            }
        })
    }

    fn check(path: &str, request: &[(&str, &'static str)], status: u16, encoding: Option<&str>, kept: &str) {
        let mut headers = HeaderMap::new();
        for (name, value) in request {
            headers.append(header::HeaderName::from_bytes(name.as_bytes()).expect("a name"), HeaderValue::from_static(value));
        }
        let response = respond(&assets(), path, &headers).expect("it is there");
        let header = |name| response.headers().get(name).map(|v| v.to_str().expect("text"));
        assert_eq!(response.status().as_u16(), status, "{path} {request:?}");
        assert_eq!(header(header::CONTENT_ENCODING), encoding, "{path} {request:?}");
        assert!(header(header::CACHE_CONTROL).expect("it is said").contains(kept), "{path} {request:?}");
    }

    #[test]
    fn files_are_kept_compressed_and_not_sent_twice() {
        check("/", &[], 200, None, "no-cache");
        check("/", &[("accept-encoding", "br")], 200, None, "no-cache");
        check("/app-1.js", &[], 200, None, "immutable");
        check("/app-1.js", &[("accept-encoding", "gzip, br;q=1.0")], 200, Some("br"), "immutable");
        check("/app-1.js", &[("accept-encoding", "gzip, br;q=0")], 200, None, "immutable");
        check("/app-1.js", &[("if-none-match", "\"0\", W/\"1\"")], 304, None, "immutable");
        check("/app-1.js", &[("if-none-match", "\"2\"")], 200, None, "immutable");
        let problem = respond(&assets(), "/etc/passwd", &HeaderMap::new()).expect_err("it is not there");
        assert_eq!(problem.refusal.status, 404);
    }
}
