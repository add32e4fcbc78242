//! What the bits of an index entry say of a block on the SSD: how often it was used since it was last judged, and which part of the cache it belongs to.

/// Bits of an index entry that hold the uses of a [`Heat`]; those above are its part.
pub const USE_BITS: u32 = 2;
/// Most uses that are counted.
pub const USES_MAX: u8 = (1 << USE_BITS) - 1;
/// The main part.
pub(super) const MAIN: u8 = 0;

/// A block's uses and its part. Kept in the index entry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Heat(u8);

impl Heat {
    /// The heat of these bits, as the index gives them.
    pub const fn from_bits(bits: u8) -> Heat {
        Heat(bits)
    }

    /// As stored in the index.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Used so often since it was last judged, at most [`USES_MAX`].
    pub const fn uses(self) -> u8 {
        self.0 & USES_MAX
    }

    /// The part it belongs to: 0 is the main one.
    pub const fn part(self) -> u8 {
        self.0 >> USE_BITS
    }

    pub(super) const fn of(part: u8, uses: u8) -> Heat {
        Heat(part << USE_BITS | uses)
    }

    /// Used once more.
    pub(super) const fn used_again(self) -> Heat {
        Heat::of(self.part(), if self.uses() < USES_MAX { self.uses() + 1 } else { USES_MAX })
    }

    /// Of the two, the one that says of more uses; the part is this one's.
    pub(crate) fn with_uses_of(self, other: Heat) -> Heat {
        Heat::of(self.part(), self.uses().max(other.uses()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bits_survive_the_index() {
        for bits in 0..=31 {
            let heat = Heat::from_bits(bits);
            assert_eq!((heat.bits(), Heat::of(heat.part(), heat.uses())), (bits, heat));
        }
    }

    #[test]
    fn uses_are_counted_up_to_three_and_leave_the_part() {
        let mut heat = Heat::of(5, 0);
        for uses in [1, 2, 3, 3] {
            heat = heat.used_again();
            assert_eq!((heat.part(), heat.uses()), (5, uses));
        }
        assert_eq!(heat.with_uses_of(Heat::of(1, 2)), heat);
        assert_eq!(Heat::of(5, 0).with_uses_of(Heat::of(1, 2)), Heat::of(5, 2));
    }
}
