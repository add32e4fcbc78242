//! How often each part of a volume was asked for lately. For people who look; nothing is decided by it.
//!
//! A volume is cut into regions of equal size, each with one counter that every request adds [`ONE`] to. Once a minute each counter loses an eighth:
//! under a steady load it stands at what eight minutes bring, and a single request is forgotten after eight.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use types::{EXTENT_SECTORS, SECTOR_BYTES};

/// Regions of a volume: 16 KiB of counters at most.
pub const REGIONS_MAX: u64 = 4096;
/// Between two losses of a counter.
pub const FADE_NS: u64 = 60_000_000_000;
/// What a request adds to its counter: as much as a counter has to have to lose one.
pub const ONE: u32 = FADE_ONE_IN;
/// Part of a counter that it loses: one in this many, rounded up so that it ends at nothing.
const FADE_ONE_IN: u32 = 8;
/// Losses after which any counter is at nothing: 2^32 is down to 8 after 151 at most, and these go one by one.
const FADES_MAX: u64 = 160;

/// The counters of one volume.
pub struct RegionHeat {
    /// A region has two to the power of this many sectors.
    region_shift: u32,
    counts: Box<[u32]>,
    /// Up to when the counters have lost what they lose.
    faded_ns: u64,
    /// Requests there had been then, of any place.
    requests: u64,
    /// All counters were at nothing then.
    cold: bool,
}

/// The counters as they stand.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Regions {
    /// Size of a region, in bytes: a power of two, at least 1 MiB.
    pub region_bytes: u64,
    /// Requests lately by region, each counted as [`ONE`].
    pub counts: Vec<u32>,
}

fn faded(count: u32) -> u32 {
    count - count.div_ceil(FADE_ONE_IN)
}

fn faded_often(count: u32, times: u64) -> u32 {
    (0..times.min(FADES_MAX)).fold(count, |count, _| faded(count))
}

impl RegionHeat {
    /// Of a volume of that size. The memory is touched where counts are made.
    pub fn new(size_bytes: u64, now_ns: u64) -> RegionHeat {
        let sectors = (size_bytes / SECTOR_BYTES).max(1);
        let regions = |shift: u32| sectors.div_ceil(1 << shift);
        let least = EXTENT_SECTORS.ilog2();
        let region_shift = (least..).find(|shift| regions(*shift) <= REGIONS_MAX).expect("a region can be as large as its volume");
        let counts = vec![0; regions(region_shift) as usize].into_boxed_slice();
        RegionHeat { region_shift, counts, faded_ns: now_ns, requests: 0, cold: true }
    }

    /// The volume has this size now. Regions may become larger; what was counted is kept.
    pub fn grow(&mut self, size_bytes: u64) {
        let before = core::mem::replace(self, RegionHeat::new(size_bytes, self.faded_ns));
        (self.requests, self.cold) = (before.requests, before.cold);
        let smaller_by = self.region_shift - before.region_shift;
        for (region, count) in before.counts.iter().enumerate() {
            let now = &mut self.counts[region >> smaller_by];
            *now = now.saturating_add(*count);
        }
    }

    /// One more request that begins there.
    #[inline]
    pub fn note(&mut self, start_sector: u64) {
        if let Some(count) = self.counts.get_mut((start_sector >> self.region_shift) as usize) {
            *count = count.saturating_add(ONE);
        }
    }

    /// Takes from the counters what they lost until now. `requests`: how many there have been of the volume, ever: if none came
    /// and nothing was left, nothing is looked at.
    pub fn fade(&mut self, now_ns: u64, requests: u64) {
        let times = self.losses(now_ns);
        if times == 0 {
            return;
        }
        self.faded_ns += times * FADE_NS;
        if self.cold && requests == self.requests {
            return;
        }
        self.requests = requests;
        self.cold = true;
        for count in &mut self.counts {
            *count = faded_often(*count, times);
            self.cold &= *count == 0;
        }
    }

    /// The counters as they stand now.
    pub fn regions(&self, now_ns: u64) -> Regions {
        let times = self.losses(now_ns);
        let counts = self.counts.iter().map(|count| faded_often(*count, times)).collect();
        Regions { region_bytes: SECTOR_BYTES << self.region_shift, counts }
    }

    fn losses(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.faded_ns) / FADE_NS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_of_any_size_has_at_most_16_kib_of_counters() {
        for (size_bytes, region_bytes, regions) in [
            (0, 1 << 20, 1),
            (1 << 20, 1 << 20, 1),
            ((1 << 20) + 512, 1 << 20, 2),
            (4 << 30, 1 << 20, 4096),
            ((4 << 30) + 512, 2 << 20, 2049),
            (100 << 40, 32 << 30, 3200),
            (1 << 63, 1 << 51, 4096),
        ] {
            let heat = RegionHeat::new(size_bytes, 0).regions(0);
            assert_eq!((heat.region_bytes, heat.counts.len()), (region_bytes, regions), "{size_bytes}");
        }
    }

    #[test]
    fn a_volume_that_grows_keeps_what_was_counted_where_it_was() {
        let mut heat = RegionHeat::new(4096 << 20, 7);
        heat.note(5 * EXTENT_SECTORS);
        heat.note(6 * EXTENT_SECTORS);
        heat.grow((4096 << 20) + 512);
        let now = heat.regions(7);
        assert_eq!((now.region_bytes, now.counts.len()), (2 << 20, 2049), "regions of twice the size");
        assert_eq!((now.counts[2], now.counts[3]), (ONE, ONE));
        heat.note((4096 << 20) / SECTOR_BYTES);
        assert_eq!(heat.regions(7).counts[2048], ONE, "what is new is counted");
    }

    #[test]
    fn a_steady_load_stands_at_eight_minutes_of_it() {
        let mut heat = RegionHeat::new(64 << 20, 0);
        for minute in 1..=100 {
            (0..1000).for_each(|_| heat.note(5 * EXTENT_SECTORS + 7));
            heat.fade(minute * FADE_NS, minute * 1000);
        }
        let counts = heat.regions(100 * FADE_NS).counts;
        assert!((6900..=8000).contains(&(counts[5] / ONE)) && counts.iter().sum::<u32>() == counts[5], "{counts:?}");
    }

    #[test]
    fn who_looks_sees_what_was_lost_since_and_in_the_end_nothing_is_left() {
        let mut heat = RegionHeat::new(64 << 20, 0);
        heat.counts[3] = u32::MAX;
        for minutes in [0, 1, 5, 50] {
            let seen = heat.regions(minutes * FADE_NS + FADE_NS / 2);
            let mut other = RegionHeat { counts: heat.counts.clone(), ..RegionHeat::new(64 << 20, 0) };
            (1..=minutes).for_each(|minute| other.fade(minute * FADE_NS, 1));
            assert_eq!(seen.counts.as_slice(), &other.counts[..], "{minutes}");
        }
        heat.fade(FADES_MAX * FADE_NS, 1);
        assert!(heat.cold && heat.counts.iter().all(|count| *count == 0));
        heat.counts[3] = 1;
        heat.fade((FADES_MAX + 1) * FADE_NS, 1);
        assert_eq!(heat.counts[3], 1, "no request came, so it is not looked at");
        heat.fade((FADES_MAX + 2) * FADE_NS, 2);
        assert_eq!(heat.counts[3], 0);
    }
}
