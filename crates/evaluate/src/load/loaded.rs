//! What a load has brought, with whichever generator: hearth's generator on a device or in process, or fio.

use super::histogram::Histogram;
use crate::result::{Latency, Second};

/// What one second of a load counted (the last one may be shorter).
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Tally {
    /// Where it begins and ends, in seconds since the load began.
    pub span_s: (f64, f64),
    /// Reads that ended in it.
    pub reads: Histogram,
    /// Writes that ended in it.
    pub writes: Histogram,
    /// Bytes of these reads.
    pub read_bytes: u64,
    /// Bytes of these writes.
    pub written_bytes: u64,
}

impl Tally {
    /// As results have it. Its rate is I/Os a second.
    pub fn second(&self) -> Second {
        let count = self.reads.count() + self.writes.count();
        let sum_us = self.reads.mean_us() * self.reads.count() as f64 + self.writes.mean_us() * self.writes.count() as f64;
        Second {
            at_s: self.span_s.1,
            rate: count as f64 / (self.span_s.1 - self.span_s.0).max(1e-9),
            mean_us: (count > 0).then(|| sum_us / count as f64),
            hit_ratio: None,
        }
    }

    pub(super) fn merge(&mut self, other: &Tally) {
        self.reads.merge(&other.reads);
        self.writes.merge(&other.writes);
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
    }
}

/// What a load has brought. [`Loaded::after`] cuts its warm-up off.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Loaded {
    /// Second by second; rates are I/Os a second, hit ratios are not known here.
    pub series: Vec<Second>,
    /// Of reads and writes together, named so; all zero if there was not one.
    pub latency: Latency,
    /// The reads alone.
    pub reads: Part,
    /// The writes alone.
    pub writes: Part,
    /// I/Os a second.
    pub rate: f64,
    /// Bytes a second, both ways.
    pub bytes_per_s: f64,
    /// How long the load ran (or, of a part, how long that is), in seconds.
    pub wall_s: f64,
    /// Requests of an open loop that were due and still not answered a tenth of its time (at least 2 s) after its end: they are in no other figure, and
    /// the load was more than the device can do.
    pub unanswered: u64,
    /// What the figures come from.
    tallies: Vec<Tally>,
}

/// The reads or the writes of a load.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Part {
    /// How many.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// A second.
    pub rate: f64,
    /// Their response times; `None` if there were none.
    pub latency: Option<Latency>,
    /// The same, to be asked for more: [`Histogram::share_within_us`], [`Histogram::quantile_us`].
    pub histogram: Histogram,
}

impl Loaded {
    /// Of what was counted second by second, in order.
    pub fn of(tallies: Vec<Tally>) -> Loaded {
        let wall_s = tallies.iter().map(|tally| tally.span_s.1 - tally.span_s.0).sum();
        let mut total = Tally::default();
        tallies.iter().for_each(|tally| total.merge(tally));
        Loaded { series: tallies.iter().map(Tally::second).collect(), tallies, ..Loaded::whole(total, wall_s) }
    }

    /// With totals that are known better than their seconds (fio's own), and the seconds.
    pub(super) fn with_totals(total: Tally, wall_s: f64, tallies: Vec<Tally>) -> Loaded {
        Loaded { series: tallies.iter().map(Tally::second).collect(), tallies, ..Loaded::whole(total, wall_s) }
    }

    fn whole(total: Tally, wall_s: f64) -> Loaded {
        let by_second = |amount: f64| if wall_s > 0.0 { amount / wall_s } else { 0.0 };
        let mut both = total.reads.clone();
        both.merge(&total.writes);
        let part = |histogram: Histogram, bytes: u64, of: &str| Part {
            count: histogram.count(),
            bytes,
            rate: by_second(histogram.count() as f64),
            latency: histogram.latency(of),
            histogram,
        };
        Loaded {
            rate: by_second(both.count() as f64),
            bytes_per_s: by_second((total.read_bytes + total.written_bytes) as f64),
            latency: both.latency("reads and writes").unwrap_or_default(),
            reads: part(total.reads, total.read_bytes, "reads"),
            writes: part(total.writes, total.written_bytes, "writes"),
            wall_s,
            ..Loaded::default()
        }
    }

    /// The part from a cut on (in seconds since the load began), so that a warm-up counts in no figure: whole seconds that begin there or later. Their
    /// times in the series stay those since the load began.
    #[must_use]
    pub fn after(&self, cut_s: f64) -> Loaded {
        Loaded::of(self.tallies.iter().filter(|tally| tally.span_s.0 >= cut_s - 1e-3).cloned().collect())
    }

    /// Reads and writes together.
    pub fn both(&self) -> Histogram {
        let mut both = self.reads.histogram.clone();
        both.merge(&self.writes.histogram);
        both
    }

    /// The rates of the series, as [`crate::settled`] takes them; a last second that is not a whole one is left out.
    pub fn rates(&self) -> Vec<f64> {
        let whole = self.tallies.iter().filter(|tally| tally.span_s.1 - tally.span_s.0 > 0.5);
        whole.map(|tally| tally.second().rate).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(second: u32, reads: u64, ns: u64) -> Tally {
        let mut tally = Tally { span_s: (f64::from(second), f64::from(second + 1)), read_bytes: reads * 4096, ..Tally::default() };
        (0..reads).for_each(|_| tally.reads.record(ns));
        tally.writes.record(2 * ns);
        tally.written_bytes = 4096;
        tally
    }

    #[test]
    fn figures_are_those_of_the_seconds_and_a_warm_up_counts_in_none() {
        let loaded = Loaded::of(vec![tally(0, 9, 1_000_000), tally(1, 99, 100_000), tally(2, 199, 50_000)]);
        assert_eq!((loaded.reads.count, loaded.writes.count, loaded.reads.bytes), (307, 3, 307 * 4096));
        assert!((loaded.rate - 310.0 / 3.0).abs() < 1e-9 && (loaded.bytes_per_s - 310.0 / 3.0 * 4096.0).abs() < 1e-6);
        assert_eq!(loaded.rates(), [10.0, 100.0, 200.0]);
        assert!((loaded.series[0].mean_us.expect("some") - 1100.0).abs() < 1e-6);
        let steady = loaded.after(1.0);
        assert_eq!((steady.reads.count, steady.wall_s, steady.series[0].at_s), (298, 2.0, 2.0));
        let slowest = steady.latency.cdf.last().expect("some").0;
        assert!(slowest < 210.0, "the slow second is gone, and the slowest is {slowest} us");
        assert_eq!(steady.latency.of, "reads and writes");
        assert_eq!(loaded.after(100.0), Loaded::of(Vec::new()));
        assert_eq!(loaded.after(100.0).rate, 0.0);
    }
}
