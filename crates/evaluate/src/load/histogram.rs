//! Counts of response times, log-linear: each power of two of nanoseconds is cut into 64 buckets, so the middle of a bucket is within 0.8 % of all
//! that it counts. Below 128 ns each value has its own. These are the buckets of fio too (its `stat.h`, "How to compute the size of a bin"), so that
//! what fio counted and what was counted here are told alike. (`runtime::Histogram` is coarser: it is on the way of every request. The crate
//! hdrhistogram has other buckets than fio, and no exact mean.)

use crate::result::Latency;
use std::collections::BTreeMap;

/// Buckets per power of two: 64.
const LINEAR_BITS: u32 = 6;
const LINEAR: u64 = 1 << LINEAR_BITS;
/// Response times from here on count in the last bucket: 2^40 ns, 18 minutes.
const EXPONENT_MAX: u32 = 40;
/// How many buckets there are.
pub const BUCKETS: usize = ((EXPONENT_MAX - LINEAR_BITS + 1) as usize) << LINEAR_BITS;
/// The most points of a distribution in a result.
const POINTS_MAX: usize = 200;
/// What results tell: names and shares.
const PERCENTILES: [(&str, f64); 5] = [("50", 0.5), ("90", 0.9), ("95", 0.95), ("99", 0.99), ("99.9", 0.999)];

/// Counts of response times in nanoseconds. Empty ones, and those of a second of a slow disk, are small.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Histogram {
    /// As long as the highest bucket that counts.
    counts: Vec<u64>,
    count: u64,
    sum_ns: f64,
}

impl Histogram {
    /// Counts one.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.add(bucket(ns), 1);
        self.sum_ns += ns as f64;
    }

    /// Counts many of one bucket, each as long as its middle.
    pub fn record_bucket(&mut self, bucket: usize, count: u64) {
        if count > 0 {
            let bucket = bucket.min(BUCKETS - 1);
            self.add(bucket, count);
            self.sum_ns += middle_ns(bucket) * count as f64;
        }
    }

    fn add(&mut self, bucket: usize, count: u64) {
        if self.counts.len() <= bucket {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += count;
        self.count += count;
    }

    /// The same counts with a mean that is known better.
    pub(super) fn with_mean_ns(self, mean_ns: f64) -> Histogram {
        Histogram { sum_ns: mean_ns * self.count as f64, ..self }
    }

    /// Adds what another one counted.
    pub fn merge(&mut self, other: &Histogram) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        self.counts.iter_mut().zip(&other.counts).for_each(|(mine, theirs)| *mine += theirs);
        self.count += other.count;
        self.sum_ns += other.sum_ns;
    }

    /// What was counted since it was as `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Histogram) -> Histogram {
        let before = earlier.counts.iter().copied().chain(std::iter::repeat(0));
        let counts: Vec<u64> = self.counts.iter().zip(before).map(|(now, before)| now.saturating_sub(before)).collect();
        Histogram { count: counts.iter().sum(), counts, sum_ns: (self.sum_ns - earlier.sum_ns).max(0.0) }
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The mean in microseconds (exact, where single times were counted); 0 if there is none.
    pub fn mean_us(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum_ns / self.count as f64 / 1000.0 }
    }

    /// The time in microseconds that this share (0 to 1) of all does not exceed: the middle of a bucket; 0 if there is none.
    pub fn quantile_us(&self, share: f64) -> f64 {
        let rank = ((self.count as f64 * share).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return middle_ns(bucket) / 1000.0;
            }
        }
        0.0
    }

    /// The share of all that took at most so long, exact to the width of a bucket; `None` if there is none.
    pub fn share_within_us(&self, us: f64) -> Option<f64> {
        let within = self.counts.iter().enumerate().take_while(|(bucket, _)| middle_ns(*bucket) <= us * 1000.0);
        (self.count > 0).then(|| within.map(|(_, count)| *count).sum::<u64>() as f64 / self.count as f64)
    }

    /// As results have it; `None` if nothing was counted.
    pub fn latency(&self, of: &str) -> Option<Latency> {
        let percentiles_us: BTreeMap<_, _> = PERCENTILES.iter().map(|(name, share)| ((*name).into(), self.quantile_us(*share))).collect();
        (self.count > 0).then(|| Latency { of: of.into(), mean_us: self.mean_us(), percentiles_us, cdf: self.cdf() })
    }

    /// The distribution: where the first bucket begins and nothing has been answered yet, then ends of buckets. Where there are too many, those stay at
    /// which share and time have gone far enough, taken together, so that both the steep part and the long tail keep their shape.
    fn cdf(&self) -> Vec<(f64, f64)> {
        let used = |bucket: &usize| self.counts[*bucket] > 0;
        let (Some(first), Some(last)) = ((0..self.counts.len()).find(used), (0..self.counts.len()).rfind(used)) else { return Vec::new() };
        let octaves = (end_ns(last) / begin_ns(first).max(1.0)).log2().max(f64::MIN_POSITIVE);
        // The way is at most 2 long; the first point and the last one come on top.
        let step = if last - first < POINTS_MAX - 1 { 0.0 } else { 2.0 / (POINTS_MAX - 3) as f64 };
        let mut points = vec![(begin_ns(first) / 1000.0, 0.0)];
        let (mut seen, mut kept) = (0, 0.0);
        for bucket in (first..=last).filter(used) {
            seen += self.counts[bucket];
            let share = seen as f64 / self.count as f64;
            let way = share + (end_ns(bucket) / begin_ns(first).max(1.0)).log2() / octaves;
            if way - kept >= step || bucket == last {
                kept = way;
                points.push((end_ns(bucket) / 1000.0, share));
            }
        }
        points
    }
}

