//! Something that may happen a thousand times a second is logged at most once in a while, with how often it happened.

/// One kind of line, and when it was last written.
#[derive(Debug)]
pub struct Seldom {
    every_ns: u64,
    told_ns: Option<u64>,
    untold: u64,
}

impl Seldom {
    /// A line in `every_ns` at most.
    pub const fn every(every_ns: u64) -> Seldom {
        Seldom { every_ns, told_ns: None, untold: 0 }
    }

    /// It has happened. Gives how often since the last line, if a line is due now; the time is the caller's, in nanoseconds.
    pub fn happened(&mut self, now_ns: u64) -> Option<u64> {
        self.untold += 1;
        if self.told_ns.is_some_and(|told_ns| now_ns.saturating_sub(told_ns) < self.every_ns) {
            return None;
        }
        self.told_ns = Some(now_ns);
        Some(core::mem::take(&mut self.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_told_at_once_and_a_flood_with_its_number() {
        let mut seldom = Seldom::every(10);
        assert_eq!(seldom.happened(0), Some(1));
        assert_eq!((1..10).filter_map(|now_ns| seldom.happened(now_ns)).count(), 0);
        assert_eq!(seldom.happened(10), Some(10));
        assert_eq!(seldom.happened(1000), Some(1));
    }
}
