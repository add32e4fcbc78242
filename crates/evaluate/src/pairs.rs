//! What pairs of runs say: each a baseline and a cached run right after each other, so that what disturbs the machine for long disturbs both.
//!
//! The figure is the gain, cached by baseline. Gains multiply (twice and half are equally far from one), so all is calculated with their logarithms: the
//! estimate is the geometric mean, the interval Student's for the mean of the logarithms of n pairs (n - 1 degrees of freedom). It holds for
//! normally distributed logarithms and is told with its n; with two pairs it is as wide as it has to be, with one there is none.

use serde::{Deserialize, Serialize};

/// One pair: what the figure was in the baseline and in the cached run. Both above zero.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Pair {
    /// Without the cache.
    pub baseline: f64,
    /// With it.
    pub cached: f64,
}

/// Which direction of a figure is the good one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// Rates.
    Higher,
    /// Times.
    Lower,
}

/// Why pairs say nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Useless {
    /// There is none.
    NoPairs,
    /// A figure is not a number above zero: the pair of this index.
    NotPositive(usize),
}

/// The gain that pairs show: above one is better, whatever the figure's good direction.
#[derive(Clone, PartialEq, Debug)]
pub struct Gain {
    /// Geometric mean of the pairs' gains.
    pub mean: f64,
    /// The middle one of them, or the geometric mean of the two in the middle.
    pub median: f64,
    /// Smallest and largest.
    pub range: (f64, f64),
    /// The 95 % interval of the geometric mean; `None` with one pair.
    pub interval: Option<(f64, f64)>,
    /// How many pairs.
    pub pairs: usize,
}

/// What may be said of a gain.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The interval lies above one.
    Better,
    /// The interval lies below one.
    Worse,
    /// The interval holds one.
    NoSignificantDifference,
    /// One pair says nothing about how much runs differ by themselves.
    OnePairOnly,
}

/// How a gain stands beside a published one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Beside {
    /// The whole interval lies at or above it.
    Beaten,
    /// The mean does, the interval's lower end does not: more pairs would tell.
    BeatenWithinNoise,
    /// The mean is below it, the interval reaches it.
    MissedWithinNoise,
    /// The whole interval lies below it.
    Missed,
}

impl Gain {
    /// What pairs show.
    ///
    /// # Errors
    /// Where there is nothing to be calculated with.
    pub fn of(pairs: &[Pair], better: Better) -> Result<Gain, Useless> {
        let mut logs = Vec::with_capacity(pairs.len());
        for (index, pair) in pairs.iter().enumerate() {
            let usable = |figure: f64| figure.is_finite() && figure > 0.0;
            if !usable(pair.baseline) || !usable(pair.cached) {
                return Err(Useless::NotPositive(index));
            }
            let log = pair.cached.ln() - pair.baseline.ln();
            logs.push(if better == Better::Higher { log } else { -log });
        }
        if logs.is_empty() {
            return Err(Useless::NoPairs);
        }
        logs.sort_by(f64::total_cmp);
        let count = logs.len();
        let mean = logs.iter().sum::<f64>() / count as f64;
        let median = (logs[(count - 1) / 2] + logs[count / 2]) / 2.0;
        let interval = (count > 1).then(|| {
            let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (count - 1) as f64;
            let half = t_quantile(count - 1) * (variance / count as f64).sqrt();
            ((mean - half).exp(), (mean + half).exp())
        });
        Ok(Gain { mean: mean.exp(), median: median.exp(), range: (logs[0].exp(), logs[count - 1].exp()), interval, pairs: count })
    }

    /// What may be said of it.
    pub fn verdict(&self) -> Verdict {
        match self.interval {
            None => Verdict::OnePairOnly,
            Some((low, _)) if low > 1.0 => Verdict::Better,
            Some((_, high)) if high < 1.0 => Verdict::Worse,
            Some(_) => Verdict::NoSignificantDifference,
        }
    }

    /// How it stands beside a published gain.
    pub fn beside(&self, published: f64) -> Beside {
        let (low, high) = self.interval.unwrap_or((0.0, f64::INFINITY));
        match self.mean >= published {
            true if low >= published => Beside::Beaten,
            true => Beside::BeatenWithinNoise,
            false if high >= published => Beside::MissedWithinNoise,
            false => Beside::Missed,
        }
    }
}

