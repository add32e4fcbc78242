//! Server-sent events as a client reads them: HTTP's chunks taken apart, lines put together to events. Everything is bounded, since
//! what answers at a socket need not be ours.

use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Result};

/// Largest event: a sample of a thousand volumes is about 3 MB.
const EVENT_BYTES_MAX: usize = 16 << 20;
/// Longest line that tells a chunk's length, or a line after the last chunk.
const CHUNK_LINE_BYTES_MAX: u64 = 1 << 10;

/// One event.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ServerEvent {
    /// Its number, if it has one: what to go on after.
    pub id: Option<u64>,
    /// Its name: "hello", "sample", "job", "event", "changed"; "message" if it has none.
    pub event: String,
    /// Its JSON.
    pub data: String,
}

/// Reads events from a body.
#[derive(Debug)]
pub struct EventReader<R> {
    from: BufReader<Body<R>>,
}

impl<R: BufRead> EventReader<R> {
    /// Of a body that comes in chunks, or else ends with its connection.
    pub fn new(from: R, chunked: bool) -> EventReader<R> {
        EventReader { from: BufReader::new(Body { from, chunked, left: 0, begun: false, ended: false }) }
    }

    /// The next event; `None` at the end of the body. Comments, which keep a connection alive, are passed over; so is an event that the end
    /// cuts short.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidData`] for what is no event stream, [`ErrorKind::UnexpectedEof`] if the connection ends within a chunk; or the system's.
    pub fn next(&mut self) -> Result<Option<ServerEvent>> {
        let mut event = ServerEvent::default();
        let mut has_data = false;
        let mut bytes = 0;
        loop {
            let Some(line) = self.line(EVENT_BYTES_MAX - bytes)? else { return Ok(None) };
            bytes += line.len();
            if line.is_empty() {
                if has_data {
                    if event.event.is_empty() {
                        event.event = "message".into();
                    }
                    return Ok(Some(event));
                }
                (event, bytes) = (ServerEvent::default(), 0);
                continue;
            }
            let (field, value) = line.split_once(':').unwrap_or((&line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "event" => event.event = value.into(),
                "id" => event.id = value.parse().ok(),
                "data" => {
                    if has_data {
                        event.data.push('\n');
                    }
                    event.data.push_str(value);
                    has_data = true;
                }
                // A comment, or a field that we have no use for.
                _ => {}
            }
        }
    }

    fn line(&mut self, most: usize) -> Result<Option<String>> {
        let mut bytes = Vec::new();
        (&mut self.from).take(most as u64 + 1).read_until(b'\n', &mut bytes)?;
        if bytes.pop_if(|last| *last == b'\n').is_none() {
            return if bytes.len() > most { Err(invalid("an event is too long")) } else { Ok(None) };
        }
        bytes.pop_if(|last| *last == b'\r');
        String::from_utf8(bytes).map(Some).map_err(|_| invalid("an event is not UTF-8"))
    }
}

/// A body with the chunks taken away.
#[derive(Debug)]
struct Body<R> {
    from: R,
    chunked: bool,
    /// Bytes left of the present chunk.
    left: u64,
    begun: bool,
    ended: bool,
}

impl<R: BufRead> Body<R> {
    fn chunk_line(&mut self) -> Result<String> {
        let mut bytes = Vec::new();
        (&mut self.from).take(CHUNK_LINE_BYTES_MAX).read_until(b'\n', &mut bytes)?;
        match bytes.strip_suffix(b"\r\n") {
            Some(line) => Ok(String::from_utf8_lossy(line).into_owned()),
            None if bytes.len() < CHUNK_LINE_BYTES_MAX as usize && bytes.last() != Some(&b'\n') => Err(ErrorKind::UnexpectedEof.into()),
            None => Err(invalid("a chunk is broken")),
        }
    }

