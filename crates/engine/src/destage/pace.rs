//! How many runs may be under way to one backing device, and how fast: more while clients do not feel it, fewer at once when they do.

/// Runs under way at most. A disk's own queue sorts 32 well (workload notes: 178 IOPS at depth 32 against 74 at 1); more gains little.
const RUNS_MAX: u32 = 32;
/// The pace is looked at this often.
const ADJUST_EVERY_NS: u64 = 100_000_000;
/// A rate limit may be used in advance for this long, so that sweeps are not chopped up.
const BURST_NS: u64 = 250_000_000;

/// See the module.
#[derive(Debug)]
pub struct Pace {
    runs: u32,
    adjusted_ns: u64,
    /// With a rate limit: the time up to which the bytes started so far have used it.
    used_until_ns: u64,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { runs: 4, adjusted_ns: 0, used_until_ns: 0 }
    }
}

impl Pace {
    /// Runs that may be under way now.
    pub fn runs_max(&self) -> u32 {
        self.runs
    }

    /// Doubles when nobody is there to be disturbed or there is no choice; otherwise adds one while clients' reads are faster than the goal
    /// and halves when they are slower (additive increase, multiplicative decrease: finds the share and gives way fast).
    pub fn adjust(&mut self, now_ns: u64, latency_ns: u64, goal_ns: u64, free: bool) {
        if now_ns.saturating_sub(self.adjusted_ns) < ADJUST_EVERY_NS {
            return;
        }
        self.adjusted_ns = now_ns;
        let runs = match () {
            () if free => self.runs * 2,
            () if latency_ns > goal_ns => self.runs / 2,
            () => self.runs + 1,
        };
        self.runs = runs.clamp(1, RUNS_MAX);
    }

    /// Whether the rate limit lets another run start.
    pub fn may_start(&self, now_ns: u64, rate_bytes: Option<u64>) -> bool {
        rate_bytes.is_none() || self.used_until_ns <= now_ns + BURST_NS
    }

    /// When the rate limit will let one start; 0 if it does.
    pub fn next_ns(&self) -> u64 {
        self.used_until_ns.saturating_sub(BURST_NS)
    }

    /// A run of that many bytes starts.
    pub fn started(&mut self, now_ns: u64, rate_bytes: Option<u64>, bytes: u64) {
        if let Some(rate) = rate_bytes {
            let cost_ns = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
            self.used_until_ns = self.used_until_ns.max(now_ns) + u64::try_from(cost_ns).unwrap_or(u64::MAX / 4);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_way_and_comes_back() {
        let mut pace = Pace::default();
        pace.adjust(ADJUST_EVERY_NS, 90, 50, false);
        assert_eq!(pace.runs_max(), 2);
        for step in 2..100 {
            pace.adjust(step * ADJUST_EVERY_NS, 10, 50, false);
        }
        assert_eq!(pace.runs_max(), RUNS_MAX);
    }

    #[test]
    fn a_rate_is_kept_over_a_second() {
        let mut pace = Pace::default();
        let mut bytes = 0;
        for now_ms in 0..1000 {
            while pace.may_start(now_ms * 1_000_000, Some(1 << 20)) {
                pace.started(now_ms * 1_000_000, Some(1 << 20), 4096);
                bytes += 4096;
            }
        }
        assert!((1 << 20..(1 << 20) * 13 / 10).contains(&bytes), "{bytes} bytes in a second");
    }
}
