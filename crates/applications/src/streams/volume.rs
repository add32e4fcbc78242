//! The rules of one volume, asked in their order.

use super::backup::Backups;
use super::chain::Chains;
use super::log::{Log, Logs};
use super::rules::Origins;
use super::seen::{Evidence, OriginSlot, Place, Seen, Verdict};
use super::sequence::{Sequences, Step};
use std::ops::Range;
use types::StreamClass;

/// Readers and writers that are kept for the list of streams.
const LISTED_MAX: usize = 64;
/// One that has been silent for so long is another one when it comes back.
const SILENT_MS: u64 = 60_000;

/// One line of the list of streams: requests of one class, for one reason, from one origin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Listed {
    /// Class and reason.
    pub verdict: Verdict,
    /// Who, if that is visible.
    pub origin: Option<OriginSlot>,
    /// First request of it.
    pub began_ms: u64,
    /// Last request of it.
    pub last_ms: u64,
    /// Requests.
    pub requests: u64,
    /// Bytes read. Of a scan also what it had read before it was known to be one.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

/// What the streams of one volume are for.
///
/// Requests go in by [`Streams::note`], in the order of arrival; sessions that are known by
/// [`Streams::origins`]. It keeps no blocks and reads no clock.
#[derive(Debug)]
pub struct Streams {
    origins: Origins,
    sequences: Sequences,
    chains: Chains,
    backups: Backups,
    logs: Logs,
    listed: Vec<Listed>,
    /// The lines that the last read and the last write were of: mostly the next is of the same.
    latest: [usize; 2],
}

impl Default for Streams {
    fn default() -> Streams {
        Streams {
            origins: Origins::default(),
            sequences: Sequences::default(),
            chains: Chains::default(),
            backups: Backups::default(),
            logs: Logs::default(),
            listed: Vec::with_capacity(LISTED_MAX),
            latest: [0; 2],
        }
    }
}

impl Streams {
    /// Takes a request in and says what it is for. When it shows that reads before it were a scan
    /// too, their ranges (whole blocks, or pages) are added to `confirmed`: at most a few dozen.
    pub fn note(&mut self, seen: &Seen, confirmed: &mut Vec<Range<u64>>) -> Verdict {
        let given = seen.origin.and_then(|origin| self.origins.class_of(origin, seen.at_ms));
        let (verdict, late_bytes) = match given {
            Some((class, rule)) => (Verdict::new(class, Evidence::Rule(rule)), 0),
            None if seen.write => (self.written(seen), 0),
            None => self.read(seen, confirmed),
        };
        let moved_bytes = self.take_unknown(seen.origin, late_bytes);
        self.list(seen, verdict, moved_bytes);
        verdict
    }

    fn written(&mut self, seen: &Seen) -> Verdict {
        // Asked in any case: it learns from every write.
        let log = self.logs.written(seen);
        if !seen.pages.is_empty() && seen.pages.iter().all(|page| page.log) {
            Verdict::new(StreamClass::Log, Evidence::Content)
        } else if log {
            Verdict::new(StreamClass::Log, Evidence::Tail)
        } else {
            Verdict::UNKNOWN
        }
    }

    /// What a read is for, and how many bytes before it, which were of nothing known, are of the same.
    fn read(&mut self, seen: &Seen, confirmed: &mut Vec<Range<u64>>) -> (Verdict, u64) {
        let bytes_from = |confirmed: &[Range<u64>], from: usize| confirmed[from..].iter().map(|range| range.end - range.start).sum();
        let mut chained = false;
        let known = confirmed.len();
        for page in seen.pages {
            chained |= self.chains.read(page, confirmed);
        }
        let of_chain = confirmed.len();
        let step = self.sequences.read(seen, confirmed);
        // What a chain tells of a sequence was counted as one.
        let late_bytes = if step == Step::Unknown { bytes_from(confirmed, known) } else { bytes_from(confirmed, of_chain) };
        let evidence = match step {
            Step::Unknown if chained => Evidence::Chain,
            Step::Unknown => {
                self.logs.read(seen);
                return (Verdict::UNKNOWN, 0);
            }
            Step::Confirmed(_) | Step::Continued => Evidence::Sequence,
        };
        let backup = seen.place.and_then(|place| {
            let end = place.offset_bytes.saturating_add(u64::from(seen.len_bytes));
            let from = match step {
                Step::Confirmed(began) => began.min(place.offset_bytes),
                _ => place.offset_bytes,
            };
            self.backups.scanned(seen.at_ms, seen.origin, Place { offset_bytes: from, ..place }, end - from)
        });
        let verdict = match backup {
            Some(evidence) => Verdict::new(StreamClass::Backup, evidence),
            None => Verdict::new(StreamClass::Scan, evidence),
        };
        (verdict, late_bytes)
    }

