//! From counts to a curve: which share of the references a cache of some size would answer.
//!
//! The share is that of *re-references*, which is what a cache in its steady state can answer; the
//! first reference to a line is a miss in any cache.
//!
//! The band of a size has three parts. The groups of a profile, left out one by one (a jackknife), tell
//! how much the size hangs on which lines were sampled. All groups share one stack and so one error of
//! scale: the number of sampled lines that fit into the cache is a number of successes, with the
//! variance of such a number. And distances are known by their class only. Each part alone is too
//! narrow for some loads.

use crate::buckets::{BUCKETS, first_of};
use crate::profile::{GROUPS, Profile};

/// Standard errors in half a band: Student's factor for 15 degrees of freedom and 95 %.
const HALF_BAND_ERRORS: f64 = 2.13;
/// No band is narrower than this: the classes of distances and the load itself are not known better.
const HALF_BAND_MIN: f64 = 0.01;

/// Hits by cache size, for a cache that drops what was used least recently.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Behind each class of distance: references with this distance or a shorter one.
    hits: [f64; BUCKETS],
    rereferences: f64,
}

/// A size that was asked for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Size {
    /// In lines.
    pub lines: f64,
    /// How far off it may be, as a part of it: the truth lies within it 19 times of 20.
    pub half_band: f64,
}

impl Curve {
    /// The curve of what was counted.
    #[must_use]
    pub fn of(profile: &Profile) -> Curve {
        Curve::without(profile, None)
    }

    fn without(profile: &Profile, group: Option<usize>) -> Curve {
        let (reused, first) = profile.without(group);
        Curve::from_sums(reused, first, profile.references() as f64)
    }

    /// The curve of references by class of distance, of those to new lines, and of how many there
    /// were, sampled or not.
    pub(crate) fn from_sums(reused: [f64; BUCKETS], first: f64, references: f64) -> Curve {
        // A sample that holds too few or too many of the hottest lines has too few or too many
        // references; hot lines have short distances (SHARDS-adj).
        let mut sum = references - first - reused.iter().sum::<f64>();
        let hits = reused.map(|weight| {
            sum += weight;
            sum.max(0.0)
        });
        Curve { hits, rereferences: (references - first).max(0.0) }
    }

    /// Share of the re-references that a cache of so many lines answers, from 0 to 1.
    #[must_use]
    pub fn hits(&self, lines: f64) -> f64 {
        if self.rereferences <= 0.0 || lines < 1.0 {
            return 0.0;
        }
        let at = self.point(lines);
        (at / self.rereferences).clamp(0.0, 1.0)
    }

    /// References that were made to lines that had been used before, estimated.
    #[must_use]
    pub fn rereferences(&self) -> f64 {
        self.rereferences
    }

    /// The smallest cache, in lines, that answers this share of the re-references (from 0 to 1).
    /// `None`: there are none.
    #[must_use]
    pub fn lines_for(&self, share: f64) -> Option<f64> {
        if self.rereferences <= 0.0 {
            return None;
        }
        let wanted = share.clamp(0.0, 1.0) * self.rereferences;
        // Sums of the same numbers in another order: the last class reaches the whole but for rounding.
        let bucket = self.hits.iter().position(|hits| *hits >= wanted * (1.0 - 1e-12))?;
        let (before, after) = (if bucket == 0 { 0.0 } else { self.hits[bucket - 1] }, self.hits[bucket]);
        let part = if after > before { ((wanted - before) / (after - before)).clamp(0.0, 1.0) } else { 1.0 };
        let (first, next) = (first_of(bucket) as f64, first_of(bucket + 1) as f64);
        // The longest distance of the class is one less than where the next begins.
        Some((first - 1.0 + part * (next - first)).max(1.0))
    }

    /// References with at most this distance; within a class they lie evenly.
    fn point(&self, lines: f64) -> f64 {
        let bucket = crate::buckets::bucket_of(lines as u64);
        let (first, next) = (first_of(bucket) as f64, first_of(bucket + 1) as f64);
        let part = ((lines + 1.0 - first) / (next - first)).clamp(0.0, 1.0);
        let before = if bucket == 0 { 0.0 } else { self.hits[bucket - 1] };
        before + part * (self.hits[bucket] - before)
    }
}

/// The smallest cache that answers this share of the re-references, with its band. `rate` is the share
/// of lines that are sampled ([`crate::Stack::rate`]). `None`: there are no re-references.
#[must_use]
pub fn size_for(profile: &Profile, rate: f64, share: f64) -> Option<Size> {
    let lines = Curve::of(profile).lines_for(share)?;
    let logs: Vec<f64> = (0..GROUPS).filter_map(|group| Curve::without(profile, Some(group)).lines_for(share)).map(f64::ln).collect();
    let count = logs.len() as f64;
    let mean = logs.iter().sum::<f64>() / count;
    let jackknife = (count - 1.0) / count * logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>();
    let of_scale = (1.0 - rate) / (rate * lines);
    // Where in its class the size lies is not known: the variance of an even spread over its width.
    let bucket = crate::buckets::bucket_of(lines as u64);
    let width = (first_of(bucket + 1) - first_of(bucket)) as f64 / lines;
    let of_class = width * width / 12.0;
    let half_band = (HALF_BAND_ERRORS * (jackknife + of_scale + of_class).sqrt()).max(HALF_BAND_MIN);
    // A band that is not a number is one without end.
    Some(Size { lines, half_band: if half_band.is_finite() { half_band } else { f64::INFINITY } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Stack, line_hash};

    /// Every line of so many, again and again in order: all re-references reach as far.
    fn round_and_round(lines: u64, rounds: u64) -> Profile {
        let (mut stack, mut profile) = (Stack::new(1 << 16), Profile::default());
        for n in 0..lines * rounds {
            let hash = line_hash(n % lines, 0);
            profile.count(1);
            profile.note(hash, stack.reference(hash).expect("all are sampled"));
        }
        profile
    }

    #[test]
    fn a_cycle_is_hit_by_a_cache_that_holds_it_and_by_none_that_is_smaller() {
        // As many as a class begins with and holds alone.
        let profile = round_and_round(8, 10);
        let curve = Curve::of(&profile);
        assert_eq!((curve.hits(7.0), curve.hits(8.0), curve.hits(1e9)), (0.0, 1.0, 1.0));
        assert_eq!((curve.lines_for(1.0), curve.rereferences()), (Some(8.0), 72.0));
        // Wider classes: within an eighth.
        let large = Curve::of(&round_and_round(10_000, 3)).lines_for(0.9).expect("there are some");
        assert!((large / 10_000.0 - 1.0).abs() < 0.125, "{large}");
    }

    #[test]
    fn what_was_never_used_again_needs_no_cache() {
        let profile = round_and_round(100, 1);
        assert_eq!((Curve::of(&profile).lines_for(0.9), Curve::of(&profile).hits(50.0)), (None, 0.0));
        assert_eq!(size_for(&profile, 1.0, 0.9), None);
        assert_eq!(size_for(&Profile::default(), 1.0, 0.5), None);
    }

    #[test]
    fn spans_add_up() {
        let (one, two) = (round_and_round(50, 4), round_and_round(20, 9));
        let mut both = one.clone();
        both.add(&two);
        assert_eq!(both.references(), one.references() + two.references());
        assert_eq!(both.sampled(), 150 + 160);
        assert!((both.first_references() - 70.0).abs() < 1e-9);
        // 160 of 310 reach 20 lines, the others 50.
        let curve = Curve::of(&both);
        assert!((curve.hits(30.0) - 160.0 / 310.0).abs() < 1e-9);
    }
}
