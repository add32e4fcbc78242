//! The measures of the store's motion: what is forgotten, how long a lap takes, how much of it is stale.
//!
//! Smoothed over about ten regions, so that the policy follows a workload within a sixth of a lap of 64 regions.

/// Weight of the newest region in the means: ten regions.
const REGION_WEIGHT: f32 = 0.1;
/// Least weight of one forgotten block in their mean count.
const FORGOTTEN_WEIGHT_MIN: f32 = 1.0 / 4096.0;
/// Largest weight of one forgotten block in their mean count.
const FORGOTTEN_WEIGHT_MAX: f32 = 1.0 / 32.0;
/// Forgotten blocks over which their mean count is taken, as a share of the SSD.
const FORGOTTEN_SHARE: f32 = 1.0 / 24.0;
/// A count fades to nothing over this many accesses per block of capacity. On the recorded traces, in the model of the appending log, 20 closed
/// 24 / 10 / -19 % of the gap from LRU to Belady at 1 / 10 / 30 % of the footprint, 40 closes 26 / 9 / -19 % with fewer SSD writes at 1 % (0.27 of
/// admit-always against 0.29), 60 closes 27 / 8 / -19 %.
pub(crate) const FADE_LAPS: u64 = 40;
/// A lap never fades a count below this part.
const FADED_PART_MIN: f32 = 0.25;
/// Regions in which nothing is forgotten lower the bar for admission by this factor each.
const BAR_EASING: f32 = 0.98;
/// Weight of the newest region in the mean use of judged blocks: 200 regions, some laps.
const USE_WEIGHT: f32 = 0.005;
/// Where a smaller part of judged blocks was used over some laps, the traffic has no re-use that one touch could foretell: nothing enters without
/// proof. A scan or a stream of new blocks then stops writing to the SSD.
const USED_PART_MIN: f32 = 0.02;
/// The mean use to begin with, before anything is known.
const USED_PART_INITIAL: f32 = 0.25;
/// Part of each region that must come free when the oldest is taken back. A compromise: in a prototype with an appending log 0.5 saved
/// fewer misses at 10 and 30 % of the footprint, and 0.2 (with more kept per stale record) saved more for 1.5 times the SSD writes.
const FREED_PART_MIN: f32 = 0.3;

/// The most that is left of the credit for keeping a block when one was kept.
const CREDIT_MAX: f32 = 1.0 - f32::EPSILON;

/// See the module.
#[derive(Debug)]
pub(crate) struct Pace {
    capacity_blocks: f32,
    ssd_blocks: f32,
    forgotten_weight: f32,
    /// Mean count of the blocks forgotten lately: the bar for admission.
    bar: f32,
    /// Mean part of judged blocks that was used.
    used_part: f32,
    /// Part of a count that is left after a lap.
    faded_part: f32,
    /// Part of the unused judged blocks to keep.
    keep_unused: f32,
    /// Keeping accumulated from block to block; one is kept when it reaches 1.
    keep_credit: f32,
    means: PerRegion,
    current: PerRegion,
}

/// What happens while one region is filled.
#[derive(Clone, Copy, Debug, Default)]
struct PerRegion {
    accesses: f32,
    appended: f32,
    judged_used: f32,
    judged_unused: f32,
    forgotten: f32,
}

impl Pace {
    pub(crate) fn new(ram_blocks: u64, ssd_blocks: u64) -> Pace {
        let ssd = ssd_blocks.max(1) as f32;
        Pace {
            capacity_blocks: (ram_blocks + ssd_blocks).max(1) as f32,
            ssd_blocks: ssd,
            forgotten_weight: (1.0 / (ssd * FORGOTTEN_SHARE)).clamp(FORGOTTEN_WEIGHT_MIN, FORGOTTEN_WEIGHT_MAX),
            bar: 0.0,
            used_part: USED_PART_INITIAL,
            faded_part: 1.0,
            keep_unused: 0.0,
            keep_credit: 0.0,
            means: PerRegion::default(),
            current: PerRegion::default(),
        }
    }

    #[inline]
    pub(crate) fn on_access(&mut self) {
        self.current.accesses += 1.0;
    }

    /// A clean block is appended, for the first time or again.
    pub(crate) fn on_append(&mut self) {
        self.current.appended += 1.0;
    }

    /// A judged block of this (faded) count is forgotten.
    pub(crate) fn on_forget(&mut self, frequency: f32) {
        self.current.forgotten += 1.0;
        self.bar += (frequency - self.bar) * self.forgotten_weight;
    }

    /// Whether a block of this count is worth more than what the store forgets.
    pub(crate) fn is_worth_admitting(&self, frequency: u8) -> bool {
        let bar = if self.used_part < USED_PART_MIN { self.bar.max(1.0) } else { self.bar };
        f32::from(frequency) > bar
    }

    /// A count after a lap of the store.
    pub(crate) fn faded(&self, frequency: u8) -> f32 {
        f32::from(frequency) * self.faded_part
    }

    /// Whether a judged block stays: each used one does, and a part of the others.
    pub(crate) fn keeps_judged(&mut self, used: bool) -> bool {
        if used {
            self.current.judged_used += 1.0;
            return true;
        }
        self.current.judged_unused += 1.0;
        let credit = self.keep_credit + self.keep_unused;
        let keep = credit >= 1.0;
        // Two numbers just below one and one make two, rounded: what is left must not be a block's.
        self.keep_credit = if keep { (credit - 1.0).min(CREDIT_MAX) } else { credit };
        keep
    }

