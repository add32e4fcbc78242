//! Rule *sequence*: reads that go forward in steps of at most 1 MiB, once they have read 512 KiB and
//! at least [a part](DENSE) of what they passed over.
//!
//! A range of an index whose rows lie scattered is read in the order of the table too, with large
//! gaps: 2,400 rows of 1.2 million touch a tenth of its pages. That is the application's, and comes
//! again. What is left out by a scan is what a cache or the server's own buffers have of the table.
//!
//! The figures are those of the sequential cutoff that block caches have long used. Measured on the
//! recorded load with backups (bytes of reads): 0.98 of what it marks is a scan, and it finds 0.85
//! of all scans, but nothing of a dump whose keys lie scattered: that is for the rule *chain*.
//!
//! The run that waited longest gives way to every random read. With 16 or 64 more random reads before
//! each request of that load, recall of all rules falls from 0.973 to 0.961 and 0.945, as a large
//! request is a scan alone. Tried and left out: to keep runs of several reads for a second. It gains
//! 0.011 of recall at 16, nothing at 64, and costs 0.008 of precision without any.

use super::loops::Loops;
use super::pieces::Pieces;
use super::seen::{Position, Seen};
use std::ops::Range;

/// Runs that are watched at a time; one that has waited longest gives way.
pub const RUNS_MAX: usize = 64;
/// How far ahead of its end a run may go on: what read-ahead and cached pages leave out.
pub const WINDOW_BYTES: u64 = 1 << 20;
/// Bytes after which a run is a scan.
pub const PAST_BYTES: u64 = 512 << 10;
/// Of so many bytes that a scan passes over it reads one at least. On the recorded load recall is 0.972 with 4 (0.983 with a
/// map), 0.968 (0.979) with 3, and 0.973 (0.984) where nothing is asked for.
pub const DENSE: u64 = 4;
/// The bytes passed over that this is looked at for, at least the latest half of them.
const LATELY_BYTES: u64 = 4 << 20;

#[derive(Clone, Copy, Debug)]
struct Run {
    end: Position,
    began_bytes: u64,
    /// What it has read, and passed over; of a scan lately.
    bytes: u64,
    span_bytes: u64,
    /// It is known to be one.
    is_scan: bool,
    used: u64,
    /// Up to here it passes over what was passed over again and again.
    loops_until_bytes: u64,
    pieces: Pieces,
}

impl Run {
    fn new(at: Position) -> Run {
        let began_bytes = at.offset_bytes;
        Run { end: at, began_bytes, bytes: 0, span_bytes: 0, is_scan: false, used: 0, loops_until_bytes: 0, pieces: Pieces::default() }
    }

    /// Takes a read in. Whether the run has read enough, and left out little enough, to be a scan; one that left out too much
    /// begins anew.
    fn read(&mut self, seen: &Seen, at: Position) -> bool {
        let len_bytes = u64::from(seen.len_bytes);
        let end_bytes = at.offset_bytes.saturating_add(len_bytes).max(self.end.offset_bytes);
        self.bytes = self.bytes.saturating_add(len_bytes);
        self.span_bytes = self.span_bytes.saturating_add(end_bytes - self.end.offset_bytes);
        self.end.offset_bytes = end_bytes;
        if !self.is_scan && self.bytes < PAST_BYTES {
            self.pieces.push(&seen.range());
            return false;
        }
        let is_dense = self.bytes.saturating_mul(DENSE) >= self.span_bytes;
        if self.span_bytes > LATELY_BYTES {
            (self.bytes, self.span_bytes) = (self.bytes / 2, self.span_bytes / 2);
        }
        if !is_dense {
            *self = Run { used: self.used, ..Run::new(self.end) };
        }
        is_dense
    }
}

/// What a read is to its run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Too little was read, or the run goes round in a loop.
    Unknown,
    /// This read makes the run a scan that began there (in the run's own space).
    Confirmed(u64),
    /// One more read of a scan.
    Continued,
}

/// The runs of a volume.
#[derive(Debug)]
pub struct Sequences {
    runs: Vec<Run>,
    loops: Loops,
    tick: u64,
}

impl Default for Sequences {
    fn default() -> Sequences {
        Sequences { runs: Vec::with_capacity(RUNS_MAX), loops: Loops::default(), tick: 0 }
    }
}

impl Sequences {
    /// Takes a read in. On confirmation, what the run has read before is added to `confirmed`.
    pub fn read(&mut self, seen: &Seen, confirmed: &mut Vec<Range<u64>>) -> Step {
        let at = seen.position();
        self.tick += 1;
        let index = self.run_at(at);
        let run = &mut self.runs[index];
        run.used = self.tick;
        let was_scan = run.is_scan;
        if !run.read(seen, at) {
            return Step::Unknown;
        }
        run.is_scan = true;
        let passed = run.began_bytes..run.end.offset_bytes;
        if !was_scan {
            run.loops_until_bytes = self.loops.passed(seen.at_ms, at.space, &passed).unwrap_or(0);
        } else if at.offset_bytes > run.loops_until_bytes {
            self.loops.went_on(seen.at_ms, at.space, &passed);
        }
        if at.offset_bytes < run.loops_until_bytes {
            return Step::Unknown;
        }
        if was_scan {
            return Step::Continued;
        }
        confirmed.extend(run.pieces.ranges());
        Step::Confirmed(run.began_bytes)
    }

