//! What two bits of an index entry can say of a block on the SSD: whether it was used since it was last judged, and
//! roughly how often it was fetched.
//!
//! The count has one bit, "about 1" or "about 4", kept by chance so that it is right on average (a Morris counter). In a prototype of this
//! policy on the recorded traces, in a log that overwrites in place, 1 and 4 closed 26 / 23 / 10 % of the gap from LRU to Belady at 1 / 10 / 30 % of
//! the footprint, four levels in two bits 28 / 22 / 11, 1 and 3 25 / 21 / 11, and 1 and 2 22 / 19 / 8.

/// Bits of an index entry that hold a block's [`Heat`].
pub const HEAT_BITS: u32 = 2;
/// Largest heat.
pub const HEAT_MAX: u8 = (1 << HEAT_BITS) - 1;
/// Largest count of fetches: what the ghost has bits for.
pub(crate) const FREQUENCY_MAX: u8 = 15;

const USED: u8 = 1;
const HOT: u8 = 2;
/// What the count bit stands for.
const FREQUENCY: [u8; 2] = [1, 4];

/// A block's use since it was last judged, and its count. Kept in the index entry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Heat(pub(super) u8);

impl Heat {
    /// The heat of these bits, as the index gives them: above [`HEAT_BITS`] is the part the block belongs to, where parts are kept.
    pub const fn from_bits(bits: u8) -> Heat {
        Heat(bits)
    }

    /// As stored in the index.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Used since it was admitted or last judged.
    pub const fn is_used(self) -> bool {
        self.0 & USED != 0
    }

    /// Not used, nor counted as fetched often.
    pub const fn is_idle(self) -> bool {
        self.0 & HEAT_MAX == 0
    }

    /// Counted as fetched about four times, not about once.
    pub const fn is_hot(self) -> bool {
        self.0 & HOT != 0
    }

    /// About how often the block was fetched.
    pub(crate) const fn frequency(self) -> u8 {
        FREQUENCY[self.is_hot() as usize]
    }

    /// Fetched once more.
    pub(crate) fn touched(self, chance: &mut Chance) -> Heat {
        let hot = self.0 & HOT != 0 || chance.happens(1.0 / f32::from(FREQUENCY[1] - FREQUENCY[0]));
        Heat(USED | if hot { HOT } else { 0 })
    }

    /// A block that enters the store with this count.
    pub(crate) fn admitted(frequency: u8, chance: &mut Chance) -> Heat {
        Heat::unused(f32::from(frequency), chance)
    }

    /// Not yet used, with about this count.
    pub(crate) fn unused(frequency: f32, chance: &mut Chance) -> Heat {
        let [low, high] = FREQUENCY.map(f32::from);
        Heat(if chance.happens((frequency - low) / (high - low)) { HOT } else { 0 })
    }
}

/// A repeatable source of small decisions: a linear congruential generator with the constants of Numerical Recipes.
#[derive(Debug)]
pub(crate) struct Chance(u32);

impl Default for Chance {
    fn default() -> Chance {
        Chance(1)
    }
}

impl Chance {
    /// True with this probability (never at or below 0, always from 1 on).
    pub(crate) fn happens(&mut self, probability: f32) -> bool {
        self.fraction() < probability
    }

    /// One of the two whole numbers beside `value`, so that the mean is `value`; at most [`FREQUENCY_MAX`].
    pub(crate) fn round(&mut self, value: f32) -> u8 {
        ((value + self.fraction()) as u8).min(FREQUENCY_MAX)
    }

    /// In `0.0..1.0`.
    fn fraction(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 8) as f32 / (1 << 24) as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_touch_marks_a_block_used_and_judging_clears_the_mark() {
        let mut chance = Chance::default();
        let heat = Heat::default().touched(&mut chance);
        assert!(heat.is_used());
        assert!(!Heat::unused(f32::from(heat.frequency()), &mut chance).is_used());
    }

    #[test]
    fn the_count_is_right_on_average() {
        let mut chance = Chance::default();
        for frequency in 1..=4u8 {
            let sum: u32 = (0..10_000).map(|_| u32::from(Heat::admitted(frequency, &mut chance).frequency())).sum();
            let mean = sum as f32 / 10_000.0;
            assert!((mean - f32::from(frequency)).abs() < 0.1, "{mean} for {frequency}");
        }
    }

    #[test]
    fn rounding_is_right_on_average_and_bounded() {
        let mut chance = Chance::default();
        let sum: u32 = (0..10_000).map(|_| u32::from(chance.round(2.3))).sum();
        assert!((sum as f32 / 10_000.0 - 2.3).abs() < 0.05);
        assert_eq!(chance.round(99.0), FREQUENCY_MAX);
    }

    #[test]
    fn all_bits_survive_the_index() {
        for bits in 0..=HEAT_MAX {
            assert_eq!(Heat::from_bits(bits).bits(), bits);
        }
    }
}
