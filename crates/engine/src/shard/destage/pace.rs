//! How much of a backing device destage takes beside the device's clients: batches, each written and flushed, then the clients' turn.
//!
//! A disk serves the nearest request first. A queue of sorted writes that is refilled all the time keeps a read elsewhere waiting until
//! the disk's own age limit (0.6 s), and a flush holds up what comes behind it. So while clients use the device, a batch is as
//! large as can be written and flushed in a part of their latency goal, and after it their requests have the device alone for a while. While
//! none does, batches are larger, so that sorting pays, but a client that comes back still waits only for one of them.
//!
//! Where a flush takes its time whatever it flushes, as over a network, a smaller batch is no shorter, and destage would come down to a
//! block a flush. So a batch has at least some runs when nobody waits for the device, or writers wait for destage.

use types::BLOCK_BYTES;

/// Runs under way at most. A disk's own queue sorts 32 well (workload notes: 178 IOPS at depth 32 against 74 at 1); more gains little.
const RUNS_IN_FLIGHT_MAX: u32 = 32;
/// Runs of a batch at most: none larger pays.
const BATCH_RUNS_MAX: u32 = 4096;
/// A device counts as used by clients for this long after their last I/O.
const CLIENTS_STAY_NS: u64 = 1_000_000_000;
/// A rate limit may be used in advance for this long, so that sweeps are not chopped up.
const BURST_NS: u64 = 250_000_000;
/// With a rate limit, a run has what the limit allows in this time, or one block. A longer one would keep the limit in the long run only: each
/// shard would begin with a run that takes it up for many seconds.
const LIMITED_RUN_NS: u64 = 1_000_000_000;
/// Beside clients, a batch may take this part of their latency goal, in percent. A read that comes at its start waits for all of it, and then takes
/// its own time.
const BESIDE_GOAL_PERCENT: u64 = 35;
/// Beside clients while writers wait for room in the cache.
const URGENT_GOAL_PERCENT: u64 = 80;
/// Alone: twice the goal.
const ALONE_GOAL_PERCENT: u64 = 200;
/// Runs of a batch at least, alone: what the disk's queue sorts.
const ALONE_RUNS_MIN: u32 = RUNS_IN_FLIGHT_MAX;
/// The same beside clients while writers wait: what a hard disk writes within the goal (workload notes: 178 a second).
const URGENT_RUNS_MIN: u32 = 8;

/// The part of a volume's rate limit that each of `shards` keeps: together they keep the limit. Extents are spread evenly over the shards.
pub fn part_of_rate(rate_bytes: u64, shards: u64) -> u64 {
    (rate_bytes / shards).max(1)
}

/// Blocks of one run at most at this rate: one at least, so that a shard with a small part of the limit gets on, too.
pub fn run_blocks_max(rate_bytes: Option<u64>) -> usize {
    let Some(rate_bytes) = rate_bytes else { return usize::MAX };
    let bytes = u128::from(rate_bytes) * u128::from(LIMITED_RUN_NS) / 1_000_000_000;
    usize::try_from(bytes / u128::from(BLOCK_BYTES)).unwrap_or(usize::MAX).max(1)
}

/// How clients use a backing device.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clients {
    /// Their I/Os on it now.
    pub in_flight: u32,
    /// How many of their I/Os have ended so far.
    pub ended: u64,
    /// When the last one ended.
    pub last_ns: u64,
    /// How long their reads take lately, the slow ones.
    pub slow_read_ns: u64,
    /// How long their reads are to take at most.
    pub goal_ns: u64,
}

impl Clients {
    fn are_active(&self, now_ns: u64) -> bool {
        self.in_flight > 0 || self.last_ns > 0 && now_ns < self.last_ns + CLIENTS_STAY_NS
    }
}

/// How much dirty data there is, and so how long clients have the device after each batch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub enum Pressure {
    /// As long as the batch took.
    #[default]
    Normal,
    /// Blocks are older than the write-cache depth allows: half as long.
    Overdue,
    /// Dirty data nears its limit: a quarter.
    Pressed,
    /// Writers are slowed down: until those that waited during the batch are served.
    Urgent,
}