    /// Takes bytes read from what is listed as of nothing known; gives how many.
    fn take_unknown(&mut self, origin: Option<OriginSlot>, late_bytes: u64) -> u64 {
        let unknown = |line: &&mut Listed| line.verdict == Verdict::UNKNOWN && line.origin == origin;
        let Some(line) = self.listed.iter_mut().filter(|_| late_bytes > 0).find(unknown) else { return 0 };
        let bytes = late_bytes.min(line.read_bytes);
        line.read_bytes -= bytes;
        bytes
    }

    fn list(&mut self, seen: &Seen, verdict: Verdict, moved_bytes: u64) {
        let same =
            |line: &Listed| line.verdict == verdict && line.origin == seen.origin && seen.at_ms.saturating_sub(line.last_ms) < SILENT_MS;
        let latest = self.latest[usize::from(seen.write)];
        let known = self.listed.get(latest).filter(|line| same(line)).map(|_| latest);
        let index = known.or_else(|| self.listed.iter().position(same)).unwrap_or_else(|| {
            let fresh = Listed {
                verdict,
                origin: seen.origin,
                began_ms: seen.at_ms,
                last_ms: seen.at_ms,
                requests: 0,
                read_bytes: 0,
                written_bytes: 0,
            };
            if self.listed.len() < LISTED_MAX {
                self.listed.push(fresh);
                return self.listed.len() - 1;
            }
            let oldest = self.listed.iter().enumerate().min_by_key(|(_, line)| line.last_ms).map_or(0, |(at, _)| at);
            self.listed[oldest] = fresh;
            oldest
        });
        self.latest[usize::from(seen.write)] = index;
        let line = &mut self.listed[index];
        line.last_ms = seen.at_ms;
        line.requests += 1;
        line.read_bytes += moved_bytes;
        *if seen.write { &mut line.written_bytes } else { &mut line.read_bytes } += u64::from(seen.len_bytes);
    }

    /// Where processes and sessions that are known get their class.
    pub fn origins(&mut self) -> &mut Origins {
        &mut self.origins
    }

    /// What was seen, by class, reason and origin; the last minutes, at most 64 lines.
    pub fn listed(&self) -> &[Listed] {
        &self.listed
    }

