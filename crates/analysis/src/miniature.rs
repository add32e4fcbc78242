//! What the shipping engine needs: caches a fraction of the size, over the uses of that fraction of the
//! blocks (Waldspurger and others, "Cache Modeling and Optimization using Miniature Simulations", USENIX
//! ATC 2017).
//!
//! A curve of reuse distances tells of a cache that drops what was used least recently, and of nothing
//! else. The engine has admission, a RAM tier, records, and blocks that it judges; all of that is in the
//! miniature, since it is the engine itself. So is what it writes to the SSD.
//!
//! One thing is left out: what small reads bring along. The neighbours of a block in the sample are mostly
//! not in it. So where that pays, a cache hits more often than its miniature.

use crate::kept::{Kept, Use};
use engine::api::VolumeOptions;
use engine::tap::line_hash;
use pool::alone::{Alone, AloneConfig};
use std::collections::HashSet;

/// A cache to be tried, in its full size.
#[derive(Clone, Debug)]
pub struct Tried {
    /// Pages (of 4096 bytes) of the log.
    pub ssd_pages: u64,
    /// Blocks of the RAM tier.
    pub ram_blocks: u64,
    /// How its volumes behave.
    pub options: VolumeOptions,
}

/// What a cache did while it was warm, scaled to its full size: the first half of what is kept fills it,
/// since a cache that fills yet misses each block once more than one that is full.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Did {
    /// Blocks read.
    pub reads: f64,
    /// Of them, never used before in the whole window: no cache has them.
    pub first_reads: f64,
    /// Of them, cached.
    pub hits: f64,
    /// Blocks of clients written to the SSD, once or again.
    pub data_blocks_written: f64,
    /// Blocks that it has room for: at least those of the smallest cache that can be tried.
    pub data_blocks_max: f64,
    /// Blocks written to the SSD for one of clients, statements included.
    pub written_factor: f64,
    /// The part of the window's time that the figures above are of, from 0 to 1.
    pub time_part: f64,
}

impl Did {
    /// Share of the re-references that were answered, from 0 to 1.
    #[must_use]
    pub fn hit_share(&self) -> f64 {
        let again = self.reads - self.first_reads;
        if again > 0.0 { (self.hits / again).clamp(0.0, 1.0) } else { 0.0 }
    }
}

/// The fraction of the blocks with which a cache of that size is tried: all that is kept, or less where a
/// cache is large enough with less. `None`: too little is kept for a cache of the smallest size.
#[must_use]
pub fn rate_for(kept: &Kept, ssd_pages: u64, uses_max: usize) -> Option<f64> {
    let smallest = Alone::SSD_PAGES_MIN as f64 / ssd_pages as f64;
    if smallest > kept.rate() * 1.001 {
        return None;
    }
    // Half as many uses as that are of half as many blocks.
    let affordable = kept.rate() * uses_max as f64 / kept.len().max(1) as f64;
    Some(affordable.max(smallest).min(kept.rate()))
}

/// Sends what is kept through a miniature of the cache, at the fraction that [`rate_for`] gives; scans
/// only if asked for. A read of a block that was never used before in the window counts as such. What is
/// told is of the second half of the uses, see [`Did`].
///
/// `reads` is how many blocks the whole load has read in the window, sampled or not; 0: not known. Where
/// few blocks are used very often, a sample has too many reads or too few, by which of those blocks are in
/// it: with a twentieth of the reads on one block, a sample of a fifth hits four points too often or one
/// too seldom. What is too much or missing are reads at short distances, which any cache answers: so it is
/// taken from the hits or added to them, as SHARDS-adj does for the curve.
#[must_use]
pub fn try_cache(kept: &Kept, tried: &Tried, rate: f64, with_scans: bool, reads: f64) -> Did {
    try_cache_and(kept, tried, rate, with_scans, reads, &mut |_, _| {})
}

