//! CPU time for encoding: so much a second, and which steps are left out when it runs short.
//!
//! What was not spent is kept for a second, so that a burst may take more. As the store empties, the steps that cost most for what they bring go
//! first: similar content, zstd, shared parts, LZ4; and in debt everything, so that blocks are taken as they are rather than late. (The order
//! is that of the content-locality notes, by what each step saved for its microseconds on real data.)

use crate::encode::Steps;

/// Nanoseconds in a second.
const SECOND_NS: u64 = 1_000_000_000;

/// See the module.
#[derive(Clone, Debug)]
pub struct Budget {
    ns_per_second: u64,
    /// What may be spent; below zero what was spent too much.
    left_ns: i64,
    at_ns: u64,
}

impl Budget {
    /// `ns_per_second` of CPU time: a billion is one processor.
    pub fn new(ns_per_second: u64) -> Budget {
        Budget { ns_per_second, left_ns: full_ns(ns_per_second), at_ns: 0 }
    }

    /// What of the wanted steps may be taken for the next block.
    pub fn steps(&mut self, now_ns: u64, wanted: Steps) -> Steps {
        let gone_ns = now_ns.saturating_sub(self.at_ns).min(SECOND_NS);
        self.at_ns = self.at_ns.max(now_ns);
        let full_ns = full_ns(self.ns_per_second);
        let earned_ns = u128::from(gone_ns) * u128::from(self.ns_per_second) / u128::from(SECOND_NS);
        self.left_ns = self.left_ns.saturating_add(earned_ns as i64).min(full_ns);
        let more_than = |eighths: i64| self.left_ns > full_ns / 8 * eighths;
        if !more_than(0) {
            return Steps::NONE;
        }
        Steps {
            similar: wanted.similar && more_than(4),
            zstd: wanted.zstd && more_than(3),
            parts: wanted.parts && more_than(2),
            lz4: wanted.lz4 && more_than(1),
            ..wanted
        }
    }

    /// That much was spent on a block. Debt is bounded by a second's worth, so that one delay does not switch everything off for long.
    pub fn spent(&mut self, ns: u64) {
        let ns = i64::try_from(ns).unwrap_or(i64::MAX);
        self.left_ns = self.left_ns.saturating_sub(ns).max(-full_ns(self.ns_per_second));
    }
}

/// A second's worth.
fn full_ns(ns_per_second: u64) -> i64 {
    i64::try_from(ns_per_second).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: Steps = Steps { duplicates: true, versions: true, parts: true, similar: true, lz4: true, zstd: true };

    fn names(steps: Steps) -> alloc::vec::Vec<&'static str> {
        let all =
            [("similar", steps.similar), ("zstd", steps.zstd), ("parts", steps.parts), ("lz4", steps.lz4), ("versions", steps.versions)];
        all.into_iter().filter(|(_, on)| *on).map(|(name, _)| name).collect()
    }

    #[test]
    fn steps_go_in_order_and_come_back() {
        let mut budget = Budget::new(800);
        let mut seen = alloc::vec![names(budget.steps(0, WANTED))];
        for _ in 0..9 {
            budget.spent(100);
            let now = names(budget.steps(0, WANTED));
            if seen.last() != Some(&now) {
                seen.push(now);
            }
        }
        let expected: [&[&str]; 6] = [
            &["similar", "zstd", "parts", "lz4", "versions"],
            &["zstd", "parts", "lz4", "versions"],
            &["parts", "lz4", "versions"],
            &["lz4", "versions"],
            &["versions"],
            &[],
        ];
        assert!(seen.iter().map(|names| &names[..]).eq(expected), "{seen:?}");
        assert_eq!(names(budget.steps(SECOND_NS, WANTED)).len(), 5, "after a second it is full but for the debt");
        assert_eq!(budget.steps(SECOND_NS, Steps::LZ4), Steps::LZ4, "nothing is added that was not wanted");
    }

    #[test]
    fn debt_and_savings_are_bounded() {
        let mut budget = Budget::new(1000);
        budget.spent(u64::MAX);
        assert_eq!(budget.steps(SECOND_NS / 2, WANTED), Steps::NONE);
        assert_eq!(names(budget.steps(SECOND_NS * 3, WANTED)).len(), 4, "a second's earnings pay the debt left and fill half of the store");
        budget.steps(u64::MAX, WANTED);
        budget.spent(1001);
        assert_eq!(budget.steps(u64::MAX, WANTED), Steps::NONE, "no more than a second's worth was saved");
        assert_eq!(Budget::new(0).steps(5, WANTED), Steps::NONE);
    }
}