    /// The logs that are known now.
    pub fn logs(&self) -> impl Iterator<Item = Log> + '_ {
        self.logs.found()
    }

    /// Memory held, in bytes; it does not grow.
    pub fn bytes(&self) -> usize {
        size_of::<Streams>()
            + self.origins.bytes()
            + self.sequences.bytes()
            + self.chains.bytes()
            + self.backups.bytes()
            + self.logs.bytes()
            + self.listed.capacity() * size_of::<Listed>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::streams::PageAt;
    use types::ObjectId;

    /// What a volume of the note's section 6 may hold for streams and chains.
    const BYTES_MAX: usize = 100 << 10;

    #[test]
    fn memory_is_bounded_and_does_not_grow_whatever_comes() {
        let (mut streams, mut confirmed) = (Streams::default(), Vec::new());
        let before = streams.bytes();
        assert!(before <= BYTES_MAX, "{before}");
        let mut state = 7u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 20, state)
        };
        for step in 0..60_000 {
            let (number, wide) = random();
            let page = PageAt {
                offset_bytes: wide,
                len_bytes: number as u32,
                owner: number % 3,
                number: number as u32 % 500,
                prev: Some((wide >> 50) as u32 % 500),
                next: None,
                level: 0,
                leaf: number % 5 != 0,
                log: false,
            };
            let offset = if step % 3 == 0 { wide } else { number % (1 << 34) };
            let place = Place { object: ObjectId(number as u32 % 9), offset_bytes: offset, object_bytes: number % (1 << 30) };
            let seen = Seen {
                at_ms: step * 3,
                offset_bytes: offset,
                len_bytes: (wide >> 40) as u32,
                write: number % 2 == 0,
                origin: (number % 4 == 0).then_some(OriginSlot(number as u32)),
                place: (number % 7 < 3).then_some(place),
                pages: if number % 3 == 0 { std::slice::from_ref(&page) } else { &[] },
            };
            confirmed.clear();
            streams.note(&seen, &mut confirmed);
            assert!(confirmed.len() <= 64 && confirmed.iter().all(|range| range.start <= range.end));
            if number % 5 == 0 {
                streams.origins().give(OriginSlot(number as u32), step * 3, StreamClass::Scan, 0);
            }
        }
        assert_eq!(streams.bytes(), before);
    }

    #[test]
    fn a_rule_goes_before_what_is_inferred() {
        let (mut streams, mut confirmed) = (Streams::default(), Vec::new());
        streams.origins().give(OriginSlot(1), 0, StreamClass::Application, 5);
        for mib in 0..10u64 {
            let seen = |origin, base: u64| Seen {
                at_ms: mib,
                offset_bytes: base + (mib << 20),
                len_bytes: 1 << 20,
                write: false,
                origin: Some(OriginSlot(origin)),
                place: None,
                pages: &[],
            };
            let ruled = streams.note(&seen(1, 0), &mut confirmed);
            assert_eq!(ruled, Verdict::new(StreamClass::Application, Evidence::Rule(5)));
            assert_eq!(streams.note(&seen(2, 1 << 40), &mut confirmed).class, StreamClass::Scan);
        }
        assert_eq!(streams.listed().len(), 2);
        assert_eq!(streams.listed()[1].read_bytes, 10 << 20);
    }

    /// Four clients ask for 2,400 rows of 1.2 million again and again, by an index in whose order they lie scattered: each pass
    /// reads a tenth of the table, forwards.
    #[test]
    fn ranges_of_rows_that_lie_scattered_are_the_applications() {
        const PAGES: u64 = 30_000;
        let mut state = 3u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for (rows, is_mapped) in [(2400, true), (2400, false), (600, true)] {
            let (mut streams, mut confirmed) = (Streams::default(), Vec::new());
            let mut waiting: Vec<Vec<u64>> = vec![Vec::new(); 4];
            let (mut all, mut marked) = (0u64, 0u64);
            for at_ms in 0..400_000 {
                let client = random(4) as usize;
                if waiting[client].is_empty() {
                    let mut pages: Vec<u64> = (0..rows).map(|_| random(PAGES)).collect();
                    pages.sort_unstable_by(|one, other| other.cmp(one));
                    pages.dedup();
                    waiting[client] = pages;
                }
                let offset_bytes = waiting[client].pop().expect("some are left") * 8192;
                let place = Place { object: ObjectId(1), offset_bytes, object_bytes: PAGES * 8192 };
                let (offset_bytes, place) = (offset_bytes + (1 << 30), is_mapped.then_some(place));
                let seen = Seen { at_ms: at_ms / 10, offset_bytes, len_bytes: 8192, write: false, origin: None, place, pages: &[] };
                let verdict = streams.note(&seen, &mut confirmed);
                assert_ne!(verdict.class, StreamClass::Backup);
                (all, marked) = (all + 1, marked + u64::from(verdict.class != StreamClass::Application));
            }
            assert!(marked * 100 <= all, "{rows} rows: {marked} of {all} reads are called a scan");
        }
    }

    /// Half of a table is cached, and the other half is dumped from the disk.
    #[test]
    fn a_scan_of_which_half_is_cached_is_one() {
        let (mut streams, mut confirmed, mut marked) = (Streams::default(), Vec::new(), 0);
        for page in (0..20_000_u64).filter(|page| page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 63 == 0) {
            let place = Place { object: ObjectId(1), offset_bytes: page * 8192, object_bytes: 20_000 * 8192 };
            let seen =
                Seen { at_ms: 0, offset_bytes: page * 8192, len_bytes: 8192, write: false, origin: None, place: Some(place), pages: &[] };
            marked += u64::from(streams.note(&seen, &mut confirmed).class == StreamClass::Scan);
        }
        assert!(marked >= 9_800, "{marked} of some 10,000");
    }

    /// A backup of many files begins each of them anew: what it reads before that is known is half a MiB of each.
    #[test]
    fn what_a_scan_read_before_it_was_known_is_listed_with_it() {
        let (mut streams, mut confirmed) = (Streams::default(), Vec::new());
        let read = |offset_bytes| Seen { at_ms: 0, offset_bytes, len_bytes: 65_536, write: false, origin: None, place: None, pages: &[] };
        streams.note(&read(1 << 40), &mut confirmed);
        for file in 0..20_u64 {
            for piece in 0..16 {
                streams.note(&read((file << 30) + (piece << 16)), &mut confirmed);
            }
        }
        let listed: Vec<_> = streams.listed().iter().map(|line| (line.verdict.class, line.read_bytes)).collect();
        assert_eq!(listed, [(StreamClass::Application, 65_536), (StreamClass::Scan, 20 << 20)]);
    }
}
