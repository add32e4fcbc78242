//! What each object of a volume brings, by the size of the SSD: the small curves beside objects.
//!
//! A curve of reuse distances, not of the engine itself as in [`super::advising`]: it costs
//! milliseconds, and tells objects apart as well.

use analysis::Watch;
use analysis::load::REREFERENCES_MIN;
use std::collections::HashMap;
use types::{BLOCK_BYTES, ObjectId};

/// Sizes told: powers of two of SSD, up to one that holds nearly all that is read again.
const SIZES: u32 = 12;
/// That is the share of the hits which the largest one brings, at least.
const LARGEST_AT: f64 = 0.99;
/// No SSD is smaller; and there are some sizes in any case.
const SMALLEST_LOG2: u32 = 20;
const SIZES_MIN: u32 = 4;
/// An object that brings a smaller share of the hits with the largest SSD has no curve.
const SHARE_MIN: f64 = 0.000_5;
/// They are made anew after so long, if somebody asks; sooner while there are none.
const AGE_MAX_MS: u64 = 60_000;
const NONE_AGE_MAX_MS: u64 = 5_000;

/// What a cache of a volume holds of clients.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Room {
    /// Blocks of RAM in front of the SSD.
    pub ram_blocks: u64,
    /// Bytes of clients in a byte of SSD.
    pub stored_share: f64,
}

/// See the module.
#[derive(Default)]
pub struct Shares {
    told_ms: Option<u64>,
    ssd_bytes: Vec<u64>,
    hits: HashMap<ObjectId, Vec<f64>>,
}

impl Shares {
    /// Made now of what was read until now; empty while too little was read again.
    /// `owner_of`: whose a block is.
    pub fn new(watch: &Watch, room: Room, now_ms: u64, owner_of: impl Fn(u64) -> Option<ObjectId>) -> Shares {
        let none = Shares { told_ms: Some(now_ms), ..Shares::default() };
        let load = watch.load(false);
        if load.curve().rereferences() < REREFERENCES_MIN {
            return none;
        }
        let Some(largest) = load.size_for(LARGEST_AT) else { return none };
        let stored = room.stored_share.max(0.01);
        let on_ssd = (largest.lines - room.ram_blocks as f64).max(1.0) * BLOCK_BYTES as f64 / stored;
        let last = (on_ssd as u64).next_power_of_two().ilog2().max(SMALLEST_LOG2 + SIZES_MIN - 1);
        let first = (last + 1).saturating_sub(SIZES).max(SMALLEST_LOG2);
        let ssd_bytes: Vec<u64> = (first..=last).map(|log2| 1 << log2).collect();
        let blocks = |bytes: &u64| room.ram_blocks + (*bytes as f64 * stored / BLOCK_BYTES as f64) as u64;
        let sizes: Vec<u64> = ssd_bytes.iter().map(blocks).collect();
        let brings = |hits: &Vec<f64>| hits.last().is_some_and(|most| *most >= SHARE_MIN);
        let hits = analysis::shares::shares(watch, &sizes, owner_of);
        let hits = hits.into_iter().filter_map(|(id, hits)| Some((id?, hits))).filter(|(_, hits)| brings(hits));
        Shares { ssd_bytes, hits: hits.collect(), ..none }
    }

    /// Whether to make them anew.
    pub fn is_due(&self, now_ms: u64) -> bool {
        let most_ms = if self.hits.is_empty() { NONE_AGE_MAX_MS } else { AGE_MAX_MS };
        self.told_ms.is_none_or(|told_ms| now_ms.saturating_sub(told_ms) >= most_ms)
    }

