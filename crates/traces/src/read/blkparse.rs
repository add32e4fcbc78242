//! Text of `blkparse` as it comes without `-f`: what `blktrace` has recorded, mostly on another
//! machine.
//!
//! ```text
//!   8,0    3       11     0.009507758   697  Q   W 223490 + 8 [kjournald]
//!   disk · processor · number · seconds · process · action · letters · first sector + sectors [name]
//! ```
//! A request is taken where it is queued (`Q`); where a recording has none of that, where it is
//! issued to the driver (`D`). Other actions, flushes without data, discards and the figures at the
//! end are passed over. Names may hold anything, so lines are bytes.

use super::disks::Disks;
use super::{Invalid, TraceRequest, request};
use types::SECTOR_BYTES;

/// A line that counts.
const EXPECTED: &str =
    "MAJOR,MINOR CPU NUMBER SECONDS.NANOSECONDS PID ACTION LETTERS FIRST_SECTOR + SECTORS [NAME], as blkparse prints it without -f";

/// Reads the text.
pub fn parse(text: &[u8]) -> Result<Vec<TraceRequest>, Invalid> {
    let (mut queued, mut issued) = (Vec::new(), Vec::new());
    let mut disks = Disks::default();
    let mut any = false;
    for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let invalid = |reason| Invalid::line(index, reason, EXPECTED);
        let mut fields = line.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty());
        let Some(number) = fields.next().filter(|field| is_disk(field)) else { continue };
        any = true;
        let (time, action, letters) = (fields.nth(2), fields.nth(1), fields.next());
        let (Some(time), Some(action), Some(letters)) = (time, action, letters) else { return Err(invalid("too few fields")) };
        let requests = match action {
            b"Q" => &mut queued,
            b"D" => &mut issued,
            _ => continue,
        };
        let write = match letters.strip_prefix(b"F").unwrap_or(letters).first() {
            Some(b'R') => false,
            Some(b'W') => true,
            _ => continue,
        };
        let (Some(first), Some(b"+"), Some(count)) = (fields.next(), fields.next(), fields.next()) else { continue };
        let time_ns = nanoseconds(time).ok_or_else(|| invalid("no time"))?;
        let (Some(first), Some(count)) = (decimal(first), decimal(count)) else { return Err(invalid("not a number")) };
        let disk = disks.number_of(number).map_err(invalid)?;
        requests.push(request(time_ns, disk, first, count, SECTOR_BYTES, write).map_err(invalid)?);
    }
    if !any && text.iter().any(|byte| !byte.is_ascii_whitespace()) {
        return Err(Invalid::line(0, "no line of blkparse in all of it", EXPECTED));
    }
    Ok(if queued.is_empty() { issued } else { queued })
}

/// `8,0`
fn is_disk(field: &[u8]) -> bool {
    let comma = field.iter().position(|byte| *byte == b',');
    comma.is_some_and(|comma| decimal(&field[..comma]).is_some() && decimal(&field[comma + 1..]).is_some())
}

/// `12.000000345`: nine places always.
fn nanoseconds(field: &[u8]) -> Option<u64> {
    let dot = field.iter().position(|byte| *byte == b'.')?;
    let fraction = decimal(&field[dot + 1..]).filter(|_| field.len() == dot + 10)?;
    decimal(&field[..dot])?.checked_mul(1_000_000_000)?.checked_add(fraction)
}

