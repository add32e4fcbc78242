//! What is reported of each request.

use std::fmt;
use types::SECTOR_BYTES;

/// One request, as it was queued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// When, by `CLOCK_MONOTONIC`. Events of several processors come nearly in order. The way
    /// `tracefs` tells microseconds.
    pub time_ns: u64,
    /// First sector, of the device that is watched (512 bytes each, also where its sectors are
    /// larger).
    pub sector: u64,
    /// Length; 0 for a flush without data.
    pub bytes: u64,
    /// What is asked for.
    pub op: Op,
    /// The process, by the machine's first PID namespace; `tracefs` does not tell it.
    pub pid: Option<u32>,
    /// The thread that asks, likewise; 0 is the idle task.
    pub tid: u32,
    /// That thread's name.
    pub comm: Comm,
}

/// Kinds of requests.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Op {
    /// Data is read.
    Read,
    /// Data is written, with or without a flush before or after.
    Write,
    /// A range is given up, also securely.
    Discard,
    /// Earlier writes become durable; no data.
    Flush,
    /// A range becomes zeroes without data sent.
    Zeroes,
    /// Calls of zoned devices.
    Other,
}

impl Op {
    /// By the letters of the kernel's `blk_fill_rwbs`: an `F` for a flush before, a letter for the
    /// operation, then flags. Write-zeroes has no letter of its own: it is the only request with
    /// `N` that has a length, since others without a letter are not queued as `bio`.
    pub fn of_letters(letters: &[u8], sectors: u32) -> Op {
        let (flush, letters) = match letters {
            [b'F', rest @ ..] => (true, rest),
            letters => (false, letters),
        };
        match letters.first() {
            Some(b'W') if flush && sectors == 0 => Op::Flush,
            Some(b'W') => Op::Write,
            Some(b'R') => Op::Read,
            Some(b'D') => Op::Discard,
            Some(b'N') if sectors > 0 => Op::Zeroes,
            _ if flush => Op::Flush,
            _ => Op::Other,
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Op::Read => "read",
            Op::Write => "write",
            Op::Discard => "discard",
            Op::Flush => "flush",
            Op::Zeroes => "zeroes",
            Op::Other => "other",
        })
    }
}

/// A thread's name: at most 15 bytes of anything but zero, chosen by the program.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Comm([u8; 16]);

impl Comm {
    /// Up to the first zero, and at most 15 bytes.
    pub fn of(bytes: &[u8]) -> Comm {
        let mut name = [0; 16];
        for (to, from) in name[..15].iter_mut().zip(bytes.iter().take_while(|byte| **byte != 0)) {
            *to = *from;
        }
        Comm(name)
    }

    /// As the program chose it; may be no text at all.
    pub fn as_bytes(&self) -> &[u8] {
        let end = self.0.iter().position(|byte| *byte == 0).unwrap_or(self.0.len());
        &self.0[..end]
    }
}

/// Safe for terminals and logs: what is not printable is escaped.
impl fmt::Display for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text: String = String::from_utf8_lossy(self.as_bytes())
            .chars()
            .flat_map(|c| if c.is_control() { c.escape_default().collect::<Vec<_>>() } else { vec![c] })
            .collect();
        f.pad(&text)
    }
}

impl fmt::Debug for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Comm({self})")
    }
}

/// Bytes of so many sectors.
pub(crate) fn bytes_of(sectors: u32) -> u64 {
    u64::from(sectors) * SECTOR_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_of_the_kernel() {
        let check = |letters: &str, sectors, op| assert_eq!(Op::of_letters(letters.as_bytes(), sectors), op, "{letters} {sectors}");
        check("R", 8, Op::Read);
        check("RA", 8, Op::Read);
        check("RSM", 8, Op::Read);
        check("WS", 8, Op::Write);
        check("WFS", 8, Op::Write);
        check("FWFS", 8, Op::Write);
        check("FWS", 0, Op::Flush);
        check("F", 0, Op::Flush);
        check("FF", 0, Op::Flush);
        check("FN", 0, Op::Flush);
        check("D", 8, Op::Discard);
        check("DE", 8, Op::Discard);
        check("N", 8, Op::Zeroes);
        check("NS", 8, Op::Zeroes);
        check("N", 0, Op::Other);
        check("ZA", 8, Op::Other);
        check("ZR", 0, Op::Other);
        check("", 8, Op::Other);
        check("\0\u{1}", 8, Op::Other);
    }

    #[test]
    fn names_are_cut_and_cannot_touch_a_terminal() {
        assert_eq!(Comm::of(b"mariadbd\0rest").as_bytes(), b"mariadbd");
        assert_eq!(Comm::of(&[b'x'; 40]).as_bytes(), [b'x'; 15]);
        assert_eq!(Comm::of(b"a\x1b[2J\nb\xff").to_string(), "a\\u{1b}[2J\\nb\u{fffd}");
    }
}