    /// The run that goes on here, or a new one in the place of the one that waited longest.
    fn run_at(&mut self, at: Position) -> usize {
        let goes_on = |run: &Run| {
            run.end.space == at.space && at.offset_bytes.checked_sub(run.end.offset_bytes).is_some_and(|gap| gap < WINDOW_BYTES)
        };
        let (mut found, mut oldest) = (None::<usize>, 0);
        for (index, run) in self.runs.iter().enumerate() {
            if goes_on(run) && found.is_none_or(|other| self.runs[other].used < run.used) {
                found = Some(index);
            }
            if run.used < self.runs[oldest].used {
                oldest = index;
            }
        }
        if let Some(index) = found {
            return index;
        }
        let fresh = Run::new(at);
        if self.runs.len() < RUNS_MAX {
            self.runs.push(fresh);
            oldest = self.runs.len() - 1;
        } else {
            self.runs[oldest] = fresh;
        }
        oldest
    }

    /// Memory held, in bytes.
    pub fn bytes(&self) -> usize {
        self.runs.capacity() * size_of::<Run>() + self.loops.bytes()
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)]
mod tests {
    use super::*;

    fn read(offset_bytes: u64, len_bytes: u32) -> Seen<'static> {
        Seen { at_ms: 0, offset_bytes, len_bytes, write: false, origin: None, place: None, pages: &[] }
    }

    #[test]
    fn a_run_is_a_scan_from_512_kib_on_and_tells_its_beginning() {
        let (mut sequences, mut confirmed) = (Sequences::default(), Vec::new());
        for page in 0..31 {
            assert_eq!(sequences.read(&read(page * 16384, 16384), &mut confirmed), Step::Unknown, "{page}");
        }
        assert_eq!(sequences.read(&read(31 * 16384, 16384), &mut confirmed), Step::Confirmed(0));
        assert_eq!(confirmed, [0..31 * 16384]);
        assert_eq!(sequences.read(&read(32 * 16384 + WINDOW_BYTES - 1, 16384), &mut confirmed), Step::Continued);
        assert_eq!(sequences.read(&read(40 << 20, 4096), &mut confirmed), Step::Unknown, "too far");
        assert_eq!(sequences.read(&read(0, 4096), &mut confirmed), Step::Unknown, "backwards");
    }

    #[test]
    fn one_large_request_is_enough() {
        let mut confirmed = Vec::new();
        assert_eq!(Sequences::default().read(&read(4096, 1 << 20), &mut confirmed), Step::Confirmed(4096));
        assert!(confirmed.is_empty());
    }

    /// Every tenth page of a table; then all of it, of which every second page comes from elsewhere.
    #[test]
    fn a_run_that_leaves_out_most_is_none_until_it_reads_more() {
        let (mut sequences, mut confirmed) = (Sequences::default(), Vec::new());
        for page in 0..1000 {
            assert_eq!(sequences.read(&read(page * 81_920, 8192), &mut confirmed), Step::Unknown, "{page}");
        }
        let from = 1000 * 81_920;
        let steps: Vec<Step> = (0..1000).map(|page| sequences.read(&read(from + page * 16_384, 8192), &mut confirmed)).collect();
        let first = steps.iter().position(|step| *step != Step::Unknown).expect("a scan");
        assert!(first <= 2 * 64 && matches!(steps[first], Step::Confirmed(began) if began >= from - 81_920), "{first} {:?}", steps[first]);
        assert!(steps[first + 1..].iter().all(|step| *step == Step::Continued));
        assert!(confirmed.iter().all(|range| range.start >= from - 81_920), "{confirmed:?}");
        // And sparse again: the end of a scan is none of what follows.
        let from = from + 1000 * 16_384;
        let steps: Vec<Step> = (0..1000).map(|page| sequences.read(&read(from + page * 81_920, 8192), &mut confirmed)).collect();
        let last = steps.iter().rposition(|step| *step != Step::Unknown).expect("it goes on a while");
        assert!(last <= 128, "{last}");
    }

    #[test]
    fn random_reads_push_out_the_run_that_waited_longest() {
        let (mut sequences, mut confirmed) = (Sequences::default(), Vec::new());
        for page in 0..200u64 {
            for stranger in 0..60 {
                sequences.read(&read((1 << 40) + (page * 60 + stranger) * (5 << 20), 4096), &mut confirmed);
            }
            let step = sequences.read(&read(page * 16384, 16384), &mut confirmed);
            assert_eq!(step == Step::Unknown, page < 31, "{page}");
        }
        assert_eq!(sequences.runs.len(), RUNS_MAX);
        for stranger in 0..RUNS_MAX as u64 {
            sequences.read(&read((1 << 41) + stranger * (5 << 20), 4096), &mut confirmed);
        }
        assert_eq!(sequences.read(&read(200 * 16384, 16384), &mut confirmed), Step::Unknown, "forgotten");
    }

    #[test]
    fn ends_of_the_address_space_do_no_harm() {
        let (mut sequences, mut confirmed) = (Sequences::default(), Vec::new());
        for offset in [u64::MAX, u64::MAX - 5, 0, u64::MAX / 2] {
            for len in [0, 1, u32::MAX] {
                sequences.read(&read(offset, len), &mut confirmed);
            }
        }
    }
}
