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

/// Buckets of a [step](Histogram::steps).
const STEP_BUCKETS: usize = 4;

/// Steps of [`Histogram::steps`].
pub const LATENCY_STEPS: usize = BUCKETS / STEP_BUCKETS;

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

    /// What was counted in steps as wide as a quarter of a power of two, which take less room where many histograms are kept: (step, count), of those with
    /// any, in ascending order.
    pub fn steps(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let sums = self.counts.chunks(STEP_BUCKETS).map(|counts| counts.iter().sum::<u64>());
        sums.enumerate().filter(|(_, count)| *count > 0)
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

/// [`Histogram::percentile_ns`] of counts in [steps](Histogram::steps), by step; None if nothing was counted. The middle of
/// the step that has it: within 12.5 % of the exact one.
pub fn percentile_of_steps_ns(counts: &[f64], per_mille: u32) -> Option<f64> {
    let total: f64 = counts.iter().sum();
    let rank = (total * f64::from(per_mille) / 1000.0).ceil().max(1.0);
    let mut below = 0.0;
    for (step, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0.0) {
        if below + count >= rank {
            let (from_ns, to_ns) = (start_ns(step * STEP_BUCKETS) as f64, start_ns((step + 1) * STEP_BUCKETS) as f64);
            return Some(f64::midpoint(from_ns, to_ns));
        }
        below += count;
    }
    None
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

fn start_ns(bucket: usize) -> u64 {
    match (bucket / LINEAR).checked_sub(1) {
        None => bucket as u64,
        Some(shift) => ((bucket % LINEAR + LINEAR) as u64) << shift,
    }
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
    fn percentiles_of_merged_steps_are_those_of_all_durations() {
        // A thousand seconds of 99 requests of 200 µs and a bit, and one second in which five took 325 ms.
        let mut counts = [0.0; LATENCY_STEPS];
        let mut all = Histogram::default();
        for second in 0..1000u64 {
            let mut histogram = Histogram::default();
            (0..99).for_each(|request| histogram.record(200_000 + 500 * request));
            (0..5).filter(|_| second == 500).for_each(|_| histogram.record(325_000_000));
            histogram.steps().for_each(|(step, count)| counts[step] += count as f64);
            all.merge(&histogram);
        }
        for per_mille in [1, 500, 990, 999, 1000] {
            let (merged, exact) = (percentile_of_steps_ns(&counts, per_mille).unwrap(), all.percentile_ns(per_mille) as f64);
            assert!((merged - exact).abs() <= exact * 0.125, "{per_mille}: {merged}, not {exact}");
        }
        assert!(percentile_of_steps_ns(&counts, 990).unwrap() < 280_000.0, "one bad second is not the 99th percentile");
        assert_eq!(percentile_of_steps_ns(&[0.0; LATENCY_STEPS], 990), None);
    }

    #[test]
    fn every_duration_lies_in_the_step_that_is_told() {
        for exponent in 0..EXPONENT_MAX {
            for part in 0..16 {
                let value = (1u64 << exponent) + ((1u64 << exponent) * part / 16);
                let mut histogram = Histogram::default();
                histogram.record(value);
                let step = histogram.steps().next().unwrap().0;
                assert!((start_ns(step * 4)..start_ns(step * 4 + 4)).contains(&value), "{value} in {step}");
            }
        }
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
