//! What a line of a `trace_pipe` says.
//!
//! ```text
//!               dd-1234    [001] .....  5012.345678: block_bio_queue: 7,0 R 2048 + 8 [dd]
//!   CPU:1 [LOST 17 EVENTS]
//! ```
//! Programs choose their names, with blanks, brackets and line ends in them, but of at most 15
//! bytes: too few to hold what an event or a loss is known by. So fields are taken from the marker
//! outwards, and a name that cuts its own line costs only itself.

use crate::event::{Comm, Event, Op, bytes_of};

const MARKER: &[u8] = b": block_bio_queue: ";
/// Longer lines are none of ours; the kernel's pages are no longer.
const LINE_BYTES_MAX: usize = 4096;

/// One line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    /// A request.
    Event {
        /// Its disk: major and minor number.
        disk: (u32, u32),
        /// How many sectors.
        sectors: u32,
        /// All else; the sector is the disk's.
        event: Event,
    },
    /// So many events had no room.
    Lost(u64),
    /// An empty line, or a remark of the kernel.
    Nothing,
    /// Anything else.
    Unreadable,
}

/// Lines out of pieces that end anywhere.
#[derive(Default)]
pub struct Lines {
    /// The beginning of a line whose end has not come.
    begun: Vec<u8>,
    /// It was too long: the rest is passed over.
    too_long: bool,
}

impl Lines {
    /// Hands out what the lines that end in `piece` say.
    pub fn feed(&mut self, piece: &[u8], mut each: impl FnMut(Told)) {
        let mut rest = piece;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let (line, behind) = (&rest[..end], &rest[end + 1..]);
            rest = behind;
            if std::mem::take(&mut self.too_long) {
                continue;
            }
            if self.begun.is_empty() {
                each(parse(line));
            } else {
                self.begun.extend_from_slice(line);
                each(parse(&self.begun));
                self.begun.clear();
            }
        }
        if self.too_long {
            return;
        }
        if self.begun.len() + rest.len() > LINE_BYTES_MAX {
            self.begun.clear();
            self.too_long = true;
            each(Told::Unreadable);
        } else {
            self.begun.extend_from_slice(rest);
        }
    }
}

/// What a line says.
pub fn parse(line: &[u8]) -> Told {
    let line = line.trim_ascii();
    if let Some(at) = line.windows(MARKER.len()).position(|window| window == MARKER) {
        return event(&line[..at], &line[at + MARKER.len()..]).unwrap_or(Told::Unreadable);
    }
    if line.is_empty() || line.starts_with(b"##### CPU ") {
        return Told::Nothing;
    }
    lost(line).map_or(Told::Unreadable, Told::Lost)
}

/// `CPU:1 [LOST 17 EVENTS]`; without a number where the kernel does not know it: at least one.
fn lost(line: &[u8]) -> Option<u64> {
    let line = std::str::from_utf8(line).ok()?;
    let (processor, what) = line.strip_prefix("CPU:")?.split_once(' ')?;
    processor.parse::<u32>().ok()?;
    let count = what.strip_prefix("[LOST ")?.strip_suffix("EVENTS]")?.trim_end();
    if count.is_empty() { Some(1) } else { count.parse().ok() }
}

fn event(before: &[u8], behind: &[u8]) -> Option<Told> {
    let (time_ns, tid) = (time(before)?, thread(before)?);
    let mut fields = behind.splitn(6, |byte| *byte == b' ');
    let disk = std::str::from_utf8(fields.next()?).ok()?.split_once(',')?;
    let disk = (disk.0.parse().ok()?, disk.1.parse().ok()?);
    let letters = fields.next()?;
    let sector = number(fields.next()?)?;
    if fields.next()? != b"+" {
        return None;
    }
    let sectors = u32::try_from(number(fields.next()?)?).ok()?;
    let comm = fields.next()?.strip_prefix(b"[")?;
    let comm = Comm::of(comm.strip_suffix(b"]").unwrap_or(comm));
    let (bytes, op) = (bytes_of(sectors), Op::of_letters(letters, sectors));
    Some(Told::Event { disk, sectors, event: Event { time_ns, sector, bytes, op, pid: None, tid, comm } })
}

