//! A window of time in slices of equal length: what was counted in each, so that the window's end can be
//! compared with its beginning.

use crate::buckets::{BUCKETS, bucket_of};
use crate::curve::Curve;
use crate::saved::{In, Out, Unreadable};
use crate::stack::Reused;

/// Slices that are kept; when there are more, neighbours are joined and slices become twice as long.
pub const SLICES_MAX: usize = 16;

/// What was counted in one slice: a [`crate::Profile`] without its groups.
#[derive(Clone)]
struct Slice {
    reused: Vec<f32>,
    first: f64,
    references: u64,
}

impl Slice {
    fn new() -> Slice {
        Slice { reused: vec![0.0; BUCKETS], first: 0.0, references: 0 }
    }

    fn add(&mut self, other: &Slice) {
        self.reused.iter_mut().zip(&other.reused).for_each(|(here, there)| *here += there);
        self.first += other.first;
        self.references += other.references;
    }
}

/// See the module.
#[derive(Clone)]
pub struct Slices {
    slices: Vec<Slice>,
    length_ms: u64,
    begun_ms: u64,
    /// When the last slice ends.
    ends_ms: u64,
}

/// The share of references to new lines, and the curves, of parts of a window.
#[derive(Clone, Debug)]
pub struct Parts {
    /// Share of the references of the last quarter that went to lines never used before, from 0 to 1.
    pub new_in_last_quarter: f64,
    /// The curve of the first three quarters.
    pub first_three_quarters: Curve,
}

impl Slices {
    /// Bytes that one takes at most.
    pub const BYTES: usize = SLICES_MAX * (BUCKETS * 4 + 64);

    /// A window that begins now. Slices begin with this length.
    #[must_use]
    pub fn new(now_ms: u64, length_ms: u64) -> Slices {
        let length_ms = length_ms.max(1);
        Slices { slices: vec![Slice::new()], length_ms, begun_ms: now_ms, ends_ms: now_ms + length_ms }
    }

    /// When the window began.
    #[must_use]
    pub fn begun_ms(&self) -> u64 {
        self.begun_ms
    }

    /// Time goes on: what is counted from now on belongs to the slice of this moment.
    pub fn advance(&mut self, now_ms: u64) {
        // After a long rest there are as many slices as fit, not one for each that has passed.
        while now_ms >= self.ends_ms {
            if self.slices.len() == SLICES_MAX {
                self.join_neighbours();
            }
            if now_ms < self.ends_ms {
                return;
            }
            self.slices.push(Slice::new());
            self.ends_ms += self.length_ms;
        }
    }

    /// The window lies so much later.
    pub(crate) fn shift(&mut self, ms: u64) {
        self.begun_ms += ms;
        self.ends_ms += ms;
    }

    fn join_neighbours(&mut self) {
        self.slices = self
            .slices
            .chunks(2)
            .map(|pair| {
                let mut joined = pair[0].clone();
                pair[1..].iter().for_each(|other| joined.add(other));
                joined
            })
            .collect();
        self.length_ms *= 2;
        self.ends_ms = self.begun_ms + self.slices.len() as u64 * self.length_ms;
    }

    /// See [`crate::Profile::count`].
    pub fn count(&mut self, references: u64) {
        self.last().references += references;
    }

    /// See [`crate::Profile::note`].
    pub fn note(&mut self, reused: Reused) {
        let last = self.last();
        match reused.distance_lines {
            Some(lines) => last.reused[bucket_of(lines)] += reused.weight as f32,
            None => last.first += reused.weight,
        }
    }

    pub(crate) fn put(&self, out: &mut Out) {
        out.u64(self.length_ms);
        out.u32(self.slices.len() as u32);
        for slice in &self.slices {
            out.u64(slice.references);
            out.f64(slice.first);
            out.weights(&slice.reused);
        }
    }

