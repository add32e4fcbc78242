//! Whether a reactor has time for what can wait.
//!
//! Dirty blocks go home when their disk has nothing else to do. That is work of the same thread which serves clients, and a disk whose cache answers
//! everything always has nothing else to do: with 32 requests in flight, a fifth of them writes, a third of the reactor's time went into bringing
//! home what had been written a moment before. So shards are told when the thread has little time to spare.
//!
//! A policy, no promise: nothing but speed hangs on it.

/// How often to judge.
const JUDGE_NS: u64 = 100_000_000;
/// Busy when this part of the time was used, in percent.
const BUSY_FROM_PERCENT: u64 = 70;
/// And no more when less than this was: what waited for it takes time too.
const FREE_BELOW_PERCENT: u64 = 50;

/// See the module.
pub(crate) struct Load {
    judged_at_ns: u64,
    waited_ns: u64,
    is_busy: bool,
}

impl Load {
    pub(crate) fn new(now_ns: u64) -> Load {
        Load { judged_at_ns: now_ns, waited_ns: 0, is_busy: false }
    }

    /// What [`Load::tick`] said last.
    pub(crate) fn is_busy(&self) -> bool {
        self.is_busy
    }

    /// Nothing was to be done for so long: the thread slept, or looked for something to do.
    pub(crate) fn waited(&mut self, ns: u64) {
        self.waited_ns += ns;
    }

    /// To be called at each turn. Whether the thread is busy from now on, if that is news.
    pub(crate) fn tick(&mut self, now_ns: u64) -> Option<bool> {
        let lasted_ns = now_ns.saturating_sub(self.judged_at_ns);
        if lasted_ns < JUDGE_NS {
            return None;
        }
        let used_percent = lasted_ns.saturating_sub(self.waited_ns) * 100 / lasted_ns;
        let was_busy = self.is_busy;
        self.is_busy = used_percent >= if was_busy { FREE_BELOW_PERCENT } else { BUSY_FROM_PERCENT };
        (self.judged_at_ns, self.waited_ns) = (now_ns, 0);
        (self.is_busy != was_busy).then_some(self.is_busy)
    }

    /// When to judge at the latest: who sleeps is not busy, and somebody waits to hear it.
    pub(crate) fn next_deadline_ns(&self) -> Option<u64> {
        self.is_busy.then_some(self.judged_at_ns + JUDGE_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn who_uses_most_of_the_time_is_busy_until_half_of_it_is_left() {
        let mut load = Load::new(0);
        let mut now_ns = 0;
        let mut after = |waited_percent: u64| {
            load.waited(waited_percent * MS);
            now_ns += 100 * MS;
            let news = load.tick(now_ns);
            assert_eq!(load.next_deadline_ns().is_some(), load.is_busy);
            news
        };
        assert_eq!(after(35), None);
        assert_eq!(after(25), Some(true));
        assert_eq!(after(45), None, "a little less changes nothing");
        assert_eq!(after(60), Some(false));
        assert_eq!(after(40), None, "a little more neither");
        assert_eq!(after(0), Some(true));
        assert_eq!(load.tick(now_ns + 99 * MS), None, "it is not judged yet");
        assert_eq!(load.next_deadline_ns(), Some(now_ns + 100 * MS));
        load.waited(9_900 * MS);
        assert_eq!(load.tick(now_ns + 10_000 * MS), Some(false), "a long sleep");
    }
}
