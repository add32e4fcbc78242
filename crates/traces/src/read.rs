//! Trace files: six formats, plain or compressed with Zstandard.
//!
//! | format | content |
//! |---|---|
//! | `.vscsi` | version 1, little-endian, 32 bytes a record: `u32` serial, `u32` length in bytes, `u32` scatter-gather count, `u16` SCSI opcode, `u16` version, `u64` first 512-byte block, `u64` time in µs |
//! | `.lis` | text, `first_block count 0 request_number`. Blocks are 512 bytes; where the count is always 1 they are database pages, taken as one 4 KiB block each |
//! | `.trace` | text, `time_ns disk first_sector sectors type`, type 1 read, 0 write |
//! | `.csv` | one of the layouts in `read/csv.rs`, with a header or without |
//! | `.blkparse` | what `blkparse` prints of a recording by `blktrace`; see `read/blkparse.rs` |
//! | `.iolog` | what fio writes by `write_iolog`; see `read/iolog.rs` |

mod blkparse;
mod csv;
mod disks;
mod iolog;

use ruzstd::decoding::StreamingDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use std::fs;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use types::{BLOCK_BYTES, SECTOR_BYTES};

/// Bytes of a trace at most, decompressed: it is held in memory, and so are its requests, of 32 bytes each.
const BYTES_MAX: u64 = 4 << 30;
/// What is looked at of a trace before it is read.
const HEAD_BYTES: u64 = 64 << 10;
/// Bytes of a `.vscsi` record.
const VSCSI_RECORD_BYTES: usize = 32;
/// SCSI READ(6), (10), (12), (16).
const SCSI_READS: [u16; 4] = [0x08, 0x28, 0xa8, 0x88];
/// SCSI WRITE(6), (10), (12), (16).
const SCSI_WRITES: [u16; 4] = [0x0a, 0x2a, 0xaa, 0x8a];

/// One request of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceRequest {
    /// When it was issued, in nanoseconds from any origin; 0 in formats without time.
    pub time_ns: u64,
    /// Which disk, where a trace has several.
    pub disk: u16,
    /// Where it starts.
    pub offset_bytes: u64,
    /// How long it is; at least 1.
    pub length_bytes: u64,
    /// Written, not read.
    pub write: bool,
}

/// Why a trace cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be read.
    #[error("trace {path} cannot be read ({source})")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The file is not what Zstandard writes.
    #[error("trace {path} cannot be decompressed: {reason}")]
    Compression {
        /// Which.
        path: PathBuf,
        /// What is wrong with the file.
        reason: &'static str,
    },
    /// It takes too much memory.
    #[error("trace {path} has more than 4 GiB, decompressed: cut it into shorter ones, of some hours each")]
    TooLarge {
        /// Which.
        path: PathBuf,
    },
    /// The name does not tell the format.
    #[error("trace {path} has an unknown format; names end in .vscsi, .lis, .trace, .csv, .blkparse or .iolog, and .zst if compressed")]
    UnknownFormat {
        /// Which.
        path: PathBuf,
    },
    /// A record makes no sense.
    #[error("trace {path}: {invalid}")]
    Record {
        /// Which.
        path: PathBuf,
        /// What is wrong, and where.
        invalid: Invalid,
    },
    /// Nothing is read or written in it.
    #[error("trace {path} has no read and no write in it: the recording failed, or nothing used the device; record it again")]
    Empty {
        /// Which.
        path: PathBuf,
    },
}

impl TraceError {
    /// What to do about it, where its own sentence does not say that.
    pub fn remedy(&self) -> &'static str {
        match self {
            TraceError::Read { source, .. } if source.kind() == std::io::ErrorKind::NotFound => "check the path",
            TraceError::Read { .. } => "check its mode and its disk",
            TraceError::Compression { .. } => "copy it again from where it comes from, or compress it again",
            TraceError::UnknownFormat { .. } => "give it the ending of what it holds",
            TraceError::Record { .. } => "correct that, or give the file the ending of what it holds",
            TraceError::TooLarge { .. } | TraceError::Empty { .. } => "",
        }
    }
}

/// A record that makes no sense.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Invalid {
    /// Its number, from 1; in text formats the line.
    pub record: usize,
    /// Whether it is a line of text.
    pub is_text: bool,
    /// What is wrong.
    pub reason: &'static str,
    /// What a record looks like.
    pub expected: &'static str,
}

impl std::fmt::Display for Invalid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Invalid { record, is_text, reason, expected } = self;
        let what = if *is_text { "line" } else { "record" };
        write!(f, "{what} {record} is not valid: {reason}; expected {expected}")
    }
}