    /// Those of a window from its beginning until now.
    pub(crate) fn take(from: &mut In<'_>, begun_ms: u64, now_ms: u64) -> Result<Slices, Unreadable> {
        let (length_ms, count) = (from.count()?, from.u32()? as usize);
        let ends_ms = length_ms.saturating_mul(count as u64).saturating_add(begun_ms);
        if !(1..=SLICES_MAX).contains(&count) || ends_ms <= now_ms || ends_ms - length_ms > now_ms {
            return Err(Unreadable::Nonsense("the slices of its window"));
        }
        let mut slices = Vec::with_capacity(count);
        for _ in 0..count {
            let (references, first) = (from.count()?, from.sum()?);
            let mut reused = [0.0; BUCKETS];
            from.weights(&mut reused)?;
            slices.push(Slice { reused: reused.to_vec(), first, references });
        }
        Ok(Slices { slices, length_ms, begun_ms, ends_ms })
    }

    fn last(&mut self) -> &mut Slice {
        self.slices.last_mut().expect("there is always one")
    }

    /// How the window's end compares with what came before. `None` while there are fewer than four
    /// slices, or one of the parts holds no references.
    #[must_use]
    pub fn parts(&self) -> Option<Parts> {
        let quarter = self.slices.len().div_ceil(4);
        if self.slices.len() < 4 {
            return None;
        }
        let sum = |slices: &[Slice]| {
            slices.iter().fold(Slice::new(), |mut sum, slice| {
                sum.add(slice);
                sum
            })
        };
        let (before, last) = self.slices.split_at(self.slices.len() - quarter);
        let (before, last) = (sum(before), sum(last));
        if before.references == 0 || last.references == 0 {
            return None;
        }
        let mut reused = [0.0; BUCKETS];
        reused.iter_mut().zip(&before.reused).for_each(|(to, from)| *to = f64::from(*from));
        let first_three_quarters = Curve::from_sums(reused, before.first, before.references as f64);
        Some(Parts { new_in_last_quarter: (last.first / last.references as f64).clamp(0.0, 1.0), first_three_quarters })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Reused = Reused { distance_lines: None, weight: 1.0 };
    const AGAIN: Reused = Reused { distance_lines: Some(10), weight: 1.0 };

    #[test]
    fn slices_join_and_nothing_is_lost() {
        let mut slices = Slices::new(500, 1000);
        for second in 0..1000 {
            slices.advance(500 + second * 1000);
            slices.count(2);
            slices.note(if second == 0 { FIRST } else { AGAIN });
        }
        assert!((SLICES_MAX / 2..=SLICES_MAX).contains(&slices.slices.len()));
        assert_eq!(slices.slices.iter().map(|slice| slice.references).sum::<u64>(), 2000);
        assert_eq!(slices.slices.iter().map(|slice| slice.reused[10] as u64).sum::<u64>(), 999);
        assert!((slices.slices[0].first - 1.0).abs() < 1e-9);
        assert_eq!(slices.ends_ms, 500 + slices.slices.len() as u64 * slices.length_ms);
        let parts = slices.parts().expect("a long window");
        assert!(parts.new_in_last_quarter.abs() < 1e-9);
    }

    #[test]
    fn new_lines_at_the_end_are_told() {
        let mut slices = Slices::new(0, 10);
        assert!(slices.parts().is_none());
        for step in 0..80 {
            slices.advance(step);
            slices.count(1);
            slices.note(if step >= 60 && step % 2 == 0 { FIRST } else { AGAIN });
        }
        assert!((slices.parts().expect("eight slices").new_in_last_quarter - 0.5).abs() < 1e-9);
    }

    #[test]
    fn a_long_rest_makes_long_slices() {
        let mut slices = Slices::new(0, 10);
        slices.count(5);
        slices.advance(1 << 40);
        assert!(slices.slices.len() <= SLICES_MAX && slices.ends_ms > 1 << 40);
        assert_eq!(slices.slices[0].references, 5);
    }
}