impl Pressure {
    fn rest_ns(self, batch_ns: u64) -> u64 {
        match self {
            Pressure::Normal => batch_ns,
            Pressure::Overdue => batch_ns / 2,
            Pressure::Pressed => batch_ns / 4,
            Pressure::Urgent => 0,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Batch {
    begun_ns: u64,
    runs: u32,
    beside_clients: bool,
}

/// The clients' turn.
#[derive(Clone, Copy, Debug)]
struct Rest {
    until_ns: u64,
    /// Those that waited are served when so many client I/Os have ended in all; or at that time.
    served_at: u64,
    at_most_until_ns: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Pace {
    /// Runs of a batch beside clients, and alone.
    beside_runs: u32,
    alone_runs: u32,
    batch: Option<Batch>,
    rest: Option<Rest>,
    /// With a rate limit: the time up to which the bytes started so far have used it.
    used_until_ns: u64,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { beside_runs: 4, alone_runs: RUNS_IN_FLIGHT_MAX, batch: None, rest: None, used_until_ns: 0 }
    }
}

impl Pace {
    /// Whether another run may start while `runs` are under way. If not, a completion or [`Pace::next_ns`] changes that.
    pub fn may_start(&mut self, now_ns: u64, runs: u32, clients: Clients, pressure: Pressure, rate_bytes: Option<u64>) -> bool {
        if let Some(rest) = self.rest {
            let served = clients.ended >= rest.served_at || clients.in_flight == 0 || now_ns >= rest.at_most_until_ns;
            let over = now_ns >= rest.until_ns || pressure == Pressure::Urgent || !clients.are_active(now_ns);
            if !(over && served) {
                return false;
            }
            self.rest = None;
        }
        let most = if clients.are_active(now_ns) { self.beside_runs } else { self.alone_runs };
        let started = self.batch.map_or(0, |batch| batch.runs);
        started < most && runs < RUNS_IN_FLIGHT_MAX && (rate_bytes.is_none() || self.used_until_ns <= now_ns + BURST_NS)
    }

    /// When the rate limit, or the clients' turn, will let a run start; 0 if they do.
    pub fn next_ns(&self) -> u64 {
        let rate_ns = self.used_until_ns.saturating_sub(BURST_NS);
        rate_ns.max(self.rest.map_or(0, |rest| rest.until_ns))
    }

    /// A run of that many bytes starts.
    pub fn started(&mut self, now_ns: u64, clients: Clients, rate_bytes: Option<u64>, bytes: u64) {
        assert!(bytes > 0 && self.rest.is_none(), "a run of {bytes} bytes starts, and not in the clients' turn");
        let beside_clients = clients.are_active(now_ns);
        self.batch.get_or_insert(Batch { begun_ns: now_ns, runs: 0, beside_clients }).runs += 1;
        if let Some(rate) = rate_bytes {
            let cost_ns = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
            self.used_until_ns = self.used_until_ns.max(now_ns) + u64::try_from(cost_ns).unwrap_or(u64::MAX / 4);
        }
    }

    /// All runs under way have ended, and what was written is flushed. The next batch is as much larger or smaller as this one was too
    /// short or too long.
    pub fn batch_ended(&mut self, now_ns: u64, clients: Clients, pressure: Pressure) {
        let Some(batch) = self.batch.take() else { return };
        assert!(batch.runs > 0 && batch.begun_ns <= now_ns, "a batch of {} runs ends after it began", batch.runs);
        let took_ns = now_ns.saturating_sub(batch.begun_ns).max(1);
        let beside = clients.are_active(now_ns);
        let reads_are_slow = beside && pressure < Pressure::Urgent && clients.slow_read_ns > clients.goal_ns;
        if beside == batch.beside_clients {
            let percent = match beside {
                true if pressure == Pressure::Urgent => URGENT_GOAL_PERCENT,
                true => BESIDE_GOAL_PERCENT,
                false => ALONE_GOAL_PERCENT,
            };
            let allowed_ns = clients.goal_ns.saturating_mul(percent) / 100;
            let runs = if beside { &mut self.beside_runs } else { &mut self.alone_runs };
            *runs = if took_ns > allowed_ns || reads_are_slow {
                // Down to what would have been in time, but by half at most: one slow batch says little.
                let in_time = u128::from(batch.runs) * u128::from(allowed_ns) / u128::from(took_ns);
                (in_time as u32).clamp(*runs / 2, *runs - *runs / 4)
            } else if batch.runs >= *runs {
                if beside { *runs + 1 + *runs / 8 } else { *runs * 2 }
            } else {
                *runs
            };
            let least = match pressure {
                _ if !beside => ALONE_RUNS_MIN,
                Pressure::Urgent => URGENT_RUNS_MIN,
                _ => 1,
            };
            *runs = (*runs).clamp(least, BATCH_RUNS_MAX);
            assert!(*runs > 0, "destage that never starts a run would never end");
        }
        if beside {
            let served_at = clients.ended + u64::from(clients.in_flight);
            let at_most_until_ns = now_ns + clients.goal_ns;
            // Where reads are slow although batches are short, a controller's cache is writing behind: it needs the time.
            let rest_ns = if reads_are_slow { clients.goal_ns } else { pressure.rest_ns(took_ns).min(clients.goal_ns) };
            let until_ns = now_ns + rest_ns;
            self.rest = Some(Rest { until_ns, served_at, at_most_until_ns });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const GOAL: u64 = 50 * MS;

    fn clients(in_flight: u32, ended: u64, last_ns: u64) -> Clients {
        Clients { in_flight, ended, last_ns, slow_read_ns: 15 * MS, goal_ns: GOAL }
    }

    /// One batch on a disk that takes `run_ns` for each run and `flush_ns` for a flush; gives its runs and how long it took.
    fn batch(pace: &mut Pace, now_ns: &mut u64, clients: Clients, pressure: Pressure, run_ns: u64, flush_ns: u64) -> (u32, u64) {
        let mut runs = 0;
        while pace.may_start(*now_ns, 0, clients, pressure, None) {
            pace.started(*now_ns, clients, None, 4096);
            runs += 1;
        }
        let took_ns = u64::from(runs) * run_ns + flush_ns;
        *now_ns += took_ns;
        pace.batch_ended(*now_ns, clients, pressure);
        (runs, took_ns)
    }

    #[test]
    fn beside_clients_a_batch_takes_a_part_of_their_goal_flush_included() {
        for (run_ns, flush_ns) in [(5 * MS, 0), (100_000, 10 * MS), (MS, MS), (40 * MS, 600 * MS)] {
            let (mut pace, mut now_ns) = (Pace::default(), 10 * MS);
            let mut last = (0, 0);
            for step in 0..60 {
                let clients = clients(1, step * 100, now_ns);
                last = batch(&mut pace, &mut now_ns, clients, Pressure::Normal, run_ns, flush_ns);
                now_ns += 50 * MS;
            }
            let (runs, took_ns) = last;
            assert!(took_ns <= GOAL * 6 / 10 || runs == 1, "{runs} runs take {took_ns} ns");
            assert!(took_ns >= GOAL / 4 || run_ns + flush_ns > GOAL / 4, "{runs} runs take {took_ns} ns: more would fit");
        }
    }

    #[test]
    fn clients_have_their_turn_after_a_batch() {
        let (mut pace, mut now_ns) = (Pace::default(), 10 * MS);
        let one = clients(2, 7, now_ns);
        let (runs, took_ns) = batch(&mut pace, &mut now_ns, one, Pressure::Normal, 5 * MS, 0);
        assert_eq!((runs, took_ns), (4, 20 * MS));
        assert!(!pace.may_start(now_ns, 0, clients(2, 9, now_ns), Pressure::Normal, None), "as long as the batch took");
        assert_eq!(pace.next_ns(), now_ns + 20 * MS);
        assert!(!pace.may_start(now_ns + 20 * MS, 0, clients(2, 8, now_ns), Pressure::Normal, None), "one still waits");
        assert!(!pace.may_start(now_ns, 0, clients(2, 8, now_ns), Pressure::Urgent, None), "one still waits");
        assert!(pace.may_start(now_ns + 20 * MS, 0, clients(2, 9, now_ns), Pressure::Normal, None));
        // A client that hangs holds nothing up for longer than the goal.
        let two = clients(2, 9, now_ns);
        batch(&mut pace, &mut now_ns, two, Pressure::Urgent, 5 * MS, 0);
        assert!(pace.may_start(now_ns + GOAL, 0, clients(2, 9, now_ns), Pressure::Normal, None));
        // Those that have gone need no turn.
        let (mut pace, mut now_ns) = (Pace::default(), 10 * MS);
        let gone = clients(0, 7, now_ns);
        batch(&mut pace, &mut now_ns, gone, Pressure::Normal, 5 * MS, 0);
        assert!(!pace.may_start(now_ns, 0, clients(0, 7, 10 * MS), Pressure::Normal, None));
        assert!(pace.may_start(10 * MS + CLIENTS_STAY_NS, 0, clients(0, 7, 10 * MS), Pressure::Normal, None));
    }

    #[test]
    fn a_batch_begun_alone_ends_when_clients_come() {
        let (mut pace, mut now_ns) = (Pace::default(), 10 * CLIENTS_STAY_NS);
        let none = clients(0, 0, 0);
        let (runs, _) = batch(&mut pace, &mut now_ns, none, Pressure::Normal, MS, 0);
        assert_eq!(runs, RUNS_IN_FLIGHT_MAX);
        let (runs, took_ns) = batch(&mut pace, &mut now_ns, none, Pressure::Normal, MS, 0);
        assert!(runs == 2 * RUNS_IN_FLIGHT_MAX && took_ns < ALONE_GOAL_PERCENT * GOAL / 100);
        for _ in 0..8 {
            pace.started(now_ns, none, None, 4096);
        }
        assert!(pace.may_start(now_ns, 0, none, Pressure::Normal, None));
        assert!(!pace.may_start(now_ns, 0, clients(1, 0, 0), Pressure::Normal, None), "more than a batch beside clients has begun");
    }

    #[test]
    fn slow_flushes_do_not_bring_destage_down_to_a_block_each() {
        for (pressure, in_flight, least) in [(Pressure::Normal, 0, ALONE_RUNS_MIN), (Pressure::Urgent, 1, URGENT_RUNS_MIN)] {
            let (mut pace, mut now_ns) = (Pace::default(), 10 * CLIENTS_STAY_NS);
            for step in 1..50 {
                let now = clients(in_flight, step * 100, 0);
                let (runs, _) = batch(&mut pace, &mut now_ns, now, pressure, 0, 300 * MS);
                assert!(runs >= least || step == 1, "{runs} runs in batch {step}, {pressure:?}");
            }
        }
    }

    #[test]
    fn gives_way_while_reads_are_slow() {
        let (mut pace, mut now_ns) = (Pace::default(), 10 * MS);
        pace.beside_runs = 64;
        for step in 1..20 {
            let slow = Clients { slow_read_ns: GOAL + 1, ..clients(1, step * 100, now_ns) };
            batch(&mut pace, &mut now_ns, slow, Pressure::Normal, 1000, 0);
            now_ns += GOAL;
        }
        assert!(pace.beside_runs < 4, "{}", pace.beside_runs);
    }

    #[test]
    fn shards_divide_a_rate_and_a_small_part_is_a_block_at_least() {
        assert_eq!(run_blocks_max(None), usize::MAX);
        for (rate_bytes, shards, blocks) in [(1 << 20, 1, 256), (1 << 20, 16, 16), (1 << 20, 1000, 1), (1, 64, 1)] {
            let part = part_of_rate(rate_bytes, shards);
            assert!(part * shards <= rate_bytes.max(shards), "{shards} shards, {part} bytes each");
            assert_eq!(run_blocks_max(Some(part)), blocks, "{rate_bytes} bytes over {shards} shards");
        }
    }

    #[test]
    fn a_rate_is_kept_over_a_second() {
        let mut bytes = 0;
        let (mut pace, none) = (Pace::default(), clients(0, 0, 0));
        for now_ms in 0..1000 {
            while pace.may_start(now_ms * MS, 0, none, Pressure::Normal, Some(1 << 20)) {
                pace.started(now_ms * MS, none, Some(1 << 20), 4096);
                bytes += 4096;
            }
            pace.batch_ended(now_ms * MS, none, Pressure::Normal);
        }
        assert!((1 << 20..(1 << 20) * 13 / 10).contains(&bytes), "{bytes} bytes in a second");
    }
}
