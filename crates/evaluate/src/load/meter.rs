//! Counts answers second by second.

use super::loaded::{Loaded, Tally};
use crate::result::Second;

const SECOND_NS: u64 = 1_000_000_000;
/// A last piece shorter than this many seconds is counted with the second before: its rate would be noise.
const PIECE_S: f64 = 0.05;

/// See the module. Times are nanoseconds.
pub struct Meter {
    begin_ns: u64,
    tallies: Vec<Tally>,
    told: usize,
}

impl Meter {
    /// Of a load that begins now.
    pub fn new(begin_ns: u64) -> Meter {
        Meter { begin_ns, tallies: Vec::new(), told: 0 }
    }

    /// An answer.
    pub fn record(&mut self, now_ns: u64, is_write: bool, bytes: u64, took_ns: u64) {
        let index = (now_ns.saturating_sub(self.begin_ns) / SECOND_NS) as usize;
        self.reach(index + 1);
        let tally = &mut self.tallies[index];
        if is_write {
            tally.writes.record(took_ns);
            tally.written_bytes += bytes;
        } else {
            tally.reads.record(took_ns);
            tally.read_bytes += bytes;
        }
    }

    /// Seconds in which nothing was answered are told too.
    fn reach(&mut self, seconds: usize) {
        while self.tallies.len() < seconds {
            let from_s = self.tallies.len() as f64;
            self.tallies.push(Tally { span_s: (from_s, from_s + 1.0), ..Tally::default() });
        }
    }

    /// The next second that is over and was not told yet.
    pub fn poll_second(&mut self, now_ns: u64) -> Option<Second> {
        let over = (now_ns.saturating_sub(self.begin_ns) / SECOND_NS) as usize;
        if self.told >= over {
            return None;
        }
        self.reach(over);
        self.told += 1;
        Some(self.tallies[self.told - 1].second())
    }

    /// All that was counted, of a load that ended then.
    pub fn finish(mut self, end_ns: u64) -> Loaded {
        let end_s = end_ns.saturating_sub(self.begin_ns) as f64 / SECOND_NS as f64;
        self.reach(end_s.ceil() as usize);
        if let Some(last) = self.tallies.last_mut() {
            last.span_s.1 = end_s;
        }
        if let [.., before, last] = &mut self.tallies[..]
            && last.span_s.1 - last.span_s.0 < PIECE_S
        {
            before.merge(last);
            before.span_s.1 = end_s;
            self.tallies.pop();
        }
        Loaded::of(self.tallies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_whole_but_the_last_and_silent_ones_count_too() {
        let begin = 5_000;
        let mut meter = Meter::new(begin);
        for ms in [10, 20, 999, 2_100, 3_010] {
            meter.record(begin + ms * 1_000_000, ms == 20, 512, 1_000_000);
        }
        let told: Vec<f64> = std::iter::from_fn(|| meter.poll_second(begin + 3_005_000_000)).map(|second| second.rate).collect();
        assert_eq!(told, [3.0, 0.0, 1.0]);
        assert_eq!(meter.poll_second(begin + 3_900_000_000), None);
        let loaded = meter.finish(begin + 3_500_000_000);
        assert_eq!((loaded.series.len(), loaded.wall_s, loaded.reads.count, loaded.writes.bytes), (4, 3.5, 4, 512));
        assert_eq!((loaded.series[1].mean_us, loaded.series[3].rate, loaded.series[3].at_s), (None, 2.0, 3.5));
    }

    #[test]
    fn a_last_piece_of_a_moment_belongs_to_the_second_before() {
        let mut meter = Meter::new(0);
        meter.record(900_000_000, false, 512, 1000);
        meter.record(1_000_000_000, false, 512, 1000);
        let loaded = meter.finish(1_000_000_000);
        assert_eq!((loaded.series.len(), loaded.wall_s, loaded.rate), (1, 1.0, 2.0));
    }
}