/// The bucket of a time.
pub fn bucket(ns: u64) -> usize {
    if ns < 2 * LINEAR {
        return ns as usize;
    }
    let exponent = ns.ilog2();
    if exponent >= EXPONENT_MAX {
        return BUCKETS - 1;
    }
    let shift = exponent - LINEAR_BITS;
    (((u64::from(shift) + 1) << LINEAR_BITS) + (ns >> shift) - LINEAR) as usize
}

/// Where a bucket begins and how wide it is, in nanoseconds.
fn span_ns(bucket: usize) -> (f64, f64) {
    let (bucket, linear) = (bucket as u64, LINEAR);
    if bucket < 2 * linear {
        return (bucket as f64, 1.0);
    }
    let shift = bucket / linear - 1;
    (((bucket % linear + linear) << shift) as f64, (1u64 << shift) as f64)
}

fn begin_ns(bucket: usize) -> f64 {
    span_ns(bucket).0
}

fn end_ns(bucket: usize) -> f64 {
    let (begin, width) = span_ns(bucket);
    begin + width
}

fn middle_ns(bucket: usize) -> f64 {
    let (begin, width) = span_ns(bucket);
    if width > 1.0 { begin + width / 2.0 } else { begin }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn every_time_is_within_a_hundredth_of_its_buckets_middle() {
        let mut before = 0;
        for exponent in 0..EXPONENT_MAX {
            for step in 0..200u64 {
                let ns = (1u64 << exponent) + ((1u128 << exponent) * u128::from(step) / 200) as u64;
                let found = bucket(ns);
                assert!(found >= before && found < BUCKETS, "buckets ascend: {found} after {before}");
                before = found;
                let (begin, end) = (begin_ns(found), end_ns(found));
                assert!(begin <= ns as f64 && (ns as f64) < end, "{ns} lies in {begin}..{end}");
                assert!((middle_ns(found) - ns as f64).abs() <= ns as f64 * 0.01, "{ns}");
            }
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        assert!((1..BUCKETS).all(|bucket| end_ns(bucket - 1) == begin_ns(bucket)), "without gaps");
    }

    #[test]
    fn quantiles_are_those_of_the_sorted_times() {
        let mut random = Random::new(3);
        let mut histogram = Histogram::default();
        // From 1 us to 1000 s, alike in all magnitudes.
        let mut times: Vec<u64> = (0..50_000).map(|_| (1000.0 * 10f64.powf(9.0 * random.unit())) as u64).collect();
        times.iter().for_each(|ns| histogram.record(*ns));
        times.sort_unstable();
        for (_, share) in PERCENTILES {
            let expected = times[(times.len() as f64 * share) as usize - 1] as f64 / 1000.0;
            let found = histogram.quantile_us(share);
            assert!((found - expected).abs() <= expected * 0.01, "{share}: {found} for {expected}");
        }
        let mean = times.iter().sum::<u64>() as f64 / times.len() as f64 / 1000.0;
        assert!((histogram.mean_us() - mean).abs() < mean * 1e-9);
        let within = times.iter().filter(|ns| **ns <= 1_000_000).count() as f64 / times.len() as f64;
        assert!((histogram.share_within_us(1000.0).expect("some") - within).abs() < 1e-3);
    }

    #[test]
    fn the_distribution_has_few_points_that_lie_on_it() {
        let mut random = Random::new(4);
        let mut histogram = Histogram::default();
        (0..100_000).for_each(|_| histogram.record((50_000.0 * 10f64.powf(3.0 * random.unit().powi(4))) as u64));
        let latency = histogram.latency("reads").expect("some");
        assert!((100..=POINTS_MAX).contains(&latency.cdf.len()), "{} points", latency.cdf.len());
        assert!(latency.cdf.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1), "both ascend");
        assert_eq!((latency.cdf[0].1, latency.cdf[latency.cdf.len() - 1].1), (0.0, 1.0));
        for (us, share) in &latency.cdf[1..] {
            let found = histogram.share_within_us(*us).expect("some");
            assert!((found - share).abs() < 1e-9, "{us} us: {share}, not {found}");
        }
        // No piece hides more than a fiftieth of the answers unless it is a single bucket.
        assert!(latency.cdf.windows(2).all(|pair| pair[1].1 - pair[0].1 < 0.02 || pair[1].0 / pair[0].0 < 1.02), "{:?}", latency.cdf);
        assert_eq!(Histogram::default().latency("reads"), None);
    }

    #[test]
    fn merged_ones_count_what_both_did() {
        let (mut short, mut long, mut both) = (Histogram::default(), Histogram::default(), Histogram::default());
        for ns in 0..1000 {
            short.record(ns);
            long.record(ns * 1000);
            both.record(ns);
            both.record(ns * 1000);
        }
        short.merge(&long);
        assert_eq!(short.counts, both.counts);
        assert_eq!((short.count(), short.quantile_us(0.9)), (2000, both.quantile_us(0.9)));
        assert!((short.mean_us() - both.mean_us()).abs() < 1e-9);
        let since = both.since(&long);
        assert_eq!((since.count(), since.quantile_us(0.5)), (1000, 0.498));
        assert!((since.mean_us() - 0.4995).abs() < 1e-9);
    }
}