/// Digits and nothing else.
fn decimal(field: &[u8]) -> Option<u64> {
    let digits = field.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(field).ok().filter(|_| digits)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(time_ns: u64, disk: u16, sector: u64, sectors: u64, write: bool) -> TraceRequest {
        TraceRequest { time_ns, disk, offset_bytes: sector * 512, length_bytes: sectors * 512, write }
    }

    #[test]
    fn requests_are_taken_where_they_are_queued() {
        let text = b"  8,0    3        1     0.000000000   697  A   W 223490 + 8 <- (8,1) 223427
  8,0    3        2     0.000001829   697  Q   W 223490 + 8 [kjournald]
  8,0    3        3     0.000005000   697  G   W 223490 + 8 [kjournald]
  8,0    3        4     0.000007000   697  P   N [kjournald]
  8,0    3        5     0.000009000   697  U   N [kjournald] 1
  8,0    3        6     0.000010000   697  D   W 223490 + 8 [kjournald]
259,12   0        1     1.000000345  4711  Q  RA 64 + 16 [a + [b] c]
  8,0    1        7    10.500000000     0  Q FWFS 128 + 8 [\xff\xfe]
  8,0    1        8    10.600000000     0  Q FWS [jbd2/sda1]
  8,0    1        9    10.700000000     0  Q   D 4096 + 2048 [fstrim]
  8,0    1       10    10.800000000     0  C   W 223490 + 8 [0]
  8,0    0        0     2.000000000     0  m   N cfq697 insert_request

CPU3 (sda):
 Reads Queued:           0,        0KiB\t Writes Queued:           1,        4KiB
Throughput (R/W): 0KiB/s / 4KiB/s
Events (sda): 12 entries
";
        let expected = [made(1_829, 0, 223_490, 8, true), made(1_000_000_345, 1, 64, 16, false), made(10_500_000_000, 0, 128, 8, true)];
        assert_eq!(parse(text).expect("valid"), expected);
    }

    /// Some lines of what `blktrace` recorded of a loop device on Linux 6.12, as blkparse 1.2.0
    /// printed them: direct reads and writes of `dd`, `fsync`, write-zeroes that became writes, a
    /// discard.
    #[test]
    fn lines_of_a_recording() {
        let text = "
  7,0    0        1     0.000000000   281  Q  RS 0 + 8 [dd]
  7,0    0        2     0.000225060   281  G  RS 0 + 8 [dd]
  7,0    0        3     0.000321359   281  P   N [dd]
  7,0    0        4     0.000923232   281  U   N [dd] 1
  7,0    0        5     0.001143503   281  D  RS 0 + 8 [dd]
  7,0    1        1     0.002090949    27  C  RS 0 + 8 [0]
  7,0    0        6     0.002909196   281  Q  RS 8 + 8 [dd]
  7,0    0       26     0.100848676   282  Q  WS 64 + 16 [dd]
  7,0    0       41     0.102581608   282  Q FWS [dd]
  7,0    1       11     0.220986945   283  Q  WS 0 + 128 [fallocate]
  7,0    1       26     0.351217889   284  Q  RA 32640 + 8 [blkdiscard]
  7,0    1      196     0.377796815   284  Q  DS 0 + 8 [blkdiscard]

Total (t):
 Reads Queued:          39,      356KiB\t Writes Queued:           8,      156KiB
 Read depth:             2        \t Write depth:             1

Throughput (R/W): 941KiB/s / 412KiB/s
Events (t): 283 entries
Skips: 0 forward (0 -   0.0%)
";
        let expected = [
            made(0, 0, 0, 8, false),
            made(2_909_196, 0, 8, 8, false),
            made(100_848_676, 0, 64, 16, true),
            made(220_986_945, 0, 0, 128, true),
            made(351_217_889, 0, 32_640, 8, false),
        ];
        assert_eq!(parse(text.as_bytes()).expect("valid"), expected);
    }

    #[test]
    fn without_any_of_that_where_they_are_issued() {
        let text = b"  8,16  0  1  3.000000001  9  D  R 8 + 8 [x]\n  8,16  0  2  3.000000002  9  C  R 8 + 8 [0]\n";
        assert_eq!(parse(text).expect("valid"), [made(3_000_000_001, 0, 8, 8, false)]);
        assert_eq!(parse(b"\n \n").expect("empty"), []);
    }

    #[test]
    fn nonsense_is_told_with_its_line() {
        let check = |line: &str, expected: &str| {
            let text = format!("8,0 0 1 0.000000001 9 Q R 8 + 8 [x]\n{line}\n");
            let error = parse(text.as_bytes()).expect_err(line);
            assert!(error.record == 2 && error.reason == expected, "{line}: {error}");
        };
        check("8,0", "too few fields");
        check("8,0 0 1 0.0 9 Q", "too few fields");
        check("8,0 0 1 0.0 9 Q R 8 + 8 [x]", "no time");
        check("8,0 0 1 99999999999999999999.000000000 9 Q R 8 + 8", "no time");
        check("8,0 0 1 0.000000001 9 Q R -8 + 8 [x]", "not a number");
        check("8,0 0 1 0.000000001 9 Q R 8 + +8 [x]", "not a number");
        check("8,0 0 1 0.000000001 9 Q R 8 + 0 [x]", "length 0");
        check("8,0 0 1 0.000000001 9 Q R 18446744073709551615 + 8 [x]", "end beyond 2^60 bytes");
        assert_eq!(parse(b"\xff\x00 nothing").map_err(|error| error.record), Err(1));
    }

    #[test]
    fn damaged_lines_never_panic() {
        let line = b"8,0 0 1 0.000000001 9 Q R 8 + 8 [x]";
        let mut valid = 0;
        for at in 0..line.len() {
            for byte in [b' ', b',', b'.', b'+', b'0', b'\n', 0, 0xff] {
                let mut damaged = line.to_vec();
                damaged[at] = byte;
                valid += u32::from(parse(&damaged).is_ok());
                let _ = (parse(&damaged[..at]), parse(&damaged[at..]));
            }
        }
        assert!(valid > 0);
    }
}
