//! From a watch to advice: how much SSD brings which share of hits, and what reads take then.

use crate::load::NotYet;
use crate::miniature::{Did, Tried, rate_for, try_cache};
use crate::watch::Watch;
use engine::api::VolumeOptions;
use types::BLOCK_BYTES;

/// Caches that are tried: from smaller than half of the hits need to larger than nearly all do.
const SIZES: usize = 10;
/// Uses that go through each of them: some 3 microseconds a use.
const USES_MAX: usize = 100_000;
/// How far the hits of a miniature are taken to be off from those of the whole. `tests/all/miniature.rs`
/// measures 0.022 on average on a short piece of a recorded load, and asks for 0.02 on whole ones.
const MINIATURE_HITS: f64 = 0.015;
/// And how far in any case, as a part of the size.
const MINIATURE_HALF_BAND: f64 = 0.03;
/// Milliseconds of a day.
const DAY_MS: f64 = 86_400_000.0;

/// What reads take, in microseconds, measured where the load runs.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Latencies {
    /// From RAM.
    pub ram_us: Option<f64>,
    /// From the SSD.
    pub ssd_us: Option<f64>,
    /// From the backing device.
    pub backing_us: Option<f64>,
}

/// What is asked.
#[derive(Clone, Debug)]
pub struct Question {
    /// Shares of the re-references that are to be hits, from 0 to 1.
    pub shares: Vec<f64>,
    /// Scans and backups are let into the cache.
    pub with_scans: bool,
    /// Blocks of the RAM tier.
    pub ram_blocks: u64,
    /// How the cache would behave.
    pub options: VolumeOptions,
    /// Bytes of clients that an SSD of one byte holds: less than one by what lies beside them, more by what
    /// their content saves.
    pub stored_share: f64,
    /// Bytes written to the SSD for a byte of clients that is admitted, if that was measured; otherwise what
    /// the miniatures write.
    pub written_factor: Option<f64>,
    /// Bytes of SSD that there are.
    pub ssd_bytes: Option<u64>,
    /// See [`Latencies`].
    pub latencies: Latencies,
}

/// How much SSD some share of hits takes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Needed {
    /// To buy.
    pub ssd_bytes: f64,
    /// How far off it may be, as a part of it.
    pub half_band: f64,
    /// What a cache would need that drops what was used least recently, holds nothing else, and has no RAM tier.
    pub lru_bytes: f64,
    /// What a read takes then; `None` where latencies are not known.
    pub read_us: Option<f64>,
    /// Written to the SSD in a day.
    pub ssd_bytes_written_per_day: f64,
}

/// A point of the curve.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Point {
    /// Of SSD.
    pub ssd_bytes: f64,
    /// Share of the re-references that are hits, from 0 to 1; and between which it may lie.
    pub hits: f64,
    /// Lower end of its band.
    pub hits_low: f64,
    /// Upper end.
    pub hits_high: f64,
    /// What a read takes then, as [`Needed::read_us`].
    pub read_us: Option<f64>,
    /// Written to the SSD in a day.
    pub ssd_bytes_written_per_day: f64,
}

impl Point {
    /// The point that far from this one (0) to another (1), on a straight line.
    #[must_use]
    pub fn towards(&self, other: &Point, part: f64) -> Point {
        let between = |figure: fn(&Point) -> f64| figure(self) + (figure(other) - figure(self)) * part;
        Point {
            ssd_bytes: between(|point| point.ssd_bytes),
            hits: between(|point| point.hits),
            hits_low: between(|point| point.hits_low),
            hits_high: between(|point| point.hits_high),
            read_us: self.read_us.zip(other.read_us).map(|(this, other)| this + (other - this) * part),
            ssd_bytes_written_per_day: between(|point| point.ssd_bytes_written_per_day),
        }
    }
}

/// Why no SSD is told for a share.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Untold {
    /// It is not known yet.
    NotYet(NotYet),
    /// Too few uses are kept to try a cache that small.
    TooSmall,
    /// None of the caches that were tried reaches it: some blocks come too seldom to be let in.
    OutOfReach,
}

/// What was found.
#[derive(Clone, Debug)]
pub struct Answer {
    /// By share, as asked.
    pub needed: Vec<(f64, Result<Needed, Untold>)>,
    /// Hits by SSD, ascending.
    pub curve: Vec<Point>,
    /// What the SSD that there is brings, if it lies within the curve.
    pub now: Option<Point>,
}

