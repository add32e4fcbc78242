//! The rate of a preload beside clients: it rises while their reads stay about as quick as without the preload, and is halved when they do not.
//!
//! The rate is decided once a second:
//!
//! 1. While clients send no requests to the backing device, the preload reads at the device's own rate, with two reads in flight. Only `--rate` limits it.
//! 2. When clients send requests, the preload pauses until a second has shown how long their requests take alone.
//! 3. Then it begins at [`START_BYTES_S`]. It gains up to [`STEP_BYTES_S`] with each look at which the clients' slow requests (99th percentile)
//!    stay within the limit.
//! 4. It pauses again from time to time, because loads change.
//!
//! The limit is 1.3 times what the slow requests take alone, so that 1.5 times is held over the whole preload. The volume's latency goal changes it:
//!
//! * Where 1.3 times is beyond the goal, the limit is the goal, but never less than 1.25 times what they take alone. A preload is made for a
//!   cold cache in front of an overloaded disk, and it must come to an end there, too.
//! * The limit is never less than half of the goal. On a disk that is nearly idle, a single read of a preload doubles the slow requests, and no
//!   client is harmed by that.

use runtime::Histogram;
use std::collections::VecDeque;

/// Rate beside clients at first.
pub const START_BYTES_S: u64 = 16 << 20;
/// What each good look adds.
pub const STEP_BYTES_S: u64 = 8 << 20;
/// It never falls below: 20 GiB take 85 minutes then.
pub const LEAST_BYTES_S: u64 = 4 << 20;
/// Clients' slow requests may take this much of what they take alone, in percent, within the goal. Looks err: judged by this, one and a half times as
/// long is held over the whole (`preload/modelled.rs`).
const BESIDE_PERCENT: u64 = 130;
/// This part of the goal is free to be used.
const FREE_GOAL_PERCENT: u64 = 50;
/// And this much beyond the goal.
const BEYOND_GOAL_PERCENT: u64 = 125;
/// Requests that say something about the slow ones. A look with fewer adds less, in proportion: among few a slow one is easily missed.
const REQUESTS_MIN: u64 = 64;
/// Requests of a pause that say what clients have alone.
const PAUSE_REQUESTS_MIN: u64 = 16;
/// Looks after which fewer must do.
const LOOKS_MAX: u32 = 3;
/// Looks between two pauses.
const LOOKS_BETWEEN_PAUSES: u32 = 30;
/// Pauses that are remembered: what clients have alone.
const PAUSES_KEPT: usize = 4;

/// What was seen since the look before.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// How long clients' requests took that the backing device had a part in.
    pub clients: Histogram,
    /// How many bytes the preload has read.
    pub read_bytes: u64,
    /// How long ago the look before was, in milliseconds.
    pub span_ms: u64,
}

/// What may be read until the next look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Allowed {
    /// As much as the device gives.
    All,
    /// So many bytes a second.
    BytesPerSecond(u64),
    /// Nothing: clients are measured.
    Nothing,
}

#[derive(Clone, Debug)]
enum Phase {
    /// The first second: nothing is known yet.
    New,
    /// No clients.
    Alone,
    /// Clients are measured.
    Pause { seen: Histogram, looks: u32 },
    /// Beside clients.
    Beside { seen: Histogram, looks: u32, since_pause: u32 },
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Pace {
    phase: Phase,
    rate_bytes_s: u64,
    most_bytes_s: Option<u64>,
    /// Clients alone, in the latest pauses.
    alone: VecDeque<Histogram>,
}

impl Pace {
    /// A pace of at most so many bytes a second.
    pub fn new(most_bytes_s: Option<u64>) -> Pace {
        Pace { phase: Phase::New, rate_bytes_s: START_BYTES_S, most_bytes_s: most_bytes_s.map(|most| most.max(1)), alone: VecDeque::new() }
    }

