//! What is counted of a load: how often its references reach how far back.

use crate::buckets::{BUCKETS, bucket_of};
use crate::saved::{In, Out, Unreadable};
use crate::stack::Reused;

/// Parts of the lines, by hash, that are counted apart: their differences tell the error.
pub const GROUPS: usize = 16;

/// Counts of one load in one span of time. Those of two spans can be added.
///
/// In single precision: a weight is lost only where it is smaller than a sixteen-millionth of its sum.
#[derive(Clone, PartialEq, Debug)]
pub struct Profile {
    /// By group and class of distance: references to lines that were used before.
    reused: Vec<[f32; BUCKETS]>,
    /// By group: references to lines that were never used before.
    first: [f64; GROUPS],
    references: u64,
    sampled: u64,
}

impl Default for Profile {
    fn default() -> Profile {
        Profile { reused: vec![[0.0; BUCKETS]; GROUPS], first: [0.0; GROUPS], references: 0, sampled: 0 }
    }
}

impl Profile {
    /// Bytes that one takes.
    pub const BYTES: usize = GROUPS * BUCKETS * 4 + GROUPS * 8 + 64;

    /// References were made, to whatever lines: all count, sampled or not.
    pub fn count(&mut self, references: u64) {
        self.references += references;
    }

    /// A sampled line was used; [`Profile::count`] counts it, too.
    pub fn note(&mut self, hash: u64, reused: Reused) {
        // The high bits decide what is sampled.
        let group = (hash >> 24) as usize % GROUPS;
        match reused.distance_lines {
            Some(lines) => {
                self.reused[group][bucket_of(lines)] += reused.weight as f32;
                self.sampled += 1;
            }
            None => self.first[group] += reused.weight,
        }
    }

    /// Adds the counts of another span.
    pub fn add(&mut self, other: &Profile) {
        for (here, there) in self.reused.iter_mut().zip(&other.reused) {
            here.iter_mut().zip(there).for_each(|(here, there)| *here += there);
        }
        self.first.iter_mut().zip(&other.first).for_each(|(here, there)| *here += there);
        self.references += other.references;
        self.sampled += other.sampled;
    }

    /// All references.
    #[must_use]
    pub fn references(&self) -> u64 {
        self.references
    }

    /// Sampled references to lines that were used before: what the curve rests on.
    #[must_use]
    pub fn sampled(&self) -> u64 {
        self.sampled
    }

    /// References to lines that were never used before, estimated: lines in all.
    #[must_use]
    pub fn first_references(&self) -> f64 {
        self.first.iter().sum()
    }

    pub(crate) fn put(&self, out: &mut Out) {
        out.u64(self.references);
        out.u64(self.sampled);
        for (reused, first) in self.reused.iter().zip(self.first) {
            out.f64(first);
            out.weights(reused);
        }
    }

    pub(crate) fn take(from: &mut In<'_>) -> Result<Profile, Unreadable> {
        let mut profile = Profile { references: from.count()?, sampled: from.count()?, ..Profile::default() };
        for (reused, first) in profile.reused.iter_mut().zip(&mut profile.first) {
            *first = from.sum()?;
            from.weights(reused)?;
        }
        Ok(profile)
    }

    /// Of all groups but one, or of all: references by class of distance, and those to new lines,
    /// scaled to the whole.
    pub(crate) fn without(&self, group: Option<usize>) -> ([f64; BUCKETS], f64) {
        let scale = group.map_or(1.0, |_| GROUPS as f64 / (GROUPS - 1) as f64);
        let (mut reused, mut first) = ([0.0; BUCKETS], 0.0);
        for of in (0..GROUPS).filter(|of| Some(*of) != group) {
            reused.iter_mut().zip(&self.reused[of]).for_each(|(sum, weight)| *sum += f64::from(*weight) * scale);
            first += self.first[of] * scale;
        }
        (reused, first)
    }
}
