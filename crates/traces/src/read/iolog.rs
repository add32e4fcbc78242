//! What fio writes by `write_iolog`, versions 2 and 3.
//!
//! ```text
//! fio version 3 iolog
//! 120 /dev/sdb read 4096 8192     microseconds since its start · file · action · offset and length in bytes
//! 121 /dev/sdb close              (add, open, close: files)
//! ```
//! In version 2 lines have no time; a line `FILE wait MILLISECONDS 0` tells when the next ones are issued, since its start. Syncs and trims are passed over.

use super::disks::Disks;
use super::{Invalid, TraceRequest, request, text};

const HEADER: &str = "\"fio version 3 iolog\" or \"fio version 2 iolog\" as the first line";
const VERSION_3: &str = "time_us FILE read|write|sync|datasync|trim OFFSET_BYTES LENGTH_BYTES, or time_us FILE add|open|close";
const VERSION_2: &str = "FILE read|write|sync|datasync|trim|wait OFFSET_BYTES LENGTH_BYTES, or FILE add|open|close";

/// Reads the text.
pub fn parse(bytes: &[u8]) -> Result<Vec<TraceRequest>, Invalid> {
    let mut lines = text(bytes, HEADER)?.lines().enumerate();
    let has_time = match lines.next().map(|(_, line)| line.trim()) {
        // As a recording that failed.
        None | Some("") => return Ok(Vec::new()),
        Some("fio version 3 iolog") => true,
        Some("fio version 2 iolog") => false,
        Some(_) => return Err(Invalid::line(0, "it is no iolog of fio, or of another version", HEADER)),
    };
    let expected = if has_time { VERSION_3 } else { VERSION_2 };
    let (mut disks, mut time_us, mut requests) = (Disks::default(), 0, Vec::new());
    for (index, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
        let found = one(line, has_time, &mut time_us, &mut disks);
        requests.extend(found.map_err(|reason| Invalid::line(index, reason, expected))?);
    }
    Ok(requests)
}

/// The request of a line, if it is a read or a write of something.
fn one<'a>(line: &'a str, has_time: bool, time_us: &mut u64, disks: &mut Disks<'a>) -> Result<Option<TraceRequest>, &'static str> {
    let mut fields = line.split_ascii_whitespace();
    if has_time {
        *time_us = fields.next().and_then(|field| field.parse().ok()).ok_or("no time")?;
    }
    let (Some(file), Some(action)) = (fields.next(), fields.next()) else { return Err("too few fields") };
    let mut number = || fields.next().ok_or("too few fields")?.parse::<u64>().map_err(|_| "not a number");
    match action {
        "add" | "open" | "close" => return Ok(None),
        "read" | "write" | "sync" | "datasync" | "trim" => {}
        "wait" if !has_time => {
            *time_us = number()?.saturating_mul(1000);
            return Ok(None);
        }
        _ => return Err("an unknown action"),
    }
    let (offset_bytes, length_bytes) = (number()?, number()?);
    if fields.next().is_some() {
        return Err("too many fields");
    }
    if !matches!(action, "read" | "write") {
        return Ok(None);
    }
    let disk = disks.number_of(file.as_bytes())?;
    request(time_us.saturating_mul(1000), disk, offset_bytes, length_bytes, 1, action == "write").map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(time_ns: u64, disk: u16, offset_bytes: u64, length_bytes: u64, write: bool) -> TraceRequest {
        TraceRequest { time_ns, disk, offset_bytes, length_bytes, write }
    }

    #[test]
    fn version_3_has_microseconds() {
        let text = "fio version 3 iolog
2 /dev/sdb add
872 /dev/sdb open
878 /dev/sdb write 0 16384
888 /dev/sdc read 4096 512
889 /dev/sdb sync 0 0
890 /dev/sdb trim 0 4096
10001677 /dev/sdb close
";
        assert_eq!(parse(text.as_bytes()).expect("valid"), [made(878_000, 0, 0, 16_384, true), made(888_000, 1, 4096, 512, false)]);
    }

    #[test]
    fn version_2_waits_for_milliseconds() {
        let text = "fio version 2 iolog\nf add\nf open\nf read 0 4096\nf wait 250 0\nf write 4096 4096\nf close\n";
        assert_eq!(parse(text.as_bytes()).expect("valid"), [made(0, 0, 0, 4096, false), made(250_000_000, 0, 4096, 4096, true)]);
    }

    #[test]
    fn nonsense_is_told_with_its_line() {
        let check = |text: &str, line: usize, reason: &str| {
            let error = parse(text.as_bytes()).expect_err(text);
            assert_eq!((error.record, error.reason), (line, reason), "{text}");
        };
        check("fio version 1 iolog\n", 1, "it is no iolog of fio, or of another version");
        check("fio version 3 iolog\nf read 0 4096\n", 2, "no time");
        check("fio version 3 iolog\n1 f\n", 2, "too few fields");
        check("fio version 3 iolog\n1 f read 0\n", 2, "too few fields");
        check("fio version 3 iolog\n1 f read 0 0\n", 2, "length 0");
        check("fio version 3 iolog\n1 f add\n2 f wait 3 0\n", 3, "an unknown action");
        check("fio version 2 iolog\nf read x 1\n", 2, "not a number");
        check("fio version 2 iolog\nf read 0 1 2\n", 2, "too many fields");
        assert_eq!(parse(b""), Ok(Vec::new()));
    }
}
