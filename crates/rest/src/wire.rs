//! The bytes of a connection, with one correction: where the HTTP library below answers a request that it cannot read with a bare status, a problem
//! document goes out instead, like everywhere else.

use crate::problem::{Problem, of_status};
use axum::http::StatusCode;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// So much is read of who was told to go.
const UNREAD_BYTES_MAX: usize = 64 << 10;

/// A connection.
#[derive(Debug)]
pub struct Wire<S> {
    stream: S,
    /// What goes out instead of a bare status, and how much of it has.
    instead: Option<(Vec<u8>, usize)>,
    /// Something has come since the last answer went out.
    unanswered: bool,
}

impl<S: AsyncWrite + Unpin> Wire<S> {
    /// Over a stream.
    pub fn new(stream: S) -> Wire<S> {
        Wire { stream, instead: None, unanswered: false }
    }

    /// Whether a request has begun to come that has no answer yet.
    pub fn is_unanswered(&self) -> bool {
        self.unanswered
    }

    fn poll_instead(&mut self, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        while let Some((bytes, sent)) = &mut self.instead {
            if *sent == bytes.len() {
                self.instead = None;
                break;
            }
            match ready!(Pin::new(&mut self.stream).poll_write(context, &bytes[*sent..]))? {
                0 => return Poll::Ready(Err(std::io::ErrorKind::WriteZero.into())),
                count => *sent += count,
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    /// Sends a problem over a connection that HTTP has given up, and waits until the other end has closed it or has sent enough: closing
    /// while something is unread could take the answer back.
    pub async fn say(&mut self, problem: &Problem) -> std::io::Result<()> {
        self.instead = Some((problem.raw(), 0));
        std::future::poll_fn(|context| Pin::new(&mut *self).poll_shutdown(context)).await?;
        let mut left = UNREAD_BYTES_MAX;
        while left > 0 {
            let mut bytes = [0; 1024];
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
        wire.unanswered = false;
        if let Some(status) = bare_status(bytes) {
            let mut problem = of_status(status);
            problem.refusal.status = status.as_u16();
            wire.instead = Some((problem.raw(), 0));
            return Poll::Ready(Ok(bytes.len()));
        }
        Pin::new(&mut wire.stream).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let wire = self.get_mut();
        ready!(wire.poll_instead(context))?;
        Pin::new(&mut wire.stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let wire = self.get_mut();
        ready!(wire.poll_instead(context))?;
        Pin::new(&mut wire.stream).poll_shutdown(context)
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
