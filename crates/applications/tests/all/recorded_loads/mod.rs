//! The recorded load with backups, and what the rules say of its requests. Used by tests and by the
//! example `streams`.

use analysis::{Stack, line_hash};
use applications::streams::rules::{Described, Rules};
use applications::streams::{OriginSlot, PageAt, Place, Seen, Streams, Verdict};
use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::path::Path;
use types::{ObjectId, StreamClass};

/// Lines of the curve, as the load's own description counts them.
const LINE_BYTES: u64 = 16 << 10;
/// Share of re-references to be answered.
const SHARE: f64 = 0.9;

/// A request of the load.
pub struct Row {
    pub at_ms: u64,
    pub process: String,
    pub thread: u32,
    pub write: bool,
    pub offset_bytes: u64,
    pub len_bytes: u32,
    /// Number of the object and the byte of it, where it is mapped.
    pub place: Option<(u32, u64)>,
    /// Belongs to one of the six scans and backups.
    pub scan: bool,
    pub page: Option<PageAt>,
}

/// The load.
pub struct Load {
    pub rows: Vec<Row>,
    names: HashMap<u32, String>,
    object_bytes: HashMap<u32, u64>,
}

/// What the rules are told of a request besides time, place and direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Known {
    /// Pages by their content; nothing of the host.
    Pages,
    /// And where objects lie.
    PagesAndMap,
    /// And which process or session sends: the usual programs by name, sessions of the servers by
    /// thread for the time that they last (taken from the load's labels, as a login would show
    /// them).
    Sessions,
}

impl Load {
    /// Reads `oltp-with-backups.tsv.zst` and the names beside it.
    pub fn read(path: &Path) -> Load {
        let mut text = String::new();
        let file = std::fs::File::open(path).expect("it can be read");
        ruzstd::decoding::StreamingDecoder::new(file).expect("Zstandard").read_to_string(&mut text).expect("text");
        let rows: Vec<Row> = text.lines().skip(1).map(row).collect();
        let names = std::fs::read_to_string(path.with_file_name("oltp-with-backups.objects.tsv")).expect("names");
        let names = names.lines().skip(1).filter_map(|line| {
            let (number, name) = line.split_once('\t')?;
            Some((number.parse().ok()?, name.to_string()))
        });
        let mut object_bytes = HashMap::new();
        for row in &rows {
            if let Some((object, offset)) = row.place {
                let end = offset + u64::from(row.len_bytes);
                object_bytes.entry(object).and_modify(|known: &mut u64| *known = end.max(*known)).or_insert(end);
            }
        }
        Load { rows, names: names.collect(), object_bytes }
    }

    /// The name of a row's object; `-` if there is none.
    pub fn name(&self, row: &Row) -> &str {
        row.place.and_then(|(object, _)| self.names.get(&object)).map_or("-", String::as_str)
    }

    /// Which scan or backup a row belongs to, or `application`.
    pub fn stream(&self, row: &Row) -> String {
        match (row.scan, row.process.as_str()) {
            (false, _) => "application".into(),
            (true, "mariadbd") => format!("session {} on {}", row.thread, self.name(row)),
            (true, "postgres") => "pg_dump".into(),
            (true, process) => process.into(),
        }
    }

    /// What the rules say of each row, and the bytes that they confirmed later.
    pub fn judge(&self, known: Known) -> Judged {
        let mut streams = Streams::default();
        let (rules, mut sessions) = (Rules::usual(), HashMap::new());
        if known == Known::Sessions {
            for row in self.rows.iter().filter(|row| row.scan) {
                sessions.entry(row.thread).or_insert((row.at_ms, row.at_ms)).1 = row.at_ms;
            }
        }
        let (mut verdicts, mut confirmed, mut late) = (Vec::with_capacity(self.rows.len()), Vec::new(), Vec::new());
        for (index, row) in self.rows.iter().enumerate() {
            let origin = OriginSlot(row.thread);
            if known == Known::Sessions {
                let session = sessions.get(&row.thread).filter(|(from, until)| (*from..=*until).contains(&row.at_ms));
                let session = session.map(|_| if row.process == "postgres" { "pg_dump" } else { "mariadb-dump" });
                let server = matches!(row.process.as_str(), "mariadbd" | "postgres");
                let who = Described { process: Some(&row.process), session: session.filter(|_| server), ..Described::default() };
                match rules.first(&who) {
                    Some((rule, class)) => streams.origins().give(origin, row.at_ms, class, rule),
                    None => streams.origins().release(origin, row.at_ms),
                }
            }
            let place = row.place.filter(|_| known != Known::Pages).map(|(object, offset_bytes)| Place {
                object: ObjectId(object),
                offset_bytes,
                object_bytes: self.object_bytes[&object],
            });
            let seen = Seen {
                at_ms: row.at_ms,
                offset_bytes: row.offset_bytes,
                len_bytes: row.len_bytes,
                write: row.write,
                origin: (known == Known::Sessions).then_some(origin),
                place,
                pages: row.page.as_slice(),
            };
            verdicts.push(streams.note(&seen, &mut confirmed));
            late.extend(confirmed.drain(..).map(|range| (index, range)));
        }
        Judged { verdicts, late, streams }
    }
}

