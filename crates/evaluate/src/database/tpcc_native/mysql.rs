//! The client's side of the MySQL protocol (https://mariadb.com/kb/en/clientserver-protocol/): packets of a length in three bytes, a number, a payload.

use super::wire::{Failure, Rows, bytes};
use std::io::{BufReader, Write};
use std::os::unix::net::UnixStream;

/// Capabilities: long password and flags, a database, protocol 4.1, transactions, its way of logging in, and the name of that.
const CAPABILITIES: u32 = 0x1 | 0x4 | 0x8 | 0x200 | 0x2000 | 0x8000 | 0x8_0000;
/// utf8_general_ci.
const CHARSET: u8 = 33;
/// The command for a statement in plain text.
const COM_QUERY: u8 = 3;
/// Deadlock, and a lock that was waited for too long.
const RETRY: [u16; 2] = [1213, 1205];

pub(super) struct MySql {
    pub stream: BufReader<UnixStream>,
}

impl MySql {
    pub fn open(stream: UnixStream, database: &str) -> Result<MySql, Failure> {
        let mut connection = MySql { stream: BufReader::new(stream) };
        let (number, greeting) = connection.packet()?;
        if let Some(failure) = failure(&greeting) {
            return Err(failure);
        }
        let mut hello = CAPABILITIES.to_le_bytes().to_vec();
        hello.extend((1u32 << 24).to_le_bytes());
        hello.push(CHARSET);
        hello.extend([0; 23]);
        // No password: its length is 0.
        hello.extend(b"root\0\0");
        hello.extend(database.as_bytes());
        hello.extend(b"\0mysql_native_password\0");
        connection.send(number + 1, &hello)?;
        loop {
            let (number, answer) = connection.packet()?;
            match answer.first() {
                Some(0) => return Ok(connection),
                // Another way of logging in: no password is none there too.
                Some(0xfe) => connection.send(number + 1, &[])?,
                _ => return Err(failure(&answer).unwrap_or_else(|| Failure::Final("the server wants a password".into()))),
            }
        }
    }

    pub fn query(&mut self, statement: &str) -> Result<Rows, Failure> {
        let mut command = vec![COM_QUERY];
        command.extend(statement.as_bytes());
        self.send(0, &command)?;
        let (_, first) = self.packet()?;
        if let Some(failure) = failure(&first) {
            return Err(failure);
        }
        if first.first() == Some(&0) {
            return Ok(Rows::new());
        }
        let columns = length(&mut first.as_slice()).flatten().ok_or_else(nonsense)?;
        // What the columns are was in the question; an end follows them.
        for _ in 0..=columns {
            self.packet()?;
        }
        let mut rows = Rows::new();
        loop {
            let (_, packet) = self.packet()?;
            if let Some(failure) = failure(&packet) {
                return Err(failure);
            }
            // The end; a row that begins so has a text of 16 MiB.
            if packet.first() == Some(&0xfe) && packet.len() < 9 {
                return Ok(rows);
            }
            rows.push(row(&packet, columns).ok_or_else(nonsense)?);
        }
    }

    fn packet(&mut self) -> Result<(u8, Vec<u8>), Failure> {
        let head = bytes(&mut self.stream, 4)?;
        let length = u32::from_le_bytes([head[0], head[1], head[2], 0]);
        Ok((head[3], bytes(&mut self.stream, length as usize)?))
    }

    fn send(&mut self, number: u8, payload: &[u8]) -> Result<(), Failure> {
        // Statements of ours are far below 16 MiB, where packets are split.
        let length = u32::try_from(payload.len()).ok().filter(|length| *length < 0xff_ffff).ok_or_else(nonsense)?;
        let mut packet = length.to_le_bytes()[..3].to_vec();
        packet.push(number);
        packet.extend(payload);
        Ok(self.stream.get_mut().write_all(&packet)?)
    }
}

fn nonsense() -> Failure {
    Failure::Final("the server does not answer in the MySQL protocol".into())
}

/// If a packet is an error: a code, `#` and a state of five letters, a sentence.
fn failure(packet: &[u8]) -> Option<Failure> {
    let [0xff, low, high, rest @ ..] = packet else { return None };
    let code = u16::from_le_bytes([*low, *high]);
    let rest = if rest.first() == Some(&b'#') { rest.get(6..).unwrap_or_default() } else { rest };
    let text = format!("error {code}: {}", String::from_utf8_lossy(rest));
    Some(if RETRY.contains(&code) { Failure::Retry(text) } else { Failure::Final(text) })
}

/// A number of one to nine bytes; `Some(None)` is NULL.
fn length(from: &mut &[u8]) -> Option<Option<u64>> {
    let (first, rest) = from.split_first()?;
    let width = match first {
        0xfb => {
            *from = rest;
            return Some(None);
        }
        0xfc => 2,
        0xfd => 3,
        0xfe => 8,
        _ => {
            *from = rest;
            return Some(Some(u64::from(*first)));
        }
    };
    let (number, rest) = rest.split_at_checked(width)?;
    let mut word = [0; 8];
    word[..width].copy_from_slice(number);
    *from = rest;
    Some(Some(u64::from_le_bytes(word)))
}

fn row(packet: &[u8], columns: u64) -> Option<Vec<Option<String>>> {
    let mut rest = packet;
    let mut row = Vec::new();
    for _ in 0..columns {
        row.push(match length(&mut rest)? {
            None => None,
            Some(length) => {
                let (text, after) = rest.split_at_checked(usize::try_from(length).ok()?)?;
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
        assert_eq!(row(b"\x01a\xfb\xfc\x02\x00bc\x00", 4), Some(vec![Some("a".into()), None, Some("bc".into()), Some(String::new())]));
        assert_eq!(row(b"\x05ab", 1), None);
        assert_eq!(row(b"\xfc\x01", 1), None);
        assert_eq!(failure(b"\xff\xbd\x04#40001Deadlock found"), Some(Failure::Retry("error 1213: Deadlock found".into())));
        assert_eq!(failure(b"\xff\x28\x04#42000No"), Some(Failure::Final("error 1064: No".into())));
        assert_eq!(failure(b"\x00"), None);
    }
}
