//! What happens, as server-sent events.
//!
//! A stream begins with `hello`, then come the events that its listener has missed, then everything as it happens. A listener that does not keep up is
//! greeted with `hello` again, which says: you have missed something, fetch anew. Nothing is buffered without bound.

use crate::callers::Caller;
use crate::problem::{Outcome, Problem};
use crate::server::App;
use api::error::Kind;
use api::{EventView, Hello};
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use hyper::body::{Body as HttpBody, Frame};
use records::live::LiveEvent;
use serde::Serialize;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;

/// A line without meaning goes out when nothing else did for so long, so that nobody between takes the stream for dead.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Frames made and not sent yet.
const FRAMES_MAX: usize = 16;

/// Begins a stream. `after`: the number of the latest event that is known; `None`: no old events are wanted.
pub fn begin(app: &Arc<App>, caller: Caller, headers: &HeaderMap, after: Option<u64>) -> Outcome<Response> {
    let place = app.streams.take(caller.client).map_err(|there| {
        let detail = format!("{there} event streams are already open");
        Problem::new(Kind::Overloaded, detail, "close one, for instance a browser tab with the console").retry_after(10)
    })?;
    // A browser that connects again says what it has seen; that is newer than what the address says.
    let last = headers.get("last-event-id").map(|v| {
        let number = v.to_str().ok().and_then(|text| text.trim().parse().ok()).filter(|number| *number <= i64::MAX as u64);
        number.ok_or_else(|| {
            Problem::usage("the header Last-Event-ID is not a number", "send back the last `id:` of the stream, or leave it out")
        })
    });
    let after = last.transpose()?.or(after);
    let (frames, receiver) = mpsc::channel(FRAMES_MAX);
    // Before the list is read, so that nothing falls between.
    let heard = app.manager.live().subscribe();
    let app = app.clone();
    tokio::spawn(async move {
        let told = Telling { app, caller, frames, latest: 0 };
        // The end of a stream is that nobody takes its frames any more.
        told.run(heard, after).await;
        drop(place);
    });
    let mut response = Response::new(Body::new(Frames { receiver }));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    Ok(response)
}

/// The listener is gone.
struct Gone;

struct Telling {
    app: Arc<App>,
    caller: Caller,
    frames: mpsc::Sender<Bytes>,
    /// Number of the latest event sent, or known to the listener.
    latest: u64,
}

impl Telling {
    async fn run(mut self, mut heard: Receiver<LiveEvent>, after: Option<u64>) -> Option<Gone> {
        self.latest = after.unwrap_or_else(|| self.app.manager.latest_event());
        if let Err(gone) = self.greet().await {
            return Some(gone);
        }
        loop {
            let next = tokio::select! {
                next = tokio::time::timeout(KEEP_ALIVE, heard.recv()) => next,
                () = self.frames.closed() => return Some(Gone),
            };
            if !self.caller.still_known(&self.app) {
                return None;
            }
            let sent = match next {
                Ok(Ok(event)) => self.tell(event).await,
                Ok(Err(RecvError::Lagged(_))) => self.greet().await,
                Ok(Err(RecvError::Closed)) => return None,
                Err(_) => self.send(Bytes::from_static(b": still here\n\n")).await,
            };
            if let Err(gone) = sent {
                return Some(gone);
            }
        }
    }

    /// Says hello, and sends the events that the listener does not know. A daemon before this one may have had larger numbers: then all are new.
    async fn greet(&mut self) -> Result<(), Gone> {
        let hello = Hello {
            version: env!("CARGO_PKG_VERSION").into(),
            instance: self.app.instance.clone(),
            latest_event: self.app.manager.latest_event(),
        };
        self.send(frame("hello", None, &hello)).await?;
        if self.latest > hello.latest_event {
            self.latest = 0;
        }
        for event in self.app.manager.events_after(self.latest) {
            self.event(&event).await?;
        }
        Ok(())
    }

    async fn tell(&mut self, event: LiveEvent) -> Result<(), Gone> {
        match event {
            LiveEvent::Sample(sample) => self.send(frame("sample", None, &*sample)).await,
            LiveEvent::Job(job) => self.send(frame("job", None, &*job)).await,
            LiveEvent::Event(event) if event.number > self.latest => self.event(&event).await,
            LiveEvent::Event(_) => Ok(()),
            LiveEvent::Changed(what) => self.send(frame("changed", None, &serde_json::json!({ "what": what }))).await,
        }
    }

    async fn event(&mut self, event: &EventView) -> Result<(), Gone> {
        self.latest = event.number;
        self.send(frame("event", Some(event.number), event)).await
    }

    async fn send(&self, frame: Bytes) -> Result<(), Gone> {
        self.frames.send(frame).await.map_err(|_| Gone)
    }
}

/// One event as it goes over the wire. JSON has no line breaks, so one `data:` line holds it.
fn frame(name: &str, id: Option<u64>, data: &impl Serialize) -> Bytes {
    let data = serde_json::to_string(data).expect("our own types can be written as JSON");
    let id = id.map_or(String::new(), |id| format!("id: {id}\n"));
    format!("event: {name}\n{id}data: {data}\n\n").into()
}

/// The body: frames as they come.
struct Frames {
    receiver: mpsc::Receiver<Bytes>,
}

impl HttpBody for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.receiver.poll_recv(context).map(|frame| frame.map(|bytes| Ok(Frame::data(bytes))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_one_event() {
        let text = frame("event", Some(7), &serde_json::json!({"message": "two\nlines"}));
        assert_eq!(text, "event: event\nid: 7\ndata: {\"message\":\"two\\nlines\"}\n\n");
        assert_eq!(frame("changed", None, &1), "event: changed\ndata: 1\n\n");
    }
}