    pub(crate) fn on_region_begun(&mut self) {
        let now = core::mem::take(&mut self.current);
        if now.forgotten == 0.0 {
            self.bar *= BAR_EASING;
        }
        if now.judged_used + now.judged_unused == 0.0 {
            // The first lap, or nothing to judge: says nothing of what goes stale.
            return;
        }
        if self.means.appended == 0.0 {
            self.means = now;
        }
        self.used_part += (now.judged_used / (now.judged_used + now.judged_unused) - self.used_part) * USE_WEIGHT;
        let means = &mut self.means;
        for (mean, value) in [
            (&mut means.accesses, now.accesses),
            (&mut means.appended, now.appended),
            (&mut means.judged_used, now.judged_used),
            (&mut means.judged_unused, now.judged_unused),
        ] {
            *mean += (value - *mean) * REGION_WEIGHT;
        }
        self.faded_part = self.part_left_after_a_lap();
        self.keep_unused = self.part_of_unused_to_keep();
        self.check();
    }

    /// Parts are parts, and none of the measures has become no number, which would compare as neither more nor less for ever.
    fn check(&self) {
        let is_part = |part: f32| (0.0..1.001).contains(&part);
        assert!(is_part(self.used_part) && is_part(self.faded_part) && is_part(self.keep_unused), "parts of {self:?}");
        assert!(self.bar >= 0.0 && self.means.appended >= 0.0 && self.means.accesses >= 0.0, "means of {self:?}");
    }

    /// A lap lasts as long as it takes to append the whole store.
    fn part_left_after_a_lap(&self) -> f32 {
        let lap_accesses = self.means.accesses * self.ssd_blocks / self.means.appended.max(1.0);
        (1.0 - lap_accesses / (FADE_LAPS as f32 * self.capacity_blocks)).max(FADED_PART_MIN)
    }

    /// What was appended a lap ago and is not judged went stale. Let go of as many unused blocks less as went stale, but see that
    /// [`FREED_PART_MIN`] of what was appended comes free.
    fn part_of_unused_to_keep(&self) -> f32 {
        let PerRegion { appended, judged_used, judged_unused, .. } = self.means;
        let stale = (appended - judged_used - judged_unused).max(0.0);
        if judged_unused < 1.0 || judged_used + judged_unused < 1.0 {
            return 0.0;
        }
        let spare = stale + judged_unused - appended * FREED_PART_MIN;
        (stale.min(spare) / judged_unused).clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(pace: &mut Pace, appended: u32, unused: u32) -> u32 {
        (0..appended).for_each(|_| pace.on_append());
        let kept = (0..unused).filter(|_| pace.keeps_judged(false)).count() as u32;
        (kept..unused).for_each(|_| pace.on_forget(2.0));
        pace.on_region_begun();
        kept
    }

    /// The simulator found it (seed 88640103177): 0.99999994 and 1 are 2 in single precision.
    #[test]
    fn credit_for_keeping_a_block_never_grows_to_that_of_two() {
        let mut pace = Pace::new(100, 1000);
        for begun in [0.0, 0.5, 1.0 - f32::EPSILON, 1.0 - f32::EPSILON / 2.0] {
            (pace.keep_credit, pace.keep_unused) = (begun, 1.0);
            assert!((0..100).all(|_| pace.keeps_judged(false) && pace.keep_credit < 1.0), "{begun}");
        }
    }

    #[test]
    fn the_bar_follows_what_is_forgotten_and_is_low_while_nothing_is() {
        let mut pace = Pace::new(100, 1000);
        assert!(pace.is_worth_admitting(1));
        (0..50).for_each(|_| {
            region(&mut pace, 20, 20);
        });
        assert!(!pace.is_worth_admitting(1));
        assert!(pace.is_worth_admitting(3));
        (0..200).for_each(|_| {
            region(&mut pace, 20, 0);
        });
        assert!(pace.is_worth_admitting(1));
    }

    #[test]
    fn unused_blocks_are_kept_only_where_stale_ones_leave() {
        let mut pace = Pace::new(100, 1000);
        let kept: u32 = (0..100).map(|_| region(&mut pace, 20, 20)).sum();
        assert_eq!(kept, 0);
        let kept: u32 = (0..100).map(|_| region(&mut pace, 20, 4)).sum();
        assert!(kept > 300, "{kept} of 400 kept though most of the region is stale");
    }

    #[test]
    fn where_nothing_is_ever_used_nothing_enters_on_one_touch() {
        let mut pace = Pace::new(100, 1000);
        let lap = |pace: &mut Pace| {
            pace.keeps_judged(false);
            pace.on_forget(0.9);
            pace.on_region_begun();
        };
        (0..100).for_each(|_| lap(&mut pace));
        assert!(pace.is_worth_admitting(1), "what is forgotten has faded below 1");
        (0..900).for_each(|_| lap(&mut pace));
        assert!(!pace.is_worth_admitting(1));
        assert!(pace.is_worth_admitting(2));
    }

    #[test]
    fn used_blocks_are_always_kept() {
        let mut pace = Pace::new(100, 1000);
        assert!((0..1000).all(|_| pace.keeps_judged(true)));
    }
}