    fn next_chunk(&mut self) -> Result<()> {
        if self.begun && !self.chunk_line()?.is_empty() {
            return Err(invalid("a chunk is longer than it says"));
        }
        self.begun = true;
        let line = self.chunk_line()?;
        let digits = line.split(';').next().unwrap_or("").trim();
        self.left = u64::from_str_radix(digits, 16).map_err(|_| invalid("a chunk has no length"))?;
        if self.left == 0 {
            while !self.chunk_line()?.is_empty() {}
            self.ended = true;
        }
        Ok(())
    }
}

impl<R: BufRead> Read for Body<R> {
    fn read(&mut self, to: &mut [u8]) -> Result<usize> {
        if !self.chunked {
            return self.from.read(to);
        }
        if self.left == 0 && !self.ended {
            self.next_chunk()?;
        }
        if self.ended {
            return Ok(0);
        }
        let most = to.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let read = self.from.read(&mut to[..most])?;
        if read == 0 && most > 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        self.left -= read as u64;
        Ok(read)
    }
}

fn invalid(what: &str) -> Error {
    Error::new(ErrorKind::InvalidData, what.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(bytes: &[u8], chunked: bool) -> Result<Vec<ServerEvent>> {
        let mut reader = EventReader::new(bytes, chunked);
        let mut events = Vec::new();
        while let Some(event) = reader.next()? {
            events.push(event);
        }
        Ok(events)
    }

    fn event(id: Option<u64>, event: &str, data: &str) -> ServerEvent {
        ServerEvent { id, event: event.into(), data: data.into() }
    }

    fn chunks(text: &str, size: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        for chunk in text.as_bytes().chunks(size) {
            bytes.extend(format!("{:X};note=1\r\n", chunk.len()).bytes());
            bytes.extend(chunk);
            bytes.extend(b"\r\n");
        }
        bytes.extend(b"0\r\nTrailer: x\r\n\r\n");
        bytes
    }

    const STREAM: &str = ":\n\nevent: hello\ndata: {\"a\":1}\n\n: keep-alive\n\nid: 7\nevent: event\r\ndata: one\r\ndata:two\r\n\r\ndata\n\nretry: 5\n\nid: x\ndata: last\n\n";

    #[test]
    fn events_are_the_same_however_they_are_cut() {
        let expected = vec![
            event(None, "hello", "{\"a\":1}"),
            event(Some(7), "event", "one\ntwo"),
            event(None, "message", ""),
            event(None, "message", "last"),
        ];
        assert_eq!(read_all(STREAM.as_bytes(), false).expect("it is sound"), expected);
        for size in 1..STREAM.len() + 1 {
            assert_eq!(read_all(&chunks(STREAM, size), true).expect("it is sound"), expected, "chunks of {size}");
        }
    }

    #[test]
    fn what_the_end_cuts_short_is_no_event() {
        assert_eq!(read_all(b"data: a\n\ndata: b\n", false).expect("it is sound"), [event(None, "message", "a")]);
        assert_eq!(read_all(b"", false).expect("it is sound"), []);
        let whole = chunks(STREAM, 5);
        for cut in 0..whole.len() - 1 {
            let error = read_all(&whole[..cut], true).expect_err("the last chunk is missing");
            assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{cut}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        let check = |bytes: &[u8], chunked: bool| {
            let error = read_all(bytes, chunked).expect_err("it is nonsense");
            assert_eq!(error.kind(), ErrorKind::InvalidData, "{:?}", String::from_utf8_lossy(&bytes[..bytes.len().min(40)]));
        };
        check(b"x\r\n", true);
        check(b"-1\r\n", true);
        check(b"\r\n", true);
        check(b"FFFFFFFFFFFFFFFFF\r\n", true);
        check(b"1\r\nab\r\n0\r\n\r\n", true);
        check(b"1\n\n", true);
        check(&[b'1'; 5000], true);
        check(b"data: \xFF\n\n", false);
        check(&vec![b'x'; EVENT_BYTES_MAX + 10], false);
        let many = "data: x\n".repeat(EVENT_BYTES_MAX / 7 + 10);
        check(many.as_bytes(), false);
    }
}
