//! Rule *log*: writes that continue or rewrite their own tail, and are hardly read.
//!
//! At least 0.95 of the writes of a region continue its tail and it is read less than 0.05 times as
//! often as it is written, over 1,000 writes. A region is what its tail has passed over since it
//! was first seen; so no name and no map is needed. Shares measured on the recorded load with
//! backups: redo 0.98, binlog 1.0, WAL 0.99, journal of the file system 1.0 (its commit blocks
//! leave gaps of 4 KiB).
//!
//! Two things are added to the rule as first noted, both measured there. A region has *two* tails,
//! because every checkpoint rewrites the header of a redo log in between: with one tail its share
//! is 0.963. And 32 writes do when they span ten seconds: a WAL that wrote 5.6 MiB in 18 seconds
//! did it in 80 writes (with 16, one write to undo pages was called a log). And the tail must have
//! passed over 64 KiB: pages that are rewritten in their place are no log, however often. No write
//! to a table of that load was ever called a log. Of two loads that were not looked at meanwhile,
//! 0.85 and 0.88 of the redo writes are found (the rest is the first thousand), and 49 and 51 of
//! 177,191 and 234,027 pages are called a log wrongly.

use super::seen::{Position, Seen};
use types::ObjectId;

/// Regions that are watched at a time.
const REGIONS_MAX: usize = 64;
/// Writes after which a region can be a log.
const WRITES_MIN: u32 = 1000;
/// That many do when they span [`SPAN_MS`].
const WRITES_FEW: u32 = 32;
/// See [`WRITES_FEW`]. A file that is copied or loaded is written faster.
const SPAN_MS: u64 = 10_000;
/// What the tail must have passed over: four database pages.
const PASSED_BYTES: u64 = 64 << 10;
/// A write continues a tail that ends this far before it: a database page, what alignment leaves
/// out.
const GAP_BYTES: u64 = 16 << 10;
/// A region with so many writes gives way only when all have: random writes would push logs out
/// else.
const WRITES_ESTABLISHED: u32 = 8;
/// Counts are halved here, so that what was long ago weighs less.
const WRITES_HALVED: u32 = 2 * WRITES_MIN;

#[derive(Clone, Copy, Debug)]
struct Region {
    space: u64,
    low_bytes: u64,
    high_bytes: u64,
    /// First byte and end of the last write at each tail, the latest tail first.
    tails: [(u64, u64); 2],
    began_ms: u64,
    last_ms: u64,
    used: u64,
    written_bytes: u64,
    writes: u32,
    continued: u32,
    reads: u32,
    log: bool,
}

impl Region {
    fn holds(&self, at: Position) -> bool {
        self.space == at.space && (self.low_bytes..self.high_bytes).contains(&at.offset_bytes)
    }

    /// Tails lie within it, so that only here they need be looked at.
    fn is_near(&self, at: Position) -> bool {
        self.space == at.space && (self.low_bytes..=self.high_bytes.saturating_add(GAP_BYTES)).contains(&at.offset_bytes)
    }

    fn tail_at(&self, at: Position) -> Option<usize> {
        let goes_on = |(start, end): &(u64, u64)| *end > 0 && *start <= at.offset_bytes && at.offset_bytes <= end.saturating_add(GAP_BYTES);
        self.tails.iter().position(goes_on)
    }

    fn behaves(&self) -> bool {
        let written = u64::from(self.writes);
        let passed_bytes = self.high_bytes.saturating_sub(self.low_bytes);
        passed_bytes >= PASSED_BYTES
            && u64::from(self.continued) * 100 >= written.saturating_sub(1) * 95
            && u64::from(self.reads) * 100 < written * 5
    }

    fn judge(&mut self, at_ms: u64) {
        let enough = self.log || self.writes >= WRITES_MIN || (self.writes >= WRITES_FEW && at_ms.saturating_sub(self.began_ms) >= SPAN_MS);
        self.log = enough && self.behaves();
    }
}

/// A log that was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Log {
    /// The object it lies in, if a map knew.
    pub object: Option<ObjectId>,
    /// First byte that its tail passed over, of the object or else of the device.
    pub low_bytes: u64,
    /// End of what it passed over.
    pub high_bytes: u64,
    /// When its first write was seen.
    pub began_ms: u64,
    /// When its last write was seen.
    pub last_ms: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

/// The regions of a volume.
#[derive(Debug)]
pub struct Logs {
    regions: Vec<Region>,
    tick: u64,
}

impl Default for Logs {
    fn default() -> Logs {
        Logs { regions: Vec::with_capacity(REGIONS_MAX), tick: 0 }
    }
}

impl Logs {
    /// A write; says whether it goes to a log.
    pub fn written(&mut self, seen: &Seen) -> bool {
        let at = seen.position();
        let end_bytes = at.offset_bytes.saturating_add(u64::from(seen.len_bytes));
        self.tick += 1;
        let (index, tail) = self.region_at(at, seen.at_ms);
        let region = &mut self.regions[index];
        match tail {
            // The other tail is the latest now, and goes on from here.
            Some(1) => region.tails.swap(0, 1),
            Some(_) => {}
            None => region.tails[1] = region.tails[0],
        }
        region.continued += u32::from(tail.is_some());
        region.tails[0] = (at.offset_bytes, end_bytes);
        region.low_bytes = region.low_bytes.min(at.offset_bytes);
        region.high_bytes = region.high_bytes.max(end_bytes);
        region.writes += 1;
        region.written_bytes = region.written_bytes.saturating_add(u64::from(seen.len_bytes));
        (region.used, region.last_ms) = (self.tick, seen.at_ms);
        region.judge(seen.at_ms);
        if region.writes >= WRITES_HALVED {
            region.writes /= 2;
            region.continued /= 2;
            region.reads /= 2;
        }
        region.log
    }

