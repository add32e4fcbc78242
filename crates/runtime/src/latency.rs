//! Latency histograms: log-linear, fixed size, mergeable.
//!
//! Each power of two of nanoseconds is cut into 16 equal buckets, so a value is known to within 6.25 % of itself
//! (percentiles report the middle of a bucket: within 3.2 %). Values below 16 ns have a bucket each.

/// Buckets per power of two: 16.
const LINEAR_BITS: u32 = 4;
const LINEAR: usize = 1 << LINEAR_BITS;
/// Largest power of two told apart: 2^40 ns are 18 minutes, far beyond any I/O timeout. Longer ones count in the last bucket.
const EXPONENT_MAX: u32 = 40;
const BUCKETS: usize = ((EXPONENT_MAX - LINEAR_BITS + 1) as usize) * LINEAR;

/// Counts of durations in nanoseconds.
#[derive(Clone)]
pub struct Histogram {
    counts: [u64; BUCKETS],
    count: u64,
    sum_ns: u64,
    max_ns: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: [0; BUCKETS], count: 0, sum_ns: 0, max_ns: 0 }
    }
}

impl Histogram {
    /// Counts one duration.
    #[inline]
    pub fn record(&mut self, duration_ns: u64) {
        self.counts[bucket(duration_ns)] += 1;
        self.count += 1;
        self.sum_ns = self.sum_ns.saturating_add(duration_ns);
        self.max_ns = self.max_ns.max(duration_ns);
    }

    /// Adds all that `other` has counted.
    pub fn merge(&mut self, other: &Histogram) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.count += other.count;
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// What was counted since `earlier`, which must be an earlier copy of this histogram. The maximum is the whole
    /// histogram's: it is not known for a part.
    pub fn since(&self, earlier: &Histogram) -> Histogram {
        let mut part = self.clone();
        for (mine, theirs) in part.counts.iter_mut().zip(&earlier.counts) {
            *mine = mine.saturating_sub(*theirs);
        }
        part.count = self.count.saturating_sub(earlier.count);
        part.sum_ns = self.sum_ns.saturating_sub(earlier.sum_ns);
        part
    }

    /// How many durations were counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their sum, in nanoseconds.
    pub fn sum_ns(&self) -> u64 {
        self.sum_ns
    }

    /// The longest, in nanoseconds; exact.
    pub fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// The mean, in nanoseconds; 0 if nothing was counted.
    pub fn mean_ns(&self) -> u64 {
        self.sum_ns.checked_div(self.count).unwrap_or(0)
    }

    /// The duration that `per_mille` thousandths of all do not exceed (500 is the median, 999 is p99.9), in nanoseconds; 0 if
    /// nothing was counted.
    pub fn percentile_ns(&self, per_mille: u32) -> u64 {
        let rank = (u128::from(self.count) * u128::from(per_mille)).div_ceil(1000).max(1) as u64;
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return middle_ns(index).min(self.max_ns);
            }
        }
        self.max_ns
    }

    /// How many durations did not exceed each of `bounds_ns`, which must ascend; exact to the width of a bucket around the bound.
    pub fn counts_below(&self, bounds_ns: &[u64]) -> Vec<u64> {
        let mut counted = self.counts.iter().enumerate().map(|(index, count)| (middle_ns(index), *count)).peekable();
        let mut below = 0;
        let up_to = |bound_ns: &u64| {
            while let Some((_, count)) = counted.next_if(|(middle_ns, _)| middle_ns <= bound_ns) {
                below += count;
            }
            below
        };
        bounds_ns.iter().map(up_to).collect()
    }

    /// The usual figures.
    pub fn summary(&self) -> LatencySummary {
        LatencySummary {
            count: self.count,
            mean_ns: self.mean_ns(),
            p50_ns: self.percentile_ns(500),
            p90_ns: self.percentile_ns(900),
            p99_ns: self.percentile_ns(990),
            p999_ns: self.percentile_ns(999),
            max_ns: self.max_ns,
        }
    }
}

impl std::fmt::Debug for Histogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.summary().fmt(f)
    }
}

/// A histogram in seven numbers. All zero if nothing was counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LatencySummary {
    /// How many.
    pub count: u64,
    /// Mean.
    pub mean_ns: u64,
    /// Median.
    pub p50_ns: u64,
    /// 90th percentile.
    pub p90_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// Longest.
    pub max_ns: u64,
}

fn bucket(duration_ns: u64) -> usize {
    if duration_ns < LINEAR as u64 {
        return duration_ns as usize;
    }
    let exponent = duration_ns.ilog2();
    if exponent >= EXPONENT_MAX {
        return BUCKETS - 1;
    }
    let shift = exponent - LINEAR_BITS;
    (shift as usize + 1) * LINEAR + ((duration_ns >> shift) as usize - LINEAR)
}

fn middle_ns(bucket: usize) -> u64 {
    if bucket < LINEAR {
        return bucket as u64;
    }
    let shift = bucket / LINEAR - 1;
    (((bucket % LINEAR + LINEAR) as u64) << shift) + ((1 << shift) / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_a_bucket_whose_middle_is_within_the_stated_error() {
        for exponent in 0..EXPONENT_MAX {
            for step in 0..64 {
                let value = (1u64 << exponent) + ((1u64 << exponent) * step / 64);
                let error = middle_ns(bucket(value)).abs_diff(value);
                assert!(error as f64 <= value as f64 * 0.032, "{value}: off by {error}");
            }
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_of_a_known_distribution() {
        let mut histogram = Histogram::default();
        (1..=1000).for_each(|value| histogram.record(value * 1000));
        let summary = histogram.summary();
        for (found, expected) in
            [(summary.p50_ns, 500_000), (summary.p90_ns, 900_000), (summary.p99_ns, 990_000), (summary.p999_ns, 999_000)]
        {
            assert!(found.abs_diff(expected) <= expected / 25, "{found} for {expected}");
        }
        assert_eq!((summary.count, summary.mean_ns, summary.max_ns), (1000, 500_500, 1_000_000));
    }

    #[test]
    fn counts_below_bounds_are_those_of_the_values() {
        let mut histogram = Histogram::default();
        (1..=1000).for_each(|value| histogram.record(value * 1000));
        let bounds = [100, 100_000, 500_000, 1_000_000_000];
        for (found, expected) in histogram.counts_below(&bounds).into_iter().zip([0u64, 100, 500, 1000]) {
            assert!(found.abs_diff(expected) <= expected / 16, "{found} for {expected}");
        }
        assert_eq!(histogram.counts_below(&[]), []);
        assert_eq!(Histogram::default().counts_below(&[1, 2]), [0, 0]);
    }

    #[test]
    fn merging_and_subtracting_are_inverse() {
        let (mut a, mut b) = (Histogram::default(), Histogram::default());
        (0..100).for_each(|value| a.record(value * 77));
        (0..50).for_each(|value| b.record(value * 7777));
        let before = a.clone();
        a.merge(&b);
        assert_eq!(a.count(), 150);
        assert_eq!(a.since(&before).percentile_ns(500), b.percentile_ns(500));
        assert_eq!(Histogram::default().summary(), LatencySummary::default());
    }
}