impl Invalid {
    /// A line, counted from 0.
    fn line(index: usize, reason: &'static str, expected: &'static str) -> Invalid {
        Invalid { record: index + 1, is_text: true, reason, expected }
    }
}

/// The formats.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// CloudPhysics, version 1.
    Vscsi,
    /// ARC paper.
    Lis,
    /// MQSim.
    Trace,
    /// Recorded for hearth, or of a public collection.
    Csv,
    /// Text of `blkparse`.
    Blkparse,
    /// Written by fio.
    Iolog,
}

impl Format {
    /// By a file's name without `.zst`.
    pub fn of_name(name: &str) -> Option<Format> {
        match name.rsplit_once('.')?.1 {
            "vscsi" => Some(Format::Vscsi),
            "lis" => Some(Format::Lis),
            "trace" => Some(Format::Trace),
            "csv" => Some(Format::Csv),
            "blkparse" => Some(Format::Blkparse),
            "iolog" => Some(Format::Iolog),
            _ => None,
        }
    }
}

/// A trace, and what is doubtful of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recording {
    /// In the order of time; where times are the same, or there are none, in the order of the file. At least one.
    pub requests: Vec<TraceRequest>,
    /// Sentences for people.
    pub doubts: Vec<String>,
}

/// Reads a trace file; its name tells format and compression.
///
/// # Errors
/// It cannot be read, is none of the formats, or holds no request.
pub fn read_file(path: &Path) -> Result<Vec<TraceRequest>, TraceError> {
    read_recording(path).map(|recording| recording.requests)
}

/// The same, with what is doubtful of it.
///
/// # Errors
/// As of [`read_file`].
pub fn read_recording(path: &Path) -> Result<Recording, TraceError> {
    let (format, bytes) = content_of(path, BYTES_MAX)?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(TraceError::TooLarge { path: path.into() });
    }
    let mut requests = parse(format, &bytes).map_err(|invalid| TraceError::Record { path: path.into(), invalid })?;
    if requests.is_empty() {
        return Err(TraceError::Empty { path: path.into() });
    }
    let doubts = doubts(&requests);
    requests.sort_by_key(|request| request.time_ns);
    Ok(Recording { requests, doubts })
}

/// Looks at the first records of a trace file: whoever names a wrong one is told at once.
///
/// # Errors
/// As of [`read_file`], as far as they show there.
pub fn check_head(path: &Path) -> Result<(), TraceError> {
    let (format, mut bytes) = content_of(path, HEAD_BYTES)?;
    let is_whole = bytes.len() as u64 <= HEAD_BYTES;
    if !is_whole {
        // The last record is cut off.
        let whole = match format {
            Format::Vscsi => bytes.len() / VSCSI_RECORD_BYTES * VSCSI_RECORD_BYTES,
            _ => bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1),
        };
        bytes.truncate(whole);
    }
    let requests = parse(format, &bytes).map_err(|invalid| TraceError::Record { path: path.into(), invalid })?;
    if is_whole && requests.is_empty() { Err(TraceError::Empty { path: path.into() }) } else { Ok(()) }
}

/// The format of a trace file, and its first bytes, decompressed: one more than `bytes_max` if there are more.
fn content_of(path: &Path, bytes_max: u64) -> Result<(Format, Vec<u8>), TraceError> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let (plain_name, compressed) = name.strip_suffix(".zst").map_or((name, false), |name| (name, true));
    let format = Format::of_name(plain_name).ok_or_else(|| TraceError::UnknownFormat { path: path.into() })?;
    let file = fs::File::open(path).map_err(|source| TraceError::Read { path: path.into(), source })?;
    let bytes = if compressed {
        decompress(BufReader::new(file), bytes_max).map_err(|reason| TraceError::Compression { path: path.into(), reason })?
    } else {
        first_of(file, bytes_max).map_err(|source| TraceError::Read { path: path.into(), source })?
    };
    Ok((format, bytes))
}

/// What is doubtful of a trace as it stands in the file, in sentences for people.
fn doubts(requests: &[TraceRequest]) -> Vec<String> {
    let mut doubts = Vec::new();
    let earlier = requests.windows(2).filter(|pair| pair[1].time_ns < pair[0].time_ns).count();
    if earlier > 0 {
        doubts.push(format!(
            "{earlier} of {} requests are earlier than the one before them: the file is not in the order of time, so its requests were sorted",
            requests.len()
        ));
    }
    let disks: std::collections::BTreeSet<u16> = requests.iter().map(|request| request.disk).collect();
    if disks.len() > 1 {
        doubts.push(format!(
            "the trace is of {} devices, which are taken as so many disks: if one lies on another (a partition, a mapped device), each request counts twice",
            disks.len()
        ));
    }
    doubts
}

