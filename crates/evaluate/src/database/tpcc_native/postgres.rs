//! The client's side of the PostgreSQL protocol, version 3 (https://www.postgresql.org/docs/current/protocol.html): a letter, a length, a payload.

use super::wire::{Failure, Rows, bytes};
use std::io::{BufReader, Write};
use std::os::unix::net::UnixStream;

/// Version 3.0.
const VERSION: u32 = 196_608;
/// Serialization failure, deadlock.
const RETRY: [&str; 2] = ["40001", "40P01"];

pub(super) struct Postgres {
    pub stream: BufReader<UnixStream>,
}

impl Postgres {
    pub fn open(stream: UnixStream, database: &str) -> Result<Postgres, Failure> {
        let mut connection = Postgres { stream: BufReader::new(stream) };
        let mut hello = VERSION.to_be_bytes().to_vec();
        hello.extend(format!("user\0postgres\0database\0{database}\0\0").into_bytes());
        connection.send(None, &hello)?;
        connection.answer()?;
        Ok(connection)
    }

    pub fn query(&mut self, statement: &str) -> Result<Rows, Failure> {
        self.send(Some(b'Q'), format!("{statement}\0").as_bytes())?;
        self.answer()
    }

    /// Until the server is ready for the next.
    fn answer(&mut self) -> Result<Rows, Failure> {
        let (mut rows, mut failed) = (Rows::new(), None);
        loop {
            let head = bytes(&mut self.stream, 5)?;
            let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
            let payload = bytes(&mut self.stream, (length as usize).checked_sub(4).ok_or_else(nonsense)?)?;
            match head[0] {
                b'D' => rows.push(row(&payload).ok_or_else(nonsense)?),
                b'E' => {
                    let failure = failure(&payload);
                    // Before the first question an error is the end.
                    failed = Some(failure.clone());
                    if payload.windows(6).any(|field| field == b"SFATAL") {
                        return Err(failure);
                    }
                }
                b'R' if payload != [0; 4] => return Err(Failure::Final("the server wants a password".into())),
                b'Z' => return failed.map_or(Ok(rows), Err),
                // Settings, notices, what columns are, how many rows there were.
                _ => {}
            }
        }
    }

    fn send(&mut self, kind: Option<u8>, payload: &[u8]) -> Result<(), Failure> {
        let length = u32::try_from(payload.len() + 4).map_err(|_| nonsense())?;
        let mut message: Vec<u8> = kind.into_iter().collect();
        message.extend(length.to_be_bytes());
        message.extend(payload);
        Ok(self.stream.get_mut().write_all(&message)?)
    }
}

fn nonsense() -> Failure {
    Failure::Final("the server does not answer in the PostgreSQL protocol".into())
}

/// Fields of a letter and a text: `C` is the code, `M` the sentence.
fn failure(payload: &[u8]) -> Failure {
    let fields: Vec<String> = payload.split(|byte| *byte == 0).map(|field| String::from_utf8_lossy(field).into_owned()).collect();
    let field = |letter: char| fields.iter().find_map(|field| field.strip_prefix(letter)).unwrap_or_default();
    let text = format!("error {}: {}", field('C'), field('M'));
    if RETRY.contains(&field('C')) { Failure::Retry(text) } else { Failure::Final(text) }
}

fn row(payload: &[u8]) -> Option<Vec<Option<String>>> {
    let (count, mut rest) = payload.split_at_checked(2)?;
    let mut row = Vec::new();
    for _ in 0..u16::from_be_bytes([count[0], count[1]]) {
        let (length, after) = rest.split_at_checked(4)?;
        rest = after;
        let length = i32::from_be_bytes([length[0], length[1], length[2], length[3]]);
        // -1 is NULL.
        row.push(match usize::try_from(length) {
            Err(_) => None,
            Ok(length) => {
                let (text, after) = rest.split_at_checked(length)?;
                rest = after;
                Some(String::from_utf8_lossy(text).into_owned())
            }
        });
    }
    Some(row)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_errors_are_taken_apart() {
        let payload = b"\x00\x03\x00\x00\x00\x02ab\xff\xff\xff\xff\x00\x00\x00\x00";
        assert_eq!(row(payload), Some(vec![Some("ab".into()), None, Some(String::new())]));
        assert_eq!(row(&payload[..7]), None);
        assert_eq!(failure(b"SERROR\0C40P01\0Mdeadlock detected\0\0"), Failure::Retry("error 40P01: deadlock detected".into()));
        assert_eq!(failure(b"SERROR\0C42601\0Mno\0\0"), Failure::Final("error 42601: no".into()));
    }
}