    /// A read that is no scan: a log that is read is a log no longer.
    pub fn read(&mut self, seen: &Seen) {
        let at = seen.position();
        for region in self.regions.iter_mut().filter(|region| region.holds(at)) {
            region.reads = region.reads.saturating_add(1);
            region.judge(seen.at_ms);
        }
    }

    /// The region whose tail goes on at this place, and which tail; else the one that holds the
    /// place; else a new one, in the place of one of few writes if there is any.
    fn region_at(&mut self, at: Position, at_ms: u64) -> (usize, Option<usize>) {
        let waited = |region: &Region| (region.writes >= WRITES_ESTABLISHED, region.used);
        let (mut holding, mut oldest) = (None, 0);
        for (index, region) in self.regions.iter().enumerate() {
            if region.is_near(at) {
                if let Some(tail) = region.tail_at(at) {
                    return (index, Some(tail));
                }
                if holding.is_none() && region.holds(at) {
                    holding = Some(index);
                }
            }
            if waited(region) < waited(&self.regions[oldest]) {
                oldest = index;
            }
        }
        if let Some(index) = holding {
            return (index, None);
        }
        let fresh = Region {
            space: at.space,
            low_bytes: at.offset_bytes,
            high_bytes: at.offset_bytes,
            tails: [(0, 0); 2],
            began_ms: at_ms,
            last_ms: at_ms,
            used: 0,
            written_bytes: 0,
            writes: 0,
            continued: 0,
            reads: 0,
            log: false,
        };
        if self.regions.len() < REGIONS_MAX {
            self.regions.push(fresh);
            return (self.regions.len() - 1, None);
        }
        self.regions[oldest] = fresh;
        (oldest, None)
    }

    /// The logs that are known now.
    pub fn found(&self) -> impl Iterator<Item = Log> + '_ {
        self.regions.iter().filter(|region| region.log).map(|region| Log {
            object: region.space.checked_sub(1).and_then(|object| u32::try_from(object).ok()).map(ObjectId),
            low_bytes: region.low_bytes,
            high_bytes: region.high_bytes,
            began_ms: region.began_ms,
            last_ms: region.last_ms,
            written_bytes: region.written_bytes,
        })
    }

    /// Memory held, in bytes.
    pub fn bytes(&self) -> usize {
        self.regions.capacity() * size_of::<Region>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(at_ms: u64, offset_bytes: u64, len_bytes: u32) -> Seen<'static> {
        Seen { at_ms, offset_bytes, len_bytes, write: true, origin: None, place: None, pages: &[] }
    }

    /// Appends of 4 KiB that rewrite their last block every other time, a header at every
    /// hundredth.
    fn append(logs: &mut Logs, step: u64, every_ms: u64) -> bool {
        if step % 100 == 99 {
            logs.written(&at(step * every_ms, (1 << 30) + 4096, 512));
        }
        logs.written(&at(step * every_ms, (1 << 30) + (1 << 20) + step / 2 * 4096, 4096))
    }

    #[test]
    fn a_log_is_known_after_a_thousand_writes_and_falls_back_when_it_is_read() {
        let mut logs = Logs::default();
        for step in 0..3000 {
            for stranger in 0..40 {
                let offset = (step * 40 + stranger) * 7_368_787 % (1 << 29);
                logs.written(&at(step, offset / 16384 * 16384, 16384));
            }
            assert_eq!(append(&mut logs, step, 1), step >= 999, "{step}");
        }
        let found: Vec<Log> = logs.found().collect();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].object, found[0].low_bytes), (None, (1 << 30) + (1 << 20)));
        for _ in 0..100 {
            logs.read(&at(3000, (1 << 30) + (2 << 20), 16384));
        }
        assert!(!append(&mut logs, 3000, 1), "it is read");
        let again = (3001..20_000).find(|step| append(&mut logs, *step, 1));
        assert!(again.is_some_and(|step| step > 3500), "{again:?}: not at once, but later");
    }

    #[test]
    fn a_slow_log_is_known_by_its_time_and_a_fast_copy_is_not() {
        let (mut slow, mut copy) = (Logs::default(), Logs::default());
        let first = (0..200).find(|step| append(&mut slow, *step, 200));
        assert_eq!(first, Some(50), "10 s and 100 KiB");
        assert!((0..200).all(|step| !append(&mut copy, step, 2)));
    }

    #[test]
    fn pages_flushed_or_rewritten_in_their_places_are_no_log() {
        let (mut logs, mut state) = (Logs::default(), 1u64);
        for round in 0..500u64 {
            for page in 0..1024 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                if state >> 61 == 0 {
                    assert!(!logs.written(&at(round * 100, (2 << 30) + page * 16384, 16384)), "one of eight, in order");
                }
            }
            for hot in 0..3 {
                assert!(!logs.written(&at(round * 100, (3 << 30) + hot * 16384, 16384)), "the same three");
            }
        }
    }

    #[test]
    fn ends_of_the_address_space_do_no_harm() {
        let mut logs = Logs::default();
        for offset in [0, u64::MAX, u64::MAX - 1, 1] {
            for len in [0, 1, u32::MAX] {
                logs.written(&at(u64::MAX, offset, len));
                logs.read(&at(0, offset, len));
            }
        }
    }
}
