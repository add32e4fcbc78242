//! What is wrong, as a problem document (RFC 9457).
//!
//! A [`Problem`] becomes a response with an empty body that carries it; the gate writes the body when it knows the path asked. So there is one
//! place where problems are written, and what the libraries below answer by themselves ends there too.

use api::error::{ControlError, Kind, Refusal};
use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

/// The media type of problem documents.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// Why a request is not done.
#[derive(Clone, Debug)]
pub struct Problem {
    /// The document. Boxed, since every step of every request gives a result with it.
    pub refusal: Box<Refusal>,
    /// Headers that belong to it: `Retry-After`, `WWW-Authenticate`.
    headers: Vec<(HeaderName, HeaderValue)>,
}

/// What a step of a request gives.
pub type Outcome<T> = Result<T, Problem>;

impl Problem {
    /// A problem of that kind.
    pub fn new(kind: Kind, detail: impl Into<String>, remedy: impl Into<String>) -> Problem {
        Problem { refusal: Box::new(Refusal::new(kind, detail, remedy)), headers: Vec::new() }
    }

    /// The request makes no sense.
    pub fn usage(detail: impl Into<String>, remedy: impl Into<String>) -> Problem {
        Problem::new(Kind::Usage, detail, remedy)
    }

    /// The daemon itself did wrong.
    pub fn internal() -> Problem {
        Problem::new(Kind::Internal, "the daemon failed on this request", "see its log and report the bug")
    }

    /// With a header.
    #[must_use]
    pub fn with(mut self, name: HeaderName, value: HeaderValue) -> Problem {
        self.headers.push((name, value));
        self
    }

    /// With the time after which to try again, in seconds.
    #[must_use]
    pub fn retry_after(self, seconds: u64) -> Problem {
        self.with(header::RETRY_AFTER, HeaderValue::from(seconds))
    }

    /// A response the size of the document, for a connection that HTTP has given up.
    pub fn raw(&self) -> Vec<u8> {
        let status = StatusCode::from_u16(self.refusal.status).unwrap_or(StatusCode::BAD_REQUEST);
        let body = document(&self.refusal);
        let mut bytes = format!(
            "HTTP/1.1 {} {}\r\ncontent-type: {PROBLEM_JSON}\r\ncontent-length: {}\r\nconnection: close\r\n",
            status.as_u16(),
            status.canonical_reason().unwrap_or("Error"),
            body.len()
        )
        .into_bytes();
        for (name, value) in self.headers.iter().filter(|(name, _)| name != header::CONNECTION) {
            bytes.extend_from_slice(&[name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
        }
        [&bytes, &b"\r\n"[..], &body].concat()
    }
}

impl From<ControlError> for Problem {
    fn from(error: ControlError) -> Problem {
        Problem { refusal: Box::new(error.refusal()), headers: Vec::new() }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::from_u16(self.refusal.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        response.headers_mut().extend(self.headers.iter().cloned());
        response.extensions_mut().insert(self);
        response
    }
}

fn document(refusal: &Refusal) -> Vec<u8> {
    serde_json::to_vec(refusal).expect("a problem can be written as JSON")
}

/// Puts the document into a response that carries a problem, and into one that is an error without a document.
pub fn finish(mut response: Response, path: &str) -> Response {
    let carried = response.extensions_mut().remove::<Problem>();
    let mut refusal = match carried {
        Some(problem) => problem.refusal,
        None if !response.status().is_client_error() && !response.status().is_server_error() => return response,
        None => of_status(response.status()).refusal,
    };
    refusal.instance = Some(path.to_string());
    let body = document(&refusal);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
    response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
    *response.body_mut() = Body::from(body);
    response
}

/// What a bare status of the libraries below means.
pub fn of_status(status: StatusCode) -> Problem {
    match status.as_u16() {
        404 => no_path(),
        405 => Problem::new(Kind::Method, "this path does not allow this method", "use one that the header Allow lists"),
        413 => Problem::new(Kind::TooLarge, "the request is too large", "send less"),
        414 => Problem::new(Kind::TooLarge, "the path is too long", "send a shorter one"),
        431 => Problem::new(Kind::TooLarge, "the header is too large", "send fewer and shorter header lines"),
        408 => Problem::new(Kind::Slow, "the request did not arrive in time", "send it completely, without pauses"),
        500..=599 => Problem::internal(),
        _ => Problem::usage("the request is not valid HTTP", "see the API's description, GET /api/v1/openapi.json"),
    }
}

/// There is no such path.
pub fn no_path() -> Problem {
    Problem::new(Kind::NotFound, "there is no such path", "see GET /api/v1/openapi.json for all paths")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_becomes_a_document_and_nothing_else_does() {
        for status in [400u16, 404, 405, 408, 413, 414, 415, 431, 500, 503] {
            let mut response = Response::new(Body::from("plain words of a library"));
            *response.status_mut() = StatusCode::from_u16(status).expect("a status");
            let done = finish(response, "/x");
            assert_eq!(done.headers()[header::CONTENT_TYPE], PROBLEM_JSON);
            assert_eq!(done.status().as_u16(), status, "the status stays what it is");
        }
        let fine = finish(Response::new(Body::from("fine")), "/x");
        assert!(!fine.headers().contains_key(header::CONTENT_TYPE));
    }

    #[test]
    fn a_raw_answer_says_its_length() {
        let raw = String::from_utf8(no_path().retry_after(7).raw()).expect("text");
        let (head, body) = raw.split_once("\r\n\r\n").expect("a head and a body");
        assert!(head.ends_with("\r\nretry-after: 7"), "{head}");
        assert!(head.starts_with("HTTP/1.1 404 Not Found\r\n") && head.contains(&format!("content-length: {}", body.len())), "{head}");
    }
}
