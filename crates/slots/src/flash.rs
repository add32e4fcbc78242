//! How much the flash layer of an SSD writes for each page that it is given, where hearth overwrites single pages of it.
//!
//! Flash is erased in large blocks. Before one is erased, the pages in it that are still needed are copied. How many these are depends on
//! the room that holds nothing: the spare that the drive was made with, and what its user never writes, or discards. hearth does not discard
//! the slots that become free, since they are written again soon; so a drive keeps each page that was ever written.
//!
//! The figures are of a model, not of a drive: 512 blocks of 128 pages, the block with the fewest needed pages is erased first, one open block
//! for what the host writes and one for copies. 97 % of the slots hold a block; the slot that is free for longest is written next.
//! `tests/flash_model.rs` is that model, and computes the table again.

/// The spare that drives are made with, in percent of what their users see: of most data center drives for mixed use, and of consumer drives.
pub const OWN_SPARE_PERCENT: [u8; 2] = [28, 7];

/// Pages of flash written for each page that the host writes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FlashWrites {
    /// If all blocks are overwritten equally often.
    pub even: f64,
    /// If few are overwritten often (Zipf's law, 0.99).
    pub skewed: f64,
}

/// Where pages are only ever written one behind the other over large parts of the drive, whole erase blocks are overwritten: nothing is copied.
pub const SEQUENTIAL: FlashWrites = FlashWrites { even: 1.0, skewed: 1.0 };

const fn of(even: f64, skewed: f64) -> FlashWrites {
    FlashWrites { even, skewed }
}

/// By the part of the drive that it has to keep: drives with each of [`OWN_SPARE_PERCENT`].
pub const TABLE: [(f64, [FlashWrites; 2]); 10] = [
    (0.0, [SEQUENTIAL; 2]),
    (0.5, [of(1.10, 1.24), of(1.19, 1.35)]),
    (0.6, [of(1.19, 1.35), of(1.36, 1.56)]),
    (0.7, [of(1.33, 1.52), of(1.64, 1.89)]),
    (0.8, [of(1.53, 1.77), of(2.15, 2.48)]),
    (0.85, [of(1.67, 1.93), of(2.58, 2.94)]),
    (0.9, [of(1.86, 2.15), of(3.29, 3.60)]),
    (0.95, [of(2.10, 2.43), of(4.59, 4.67)]),
    (0.975, [of(2.25, 2.59), of(5.78, 5.84)]),
    (1.0, [of(2.43, 2.79), of(7.85, 7.47)]),
];

/// What drives with each of [`OWN_SPARE_PERCENT`] write if they have to keep this part of what their users see, 0 to 1.
pub fn flash_writes(kept_part: f64) -> [FlashWrites; 2] {
    let kept_part = kept_part.clamp(0.0, 1.0);
    let above = TABLE.iter().position(|(part, _)| *part >= kept_part).unwrap_or(TABLE.len() - 1).max(1);
    let ((from, low), (to, high)) = (TABLE[above - 1], TABLE[above]);
    let along = (kept_part - from) / (to - from);
    let between = |low: f64, high: f64| low + (high - low) * along;
    [0, 1].map(|drive| of(between(low[drive].even, high[drive].even), between(low[drive].skewed, high[drive].skewed)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_between_two_figures_of_the_table_is_interpolated() {
        for (part, figures) in TABLE {
            let close = |one: f64, other: f64| (one - other).abs() < 1e-9;
            let found = flash_writes(part);
            assert!(
                found.iter().zip(&figures).all(|(one, other)| close(one.even, other.even) && close(one.skewed, other.skewed)),
                "{part}"
            );
        }
        let [data_center, consumer] = flash_writes(0.75);
        assert!((1.33..1.53).contains(&data_center.even) && (1.89..2.48).contains(&consumer.skewed));
        assert_eq!(flash_writes(-1.0), [SEQUENTIAL; 2]);
        assert_eq!(flash_writes(2.0), flash_writes(1.0));
        assert_eq!(flash_writes(0.25)[1].even, 1.095);
    }

    #[test]
    fn more_that_is_kept_never_means_fewer_writes() {
        let all: [_; 101] = core::array::from_fn(|percent| flash_writes(percent as f64 / 100.0));
        for pair in all.windows(2) {
            for drive in [0, 1] {
                assert!(pair[0][drive].even <= pair[1][drive].even && pair[0][drive].skewed <= pair[1][drive].skewed, "{pair:?}");
            }
        }
        for [data_center, consumer] in all {
            assert!(data_center.even <= consumer.even && data_center.skewed <= consumer.skewed);
        }
    }
}
