//! Which parts of a load bring the hits: a cache of some size, and whose blocks it answers.

use crate::miniature::{Tried, rate_for, try_cache_and};
use crate::watch::Watch;
use std::collections::{HashMap, HashSet};

/// Uses that go through the cache.
const USES_MAX: usize = 100_000;

/// What one part of the blocks does in a warm cache, estimated from the second half of what is kept.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Part {
    /// Blocks read.
    pub reads: f64,
    /// Of them, answered by the cache.
    pub hits: f64,
    /// Different blocks that were answered at least once: what it takes of the cache, at most.
    pub blocks: f64,
}

/// Sends what is kept through a miniature of that cache, and tells each part's share. `part_of` says to which one a block belongs.
/// Empty if too little is kept to try a cache that small.
#[must_use]
pub fn parts<P: Copy + Eq + std::hash::Hash>(
    watch: &Watch,
    tried: &Tried,
    with_scans: bool,
    part_of: impl Fn(u64) -> P,
) -> HashMap<P, Part> {
    let Some(rate) = rate_for(watch.kept(), tried.ssd_pages.max(1), USES_MAX) else { return HashMap::new() };
    let (mut parts, mut answered): (HashMap<P, Part>, _) = (HashMap::new(), HashSet::new());
    // Shares among the parts: what the sample has too much of, all have.
    try_cache_and(watch.kept(), tried, rate, with_scans, 0.0, &mut |used, is_hit| {
        if used.is_write {
            return;
        }
        let part = parts.entry(part_of(used.block)).or_default();
        part.reads += 1.0 / rate;
        if is_hit {
            part.hits += 1.0 / rate;
            part.blocks += if answered.insert(used.block) { 1.0 / rate } else { 0.0 };
        }
    });
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line_hash;
    use crate::load::Writes;
    use crate::watch::{Limits, Seen, Totals};
    use engine::api::VolumeOptions;

    #[test]
    fn the_part_that_is_read_again_brings_the_hits() {
        let mut watch = Watch::new(0, Writes::Refresh, Limits { lines: 8192, uses: 1 << 18 });
        for n in 0..200_000_u64 {
            watch.count(Totals { read_blocks: 1, ..Totals::default() });
            // Half of the reads are of 4,000 blocks; the others are of a million, each of them seldom.
            let block = if n % 2 == 0 { line_hash(n, 1) % 4000 } else { 1_000_000 + line_hash(n, 2) % 1_000_000 };
            watch.see(Seen { block, is_write: false, is_scan: false, time_ms: n / 4 });
        }
        let tried = Tried { ssd_pages: 8000, ram_blocks: 0, options: VolumeOptions::default() };
        let parts = parts(&watch, &tried, false, |block| block < 1_000_000);
        let (hot, cold) = (parts[&true], parts[&false]);
        assert!((hot.reads - 50_000.0).abs() < 5_000.0 && (cold.reads - 50_000.0).abs() < 5_000.0, "{parts:?}");
        assert!(hot.hits > 0.95 * hot.reads && cold.hits < 0.05 * cold.reads, "{parts:?}");
        assert!((3500.0..4500.0).contains(&hot.blocks), "{parts:?}");
    }
}
