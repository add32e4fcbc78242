//! What streams other than the application's have passed over lately, so that a place can be asked who was there.

use applications::streams::Verdict;
use std::collections::VecDeque;
use std::ops::Range;
use types::StreamClass;

/// Pieces that are remembered, the latest; a piece is what one stream passed over without a gap.
const PIECES_MAX: usize = 256;
/// A piece is looked for among so many when it goes on: streams take turns.
const GOES_ON_AMONG: usize = 8;

/// A piece that a stream passed over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Passed {
    /// Which bytes.
    pub bytes: Range<u64>,
    /// When it did last.
    pub at_ms: u64,
    /// Of which class it is, and why.
    pub verdict: Verdict,
}

/// See the module.
#[derive(Default, Debug)]
pub struct Passing {
    /// Oldest first.
    pieces: VecDeque<Passed>,
}

impl Passing {
    /// A request has passed. Those of the application are not kept.
    pub fn note(&mut self, bytes: &Range<u64>, at_ms: u64, verdict: Verdict) {
        if verdict.class == StreamClass::Application || bytes.is_empty() {
            return;
        }
        let goes_on = |piece: &&mut Passed| {
            piece.verdict.class == verdict.class && piece.bytes.start <= bytes.start && bytes.start <= piece.bytes.end
        };
        if let Some(piece) = self.pieces.iter_mut().rev().take(GOES_ON_AMONG).find(goes_on) {
            piece.bytes.end = piece.bytes.end.max(bytes.end);
            (piece.at_ms, piece.verdict) = (at_ms, verdict);
            return;
        }
        if self.pieces.len() == PIECES_MAX {
            self.pieces.pop_front();
        }
        self.pieces.push_back(Passed { bytes: bytes.clone(), at_ms, verdict });
    }

    /// The piece that lies in a range, or around it, and was passed over last.
    pub fn over(&self, bytes: &Range<u64>) -> Option<&Passed> {
        self.pieces.iter().filter(|piece| piece.bytes.start < bytes.end && bytes.start < piece.bytes.end).max_by_key(|piece| piece.at_ms)
    }

    /// Memory it takes, in bytes.
    pub fn bytes(&self) -> usize {
        self.pieces.capacity() * size_of::<Passed>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use applications::streams::Evidence;

    #[test]
    fn the_latest_stream_over_a_place_is_told_and_memory_is_bounded() {
        let mut passing = Passing::default();
        let scan = Verdict::new(StreamClass::Scan, Evidence::Chain);
        let log = Verdict::new(StreamClass::Log, Evidence::Tail);
        passing.note(&(0..4096), 1, Verdict::UNKNOWN);
        assert_eq!(passing.over(&(0..1)), None);
        for step in 0..100 {
            passing.note(&(step * 4096..(step + 1) * 4096), step, scan);
            passing.note(&(1 << 30..(1 << 30) + 512), step, log);
        }
        assert_eq!(passing.over(&(4096..8192)), Some(&Passed { bytes: 0..409_600, at_ms: 99, verdict: scan }));
        assert_eq!(passing.over(&(1 << 30..1 << 31)).map(|piece| piece.verdict), Some(log));
        assert_eq!(passing.over(&(409_600..500_000)), None);
        passing.note(&(8192..12_288), 200, log);
        assert_eq!(passing.over(&(0..409_600)).map(|piece| piece.verdict), Some(log));
        for step in 0..10_000 {
            passing.note(&(step << 20..(step << 20) + 4096), 300 + step, scan);
        }
        assert!(passing.bytes() <= 2 * PIECES_MAX * size_of::<Passed>());
        assert_eq!(passing.over(&(0..4096)), None, "that is long ago");
    }
}