/// The last word, in seconds.
fn time(before: &[u8]) -> Option<u64> {
    let word = before.rsplit(|byte| byte.is_ascii_whitespace()).next()?;
    let (seconds, fraction) = std::str::from_utf8(word).ok()?.split_once('.')?;
    let places = u32::try_from(fraction.len()).ok().filter(|places| (1..=9).contains(places))?;
    let fraction = number(fraction.as_bytes())? * 10u64.pow(9 - places);
    number(seconds.as_bytes())?.checked_mul(1_000_000_000)?.checked_add(fraction)
}

/// The number between the last `-` and the processor. The process may be told behind it, in
/// parentheses (option `record-tgid`).
fn thread(before: &[u8]) -> Option<u32> {
    let is_processor = |word: &[u8]| word.strip_prefix(b"[").and_then(|w| w.strip_suffix(b"]")).is_some_and(|w| number(w).is_some());
    let mut end = before.len();
    let mut words = before.rsplit(|byte| byte.is_ascii_whitespace());
    loop {
        let word = words.next()?;
        end = end.saturating_sub(word.len());
        if is_processor(word) {
            break;
        }
        end = end.saturating_sub(1);
    }
    let mut task = before[..end].trim_ascii_end();
    if task.ends_with(b")") {
        task = task[..task.iter().rposition(|byte| *byte == b'(')?].trim_ascii_end();
    }
    u32::try_from(number(&task[task.iter().rposition(|byte| *byte == b'-')? + 1..])?).ok()
}

