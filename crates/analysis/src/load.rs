//! One load in one window of time: a sample of its lines, what was counted, and whether that is enough to
//! speak of sizes.

use crate::curve::{Curve, Size, size_for};
use crate::profile::Profile;
use crate::saved::{In, Out, Unreadable};
use crate::slices::Slices;
use crate::stack::Stack;

/// Re-references that a curve needs to rest on.
pub const REREFERENCES_MIN: f64 = 20_000.0;
/// The widest band, as a part of the size, with which a size is told.
pub const HALF_BAND_MAX: f64 = 0.10;
/// With a greater share of new lines at the end of the window, its hot set is not known yet.
pub const NEW_MAX: f64 = 0.20;
/// How far the size from the first three quarters of the window may be from that of all of it.
pub const GROWTH_MAX: f64 = 0.10;
/// How long the first slices of a window are.
const SLICE_MS: u64 = 5_000;

/// How writes of a volume act on what a cache holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Writes {
    /// A written line enters: write-back.
    Enter,
    /// A written line that is known is as good as one just read: write-through.
    Refresh,
    /// A written line is not cached any more: write-around.
    Remove,
}

/// What a write does to a list of lines.
pub(crate) fn write(stack: &mut Stack, hash: u64, writes: Writes) {
    let enters = match writes {
        Writes::Enter => true,
        Writes::Refresh => stack.holds(hash),
        Writes::Remove => return stack.remove(hash),
    };
    if enters {
        // How far back it reaches is of no interest: a write is absorbed wherever it goes.
        let _ = stack.reference(hash);
    }
}

/// Why a size cannot be told yet.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum NotYet {
    /// Too few re-references: how many there are, of [`REREFERENCES_MIN`].
    TooFew {
        /// Estimated from the sample.
        rereferences: f64,
    },
    /// The window is too short to compare its end with its beginning.
    TooShort,
    /// The band is too wide.
    TooWide {
        /// As a part of the size; the limit is [`HALF_BAND_MAX`].
        half_band: f64,
    },
    /// Too many lines are new at the end of the window.
    StillNew {
        /// Their share; the limit is [`NEW_MAX`].
        share: f64,
    },
    /// The size grows (or shrinks) with the window.
    Grows {
        /// From the first three quarters of the window, in lines.
        before: f64,
        /// From all of it, in lines.
        now: f64,
    },
}

/// See the module.
#[derive(Clone)]
pub struct Load {
    stack: Stack,
    profile: Profile,
    slices: Slices,
    now_ms: u64,
}

impl Load {
    /// Bytes that one takes which samples at most that many lines.
    #[must_use]
    pub fn bytes_of(lines_max: usize) -> usize {
        Stack::bytes_of(lines_max) + Profile::BYTES + Slices::BYTES
    }

    /// A window that begins now.
    #[must_use]
    pub fn new(now_ms: u64, lines_max: usize) -> Load {
        let (stack, profile) = (Stack::new(lines_max), Profile::default());
        Load { stack, profile, slices: Slices::new(now_ms, SLICE_MS), now_ms }
    }

    /// The window begins anew; what is known of the lines stays.
    pub fn restart(&mut self, now_ms: u64) {
        (self.profile, self.slices, self.now_ms) = (Profile::default(), Slices::new(now_ms, SLICE_MS), now_ms);
    }

    /// Time goes on.
    pub fn advance(&mut self, now_ms: u64) {
        self.now_ms = self.now_ms.max(now_ms);
        self.slices.advance(self.now_ms);
    }

    /// The time from the last step until now is no part of the window.
    pub(crate) fn rest_until(&mut self, now_ms: u64) {
        self.slices.shift(now_ms.saturating_sub(self.now_ms));
        self.now_ms = self.now_ms.max(now_ms);
    }

