//! What streams other than the application's have passed over lately, so that a place can be asked who was there.
//!
//! Scans and backups are kept apart from logs: beside a busy database the pieces of logs are many, and would leave no room for what a
//! person asks about.

use applications::streams::Verdict;
use std::collections::BTreeMap;
use std::ops::Range;
use types::StreamClass;

/// Pieces of scans, backups and the like that are remembered, the latest.
const PASSING_MAX: usize = 256;
/// The same of logs.
const LOGS_MAX: usize = 64;
/// A stream that leaves out so much goes on with its piece: what is cached is read without being seen, and pages of a table lie in no order.
const GAP_BYTES: u64 = 1 << 20;

/// A piece that a stream passed over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Passed {
    /// Which bytes, gaps of a MiB at most included.
    pub bytes: Range<u64>,
    /// When it did last.
    pub at_ms: u64,
    /// Of which class it is, and why.
    pub verdict: Verdict,
}

/// Pieces by class and first byte.
type Pieces = BTreeMap<(StreamClass, u64), Passed>;

/// See the module.
#[derive(Default, Debug)]
pub struct Passing {
    passing: Pieces,
    logs: Pieces,
}

impl Passing {
    /// A request has passed. Those of the application are not kept.
    pub fn note(&mut self, bytes: &Range<u64>, at_ms: u64, verdict: Verdict) {
        if verdict.class == StreamClass::Application || bytes.is_empty() {
            return;
        }
        let is_log = verdict.class == StreamClass::Log;
        let (pieces, most) = if is_log { (&mut self.logs, LOGS_MAX) } else { (&mut self.passing, PASSING_MAX) };
        let class = verdict.class;
        let mut piece = Passed { bytes: bytes.clone(), at_ms, verdict };
        // Those of a class do not overlap: two of them at most are joined by this one, that before it and that behind it.
        let last_start = bytes.end.saturating_add(GAP_BYTES);
        while let Some((key, near)) = pieces.range((class, 0)..=(class, last_start)).next_back()
            && near.bytes.end.saturating_add(GAP_BYTES) >= piece.bytes.start
        {
            let key = *key;
            let near = pieces.remove(&key).expect("it was just found");
            piece.bytes = piece.bytes.start.min(near.bytes.start)..piece.bytes.end.max(near.bytes.end);
        }
        if pieces.len() >= most
            && let Some(oldest) = pieces.iter().min_by_key(|(_, piece)| piece.at_ms).map(|(key, _)| *key)
        {
            pieces.remove(&oldest);
        }
        pieces.insert((class, piece.bytes.start), piece);
    }

    /// The piece that lies in a range, or around it, and was passed over last.
    pub fn over(&self, bytes: &Range<u64>) -> Option<&Passed> {
        let all = self.passing.values().chain(self.logs.values());
        all.filter(|piece| piece.bytes.start < bytes.end && bytes.start < piece.bytes.end).max_by_key(|piece| piece.at_ms)
    }

    /// Memory it takes, in bytes; nearly.
    pub fn bytes(&self) -> usize {
        (self.passing.len() + self.logs.len()) * 2 * size_of::<((StreamClass, u64), Passed)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use applications::streams::Evidence;

    const SCAN: Verdict = Verdict::new(StreamClass::Scan, Evidence::Chain);
    const LOG: Verdict = Verdict::new(StreamClass::Log, Evidence::Tail);

    #[test]
    fn the_latest_stream_over_a_place_is_told_and_memory_is_bounded() {
        let mut passing = Passing::default();
        passing.note(&(0..4096), 1, Verdict::UNKNOWN);
        assert_eq!(passing.over(&(0..1)), None);
        for step in 0..100 {
            passing.note(&(step * 4096..(step + 1) * 4096), step, SCAN);
            passing.note(&(1 << 30..(1 << 30) + 512), step, LOG);
        }
        assert_eq!(passing.over(&(4096..8192)), Some(&Passed { bytes: 0..409_600, at_ms: 99, verdict: SCAN }));
        assert_eq!(passing.over(&(1 << 30..1 << 31)).map(|piece| piece.verdict), Some(LOG));
        assert_eq!(passing.over(&(409_600..500_000)), None);
        passing.note(&(8192..12_288), 200, LOG);
        assert_eq!(passing.over(&(0..409_600)).map(|piece| piece.verdict), Some(LOG));
        for step in 0..10_000 {
            passing.note(&((step + 1) << 22..((step + 1) << 22) + 4096), 300 + step, SCAN);
        }
        assert!(passing.bytes() < 100 << 10, "{}", passing.bytes());
        assert_eq!(passing.over(&(0..4096)), None, "that is long ago");
        assert_eq!(passing.over(&(8192..12_288)).map(|piece| piece.verdict), Some(LOG), "logs have room of their own");
    }

    /// A dump of a table reads its leaves in the order of keys, wherever they lie, while the log goes on all over its file.
    #[test]
    fn a_scan_beside_a_busy_database_is_remembered_whole() {
        let mut passing = Passing::default();
        let (extents, in_extent, page) = (311_u64, 64_u64, 16_384_u64);
        let pages = extents * in_extent;
        for step in 0..pages {
            let at = (step / in_extent * 131 % extents * in_extent + step % in_extent) * page;
            passing.note(&(at..at + page), step, SCAN);
            let log = (1 << 40) + step * 37 % 4096 * (4 << 20);
            passing.note(&(log..log + 512), step, LOG);
        }
        let forgotten = (0..pages).filter(|step| passing.over(&(step * page..step * page + 1)).is_none()).count();
        assert_eq!(forgotten, 0);
    }
}