/// Digits and nothing else.
fn number(text: &[u8]) -> Option<u64> {
    if !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(disk: (u32, u32), sectors: u32, event: Event) -> Told {
        Told::Event { disk, sectors, event }
    }

    fn read(time_ns: u64, sector: u64, sectors: u32, tid: u32, comm: &str) -> Event {
        let bytes = u64::from(sectors) * 512;
        Event { time_ns, sector, bytes, op: Op::Read, pid: None, tid, comm: Comm::of(comm.as_bytes()) }
    }

    #[test]
    fn lines_of_the_kernel() {
        let check = |line: &str, expected| assert_eq!(parse(line.as_bytes()), expected, "{line}");
        check(
            "              dd-1234    [001] .....  5012.345678: block_bio_queue: 7,0 R 2048 + 8 [dd]\n",
            told((7, 0), 8, read(5_012_345_678_000, 2048, 8, 1234, "dd")),
        );
        check(
            "   kworker/u8:2-4194304 [127] d..2. 0.000001: block_bio_queue: 259,12 FWS 0 + 0 [kworker/u8:2]",
            told((259, 12), 0, Event { op: Op::Flush, ..read(1_000, 0, 0, 4_194_304, "kworker/u8:2") }),
        );
        check(
            "          <idle>-0       (-------) [000] ..s1. 7.5: block_bio_queue: 8,0 N 1 + 4294967295 [swapper/0]",
            told((8, 0), u32::MAX, Event { op: Op::Zeroes, ..read(7_500_000_000, 1, u32::MAX, 0, "swapper/0") }),
        );
        check("  x-9 (  123) [000] .. 1.0: block_bio_queue: 8,0 R 1 + 1 [x]", told((8, 0), 1, read(1_000_000_000, 1, 1, 9, "x")));
        check("CPU:1 [LOST 17 EVENTS]\n", Told::Lost(17));
        check("CPU:1 [LOST EVENTS]", Told::Lost(1));
        check("##### CPU 3 buffer started ####", Told::Nothing);
        check("", Told::Nothing);
    }

    #[test]
    fn names_cannot_pretend() {
        let line = |comm: &str| format!("{comm:>16}-77      [002] ..... 3.000004: block_bio_queue: 7,1 R 64 + 8 [{comm}]\n").into_bytes();
        let all = |text: &[u8]| {
            let mut all = Vec::new();
            Lines::default().feed(text, |told| all.push(told));
            all
        };
        for comm in ["a b", "-5 [000] .. 1.0", "x] + [", "[003]", "(1)", "]", "", "- - -", ": block_bio_que", "8,0 W 1 + 1 [y]", "ü"] {
            assert_eq!(all(&line(comm)), [told((7, 1), 8, read(3_000_004_000, 64, 8, 77, comm))], "{comm}");
        }
        // A line end: what is left of the name before it is not readable, the request is.
        assert_eq!(
            all(&line("ab\nCPU:1 [LOST")),
            [Told::Unreadable, told((7, 1), 8, read(3_000_004_000, 64, 8, 77, "ab")), Told::Unreadable]
        );
    }

    #[test]
    fn hostile_lines_are_unreadable() {
        for line in [
            "x",
            ": block_bio_queue: ",
            "a-1 [0] . 1.0: block_bio_queue: ",
            "a-1 [0] . 1.0: block_bio_queue: 7,0 R 1 + 1",
            "a-1 [0] . 1.0: block_bio_queue: 7,0 R 1 - 1 [a]",
            "a-1 [0] . 1.0: block_bio_queue: 7,0 R -1 + 1 [a]",
            "a-1 [0] . 1.0: block_bio_queue: 7,0 R +1 + 1 [a]",
            "a-1 [0] . 1.0: block_bio_queue: 7,0 R 1 + 4294967296 [a]",
            "a-1 [0] . 1.0: block_bio_queue: 7,0 R 18446744073709551616 + 1 [a]",
            "a-1 [0] . 1.0: block_bio_queue: 7 R 1 + 1 [a]",
            "a-1 [0] . 1.0: block_bio_queue: 7,0,1 R 1 + 1 [a]",
            "a-1 [0] . 1.0000000000: block_bio_queue: 7,0 R 1 + 1 [a]",
            "a-1 [0] . 1.: block_bio_queue: 7,0 R 1 + 1 [a]",
            "a-1 [0] . 18446744073709551615.9: block_bio_queue: 7,0 R 1 + 1 [a]",
            "a-1 . 1.0: block_bio_queue: 7,0 R 1 + 1 [a]",
            "a1 [0] . 1.0: block_bio_queue: 7,0 R 1 + 1 [a]",
            "a-4294967296 [0] . 1.0: block_bio_queue: 7,0 R 1 + 1 [a]",
            "1) [0] . 1.0: block_bio_queue: 7,0 R 1 + 1 [a]",
            "CPU:x [LOST 1 EVENTS]",
            "CPU:1 [LOST -1 EVENTS]",
            "CPU:1 [LOST 1 EVENTS",
        ] {
            assert_eq!(parse(line.as_bytes()), Told::Unreadable, "{line}");
        }
        assert_eq!(parse(b"\xff\xfe: block_bio_queue: \xff,\xff \xff \xff + \xff [\xff]"), Told::Unreadable);
    }

    /// Each byte of a line replaced by each of some others, and each line cut anywhere.
    #[test]
    fn damaged_lines_never_panic() {
        let line = b"  a-1 (12) [0] . 1.5: block_bio_queue: 7,0 R 1 + 1 [a]";
        let mut events = 0;
        for at in 0..line.len() {
            for byte in [b' ', b'-', b'[', b']', b'(', b')', b'.', b':', b',', b'0', 0, 0xff, b'\n'] {
                let mut damaged = line.to_vec();
                damaged[at] = byte;
                events += u32::from(matches!(parse(&damaged), Told::Event { .. }));
                parse(&damaged[..at]);
                parse(&damaged[at..]);
            }
        }
        assert!(events > 0);
    }

    #[test]
    fn pieces_may_end_anywhere() {
        let line = "a-1 [0] . 1.0: block_bio_queue: 7,0 R 1 + 1 [a]\n";
        let text = [line, "CPU:0 [LOST 5 EVENTS]\n", line].concat();
        let expected = told((7, 0), 1, read(1_000_000_000, 1, 1, 1, "a"));
        for size in 1..text.len() {
            let mut all = Vec::new();
            let mut lines = Lines::default();
            for piece in text.as_bytes().chunks(size) {
                lines.feed(piece, |told| all.push(told));
            }
            assert_eq!(all, [expected, Told::Lost(5), expected], "{size}");
        }
    }

    #[test]
    fn a_line_without_an_end_takes_bounded_memory() {
        let mut lines = Lines::default();
        let mut all = Vec::new();
        for _ in 0..100 {
            lines.feed(&[b'x'; 1000], |told| all.push(told));
            assert!(lines.begun.len() <= LINE_BYTES_MAX);
        }
        lines.feed(b"x\nCPU:0 [LOST 5 EVENTS]\n", |told| all.push(told));
        assert_eq!(all, [Told::Unreadable, Told::Lost(5)]);
    }
}