    /// How long the window is, in milliseconds.
    #[must_use]
    pub fn window_ms(&self) -> u64 {
        self.now_ms - self.slices.begun_ms()
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// Its lines' sample.
    #[must_use]
    pub fn stack(&self) -> &Stack {
        &self.stack
    }

    /// The same, to change it.
    pub fn stack_mut(&mut self) -> &mut Stack {
        &mut self.stack
    }

    /// What was counted.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Reads were made, to whatever lines, sampled or not.
    pub fn count(&mut self, reads: u64) {
        self.profile.count(reads);
        self.slices.count(reads);
    }

    /// A line was read. It counts only if it is sampled.
    pub fn read(&mut self, hash: u64) {
        if let Some(reused) = self.stack.reference(hash) {
            self.profile.note(hash, reused);
            self.slices.note(reused);
        }
    }

    /// A line was written.
    pub fn write(&mut self, hash: u64, writes: Writes) {
        write(&mut self.stack, hash, writes);
    }

    pub(crate) fn put(&self, out: &mut Out) {
        self.stack.put(out);
        self.profile.put(out);
        self.slices.put(out);
    }

    pub(crate) fn take(from: &mut In<'_>, lines_max: usize, begun_ms: u64, now_ms: u64) -> Result<Load, Unreadable> {
        let (stack, profile) = (Stack::take(from, lines_max)?, Profile::take(from)?);
        Ok(Load { stack, profile, slices: Slices::take(from, begun_ms, now_ms)?, now_ms })
    }

    /// The curve of all that was counted.
    #[must_use]
    pub fn curve(&self) -> Curve {
        Curve::of(&self.profile)
    }

    /// The size for a share of the re-references, whether or not it is known well enough.
    #[must_use]
    pub fn size_for(&self, share: f64) -> Option<Size> {
        size_for(&self.profile, self.stack.rate(), share)
    }

    /// Whether there are re-references enough to speak of.
    #[must_use]
    pub fn has_enough(&self) -> bool {
        self.curve().rereferences() >= REREFERENCES_MIN
    }

    /// The size for a share of the re-references (from 0 to 1), if it is known well enough.
    ///
    /// # Errors
    /// What is missing.
    pub fn told_size_for(&self, share: f64) -> Result<Size, NotYet> {
        let curve = self.curve();
        let rereferences = curve.rereferences();
        let size = self.size_for(share).filter(|_| rereferences >= REREFERENCES_MIN);
        let size = size.ok_or(NotYet::TooFew { rereferences })?;
        let parts = self.slices.parts().ok_or(NotYet::TooShort)?;
        if parts.new_in_last_quarter > NEW_MAX {
            return Err(NotYet::StillNew { share: parts.new_in_last_quarter });
        }
        let before = parts.first_three_quarters.lines_for(share).unwrap_or(0.0);
        if (before / size.lines - 1.0).abs() > GROWTH_MAX {
            return Err(NotYet::Grows { before, now: size.lines });
        }
        if size.half_band > HALF_BAND_MAX {
            return Err(NotYet::TooWide { half_band: size.half_band });
        }
        Ok(size)
    }
}

impl NotYet {
    /// About how much longer it takes, in milliseconds, for a window that is so long; `None`: that cannot be known.
    #[must_use]
    pub fn more_ms(self, window_ms: u64) -> Option<u64> {
        let times = |factor: f64| Some((window_ms as f64 * factor) as u64);
        match self {
            NotYet::TooFew { rereferences } if rereferences >= 1.0 => times(REREFERENCES_MIN / rereferences - 1.0),
            NotYet::TooFew { .. } | NotYet::StillNew { .. } => None,
            NotYet::TooShort => Some((4 * SLICE_MS).saturating_sub(window_ms).max(1000)),
            // An error shrinks with the root of what it is taken from.
            NotYet::TooWide { half_band } => times((half_band / HALF_BAND_MAX).powi(2) - 1.0),
            // If it stops growing now, the window must be so long that its last quarter holds no growth.
            NotYet::Grows { .. } => times(1.0 / 3.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line_hash;

    /// Reads of `lines` in a random order, so many a second.
    fn reads(load: &mut Load, seconds: std::ops::Range<u64>, lines: std::ops::Range<u64>) {
        for step in seconds.start * 1000..seconds.end * 1000 {
            load.advance(step);
            load.count(1);
            let line = lines.start + line_hash(step, 9) % (lines.end - lines.start);
            load.read(line_hash(line, 0));
        }
    }

    #[test]
    fn it_speaks_when_it_knows_and_says_what_is_missing_before() {
        let mut load = Load::new(0, 8192);
        reads(&mut load, 0..8, 0..1000);
        let early = load.told_size_for(0.9).expect_err("8,000 reads");
        assert!(matches!(early, NotYet::TooFew { rereferences } if (6900.0..7100.0).contains(&rereferences)), "{early:?}");
        let more_s = early.more_ms(load.window_ms()).expect("at this pace") / 1000;
        assert!((12..18).contains(&more_s), "{more_s}");
        reads(&mut load, 8..40, 0..1000);
        let size = load.told_size_for(0.9).expect("40,000 reads of 1,000 lines");
        // All lines alike: 90 % of the re-references need about 90 % of them.
        assert!((850.0..980.0).contains(&size.lines) && size.half_band <= HALF_BAND_MAX, "{size:?}");
    }

    #[test]
    fn a_working_set_that_grows_is_not_told() {
        let mut load = Load::new(0, 8192);
        reads(&mut load, 0..60, 0..1000);
        reads(&mut load, 60..80, 1000..4000);
        assert!(matches!(load.told_size_for(0.9), Err(NotYet::Grows { before, now }) if before < now), "{:?}", load.told_size_for(0.9));
        let mut all_new = Load::new(0, 8192);
        reads(&mut all_new, 0..60, 0..1000);
        for step in 60_000..80_000 {
            all_new.advance(step);
            all_new.count(1);
            all_new.read(line_hash(step, 0));
        }
        assert!(matches!(all_new.told_size_for(0.5), Err(NotYet::StillNew { share }) if share > 0.9));
    }

    #[test]
    fn few_lines_in_the_sample_make_a_wide_band() {
        let mut load = Load::new(0, 64);
        reads(&mut load, 0..100, 0..20_000);
        let told = load.told_size_for(0.9);
        assert!(matches!(told, Err(NotYet::TooWide { .. } | NotYet::Grows { .. })), "{told:?}");
    }

    #[test]
    fn a_write_acts_as_its_mode_says() {
        for (writes, hits) in [(Writes::Enter, true), (Writes::Refresh, false), (Writes::Remove, false)] {
            let mut load = Load::new(0, 64);
            load.write(7, writes);
            load.count(1);
            load.read(7);
            assert_eq!(load.curve().rereferences() > 0.5, hits, "{writes:?} of a line that is not cached");
        }
        let mut load = Load::new(0, 64);
        load.read(7);
        load.write(7, Writes::Remove);
        load.read(7);
        load.count(2);
        assert!(load.curve().rereferences() < 0.5, "it was written around the cache");
        load.restart(10);
        load.read(7);
        load.count(1);
        assert!(load.curve().rereferences() > 0.5, "a new window knows the lines of the one before");
    }
}