/// Looks for the answer: seconds of computing.
#[must_use]
pub fn answer(watch: &Watch, question: &Question) -> Answer {
    let load = watch.load(question.with_scans);
    let told: Vec<_> = question.shares.iter().map(|share| (*share, load.told_size_for(*share))).collect();
    let tries = if told.iter().any(|(_, told)| told.is_ok()) { tries(watch, question) } else { Vec::new() };
    let curve = Tries(&tries, question.stored_share);
    let half_band = |at: f64| {
        let of_size = load.size_for(at).map_or(f64::INFINITY, |size| size.half_band);
        of_size.hypot(curve.half_band(at).max(MINIATURE_HALF_BAND))
    };
    let written_per_day = |ssd_bytes| {
        let days = load.window_ms().max(1) as f64 / DAY_MS;
        curve.written_in_window_at(ssd_bytes, question.written_factor) / days
    };
    // Where a share is not told yet, hits of as many and more are not either: what is unknown in one line is not known in the next.
    let untold_from = told.iter().filter(|(_, told)| told.is_err()).map(|(share, _)| *share).fold(f64::INFINITY, f64::min);
    let mut needed = Vec::new();
    for (share, told) in told {
        // However wide the band is, all of it fits into RAM.
        let all_in_ram = load.size_for(share).filter(|size| size.lines * (1.0 + size.half_band) <= question.ram_blocks as f64);
        if let Some(size) = all_in_ram.filter(|_| load.has_enough()) {
            let lru_bytes = size.lines * BLOCK_BYTES as f64;
            let read_us = read_us(watch, question, share);
            needed.push((share, Ok(Needed { ssd_bytes: 0.0, half_band: 0.0, lru_bytes, read_us, ssd_bytes_written_per_day: 0.0 })));
            continue;
        }
        let result = told.map_err(Untold::NotYet).and_then(|size| {
            if tries.is_empty() {
                return Err(Untold::TooSmall);
            }
            let ssd_bytes = curve.bytes_for(share).ok_or(Untold::OutOfReach)?;
            Ok(Needed {
                ssd_bytes,
                half_band: half_band(share),
                lru_bytes: size.lines * BLOCK_BYTES as f64,
                read_us: read_us(watch, question, share),
                ssd_bytes_written_per_day: written_per_day(ssd_bytes),
            })
        });
        needed.push((share, result));
    }
    let point = |ssd_bytes: f64| {
        let hits = curve.hits_at(ssd_bytes).filter(|hits| *hits < untold_from)?;
        let band = half_band(hits).min(0.9);
        let (low, high) = (curve.clamped_hits_at(ssd_bytes * (1.0 - band)), curve.clamped_hits_at(ssd_bytes * (1.0 + band)));
        let (low, high) = (low.min(hits - MINIATURE_HITS).max(0.0), high.max(hits + MINIATURE_HITS).min(1.0));
        Some(Point {
            ssd_bytes,
            hits,
            hits_low: low,
            hits_high: high,
            read_us: read_us(watch, question, hits),
            ssd_bytes_written_per_day: written_per_day(ssd_bytes),
        })
    };
    let sizes: Vec<f64> = tries.iter().map(|did| curve.bytes_of(did)).collect();
    Answer { needed, curve: sizes.into_iter().filter_map(point).collect(), now: question.ssd_bytes.and_then(|bytes| point(bytes as f64)) }
}

/// Tries caches around the sizes that the curve of reuse distances tells, smallest first.
fn tries(watch: &Watch, question: &Question) -> Vec<Did> {
    let load = watch.load(question.with_scans);
    let Some((low, high)) = load.size_for(0.4).zip(load.size_for(0.995)) else { return Vec::new() };
    let low = (low.lines - question.ram_blocks as f64).max(low.lines / 4.0) * 0.8;
    let step = (high.lines * 2.5 / low).max(1.1).powf(1.0 / (SIZES - 1) as f64);
    let mut tries = Vec::new();
    for at in 0..SIZES {
        let ssd_pages = (low * step.powi(at as i32)) as u64;
        // One that is too small to be tried tells nothing; the next is larger.
        let Some(rate) = rate_for(watch.kept(), ssd_pages.max(1), USES_MAX) else { continue };
        let tried = Tried { ssd_pages, ram_blocks: question.ram_blocks, options: question.options.clone() };
        tries.push(try_cache(watch.kept(), &tried, rate, question.with_scans, load.profile().references() as f64));
    }
    tries.sort_by(|one, other| one.data_blocks_max.total_cmp(&other.data_blocks_max));
    // A larger cache that hits less often does so by chance.
    let mut best = 0.0_f64;
    for did in &mut tries {
        best = best.max(did.hit_share());
        did.hits = best * (did.reads - did.first_reads);
    }
    tries
}