/// The same, and tells `each` use of the second half with whether the cache answered it.
pub fn try_cache_and(kept: &Kept, tried: &Tried, rate: f64, with_scans: bool, reads: f64, each: &mut dyn FnMut(&Use, bool)) -> Did {
    let scaled = |size: u64| (size as f64 * rate).round() as u64;
    let ssd_pages = scaled(tried.ssd_pages).max(Alone::SSD_PAGES_MIN);
    let config = AloneConfig { ssd_pages, ram_blocks: scaled(tried.ram_blocks), options: tried.options.clone() };
    let mut replica = Alone::new(config).with_nothing_along();
    let below = if rate >= 1.0 { u64::MAX } else { (rate * u64::MAX as f64) as u64 };
    let goes_through = |used: &Use| line_hash(used.block, 0) < below && (!used.is_scan || with_scans);
    let (mut did, mut known) = (Did::default(), HashSet::new());
    let filling = kept.uses().filter(goes_through).count() / 2;
    let (mut all_reads, mut written_before, mut warm_ms, mut end_ms) = (0.0, 0, 0, 0);
    for (at, used) in kept.uses().filter(goes_through).enumerate() {
        if at == filling {
            (written_before, warm_ms) = (replica.data_blocks_written(), used.time_ms);
        }
        end_ms = used.time_ms;
        // Requests of one moment follow one another. Time passes more slowly as there are fewer of them: what
        // waits for others to share a group with meets as many as in the whole.
        replica.advance_by(1000);
        replica.advance_to((used.time_ms as f64 * 1e6 * rate) as u64);
        let is_first = known.insert(used.block);
        let missing = replica.access(0, used.block, 1, used.is_write);
        all_reads += f64::from(u8::from(!used.is_write));
        if at < filling {
            continue;
        }
        each(&used, missing == 0);
        if !used.is_write {
            did.reads += 1.0;
            did.first_reads += f64::from(u8::from(is_first));
            did.hits += 1.0 - missing as f64;
        }
    }
    if reads > 0.0 && all_reads > 0.0 {
        let surplus = (all_reads - reads * rate) * did.reads / all_reads;
        did.reads = (did.reads - surplus).max(did.first_reads);
        did.hits = (did.hits - surplus).clamp(0.0, did.reads - did.first_reads);
    }
    let (data, written) = (replica.data_blocks_written(), replica.ssd_blocks_written());
    did.data_blocks_written = (data - written_before) as f64;
    did.data_blocks_max = ssd_pages as f64;
    did.written_factor = if data > 0 { written as f64 / data as f64 } else { 1.0 };
    did.time_part = if end_ms > warm_ms { (end_ms - warm_ms) as f64 / end_ms as f64 } else { 0.5 };
    for figure in [&mut did.reads, &mut did.first_reads, &mut did.hits, &mut did.data_blocks_written, &mut did.data_blocks_max] {
        *figure /= rate;
    }
    did
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads of ranks that are used in proportion to one by their number: the first by a thirteenth of all.
    fn skewed(reads: u64, blocks: u64) -> Kept {
        let mut kept = Kept::new(0, reads as usize);
        for n in 0..reads {
            let drawn = line_hash(n, 3) as f64 / u64::MAX as f64;
            kept.note((blocks as f64).powf(drawn) as u64 - 1, false, false, n / 4);
        }
        kept
    }

    /// Each block is let in when it is used for the second time: a cache that is filled yet misses once more.
    #[test]
    fn what_fits_is_told_as_a_warm_cache_answers_it() {
        let mut kept = Kept::new(0, 100_000);
        for n in 0..40_000_u64 {
            kept.note(n % 4000, false, false, n);
        }
        let tried = Tried { ssd_pages: 8192, ram_blocks: 64, options: VolumeOptions::default() };
        let did = try_cache(&kept, &tried, 1.0, false, 40_000.0);
        assert_eq!((did.reads, did.first_reads, did.hit_share()), (20_000.0, 0.0, 1.0));
        assert!(did.data_blocks_written < 100.0, "all was written before: {did:?}");
    }

    /// The hottest block here is block 0, which is in every sample: its hash is 0.
    #[test]
    fn hot_blocks_in_a_sample_by_chance_are_not_taken_for_the_whole() {
        let reads = 200_000;
        let whole = skewed(reads, 200_000);
        let mut part = whole.clone();
        part.lower_to(u64::MAX / 5);
        let tried = Tried { ssd_pages: 4096, ram_blocks: 256, options: VolumeOptions::default() };
        let truth = try_cache(&whole, &tried, 1.0, false, reads as f64);
        let (rate, known) = (part.rate(), try_cache(&part, &tried, part.rate(), false, reads as f64));
        let unknown = try_cache(&part, &tried, rate, false, 0.0);
        let off = |did: &Did| did.hit_share() - truth.hit_share();
        println!("{:.3}: off by {:.4}, by {:.4} where the reads of the whole are not known", truth.hit_share(), off(&known), off(&unknown));
        assert!(off(&known).abs() < 0.02, "off by {}", off(&known));
        assert!(off(&unknown) > off(&known).abs() + 0.02, "the sample has no more of the hot blocks: {}", off(&unknown));
        assert_eq!(truth.reads, reads as f64 / 2.0);
        assert!((truth.time_part - 0.5).abs() < 0.01, "{truth:?}");
    }
}