    /// Sizes of SSD in bytes, smallest first, each with the share (from 0 to 1) of all reads of blocks used before that this object has
    /// answered then; none: it brings hardly anything, or it is not known.
    pub fn of(&self, id: ObjectId) -> impl Iterator<Item = (u64, f64)> + '_ {
        self.ssd_bytes.iter().copied().zip(self.hits.get(&id).into_iter().flatten().copied())
    }

    /// Memory it takes, in bytes.
    pub fn bytes(&self) -> usize {
        self.hits.capacity() * (size_of::<(ObjectId, Vec<f64>)>() + 1) + self.hits.len() * SIZES as usize * size_of::<f64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use analysis::Writes;
    use analysis::watch::{Limits, Seen, Totals};

    const ROOM: Room = Room { ram_blocks: 0, stored_share: 0.5 };

    /// Two tables of 4,096 blocks and of 65,536, read alike in sum, and 1,000 blocks of nobody.
    fn watch_of(reads: u64) -> Watch {
        let mut watch = Watch::new(0, Writes::Refresh, Limits { lines: 8192, uses: 1 << 17 });
        for n in 0..reads {
            let block = match n % 5 {
                0 | 1 => chance(n) % 4096,
                2 | 3 => 65_536 + chance(n) % 65_536,
                _ => 200_000 + chance(n) % 1000,
            };
            watch.advance(n / 10);
            watch.count(Totals { read_blocks: 1, ..Totals::default() });
            watch.see(Seen { block, is_write: false, is_scan: false, time_ms: n / 10 });
        }
        watch
    }

    /// A number of 64 bits for each, without pattern in any of them (splitmix64).
    fn chance(n: u64) -> u64 {
        let mut mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for (shift, factor) in [(30, 0xbf58_476d_1ce4_e5b9), (27, 0x94d0_49bb_1331_11eb)] {
            mixed = (mixed ^ mixed >> shift).wrapping_mul(factor);
        }
        mixed ^ mixed >> 31
    }

    fn owner_of(block: u64) -> Option<ObjectId> {
        let id = if block < 4096 { 7 } else { 8 };
        (block < 131_072).then_some(ObjectId(id))
    }

    #[test]
    fn a_small_table_brings_its_hits_early_and_a_large_one_late() {
        let shares = Shares::new(&watch_of(500_000), ROOM, 5, owner_of);
        assert!(!shares.is_due(5 + AGE_MAX_MS - 1) && shares.is_due(5 + AGE_MAX_MS));
        let of = |id| shares.of(ObjectId(id)).collect::<Vec<_>>();
        let (small, large) = (of(7), of(8));
        // All of it is 70,632 blocks of half a page each, 552 MiB; but few hits need so much.
        assert_eq!(small.last().map(|(bytes, _)| *bytes), Some(512 << 20));
        assert_eq!(small.len(), (29 - SMALLEST_LOG2 + 1) as usize);
        let at = |of: &[(u64, f64)], mib: u64| of.iter().find(|(bytes, _)| *bytes == mib << 20).map_or(-1.0, |(_, hits)| *hits);
        assert!((at(&small, 512) - 0.45).abs() < 0.04 && (at(&large, 512) - 0.31).abs() < 0.04, "{small:?} {large:?}");
        // Between two reads of a block of the small one lie some 7,700 others: 60 MiB.
        assert!(at(&small, 16) < 0.4 * at(&small, 512) && at(&small, 256) > 0.9 * at(&small, 512), "{small:?}");
        assert!(at(&large, 128) < 0.5 * at(&large, 512), "{large:?}");
        assert!(small.is_sorted_by(|one, other| one.0 < other.0 && one.1 <= other.1));
        assert_eq!(of(9), [], "it is no object");
        assert!(shares.bytes() > 0 && shares.bytes() < 4096);
    }

    #[test]
    fn nothing_is_told_of_little() {
        let shares = Shares::new(&watch_of(20_000), ROOM, 0, owner_of);
        assert_eq!(shares.of(ObjectId(7)).count(), 0);
        assert!(!shares.is_due(NONE_AGE_MAX_MS - 1) && shares.is_due(NONE_AGE_MAX_MS));
        assert!(Shares::default().is_due(0));
    }
}
