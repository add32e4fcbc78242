//! What every request passes, in this order: whether a foreign page sent it, who asks and how often, whether there is a place for them, what they
//! may, and how long and how large its body is. What comes back gets its problem document and its headers here.
//!
//! Known clients are counted by who they are, strangers by where they come from: so nobody can use up what another one may ask. What needs
//! no name, the console's files and logging in, is not counted: it costs less than the refusal would.

use crate::callers::{self, ASKING, is_look};
use crate::door::{Busy, Visit};
use crate::headers;
use crate::limits::Client;
use crate::peers::Peer;
use crate::problem::{self, Outcome, Problem};
use crate::server::App;
use api::PREFIX;
use api::error::Kind;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::header;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hyper::body::Body as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

/// Largest body. A volume's options are a few hundred bytes.
pub const BODY_BYTES_MAX: usize = 64 << 10;

/// Lets a request through, or says why not.
pub async fn pass(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let path = request.uri().path().to_string();
    let (response, busy) = catch_panic(checked(app, request, next)).await;
    let mut response = problem::finish(response, &path);
    headers::harden(&mut response);
    match busy {
        Some(busy) => busy.until_sent(response),
        None => response,
    }
}

/// The answer, and the place that its connection has meanwhile.
async fn checked(app: Arc<App>, mut request: Request, next: Next) -> (Response, Option<Busy>) {
    let (client, busy) = match admit(&app, &mut request) {
        Ok(admitted) => admitted,
        Err(problem) => return (problem.into_response(), None),
    };
    let response = match take_body(&app, &mut request).await {
        Ok(()) => ASKING.scope(client, next.run(request)).await,
        Err(problem) => problem.into_response(),
    };
    (response, busy)
}

/// Finds out who asks, and whether they may.
fn admit(app: &App, request: &mut Request) -> Outcome<(Client, Option<Busy>)> {
    let peer = *request.extensions().get::<Peer>().expect("every connection knows its other end");
    let path = request.uri().path();
    let api = path.starts_with(PREFIX) || path == "/metrics";
    if let Peer::Tcp { .. } = peer {
        app.hosts.check(request, api)?;
    }
    let own_session = path.strip_prefix(PREFIX) == Some("/session");
    let logging_in = own_session && request.method() == axum::http::Method::POST;
    if !api || logging_in {
        return Ok((peer.client(), None));
    }
    let caller = callers::identify(app, &peer, request.headers());
    let client = caller.as_ref().map_or(peer.client(), |caller| caller.client);
    if let Err(seconds) = app.requests.take(client, Instant::now()) {
        let problem = Problem::new(Kind::TooMany, "too many requests", "wait as long as the header Retry-After says");
        return Err(problem.retry_after(seconds));
    }
    let caller = caller?;
    let visit = request.extensions().get::<Arc<Visit>>().expect("every connection has come by a door");
    let busy = visit.known(client).map_err(|problem| *problem)?;
    callers::authorise(&caller, request.method(), own_session, request.headers())?;
    request.extensions_mut().insert(caller);
    Ok((client, Some(busy)))
}

/// Puts the whole body in the place of the one that is still to come.
async fn take_body(app: &App, request: &mut Request) -> Outcome<()> {
    let body = std::mem::take(request.body_mut());
    if is_look(request.method()) && !request.headers().contains_key(header::TRANSFER_ENCODING) && body.is_end_stream() {
        return Ok(());
    }
    let body = tokio::time::timeout(app.limits.patience, take_in(body)).await;
    let too_slow = |_| Problem::new(Kind::Slow, "the request's body did not arrive in time", "send it completely, without pauses");
    *request.body_mut() = Body::from(body.map_err(too_slow)??);
    Ok(())
}

/// Takes the whole body in, up to its limit.
async fn take_in(mut body: Body) -> Outcome<Bytes> {
    let too_large = || {
        let detail = format!("the request's body has more than {BODY_BYTES_MAX} bytes");
        Problem::new(Kind::TooLarge, detail, "send less: no path accepts so much")
    };
    if body.size_hint().lower() > BODY_BYTES_MAX as u64 {
        return Err(too_large());
    }
    let mut taken = Vec::new();
    while let Some(frame) = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let frame = frame.map_err(|e| Problem::usage(format!("the request's body is incomplete ({e})"), "send it completely"))?;
        if let Ok(data) = frame.into_data() {
            if taken.len() + data.len() > BODY_BYTES_MAX {
                return Err(too_large());
            }
            taken.extend_from_slice(&data);
        }
    }
    Ok(taken.into())
}

/// A handler that panics has its connection, its log line and an answer all the same.
async fn catch_panic(work: impl Future<Output = (Response, Option<Busy>)>) -> (Response, Option<Busy>) {
    let mut work = pin!(work);
    std::future::poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
        Ok(poll) => poll,
        Err(_) => Poll::Ready((Problem::internal().into_response(), None)),
    })
    .await
}
