//! The three grains: how long a point is, how many lie in a chunk, how long they are kept.

/// Last second that is recorded: the end of the year 9999. Later times are a clock gone wrong, and would not fit the stored integers with ease.
pub(crate) const UNIX_S_MAX: u64 = 253_402_300_799;

const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;

/// How long a point is, finest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Grain {
    Second,
    Minute,
    Hour,
}

impl Grain {
    pub(crate) const ALL: [Grain; 3] = [Grain::Second, Grain::Minute, Grain::Hour];

    /// Seconds of a point.
    pub(crate) fn step_s(self) -> u64 {
        match self {
            Grain::Second => 1,
            Grain::Minute => 60,
            Grain::Hour => HOUR,
        }
    }

    /// Seconds of a chunk, the unit of storage. A chunk of one grain is a point of the next coarser.
    pub(crate) fn chunk_s(self) -> u64 {
        match self {
            Grain::Second => 60,
            Grain::Minute => HOUR,
            Grain::Hour => 7 * DAY,
        }
    }

    /// Points in a chunk.
    pub(crate) fn points(self) -> usize {
        (self.chunk_s() / self.step_s()) as usize
    }

    /// How far back from the newest point the grain is whole. A little more than promised (an hour, a week, a year), so that a question for "the last hour"
    /// that took a few seconds to arrive is still answered by the second.
    pub(crate) fn keep_s(self) -> u64 {
        match self {
            Grain::Second => HOUR + 5 * 60,
            Grain::Minute => 7 * DAY + HOUR,
            Grain::Hour => 366 * DAY,
        }
    }

    /// Start of the chunk that a time falls into.
    pub(crate) fn chunk_start(self, unix_s: u64) -> u64 {
        unix_s - unix_s % self.chunk_s()
    }

    /// Which point of its chunk a time falls into.
    pub(crate) fn point_of(self, unix_s: u64) -> usize {
        (unix_s % self.chunk_s() / self.step_s()) as usize
    }

    /// The number that stands for it in the file.
    pub(crate) fn number(self) -> i64 {
        match self {
            Grain::Second => 1,
            Grain::Minute => 60,
            Grain::Hour => HOUR as i64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_a_point_of_the_next() {
        assert_eq!(Grain::Second.chunk_s(), Grain::Minute.step_s());
        assert_eq!(Grain::Minute.chunk_s(), Grain::Hour.step_s());
        assert_eq!(Grain::ALL.map(Grain::points), [60, 60, 168]);
    }
}