/// The two-sided 95 % quantile of Student's t (any table of it; to three decimals).
pub(crate) fn t_quantile(degrees: usize) -> f64 {
    const TABLE: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101,
        2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
    ];
    match degrees {
        0 => f64::INFINITY,
        // Cornish and Fisher's first term beyond the table: right to the third decimal from there on.
        _ => TABLE.get(degrees - 1).copied().unwrap_or(1.960 + 2.372 / degrees as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// Numbers close to normal ones: the sum of twelve uniform ones.
    struct Numbers(Random);

    impl Numbers {
        fn normal(&mut self) -> f64 {
            (0..12).map(|_| self.0.unit()).sum::<f64>() - 6.0
        }

        /// Pairs of a known gain: the machine's mood is the same in both runs of a pair, each run has noise of its own.
        fn pairs(&mut self, count: usize, gain: f64, noise: f64) -> Vec<Pair> {
            (0..count)
                .map(|_| {
                    let mood = 1000.0 * (0.5 * self.normal()).exp();
                    let mut run = |figure: f64| figure * (noise * self.normal()).exp();
                    Pair { baseline: run(mood), cached: run(mood * gain) }
                })
                .collect()
        }
    }

    /// How often each verdict was given for pairs of a known gain.
    fn share(verdict: Verdict, count: usize, gain: f64, noise: f64) -> f64 {
        let mut numbers = Numbers(Random::new(7));
        let all = 4000;
        let hits = (0..all).filter(|_| Gain::of(&numbers.pairs(count, gain, noise), Better::Higher).expect("good").verdict() == verdict);
        hits.count() as f64 / f64::from(all)
    }

    #[test]
    fn no_gain_is_called_no_gain_nineteen_times_of_twenty() {
        for count in [2, 3, 5, 10, 40] {
            let right = share(Verdict::NoSignificantDifference, count, 1.0, 0.1);
            assert!((0.93..=0.97).contains(&right), "{count} pairs: {right}");
        }
    }

    #[test]
    fn a_gain_of_two_is_found_in_spite_of_noise_and_moods() {
        assert!(share(Verdict::Better, 3, 2.0, 0.05) > 0.99);
        assert!(share(Verdict::Better, 5, 2.0, 0.15) > 0.97);
        assert!(share(Verdict::Worse, 5, 0.5, 0.15) > 0.97);
        // Where runs differ by more than the gain, nothing is claimed.
        assert!(share(Verdict::Better, 3, 1.1, 0.5) < 0.05);
    }

    #[test]
    fn the_interval_holds_the_truth_nineteen_times_of_twenty() {
        let mut numbers = Numbers(Random::new(11));
        for count in [3, 6, 35] {
            let mut held = 0;
            for _ in 0..4000 {
                let (low, high) = Gain::of(&numbers.pairs(count, 3.0, 0.2), Better::Higher).expect("good").interval.expect("more than one");
                held += u32::from((low..=high).contains(&3.0));
            }
            assert!((3720..=3880).contains(&held), "{count} pairs: {held} of 4000");
        }
    }

    #[test]
    fn lower_is_better_for_times() {
        let pairs = [Pair { baseline: 10.0, cached: 2.0 }, Pair { baseline: 8.0, cached: 2.0 }];
        let gain = Gain::of(&pairs, Better::Lower).expect("good");
        assert!((gain.mean - 20f64.sqrt()).abs() < 1e-9 && (gain.range.0 - 4.0).abs() < 1e-9 && (gain.range.1 - 5.0).abs() < 1e-9);
        assert_eq!(gain.pairs, 2);
        assert!((gain.median - gain.mean).abs() < 1e-9);
    }

    #[test]
    fn published_gains_are_beaten_missed_or_undecided() {
        let gain = |mean: f64, interval| Gain { mean, median: mean, range: (mean, mean), interval, pairs: 3 };
        assert_eq!(gain(9.0, Some((8.1, 10.0))).beside(8.02), Beside::Beaten);
        assert_eq!(gain(9.0, Some((7.0, 12.0))).beside(8.02), Beside::BeatenWithinNoise);
        assert_eq!(gain(7.0, Some((6.0, 8.5))).beside(8.02), Beside::MissedWithinNoise);
        assert_eq!(gain(7.0, Some((6.8, 7.2))).beside(8.02), Beside::Missed);
        assert_eq!(gain(9.0, None).beside(8.02), Beside::BeatenWithinNoise);
        assert_eq!(gain(9.0, None).verdict(), Verdict::OnePairOnly);
    }

    #[test]
    fn what_cannot_be_calculated_with_is_told() {
        assert_eq!(Gain::of(&[], Better::Higher), Err(Useless::NoPairs));
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let pairs = [Pair { baseline: 1.0, cached: 1.0 }, Pair { baseline: bad, cached: 1.0 }];
            assert_eq!(Gain::of(&pairs, Better::Higher), Err(Useless::NotPositive(1)));
        }
    }
}