/// What there is to read; of more than `bytes_max` one byte more than that.
fn first_of(from: impl Read, bytes_max: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(bytes_max + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn decompress(from: impl Read, bytes_max: u64) -> Result<Vec<u8>, &'static str> {
    // What the decoder says is of its own insides, and means that to whoever has the file.
    let damaged = "the file is cut off or damaged";
    let decoder = StreamingDecoder::new(from).map_err(|error| match error {
        FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::BadMagicNumber(_)) => "the file is not compressed with Zstandard",
        _ => damaged,
    })?;
    first_of(decoder, bytes_max).map_err(|_| damaged)
}

/// Reads a trace from memory.
///
/// # Errors
/// The first record that makes no sense.
pub fn parse(format: Format, bytes: &[u8]) -> Result<Vec<TraceRequest>, Invalid> {
    match format {
        Format::Vscsi => parse_vscsi(bytes),
        Format::Lis => parse_lis(bytes),
        Format::Blkparse => blkparse::parse(bytes),
        Format::Csv => csv::parse(bytes),
        Format::Iolog => iolog::parse(bytes),
        Format::Trace => lines(bytes, "time_ns disk first_sector sectors type, type 1 for a read, 0 for a write", |line| {
            let [time_ns, disk, sector, sectors, kind] = numbers(line.split_ascii_whitespace())?;
            let disk = u16::try_from(disk).map_err(|_| "disk number above 65535")?;
            request(time_ns, disk, sector, sectors, SECTOR_BYTES, kind == 0)
        }),
    }
}

fn parse_vscsi(bytes: &[u8]) -> Result<Vec<TraceRequest>, Invalid> {
    let records = bytes.chunks(VSCSI_RECORD_BYTES);
    let parse_one = |(index, record): (usize, &[u8])| {
        let expected = "32 bytes of vscsi version 1 with a read or a write";
        let invalid = |reason| Invalid { record: index + 1, is_text: false, reason, expected };
        let record: &[u8; VSCSI_RECORD_BYTES] = record.try_into().map_err(|_| invalid("cut off"))?;
        let u16_at = |at: usize| u16::from_le_bytes([record[at], record[at + 1]]);
        let u32_at = |at: usize| u64::from(u16_at(at)) | u64::from(u16_at(at + 2)) << 16;
        let u64_at = |at: usize| u32_at(at) | u32_at(at + 4) << 32;
        let opcode = u16_at(12);
        let write = match opcode {
            code if SCSI_READS.contains(&code) => false,
            code if SCSI_WRITES.contains(&code) => true,
            _ => return Err(invalid("neither a SCSI read nor a write")),
        };
        let offset_bytes = u64_at(16).checked_mul(SECTOR_BYTES).ok_or_else(|| invalid("offset beyond 64 bits"))?;
        request(u64_at(24).saturating_mul(1000), 0, offset_bytes, u32_at(4), 1, write).map_err(invalid)
    };
    records.enumerate().map(parse_one).collect()
}

fn parse_lis(bytes: &[u8]) -> Result<Vec<TraceRequest>, Invalid> {
    let mut pages = true;
    let mut requests = lines(bytes, "first_block count 0 request_number", |line| {
        let [first, count, _, _] = numbers(line.split_ascii_whitespace())?;
        pages &= count == 1;
        request(0, 0, first, count, SECTOR_BYTES, false)
    })?;
    if pages {
        for request in &mut requests {
            request.offset_bytes *= BLOCK_BYTES / SECTOR_BYTES;
            request.length_bytes = BLOCK_BYTES;
        }
    }
    Ok(requests)
}

/// A request over `count` units of `unit_bytes` from unit `first` on.
fn request(time_ns: u64, disk: u16, first: u64, count: u64, unit_bytes: u64, write: bool) -> Result<TraceRequest, &'static str> {
    // Far below 64 bits, so that later arithmetic on offsets cannot overflow.
    let end_bytes = first.checked_add(count).and_then(|end| end.checked_mul(unit_bytes)).filter(|end| *end < 1 << 60);
    match end_bytes {
        _ if count == 0 => Err("length 0"),
        None => Err("end beyond 2^60 bytes"),
        Some(_) => Ok(TraceRequest { time_ns, disk, offset_bytes: first * unit_bytes, length_bytes: count * unit_bytes, write }),
    }
}

fn numbers<'a, const N: usize>(fields: impl Iterator<Item = &'a str>) -> Result<[u64; N], &'static str> {
    let mut numbers = [0; N];
    let mut count = 0;
    for field in fields {
        *numbers.get_mut(count).ok_or("too many fields")? = field.parse().map_err(|_| "not a number")?;
        count += 1;
    }
    if count == N { Ok(numbers) } else { Err("too few fields") }
}

