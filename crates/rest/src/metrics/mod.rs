//! Counters for Prometheus, in the text form of OpenMetrics.
//!
//! [`list`] has every metric once, with what documents it; [`scrape`] is what they are read from; `encode` writes them.

mod encode;
pub mod list;
pub mod scrape;
mod table;

use crate::callers::Caller;
use crate::problem::Problem;
use crate::routes::{Answered, Shared, blocking};
use api::error::Kind;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::IntoResponse;

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Answers a scrape.
pub(crate) async fn serve(State(app): Shared, caller: Caller) -> Answered {
    let full = |there: String| {
        Problem::new(Kind::Overloaded, format!("{there} requests are already in progress"), "try again in a moment").retry_after(1)
    };
    let place = app.looks.take(caller.client).map_err(full)?;
    let deadline = app.limits.look;
    let scraping = blocking(move || {
        let text = encode::text(scrape::Scrape::take(&app)?);
        drop(place);
        Ok(text)
    });
    let late = |_| Problem::new(Kind::Late, "the counters did not arrive in time: a thread is busy", "try again in a moment");
    let text = tokio::time::timeout(deadline, scraping).await.map_err(late)??;
    Ok(([(header::CONTENT_TYPE, HeaderValue::from_static(OPENMETRICS))], text).into_response())
}