/// Caches that were tried, smallest first, and how many bytes of clients an SSD of one byte holds.
struct Tries<'a>(&'a [Did], f64);

impl Tries<'_> {
    fn bytes_of(&self, did: &Did) -> f64 {
        did.data_blocks_max * BLOCK_BYTES as f64 / self.1.max(0.01)
    }

    /// The smallest SSD with that share of hits.
    fn bytes_for(&self, share: f64) -> Option<f64> {
        let at = self.0.iter().position(|did| did.hit_share() >= share)?;
        let after = &self.0[at];
        let Some(before) = at.checked_sub(1).map(|at| &self.0[at]) else { return Some(self.bytes_of(after)) };
        let part = (share - before.hit_share()) / (after.hit_share() - before.hit_share()).max(1e-12);
        Some(self.between(before, after, part))
    }

    /// How far off a size may be since the hits of miniatures are, as a part of it.
    fn half_band(&self, share: f64) -> f64 {
        let Some(bytes) = self.bytes_for(share) else { return 0.0 };
        let less = self.bytes_for(share - MINIATURE_HITS).map_or(0.0, |less| 1.0 - less / bytes);
        let more = self.bytes_for(share + MINIATURE_HITS).map_or(0.0, |more| more / bytes - 1.0);
        less.max(more)
    }

    fn between(&self, before: &Did, after: &Did, part: f64) -> f64 {
        let (low, high) = (self.bytes_of(before).ln(), self.bytes_of(after).ln());
        (low + (high - low) * part.clamp(0.0, 1.0)).exp()
    }

    /// A figure at some size, if that lies between those that were tried.
    fn at(&self, ssd_bytes: f64, figure: impl Fn(&Did) -> f64) -> Option<f64> {
        let at = self.0.iter().position(|did| self.bytes_of(did) >= ssd_bytes * 0.999_999)?;
        let after = &self.0[at];
        let Some(before) = at.checked_sub(1).map(|at| &self.0[at]) else {
            return (self.bytes_of(after) <= ssd_bytes * 1.000_001).then(|| figure(after));
        };
        let (low, high) = (self.bytes_of(before).ln(), self.bytes_of(after).ln());
        let part = if high > low { ((ssd_bytes.ln() - low) / (high - low)).clamp(0.0, 1.0) } else { 1.0 };
        Some(figure(before) + (figure(after) - figure(before)) * part)
    }

    fn hits_at(&self, ssd_bytes: f64) -> Option<f64> {
        // A larger SSD than any that was tried has no fewer hits than the largest.
        self.at(ssd_bytes, Did::hit_share).or_else(|| {
            let last = self.0.last()?;
            (ssd_bytes > self.bytes_of(last)).then(|| last.hit_share())
        })
    }

    fn clamped_hits_at(&self, ssd_bytes: f64) -> f64 {
        let ends = self.0.first().map_or(0.0, Did::hit_share);
        self.hits_at(ssd_bytes).unwrap_or(ends)
    }

    /// Of the whole window, as in the part of it in which the cache was warm.
    fn written_in_window_at(&self, ssd_bytes: f64, factor: Option<f64>) -> f64 {
        let blocks = |did: &Did| did.data_blocks_written * factor.unwrap_or(did.written_factor) / did.time_part.max(0.01);
        self.at(ssd_bytes, blocks).unwrap_or(0.0) * BLOCK_BYTES as f64
    }
}