fn text<'a>(bytes: &'a [u8], expected: &'static str) -> Result<&'a str, Invalid> {
    std::str::from_utf8(bytes).map_err(|error| {
        let index = bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count();
        Invalid::line(index, "it is not text", expected)
    })
}

fn lines(
    bytes: &[u8],
    expected: &'static str,
    mut parse_line: impl FnMut(&str) -> Result<TraceRequest, &'static str>,
) -> Result<Vec<TraceRequest>, Invalid> {
    let of_line = |(index, line): (usize, &str)| parse_line(line).map_err(|reason| Invalid::line(index, reason, expected));
    text(bytes, expected)?.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).map(of_line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(disk: u16, time_ns: u64, offset_bytes: u64, length_bytes: u64) -> TraceRequest {
        TraceRequest { time_ns, disk, offset_bytes, length_bytes, write: false }
    }

    #[test]
    fn more_than_may_be_is_not_taken_into_memory() {
        assert_eq!(first_of(&b"12345"[..], 5).expect("bytes"), b"12345");
        assert_eq!(first_of(std::io::repeat(b'x'), 5).expect("bytes").len(), 6);
        let large = zstd_of_zeroes();
        assert_eq!(decompress(&large[..], 1 << 17), Ok(vec![0; 1 << 17]));
        assert_eq!(decompress(&large[..], 1 << 16).map(|bytes| bytes.len()), Ok((1 << 16) + 1));
    }

    #[test]
    fn the_head_of_a_wrong_file_tells_it() {
        let place = tempfile::tempdir().expect("room");
        let told = |name: &str, text: &str| {
            let path = place.path().join(name);
            fs::write(&path, text).expect("room");
            check_head(&path).err().map(|error| error.to_string().replace(&format!("{}/", place.path().display()), ""))
        };
        // The record in the middle of which the head ends is not judged.
        let long = "1,R,0,4096\n".repeat(HEAD_BYTES as usize / 11 + 2);
        assert_eq!(told("a.csv", &long), None);
        assert_eq!(told("b.csv", "1,R,0,4096"), None);
        assert!(told("c.csv", "1,R,0\n").is_some_and(|told| told.starts_with("trace c.csv: line 1 is not valid")));
        assert!(told("d.csv", "").is_some_and(|told| told.contains("no read and no write")));
        assert!(told("e.txt", &long).is_some_and(|told| told.contains("unknown format")));
        assert!(told("f.csv.zst", &long).is_some_and(|told| told.contains("not compressed with Zstandard")));
    }

    #[test]
    fn a_compressed_file_that_is_cut_off_is_told_so() {
        let whole = zstd_of_zeroes();
        for length in [0, 3, 5, whole.len() - 1] {
            assert_eq!(decompress(&whole[..length], 1 << 17), Err("the file is cut off or damaged"), "{length}");
        }
        assert_eq!(decompress(&b"1,R,0,1\n"[..], 1 << 17), Err("the file is not compressed with Zstandard"));
    }

    /// 128 KiB of zeroes: a frame with one block that repeats a byte.
    fn zstd_of_zeroes() -> Vec<u8> {
        let block: u32 = 1 | 1 << 1 | (1 << 17) << 3;
        // The magic; a window of 128 KiB and no length; the block.
        [&0xfd2f_b528_u32.to_le_bytes()[..], &[0, 7 << 3], &block.to_le_bytes()[..3], &[0]].concat()
    }

    #[test]
    fn vscsi() {
        let mut record = Vec::new();
        record.extend(1u32.to_le_bytes());
        record.extend(8192u32.to_le_bytes());
        record.extend(2u32.to_le_bytes());
        record.extend(0x2au16.to_le_bytes());
        record.extend(1u16.to_le_bytes());
        record.extend(7u64.to_le_bytes());
        record.extend(9u64.to_le_bytes());
        let requests = parse(Format::Vscsi, &record).expect("valid");
        assert_eq!(requests, [TraceRequest { write: true, ..read(0, 9000, 3584, 8192) }]);
        let error = parse(Format::Vscsi, &record[..31]).expect_err("cut off").to_string();
        assert_eq!(error, "record 1 is not valid: cut off; expected 32 bytes of vscsi version 1 with a read or a write");
    }

    #[test]
    fn lis_with_sectors_and_with_pages() {
        assert_eq!(parse(Format::Lis, b"8 3 0 0\n1 1 0 1\n").expect("valid"), [read(0, 0, 4096, 1536), read(0, 0, 512, 512)]);
        assert_eq!(parse(Format::Lis, b"8 1 0 0\n").expect("valid"), [read(0, 0, 8 * 4096, 4096)]);
    }

    #[test]
    fn trace_and_csv() {
        let requests = parse(Format::Trace, b"5 2 8 16 1\n6 3 0 1 0\n").expect("valid");
        assert_eq!(requests, [read(2, 5, 4096, 8192), TraceRequest { write: true, ..read(3, 6, 0, 512) }]);
        let requests = parse(Format::Csv, b"time_us,op,offset,length\n3,R,4096,100\n4,W,0,1\n").expect("valid");
        assert_eq!(requests, [read(0, 3000, 4096, 100), TraceRequest { write: true, ..read(0, 4000, 0, 1) }]);
    }

    #[test]
    fn nonsense_is_told_with_its_line() {
        let check = |format, text: &str, line| match parse(format, text.as_bytes()) {
            Err(Invalid { record, is_text: true, .. }) => assert_eq!(record, line, "{text}"),
            other => panic!("{text} gave {other:?}"),
        };
        check(Format::Csv, "head\n1,X,0,1\n", 2);
        check(Format::Csv, "head\n1,R,0,0\n", 2);
        check(Format::Csv, "head\n1,R,18446744073709551615,1\n", 2);
        check(Format::Trace, "1 2 3\n", 1);
        check(Format::Trace, "1 2 3 4 1 9\n", 1);
        check(Format::Trace, "1 70000 3 4 1\n", 1);
        check(Format::Lis, "1 1 0 0\nx 1 0 0\n", 2);
        let latin = parse(Format::Trace, b"1 2 3 4 1\n1 2 3 4 \xe9\n").expect_err("not UTF-8");
        assert_eq!((latin.record, latin.reason), (2, "it is not text"));
    }

    #[test]
    fn a_file_without_a_request_is_no_success_and_an_error_names_file_line_and_form() {
        let place = tempfile::tempdir().expect("a directory");
        let told = |name: &str, text: &str| {
            let path = place.path().join(name);
            std::fs::write(&path, text).expect("there is room");
            read_file(&path).expect_err(name).to_string().replace(&format!("{}/", place.path().display()), "")
        };
        let empty = " has no read and no write in it: the recording failed, or nothing used the device; record it again";
        for (name, text) in [("a.csv", ""), ("a.trace", "\n"), ("a.blkparse", ""), ("a.vscsi", ""), ("b.csv", "time_us,op,offset,length\n")]
        {
            assert_eq!(told(name, text), format!("trace {name}{empty}"));
        }
        assert_eq!(told("c.iolog", "fio version 3 iolog\n0 /dev/sdb add\n"), format!("trace c.iolog{empty}"));
        assert_eq!(
            told("d.csv", "time_us,op,offset,length\nx,R,0,4096\n"),
            "trace d.csv: line 2 is not valid: no known layout; expected time_us,R|W,offset_bytes,length_bytes"
        );
    }

    #[test]
    fn what_is_doubtful_is_said() {
        assert_eq!(doubts(&[read(0, 1, 0, 1), read(0, 1, 0, 1), read(0, 2, 0, 1)]), Vec::<String>::new());
        let told = doubts(&[read(0, 5, 0, 1), read(1, 3, 0, 1), read(0, 4, 0, 1), read(0, 1, 0, 1)]);
        assert!(told[0].starts_with("2 of 4 requests are earlier") && told[1].starts_with("the trace is of 2 devices"), "{told:?}");
    }

    #[test]
    fn what_is_not_in_order_is_sorted_and_said() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("a.csv");
        std::fs::write(&path, "7,R,0,1\n5,R,4096,1\n7,W,8192,1\n").expect("there is room");
        let recording = read_recording(&path).expect("it can be read");
        let offsets: Vec<u64> = recording.requests.iter().map(|request| request.offset_bytes).collect();
        assert_eq!((offsets, recording.doubts.len()), (vec![4096, 0, 8192], 1));
        assert_eq!(read_file(&path).expect("the same"), recording.requests);
    }

    #[test]
    fn a_name_tells_the_format_or_is_refused() {
        assert_eq!(Format::of_name("a.b.csv"), Some(Format::Csv));
        assert_eq!(Format::of_name("sda.blkparse"), Some(Format::Blkparse));
        assert!(matches!(read_file(Path::new("/nonexistent/x.txt")), Err(TraceError::UnknownFormat { .. })));
        assert!(matches!(read_file(Path::new("/nonexistent/x.csv.zst")), Err(TraceError::Read { .. })));
    }
}