fn row(line: &str) -> Row {
    let cells: Vec<&str> = line.split('\t').collect();
    let number = |at: usize| cells.get(at).and_then(|cell| cell.parse::<i64>().ok());
    let must = |at: usize| number(at).unwrap_or_else(|| panic!("column {at} of {line}"));
    let (offset_bytes, len_bytes) = (must(4) as u64 * 512, must(5) as u32 * 512);
    let link = |at: usize| number(at).and_then(|page| u32::try_from(page).ok());
    let page = number(13).filter(|level| *level >= -1).map(|level| PageAt {
        offset_bytes,
        len_bytes,
        owner: (must(9) as u64) << 32 | must(14) as u64,
        number: must(10) as u32,
        prev: link(11),
        next: link(12),
        level: level.max(0) as u16,
        leaf: level == 0,
        log: false,
    });
    Row {
        at_ms: must(0) as u64 / 1000,
        process: cells[1].into(),
        thread: must(2) as u32,
        write: cells[3] == "W",
        offset_bytes,
        len_bytes,
        place: number(7).filter(|offset| *offset >= 0).map(|offset| (must(6) as u32, offset as u64)),
        scan: cells[8] == "1",
        page,
    }
}

/// What the rules said.
#[allow(dead_code, reason = "the example uses all of it")]
pub struct Judged {
    pub verdicts: Vec<Verdict>,
    /// Ranges that were confirmed, and the row at which.
    pub late: Vec<(usize, std::ops::Range<u64>)>,
    pub streams: Streams,
}

/// Bytes of reads of one stream: all, and those marked as scan or backup.
#[derive(Default, Clone, Copy, Debug)]
pub struct Found {
    pub bytes: u64,
    pub marked_bytes: u64,
}

impl Found {
    pub fn share(&self) -> f64 {
        self.marked_bytes as f64 / self.bytes.max(1) as f64
    }
}

pub struct Score {
    pub precision: f64,
    pub recall: f64,
    pub by_stream: BTreeMap<String, Found>,
}

impl Judged {
    pub fn marked(&self, index: usize) -> bool {
        matches!(self.verdicts[index].class, StreamClass::Scan | StreamClass::Backup)
    }

    /// Precision and recall over the bytes of reads.
    pub fn score(&self, load: &Load) -> Score {
        let mut by_stream: BTreeMap<String, Found> = BTreeMap::new();
        let (mut marked, mut scans, mut both) = (0, 0, 0);
        for (index, row) in load.rows.iter().enumerate().filter(|(_, row)| !row.write) {
            let bytes = u64::from(row.len_bytes);
            let found = by_stream.entry(load.stream(row)).or_default();
            found.bytes += bytes;
            scans += if row.scan { bytes } else { 0 };
            if self.marked(index) {
                found.marked_bytes += bytes;
                marked += bytes;
                both += if row.scan { bytes } else { 0 };
            }
        }
        Score { precision: both as f64 / marked as f64, recall: both as f64 / scans as f64, by_stream }
    }

    /// How much of what was confirmed later (bytes of it) a scan had read before.
    pub fn confirmed_rightly(&self, load: &Load) -> (u64, f64) {
        let (mut right, mut all) = (0, 0);
        let mut read_by_scan: HashMap<u64, bool> = HashMap::new();
        let mut next = 0;
        for (index, range) in &self.late {
            for row in &load.rows[next..=*index] {
                if !row.write {
                    let blocks = row.offset_bytes / 4096..(row.offset_bytes + u64::from(row.len_bytes)).div_ceil(4096);
                    blocks.for_each(|block| {
                        read_by_scan.insert(block, row.scan);
                    });
                }
            }
            next = index + 1;
            for block in range.start / 4096..range.end.div_ceil(4096) {
                all += 4096;
                right += if read_by_scan.get(&block) == Some(&true) { 4096 } else { 0 };
            }
        }
        (all, right as f64 / all.max(1) as f64)
    }
}

/// MiB that answer nine tenths of the re-references of these rows' reads, by exact LRU.
pub fn size_mib(load: &Load, counts: impl Fn(usize, &Row) -> bool) -> f64 {
    let mut lines = Vec::new();
    for (index, row) in load.rows.iter().enumerate() {
        if row.write || !counts(index, row) {
            continue;
        }
        let (object, start) = match row.place {
            Some((object, offset)) => (u64::from(object) + 1, offset),
            None => (0, row.offset_bytes),
        };
        let end = start + u64::from(row.len_bytes).max(1);
        lines.extend((start / LINE_BYTES..=(end - 1) / LINE_BYTES).map(|line| object << 40 | line));
    }
    let mut stack = Stack::new(lines.len());
    let distances = lines.iter().filter_map(|line| stack.reference(line_hash(*line, 0))?.distance_lines);
    let mut distances: Vec<u64> = distances.collect();
    distances.sort_unstable();
    let at = (distances.len() as f64 * SHARE).ceil() as usize - 1;
    distances[at] as f64 * LINE_BYTES as f64 / f64::from(1 << 20)
}

/// What the rules say of a trace that tells neither process nor pages: share of the bytes of reads
/// called a scan, of the bytes of writes called a log, and requests.
pub fn plain(requests: &[traces::read::TraceRequest]) -> (f64, f64, usize) {
    let (mut streams, mut confirmed) = (Streams::default(), Vec::new());
    let (mut reads, mut writes) = (Found::default(), Found::default());
    for request in requests {
        let seen = Seen {
            at_ms: request.time_ns / 1_000_000,
            offset_bytes: request.offset_bytes + (u64::from(request.disk) << 50),
            len_bytes: request.length_bytes.min(u64::from(u32::MAX)) as u32,
            write: request.write,
            origin: None,
            place: None,
            pages: &[],
        };
        let class = streams.note(&seen, &mut confirmed).class;
        confirmed.clear();
        let found = if request.write { &mut writes } else { &mut reads };
        found.bytes += request.length_bytes;
        found.marked_bytes += if class == StreamClass::Application { 0 } else { request.length_bytes };
    }
    (reads.share(), writes.share(), requests.len())
}