/// What a read takes with that share of hits.
fn read_us(watch: &Watch, question: &Question, share: f64) -> Option<f64> {
    let Latencies { ram_us, ssd_us, backing_us } = question.latencies;
    let from_ram = watch.load(question.with_scans).curve().hits(question.ram_blocks as f64).min(share);
    let in_ram = if from_ram > 0.0 { from_ram * ram_us? } else { 0.0 };
    Some(in_ram + (share - from_ram) * ssd_us? + (1.0 - share) * backing_us?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line_hash;
    use crate::load::Writes;
    use crate::watch::{Limits, Seen, Totals};

    fn question() -> Question {
        Question {
            shares: vec![0.5, 0.9, 0.99],
            with_scans: false,
            ram_blocks: 0,
            options: VolumeOptions::default(),
            stored_share: 0.95,
            written_factor: None,
            ssd_bytes: Some(64 << 20),
            latencies: Latencies { ram_us: None, ssd_us: Some(100.0), backing_us: Some(8000.0) },
        }
    }

    /// Reads of so many blocks in a random order.
    fn watch_of(blocks: u64, reads: u64) -> Watch {
        let mut watch = Watch::new(0, Writes::Refresh, Limits { lines: 8192, uses: 1 << 18 });
        for n in 0..reads {
            let time_ms = n / 4;
            watch.advance(time_ms);
            watch.count(Totals { read_blocks: 1, ..Totals::default() });
            watch.see(Seen { block: line_hash(n, 5) % blocks, is_write: false, is_scan: false, time_ms });
        }
        watch
    }

    #[test]
    fn blocks_used_alike_need_room_for_all_of_them() {
        let watch = watch_of(20_000, 300_000);
        let answer = answer(&watch, &question());
        let needed: Vec<Needed> =
            answer.needed.iter().map(|(share, needed)| needed.unwrap_or_else(|why| panic!("{share}: {why:?}"))).collect();
        for (share, needed) in [0.5, 0.9].into_iter().zip(&needed) {
            let blocks = needed.ssd_bytes * 0.95 / 4096.0;
            assert!((share * 20_000.0 * 0.9..20_000.0 * 1.35).contains(&blocks), "{share}: {blocks} blocks");
            assert!(needed.half_band >= MINIATURE_HALF_BAND && needed.half_band < 0.1);
            assert!(needed.ssd_bytes_written_per_day > 0.0);
        }
        assert!(needed[0].ssd_bytes < needed[1].ssd_bytes && needed[1].ssd_bytes <= needed[2].ssd_bytes);
        assert!((needed[1].read_us.expect("latencies are known") - (0.9 * 100.0 + 0.1 * 8000.0)).abs() < 1.0);
        let now = answer.now.expect("it lies within the curve");
        assert!(now.hits > 0.5 && now.hits_low <= now.hits && now.hits <= now.hits_high, "{now:?}");
        let slowest = answer.curve.first().and_then(|point| point.read_us).expect("latencies are known");
        assert!(answer.curve.iter().all(|point| point.read_us.is_some_and(|us| us <= slowest)), "{:?}", answer.curve);
        assert!(answer.curve.is_sorted_by(|one, other| one.ssd_bytes <= other.ssd_bytes && one.hits <= other.hits));
    }

    /// Half of the reads are of a thousand blocks, always; the others of a part that has been growing.
    #[test]
    fn no_size_is_told_to_bring_what_is_not_told_yet() {
        let mut watch = Watch::new(0, Writes::Refresh, Limits { lines: 8192, uses: 1 << 18 });
        for n in 0..300_000u64 {
            let time_ms = n / 4;
            watch.advance(time_ms);
            watch.count(Totals { read_blocks: 1, ..Totals::default() });
            let growing = if n < 225_000 { 2_000 } else { 12_000 };
            let block = if line_hash(n, 1).is_multiple_of(2) { line_hash(n, 5) % 1000 } else { 1000 + line_hash(n, 5) % growing };
            watch.see(Seen { block: line_hash(block, 3) % (1 << 40), is_write: false, is_scan: false, time_ms });
        }
        let answer = answer(&watch, &question());
        let untold: Vec<f64> =
            answer.needed.iter().filter(|(_, needed)| matches!(needed, Err(Untold::NotYet(_)))).map(|(share, _)| *share).collect();
        let first = *untold.first().expect("the growing part is not known yet");
        assert!(first > 0.5 || answer.needed.len() == untold.len(), "{:?}", answer.needed);
        assert!(answer.curve.iter().chain(&answer.now).all(|point| point.hits < first), "{first}: {:?}", answer.curve);
    }

    #[test]
    fn what_is_not_known_is_not_told() {
        let answer = answer(&watch_of(20_000, 10_000), &question());
        assert!(answer.needed.iter().all(|(_, needed)| matches!(needed, Err(Untold::NotYet(NotYet::TooFew { .. })))));
        assert!(answer.curve.is_empty() && answer.now.is_none());
    }
}
