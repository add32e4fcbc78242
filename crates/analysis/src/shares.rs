//! What each part of a load brings, by the size of the cache: one list of blocks, the most recently
//! used first, that all parts share, and how far down in it the reads of each part find theirs.
//!
//! A cache that drops what was used least recently answers what lies within its size, whoever's it
//! is. So the parts' shares at a size add up to those of the whole.

use crate::load::write;
use crate::stack::{Reused, Stack};
use crate::watch::{LINES_MAX, Watch};
use engine::tap::line_hash;
use std::collections::HashMap;
use std::hash::Hash;

/// For each part, the share of all re-references (from 0 to 1) that it has answered by caches of
/// these sizes, which ascend, in blocks. Scans and backups are left out. `part_of` says to which
/// part a block belongs. Estimated from the uses that are kept, in memory that does not grow with
/// them.
#[must_use]
pub fn shares<P: Copy + Eq + Hash>(watch: &Watch, sizes: &[u64], part_of: impl Fn(u64) -> P) -> HashMap<P, Vec<f64>> {
    let kept = watch.kept();
    let (mut again, mut parts): (f64, HashMap<P, Vec<f64>>) = (0.0, HashMap::new());
    let mut stack = Stack::new(LINES_MAX);
    // Distances are those among all blocks, not among those that are kept.
    stack.lower_to(kept.below());
    for used in kept.uses().filter(|used| !used.is_scan) {
        let hash = line_hash(used.block, 0);
        if used.is_write {
            write(&mut stack, hash, watch.writes());
            continue;
        }
        let Some(Reused { distance_lines: Some(distance), weight }) = stack.reference(hash) else { continue };
        again += weight;
        let smallest = sizes.partition_point(|size| *size < distance);
        let answered = parts.entry(part_of(used.block)).or_insert_with(|| vec![0.0; sizes.len()]);
        if let Some(answered) = answered.get_mut(smallest) {
            *answered += weight;
        }
    }
    for answered in parts.values_mut() {
        let mut sum = 0.0;
        for weight in answered {
            sum += *weight;
            *weight = sum / again;
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Writes;
    use crate::watch::{Limits, Seen, Totals};

    const SIZES: [u64; 5] = [1000, 4000, 16_000, 64_000, 256_000];

    /// Half of the reads are of 2,000 blocks, the others of 100,000 more; every tenth use is a write of the former.
    fn watch_of(uses_max: usize) -> Watch {
        let mut watch = Watch::new(0, Writes::Refresh, Limits { lines: 8192, uses: uses_max });
        for n in 0..600_000_u64 {
            let block = if n % 2 == 0 { line_hash(n, 1) % 2000 } else { 2000 + line_hash(n, 2) % 100_000 };
            let is_write = n % 10 == 0;
            watch.advance(n / 4);
            watch.count(if is_write {
                Totals { written_blocks: 1, ..Totals::default() }
            } else {
                Totals { read_blocks: 1, ..Totals::default() }
            });
            watch.see(Seen { block, is_write, is_scan: false, time_ms: n / 4 });
            // A scan of what nobody else reads.
            watch.see(Seen { block: 1 << 20 | n, is_write: false, is_scan: true, time_ms: n / 4 });
        }
        watch
    }

    #[test]
    fn parts_add_up_to_the_curve_of_the_whole() {
        for uses_max in [1 << 21, 1 << 17] {
            let watch = watch_of(uses_max);
            let parts = shares(&watch, &SIZES, |block| block < 2000);
            let (hot, cold) = (&parts[&true], &parts[&false]);
            assert_eq!(parts.len(), 2);
            let curve = watch.load(false).curve();
            for (at, size) in SIZES.into_iter().enumerate() {
                let (sum, whole) = (hot[at] + cold[at], curve.hits(size as f64));
                assert!((sum - whole).abs() < 0.04, "{size} blocks of {uses_max} uses: {sum} of {whole}");
            }
            // 4 of 9 reads are of the hot blocks; between two of the same lie 2,000 hot ones and a few more cold ones.
            assert!(hot[0] < 0.3 && hot[2] > 0.42 && (hot[4] - hot[2]).abs() < 0.02, "{hot:?}");
            assert!(cold[1] < 0.05 && cold[4] > 0.45, "{cold:?}");
        }
    }

    #[test]
    fn nothing_read_again_brings_nothing() {
        let mut watch = Watch::new(0, Writes::Remove, Limits { lines: 8192, uses: 4096 });
        for block in 0..1000 {
            watch.see(Seen { block, is_write: false, is_scan: false, time_ms: block });
            watch.see(Seen { block, is_write: true, is_scan: false, time_ms: block });
        }
        for block in 0..1000 {
            watch.see(Seen { block, is_write: false, is_scan: false, time_ms: 1000 + block });
        }
        assert!(shares(&watch, &SIZES, |_| ()).is_empty(), "a write around the cache takes a block out of it");
    }
}
