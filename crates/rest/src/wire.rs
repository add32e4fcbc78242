//! The bytes of a connection, with two corrections. Where the HTTP library below answers a request that it cannot read with a bare status, a problem
//! document goes out instead, like everywhere else. And a client that takes nothing of what waits for it is an error after a while.

use crate::problem::{Problem, of_status};
use axum::http::StatusCode;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// So much is read, and thrown away, of a client that was answered before it had sent everything. Many clients look for an answer only then.
const UNREAD_BYTES_MAX: usize = 16 << 20;

/// At a time.
const LEAVE_BUFFER_BYTES: usize = 16 << 10;

/// A connection.
#[derive(Debug)]
pub struct Wire<S> {
    stream: S,
    /// How long a client may take nothing.
    stall: Duration,
    /// When it will have taken nothing for so long; `None` while it takes what it gets.
    stalled: Option<Pin<Box<Sleep>>>,
    /// What goes out instead of a bare status, and how much of it has.
    instead: Option<(Vec<u8>, usize)>,
    /// Something has come since the last answer went out.
    unanswered: bool,
    /// An answer, or a part of one, has gone out.
    answered: bool,
}

impl<S: AsyncWrite + Unpin> Wire<S> {
    /// Over a stream whose client may take nothing for so long.
    pub fn new(stream: S, stall: Duration) -> Wire<S> {
        Wire { stream, stall, stalled: None, instead: None, unanswered: false, answered: false }
    }

    /// Whether a request has begun to come that has no answer yet.
    pub fn is_unanswered(&self) -> bool {
        self.unanswered
    }

    /// Whether an answer would stand at the beginning of one, as far as the client can tell.
    pub fn may_answer(&self) -> bool {
        self.unanswered || !self.answered
    }

    /// What came of a step that waits for the client: an error if it has been waiting for too long.
    fn in_time<T>(&mut self, context: &mut Context<'_>, step: Poll<std::io::Result<T>>) -> Poll<std::io::Result<T>> {
        if step.is_ready() {
            self.stalled = None;
            return step;
        }
        let stall = self.stall;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(stall)));
        ready!(stalled.as_mut().poll(context));
        Poll::Ready(Err(std::io::ErrorKind::TimedOut.into()))
    }

    fn poll_instead(&mut self, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        while let Some((bytes, sent)) = &mut self.instead {
            if *sent == bytes.len() {
                self.instead = None;
                break;
            }
            let step = Pin::new(&mut self.stream).poll_write(context, &bytes[*sent..]);
            match step {
                Poll::Pending => return self.in_time(context, Poll::Pending),
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(std::io::ErrorKind::WriteZero.into())),
                Poll::Ready(count) => *sent += count?,
            }
            self.stalled = None;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    /// Sends a problem over a connection that HTTP has given up, and [takes leave](Wire::take_leave).
    pub async fn say(&mut self, problem: &Problem) -> std::io::Result<()> {
        self.instead = Some((problem.raw(), 0));
        self.take_leave().await
    }

    /// Sends nothing more, and waits until the other end has closed the connection or has sent enough: closing while something is unread
    /// would take the last answer back.
    pub async fn take_leave(&mut self) -> std::io::Result<()> {
        std::future::poll_fn(|context| Pin::new(&mut *self).poll_shutdown(context)).await?;
        let mut left = UNREAD_BYTES_MAX;
        let mut bytes = vec![0; LEAVE_BUFFER_BYTES];
        while left > 0 {
            let mut buffer = ReadBuf::new(&mut bytes);
            std::future::poll_fn(|context| Pin::new(&mut self.stream).poll_read(context, &mut buffer)).await?;
            match buffer.filled().len() {
                0 => break,
                count => left = left.saturating_sub(count),
            }
        }
        Ok(())
    }
}

/// The status of an answer that is nothing but a status and an error. Our own all have a document.
fn bare_status(bytes: &[u8]) -> Option<StatusCode> {
    let text = std::str::from_utf8(bytes).ok()?;
    let code = text.strip_prefix("HTTP/1.1 ").or_else(|| text.strip_prefix("HTTP/1.0 "))?.get(..3)?;
    let bare = text.ends_with("\r\n\r\n") && text.contains("\r\ncontent-length: 0\r\n");
    StatusCode::from_bytes(code.as_bytes()).ok().filter(|status| bare && status.is_client_error())
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Wire<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        let wire = self.get_mut();
        ready!(wire.poll_instead(context))?;
        (wire.unanswered, wire.answered) = (false, true);
        if let Some(status) = bare_status(bytes) {
            let mut problem = of_status(status);
            problem.refusal.status = status.as_u16();
            wire.instead = Some((problem.raw(), 0));
            return Poll::Ready(Ok(bytes.len()));
        }
        let step = Pin::new(&mut wire.stream).poll_write(context, bytes);
        wire.in_time(context, step)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let wire = self.get_mut();
        ready!(wire.poll_instead(context))?;
        let step = Pin::new(&mut wire.stream).poll_flush(context);
        wire.in_time(context, step)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let wire = self.get_mut();
        ready!(wire.poll_instead(context))?;
        let step = Pin::new(&mut wire.stream).poll_shutdown(context);
        wire.in_time(context, step)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Wire<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        let wire = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut wire.stream).poll_read(context, buffer))?;
        wire.unanswered |= buffer.filled().len() > before;
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bare_errors_are_replaced() {
        let bare = "HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\ndate: x\r\n\r\n";
        assert_eq!(bare_status(bare.as_bytes()).map(|s| s.as_u16()), Some(431));
        for other in [
            "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\n{}",
            "HTTP/1.1 404 Not Found\r\ncontent-length: 120\r\n\r\n",
            "HTTP/1.1 400",
            "HTTP/1.1 999 ?\r\ncontent-length: 0\r\n\r\n",
            "data: HTTP/1.1 400 \r\ncontent-length: 0\r\n\r\n",
        ] {
            assert_eq!(bare_status(other.as_bytes()), None, "{other}");
        }
    }
}