    /// What may be read now.
    pub fn allowed(&self) -> Allowed {
        let rate = match self.phase {
            Phase::Pause { .. } => return Allowed::Nothing,
            Phase::Alone => None,
            Phase::New | Phase::Beside { .. } => Some(self.rate_bytes_s),
        };
        match (rate, self.most_bytes_s) {
            (None, None) => Allowed::All,
            (Some(rate), Some(most)) => Allowed::BytesPerSecond(rate.min(most)),
            (Some(rate), None) | (None, Some(rate)) => Allowed::BytesPerSecond(rate),
        }
    }

    /// What clients' slow requests may take beside it, in nanoseconds, with that latency goal of the volume; `None` before they were seen alone.
    pub fn limit_ns(&self, goal_ns: u64) -> Option<u64> {
        let mut alone = Histogram::default();
        self.alone.iter().for_each(|pause| alone.merge(pause));
        let slow_ns = Some(alone).filter(|alone| alone.count() > 0)?.percentile_ns(990);
        let part = |percent: u64| slow_ns.saturating_mul(percent) / 100;
        let free_ns = goal_ns.saturating_mul(FREE_GOAL_PERCENT) / 100;
        Some(part(BESIDE_PERCENT).min(goal_ns).max(part(BEYOND_GOAL_PERCENT)).max(free_ns))
    }

    /// A second, about, has passed.
    pub fn look(&mut self, now: &Seen, goal_ns: u64) {
        let clients = now.clients.count();
        self.phase = match std::mem::replace(&mut self.phase, Phase::New) {
            Phase::New | Phase::Alone if clients == 0 => Phase::Alone,
            Phase::New | Phase::Alone => {
                self.rate_bytes_s = START_BYTES_S;
                // What is under way is not theirs alone: not counted.
                Phase::Pause { seen: Histogram::default(), looks: 0 }
            }
            Phase::Pause { mut seen, looks } => {
                seen.merge(&now.clients);
                match seen.count() {
                    0 if looks > 0 => Phase::Alone,
                    count if count < PAUSE_REQUESTS_MIN && looks + 1 < LOOKS_MAX => Phase::Pause { seen, looks: looks + 1 },
                    _ => {
                        self.alone.push_back(seen);
                        self.alone.drain(..self.alone.len().saturating_sub(PAUSES_KEPT));
                        Phase::Beside { seen: Histogram::default(), looks: 0, since_pause: 0 }
                    }
                }
            }
            Phase::Beside { mut seen, mut looks, mut since_pause } => {
                seen.merge(&now.clients);
                (looks, since_pause) = (looks + 1, since_pause + 1);
                if looks >= LOOKS_MAX && seen.count() == 0 {
                    Phase::Alone
                } else if since_pause >= LOOKS_BETWEEN_PAUSES {
                    Phase::Pause { seen: Histogram::default(), looks: 0 }
                } else if seen.count() == 0 {
                    Phase::Beside { seen, looks, since_pause }
                } else {
                    self.judge(&seen, now, goal_ns);
                    Phase::Beside { seen: Histogram::default(), looks: 0, since_pause }
                }
            }
        };
    }

    fn judge(&mut self, seen: &Histogram, now: &Seen, goal_ns: u64) {
        let holds = self.limit_ns(goal_ns).is_none_or(|limit_ns| seen.percentile_ns(990) <= limit_ns);
        let reached_bytes_s = now.read_bytes.saturating_mul(1000) / now.span_ms.max(1);
        self.rate_bytes_s = if !holds {
            // Half of what was read: a rate that the disk did not give is no measure.
            (self.rate_bytes_s.min(reached_bytes_s.max(LEAST_BYTES_S)) / 2).max(LEAST_BYTES_S)
        } else if reached_bytes_s >= self.rate_bytes_s / 2 || self.rate_bytes_s < START_BYTES_S {
            self.rate_bytes_s.saturating_add(STEP_BYTES_S * seen.count().min(REQUESTS_MIN) / REQUESTS_MIN)
        } else {
            self.rate_bytes_s
        };
    }
}

#[cfg(test)]
mod tests;
